"""A small interface that the RPC tests share: the shapes of qm2qm and a few more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from postroad.rpc import ndr
from postroad.rpc.interface import Interface, Nothing, Operation


class Colour(IntEnum):
    RED = 0
    GREEN = 1
    BLUE = 2


@dataclass(frozen=True, slots=True)
class Parcel:
    number: ndr.Dword
    size: Annotated[int, ndr.ulong.range(0, 1 << 20)]
    colour: Colour
    content: Annotated[bytes | None, ndr.unique(ndr.array(ndr.byte, size_is="size", length_is="size"))]


@dataclass(frozen=True, slots=True)
class NumberedParcel:
    parcel: Annotated[Parcel | None, ndr.unique(ndr.struct(Parcel))]
    sequence: ndr.Ulonglong


@dataclass(frozen=True, slots=True)
class Address:
    kind: Annotated[int, ndr.uchar]
    flags: Annotated[int, ndr.uchar]
    reserved: ndr.Ushort
    place: Annotated[
        object,
        ndr.union(ndr.uchar, {0: None, 1: ndr.guid, 3: ndr.unique(ndr.wstring)}, switch_is="kind"),
    ]


SHELF = "PCTX_SHELF"
COUNTER = "PCTX_COUNTER"


@dataclass(frozen=True, slots=True)
class Echo:
    parcel: Parcel


@dataclass(frozen=True, slots=True)
class EchoReply:
    parcel: Parcel
    status: ndr.Hresult


@dataclass(frozen=True, slots=True)
class Open:
    address: Annotated[Address | None, ndr.unique(ndr.struct(Address))]


@dataclass(frozen=True, slots=True)
class OpenReply:
    shelf: Annotated[ndr.Handle, ndr.context_handle(SHELF)]
    status: ndr.Hresult


@dataclass(frozen=True, slots=True)
class Use:
    shelf: Annotated[ndr.Handle, ndr.context_handle(SHELF, strict=True)]


@dataclass(frozen=True, slots=True)
class Close:
    shelf: Annotated[ndr.Handle, ndr.context_handle(SHELF)]


@dataclass(frozen=True, slots=True)
class CloseReply:
    shelf: Annotated[ndr.Handle, ndr.context_handle(SHELF)]


@dataclass(frozen=True, slots=True)
class Count:
    counter: Annotated[ndr.Handle, ndr.context_handle(COUNTER)]


@dataclass(frozen=True, slots=True)
class Wait:
    ticket: ndr.Dword


@dataclass(frozen=True, slots=True)
class Status:
    status: ndr.Hresult


ECHO = Operation(0, "Echo", Echo, EchoReply)
OPEN = Operation(1, "Open", Open, OpenReply)
USE = Operation(2, "Use", Use, Status)
CLOSE = Operation(3, "Close", Close, CloseReply)
COUNT = Operation(4, "Count", Count, Status)
WAIT = Operation(5, "Wait", Wait, Status)
CALL_OFF = Operation(6, "CallOff", Wait, Status)
FAIL = Operation(7, "Fail", Nothing, Status)
EMPTY = Operation(9, "Empty", Nothing, Nothing)

PARCELS = Interface(
    "parcels",
    "5c7b1c2e-6f37-4b0e-9f6e-6d3a1c5f7e10",
    (1, 0),
    *(ECHO, OPEN, USE, CLOSE, COUNT, WAIT, CALL_OFF, FAIL, EMPTY),
)
