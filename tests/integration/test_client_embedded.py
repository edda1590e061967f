"""A queue manager within a program: what its directory keeps, several threads, interrupts, and a sudden death."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import postroad
from postroad import aio, errors
from postroad.client.blocking import LoopThread
from postroad.client.embedded import EmbeddedBackend
from postroad.client.sync.backend import Backend
from postroad.config import default_configuration
from postroad.manager import Manager, build_manager
from postroad.store import Batch, LayeredStore, MemoryStore, Store
from tests.faces import served

SENDER = r"""
import sys, postroad
with postroad.open(sys.argv[1]) as qm:
    queue = qm.create_queue(r"private$\orders", exist_ok=True)
    while True:
        print("\n".join(queue.send([postroad.Message(b"x", recoverable=True)] * 3)), flush=True)
"""
READER = r"""
import signal, sys, threading, time, postroad
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started with it ignored
def tell():
    while not queue.info().waiting:
        time.sleep(0.01)
    print("reading", flush=True)
with postroad.open(sys.argv[1]) if sys.argv[2] == "open" else postroad.connect(sys.argv[1]) as qm:
    queue = qm.create_queue(r"private$\orders", exist_ok=True)
    threading.Thread(target=tell).start()
    try:
        queue.receive()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert sys.stdin.readline() == "go on\n"
    queue.send("after")
    print(*[message.text for message in queue.receive_many(9, 0)], flush=True)
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


# What is kept


def test_the_example_of_the_front_page_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with postroad.open("data/alpha") as qm:
        orders = qm.create_queue(r"private$\orders", transactional=True)
        with qm.transaction() as tx:
            orders.send(postroad.Message(b"...", label="order 1"), tx)
        message = orders.receive(timeout=5)
    assert (message.body, message.label) == (b"...", "order 1")


def test_recoverable_messages_outlive_the_manager_and_express_ones_do_not(tmp_path: Path) -> None:
    with postroad.open(tmp_path) as qm:
        queue = qm.create_queue(r"private$\orders", label="Orders")
        queue.send([postroad.Message("kept", recoverable=True), "lost"])
        identifier = qm.info().id
    with postroad.open(tmp_path) as qm:
        queue = qm.queue(r"private$\orders")
        assert [message.text for message in queue.messages()] == ["kept"]
        assert (queue.info().label, qm.info().id) == ("Orders", identifier)


def test_a_transaction_that_nobody_ended_never_was(tmp_path: Path) -> None:
    with postroad.open(tmp_path) as qm:
        queue = qm.create_queue(r"private$\orders", transactional=True)
        queue.send("first", transactional=True)
        tx = qm.begin()
        queue.receive(0, tx)
        queue.send("second", tx)
    with postroad.open(tmp_path) as qm:
        assert [message.text for message in qm.queue(r"private$\orders").messages()] == ["first"]


def test_the_name_is_the_hosts_until_one_is_given_and_then_it_is_kept(tmp_path: Path) -> None:
    names = []
    for given in (None, "alpha", None, "beta", None):
        with postroad.open(tmp_path, name=given) as qm:
            names.append(qm.info().name)
    assert names == [socket.gethostname().partition(".")[0], "alpha", "alpha", "beta", "beta"]


@pytest.mark.parametrize("name", ["a\\b", "with space", ".", "private$", "ä"])
def test_a_name_that_no_computer_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="name"):
        postroad.open(tmp_path, name=name)
    postroad.open(tmp_path).close()


def test_a_directory_is_one_managers_at_a_time(tmp_path: Path) -> None:
    with postroad.open(tmp_path), pytest.raises(errors.StorageError, match=f"in use by process {os.getpid()}"):
        postroad.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.StorageError):
        postroad.open(tmp_path / "file" / "data")


def test_memory_keeps_nothing() -> None:
    with postroad.open(":memory:") as qm:
        qm.create_queue(r"private$\orders")
    with postroad.open(":memory:") as qm, pytest.raises(errors.QueueNotFound):
        qm.queue(r"private$\orders").info()


def test_a_manager_opens_with_await_or_with_a_block(tmp_path: Path) -> None:
    async def main() -> None:
        qm = await aio.open(tmp_path)
        await qm.create_queue(r"private$\orders")
        await qm.close()
        async with aio.open(tmp_path) as qm:
            await qm.queue(r"private$\orders").info()
        async with await aio.open(tmp_path) as qm:
            await qm.queue(r"private$\orders").info()
        assert qm.closed

    asyncio.run(main())


def test_what_send_returned_for_survives_a_sudden_death(tmp_path: Path) -> None:
    with start(SENDER, str(tmp_path)) as process:
        promised = [line(process) for _ in range(30)]
        process.kill()
        assert process.stdout is not None
        promised += [each for each in process.stdout.read().split("\n")[:-1] if each]
    with postroad.open(tmp_path) as qm:
        found = [str(message.id) for message in qm.queue(r"private$\orders").messages()]
    assert found[: len(promised)] == promised


# Threads


def test_threads_share_one_manager(tmp_path: Path) -> None:
    with postroad.open(tmp_path) as qm:
        queue = qm.create_queue(r"private$\orders")

        def work(number: int) -> list[str]:
            sent = queue.send([postroad.Message(str(number), recoverable=True) for _ in range(5)])
            return [*sent, *(str(message.id) for message in queue.receive_many(5, 10))]

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(work, range(40)))
        sent = sorted(each for result in results for each in result[:5])
        received = sorted(each for result in results for each in result[5:])
        received += [str(message.id) for message in queue.messages()]
        assert sorted(received) == sent
        assert len(set(sent)) == 200


class Gate:
    """A store whose commits wait at a gate, are counted, and fail if they are told to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.commits: list[int] = []

    def is_short(self, batch: Batch) -> bool:
        """None, so that none is made on the event loop's thread."""
        return False

    def commit(self, batches: Iterable[Batch]) -> None:
        batches = list(batches)
        assert self.gate.wait(60)
        if self.fails:
            self.fails = False
            raise errors.StorageError("the disk reported an error")
        self.commits.append(sum(len(batch.puts) for batch in batches))
        super().commit(batches)  # type: ignore[misc]


class GatedStore(Gate, MemoryStore):
    pass


class GatedDirectory(Gate, LayeredStore):
    pass


def embedded(store: Store) -> tuple[postroad.QueueManager, Manager]:
    """A manager with its blocking API, on the given store."""

    async def begin() -> Manager:
        manager = build_manager(default_configuration("alpha"), store)
        await manager.start()
        return manager

    thread = LoopThread()
    manager = thread.run(begin())
    return postroad.QueueManager(Backend(thread, EmbeddedBackend(manager))), manager


def until(condition: object) -> None:
    """Waits for something that another thread is about to do."""
    assert callable(condition)
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not happen within a minute")


def test_calls_made_at_the_same_time_share_a_commit() -> None:
    store = GatedStore()
    qm, manager = embedded(store)
    with qm, ThreadPoolExecutor(9) as pool:
        queue = qm.create_queue(r"private$\orders")
        store.commits.clear()
        store.gate.clear()
        first = pool.submit(queue.send, postroad.Message(b"x", recoverable=True))
        until(lambda: manager.core.tick.writes == 0 and manager.core.queues.get(queue.name).reserved_bytes)
        others = [pool.submit(queue.send, postroad.Message(b"x", recoverable=True)) for _ in range(8)]
        until(lambda: len(manager.core.tick.batch.puts) == len(others))
        assert not first.done()
        store.gate.set()
        assert len({each.result() for each in (first, *others)}) == 9
        assert store.commits == [1, 8]


def test_closing_ends_reads_that_wait(tmp_path: Path) -> None:
    qm = postroad.open(tmp_path)
    queue = qm.create_queue(r"private$\orders")
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(queue.receive) for _ in range(2)]
        until(lambda: queue.info().waiting == 2)
        qm.close()
        for reader in readers:
            assert isinstance(reader.exception(), errors.OperationCancelled)


def test_several_threads_may_close(tmp_path: Path) -> None:
    qm = postroad.open(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        for closing in [pool.submit(qm.close) for _ in range(4)]:
            closing.result()
    with pytest.raises(errors.InvalidHandle):
        qm.info()
    postroad.open(tmp_path).close()


@pytest.mark.parametrize("how", ["open", "connect"])
def test_a_program_that_forgets_to_close_ends_in_silence(tmp_path: Path, how: str) -> None:
    with served(tmp_path / "served") as url:
        program = (
            f'import sys, postroad; postroad.{how}(sys.argv[1]).create_queue(r"private$\\q").send("x"); print("end")'
        )
        command = [sys.executable, "-W", "error", "-c", program, url if how == "connect" else str(tmp_path / "own")]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "end\n", "")


# Interrupts


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C while the program waits for a message. A message that comes afterwards must still be there."""
    assert line(process) == "reading"
    process.send_signal(signal.SIGINT)
    assert line(process) == "interrupted"


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0
    return output.strip()


def test_an_interrupt_ends_a_waiting_receive_and_takes_nothing(tmp_path: Path) -> None:
    process = start(READER, str(tmp_path), "open")
    interrupt(process)
    assert finish(process) == "after"


def test_an_interrupt_ends_a_receive_from_afar_and_takes_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as url, postroad.connect(url) as qm:
        process = start(READER, url, "connect")
        interrupt(process)
        queue = qm.queue(r"private$\orders")
        until(lambda: queue.info().waiting == 0)
        queue.send("for somebody")
        assert finish(process) == "for somebody after"


Read = Callable[[aio.Queue], Coroutine[Any, Any, object]]
ANSWERED = "{00000000-0000-4000-8000-000000000007}\\7"


def letter(text: str, **properties: Any) -> postroad.Message:
    return postroad.Message(text, recoverable=True, correlation_id=ANSWERED, **properties)


async def _at_lookup_id(queue: aio.Queue) -> None:
    await queue.receive_by_id((await queue.peek(0)).lookup_id)


async def _at_cursor(queue: aio.Queue) -> None:
    async with queue.cursor() as cursor:
        await cursor.receive(0)


async def _after_a_wait(queue: aio.Queue) -> None:
    locked = await queue.lock(9, 0)
    waiting = asyncio.ensure_future(queue.receive(60))
    try:
        while not (await queue.info()).waiting:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0)
        await queue.settle(locked, delete=False)
        await waiting
    except asyncio.CancelledError:
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        raise


READS: dict[str, Read] = {
    "one": lambda queue: queue.receive(0),
    "several": lambda queue: queue.receive_many(3, 0),
    "by lookup id": _at_lookup_id,
    "by correlation id": lambda queue: queue.receive_by_correlation_id(ANSWERED, 0),
    "at a cursor": _at_cursor,
    "after a wait": _after_a_wait,
}


@asynccontextmanager
async def leaving(
    store: GatedStore | GatedDirectory, read: Read
) -> AsyncIterator[tuple[Manager, aio.Queue, asyncio.Task[object]]]:
    """A manager, and a read of it whose messages are leaving the queue: the store's gate is shut."""
    manager = build_manager(default_configuration("alpha"), store)
    await manager.start()
    async with aio.QueueManager(EmbeddedBackend(manager)) as qm:
        queue = await qm.create_queue(r"private$\orders")
        await queue.send([letter("1", priority=5), letter("2"), letter("3")])
        store.gate.clear()
        reading: asyncio.Task[object] = asyncio.create_task(read(queue))
        try:
            while not (manager.reads.committing and manager.durability.writing):  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0)
            yield manager, queue, reading
        finally:
            store.gate.set()


async def left(reading: asyncio.Task[object]) -> None:
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def texts(queue: aio.Queue) -> list[str]:
    """What can be received, once no commit is under way."""
    await queue.send(postroad.Message("last", recoverable=True, priority=0))
    return [message.text async for message in queue.messages()]


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_that_is_cancelled_while_its_messages_leave_gives_them_back(read: Read) -> None:
    """They keep their order by priority."""

    async def main() -> None:
        store = GatedStore()
        async with leaving(store, read) as (_, queue, reading):
            await left(reading)
            store.gate.set()
            found = await texts(queue)
            assert (found[0], sorted(found)) == ("1", ["1", "2", "3", "last"])

    asyncio.run(main())


def test_a_read_that_is_cancelled_right_after_its_commit_gives_its_message_back() -> None:
    async def main() -> None:
        store = GatedStore()
        async with leaving(store, READS["one"]) as (manager, queue, reading):
            manager.durability.under_way.append(lambda _: reading.cancel())
            store.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await texts(queue) == ["1", "2", "3", "last"]

    asyncio.run(main())


def test_messages_that_could_not_leave_stay_once_if_their_reader_is_cancelled() -> None:
    async def main() -> None:
        store = GatedStore()
        async with leaving(store, READS["one"]) as (_, queue, reading):
            store.fails = True
            await left(reading)
            store.gate.set()
            assert await texts(queue) == ["1", "2", "3", "last"]

    asyncio.run(main())


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_a_cancelled_read_gives_back_survives_a_close_that_follows_at_once(tmp_path: Path, read: Read) -> None:
    async def main() -> None:
        async with leaving(GatedDirectory(tmp_path), read) as (_, _, reading):
            await left(reading)

    asyncio.run(main())
    with postroad.open(tmp_path) as qm:
        queue = qm.queue(r"private$\orders")
        queue.send(letter("4"))
        assert sorted(message.text for message in queue.messages()) == ["1", "2", "3", "4"]


def test_messages_for_other_machines_wait_and_that_is_said_once_a_queue(caplog: pytest.LogCaptureFixture) -> None:
    beta, gamma = (rf"DIRECT=OS:{name}\private$\orders" for name in ("beta", "gamma"))
    with postroad.open(":memory:", name="alpha") as qm:
        qm.create_queue(r"private$\orders").send("at home")
        assert caplog.messages == []
        qm.queue(beta).send("first")
        qm.queue(r"beta\private$\orders").send("second")
        qm.queue(f"{beta},{gamma}").send("third", transactional=True)
        assert [(beta in each, gamma in each, "postroad serve" in each) for each in caplog.messages] == [
            (True, False, True),
            (False, True, True),
        ]
        why = qm.queue(beta).info().why
    assert why is not None
    assert "until `postroad serve` runs on this data" in why


# Iterations that nobody ends


@pytest.mark.timeout(60)
def test_an_iteration_that_is_collected_on_the_loops_thread_does_not_stop_the_loop(tmp_path: Path) -> None:
    with postroad.open(tmp_path) as qm:
        queue = qm.create_queue(r"private$\orders")
        queue.send([f"{number}" for number in range(5000)])
        forgotten = [queue.arrow()]
        next(forgotten[0])
        qm.backend._runner._loop.call_soon_threadsafe(forgotten.clear)  # type: ignore[attr-defined]
        until(lambda: not forgotten)
        assert queue.info().messages == 5000


@pytest.mark.timeout(60)
def test_an_iteration_that_is_collected_on_another_loops_thread_is_not_waited_for(tmp_path: Path) -> None:
    busy = threading.Event()
    with postroad.open(tmp_path / "alpha") as alpha, postroad.open(tmp_path / "beta") as beta:
        queue = alpha.create_queue(r"private$\orders")
        queue.send([f"{number}" for number in range(5000)])
        forgotten = [queue.arrow()]
        next(forgotten[0])
        alpha.backend._runner._loop.call_soon_threadsafe(busy.wait)  # type: ignore[attr-defined]
        try:
            beta.backend._runner._loop.call_soon_threadsafe(forgotten.clear)  # type: ignore[attr-defined]
            assert beta.create_queue(r"private$\other").info().messages == 0
            assert not forgotten
        finally:
            busy.set()
        assert queue.info().messages == 5000
