"""What our client calls, and in which order: [MS-MQQP] 3.2, seen from the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from postroad.client.remote import RemoteBackend
from postroad.errors import (
    InvalidHandle,
    LocalProtocolError,
    MessageNotFound,
    NoMessage,
    PostroadError,
    RemoteCancelled,
    RemoteProtocolError,
    RpcFault,
    RpcUnavailable,
)
from postroad.names import parse_format_name
from postroad.remote_read import mqqp_client as client_module
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read.client import OPEN_TIMEOUT_S, Identity
from postroad.remote_read.mqqp_client import RemoteReadClient
from postroad.remote_read.structures import GetVersionOut, Result
from postroad.remote_read.values import INFINITE_MS, LAST_LOOKUP_ID, Ack, Action
from postroad.reports.operations import SeekAction
from postroad.rpc.constants import FaultStatus
from postroad.rpc.ndr import NULL_HANDLE, Handle
from tests.remote.station import DIRECT, HOST, ORDERS, OTHER, Station, station
from tests.remote.tracing import Trace, new_client

ME = UUID("0a0b0c0d-0102-0304-0506-070809101112")
NAME = parse_format_name(f"DIRECT={DIRECT}")
OTHER_NAME = parse_format_name(rf"DIRECT=OS:alpha\{OTHER}")
SOME_HANDLE = Handle(0, b"\xff" * 16)
OPENING = ["qm2qm 7", "qm2qm 8", "qmcomm 2", "qm2qm 2", "qmcomm 3"]


@pytest.fixture
def running() -> Iterator[Station]:
    with station() as running:
        yield running


@pytest.fixture
def trace(running: Station) -> Trace:
    return Trace(running)


def play(running: Station, scene: Callable[[RemoteReadClient], Awaitable[Any]], **identity: bool) -> None:
    """Plays a scene with a client, which is closed at its end."""

    async def run() -> None:
        client = new_client(running, Identity(ME, **identity))
        try:
            await asyncio.wait_for(scene(client), 30)
        finally:
            await client.close()

    asyncio.run(run())


def old(call: object, request: object) -> GetVersionOut:
    return GetVersionOut(5, 0, 645)


# Opening


@pytest.mark.spec("QP-2.1-05", "QP-3.2.4.1-02", "QP-3.2.4.1-03", "QP-3.1.4.3-03")
def test_a_first_connection_asks_for_the_port_and_a_second_does_the_rest(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        running.send("one")
        opened = await client.open(NAME)
        assert (await client.peek(opened)).label == "one"

    play(running, scene)
    assert trace.whats[:5] == OPENING
    assert trace.of("qm2qm 7")[0].port_type == 1
    first = trace.calls[0].connection
    assert [call.what for call in trace.calls if call.connection == first] == ["qm2qm 7"]
    rest = {call.connection for call in trace.calls if call.what.startswith("qm2qm") and call.what != "qm2qm 7"}
    assert len(rest) == 1


@pytest.mark.spec("QP-3.2.4.1-03")
def test_without_the_second_connection_nothing_opens(running: Station, trace: Trace) -> None:
    """The reported port leads nowhere, and the client does not fall back to the first connection."""
    trace.instead(qm2qm.GET_SERVER_PORT, lambda call, request: Result(1))

    async def scene(client: RemoteReadClient) -> None:
        with pytest.raises(RpcUnavailable):
            await client.open(NAME)

    play(running, scene)
    assert trace.whats == ["qm2qm 7"]


@pytest.mark.spec("QP-3.1.4.8-07")
def test_a_server_without_a_port_for_readers_cannot_be_read(running: Station, trace: Trace) -> None:
    trace.instead(qm2qm.GET_SERVER_PORT, lambda call, request: Result(0))

    async def scene(client: RemoteReadClient) -> None:
        with pytest.raises(RpcUnavailable, match="no port for remote readers"):
            await client.open(NAME)

    play(running, scene)


@pytest.mark.spec("QP-2.1-06")
def test_who_asks_the_endpoint_mapper_does_not_ask_for_the_port() -> None:
    with station(mapper_port=0) as running:
        trace = Trace(running)
        address = running.server.mapper_address
        assert address is not None
        running.send("one")

        async def scene() -> None:
            backend = RemoteBackend(HOST, 1, endpoint_mapper=int(address.rpartition(":")[2]), protocol="mqqp")
            (message,) = await backend.receive(ORDERS, 1, 5, None)
            assert message.label == "one"
            await backend.close()

        asyncio.run(scene())
        assert "qm2qm 7" not in trace.whats
        assert "qm2qm 9" in trace.whats


@pytest.mark.spec("QP-3.2.4.1-01", "QP-3.2.4.1-05", "QP-3.1.4.3-06", "QP-3.2.4.1-08", "QP-3.2.1.3-01", "QP-3.2.1.4-01")
def test_what_qmcomm_gave_goes_into_the_open_and_is_kept(running: Station, trace: Trace) -> None:
    given = qmcomm.OpenRemoteQueueOut(SOME_HANDLE, 11, 12, 13, 0)
    trace.instead(qmcomm.OPEN_REMOTE_QUEUE, lambda call, request: given)
    trace.instead(qm2qm.OPEN_QUEUE, lambda call, request: structures.OpenQueueOut(SOME_HANDLE, 0))

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        assert (opened.queue_handle, opened.queue, opened.session) == (13, 12, SOME_HANDLE)
        assert client.open_queues == {13: opened}

    play(running, scene)
    (request,) = trace.of("qm2qm 2")
    assert request == structures.OpenQueueIn(ME, 0, 13, 12, 11)


@pytest.mark.spec("QP-3.2.4.1-06")
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("directory", [False, True])
def test_a_server_of_the_enterprise_says_so(running: Station, trace: Trace, routing: bool, directory: bool) -> None:
    play(running, lambda client: client.open(NAME), routing_server=routing, directory_server=directory)
    assert [request.mqs for request in trace.of("qm2qm 2")] == [int(routing or directory)]


@pytest.mark.spec("QP-3.2.4.1-07", "QP-3.2.2-01")
def test_an_open_that_takes_too_long_is_given_up(
    running: Station, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OPEN_TIMEOUT_S == 300
    cancelled = threading.Event()

    async def silent(call: object, request: object) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    trace.instead(qm2qm.OPEN_QUEUE, silent)
    monkeypatch.setattr(client_module, "OPEN_TIMEOUT_S", 0.2)

    async def scene(client: RemoteReadClient) -> None:
        with pytest.raises(RpcUnavailable, match="RemoteQMOpenQueue"):
            await client.open(NAME)
        assert await asyncio.to_thread(cancelled.wait, 20)
        assert client.open_queues == {}

    play(running, scene)


def test_an_open_that_is_refused_leaves_nothing_behind(running: Station, trace: Trace) -> None:
    trace.instead(qm2qm.OPEN_QUEUE, lambda call, request: structures.OpenQueueOut(NULL_HANDLE, 0xC00E0006))

    async def scene(client: RemoteReadClient) -> None:
        with pytest.raises(PostroadError):
            await client.open(NAME)
        running.wait_until("readers", 0)

    play(running, scene)


# Closing


@pytest.mark.spec("QP-2.2.1.1-02", "QP-2.2.1.1-03", "QP-3.1.4.4-02", "QP-3.2.4.9-01", "QP-3.2.4.9-03", "QP-3.2.4.1-04")
def test_a_close_sends_the_session_handle_back_once(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        first, second = await client.open(NAME), await client.open(OTHER_NAME)
        await client.close_queue(first)
        assert client.open_queues == {second.queue_handle: second}
        await client.close_queue(first)  # once is enough
        assert client.connected
        with pytest.raises(InvalidHandle):
            await client.peek(first)
        assert [request.context for request in trace.of("qm2qm 3")] == [first.session]

    play(running, scene)
    assert len(trace.of("qm2qm 3")) == 2
    assert trace.calls[-1].what == "qm2qm 3"
    assert running.server.readers() == []


@pytest.mark.spec("QP-3.2.4.7-01", "QP-3.2.4.9-02")
def test_a_close_leaves_it_to_the_server_to_end_reads_that_wait(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        waiting = asyncio.ensure_future(client.receive(opened, INFINITE_MS))
        await reached(running, "waiting", 1)
        await client.close_queue(opened)
        with pytest.raises(RemoteCancelled):
            await waiting
        assert client.pending == {}

    play(running, scene)
    assert "qm2qm 5" not in trace.whats


# Reading


@pytest.mark.spec("QP-3.2.4.2-03", "QP-3.2.4.3-02", "QP-3.1.4.9-09")
def test_the_version_is_asked_for_before_the_first_read(running: Station, trace: Trace) -> None:
    running.send("one", "two")

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        await client.peek(opened)
        await client.receive(opened)

    play(running, scene)
    assert trace.whats == [*OPENING, "qm2qm 9", "qm2qm 9", "qm2qm 3"]


@pytest.mark.spec(
    "QP-3.2.4.2-06",
    "QP-3.2.4.2-07",
    "QP-3.2.4.3-03",
    "QP-3.1.4.10-06",
    "QP-2.2.2.1-04",
    "QP-2.2.2.1-14",
    "QP-2.2.2.1-16",
    "QP-2.2.2.1-25",
    "QP-3.2.4.5-01",
    "QP-3.2.4.6-01",
)
def test_a_new_server_is_asked_by_the_second_method(running: Station, trace: Trace) -> None:
    running.send("one", "two")

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        cursor = await client.create_cursor(opened)
        await client.peek(opened, 77)
        await client.peek(opened, 78, cursor)
        await client.peek(opened, 79, cursor, following=True)
        await client.receive(opened, 80)
        await client.receive(opened, 81, cursor)
        assert "qm2qm 0" not in trace.whats
        asked = [request.remote_read_desc2 for request in trace.of("qm2qm 9")]
        check(opened, cursor, [each.remote_read_desc for each in asked])
        assert {each.sequential_id for each in asked} == {0}

    play(running, scene)


@pytest.mark.spec("QP-3.2.4.2-05", "QP-3.2.4.2-07", "QP-3.2.4.5-01", "QP-3.2.4.6-01")
def test_an_old_server_is_asked_by_the_first_method(running: Station, trace: Trace) -> None:
    running.send("one", "two")
    trace.instead(qm2qm.GET_VERSION, old)

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        cursor = await client.create_cursor(opened)
        await client.peek(opened, 77)
        await client.peek(opened, 78, cursor)
        await client.peek(opened, 79, cursor, following=True)
        received = await client.receive(opened, 80)
        assert received.message.lookup_id == 0  # nobody told
        await client.receive(opened, 81, cursor)
        assert "qm2qm 9" not in trace.whats
        check(opened, cursor, [request.remote_read_desc for request in trace.of("qm2qm 0")])
        with pytest.raises(LocalProtocolError, match="too old"):
            await client.lookup(opened, Action.LOOKUP_PEEK_NEXT, 0)

    play(running, scene)


def check(opened: Any, cursor: int, descs: list[Any]) -> None:
    """What the descriptors of the five reads above must contain."""
    assert [(desc.action, desc.timeout, desc.cursor) for desc in descs] == [
        (0x80000000, 77, 0),
        (0x80000000, 78, cursor),
        (0x80000001, 79, cursor),
        (0, 80, 0),
        (0, 81, cursor),
    ]
    assert {desc.remote_queue for desc in descs} == {opened.queue_handle}
    assert {desc.queue for desc in descs} == {opened.queue}
    assert {(desc.size, desc.buffer) for desc in descs} == {(0, None)}
    assert len({desc.request_id for desc in descs}) == len(descs)


@pytest.mark.spec("QP-1.7-01", "QP-3.1.4.9-08")
def test_a_server_that_knows_eight_methods_is_an_old_one(running: Station, trace: Trace) -> None:
    running.send("one")
    for operation in (qm2qm.GET_VERSION, qm2qm.START_RECEIVE2, qm2qm.START_RECEIVE_BY_LOOKUP_ID):
        trace.instead(operation, None)

    async def scene(client: RemoteReadClient) -> None:
        assert (await client.peek(await client.open(NAME))).label == "one"

    play(running, scene)
    assert trace.whats[-2:] == ["qm2qm 0", "qm2qm 3"]


@pytest.mark.spec("QP-2.2.2.1-12")
def test_an_infinite_wait_is_all_ones(running: Station, trace: Trace) -> None:
    running.send("one", "two")

    async def scene() -> None:
        backend = RemoteBackend(*running.address, protocol="mqqp")
        await backend.receive(ORDERS, 1, None, None)
        await backend.receive(ORDERS, 1, 1e9, None)
        await backend.close()

    asyncio.run(scene())
    timeouts = [request.remote_read_desc2.remote_read_desc.timeout for request in trace.of("qm2qm 9")]
    assert timeouts == [0xFFFFFFFF, 0xFFFFFFFE]


@pytest.mark.spec(
    "QP-3.1.4.1-05",
    "QP-3.1.4.2-03",
    "QP-2.2.1.2-02",
    "QP-2.2.1.2-03",
    "QP-3.2.4.2-08",
    "QP-3.2.4.3-04",
    "QP-3.2.4.3-05",
    "QP-3.2.4.6-02",
    "QP-3.2.1.1-01",
)
def test_a_receive_is_acknowledged_with_its_own_handle_and_a_peek_is_not(running: Station, trace: Trace) -> None:
    running.send("one", "two", "three")

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        cursor = await client.create_cursor(opened)
        await client.peek(opened)
        assert client.pending == {}
        reads = [
            await client.receive(opened),
            await client.receive(opened, 0, cursor),
            await client.lookup(opened, Action.LOOKUP_RECEIVE_NEXT, 0),
        ]
        entries = [read.entry for read in reads if read.entry is not None]
        assert len(entries) == 3
        assert {(each.opened.queue_handle, each.remote_read_handle != NULL_HANDLE) for each in entries} == {
            (opened.queue_handle, True)
        }
        handles = [each.remote_read_handle for each in entries]
        assert set(client.pending.values()) == set(entries)
        for entry in entries:
            await client.end(entry, Ack.RR_ACK)
            with pytest.raises(InvalidHandle):
                await client.end(entry, Ack.RR_ACK)
        assert client.pending == {}
        assert [(request.context, request.ack) for request in trace.of("qm2qm 1")] == [(each, 2) for each in handles]

    play(running, scene)
    assert running.count() == 0


@pytest.mark.spec("QP-2.2.2.1-17", "QP-2.2.2.1-18", "QP-3.2.1.2-01", "QP-3.2.4.2-01", "QP-3.2.4.2-02", "QP-3.2.4.3-01")
def test_no_two_pending_reads_have_one_request_id(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        queues = [await client.open(NAME), await client.open(OTHER_NAME)]
        client._last_request = 0xFFFFFFFF - 50  # the numbers start over in the middle of it
        reads = [asyncio.ensure_future(client.receive(queues[each % 2], INFINITE_MS)) for each in range(100)]
        await reached(running, "waiting", 100)
        assert len(client.pending) == 100
        client._last_request = 0xFFFFFFFF - 50
        more = asyncio.ensure_future(client.peek(queues[0], INFINITE_MS))
        await reached(running, "waiting", 101)
        ids = [request.remote_read_desc2.remote_read_desc.request_id for request in trace.of("qm2qm 9")]
        assert len(set(ids)) == 101
        assert 0 not in ids
        for queue in queues:
            await client.close_queue(queue)
        await asyncio.gather(*reads, more, return_exceptions=True)
        assert client.pending == {}

    play(running, scene)


@pytest.mark.spec("QP-3.1.4-05", "QP-3.1.4.1-13")
@pytest.mark.parametrize("status", [0xC00E0006, 0xC00E0007, 0x80004005, 0xC00E001B])
def test_every_failure_has_the_same_consequences(running: Station, trace: Trace, status: int) -> None:
    """Whatever the code and the handle that comes with it, nothing is pending, and nothing is acknowledged."""
    running.send("one")

    def refuse(call: Any, request: Any) -> Any:
        handle = call.open_context("PCTX_REMOTEREAD_HANDLE_TYPE", object())
        return structures.StartReceive2Out(handle, request.remote_read_desc2, status)

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        trace.instead(qm2qm.START_RECEIVE2, refuse)
        with pytest.raises(PostroadError):
            await client.receive(opened)
        assert client.pending == {}
        assert not opened.closed

    play(running, scene)
    assert "qm2qm 1" not in trace.whats


def test_a_message_that_cannot_be_read_goes_back(running: Station, trace: Trace) -> None:
    running.send("one")
    spoiled = b"no packet"

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        handler = trace._found(qm2qm.START_RECEIVE2)
        assert handler is not None

        def spoil(call: Any, request: Any) -> Any:
            answer: Any = handler(call, request)
            desc = structures.RemoteReadDesc(1, 0, 0, 0, len(spoiled), 1, 1, buffer=spoiled)
            return structures.StartReceive2Out(answer.context, structures.RemoteReadDesc2(desc), 0)

        trace.instead(qm2qm.START_RECEIVE2, spoil)
        with pytest.raises(RemoteProtocolError):
            await client.receive(opened)

    play(running, scene)
    assert [request.ack for request in trace.of("qm2qm 1")] == [1]
    assert running.labels() == ["one"]


@pytest.mark.spec("QP-3.1.4.1-14", "QP-3.1.4.1-20", "QP-3.1.4.10-07", "QP-3.1.4.11-04", "QP-3.1.4.11-10")
def test_what_the_protocol_cannot_say_is_not_said(running: Station, trace: Trace) -> None:
    running.send("one")

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        said = len(trace.calls)
        for action in (Action.LOOKUP_PEEK_CURRENT, Action.LOOKUP_RECEIVE_CURRENT, Action.LOOKUP_PEEK_PREV):
            with pytest.raises(LocalProtocolError):
                await client.lookup(opened, action, 0)
            with pytest.raises(LocalProtocolError):
                await client._read(opened, action, 0, 0)
        for action in (Action.RECEIVE, Action.PEEK_CURRENT):
            with pytest.raises(LocalProtocolError):
                await client.lookup(opened, action, 5)
        with pytest.raises(LocalProtocolError):
            await client.peek(opened, 0, 0, following=True)
        with pytest.raises(LocalProtocolError):
            await client.lookup(opened, Action.LOOKUP_PEEK_NEXT, LAST_LOOKUP_ID + 1)
        with pytest.raises(LocalProtocolError):
            await client.receive(opened, -1)
        assert len(trace.calls) == said

    play(running, scene)


@pytest.mark.spec("QP-3.1.4.11-11")
def test_a_lookup_has_neither_a_cursor_nor_a_time(running: Station, trace: Trace) -> None:
    running.send("one", "two", "three")

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        last = (await client.lookup(opened, Action.LOOKUP_PEEK_PREV, LAST_LOOKUP_ID)).message.lookup_id
        for action in (Action.LOOKUP_PEEK_CURRENT, Action.LOOKUP_PEEK_PREV):
            await client.lookup(opened, action, last)
        await client.lookup(opened, Action.LOOKUP_PEEK_NEXT, 0)
        for action in (Action.LOOKUP_RECEIVE_PREV, Action.LOOKUP_RECEIVE_CURRENT):
            await client.lookup(opened, action, last)
        await client.lookup(opened, Action.LOOKUP_RECEIVE_NEXT, 0)

    play(running, scene)
    descs = [request.remote_read_desc2.remote_read_desc for request in trace.of("qm2qm 10")]
    assert {desc.action for desc in descs} == {
        *range(0x40000010, 0x40000013),
        *range(0x40000020, 0x40000023),
    }
    assert {(desc.cursor, desc.timeout, desc.size, desc.buffer) for desc in descs} == {(0, 0, 0, None)}


@pytest.mark.spec("QP-3.1.4.2-04", "QP-3.1.4.3-04", "QP-3.1.4.6-02")
def test_nothing_is_called_before_the_queue_is_open(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        await client.close_queue(opened)
        said = len(trace.calls)
        for attempt in (
            client.peek(opened),
            client.receive(opened),
            client.lookup(opened, Action.LOOKUP_PEEK_NEXT, 0),
            client.purge(opened),
            client.create_cursor(opened),
            client.close_cursor(opened, 1),
            client.cancel(opened, 1),
            client.end(client_module.PendingRemoteReadEntry(opened, 1, True), Ack.RR_ACK),
        ):
            with pytest.raises(InvalidHandle):
                await attempt
        assert len(trace.calls) == said

    play(running, scene)


# Cursors, purging


@pytest.mark.spec("QP-3.1.4.5-02", "QP-3.2.4.8-01", "QP-3.2.4.4-01", "QP-3.1.4.7-02")
def test_cursors_are_closed_and_queues_purged_by_their_handles(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        cursor = await client.create_cursor(opened)
        await client.close_cursor(opened, cursor)
        await client.purge(opened)
        assert trace.of("qmcomm 4")[0].queue_handle == opened.queue_handle
        assert trace.of("qm2qm 4") == [structures.CloseCursorIn(opened.queue_handle, cursor)]
        assert trace.of("qm2qm 6") == [structures.PurgeQueueIn(opened.queue_handle)]

    play(running, scene)


@pytest.mark.spec("QP-3.1.4.7-05")
def test_a_failure_may_come_as_a_fault(running: Station, trace: Trace) -> None:
    """Windows raises the HRESULT of a purge as an exception."""

    def fault(call: Any, request: Any) -> Any:
        raise RpcFault(0xC00E0007)

    def trouble(call: Any, request: Any) -> Any:
        raise RpcFault(FaultStatus.NCA_SERVER_TOO_BUSY)

    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        trace.instead(qm2qm.PURGE_QUEUE, fault)
        with pytest.raises(InvalidHandle):
            await client.purge(opened)
        trace.instead(qm2qm.PURGE_QUEUE, trouble)
        with pytest.raises(RpcFault):
            await client.purge(opened)

    play(running, scene)


# Cancelling


@pytest.mark.spec("QP-3.2.4.7-02", "QP-3.2.4.7-03")
def test_a_read_is_cancelled_by_its_queue_and_request_id(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        opened, other = await client.open(NAME), await client.open(OTHER_NAME)
        waiting = asyncio.ensure_future(client.receive(opened, INFINITE_MS))
        await reached(running, "waiting", 1)
        (request_id,) = client.pending
        with pytest.raises(InvalidHandle):
            await client.cancel(other, request_id)
        await client.cancel(opened, request_id)
        assert client.pending == {}
        with pytest.raises(RemoteCancelled):
            await waiting
        assert trace.of("qm2qm 5") == [structures.CancelReceiveIn(opened.queue_handle, opened.queue, request_id)]

    play(running, scene)


@pytest.mark.spec("QP-3.2.4.7-02")
@pytest.mark.parametrize("action", [Action.RECEIVE, Action.PEEK_CURRENT])
def test_a_task_that_is_cancelled_takes_its_read_back(running: Station, trace: Trace, action: Action) -> None:
    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        read = client.receive(opened, INFINITE_MS) if action is Action.RECEIVE else client.peek(opened, INFINITE_MS)
        waiting: asyncio.Future[Any] = asyncio.ensure_future(read)
        await reached(running, "waiting", 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await reached(running, "waiting", 0)
        assert len(trace.of("qm2qm 5")) == 1  # and it is not the connection's end that ends it
        assert client.pending == {}
        await asyncio.to_thread(running.send, "one")
        assert (await client.peek(opened, 5000)).label == "one"  # the connection is as good as before

    play(running, scene)
    assert running.labels() == ["one"]


def test_a_message_that_comes_while_its_reader_leaves_goes_back(running: Station, trace: Trace) -> None:
    async def scene(client: RemoteReadClient) -> None:
        opened = await client.open(NAME)
        waiting = asyncio.ensure_future(client.receive(opened, INFINITE_MS))
        await reached(running, "waiting", 1)
        running.send("one")  # the answer is on its way, and has not been looked at
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await reached(running, "unacknowledged", 0)

    play(running, scene)
    assert running.labels() == ["one"]


# Trouble


def test_a_connection_that_is_gone_is_made_anew(running: Station) -> None:
    running.send("one", "two")

    async def scene() -> None:
        backend = RemoteBackend(*running.address, protocol="mqqp")
        (first,) = await backend.lock(ORDERS, 1, 5)
        assert first.label == "one"
        await asyncio.to_thread(running.run, cut(running))
        with pytest.raises(PostroadError):
            await backend.settle(ORDERS, [first.lookup_id], True)
        (again,) = await backend.receive(ORDERS, 1, 5, None)
        assert again.label == "one"
        with pytest.raises(NoMessage):
            await backend.receive(OTHER, 1, 0, None)
        with pytest.raises(MessageNotFound):
            await backend.lookup(OTHER, 0, SeekAction.FIRST, False, None)
        await backend.close()

    asyncio.run(scene())
    assert running.labels() == ["two"]


async def cut(running: Station) -> None:
    for link in list(running.server.rpc.links):
        link.abort()


async def reached(running: Station, what: str, wanted: int) -> None:
    await asyncio.to_thread(running.wait_until, what, wanted)
