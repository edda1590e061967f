"""Holds and submissions on a real disk: a manager that dies, and a store that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroad.config import default_configuration
from postroad.errors import StorageError
from postroad.manager import Manager, build_manager
from postroad.message import Message
from postroad.reports.offsets import Selection, Submission
from postroad.store import Store, open_store
from tests.served import FailingStore

QUEUE = r"private$\orders"


def rows(*bodies: str) -> list[Message]:
    return [Message(body, recoverable=True) for body in bodies]


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Manager]:
    """A manager that is never stopped. It ends as in a crash, and its store stays as it is."""
    manager = build_manager(default_configuration("alpha"), store)
    await manager.start()
    try:
        yield manager
    finally:
        await manager.supervisor.stop()
        await asyncio.to_thread(manager._committer.close)
        store.close()


async def held(manager: Manager, name: str) -> list[str | None]:
    pages = manager.offsets.pages(QUEUE, Selection(hold=name))
    return [message.text async for page in pages for message in page]


def test_a_crash_between_reading_and_committing_loses_nothing(tmp_path: Path) -> None:
    async def read() -> int:
        async with running(open_store(tmp_path)) as manager:
            await manager.create_queue(QUEUE)
            await manager.send(QUEUE, rows("a", "b"))
            hold = await manager.offsets.hold(QUEUE, "stream", 0)
            assert hold.messages == 2
            return hold.end

    async def again(end: int) -> None:
        async with running(open_store(tmp_path)) as manager:
            await manager.send(QUEUE, rows("c"))
            assert [message.text for message in await manager.reads.receive(QUEUE, 10, 0)] == ["c"]
            assert (await manager.offsets.hold(QUEUE, "stream", 0, end)).messages == 2
            assert await held(manager, "stream") == ["a", "b"]
            assert await manager.offsets.commit_hold(QUEUE, "stream", end) == 2

    async def after(end: int) -> None:
        async with running(open_store(tmp_path)) as manager:
            assert manager.queue(QUEUE).messages == 0
            assert await manager.offsets.commit_hold(QUEUE, "stream", end) == 0
            mark = await manager.offsets.mark(QUEUE)
            assert (mark.added, mark.messages, mark.oldest) == (3, 0, None)
            assert mark.arrival > end

    end = asyncio.run(read())
    asyncio.run(again(end))
    asyncio.run(after(end))


def test_a_task_that_is_tried_again_after_a_crash_sends_what_was_not_sent(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(open_store(tmp_path)) as manager:
            await manager.create_queue(QUEUE)
            assert await manager.offsets.submit(QUEUE, "q", 4, 0, 0, rows("0", "1")) == Submission(2, 0)

    async def second() -> None:
        async with running(open_store(tmp_path)) as manager:
            assert await manager.offsets.submit(QUEUE, "q", 4, 0, 0, rows("0", "1", "2")) == Submission(1, 2)
            await manager.offsets.commit_submission(QUEUE, "q", 4)

    async def third() -> None:
        async with running(open_store(tmp_path)) as manager:
            assert await manager.offsets.submit(QUEUE, "q", 4, 0, 0, rows("0", "1", "2")) == Submission(0, 3)
            assert [message.text for message in await manager.reads.receive(QUEUE, 10, 0)] == ["0", "1", "2"]

    asyncio.run(first())
    asyncio.run(second())
    asyncio.run(third())


def test_whoever_is_told_that_rows_were_sent_can_rely_on_it() -> None:
    """A second attempt comes while the first one's tick is on its way, and that tick is lost."""

    async def attempts() -> None:
        store = FailingStore()
        async with running(store) as manager:
            await manager.create_queue(QUEUE)
            store.full = True
            first = asyncio.ensure_future(manager.offsets.submit(QUEUE, "q", 0, 0, 0, rows("0", "1")))
            second = asyncio.ensure_future(manager.offsets.submit(QUEUE, "q", 0, 0, 0, rows("0", "1")))
            with pytest.raises(StorageError):
                await first
            store.full = False
            assert await second == Submission(2, 0)
            assert [message.text for message in await manager.reads.receive(QUEUE, 10, 0)] == ["0", "1"]

    asyncio.run(attempts())


def test_a_hold_and_its_commit_while_the_disk_is_full() -> None:
    async def trial() -> None:
        store = FailingStore()
        async with running(store) as manager:
            await manager.create_queue(QUEUE)
            await manager.send(QUEUE, rows("a"))
            store.full = True
            with pytest.raises(StorageError):
                await manager.offsets.hold(QUEUE, "s", 0)
            store.full = False
            assert manager.queue(QUEUE).holds == ()
            end = (await manager.offsets.hold(QUEUE, "s", 0)).end
            store.full = True
            with pytest.raises(StorageError):
                await manager.offsets.commit_hold(QUEUE, "s", end)
            with pytest.raises(StorageError):
                await manager.offsets.release(QUEUE, "s")
            store.full = False
            assert await held(manager, "s") == ["a"]
            assert await manager.offsets.commit_hold(QUEUE, "s", end) == 1

    asyncio.run(trial())
