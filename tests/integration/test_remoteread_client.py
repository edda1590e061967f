"""What our client calls by [MS-MQRR] 3.2, and in which order, seen from the server; and when it uses MS-MQQP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

import postroad
from postroad.client.remote import RemoteBackend
from postroad.errors import (
    InterfaceNotOffered,
    InvalidArgument,
    InvalidHandle,
    LocalProtocolError,
    MessageNotFound,
    NoMessage,
    OperationCancelled,
    PostroadError,
    QueueNotFound,
    RemoteProtocolError,
    RpcUnavailable,
    TransactionUsage,
)
from postroad.names import parse_format_name
from postroad.remote_read import client as client_module
from postroad.remote_read import remoteread as wire
from postroad.remote_read.client import OPEN_TIMEOUT_S, Identity, Received
from postroad.remote_read.message_packet import message_in
from postroad.remote_read.mqrr_client import MqrrClient
from postroad.remote_read.remoteread import REMOTE_READ, SectionBuffer, SectionType
from postroad.remote_read.structures import Result
from postroad.remote_read.values import LAST_LOOKUP_ID, Ack, Action
from postroad.reports.operations import RemoteProtocol
from tests.remote.station import DIRECT, HOST, ORDERS, Station, station
from tests.remote.tracing import Trace, new_mqrr_client

ME = UUID("0a0b0c0d-0102-0304-0506-070809101112")
NAME = parse_format_name(f"DIRECT={DIRECT}")
SUBQUEUE = parse_format_name(f"DIRECT={DIRECT};sub")
MISSING = parse_format_name(r"DIRECT=OS:alpha\private$\nowhere")


@pytest.fixture
def running() -> Iterator[Station]:
    with station() as running:
        yield running


@pytest.fixture
def trace(running: Station) -> Trace:
    return Trace(running)


def play(running: Station, scene: Callable[[MqrrClient], Awaitable[Any]], **identity: bool) -> None:
    """Plays a scene with a client, which is closed at its end."""

    async def run() -> None:
        client = new_mqrr_client(running, Identity(ME, **identity))
        try:
            await asyncio.wait_for(scene(client), 30)
        finally:
            await client.close()

    asyncio.run(run())


# What it calls


@pytest.mark.spec("RR-2.1-04", "RR-2.2.4-01", "RR-3.1.4.7-33")
def test_one_connection_and_two_calls_for_a_message(running: Station, trace: Trace) -> None:
    running.send("one", "two", priority=5)

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        received = await client.receive(opened)
        assert (received.message.label, received.message.lookup_id >> 56) == ("one", 2)
        await client.end(received.entry, Ack.RR_ACK)
        assert (await client.peek(opened)).label == "two"
        await client.close_queue(opened)
        with pytest.raises(InvalidHandle):
            await client.peek(opened)

    play(running, scene)
    assert trace.whats == [f"RemoteRead {each}" for each in (2, 7, 9, 7, 3)]  # and never opnum 0
    assert {each.connection for each in trace.calls} == {1}
    (opening,) = trace.of("RemoteRead 2")
    assert (opening.client_id, opening.non_routing_server, opening.workgroup) == (ME, 1, 1)
    assert running.labels() == ["two"]


def test_a_routing_server_says_so(running: Station, trace: Trace) -> None:
    play(running, lambda client: client.open(NAME), routing_server=True)
    assert trace.of("RemoteRead 2")[0].non_routing_server == 0


@pytest.mark.spec("RR-3.1.2.1-01")
def test_an_open_is_abandoned_after_five_minutes(
    running: Station, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OPEN_TIMEOUT_S == 300
    waited: list[float | None] = []
    called = client_module.called

    async def watched(*arguments: Any, **options: Any) -> Any:
        waited.append(arguments[3])
        return await called(*arguments, **options)

    monkeypatch.setattr("postroad.remote_read.mqrr_client.called", watched)

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        running.send("one")
        await client.move(opened, SUBQUEUE, (await client.peek(opened)).lookup_id)

    play(running, scene)
    assert [each for each in waited if each == OPEN_TIMEOUT_S] == [OPEN_TIMEOUT_S] * 2  # opnums 2 and 11


@pytest.mark.spec("RR-3.1.4.11-03", "RR-3.1.4.10-01")
def test_a_message_is_moved_to_a_subqueue(running: Station, trace: Trace) -> None:
    running.send("one", "two")

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        await client.move(opened, SUBQUEUE, (await client.peek(opened)).lookup_id)
        with pytest.raises(MessageNotFound):
            await client.move(opened, SUBQUEUE, 1 << 50)

    play(running, scene)
    assert {(each.access, each.share_mode) for each in trace.of("RemoteRead 11")} == {(4, 0)}
    assert trace.whats.count("RemoteRead 3") == 3  # each target, and the queue
    assert (running.labels(), running.labels(ORDERS + ";sub")) == (["two"], ["one"])


@pytest.mark.spec("RR-3.2.4.5-01")
def test_a_rejection_is_a_class_of_its_own(running: Station, trace: Trace) -> None:
    running.send("one")

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        with pytest.raises(TransactionUsage):
            await client.reject(opened, (await client.peek(opened)).lookup_id)

    play(running, scene)
    assert [each.acknowledgment_class for each in trace.of("RemoteRead 14")] == [0xC004]


def test_a_failed_open_leaves_nothing(running: Station) -> None:
    async def scene(client: MqrrClient) -> None:
        with pytest.raises(QueueNotFound, match=r"cannot open DIRECT=.*nowhere: there is no such queue on the server"):
            await client.open(MISSING)
        assert not client.open_queues

    play(running, scene)


def test_the_place_before_the_first_message_is_the_first_message(running: Station, trace: Trace) -> None:
    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        for action in (Action.LOOKUP_PEEK_NEXT, Action.LOOKUP_RECEIVE_NEXT):
            with pytest.raises(MessageNotFound):
                await client.lookup(opened, action, 0)
        running.send("one", "two")
        assert (await client.lookup(opened, Action.LOOKUP_PEEK_NEXT, 0)).message.label == "one"
        assert (await client.lookup(opened, Action.LOOKUP_PEEK_PREV, LAST_LOOKUP_ID)).message.label == "two"
        with pytest.raises(LocalProtocolError):
            await client.lookup(opened, Action.LOOKUP_PEEK_PREV, 0)
        with pytest.raises(LocalProtocolError):
            await client.lookup(opened, Action.RECEIVE, 1)
        received = await client.lookup(opened, Action.LOOKUP_RECEIVE_NEXT, 0)
        await client.end(received.entry, Ack.RR_NACK)
        with pytest.raises(InvalidHandle):
            await client.end(received.entry, Ack.RR_ACK)

    play(running, scene)
    assert running.labels() == ["one", "two"]


# The acknowledgment of a message and the receive of the next one


def test_an_acknowledgment_and_the_next_receive_leave_together(running: Station, trace: Trace) -> None:
    running.send("one", "two")

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        first = await client.receive(opened)
        second = await client.receive_next(opened, first.entry)
        assert (first.message.label, second.message.label) == ("one", "two")
        with pytest.raises(NoMessage):
            await client.receive_next(opened, second.entry)
        assert not client.pending
        with pytest.raises(InvalidHandle):
            await client.receive_next(opened, second.entry)

    play(running, scene)
    assert trace.whats == [f"RemoteRead {each}" for each in (2, 7, 9, 7, 9, 7, 3)]
    assert running.labels() == []


def test_if_the_acknowledgment_fails_the_next_message_goes_back(running: Station, trace: Trace) -> None:
    running.send("one", "two")
    trace.instead(wire.END_RECEIVE, None)  # out of range: a fault

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        first = await client.receive(opened)
        with pytest.raises(RpcUnavailable):
            await client.receive_next(opened, first.entry)

    play(running, scene)
    running.wait_until("readers", 0)
    assert running.labels() == ["one", "two"]


# Messages that cannot be read


def packet(running: Station) -> bytes:
    async def look() -> bytes:
        return (await running.manager.reads.peek(ORDERS, 1))[0].packet

    return running.run(look())


def spoiled(running: Station) -> dict[str, tuple[SectionBuffer, ...] | None]:
    whole = packet(running)
    full = SectionType.FULL_PACKET
    return {
        "none": None,
        "nothing": (SectionBuffer(full, 0, 0, b""),),
        "cut": (SectionBuffer(full, 40, 40, whole[:40]),),
        "no end": (SectionBuffer(full, len(whole) - 1, len(whole) - 1, whole[:-1]),),
        "zeroes": (SectionBuffer(full, len(whole), len(whole), bytes(len(whole))),),
        "larger than it is": (SectionBuffer(full, len(whole) + 1, len(whole), whole),),
        "smaller than it is": (SectionBuffer(full, 1, len(whole), whole),),
        "a second half": (SectionBuffer(SectionType.BINARY_SECOND, len(whole), len(whole), whole),),
        "endless": (SectionBuffer(SectionType.BINARY_FIRST, 0xFFFFFFFF, len(whole), whole),),
        "twice": (SectionBuffer(full, len(whole), len(whole), whole),) * 2,
    }


@pytest.mark.spec("RR-3.2.4.4.1-01", "RR-2.2.6-05")
@pytest.mark.parametrize("kind", ["none", "nothing", "cut", "no end", "zeroes", "larger than it is"])
@pytest.mark.parametrize("receive", [True, False])
def test_a_message_that_cannot_be_put_together_goes_back(
    running: Station, trace: Trace, kind: str, receive: bool
) -> None:
    running.send("one")
    sections = spoiled(running)[kind]
    start = running.server.mqrr._start_receive

    def spoil(call: Any, request: Any) -> wire.StartReceiveOut:
        answer = start(call, request)
        assert isinstance(answer, wire.StartReceiveOut)
        return wire.StartReceiveOut(answer.arrive_time, answer.sequence_id, len(sections or ()), sections, 0)

    trace.instead(wire.START_RECEIVE, spoil)

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        with pytest.raises(RemoteProtocolError):
            await (client.receive(opened) if receive else client.peek(opened))
        assert not client.pending

    play(running, scene)
    assert [each.ack for each in trace.of("RemoteRead 9")] == ([Ack.RR_NACK] if receive else [])
    assert running.labels() == ["one"]


@pytest.mark.parametrize("kind", ["smaller than it is", "a second half", "endless", "twice"])
def test_sections_that_are_no_packet_are_refused(running: Station, kind: str) -> None:
    running.send("one")
    with pytest.raises(RemoteProtocolError):
        message_in(spoiled(running)[kind] or ())


@pytest.mark.spec("RR-3.2.4.4.1-02")
def test_an_acknowledgment_that_fails_is_an_error_and_not_a_message(running: Station, trace: Trace) -> None:
    """The specification lets a client hand the message over all the same. Then two readers could have it."""
    running.send("one")
    trace.instead(wire.END_RECEIVE, lambda call, request: Result(0xC00E0088))
    with postroad.remote(HOST, port=running.address[1], protocol="mqrr") as manager, pytest.raises(MessageNotFound):
        manager.queue(ORDERS).receive(0)
    running.wait_until("readers", 0)
    assert running.labels() == ["one"]


@pytest.mark.spec("RR-3.2.4.4.1-02")
def test_the_message_after_an_acknowledgment_that_fails_goes_back(running: Station, trace: Trace) -> None:
    running.send("one", "two", "three")
    trace.instead(wire.END_RECEIVE, lambda call, request: Result(0xC00E0088))

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        first = await client.receive(opened)
        with pytest.raises(MessageNotFound):
            await client.end(first.entry, Ack.RR_ACK)
        second = await client.receive(opened)
        with pytest.raises(MessageNotFound):
            await client.receive_next(opened, second.entry)
        assert [each.ack for each in trace.of("RemoteRead 9")] == [Ack.RR_ACK, Ack.RR_ACK, Ack.RR_NACK]
        assert not client.pending

    play(running, scene)


def test_reads_and_ends_of_several_messages_are_one_round_trip(running: Station, trace: Trace) -> None:
    running.send("one", "two", "three")

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        found = await client.receive_all(opened, 4)
        received = [each for each in found if isinstance(each, Received)]
        assert [each.message.label for each in received] == ["one", "two", "three"]
        assert isinstance(found[3], NoMessage)
        entries = [each.entry for each in received]
        assert await client.end_all(entries[:2], Ack.RR_ACK) == [None, None]
        gone, back = (received[n].message.lookup_id for n in (0, 2))
        assert await client.end_all(entries[2:], Ack.RR_NACK) == [None]
        looked = await client.lookup_all(opened, Action.LOOKUP_PEEK_CURRENT, (gone, back))
        assert isinstance(looked[0], MessageNotFound)
        assert isinstance(looked[1], Received)
        assert (looked[1].message.label, looked[1].entry) == ("three", None)
        with pytest.raises(InvalidHandle):
            await client.end_all(entries[:1], Ack.RR_ACK)
        assert not client.pending

    play(running, scene)
    assert running.labels() == ["three"]


# Reads whose caller leaves


def test_several_receives_whose_caller_leaves_take_nothing(running: Station) -> None:
    running.send("one", "two")

    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        receiving = asyncio.ensure_future(client.receive_all(opened, 3))
        for _ in range(4):
            await asyncio.sleep(0)  # the calls have left
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        assert not client.pending
        found = await client.receive_all(opened, 2)
        assert [each.message.label for each in found if isinstance(each, Received)] == ["one", "two"]

    play(running, scene)
    assert running.labels() == ["one", "two"]


def test_a_reader_that_leaves_cancels_its_read(running: Station, trace: Trace) -> None:
    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        for read in (client.receive(opened, 60_000), client.peek(opened, 60_000)):
            task = asyncio.ensure_future(read)
            await asyncio.to_thread(running.wait_until, "waiting", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not client.pending
        await asyncio.to_thread(running.wait_until, "waiting", 0)

    play(running, scene)
    assert trace.whats.count("RemoteRead 8") == 2
    running.send("one")
    assert running.labels() == ["one"]


def test_a_read_is_cancelled_by_its_request_id(running: Station) -> None:
    async def scene(client: MqrrClient) -> None:
        opened = await client.open(NAME)
        task = asyncio.ensure_future(client.receive(opened, 60_000))
        await asyncio.to_thread(running.wait_until, "waiting", 1)
        (request_id,) = client.pending
        with pytest.raises(InvalidHandle):
            await client.cancel(opened, request_id + 1)
        await client.cancel(opened, request_id)
        with pytest.raises(OperationCancelled):
            await task

    play(running, scene)


# Which protocol


def without_remote_read(running: Station) -> None:
    del running.server.rpc.endpoint.interfaces[REMOTE_READ.uuid]


@pytest.mark.spec("RR-3.2.4.1-01")
def test_without_the_interface_it_falls_back_to_mqqp(
    running: Station, trace: Trace, caplog: pytest.LogCaptureFixture
) -> None:
    running.send("one", "two")
    without_remote_read(running)
    at = caplog.at_level(logging.DEBUG, "postroad.client.remote")
    with at, postroad.remote(HOST, port=running.address[1]) as manager:
        assert manager.queue(ORDERS).receive(0).label == "one"
        assert manager.queue(ORDERS).peek(0).label == "two"
    assert {each.split()[0] for each in trace.whats} == {"qmcomm", "qm2qm"}
    (told,) = [each for each in caplog.records if each.name == "postroad.client.remote"]
    assert told.message == "reading by MS-MQQP"
    assert "does not offer the interface" in told.__dict__["reason"]
    with postroad.remote(HOST, port=running.address[1], protocol="mqrr") as manager, pytest.raises(InterfaceNotOffered):
        manager.queue(ORDERS).peek(0)


@pytest.mark.spec("RR-2.1-02", "RR-3.2.4.1-01")
@pytest.mark.parametrize("protocol", RemoteProtocol)
@pytest.mark.parametrize("listed", [True, False])
def test_the_endpoint_mapper_tells_which_protocol_there_is(protocol: RemoteProtocol, listed: bool) -> None:
    with station() as running:
        trace = Trace(running)
        running.send("one")
        if not listed:
            without_remote_read(running)
            running.server.mqrr.interfaces = ()
        running.run(running.server.register(0))
        address = running.server.mapper_address
        assert address is not None
        mapper = int(address.rpartition(":")[2])
        with postroad.remote(HOST, endpoint_mapper=mapper, protocol=protocol) as manager:
            if protocol is RemoteProtocol.MQRR and not listed:
                with pytest.raises(InterfaceNotOffered, match="does not list the interface RemoteRead"):
                    manager.queue(ORDERS).peek(0)
                return
            assert manager.queue(ORDERS).peek(0).label == "one"
        modern = listed and protocol is not RemoteProtocol.MQQP
        assert ("RemoteRead 2" in trace.whats) is modern


def test_a_server_that_is_not_there_is_not_asked_twice(running: Station) -> None:
    backend = RemoteBackend(HOST, 1)

    async def ask() -> None:
        with pytest.raises(RpcUnavailable, match="HOST"):
            await backend.peek(ORDERS, 1, 0)
        assert backend.client is backend._mqrr
        await backend.close()

    asyncio.run(ask())


def test_a_protocol_has_to_be_one_of_three() -> None:
    with pytest.raises(InvalidArgument, match="protocol: must be one of auto, mqrr, mqqp, got 'soap'"):
        RemoteBackend(HOST, protocol="soap")


def test_what_is_left_of_a_batch_goes_back_if_its_acknowledgments_fail(running: Station, trace: Trace) -> None:
    """`fetch` acknowledges and receives in one round trip."""
    running.send("one", "two", "three")

    async def scene() -> None:
        backend = RemoteBackend(*running.address, protocol="mqrr")
        try:
            first = await backend.fetch(ORDERS, 1, 0, [])
            second = await backend.fetch(ORDERS, 1, 0, [first[0].lookup_id])
            assert [each.label for each in (*first, *second)] == ["one", "two"]
            trace.instead(wire.END_RECEIVE, lambda call, request: Result(0xC00E0088))
            with pytest.raises(PostroadError):
                await backend.fetch(ORDERS, 1, 0, [second[0].lookup_id])
        finally:
            await backend.close()

    asyncio.run(scene())
    running.wait_until("readers", 0)
    assert running.labels() == ["two", "three"]
