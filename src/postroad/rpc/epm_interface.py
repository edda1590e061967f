"""The endpoint mapper's interface, [C706] Appendix O with the changes of [MS-RPCE] 2.2.1.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from postroad.rpc import ndr
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.tower import MAX_SIZE

NOT_REGISTERED: Final = 0x16C9A0D6  # ept_s_not_registered
CANNOT_PERFORM: Final = 0x000006D8  # EPT_S_CANT_PERFORM_OP
ANNOTATION: Final = 64
LOOKUP_HANDLE: Final = "ept_lookup_handle_t"

ept_lookup_handle = ndr.context_handle(LOOKUP_HANDLE)


@dataclass(frozen=True, slots=True)
class Twr:
    tower_length: Annotated[int, ndr.ulong.range(0, MAX_SIZE)]
    tower_octet_string: Annotated[bytes, ndr.array(ndr.byte, size_is="tower_length")]

    @classmethod
    def of(cls, octets: bytes) -> Twr:
        return cls(len(octets), octets)


twr_p = ndr.full(ndr.struct(Twr))


@dataclass(frozen=True, slots=True)
class Entry:
    object: ndr.GUID
    tower: Annotated[Twr | None, twr_p]
    annotation: Annotated[str, ndr.varying_string(ndr.char, ANNOTATION)]


@dataclass(frozen=True, slots=True)
class InterfaceId:
    uuid: ndr.GUID
    vers_major: ndr.Ushort
    vers_minor: ndr.Ushort


@dataclass(frozen=True, slots=True)
class Insert:
    num_ents: Annotated[int, ndr.ulong.range(0, 500)]
    entries: Annotated[tuple[Entry, ...], ndr.array(ndr.struct(Entry), size_is="num_ents")]
    replace: ndr.Ulong


@dataclass(frozen=True, slots=True)
class Delete:
    num_ents: Annotated[int, ndr.ulong.range(0, 500)]
    entries: Annotated[tuple[Entry, ...], ndr.array(ndr.struct(Entry), size_is="num_ents")]


@dataclass(frozen=True, slots=True)
class Lookup:
    inquiry_type: ndr.Ulong
    object: Annotated[UUID | None, ndr.full(ndr.guid)]
    if_id: Annotated[InterfaceId | None, ndr.full(ndr.struct(InterfaceId))]
    vers_option: ndr.Ulong
    entry_handle: Annotated[ndr.Handle, ept_lookup_handle]
    max_ents: Annotated[int, ndr.ulong.range(0, 500)]


@dataclass(frozen=True, slots=True)
class LookupReply:
    entry_handle: Annotated[ndr.Handle, ept_lookup_handle]
    num_ents: ndr.Ulong
    entries: Annotated[tuple[Entry, ...], ndr.array(ndr.struct(Entry), size_is="max_ents", length_is="num_ents")]
    status: ndr.Ulong


@dataclass(frozen=True, slots=True)
class Map:
    object: Annotated[UUID | None, ndr.full(ndr.guid)]
    map_tower: Annotated[Twr | None, twr_p]
    entry_handle: Annotated[ndr.Handle, ept_lookup_handle]
    max_towers: Annotated[int, ndr.ulong.range(0, 500)]


@dataclass(frozen=True, slots=True)
class MapReply:
    entry_handle: Annotated[ndr.Handle, ept_lookup_handle]
    num_towers: ndr.Ulong
    towers: Annotated[tuple[Twr | None, ...], ndr.array(twr_p, size_is="max_towers", length_is="num_towers")]
    status: ndr.Ulong


@dataclass(frozen=True, slots=True)
class HandleFree:
    entry_handle: Annotated[ndr.Handle, ept_lookup_handle]


@dataclass(frozen=True, slots=True)
class HandleFreeReply:
    entry_handle: Annotated[ndr.Handle, ept_lookup_handle]
    status: ndr.Ulong


@dataclass(frozen=True, slots=True)
class StatusReply:
    status: ndr.Ulong


EPT_INSERT = Operation(0, "ept_insert", Insert, StatusReply)
EPT_DELETE = Operation(1, "ept_delete", Delete, StatusReply)
EPT_LOOKUP = Operation(2, "ept_lookup", Lookup, LookupReply)
EPT_MAP = Operation(3, "ept_map", Map, MapReply)
EPT_LOOKUP_HANDLE_FREE = Operation(4, "ept_lookup_handle_free", HandleFree, HandleFreeReply)

EPMAPPER = Interface(
    "epmapper",
    "e1af8308-5d1f-11c9-91a4-08002b14a0fa",
    (3, 0),
    *(EPT_INSERT, EPT_DELETE, EPT_LOOKUP, EPT_MAP, EPT_LOOKUP_HANDLE_FREE),
)
