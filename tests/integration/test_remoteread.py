"""The RemoteRead interface of a running manager, [MS-MQRR] 3.1.4: every method, with calls made by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest

from postroad.errors import PostroadError, RpcFault, RpcUnavailable
from postroad.message import Message
from postroad.names import DirectName, PrivateName
from postroad.queues.open_queue import Transaction, WaitingRead
from postroad.queues.queue import Queue
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read import remoteread as wire
from postroad.remote_read.message_packet import trailers_of
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM, QueueFormatStructure
from postroad.remote_read.remoteread import REMOTE_READ, SectionType
from postroad.remote_read.service import MAX_SUBQUEUES
from postroad.remote_read.structures import Result
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.rpc import ndr
from postroad.rpc import pdu as pdus
from postroad.rpc.client import connect
from postroad.rpc.constants import AuthLevel, ContextResult
from postroad.rpc.interface import Interface, Nothing, Operation
from postroad.rpc.ndr import NULL_HANDLE, Format, Handle
from postroad.rpc.pdu import PresentationContext
from postroad.wire.view import MessageView
from tests.remote.calls import (
    ACK,
    INFINITE,
    LOOKUP_PEEK_CURRENT,
    LOOKUP_PEEK_NEXT,
    LOOKUP_PEEK_PREV,
    LOOKUP_RECEIVE_CURRENT,
    LOOKUP_RECEIVE_NEXT,
    LOOKUP_RECEIVE_PREV,
    NACK,
    PEEK,
    PEEK_NEXT,
    RECEIVE,
    Caller,
    Opened,
    calling,
    label,
    lookup_id,
    octets,
    port_of,
    structure,
    view,
)
from tests.remote.station import HOST, OTHER, PASSWORD, USER, Station, station

INVALID_PARAMETER, INVALID_HANDLE, CANCELLED, TIMEOUT = 0xC00E0006, 0xC00E0007, 0xC00E0008, 0xC00E001B
NOT_FOUND, ALREADY_RECEIVED, DENIED, SHARING = 0xC00E0088, 0xC00E001D, 0xC00E0025, 0xC00E0009
USAGE, SEQUENCE, LOCKED, NO_QUEUE = 0xC00E0050, 0xC00E0051, 0xC00E009C, 0xC00E0003
BAD_STUB, OP_RANGE, MISMATCH = 0x6F7, 0x1C010002, 0x1C00001A
NT_HANDLE, NT_DENIED, NT_PARAMETER, NT_NOT_FOUND = 0xC0000008, 0xC0000022, 0xC000000D, 0xC0000225
MADE_UP = Handle(0, bytes(range(16)))
LAST = 0xFFFFFFFFFFFFFFFF
_numbers = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[Station]:
    with station(mapper_port=0) as running:
        yield running


class Target:
    """A queue for one test, and a connection."""

    def __init__(self, running: Station, caller: Caller) -> None:
        self.running = running
        self.caller = caller
        self.path = rf"private$\rr{next(_numbers)}"
        self.name = rf"OS:alpha\{self.path}"
        running.run(running.manager.create_queue(self.path))

    @property
    def queue(self) -> Queue:
        return self.running.manager.core.queues.get(self.path)

    def open(self, access: int = 1, share: int = 0, caller: Caller | None = None, suffix: str = "") -> Opened:
        return (caller or self.caller).open(self.name + suffix, access, share)

    def send(self, *labels: str, **properties: object) -> None:
        self.running.send(*labels, queue=self.path, **properties)

    def labels(self, suffix: str = "") -> list[str]:
        return self.running.labels(self.path + suffix)

    def ids(self) -> list[int]:
        async def look() -> list[int]:
            return [each.lookup_id for each in await self.running.manager.reads.peek(self.path, 1000, after=-1)]

        return self.running.run(look())

    def waits(self, number: int = 1) -> None:
        """Until so many reads wait at the queue."""

        async def look() -> None:
            while len(self.queue.waiting) != number:  # noqa: ASYNC110  # the manager has no event for who waits
                await asyncio.sleep(0.002)

        self.running.run(asyncio.wait_for(look(), 30))


@pytest.fixture(params=Format)
def caller(running: Station, request: pytest.FixtureRequest) -> Iterator[Caller]:
    with calling(running, layout=request.param) as made:
        yield made


@pytest.fixture
def target(running: Station, caller: Caller) -> Target:
    return Target(running, caller)


def rest_of(whole: bytes) -> bytes:
    """The headers after the message."""
    return whole[int.from_bytes(whole[8:12], "little") :]


# The interface


@pytest.mark.spec("RR-2.1-01", "RR-2.1-03", "RR-3.1.3-01", "RR-3.1.4.1-01", "RR-2.1-05", "RR-2.2-01")
def test_anybody_binds_at_the_port_that_the_server_tells_of(target: Target) -> None:
    port = port_of(target.caller)
    assert port == target.running.address[1]

    async def ask() -> int:
        client = await connect(HOST, port, REMOTE_READ)
        try:
            return (await client.call(wire.GET_SERVER_PORT, Nothing())).result
        finally:
            await client.close()

    assert target.running.run(ask()) == port


@dataclass(frozen=True, slots=True)
class AnyEnd:
    """The request of R_EndReceive without its range."""

    context: wire.QueueHandle
    ack: ndr.Dword
    request_id: ndr.Dword


@pytest.mark.spec("RR-2.2-02")
def test_of_two_syntaxes_one_is_accepted(running: Station) -> None:
    abstract = pdus.SyntaxId(REMOTE_READ.uuid, 1)
    contexts = tuple(PresentationContext(n, abstract, (each,)) for n, each in enumerate((pdus.NDR64, pdus.NDR)))

    async def ask() -> list[int]:
        stream, sink = await asyncio.open_connection(*running.address)
        bind = pdus.Bind(call_id=1, max_xmit_frag=4280, max_recv_frag=4280, assoc_group_id=0, contexts=contexts)
        sink.write(bind.encode())
        (frame,) = pdus.Framer().feed(await stream.read(65536))
        sink.close()
        await sink.wait_closed()
        answer = pdus.decode(frame)
        assert isinstance(answer, pdus.BindAck)
        return [each.result for each in answer.results]

    assert sorted(running.run(ask())) == [ContextResult.ACCEPTANCE, ContextResult.PROVIDER_REJECTION]


def unknown(opnum: int) -> Operation[Nothing, Nothing]:
    operation = Operation(opnum, "Unknown", Nothing, Nothing)
    Interface("RemoteRead", str(REMOTE_READ.uuid), (1, 0), operation)
    return operation


@pytest.mark.spec("RR-1.7-01", "RR-3.1.4-03", "RR-3.1.4-04", "RR-3.1.4.12-01", "RR-3.1.4.13-01", "RR-3.1.4.15-01")
@pytest.mark.parametrize("opnum", [1, 12, 13, 15, 16, 99])
def test_what_is_not_offered_is_out_of_range_and_the_connection_lives(target: Target, opnum: int) -> None:
    assert target.caller.fault(unknown(opnum), Nothing()) == OP_RANGE
    assert port_of(target.caller)


@pytest.mark.spec("RR-2.2.4.1-03", "RR-3.1.4.6-03")
def test_handles_of_other_interfaces_are_refused(target: Target) -> None:
    """Within one association, so that only the type of the handle can tell."""
    running = target.running
    target.send("one")

    async def ask() -> int:
        client = await connect(*running.address, QMCOMM, QM2QM, REMOTE_READ)
        try:
            asked = qmcomm.OpenRemoteQueueIn(structure(target.name), 0, 1, 0, uuid4(), 0x500)
            opened = await client.call(qmcomm.OPEN_REMOTE_QUEUE, asked)
            handle = opened.queue_handle
            session = await client.call(qm2qm.OPEN_QUEUE, structures.OpenQueueIn(uuid4(), 0, handle, handle, handle))
            for each in (session.context, opened.context):
                with pytest.raises(RpcFault) as fault:
                    await client.call(wire.PURGE_QUEUE, wire.OneQueue(each))
                assert fault.value.fault_status == MISMATCH
            return (await client.call(wire.GET_SERVER_PORT, Nothing())).result
        finally:
            await client.close()

    assert running.run(ask())
    assert target.labels() == ["one"]


HANDLES: list[tuple[Operation[Any, Any], Callable[[Handle], object]]] = [
    (wire.CLOSE_QUEUE, wire.OneQueue),
    (wire.CREATE_CURSOR, wire.OneQueue),
    (wire.CLOSE_CURSOR, lambda handle: wire.CloseCursorIn(handle, 1)),
    (wire.PURGE_QUEUE, wire.OneQueue),
    (wire.START_RECEIVE, lambda handle: wire.StartReceiveIn(handle, 0, 0, 0, 0, 1, 0, 0)),
    (wire.CANCEL_RECEIVE, lambda handle: wire.CancelReceiveIn(handle, 1)),
    (wire.END_RECEIVE, lambda handle: wire.EndReceiveIn(handle, 2, 1)),
    (wire.MOVE_MESSAGE, lambda handle: wire.MoveMessageIn(handle, 1, 1, wire.NO_TRANSACTION)),
    (wire.SET_USER_ACKNOWLEDGEMENT_CLASS, lambda handle: wire.SetClassIn(handle, 1, 0)),
]


@pytest.mark.spec(
    "RR-3.1.4.3-02", "RR-3.1.4.4-02", "RR-3.1.4.6-03", "RR-3.1.4.10-04", "RR-3.1.4.14-03", "RR-3.1.4.3-07"
)
@pytest.mark.parametrize("number", range(len(HANDLES)))
def test_a_handle_that_is_not_open_is_a_fault(target: Target, number: int) -> None:
    operation, request = HANDLES[number]
    reader = target.open()
    assert reader.close().result == 0
    for handle in (MADE_UP, NULL_HANDLE, reader.handle):
        assert target.caller.fault(operation, request(handle)) == MISMATCH
    with calling(target.running) as other:  # the same address, and another association
        foreign = target.open(caller=other)
        assert target.caller.fault(operation, request(foreign.handle)) == MISMATCH


# Opening


@pytest.mark.spec("RR-3.1.4.2-01", "RR-2.2.4-01", "RR-2.2.4.1-02")
def test_an_open_queue_has_a_handle_that_serves_every_method(target: Target) -> None:
    target.send("one", "two")
    reader = target.open()
    assert reader.handle != NULL_HANDLE
    cursor = reader.cursor()
    assert label(reader.start(PEEK, cursor=cursor)) == "one"
    assert reader.close_cursor(cursor) == 0
    assert reader.set_class(1) == NOT_FOUND
    assert reader.cancel(7) == NT_NOT_FOUND
    assert reader.take() == "one"
    assert reader.purge() == 0
    closed = reader.close()
    assert (closed.context, closed.result) == (NULL_HANDLE, 0)


@pytest.mark.spec("RR-3.1.4.2-02", "RR-3.1.4.2-04", "RR-3.1.4.2-03", "RR-2.2.3-02", "RR-3.1.4.2-14")
def test_a_queue_that_cannot_be_opened_is_a_fault_with_its_hresult(target: Target) -> None:
    refused = target.caller.refused
    assert refused(r"OS:alpha\private$\nowhere") == NO_QUEUE
    assert refused(r"OS:elsewhere\private$\rr1") == NO_QUEUE
    assert refused(target.name + ";nosub") == NO_QUEUE
    assert refused(target.name, share=7) == INVALID_PARAMETER
    for access in (0, 2, 3, 4, 0x21, 0xFFFFFFFF):
        assert refused(target.name, access) == INVALID_PARAMETER
    for kind, arm in ((0, None), (5, uuid4())):
        assert refused(QueueFormatStructure(kind, 0, 0, arm)) == INVALID_PARAMETER
    assert refused(DirectName.from_wire(r"HTTP://alpha/msmq/private$/rr1")) >> 16 == 0xC00E
    assert target.open().handle != NULL_HANDLE


@pytest.mark.spec("RR-2.2.3-01", "RR-2.2.3-02", "RR-2.2.3-03")
def test_every_kind_of_name_opens_its_queue(target: Target) -> None:
    manager = target.running.manager
    target.send("one", journal=False)
    name = manager.core.queues.format_name(target.queue)
    assert isinstance(name, PrivateName)
    assert label(target.caller.open(name).start(PEEK)) == "one"
    assert label(target.caller.open(f"DIRECT=TCP:{HOST}\\{target.path}").start(PEEK)) == "one"
    assert target.open(suffix=";journal").status(PEEK) == TIMEOUT
    assert target.caller.open(f"{name};JOURNAL").status(PEEK) == TIMEOUT
    for suffix in (";DEADLETTER", ";DEADXACT", ";JOURNAL"):
        machine = f"MACHINE={manager.core.identifier}{suffix}"
        assert target.caller.open(machine).status(PEEK) == TIMEOUT


@pytest.mark.spec("RR-3.1.4.2-05", "RR-3.1.4.2-06", "RR-3.1.4.7-37", "RR-3.1.4.6-02", "RR-3.1.4.10-10")
def test_a_peek_handle_only_peeks(target: Target) -> None:
    target.send("one")
    both, peeks = target.open(1), target.open(0x20)
    (only,) = target.ids()
    for reader in (both, peeks):
        assert label(reader.start(PEEK)) == "one"
    assert peeks.status(RECEIVE) == peeks.status(LOOKUP_RECEIVE_CURRENT, lookup_id=only) == DENIED
    assert peeks.purge() == NT_DENIED
    context, _ = target.caller.target(target.name + ";sub")
    assert peeks.move(context, only) == DENIED
    assert target.labels() == ["one"]
    assert both.take() == "one"


@pytest.mark.spec("RR-3.1.4.2-07", "RR-3.1.4.2-08", "RR-3.1.4.2-15")
def test_an_exclusive_reader_keeps_receivers_out(target: Target) -> None:
    target.send("one")
    first, second = target.open(), target.open()
    assert label(first.start(PEEK)) == label(second.start(PEEK)) == "one"
    assert target.caller.refused(target.name, share=1) == SHARING
    first.close()
    second.close()
    alone = target.open(share=1)
    for share in (0, 1):
        assert target.caller.refused(target.name, share=share) == SHARING
    assert target.caller.refused(target.name, access=0x20, share=1) == SHARING
    assert label(target.open(0x20).start(PEEK)) == "one"
    alone.close()
    assert target.open(share=0).take() == "one"


@pytest.mark.spec("RR-3.1.4.2-09", "RR-3.1.4.2-10", "RR-3.1.4.2-11", "RR-3.1.4.2-12")
def test_what_a_client_says_of_itself_is_ignored(target: Target) -> None:
    target.send("one")
    zero = UUID(int=0)
    for more in (
        {"client_id": zero},
        {"client_id": zero, "non_routing_server": 0},
        {"client_id": uuid4()},
        {"major": 0, "minor": 0, "build_number": 0},
        {"major": 255, "minor": 255, "build_number": 65535},
        {"workgroup": 0},
    ):
        assert label(target.caller.open(target.name, **more).start(PEEK)) == "one"


# Closing


@pytest.mark.spec("RR-3.1.4.3-01", "RR-3.1.4.3-03", "RR-3.1.4.3-04", "RR-3.1.4.3-05", "RR-2.2.4.2-01")
def test_a_close_ends_what_waits_and_gives_back_what_is_held(target: Target) -> None:
    target.send("one", "two")
    reader, peeks = target.open(), target.open()
    assert [label(reader.start()) for _ in range(2)] == ["one", "two"]
    blocked = [reader.start_later(), reader.start_later()]
    target.waits(2)
    assert reader.close().result == 0
    assert [each.result(30).result for each in blocked] == [CANCELLED] * 2
    assert target.labels() == ["one", "two"]
    assert target.caller.fault(wire.END_RECEIVE, wire.EndReceiveIn(reader.handle, ACK, 1)) == MISMATCH
    assert label(peeks.start(PEEK)) == "one"


@pytest.mark.spec("RR-3.1.6.1-01", "RR-3.1.6.2-01", "RR-1.3.2-01", "RR-3.1.6.2-03")
def test_a_lost_connection_closes_the_queue_and_gives_back_what_is_held(target: Target) -> None:
    target.send("one", "two")
    with calling(target.running) as other:
        held = target.open(share=1, caller=other)
        held.cursor()
        assert label(held.start()) == "one"
        assert label(held.start()) == "two"
        blocked = held.start_later()
        target.waits()
    with pytest.raises(RpcUnavailable):
        blocked.result(30)

    async def closed() -> None:
        while target.queue.descriptors:  # noqa: ASYNC110
            await asyncio.sleep(0.002)

    target.running.run(closed())
    assert target.open(share=1).take() == "one"
    target.send("three")
    assert target.labels() == ["two", "three"]


@pytest.mark.spec("RR-3.1.6.2-01")
def test_a_waiting_reader_gets_what_a_lost_one_had(target: Target) -> None:
    target.send("one")
    with calling(target.running) as other:
        assert label(target.open(caller=other).start()) == "one"
        waiting = target.open().start_later()
        target.waits()
    assert label(waiting.result(30)) == "one"


@pytest.mark.spec("RR-3.1.6.2-02", "RR-2.2.4.1-01")
def test_a_handle_lives_as_long_as_a_connection_of_its_association(target: Target) -> None:
    target.send("one")
    running = target.running
    with calling(running) as first:
        reader = target.open(caller=first)
        with calling(running, association=first.client.association) as second:
            first.close()
            joined = second.using(reader.handle)
            assert label(joined.start()) == "one"
            assert joined.end() == 0


# Cursors


@pytest.mark.spec("RR-3.1.4.4-01", "RR-3.1.4.4-03", "RR-3.1.4.5-01", "RR-3.1.4.5-02", "RR-3.1.4.7-13", "RR-1.3.4-01")
def test_cursors_belong_to_their_handle(target: Target) -> None:
    target.send("one", "two")
    reader, other = target.open(), target.open()
    cursors = [reader.cursor() for _ in range(100)]
    assert len({*cursors, 0}) == 101
    for cursor in cursors[::20]:
        assert label(reader.start(PEEK, cursor=cursor)) == "one"
    assert other.status(PEEK, cursor=cursors[0]) == NT_HANDLE
    assert reader.status(PEEK, cursor=0x7A7A7A7A) == NT_HANDLE
    assert other.close_cursor(cursors[0]) == NT_HANDLE
    assert reader.close_cursor(cursors[0]) == 0
    assert reader.close_cursor(cursors[0]) == NT_HANDLE
    assert reader.status(PEEK, cursor=cursors[0]) == NT_HANDLE
    assert label(reader.start(PEEK, cursor=cursors[1])) == "one"


@pytest.mark.spec("RR-1.3.4-02", "RR-3.1.4.7-14", "RR-3.1.4.7-15", "RR-3.1.4.7-16", "RR-1.3.1-01", "RR-3.1.4.7-08")
def test_a_cursor_walks_through_the_queue(target: Target) -> None:
    target.send("one", "two", "three", "four")
    reader = target.open()
    cursor = reader.cursor()
    first = reader.start(PEEK, cursor=cursor)
    assert label(first) == label(reader.start(PEEK, cursor=cursor)) == "one"
    following = [reader.start(PEEK_NEXT, cursor=cursor) for _ in range(2)]
    assert [label(each) for each in following] == ["two", "three"]
    assert len({each.sequence_id for each in (first, *following)}) == 3
    assert label(reader.start(RECEIVE, cursor=cursor)) == "three"
    assert reader.end() == 0
    assert label(reader.start(PEEK, cursor=cursor)) == "four"
    assert reader.status(PEEK_NEXT, cursor=cursor) == TIMEOUT
    assert reader.status(PEEK_NEXT) == INVALID_PARAMETER
    assert target.labels() == ["one", "two", "four"]


# Purge


@pytest.mark.spec("RR-3.1.4.6-01", "RR-3.1.4.6-04", "RR-1.3.3-02")
def test_a_purge_removes_all_and_what_is_held_when_it_comes_back(target: Target) -> None:
    target.send("one", "two", "three")
    reader = target.open()
    assert label(reader.start()) == "one"
    assert reader.purge() == 0
    assert target.labels() == []
    assert target.running.count(target.path) == 1
    assert reader.end(NACK) == 0
    assert target.running.count(target.path) == 0


# Receives in two phases


@pytest.mark.spec(
    "RR-1.3.3-01", "RR-3.1.4.7-02", "RR-3.1.4.7-03", "RR-3.1.4.9-01", "RR-3.1.4.9-02", "RR-3.1.1.2-01", "RR-3.1.4.9-08"
)
def test_receives_are_ended_in_any_order(target: Target) -> None:
    target.send("one", "two", "three")
    reader, other = target.open(), target.open()
    assert label(reader.start(request_id=11)) == "one"
    assert label(reader.start(request_id=12)) == "two"
    assert label(other.start(PEEK)) == "three"
    assert reader.end(NACK, 12) == 0
    assert label(other.start(PEEK)) == "two"
    assert reader.end(ACK, 11) == 0
    assert target.labels() == ["two", "three"]


@pytest.mark.spec("RR-3.1.4.9-04", "RR-3.1.4.9-05", "RR-3.1.4.9-06", "RR-3.1.4.7-01", "RR-3.1.4.7-39")
def test_an_end_without_its_receive(target: Target) -> None:
    target.send("one")
    reader, fresh = target.open(), target.open()
    assert fresh.end(ACK, 1) == INVALID_HANDLE
    reader.start(PEEK)
    assert reader.end() == INVALID_HANDLE
    assert label(reader.start()) == "one"
    taken = reader.last
    assert reader.end(ACK, taken + 1000) == INVALID_PARAMETER
    assert fresh.end(ACK, taken) == INVALID_HANDLE
    assert target.labels() == []
    assert reader.end(ACK, taken) == 0
    assert reader.end(ACK, taken) == INVALID_HANDLE
    assert reader.status() == TIMEOUT
    assert reader.end() == INVALID_HANDLE


@pytest.mark.spec("RR-3.1.4.9-03")
@pytest.mark.parametrize("ack", [0, 3, 0xFFFFFFFF])
def test_another_acknowledgment_is_bad_stub_data_and_the_message_stays_held(target: Target, ack: int) -> None:
    target.send("one")
    reader = target.open()
    assert label(reader.start(request_id=5)) == "one"
    raw = Operation(9, "R_EndReceive", AnyEnd, Result)
    Interface("RemoteRead", str(REMOTE_READ.uuid), REMOTE_READ.version, raw)
    assert target.caller.fault(raw, AnyEnd(reader.handle, ack, 5)) == BAD_STUB
    assert target.labels() == []
    assert reader.end(ACK, 5) == 0


@pytest.mark.spec("RR-3.1.4.7-22", "RR-3.1.4.7-23", "RR-3.1.1.3-01")
def test_a_request_id_names_one_read_of_one_handle(target: Target) -> None:
    target.send("one", "two", "three")
    reader, other = target.open(), target.open()
    assert label(reader.start(request_id=9)) == "one"
    assert reader.status(request_id=9) == INVALID_PARAMETER
    assert reader.status(PEEK, request_id=9) == INVALID_PARAMETER
    assert label(other.start(request_id=9)) == "two"
    assert reader.end(ACK, 9) == 0
    assert other.end(NACK, 9) == 0
    assert target.labels() == ["two", "three"]
    assert label(reader.start(request_id=9)) == "two"
    assert reader.end(NACK, 9) == 0


@pytest.mark.spec("RR-3.1.4.9-09", "RR-1.3.5-01")
def test_the_journal_gets_the_message_once_it_is_acknowledged(running: Station, caller: Caller) -> None:
    path = rf"private$\kept{next(_numbers)}"
    running.run(running.manager.create_queue(path, journal=True, transactional=True))

    async def send() -> None:
        await running.manager.send_transactional(path, [Message(b"one", label="one")])

    running.run(send())
    reader = caller.open(rf"OS:alpha\{path}")
    assert label(reader.start()) == "one"
    assert running.labels(path + ";journal") == []
    assert reader.end(ACK) == 0
    assert running.labels(path + ";journal") == ["one"]


@pytest.mark.spec("RR-3.1.4.9-07")
def test_a_message_that_is_gone_is_not_found(target: Target) -> None:
    target.send("one")
    reader = target.open()
    assert label(reader.start()) == "one"
    target.running.run(target.running.manager.delete_queue(target.path))
    assert reader.end(ACK) == NOT_FOUND
    assert reader.end(ACK) == INVALID_HANDLE


# Time-outs


@pytest.mark.spec("RR-3.1.4.7-10", "RR-3.1.4.7-12", "RR-3.1.2.1-02", "RR-3.1.4.7-36")
def test_an_empty_queue_answers_when_the_time_is_over(target: Target) -> None:
    reader = target.open()
    answer = reader.start()
    assert (answer.arrive_time, answer.sequence_id, answer.number_of_sections, answer.sections) == (0, 0, 0, None)
    assert answer.result == TIMEOUT
    late, soon = reader.start_later(timeout=3_600_000), reader.start_later(PEEK, timeout=300)
    target.waits(2)
    assert soon.result(30).result == TIMEOUT
    assert not late.done()
    target.send("one")
    assert label(late.result(30)) == "one"


@pytest.mark.spec("RR-3.1.4.7-10", "RR-3.1.4.7-11", "RR-3.1.4.7-40")
def test_blocked_reads_are_answered_as_messages_come(target: Target) -> None:
    reader = target.open()
    blocked = [reader.start_later() for _ in range(5)]
    target.waits(5)
    target.send("1", "2", "3", "4", "5")
    assert sorted(label(each.result(30)) for each in blocked) == ["1", "2", "3", "4", "5"]
    peeks = reader.start_later(PEEK)
    target.waits()
    target.send("6")
    assert label(peeks.result(30)) == "6"


@pytest.mark.spec("RR-2.2.4.1-01")
def test_calls_on_one_handle_run_side_by_side(target: Target) -> None:
    reader = target.open()
    blocked = reader.start_later()
    target.waits()
    assert reader.status(PEEK) == TIMEOUT
    assert reader.cursor()
    assert reader.purge() == 0
    assert not blocked.done()
    target.send("one")
    assert label(blocked.result(30)) == "one"


# Cancelling


@pytest.mark.spec("RR-3.1.4.8-01", "RR-3.1.4.8-02", "RR-3.1.4.8-03", "RR-3.1.4.8-05", "RR-3.1.4.8-06")
def test_a_cancelled_receive_takes_no_message(target: Target) -> None:
    reader, other = target.open(), target.open()
    first, second = reader.start_later(request_id=1), reader.start_later(request_id=2)
    third = other.start_later(request_id=1)
    target.waits(3)
    with calling(target.running, association=target.caller.client.association) as joined:
        assert joined.using(reader.handle).cancel(1) == 0
    assert first.result(30).result == CANCELLED
    assert not second.done()
    assert not third.done()
    assert reader.cancel(1) == NT_NOT_FOUND
    assert reader.cancel(77) == NT_NOT_FOUND
    again = reader.start_later(request_id=1)
    target.waits(3)
    assert [reader.cancel(2), reader.cancel(1), other.cancel(1)] == [0, 0, 0]
    assert [each.result(30).result for each in (second, again, third)] == [CANCELLED] * 3
    target.send("one")
    assert target.labels() == ["one"]
    assert label(reader.start(request_id=1)) == "one"
    assert reader.cancel(1) == NT_NOT_FOUND
    assert reader.end(ACK, 1) == 0


@pytest.mark.spec("RR-3.1.4.8-04")
def test_a_blocked_peek_is_cancelled_too(target: Target) -> None:
    reader = target.open()
    cursor = reader.cursor()
    blocked = [reader.start_later(PEEK, request_id=3), reader.start_later(PEEK, request_id=4, cursor=cursor)]
    target.waits(2)
    assert [reader.cancel(3), reader.cancel(4)] == [0, 0]
    assert [each.result(30).result for each in blocked] == [CANCELLED] * 2


# Lookup ids


@pytest.mark.spec("RR-3.1.4.7-17", "RR-3.1.4.7-33", "RR-3.1.4.7-19")
def test_lookup_ids_find_messages_and_their_neighbours(target: Target) -> None:
    target.send("one", "two", "three")
    reader = target.open()
    ids = target.ids()
    for action, expected in ((LOOKUP_PEEK_CURRENT, 1), (LOOKUP_PEEK_NEXT, 2), (LOOKUP_PEEK_PREV, 0)):
        answer = reader.start(action, lookup_id=ids[1])
        assert (label(answer), lookup_id(answer)) == (["one", "two", "three"][expected], ids[expected])
        assert answer.sequence_id == ids[expected] & (1 << 56) - 1
    assert label(reader.start(LOOKUP_PEEK_PREV, lookup_id=LAST)) == "three"
    assert target.labels() == ["one", "two", "three"]


@pytest.mark.spec("RR-3.1.4.7-18", "RR-3.1.4.7-19")
def test_receives_by_lookup_id_have_two_phases(target: Target) -> None:
    target.send("one", "two", "three")
    reader = target.open()
    ids = target.ids()
    for action, expected in (
        (LOOKUP_RECEIVE_CURRENT, "two"),
        (LOOKUP_RECEIVE_NEXT, "three"),
        (LOOKUP_RECEIVE_PREV, "one"),
    ):
        assert label(reader.start(action, lookup_id=ids[1])) == expected
        assert expected not in target.labels()
        assert reader.end(NACK) == 0
        assert target.labels() == ["one", "two", "three"]
    for action, left in (
        (LOOKUP_RECEIVE_NEXT, ["one", "two"]),
        (LOOKUP_RECEIVE_PREV, ["two"]),
        (LOOKUP_RECEIVE_CURRENT, []),
    ):
        reader.start(action, lookup_id=ids[1])
        assert reader.end(ACK) == 0
        assert target.labels() == left


@pytest.mark.spec("RR-3.1.4.7-20", "RR-3.1.4.7-21")
def test_neighbours_are_those_that_nobody_holds(target: Target) -> None:
    target.send("one", "two", "three")
    ids = target.ids()
    reader = target.open()
    assert label(reader.start(LOOKUP_RECEIVE_CURRENT, lookup_id=ids[1])) == "two"
    other = target.open()
    assert label(other.start(LOOKUP_PEEK_NEXT, lookup_id=ids[0])) == "three"
    assert label(other.start(LOOKUP_PEEK_PREV, lookup_id=ids[2])) == "one"
    assert other.status(LOOKUP_PEEK_NEXT, lookup_id=ids[2]) == NOT_FOUND
    assert other.status(LOOKUP_PEEK_PREV, lookup_id=ids[0]) == NOT_FOUND
    assert other.status(LOOKUP_PEEK_CURRENT, lookup_id=ids[2] + 1000) == NOT_FOUND
    assert reader.end(ACK) == 0
    assert other.status(LOOKUP_PEEK_CURRENT, lookup_id=ids[1]) in (NOT_FOUND, ALREADY_RECEIVED)


@pytest.mark.spec("RR-3.1.4.7-04", "RR-3.1.4.7-05", "RR-3.1.4.7-06", "RR-3.1.4.7-07", "RR-3.1.4.7-09")
def test_parameters_that_do_not_go_together(target: Target) -> None:
    target.send("one")
    reader = target.open()
    cursor = reader.cursor()
    (only,) = target.ids()
    for timeout in (1, INFINITE):
        assert reader.status(LOOKUP_PEEK_CURRENT, lookup_id=only, timeout=timeout) == INVALID_PARAMETER
    assert reader.status(LOOKUP_PEEK_CURRENT, lookup_id=only, cursor=cursor) == INVALID_PARAMETER
    for action in (RECEIVE, PEEK, PEEK_NEXT, 0x40000013):
        assert reader.status(action, lookup_id=only) == INVALID_PARAMETER
    for action in (*range(0x40000010, 0x40000014), *range(0x40000020, 0x40000024), 1, 0x80000002):
        assert reader.status(action) == INVALID_PARAMETER
        assert reader.status(action, cursor=cursor) == INVALID_PARAMETER
    assert reader.end(ACK) == INVALID_HANDLE
    assert target.labels() == ["one"]


@pytest.mark.spec("RR-3.1.4.7-38")
def test_messages_come_by_priority_then_by_arrival(target: Target) -> None:
    for name, priority in (("low", 1), ("high", 6), ("middle", 3), ("high too", 6)):
        target.send(name, priority=priority)
    reader = target.open()
    assert [reader.take() for _ in range(4)] == ["high", "high too", "middle", "low"]


# The packet and its sections


@pytest.mark.spec("RR-2.2.6-02", "RR-2.2.6-03", "RR-3.1.4.7-24", "RR-3.1.4.7-28", "RR-3.1.4.7-34", "RR-3.1.4.7-29")
def test_a_message_that_fits_is_one_section(target: Target) -> None:
    body = b"0123456789"
    target.running.run(target.running.manager.send(target.path, [Message(body, label="odd")]))
    reader = target.open()
    for size in (len(body), len(body) + 1, 0xFFFFFFFF):
        answer = reader.start(PEEK, max_body_size=size, max_compound_message_size=0)
        assert answer.number_of_sections == 1
        assert answer.sections is not None
        (only,) = answer.sections
        assert only.section is not None
        assert only.section_type == SectionType.FULL_PACKET
        assert only.size_alloc == only.size == len(only.section)
        assert view(answer).body == body


@pytest.mark.spec(
    *("RR-2.2.6-02", "RR-2.2.6-03", "RR-2.2.6-04", "RR-2.2.6-05", "RR-2.2.7-01", "RR-2.2.7-03"),
    *("RR-3.1.4.7-25", "RR-3.1.4.7-26", "RR-3.1.4.7-27", "RR-3.1.4.7-28", "RR-3.1.4.7-31", "RR-3.1.4.7-34"),
)
@pytest.mark.parametrize("name", ["", "x", "an odd label"])
def test_a_body_is_cut_where_the_client_says(target: Target, name: str) -> None:
    body = b"0123456789"
    target.running.run(target.running.manager.send(target.path, [Message(body, label=name)]))
    reader = target.open()
    whole = octets(reader.start(PEEK))
    start, end = MessageView(whole[: int.from_bytes(whole[8:12], "little")]).body_span()
    for size in (0, 1, 9):
        answer = reader.start(PEEK, max_body_size=size)
        assert answer.number_of_sections == 2
        assert answer.sections is not None
        first, second = answer.sections
        assert (first.section_type, second.section_type) == (SectionType.BINARY_FIRST, SectionType.BINARY_SECOND)
        assert first.section == whole[: start + size]
        assert (first.size, first.size_alloc) == (start + size, start + len(body))
        assert second.section == whole[end:]
        assert second.size == second.size_alloc == len(whole) - end
        assert first.size_alloc + second.size_alloc == len(whole)
        assert view(answer).data[16 : start + size] == whole[16 : start + size]
        assert view(answer).body == body[:size] + bytes(len(body) - size)
    assert reader.start(RECEIVE, max_body_size=0).result == 0
    assert reader.end(ACK) == 0
    assert target.labels() == []


def test_an_empty_body_is_never_cut(target: Target) -> None:
    target.running.run(target.running.manager.send(target.path, [Message(b"", label="empty")]))
    assert target.open().start(PEEK, max_body_size=0).number_of_sections == 1


@pytest.mark.spec("RR-2.2.5.1-01", "RR-3.1.4.7-35")
@pytest.mark.parametrize("recoverable", [True, False])
def test_the_time_to_reach_the_queue_is_absolute(target: Target, recoverable: bool) -> None:
    target.send("limited", time_to_reach_queue=600, recoverable=recoverable)
    target.send("unlimited", time_to_reach_queue=INFINITE, recoverable=recoverable)
    reader = target.open()
    limited, unlimited = reader.start(), reader.start()
    sent = int.from_bytes(octets(limited)[52:56], "little")
    assert int.from_bytes(octets(limited)[12:16], "little") == sent + 600
    assert view(limited).time_to_reach_queue == 600  # as every other protocol has it
    assert octets(unlimited)[12:16] == b"\xff" * 4


@pytest.mark.spec(
    *("RR-2.2.5-01", "RR-2.2.5.2-01", "RR-2.2.5.2-02", "RR-2.2.5.2-03", "RR-2.2.5.3-01", "RR-2.2.5.3-02"),
    *("RR-2.2.5.3-04", "RR-2.2.5.3-06", "RR-2.2.5.5-01", "RR-2.2.5.1-05", "RR-2.2.5.1-04", "RR-2.2.5.1.1-01"),
    *("RR-2.2.5.1-03", "RR-2.2.5.3-05"),
)
def test_the_headers_after_the_message(target: Target) -> None:
    target.send("one")
    found = octets(target.open().start(PEEK))
    size = int.from_bytes(found[8:12], "little")
    message = MessageView(found[:size])
    assert message.session_header is None
    assert not message.arrived_by_http
    assert found[32:48] == bytes(16)  # a direct name: no address is known, so its scope is 0
    rest = found[size:]
    assert len(rest) == 12 + 148 + 28
    assert rest[:12] == bytes.fromhex("0c000000b000000012000000")
    assert rest[12:160] == (148).to_bytes(4, "little") + bytes(144)
    assert rest[160:] == (28).to_bytes(4, "little") + bytes(24)


@pytest.mark.spec("RR-3.1.4.7-32")
def test_the_time_of_arrival_is_told(target: Target) -> None:
    before = int(time.time())
    target.send("one")
    after = int(time.time())
    reader = target.open()
    for action in (PEEK, RECEIVE):
        assert before <= reader.start(action).arrive_time <= after


@pytest.mark.spec("RR-3.1.4.7-43")
def test_a_large_message_comes_whole(target: Target) -> None:
    body = bytes(range(256)) * (4_190_000 // 256)
    target.running.run(target.running.manager.send(target.path, [Message(body, label="large")]))
    reader = target.open()
    assert view(reader.start()).body == body
    assert reader.end(ACK) == 0
    assert target.labels() == []


# Moving


@pytest.mark.spec(
    *("RR-3.1.4.10-01", "RR-3.1.4.10-09", "RR-3.1.4.11-01", "RR-3.1.4.11-05", "RR-2.2.5.3-03", "RR-2.2.5.3-05"),
    *("RR-2.2.5.3-04", "RR-3.1.4.3-06"),
)
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_message_moves_among_the_subqueues_and_back(target: Target, recoverable: bool) -> None:
    target.send("one", "two", recoverable=recoverable)
    first, _ = target.ids()
    reader, caller = target.open(), target.caller
    to_a, handle_a = caller.target(target.name + ";a")
    to_b, _ = caller.target(target.name + ";b")
    back, _ = caller.target(target.name)
    assert len({to_a, to_b, back, 0}) == 4
    assert handle_a.handle != NULL_HANDLE
    before = octets(reader.start(PEEK))
    assert reader.move(to_a, first) == 0
    assert (target.labels(), target.labels(";a")) == (["two"], ["one"])
    moved = target.open(suffix=";a").start(PEEK)
    assert lookup_id(moved) == first  # the message keeps it
    trailers = trailers_of(rest_of(octets(moved)))
    assert (trailers.subqueue, trailers.moves) == ("a", 1)
    assert trailers.last_move_ms
    size = int.from_bytes(before[8:12], "little")
    assert octets(moved)[:size] == before[:size]
    assert target.open(suffix=";a").move(to_b, first) == 0
    assert (target.labels(), target.labels(";a"), target.labels(";b")) == (["two"], [], ["one"])
    assert target.open(suffix=";b").move(back, first) == 0
    assert (target.labels(), target.labels(";b")) == (["one", "two"], [])
    found = trailers_of(rest_of(octets(reader.start(PEEK))))
    assert (found.subqueue, found.moves) == ("", 3)
    assert reader.take() == "one"
    assert handle_a.close().result == 0
    assert reader.move(to_a, target.ids()[0]) == INVALID_HANDLE
    assert target.labels() == ["two"]


@pytest.mark.spec("RR-3.1.4.10-02", "RR-3.1.4.10-03", "RR-3.1.4.10-06")
def test_what_cannot_be_moved_stays(target: Target) -> None:
    target.send("one")
    (only,) = target.ids()
    reader, caller = target.open(), target.caller
    elsewhere, _ = caller.target(rf"OS:alpha\{OTHER}")
    there, handle = caller.target(target.name + ";a")
    itself, _ = caller.target(target.name)
    assert reader.move(elsewhere, only) == NT_PARAMETER
    assert reader.move(itself, only) == NT_PARAMETER
    assert reader.move(0x7A7A7A7A, only) == INVALID_HANDLE
    assert reader.move(0, only) == INVALID_HANDLE
    assert reader.move(there, only + 1) == NOT_FOUND
    assert handle.move(itself, only) == DENIED
    assert target.labels() == ["one"]
    assert reader.move(there, only) == 0
    assert reader.move(there, only) == NOT_FOUND


@pytest.mark.spec("RR-3.1.4.10-05", "RR-3.1.4.10-08")
def test_a_move_in_a_transaction_finds_none(running: Station, target: Target) -> None:
    target.send("one")
    (only,) = target.ids()
    unit_of_work = bytes(range(16))
    there, _ = target.caller.target(target.name + ";a")
    assert target.open().move(there, only, unit_of_work) == USAGE
    path = rf"private$\both{next(_numbers)}"
    running.run(running.manager.create_queue(path, transactional=True))
    running.run(running.manager.send_transactional(path, [Message(b"one", label="one")]))
    reader = target.caller.open(rf"OS:alpha\{path}")
    there, _ = target.caller.target(rf"OS:alpha\{path};a")
    only = lookup_id(reader.start(PEEK))
    assert reader.move(there, only, unit_of_work) == SEQUENCE
    assert reader.move(there, only + 1, unit_of_work) == NOT_FOUND
    assert running.labels(path) == ["one"]
    assert reader.move(there, only) == 0


@pytest.mark.spec("RR-3.1.4.10-07")
def test_a_message_that_somebody_holds_does_not_move(running: Station, caller: Caller) -> None:
    path = rf"private$\held{next(_numbers)}"
    running.run(running.manager.create_queue(path, transactional=True))
    running.run(running.manager.send_transactional(path, [Message(b"one", label="one")]))
    reader = caller.open(rf"OS:alpha\{path}")
    there, _ = caller.target(rf"OS:alpha\{path};a")
    only = lookup_id(reader.start(PEEK))

    async def receive_in_a_transaction() -> Transaction:
        transaction = running.manager.core.begin()
        descriptor = running.manager.core.open(path, QueueAccess.RECEIVE, ShareMode.DENY_NONE, 0.0)
        asked = WaitingRead(descriptor, ReadCall.RECEIVE, deadline=0.0, transaction=transaction)
        assert running.manager.core.reading.read(asked, running.manager.clock())
        return transaction

    transaction = running.run(receive_in_a_transaction())
    assert reader.move(there, only) == LOCKED
    assert reader.set_class(only) == USAGE

    async def abort() -> None:
        running.manager.core.abort(transaction, running.manager.clock())

    running.run(abort())
    assert reader.move(there, only) == 0


@pytest.mark.spec("RR-3.1.4.11-02", "RR-3.1.4.11-04", "RR-3.1.4.11-06")
def test_a_queue_opened_for_moves_reads_nothing(target: Target) -> None:
    target.send("one")
    caller = target.caller

    def refused(name: str, access: int = 4, share: int = 0) -> int:
        return caller.fault(wire.OPEN_QUEUE_FOR_MOVE, caller.opening(name, access, share))

    assert refused(r"OS:alpha\private$\nowhere") == NO_QUEUE
    assert refused(r"OS:alpha\private$\nowhere;sub") == NO_QUEUE
    assert refused(target.name, access=1) == refused(target.name, share=2) == INVALID_PARAMETER
    _, handle = caller.target(target.name)
    (only,) = target.ids()
    for status in (
        handle.status(PEEK),
        handle.status(RECEIVE),
        handle.status(LOOKUP_PEEK_CURRENT, lookup_id=only),
        handle.set_class(only),
        caller.call(wire.CREATE_CURSOR, wire.OneQueue(handle.handle)).result,
    ):
        assert status == DENIED
    assert handle.purge() == NT_DENIED
    assert target.labels() == ["one"]


def test_a_reader_makes_so_many_subqueues(running: Station) -> None:
    with calling(running) as caller:
        target = Target(running, caller)
        for number in range(MAX_SUBQUEUES):
            caller.target(f"{target.name};s{number}")[1].close()
        caller.target(f"{target.name};s0")
        request = caller.opening(f"{target.name};more", 4)
        assert caller.fault(wire.OPEN_QUEUE_FOR_MOVE, request) == 0xC00E0027


# Rejecting


@pytest.mark.spec("RR-3.1.4.14-01", "RR-3.1.4.14-02", "RR-3.1.4.14-04")
def test_a_message_in_no_transaction_cannot_be_rejected(target: Target) -> None:
    target.send("one", "two")
    first, second = target.ids()
    reader = target.open()
    assert label(reader.start()) == "one"
    for number in (0, 0xC004):
        assert reader.set_class(first, number) == USAGE  # locked
        assert reader.set_class(second, number) == USAGE
        assert reader.set_class(second + 1, number) == NOT_FOUND
    assert reader.set_class(second, 2) == INVALID_PARAMETER
    assert reader.end(NACK) == 0
    assert target.labels() == ["one", "two"]
    assert trailers_of(rest_of(octets(reader.start(PEEK)))).acknowledgment_class == 0


# Who may


@pytest.mark.spec("RR-1.7-02", "RR-5.1-01")
@pytest.mark.parametrize("layout", Format)
@pytest.mark.parametrize("level", [AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
def test_a_user_reads_at_every_level_of_protection(running: Station, level: AuthLevel, layout: Format) -> None:
    with calling(running, user=USER, level=level, layout=layout) as caller:
        target = Target(running, caller)
        target.send("one")
        assert target.open().take() == "one"


@pytest.mark.spec("RR-5.1-01")
def test_a_call_below_the_lowest_level_is_refused() -> None:
    with station(authenticate=True, minimum_level=AuthLevel.PRIVACY) as running:
        running.send("one")
        with calling(running, user=USER, level=AuthLevel.INTEGRITY) as caller:
            assert caller.fault(wire.OPEN_QUEUE, caller.opening()) == 5
        with calling(running) as nobody:
            assert nobody.refused() == nobody.refused(r"OS:alpha\private$\nowhere") == DENIED
            assert nobody.fault(wire.OPEN_QUEUE_FOR_MOVE, nobody.opening(access=4)) == DENIED
        with calling(running, user=USER) as caller:
            assert caller.open().take() == "one"
        with calling(running, user=USER, password="not " + PASSWORD) as guesser, pytest.raises(PostroadError):
            guesser.open()
