"""The RemoteRead interface, [MS-MQRR] 6: its methods and their parameters in wire form. Their rules are in mqrr.py.

Opnums 1, 12, 13 and 15 are missing: the first is never sent, the others need a transaction coordinator. A receive and
its end have faster stubs, as in qm2qm.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Annotated

from postroad.remote_read.qmcomm import CreateRemoteCursorOut, QueueFormatStructure
from postroad.remote_read.structures import Result
from postroad.rpc import ndr
from postroad.rpc.interface import FastParameters, Interface, Nothing, Operation
from postroad.rpc.ndr import Format, Handle, Reader

HANDLE_KIND = "QUEUE_CONTEXT_HANDLE"
MAX_SECTIONS = 2  # 2.2.6
MAX_SECTION = 0x00420000  # a packet has at most 4 MiB; the rest is for the headers after it

# QUEUE_CONTEXT_HANDLE_NOSERIALIZE and _SERIALIZE look alike on the wire, 2.2.4. Null is refused by the handlers.
QueueHandle = Annotated[Handle, ndr.context_handle(HANDLE_KIND)]


class SectionType(IntEnum):
    """2.2.7"""

    FULL_PACKET = 0
    BINARY_FIRST = 1
    BINARY_SECOND = 2
    SRMP_FIRST = 3
    SRMP_SECOND = 4


@dataclass(slots=True)
class SectionBuffer:
    """2.2.6. `size_alloc` counts also what was left out of the body."""

    section_type: Annotated[int, ndr.enum(SectionType)]
    size_alloc: ndr.Dword
    size: Annotated[int, ndr.ulong.range(0, MAX_SECTION)]
    section: Annotated[bytes | None, ndr.unique(ndr.array(ndr.byte, size_is="size"))]


@dataclass(frozen=True, slots=True)
class OpenQueueIn:
    queue_format: QueueFormatStructure
    access: ndr.Dword
    share_mode: ndr.Dword
    client_id: ndr.GUID
    non_routing_server: ndr.Long
    major: Annotated[int, ndr.uchar]
    minor: Annotated[int, ndr.uchar]
    build_number: ndr.Ushort
    workgroup: ndr.Long


@dataclass(frozen=True, slots=True)
class OpenQueueOut:
    context: QueueHandle


@dataclass(frozen=True, slots=True)
class OpenQueueForMoveOut:
    move_context: ndr.Ulonglong
    context: QueueHandle


@dataclass(frozen=True, slots=True)
class OneQueue:
    """The parameters of a method that needs only the queue."""

    context: QueueHandle


@dataclass(frozen=True, slots=True)
class CloseQueueOut:
    context: QueueHandle
    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class CloseCursorIn:
    context: QueueHandle
    cursor: ndr.Dword


@dataclass(slots=True)
class StartReceiveIn:
    context: QueueHandle
    lookup_id: ndr.Ulonglong
    cursor: ndr.Dword
    action: ndr.Dword
    timeout: ndr.Dword
    request_id: ndr.Dword
    max_body_size: ndr.Dword
    max_compound_message_size: ndr.Dword


@dataclass(slots=True)
class StartReceiveOut:
    arrive_time: ndr.Dword
    sequence_id: ndr.Ulonglong
    number_of_sections: Annotated[int, ndr.ulong.range(0, MAX_SECTIONS)]
    sections: Annotated[
        tuple[SectionBuffer, ...] | None,
        ndr.unique(ndr.array(ndr.struct(SectionBuffer), size_is="number_of_sections")),
    ]
    result: ndr.Hresult


@dataclass(frozen=True, slots=True)
class CancelReceiveIn:
    context: QueueHandle
    request_id: ndr.Dword


@dataclass(slots=True)
class EndReceiveIn:
    context: QueueHandle
    ack: Annotated[int, ndr.ulong.range(1, 2)]
    request_id: ndr.Dword


@dataclass(frozen=True, slots=True)
class MoveMessageIn:
    context_from: QueueHandle
    context_to: ndr.Ulonglong
    lookup_id: ndr.Ulonglong
    transaction_id: Annotated[bytes, ndr.fixed(ndr.byte, 16)]  # XACTUOW


@dataclass(frozen=True, slots=True)
class SetClassIn:
    context: QueueHandle
    lookup_id: ndr.Ulonglong
    acknowledgment_class: ndr.Ushort


RESULT = Struct("<I")
_GAPS = [bytes(-size % 4) for size in range(4)]  # after octets, up to the next number
START = Struct("<I16s4xQ6I")
END = Struct("<I16sII")
NO_TRANSACTION = bytes(16)


class _Shape:
    """The layout of a reply in one syntax: without a message, and up to the octets of its one section."""

    __slots__ = ("empty", "one")

    def __init__(self, head: str, referent: str, section: str, count: str) -> None:
        self.empty = Struct(f"<{head}{referent}I")
        self.one = Struct(f"<{head}{referent}{count}{section}{count}")


_NDR, _NDR64 = _Shape("I4xQI", "I", "HxxIII", "I"), _Shape("I4xQI4x", "Q", "III4xQ", "Q")
_REFERENTS = (0x00020000, 0x00020004)  # the numbers that the definitions give


class StartIn(FastParameters[StartReceiveIn]):
    __slots__ = ()

    def pack(self, value: StartReceiveIn, layout: Format) -> bytes | None:
        return START.pack(
            *value.context,
            value.lookup_id,
            value.cursor,
            value.action,
            value.timeout,
            value.request_id,
            value.max_body_size,
            value.max_compound_message_size,
        )

    def unpack(self, reader: Reader) -> StartReceiveIn | None:
        if reader.size < START.size:
            return None
        attributes, octets, *numbers = START.unpack_from(reader.data)
        reader.offset = START.size
        return StartReceiveIn(Handle(attributes, octets), *numbers)


class StartOut(FastParameters[StartReceiveOut]):
    """Fast for a whole message, and for none."""

    __slots__ = ()

    def pack(self, value: StartReceiveOut, layout: Format) -> bytes | None:
        shape = _NDR64 if layout is Format.NDR64 else _NDR
        sections, number, result = value.sections, value.number_of_sections, value.result
        if sections is None:
            return None if number else shape.empty.pack(value.arrive_time, value.sequence_id, 0, 0, result)
        if number != 1 or len(sections) != 1:
            return None
        section = sections[0]
        octets, size, kind = section.section, section.size, section.section_type
        if octets is None or len(octets) != size or size > MAX_SECTION or kind not in SECTION_TYPES:
            return None  # the definitions say what is wrong
        array, pointer = _REFERENTS
        start = shape.one.pack(
            value.arrive_time, value.sequence_id, 1, array, 1, kind, section.size_alloc, size, pointer, size
        )
        return b"".join((start, octets, _GAPS[size % 4], RESULT.pack(result)))

    def unpack(self, reader: Reader) -> StartReceiveOut | None:
        data, layout = reader.data, (_NDR64 if reader.wide else _NDR).one
        start = layout.size
        if reader.size < start + RESULT.size:
            return None
        arrive_time, sequence_id, number, array, count, kind, alloc, size, pointer, octets = layout.unpack_from(data)
        end = start + size
        at = end + -end % 4
        if not (number == count == 1 and array and pointer and octets == size <= MAX_SECTION):
            return None
        if kind not in SECTION_TYPES or reader.size < at + RESULT.size:
            return None
        (result,) = RESULT.unpack_from(data, at)
        reader.offset = at + RESULT.size
        section = SectionBuffer(kind, alloc, size, data[start:end])
        return StartReceiveOut(arrive_time, sequence_id, 1, (section,), result)


class EndIn(FastParameters[EndReceiveIn]):
    __slots__ = ()

    def pack(self, value: EndReceiveIn, layout: Format) -> bytes | None:
        return END.pack(*value.context, value.ack, value.request_id) if value.ack in (1, 2) else None

    def unpack(self, reader: Reader) -> EndReceiveIn | None:
        if reader.size < END.size:
            return None
        attributes, octets, ack, request_id = END.unpack_from(reader.data)
        if ack not in (1, 2):
            return None
        reader.offset = END.size
        return EndReceiveIn(Handle(attributes, octets), ack, request_id)


class ResultOut(FastParameters[Result]):
    __slots__ = ()

    def pack(self, value: Result, layout: Format) -> bytes | None:
        return RESULT.pack(value.result)

    def unpack(self, reader: Reader) -> Result | None:
        if reader.size < RESULT.size:
            return None
        reader.offset = RESULT.size
        return Result(*RESULT.unpack_from(reader.data))


SECTION_TYPES = frozenset(map(int, SectionType))

GET_SERVER_PORT = Operation(0, "R_GetServerPort", Nothing, Result)
OPEN_QUEUE = Operation(2, "R_OpenQueue", OpenQueueIn, OpenQueueOut)
CLOSE_QUEUE = Operation(3, "R_CloseQueue", OneQueue, CloseQueueOut)
CREATE_CURSOR = Operation(4, "R_CreateCursor", OneQueue, CreateRemoteCursorOut)
CLOSE_CURSOR = Operation(5, "R_CloseCursor", CloseCursorIn, Result)
PURGE_QUEUE = Operation(6, "R_PurgeQueue", OneQueue, Result)
START_RECEIVE = Operation(7, "R_StartReceive", StartIn(StartReceiveIn), StartOut(StartReceiveOut))
CANCEL_RECEIVE = Operation(8, "R_CancelReceive", CancelReceiveIn, Result)
END_RECEIVE = Operation(9, "R_EndReceive", EndIn(EndReceiveIn), ResultOut(Result))
MOVE_MESSAGE = Operation(10, "R_MoveMessage", MoveMessageIn, Result)
OPEN_QUEUE_FOR_MOVE = Operation(11, "R_OpenQueueForMove", OpenQueueIn, OpenQueueForMoveOut)
SET_USER_ACKNOWLEDGEMENT_CLASS = Operation(14, "R_SetUserAcknowledgementClass", SetClassIn, Result)

REMOTE_READ = Interface(
    "RemoteRead",
    "1a9134dd-7b39-45ba-ad88-44d01ca47f28",
    (1, 0),
    *(GET_SERVER_PORT, OPEN_QUEUE, CLOSE_QUEUE, CREATE_CURSOR, CLOSE_CURSOR, PURGE_QUEUE, START_RECEIVE),
    *(CANCEL_RECEIVE, END_RECEIVE, MOVE_MESSAGE, OPEN_QUEUE_FOR_MOVE, SET_USER_ACKNOWLEDGEMENT_CLASS),
)
