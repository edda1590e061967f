"""A read that waits in a running manager: what its reader gets, and what stays if the reader leaves."""

from __future__ import annotations

import asyncio

import pytest

from postroad.config import default_configuration
from postroad.errors import NoMessage
from postroad.manager import Manager, build_manager
from postroad.message import Message
from postroad.queues.open_queue import WaitingRead
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.store.interface import Record
from postroad.store.memory import MemoryStore

QUEUE = r"private$\orders"


def waiting_read(manager: Manager, deadline: float | None = None) -> WaitingRead:
    """A receive that has found nothing."""
    descriptor = manager.core.open(QUEUE, QueueAccess.RECEIVE, ShareMode.DENY_NONE, manager.clock())
    request = WaitingRead(descriptor, ReadCall.RECEIVE, deadline=deadline, two_phase=True)
    assert manager.core.reading.read(request, manager.clock()) is None
    return request


def test_a_message_that_comes_after_its_reader_has_left_stays() -> None:
    """The reader is cancelled in the same turn of the event loop, before anything else learns of it."""

    async def run() -> None:
        manager = build_manager(default_configuration("alpha"), MemoryStore())
        await manager.start()
        await manager.create_queue(QUEUE)
        await manager.send(QUEUE, [Message(b"one")])
        locked = await manager.reads.lock(QUEUE)
        queue = manager.core.queues.get(QUEUE)
        record = queue.get(locked.messages[0].lookup_id)
        assert record is not None
        ended: asyncio.Future[list[Record]] = manager.reads.wait(waiting_read(manager), lambda records: records)
        ended.cancel()
        manager.core.reading.put_back(queue, record, manager.clock())
        await asyncio.sleep(0)
        assert not queue.waiting
        assert [message.body for message in await manager.reads.receive(QUEUE, timeout=0)] == [b"one"]
        await manager.stop()

    asyncio.run(run())


def test_an_error_is_what_the_reader_makes_of_it() -> None:
    async def run() -> None:
        manager = build_manager(default_configuration("alpha"), MemoryStore())
        await manager.start()
        await manager.create_queue(QUEUE)
        soon = manager.clock() + 0.01
        told = manager.reads.wait(waiting_read(manager, soon), lambda records: 0, lambda error: error.status)
        raised = manager.reads.wait(waiting_read(manager, soon), lambda records: records)
        assert await told == NoMessage("").status
        with pytest.raises(NoMessage):
            await raised
        await manager.stop()

    asyncio.run(run())
