"""The qm2qm interface, [MS-MQQP] 6: its eleven methods. Their rules are in mqqp.py.

A receive and its acknowledgment have faster stubs, each read or written in one step, little-endian. Most calls are
these two, and to read them member by member costs more than the rest of a receive. Octets and values are the same as
with the definitions in structures.py, which also handle every other form.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from struct import Struct

from postroad.remote_read import structures
from postroad.remote_read.structures import (
    MAX_BUFFER,
    EndReceiveIn,
    EndReceiveOut,
    RemoteReadDesc,
    RemoteReadDesc2,
    StartReceive2In,
    StartReceive2Out,
    StartReceiveByLookupIdIn,
)
from postroad.rpc.interface import FastParameters, Interface, Nothing, Operation
from postroad.rpc.ndr import Format, Handle, Reader

RESULT = Struct("<I")
END = Struct("<I16sI")  # pphContext, and dwAck or the result
REFERENTS = (0x00020000, 0x00020004)  # the numbers that the definitions give
MAX_ENUM = 0x7FFF


class Shape:
    """The layout in one syntax: REMOTEREADDESC up to the referent of lpBuffer, 2.2.2.1, and the fields before it."""

    __slots__ = ("counts", "lookup", "reply", "request")

    def __init__(self, desc: str, referent: str, count: str) -> None:
        self.request = Struct(f"<{referent}Q{desc}")  # the referent of pRemoteReadDesc, SequentialId
        self.lookup = Struct(f"<Q{referent}Q{desc}")  # the same behind LookupId
        self.reply = Struct(f"<I16s4x{referent}Q{desc}")  # the same behind pphContext
        self.counts = Struct(f"<3{count}")  # maximum count, offset, actual count


_NDR, _NDR64 = Shape("9IHxxI", "I4x", "I"), Shape("9IIQ", "Q", "Q")


def _shape(wide: bool) -> Shape:
    return _NDR64 if wide else _NDR


# The numbers of REMOTEREADDESC before lpBuffer: dwSize is at 4, eAckNack at 9.
_numbers = attrgetter(*[field.name for field in fields(RemoteReadDesc)][:-1])


def _pack_request(layout: Struct, desc2: RemoteReadDesc2, *first: int) -> bytes | None:
    desc = desc2.remote_read_desc
    if desc is None or desc.buffer is not None or desc.size or desc.ack_nack > MAX_ENUM:
        return None
    return layout.pack(*first, REFERENTS[0], desc2.sequential_id, *_numbers(desc), 0)


def _unpack_request(layout: Struct, reader: Reader) -> tuple[int, RemoteReadDesc2] | None:
    """The first number of the layout, and the structure."""
    if reader.size < layout.size:
        return None
    found = layout.unpack_from(reader.data)
    referent, sequential_id, *numbers, buffer = found[-13:]
    if not referent or buffer or numbers[4] or numbers[9] > MAX_ENUM:
        return None
    reader.offset = layout.size
    return found[0], RemoteReadDesc2(RemoteReadDesc(*numbers), sequential_id)


class StartIn(FastParameters[StartReceive2In]):
    __slots__ = ()

    def pack(self, value: StartReceive2In, layout: Format) -> bytes | None:
        return _pack_request(_shape(layout is Format.NDR64).request, value.remote_read_desc2)

    def unpack(self, reader: Reader) -> StartReceive2In | None:
        found = _unpack_request(_shape(reader.wide).request, reader)
        return None if found is None else StartReceive2In(found[1])


class LookupIn(FastParameters[StartReceiveByLookupIdIn]):
    __slots__ = ()

    def pack(self, value: StartReceiveByLookupIdIn, layout: Format) -> bytes | None:
        return _pack_request(_shape(layout is Format.NDR64).lookup, value.remote_read_desc2, value.lookup_id)

    def unpack(self, reader: Reader) -> StartReceiveByLookupIdIn | None:
        found = _unpack_request(_shape(reader.wide).lookup, reader)
        return None if found is None else StartReceiveByLookupIdIn(*found)


class StartOut(FastParameters[StartReceive2Out]):
    __slots__ = ()

    def pack(self, value: StartReceive2Out, layout: Format) -> bytes | None:
        desc2 = value.remote_read_desc2
        desc = desc2.remote_read_desc
        if desc is None:
            return None
        buffer = desc.buffer
        size = 0 if buffer is None else len(buffer)
        if size != desc.size or size > MAX_BUFFER or desc.ack_nack > MAX_ENUM:
            return None  # the definitions refuse what these structs would accept
        shape = _shape(layout is Format.NDR64)
        handle, pointer = value.context, 0 if buffer is None else REFERENTS[1]
        head = shape.reply.pack(*handle, REFERENTS[0], desc2.sequential_id, *_numbers(desc), pointer)
        if buffer is None:
            return head + RESULT.pack(value.result)
        return b"".join((head, shape.counts.pack(size, 0, size), buffer, bytes(-size % 4), RESULT.pack(value.result)))

    def unpack(self, reader: Reader) -> StartReceive2Out | None:
        data, shape = reader.data, _shape(reader.wide)
        start = shape.reply.size
        if reader.size < start + RESULT.size:
            return None
        attributes, octets, referent, sequential_id, *members, pointer = shape.reply.unpack_from(data)
        size = members[4]
        if not referent or members[9] > MAX_ENUM or size > MAX_BUFFER:
            return None
        buffer = None
        if pointer:
            if reader.size < start + shape.counts.size or shape.counts.unpack_from(data, start) != (size, 0, size):
                return None
            start += shape.counts.size
            end = start + size + -size % 4
            if reader.size < end + RESULT.size:
                return None
            buffer = data[start : start + size]
            start = end
        elif size:
            return None
        (result,) = RESULT.unpack_from(data, start)
        reader.offset = start + RESULT.size
        members.append(buffer)
        desc = RemoteReadDesc(*members)
        return StartReceive2Out(Handle(attributes, octets), RemoteReadDesc2(desc, sequential_id), result)


class EndIn(FastParameters[EndReceiveIn]):
    __slots__ = ()

    def pack(self, value: EndReceiveIn, layout: Format) -> bytes | None:
        if value.ack not in (1, 2):
            return None
        return END.pack(*value.context, value.ack)

    def unpack(self, reader: Reader) -> EndReceiveIn | None:
        if reader.size < END.size:
            return None
        attributes, octets, ack = END.unpack_from(reader.data)
        if ack not in (1, 2):
            return None
        reader.offset = END.size
        return EndReceiveIn(Handle(attributes, octets), ack)


class EndOut(FastParameters[EndReceiveOut]):
    __slots__ = ()

    def pack(self, value: EndReceiveOut, layout: Format) -> bytes | None:
        return END.pack(*value.context, value.result)

    def unpack(self, reader: Reader) -> EndReceiveOut | None:
        if reader.size < END.size:
            return None
        attributes, octets, result = END.unpack_from(reader.data)
        reader.offset = END.size
        return EndReceiveOut(Handle(attributes, octets), result)


START_RECEIVE = Operation(0, "RemoteQMStartReceive", structures.StartReceiveIn, structures.StartReceiveOut)
END_RECEIVE = Operation(1, "RemoteQMEndReceive", EndIn(EndReceiveIn), EndOut(EndReceiveOut))
OPEN_QUEUE = Operation(2, "RemoteQMOpenQueue", structures.OpenQueueIn, structures.OpenQueueOut)
CLOSE_QUEUE = Operation(3, "RemoteQMCloseQueue", structures.CloseQueueIn, structures.CloseQueueOut)
CLOSE_CURSOR = Operation(4, "RemoteQMCloseCursor", structures.CloseCursorIn, structures.Result)
CANCEL_RECEIVE = Operation(5, "RemoteQMCancelReceive", structures.CancelReceiveIn, structures.Result)
PURGE_QUEUE = Operation(6, "RemoteQMPurgeQueue", structures.PurgeQueueIn, structures.Result)
GET_SERVER_PORT = Operation(7, "RemoteQMGetQMQMServerPort", structures.GetPortIn, structures.Result)
GET_VERSION = Operation(8, "RemoteQmGetVersion", Nothing, structures.GetVersionOut)
START_RECEIVE2 = Operation(9, "RemoteQMStartReceive2", StartIn(StartReceive2In), StartOut(StartReceive2Out))
START_RECEIVE_BY_LOOKUP_ID = Operation(
    10, "RemoteQMStartReceiveByLookupId", LookupIn(StartReceiveByLookupIdIn), StartOut(StartReceive2Out)
)

QM2QM = Interface(
    "qm2qm",
    "1088a980-eae5-11d0-8d9b-00a02453c337",
    (1, 0),
    *(START_RECEIVE, END_RECEIVE, OPEN_QUEUE, CLOSE_QUEUE, CLOSE_CURSOR, CANCEL_RECEIVE, PURGE_QUEUE),
    *(GET_SERVER_PORT, GET_VERSION, START_RECEIVE2, START_RECEIVE_BY_LOOKUP_ID),
)
