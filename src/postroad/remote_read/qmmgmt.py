"""The qmmgmt interface, [MS-MQMR] 3.1.4, in its wire form: objects, and properties with their values.

What a property means is in management.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from enum import IntEnum
from struct import Struct
from typing import Annotated, Any, Final
from uuid import UUID

from postroad.errors import LocalProtocolError
from postroad.remote_read.qmcomm import QueueFormatStructure
from postroad.remote_read.structures import Result
from postroad.rpc import ndr
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import Dword, Format, Hresult

MAX_PROPERTIES: Final = 128  # of one call


class MgmtObjectType(IntEnum):
    """2.2.2.1"""

    MGMT_MACHINE = 1
    MGMT_QUEUE = 2
    MGMT_SESSION = 3


class MachineProperty(IntEnum):
    """PROPID_MGMT_MSMQ, [MS-MQMQ] 2.3.11"""

    ACTIVEQUEUES = 1
    PRIVATEQ = 2
    DSSERVER = 3
    CONNECTED = 4
    TYPE = 5
    BYTES_IN_ALL_QUEUES = 6


class QueueProperty(IntEnum):
    """PROPID_MGMT_QUEUE, [MS-MQMQ] 2.3.12"""

    PATHNAME = 1
    FORMATNAME = 2
    TYPE = 3
    LOCATION = 4
    XACT = 5
    FOREIGN = 6
    MESSAGE_COUNT = 7
    BYTES_IN_QUEUE = 8
    JOURNAL_MESSAGE_COUNT = 9
    BYTES_IN_JOURNAL = 10
    STATE = 11
    NEXTHOPS = 12
    EOD_LAST_ACK = 13
    EOD_LAST_ACK_TIME = 14
    EOD_LAST_ACK_COUNT = 15
    EOD_FIRST_NON_ACK = 16
    EOD_LAST_NON_ACK = 17
    EOD_NEXT_SEQ = 18
    EOD_NO_READ_COUNT = 19
    EOD_NO_ACK_COUNT = 20
    EOD_RESEND_TIME = 21
    EOD_RESEND_INTERVAL = 22
    EOD_RESEND_COUNT = 23
    EOD_SOURCE_INFO = 24
    CONNECTION_HISTORY = 25
    SUBQUEUE_COUNT = 26
    SUBQUEUE_NAMES = 27


class Action(IntEnum):
    """What R_QMMgmtAction does. The words on the wire are these, without regard to case."""

    CONNECT = 1
    DISCONNECT = 2
    TIDY = 3
    PAUSE = 4
    RESUME = 5
    EOD_RESEND = 6


# PROPVARIANT, [MS-MQMQ] 2.2.12 to 2.2.16


class VarType(IntEnum):
    """VARTYPE, as far as a value of this interface can have it."""

    EMPTY = 0
    NULL = 1
    I2 = 2
    I4 = 3
    BOOL = 11
    VARIANT = 12
    I1 = 16
    UI1 = 17
    UI2 = 18
    UI4 = 19
    I8 = 20
    UI8 = 21
    LPWSTR = 31
    BLOB = 65
    CLSID = 72


VECTOR: Final = 0x1000


@dataclass(frozen=True, slots=True)
class Blob:
    """2.2.15"""

    size: Dword
    data: Annotated[bytes | None, ndr.unique(ndr.array(ndr.byte, size_is="size"))]


class Vector:
    """CAUB, 2.2.16.1, and so on: a `count` of elements, and a pointer to the `items`."""

    __slots__ = ()
    count: int
    items: Sequence[Any] | None


def _vector(element: ndr.NdrType) -> Any:
    items = Annotated[Any, ndr.unique(ndr.array(element, size_is="count"))]
    return make_dataclass("Vector", [("count", Dword), ("items", items)], bases=(Vector,), frozen=True, slots=True)


_VECTORS: Mapping[int, Any] = {
    VarType.UI1: _vector(ndr.uchar),
    VarType.UI2: _vector(ndr.ushort),
    VarType.I4: _vector(ndr.long),
    VarType.UI4: _vector(ndr.ulong),
    VarType.UI8: _vector(ndr.uhyper),
    VarType.CLSID: _vector(ndr.guid),
    VarType.LPWSTR: _vector(ndr.unique(ndr.wstring)),
}
_ARMS: Mapping[int, ndr.NdrType | None] = {
    VarType.EMPTY: None,
    VarType.NULL: None,
    VarType.I1: ndr.char,
    VarType.UI1: ndr.uchar,
    VarType.I2: ndr.short,
    VarType.UI2: ndr.ushort,
    VarType.BOOL: ndr.short,
    VarType.I4: ndr.long,
    VarType.UI4: ndr.ulong,
    VarType.I8: ndr.hyper,
    VarType.UI8: ndr.uhyper,
    VarType.LPWSTR: ndr.unique(ndr.wstring),
    VarType.BLOB: ndr.struct(Blob),
    VarType.CLSID: ndr.unique(ndr.guid),
    **{VECTOR | kind: ndr.struct(each) for kind, each in _VECTORS.items()},
}


@dataclass(frozen=True, slots=True)
class PlainVariant:
    """An element of a vector of variants. Here none of them holds variants again."""

    vt: ndr.Ushort
    reserved1: Annotated[int, ndr.uchar] = 0
    reserved2: Annotated[int, ndr.uchar] = 0
    reserved3: Dword = 0
    value: Annotated[Any, ndr.union(ndr.ushort, _ARMS, switch_is="vt")] = None


_Variants = _vector(ndr.struct(PlainVariant))  # CAPROPVARIANT, 2.2.16.8
_ALL_ARMS: Mapping[int, ndr.NdrType | None] = {**_ARMS, VECTOR | VarType.VARIANT: ndr.struct(_Variants)}


@dataclass(frozen=True, slots=True)
class PropVariant:
    """2.2.13.2"""

    vt: ndr.Ushort
    reserved1: Annotated[int, ndr.uchar] = 0
    reserved2: Annotated[int, ndr.uchar] = 0
    reserved3: Dword = 0
    value: Annotated[Any, ndr.union(ndr.ushort, _ALL_ARMS, switch_is="vt")] = None


NULL = PropVariant(VarType.NULL)
_LARGEST: Final = 0xFFFFFFFF


def text(value: str) -> PropVariant:
    return PropVariant(VarType.LPWSTR, value=value)


def ui4(value: int) -> PropVariant:
    """A count. One that is larger than the type counts as the largest."""
    return PropVariant(VarType.UI4, value=min(value, _LARGEST))


def i4(value: int) -> PropVariant:
    return PropVariant(VarType.I4, value=_signed(value))


def blob(data: bytes) -> PropVariant:
    return PropVariant(VarType.BLOB, value=Blob(len(data), data))


def vector(kind: VarType, items: Sequence[Any]) -> PropVariant:
    return PropVariant(VECTOR | kind, value=_items(kind, items))


def table(columns: Sequence[tuple[VarType, Sequence[Any]]]) -> PropVariant:
    """A vector of vectors, as EOD_SOURCE_INFO and CONNECTION_HISTORY are."""
    found = tuple(PlainVariant(VECTOR | kind, value=_items(kind, items)) for kind, items in columns)
    return PropVariant(VECTOR | VarType.VARIANT, value=_Variants(len(found), found))


def _items(kind: VarType, items: Sequence[Any]) -> Any:
    if kind is VarType.I4:
        items = [_signed(each) for each in items]
    elif kind is VarType.UI4:
        items = [min(each, _LARGEST) for each in items]
    return _VECTORS[kind](len(items), tuple(items) if items else None)


def _signed(value: int) -> int:
    """A 32-bit number, such as an HRESULT, as the signed type has it."""
    return (value + 0x80000000) % 0x100000000 - 0x80000000


_SEQUENCE = Struct("<qII")  # SEQUENCE_INFO, [MS-MQMQ] 2.2.5.1


def sequence_info(sequence_id: int, number: int, previous: int) -> PropVariant:
    return blob(_SEQUENCE.pack(sequence_id, number, previous))


def python_value(value: Any) -> Any:
    """What a variant holds: a number, a text, octets, or a list of them. None for VT_NULL and VT_EMPTY. A sequence is a
    mapping with its id and its numbers."""
    match value:
        case PropVariant() | PlainVariant():
            return python_value(value.value)
        case Blob():
            data = value.data or b""
            if len(data) != _SEQUENCE.size:
                return data.hex()
            return dict(zip(("sequence_id", "number", "previous"), _SEQUENCE.unpack(data), strict=True))
        case Vector():
            return [python_value(each) for each in value.items or ()]
        case UUID():
            return str(value)
    return value


# The methods


@dataclass(frozen=True, slots=True)
class MgmtObject:
    """MGMT_OBJECT, 2.2.1.2. Of a machine or session, the arm is ignored."""

    type: MgmtObjectType
    arm: Annotated[
        Any,
        ndr.union(
            ndr.enum(MgmtObjectType),
            {
                MgmtObjectType.MGMT_MACHINE: ndr.ulong,
                MgmtObjectType.MGMT_QUEUE: ndr.unique(ndr.struct(QueueFormatStructure)),
                MgmtObjectType.MGMT_SESSION: ndr.ulong,
            },
            switch_is="type",
        ),
    ]


MACHINE = MgmtObject(MgmtObjectType.MGMT_MACHINE, 0)


@dataclass(frozen=True, slots=True)
class GetInfoIn:
    mgmt_object: MgmtObject
    count: Annotated[int, ndr.ulong.range(1, MAX_PROPERTIES)]
    properties: Annotated[Any, ndr.array(ndr.ulong, size_is="count")]
    values: Annotated[Any, ndr.array(ndr.struct(PropVariant), size_is="count")]


@dataclass(frozen=True, slots=True)
class GetInfoOut:
    values: Annotated[Any, ndr.array(ndr.struct(PropVariant), size_is="count")]
    result: Hresult


@dataclass(frozen=True, slots=True)
class ActionIn:
    mgmt_object: MgmtObject
    action: Annotated[str, ndr.wstring]  # a string, although the IDL lacks the attribute


GET_INFO = Operation(0, "R_QMMgmtGetInfo", GetInfoIn, GetInfoOut)
ACTION = Operation(1, "R_QMMgmtAction", ActionIn, Result)
# 2.2: only NDR.
QMMGMT = Interface("qmmgmt", "41208ee0-e970-11d1-9b9e-00e02c064c39", (1, 0), GET_INFO, ACTION, layouts=(Format.NDR,))


def get_info_of(mgmt_object: MgmtObject, properties: Sequence[int]) -> GetInfoIn:
    """A request for these properties. Each value must be VT_NULL before the call, 3.1.4.1."""
    if not 0 < len(properties) <= MAX_PROPERTIES:
        raise LocalProtocolError(f"properties: must be 1 to {MAX_PROPERTIES}, got {len(properties)}")
    return GetInfoIn(mgmt_object, len(properties), tuple(properties), (NULL,) * len(properties))
