"""`postroad.remote` and our own server: every verb, both syntaxes, many readers at a time, and readers that die."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postroad
from postroad.client.remote import RemoteBackend
from postroad.errors import (
    AccessDenied,
    IllegalCursorAction,
    InvalidArgument,
    LocalProtocolError,
    MessageNotFound,
    NoMessage,
    PostroadError,
    QueueNotFound,
    RpcFault,
    RpcUnavailable,
    SharingViolation,
    StorageError,
    TransactionSequence,
)
from postroad.message import Message
from postroad.remote_read.mqqp_client import RemoteReadClient
from postroad.remote_read.mqrr_client import MqrrClient
from postroad.remote_read.values import Ack, DesiredAccess
from postroad.reports.info import LockInfo
from postroad.rpc.client import RpcClient
from postroad.rpc.ndr import Format
from postroad.store import MemoryStore, open_store
from postroad.store.interface import Batch
from tests.remote.station import HOST, ORDERS, OTHER, PASSWORD, PATIENCE_S, USER, Station, station
from tests.served import FailingStore

READERS, MESSAGES = 100, 10_000
KINDS: dict[str, dict[str, Any]] = {
    "ndr": {"layouts": (Format.NDR,)},
    "ndr64": {"layouts": (Format.NDR64,)},
    "authenticated": {"user": USER, "password": PASSWORD},
    "authenticated-ndr64": {"layouts": (Format.NDR64,), "user": USER, "password": PASSWORD},
}


PROTOCOL: dict[str, Any] = {"protocol": "auto"}  # that of the test


@pytest.fixture(autouse=True, params=["mqrr", "mqqp"])
def protocol(request: pytest.FixtureRequest) -> Iterator[None]:
    PROTOCOL["protocol"] = request.param
    yield
    PROTOCOL["protocol"] = "auto"


@pytest.fixture
def running() -> Iterator[Station]:
    with station() as running:
        yield running


def pending(backend: RemoteBackend) -> dict[int, Any]:
    client = backend.client
    assert isinstance(client, RemoteReadClient | MqrrClient)
    return dict(client.pending)


def connection_of(backend: RemoteBackend) -> RpcClient | None:
    return backend.client._connection


@pytest.fixture
def manager(running: Station) -> Iterator[postroad.QueueManager]:
    with postroad.remote(HOST, port=running.address[1], **PROTOCOL) as remote:
        yield remote


@contextlib.asynccontextmanager
async def backend(running: Station, **options: Any) -> AsyncIterator[RemoteBackend]:
    made = RemoteBackend(running.address[0], running.address[1], **{**PROTOCOL, **options})
    try:
        yield made
    finally:
        await made.close()


# The verbs


def test_receive_and_peek(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", "two", "three")
    orders = manager.queue(ORDERS)
    assert orders.peek().label == "one"
    message = orders.receive(timeout=5)
    assert (message.label, message.body) == ("one", b"one")
    assert [each.label for each in orders.peek_many(10)] == ["two", "three"]
    assert [each.label for each in orders.receive_many(10)] == ["two", "three"]
    with pytest.raises(NoMessage):
        orders.receive(timeout=0)
    with pytest.raises(NoMessage):
        orders.peek(timeout=0)


def test_what_remote_readers_have_is_listed_and_cannot_be_released(
    running: Station, manager: postroad.QueueManager
) -> None:
    running.send("one", "two")

    async def look() -> tuple[list[LockInfo], int]:
        return running.manager.leases.locks(ORDERS), running.manager.leases.locked(ORDERS)

    with manager.queue(ORDERS).receiving(timeout=5) as message:
        (lock,), locked = running.run(look())
        assert (lock.kind, lock.messages, lock.lookup_ids, locked) == ("remote reader", 1, (message.lookup_id,), 1)
        assert lock.owner == "127.0.0.1"
        with pytest.raises(TransactionSequence, match="remote reader"):
            running.run(running.manager.leases.release(ORDERS, [message.lookup_id]))
        assert running.run(running.manager.leases.release(ORDERS)) == []
    assert running.run(look()) == ([], 0)


def test_a_message_is_what_its_own_manager_says_it_is(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", priority=7, app_tag=5, correlation_id=bytes(range(20)))
    running.run(running.manager.create_queue(r"private$\ledger", transactional=True))
    running.run(running.manager.send_transactional(r"private$\ledger", [Message(b"t", label="t")]))
    for path in (ORDERS, r"private$\ledger"):
        (here,) = running.run(running.manager.reads.peek(path, 1, 0))
        there = manager.queue(path).peek(timeout=5)
        assert there.packet == here.packet
        assert there.lookup_id == here.lookup_id
        assert there.arrived_ms == here.arrived_ms // 1000 * 1000


def test_what_a_manager_keeps_with_a_message_stays_there(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", dead_letter_queue=r"private$\dead")
    (here,) = running.run(running.manager.reads.peek(ORDERS, 1, 0))
    there = manager.queue(ORDERS).peek(timeout=5)
    assert (here.dead_letter_queue, there.dead_letter_queue) == (r".\private$\dead", None)
    assert there.packet == here.packet[: here.view.packet_size]


def test_a_block_takes_its_message_when_it_ends_well(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", "two")
    orders = manager.queue(ORDERS)
    with contextlib.suppress(ZeroDivisionError), orders.receiving(timeout=5) as message:
        assert message.label == "one"
        assert running.labels() == ["two"]
        raise ZeroDivisionError
    assert running.labels() == ["one", "two"]
    with orders.receiving_many(5, timeout=5) as messages:
        assert [each.label for each in messages] == ["one", "two"]
    assert running.count() == 0
    with pytest.raises(TransactionSequence):
        orders.settle(messages, delete=True)


def test_many_messages_come_in_their_order_and_nothing_stays_locked(
    running: Station, manager: postroad.QueueManager
) -> None:
    running.send(*(str(number) for number in range(100)), priority=3)
    running.send("urgent", priority=6)
    orders = manager.queue(ORDERS)
    first = orders.receive_many(50, timeout=5)
    assert [each.label for each in first] == ["urgent", *(str(number) for number in range(49))]
    rest = orders.receive_many(100, timeout=5)
    assert [each.label for each in rest] == [str(number) for number in range(49, 100)]
    assert running.count() == 0


def test_a_reader_who_leaves_in_the_middle_of_many_leaves_them_all(running: Station) -> None:
    running.send(*(str(number) for number in range(200)))

    async def scene() -> None:
        async with backend(running) as reader:
            for turn in range(20):
                task = asyncio.ensure_future(reader.lock(ORDERS, 150, 5))
                await asyncio.sleep(turn * 0.002)
                if task.cancel():
                    with contextlib.suppress(asyncio.CancelledError):
                        messages = await task
                        await reader.settle(ORDERS, [each.lookup_id for each in messages], False)
                else:
                    await reader.settle(ORDERS, [each.lookup_id for each in task.result()], False)
                await asyncio.to_thread(running.wait_until, "unacknowledged", 0)
                assert pending(reader) == {}

    asyncio.run(scene())
    assert running.labels() == [str(number) for number in range(200)]


@pytest.mark.parametrize("turns", range(4))
def test_a_message_that_comes_in_the_moment_in_which_its_reader_leaves_goes_back(running: Station, turns: int) -> None:
    """The reader is cancelled so many turns of its loop after the answer has come, or in the same turn."""
    running.send("one")

    async def scene() -> None:
        async with backend(running) as reader:
            await reader.settle(ORDERS, [each.lookup_id for each in await reader.lock(ORDERS, 1, 5)], False)
            connection = connection_of(reader)
            assert connection is not None
            task = asyncio.ensure_future(reader.lock(ORDERS, 1, 5))
            settle = connection._settle
            left = False

            def leave(waits: int) -> None:
                if waits:
                    asyncio.get_running_loop().call_soon(leave, waits - 1)
                else:
                    task.cancel()

            def settle_and_leave(call_id: int, answer: tuple[bytes, str] | None, error: RpcFault | None) -> None:
                nonlocal left
                settle(call_id, answer, error)
                if pending(reader) and not left:
                    left = True
                    leave(turns)

            connection._settle = settle_and_leave  # type: ignore[method-assign]
            with contextlib.suppress(asyncio.CancelledError):
                await reader.settle(ORDERS, [each.lookup_id for each in await task], False)
            assert left
            await asyncio.to_thread(running.wait_until, "unacknowledged", 0)
            assert pending(reader) == {}

    asyncio.run(scene())
    assert running.labels() == ["one"]


def test_lookup_in_all_directions(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", "two", "three", "four")
    orders = manager.queue(ORDERS)
    first, last = orders.peek_by_id(0, "first"), orders.peek_by_id(0, "last")
    assert (first.label, last.label) == ("one", "four")
    assert orders.peek_by_id(first.lookup_id, "next").label == "two"
    assert orders.peek_by_id(last.lookup_id, "previous").label == "three"
    assert orders.receive_by_id(last.lookup_id).label == "four"
    assert orders.receive_by_id(0, "first").label == "one"
    assert running.labels() == ["two", "three"]
    with pytest.raises(MessageNotFound):
        orders.peek_by_id(first.lookup_id)


def test_a_walk_by_lookup_ids_sees_every_message_once(running: Station, manager: postroad.QueueManager) -> None:
    running.send(*(f"p{number}" for number in range(150)), priority=3)
    running.send("urgent", priority=7)
    orders = manager.queue(ORDERS)
    found = [message.label for message in orders.messages()]
    assert found == ["urgent", *(f"p{number}" for number in range(150))]
    ids = [message.lookup_id for message in orders.messages()]
    assert ids == sorted(ids)
    assert [message.label for message in orders.messages(after=ids[147])] == ["p147", "p148", "p149"]
    assert list(orders.messages(after=ids[-1])) == []
    assert running.count() == 151


def test_a_walk_goes_on_where_its_last_message_is_gone(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", "two", "three", "four")
    orders = manager.queue(ORDERS)
    second = orders.peek_by_id(orders.peek_by_id(0, "first").lookup_id, "next")
    assert orders.receive_by_id(second.lookup_id).label == "two"
    assert [message.label for message in orders.messages(after=second.lookup_id)] == ["three", "four"]
    last = orders.peek_by_id(0, "last")
    orders.receive_by_id(last.lookup_id)
    assert list(orders.messages(after=last.lookup_id)) == []


def test_a_range_of_lookup_ids_is_read_to_its_end(running: Station, manager: postroad.QueueManager) -> None:
    """What a reader of one part of the queue does while others read the other parts."""
    running.send(*(str(number) for number in range(20)))
    orders = manager.queue(ORDERS)
    ids = [message.lookup_id for message in orders.messages()]
    part = orders.messages(after=ids[4], until=ids[9])
    assert [message.label for message in part] == ["5", "6", "7", "8", "9"]


def test_cursors(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one", "two", "three")
    with manager.queue(ORDERS).cursor() as cursor:
        with pytest.raises(IllegalCursorAction):
            cursor.peek_next(timeout=0)
        assert cursor.peek(timeout=0).label == "one"
        assert cursor.peek_next(timeout=0).label == "two"
        assert cursor.receive(timeout=0).label == "two"
        assert cursor.receive(timeout=0).label == "three"
        with pytest.raises(NoMessage):
            cursor.receive(timeout=0)
    assert running.labels() == ["one"]
    assert sum(reader.cursors for reader in running.server.readers()) == 0


def test_exclusive_readers(running: Station, manager: postroad.QueueManager) -> None:
    with (
        manager.queue(ORDERS).open(exclusive=True),
        postroad.remote(HOST, port=running.address[1], **PROTOCOL) as other,
        pytest.raises(SharingViolation),
    ):
        other.queue(ORDERS).receive(timeout=0)
    with manager.queue(ORDERS).open(access="peek") as opened, opened.cursor() as cursor:
        running.send("one")
        assert cursor.peek(timeout=5).label == "one"
        with pytest.raises(AccessDenied):
            cursor.receive(timeout=0)


def test_purge(running: Station, manager: postroad.QueueManager) -> None:
    running.send(*(str(number) for number in range(1500)))
    manager.queue(ORDERS).purge()
    assert running.count() == 0


def test_other_names_of_the_queue(running: Station, manager: postroad.QueueManager) -> None:
    running.send("one")
    info = running.run(_describe(running))
    for name in (rf".\{ORDERS}", rf"alpha\{ORDERS}", f"DIRECT=TCP:{HOST}\\{ORDERS}", info):
        assert manager.queue(name).peek(timeout=5).label == "one"
    with pytest.raises(NoMessage):
        manager.queue(";deadletter").peek(timeout=0)


async def _describe(running: Station) -> str:
    return running.manager.queue(ORDERS).format_name


def test_what_the_protocol_has_no_words_for(running: Station, manager: postroad.QueueManager) -> None:
    for attempt in (
        manager.queues,
        manager.sessions,
        lambda: manager.create_queue(r"private$\new"),
        lambda: manager.queue(ORDERS).send(b"x"),
        lambda: manager.queue(ORDERS).delete(),
    ):
        with pytest.raises(LocalProtocolError):
            attempt()
    for timeout in (-1, float("nan"), "soon"):
        with pytest.raises(InvalidArgument, match="timeout: must be a number of seconds"):
            manager.queue(ORDERS).receive(timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        manager.queue(ORDERS).receive_many(0)


def test_nobody_there() -> None:
    with (
        postroad.remote("127.0.70.77", port=1, **PROTOCOL) as manager,
        pytest.raises(RpcUnavailable, match=r"127\.0\.70\.77:1"),
    ):
        manager.queue(ORDERS).peek(timeout=0)


def test_the_same_verbs_with_await(running: Station) -> None:
    running.send("one", "two")

    async def scene() -> None:
        async with postroad.aio.remote(HOST, port=running.address[1]) as manager:
            orders = manager.queue(ORDERS)
            assert (await orders.peek(timeout=5)).label == "one"
            async with orders.receiving(timeout=5) as message:
                assert message.label == "one"
            assert [each.label async for each in orders.messages()] == ["two"]
            with pytest.raises(QueueNotFound):
                await manager.queue(r"private$\nowhere").peek(timeout=0)

    asyncio.run(scene())


# Syntaxes and authentication


@pytest.mark.spec("QP-2.2-01", "QP-2.2-02")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_client_reads(running: Station, kind: str) -> None:
    running.send("one", "two", "three")
    large = bytes(range(256)) * 16000
    running.run(running.manager.send(OTHER, [Message(large)]))

    async def scene() -> None:
        async with backend(running, **KINDS[kind]) as reader:
            assert [message.label for message in await reader.peek(ORDERS, 5, 5)] == ["one", "two", "three"]
            (message,) = await reader.receive(ORDERS, 1, 5, None)
            assert message.label == "one"
            (message,) = await reader.receive(OTHER, 1, 5, None)
            assert message.body == large
            assert {each.user for each in running.server.readers()} == {USER if "auth" in kind else None}

    asyncio.run(scene())
    assert running.labels() == ["two", "three"]


@pytest.mark.spec("QP-5-02", "QP-5-03")
def test_a_hardened_server_lets_only_known_users_open_a_queue() -> None:
    with station(authenticate=True) as running:
        running.send("one")

        async def scene() -> None:
            async with backend(running) as stranger:
                with pytest.raises(AccessDenied):  # and it got as far as that: the port is told to everybody
                    await stranger.peek(ORDERS, 1, 0)
            async with backend(running, user=USER, password=PASSWORD) as reader:
                assert len(await reader.peek(ORDERS, 1, 5)) == 1
            async with backend(running, user=USER, password="a guess") as thief:
                with pytest.raises(PostroadError):
                    await thief.peek(ORDERS, 1, 5)

        asyncio.run(scene())


# Many readers


@pytest.mark.spec("QP-1.3.3-01", "QP-3.1.1.3-02")
def test_a_hundred_readers_get_each_of_ten_thousand_messages_once(running: Station) -> None:
    running.send(*(str(number) for number in range(MESSAGES)), recoverable=False)

    async def read(reader: RemoteBackend, found: Counter[str]) -> None:
        while True:
            try:
                for message in await reader.receive(ORDERS, 10, 0, None):
                    found[message.label] += 1
            except NoMessage:
                return

    async def scene() -> Counter[str]:
        found: Counter[str] = Counter()
        async with contextlib.AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(backend(running)) for _ in range(READERS)]
            await asyncio.gather(*(read(reader, found) for reader in readers))
        return found

    found = asyncio.run(scene())
    assert len(found) == MESSAGES
    assert set(found.values()) == {1}
    assert running.count() == 0


@pytest.mark.spec("QP-3.1.4-06")
def test_no_read_that_waits_holds_up_another(running: Station) -> None:
    async def scene() -> None:
        async with backend(running) as reader:
            waiting = [asyncio.ensure_future(reader.receive(OTHER, 1, None, None)) for _ in range(200)]
            await asyncio.to_thread(running.wait_until, "waiting", 200)
            await asyncio.to_thread(running.send, "one")
            (message,) = await reader.receive(ORDERS, 1, 20, None)  # on the very connection that they wait on
            assert message.label == "one"
            await asyncio.to_thread(running.send, *(str(number) for number in range(200)), queue=OTHER)
            found = [messages[0].label for messages in await asyncio.gather(*waiting)]
            assert sorted(found) == sorted(str(number) for number in range(200))

    asyncio.run(scene())


# Durability and death


def test_an_acknowledged_message_is_gone_after_a_restart(tmp_path: Path) -> None:
    with station(open_store(tmp_path)) as running:
        running.send("one", "two", "three")
        with postroad.remote(HOST, port=running.address[1], **PROTOCOL) as manager:
            assert manager.queue(ORDERS).receive(timeout=5).label == "one"
            manager.queue(ORDERS).lock(1, timeout=5)
    with station(open_store(tmp_path), queues=()) as running:
        assert running.labels() == ["two", "three"]


@pytest.mark.spec("QP-2.2-04")
def test_a_disk_that_is_full_keeps_the_message() -> None:
    """The failure has a code of our own, with the severity bit of a failure."""
    store = FailingStore()
    with station(store) as full, postroad.remote(HOST, port=full.address[1], **PROTOCOL) as manager:
        full.send("one")
        orders = manager.queue(ORDERS)
        (message,) = orders.lock(1, timeout=5)
        store.full = True
        with pytest.raises(StorageError):
            orders.settle([message], delete=True)
        store.full = False
        assert orders.receive(timeout=5).label == "one"


class CountingStore(MemoryStore):
    commits = 0

    def commit(self, batches: Iterable[Batch]) -> None:
        self.commits += 1
        super().commit(batches)


def test_a_receive_makes_no_commit_and_acknowledgments_that_come_together_share_one() -> None:
    store = CountingStore()

    async def read(running: Station) -> None:
        async with contextlib.AsyncExitStack() as stack:
            held = []
            before = store.commits
            for _ in range(8):
                reader = await stack.enter_async_context(backend(running))
                opened = await stack.enter_async_context(reader._open(reader._name(ORDERS), DesiredAccess.RECEIVE))
                held.append((reader.client, (await reader.client.receive(opened)).entry))
            assert store.commits == before
            stopped, go = threading.Event(), threading.Event()

            def stop() -> None:
                stopped.set()
                go.wait(PATIENCE_S)

            running.loop.call_soon_threadsafe(stop)  # so that all of them are there at its next turn
            assert stopped.wait(PATIENCE_S)
            ends = []
            for client, entry in held:
                assert entry is not None
                ends.append(asyncio.ensure_future(client.end(entry, Ack.RR_ACK)))
            await asyncio.sleep(0)  # each has written its call
            go.set()
            await asyncio.gather(*ends)
            assert store.commits == before + 1

    with station(store) as running:
        running.send(*"abcdefgh")
        asyncio.run(read(running))
        assert running.count() == 0


READER = """
import sys, postroad
host, port, queue = sys.argv[1], int(sys.argv[2]), sys.argv[3]
manager = postroad.remote(host, port=port, protocol=sys.argv[4])
messages = manager.queue(queue).lock(3, timeout=20)
print(" ".join(message.label for message in messages), flush=True)
sys.stdin.read()
"""


def test_a_reader_killed_with_messages_in_its_hands_puts_them_back_in_place(running: Station) -> None:
    running.send("one", "two", "three", "four", "five")
    host, port = running.address
    with subprocess.Popen(
        [sys.executable, "-c", READER, host, str(port), ORDERS, PROTOCOL["protocol"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline().split() == ["one", "two", "three"]
        assert running.labels() == ["four", "five"]
        doomed.kill()
    running.wait_until("readers", 0)
    assert running.labels() == ["one", "two", "three", "four", "five"]


def test_a_server_that_stops_ends_reads_that_wait() -> None:
    async def scene(reader: RemoteBackend) -> None:
        with pytest.raises(PostroadError):
            await reader.receive(ORDERS, 1, None, None)
        with contextlib.suppress(PostroadError):
            await reader.close()

    with station() as running:
        reading = RemoteBackend(*running.address, **PROTOCOL)
        loop = asyncio.new_event_loop()
        task = loop.create_task(scene(reading))

        async def wait() -> None:
            await asyncio.to_thread(running.wait_until, "waiting", 1)

        loop.run_until_complete(wait())
    loop.run_until_complete(asyncio.wait_for(task, 20))
    loop.close()


def test_a_reader_that_vanishes_without_a_word_is_noticed_in_two_minutes(
    running: Station, manager: postroad.QueueManager
) -> None:
    """A test cannot cut a line. It can see that the system watches for it."""
    with pytest.raises(NoMessage):
        manager.queue(ORDERS).peek(timeout=0)
    links = list(running.server.rpc.links)
    assert links
    for link in links:
        line = link.transport.get_extra_info("socket")
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            idle, every, often = (
                line.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{name}"))
                for name in ("IDLE", "INTVL", "CNT")
            )
            assert idle + every * often <= 120


def test_readers_are_shown_by_api_and_metrics(running: Station) -> None:
    from postroad.api.monitoring import QueueSeries, metrics_text

    running.send("one", "two")
    with postroad.remote(HOST, port=running.address[1], **PROTOCOL) as manager:
        manager.queue(ORDERS).receive(timeout=5)
        manager.queue(ORDERS).lock(1, timeout=5)

        async def look() -> str:
            return metrics_text(running.manager, running.manager.queues(), QueueSeries(100)).decode()

        text = running.run(look())
        assert 'postroad_remote_readers{access="receive"} 1.0' in text
        assert "postroad_remote_unacknowledged 1" in text
        assert "postroad_remote_messages_received_total 1" in text
