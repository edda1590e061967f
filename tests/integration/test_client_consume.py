"""`queue.consume()`: what it acknowledges, what it gives back, and that it continues after a restart of the manager."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

import postroad
from postroad import aio
from postroad.errors import (
    AccessDenied,
    InvalidArgument,
    InvalidHandle,
    ManagerUnavailable,
    QueueNotFound,
)
from tests.commands import ServerProcess
from tests.faces import served

QUEUE = r"private$\orders"
ALL = [f"message {number}" for number in range(6)]


@contextmanager
def opened(kind: str) -> Iterator[postroad.QueueManager]:
    if kind == "embedded":
        with postroad.open(":memory:", name="alpha") as manager:
            yield manager
    else:
        with served(":memory:") as url, postroad.connect(url) as manager:
            yield manager


@pytest.fixture(params=["embedded", "remote"])
def queue(request: pytest.FixtureRequest) -> Iterator[postroad.Queue]:
    with opened(request.param) as manager:
        queue = manager.create_queue(QUEUE)
        queue.send(ALL)
        yield queue


def texts(messages: object) -> list[str]:
    return [each.text for each in messages]  # type: ignore[attr-defined]


def left(queue: postroad.Queue) -> list[str]:
    """What anybody can read now. Locked messages are not shown."""
    return texts(queue.messages())


def test_a_loop_gets_every_message_in_order_and_leaves_none(queue: postroad.Queue) -> None:
    assert texts(queue.consume(prefetch=4, timeout=0)) == ALL
    assert not left(queue)
    assert not queue.manager.locks()


def test_break_acknowledges_the_message_in_hand_and_gives_the_rest_back(queue: postroad.Queue) -> None:
    for message in queue.consume():
        if message.text == ALL[1]:
            break
    assert left(queue) == ALL[2:]
    assert not queue.manager.locks()


def test_return_out_of_the_loop_is_like_break(queue: postroad.Queue) -> None:
    def first() -> str | None:
        for number, message in enumerate(queue.consume()):
            try:
                if number == 1:
                    return message.text
            finally:
                number += 1
        return None

    assert first() == ALL[1]
    assert left(queue) == ALL[2:]


def test_an_exception_gives_the_message_in_hand_back(queue: postroad.Queue) -> None:
    def work() -> None:
        for message in queue.consume():
            if message.text == ALL[2]:
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()
    assert left(queue) == ALL[2:]
    assert not queue.manager.locks()


def fails(message: object = None) -> None:
    raise LookupError("deeper")


def test_an_exception_that_is_caught_around_the_loop_gives_it_back_too(queue: postroad.Queue) -> None:
    def work() -> None:
        try:
            for _ in queue.consume():
                with closing(StringIO()):
                    fails()
        finally:
            pass

    with pytest.raises(LookupError):
        work()
    assert left(queue) == ALL


def test_an_exception_in_an_inner_loop_gives_it_back(queue: postroad.Queue) -> None:
    try:
        for _ in queue.consume():
            for _ in range(3):
                try:
                    fails()
                finally:
                    ""
    except LookupError:
        pass
    assert left(queue) == ALL


def test_a_block_knows_how_it_ended_wherever_its_iterator_is_kept(queue: postroad.Queue) -> None:
    with queue.consume() as messages:
        assert next(messages).text == ALL[0]
    assert left(queue) == ALL[1:]
    with pytest.raises(LookupError), queue.consume() as messages:
        fails(next(messages))
    assert left(queue) == ALL[1:]


def test_an_iterator_that_is_forgotten_in_a_variable_loses_nothing(queue: postroad.Queue) -> None:
    def forget() -> None:
        messages = queue.consume()
        next(messages)
        next(messages)

    forget()
    assert left(queue) == ALL[1:]


def test_a_closed_consumer_gives_nothing_more(queue: postroad.Queue) -> None:
    messages = queue.consume()
    assert next(messages).text == ALL[0]
    messages.close()
    messages.close()
    assert list(messages) == []
    assert left(queue) == ALL[1:]


def test_no_more_than_prefetch_are_locked_at_a_time(queue: postroad.Queue) -> None:
    for number, _ in enumerate(queue.consume(prefetch=2, timeout=0), 1):
        assert sum(lock.messages for lock in queue.manager.locks()) <= 2
        assert len(left(queue)) >= len(ALL) - number - 1


def test_a_loop_reads_the_queue_while_it_works_and_while_it_waits(queue: postroad.Queue) -> None:
    def readers() -> tuple[int, int]:
        (listed,) = (each for each in queue.manager.queues() if each.path == QUEUE)
        return queue.info().readers, listed.readers

    def take_one() -> None:
        with queue.consume() as messages:
            next(messages)

    assert readers() == (0, 0)
    thread = Thread(target=take_one)
    with queue.consume(prefetch=2) as messages:
        for _ in ALL:
            next(messages)
            assert readers() == (1, 1)
        thread.start()
        while not queue.info().waiting:
            sleep(0.01)
        assert readers() == (1, 1)  # one program works and waits
    assert readers() == (1, 1)
    queue.send("one more")
    thread.join()
    assert readers() == (0, 0)


def test_a_receive_in_a_transaction_reads_the_queue_until_it_ends(queue: postroad.Queue) -> None:
    ledger = queue.manager.create_queue(r"private$\ledger", transactional=True)

    def send() -> None:
        with queue.manager.transaction() as sent:
            ledger.send("one", sent)

    send()
    with queue.manager.transaction() as held:
        ledger.receive(0, held)
        assert ledger.info().readers == 1
        waiting = Thread(target=ledger.receive, args=(5, held))
        waiting.start()
        while not ledger.info().waiting:
            sleep(0.01)
        assert ledger.info().readers == 1
        send()
        waiting.join()
    assert ledger.info().readers == 0


@pytest.mark.parametrize("prefetch", [0, -1, 10_001])
def test_prefetch_has_a_range(queue: postroad.Queue, prefetch: int) -> None:
    with pytest.raises(InvalidArgument, match="prefetch: must be between 1 and 10000"):
        queue.consume(prefetch)


def test_a_slow_consumer_acknowledges_what_it_is_done_with(
    queue: postroad.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.client.sync.consuming.ACKNOWLEDGE_S", 0.0)
    messages = queue.consume()
    for _ in range(3):
        next(messages)
    assert [lock.messages for lock in queue.manager.locks()] == [4]  # the one in hand, and three ahead
    messages.close()


def test_each_thread_consumes_for_itself(queue: postroad.Queue) -> None:
    queue.send([f"more {number}" for number in range(200)])
    found: list[str | None] = []

    def work() -> None:
        found.extend(message.text for message in queue.consume(prefetch=7, timeout=0.2))

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, found)) == sorted([*ALL, *(f"more {number}" for number in range(200))])
    assert not queue.manager.locks()


def test_one_consumer_is_not_for_two_threads(queue: postroad.Queue) -> None:
    messages = queue.consume()
    next(messages)
    faults: list[Exception] = []

    def work() -> None:
        try:
            next(messages)
        except InvalidArgument as fault:
            faults.append(fault)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert "one thread or task" in str(faults[0])
    messages.close()
    assert left(queue) == ALL[1:]


def test_a_queue_that_is_not_there_is_an_error_at_once(queue: postroad.Queue) -> None:
    with pytest.raises(QueueNotFound):
        next(queue.manager.queue(r"private$\nowhere").consume())


def test_a_queue_that_is_deleted_meanwhile_ends_the_loop_with_an_error(queue: postroad.Queue) -> None:
    def work() -> None:
        for message in queue.consume():
            if message.text == ALL[-1]:
                queue.delete()

    with pytest.raises(QueueNotFound):
        work()


def test_a_message_that_an_operator_has_released_comes_again(queue: postroad.Queue) -> None:
    found = []
    for message in queue.consume(timeout=0):
        found.append(message.text)
        if found == ALL[:1]:
            queue.release_locks([message])
    assert sorted(map(str, found)) == sorted([*ALL, ALL[0]])


def test_without_a_manager_it_is_an_error_at_once() -> None:
    with postroad.connect("http://127.0.0.1:9") as manager, pytest.raises(ManagerUnavailable):
        next(manager.queue(QUEUE).consume())


def test_a_wrong_token_is_an_error_at_once() -> None:
    with (
        served(":memory:", token="right") as url,
        postroad.connect(url, token="wrong") as manager,
        pytest.raises(AccessDenied, match="token is wrong"),
    ):
        next(manager.queue(QUEUE).consume())


def test_closing_the_manager_in_the_loop_ends_it(queue: postroad.Queue) -> None:
    def work() -> None:
        for message in queue.consume(prefetch=1):
            if message.text == ALL[1]:
                queue.manager.close()

    with pytest.raises(InvalidHandle):
        work()


# Asynchronous


def run_async(kind: str, work: Callable[[aio.Queue], Coroutine[Any, Any, None]]) -> list[str]:
    """What is left in a queue with ALL after the work and its manager have ended."""

    async def main(opening: aio.Opening) -> list[str]:
        async with opening as manager:
            queue = await manager.create_queue(QUEUE)
            await queue.send(ALL)
            await work(queue)
            await manager.cleanups.wait()
            assert not await manager.locks()
            return [str(message.text) async for message in queue.messages()]

    if kind == "embedded":
        return asyncio.run(main(aio.open(":memory:", name="alpha")))
    with served(":memory:") as url:
        return asyncio.run(main(aio.connect(url)))


@pytest.fixture(params=["embedded", "remote"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_async_for_gets_everything(kind: str) -> None:
    async def work(queue: aio.Queue) -> None:
        assert [message.text async for message in queue.consume(prefetch=4, timeout=0)] == ALL

    assert run_async(kind, work) == []


def test_async_break_acknowledges_the_message_in_hand(kind: str) -> None:
    async def work(queue: aio.Queue) -> None:
        async for message in queue.consume():
            if message.text == ALL[1]:
                break

    assert run_async(kind, work) == ALL[2:]


def test_async_exceptions_and_cancellation_give_it_back(kind: str) -> None:
    async def work(queue: aio.Queue) -> None:
        async def fail() -> None:
            async for _ in queue.consume():
                await asyncio.sleep(0)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await fail()
        await queue.manager.cleanups.wait()

        in_hand = asyncio.Event()

        in_hand = asyncio.Event()

        async def loop() -> None:
            async for message in queue.consume():
                if message.text == ALL[1]:
                    in_hand.set()
                    await asyncio.sleep(3600)

        looping = asyncio.create_task(loop())
        await in_hand.wait()
        looping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looping

    assert run_async(kind, work) == ALL[1:]


def test_closing_the_manager_waits_for_what_a_loop_left(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url) as manager:
            async for _ in manager.queue(QUEUE).consume():
                break

    with served(tmp_path) as url, postroad.connect(url) as manager:
        queue = manager.create_queue(QUEUE)
        queue.send(ALL)
        asyncio.run(main(url))
        assert left(queue) == ALL[1:]


def test_one_consumer_is_not_for_two_tasks(kind: str) -> None:
    async def work(queue: aio.Queue) -> None:
        messages = queue.consume()
        await anext(messages)
        with pytest.raises(InvalidArgument, match="one thread or task"):
            await asyncio.create_task(anext(messages))
        await messages.close()

    assert run_async(kind, work) == ALL[1:]


# Restarts

CONFIG = r"""
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.0.1"
api = {port}
binary = false
ping = false
http = false
rpc = false
epm = false
[[queue]]
path = 'private$\orders'
"""


def configured(directory: Path, port: int) -> Path:
    config = directory / "alpha.toml"
    config.write_text(CONFIG.format(port=port))
    return config


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_goes_on_after_a_restart_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    server = ServerProcess(configured(tmp_path, 0))
    wanted = [f"message {index}" for index in range(300)]
    found: list[str] = []
    try:
        with postroad.connect(server.api) as sender:
            sender.queue(QUEUE).send([postroad.Message(text, recoverable=True) for text in wanted])
        config = configured(tmp_path, int(server.api.rpartition(":")[2]))
        with postroad.connect(server.api) as manager:
            for message in manager.queue(QUEUE).consume(prefetch=40, timeout=2):
                found.append(str(message.text))
                if len(found) in (25, 130):  # in the middle of what was fetched, and the message in hand is not done
                    server.end(number)
                    server = ServerProcess(config)
            assert not manager.locks()
            assert not left(manager.queue(QUEUE))
    finally:
        server.close()
    assert sorted(set(found)) == sorted(wanted)
    # What was fetched comes again. What was acknowledged a moment before a crash may come again.
    assert len(found) <= len(wanted) + 2 * (40 if number is signal.SIGTERM else 80)


def test_what_was_acknowledged_does_not_come_again_after_kill_9(tmp_path: Path) -> None:
    server = ServerProcess(configured(tmp_path, 0))
    config = configured(tmp_path, int(server.api.rpartition(":")[2]))
    wanted = [f"message {index}" for index in range(60)]
    found: list[str] = []
    acknowledged: list[str] = []
    try:
        with postroad.connect(server.api) as manager, postroad.connect(server.api) as other:
            manager.queue(QUEUE).send([postroad.Message(text, recoverable=True) for text in wanted])
            for message in manager.queue(QUEUE).consume(prefetch=10, timeout=2):
                if len(found) in (20, 30):  # the first of what was fetched: all before it is acknowledged
                    other.queue(QUEUE).send(postroad.Message("commit", recoverable=True))  # and now it is durable
                    acknowledged = found.copy()
                    server.end(signal.SIGKILL)
                    server = ServerProcess(config)
                found.append(message.text)
    finally:
        server.close()
    assert [text for text in wanted if text not in found] == []
    assert len(acknowledged) == 30
    assert [text for text in acknowledged if found.count(text) > 1 and text not in wanted[20:30]] == []


def test_an_async_consumer_waits_while_the_manager_is_away(tmp_path: Path) -> None:
    server = ServerProcess(configured(tmp_path, 0))
    found: list[str] = []
    begun = asyncio.Event()

    async def consume(url: str) -> None:
        async with aio.connect(url) as manager:
            async for message in manager.queue(QUEUE).consume():
                found.append(str(message.text))
                begun.set()
                if message.text == "last":
                    break

    async def main() -> None:
        nonlocal server
        url = server.api
        async with aio.connect(url) as manager:
            await manager.queue(QUEUE).send(postroad.Message("first", recoverable=True))
        consuming = asyncio.create_task(consume(url))
        await begun.wait()
        await asyncio.to_thread(server.end, signal.SIGKILL)
        server = await asyncio.to_thread(ServerProcess, configured(tmp_path, int(url.rpartition(":")[2])))
        async with aio.connect(url) as manager:
            await manager.queue(QUEUE).send(postroad.Message("last", recoverable=True))
            await consuming
            assert [str(each.text) async for each in manager.queue(QUEUE).messages()] == []

    try:
        asyncio.run(main())
    finally:
        server.close()
    assert found[-1] == "last"
    assert set(found) == {"first", "last"}
