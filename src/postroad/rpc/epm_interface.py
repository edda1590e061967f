"""The endpoint mapper's interface, [C706] Appendix O with the changes of [MS-RPCE] 2.2.1.2."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from struct import Struct, error
from typing import Annotated, Final
from uuid import UUID

from postroad.errors import RemoteProtocolError
from postroad.rpc import ndr
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.pdu import NDR, SyntaxId

# Protocol towers, [C706] Appendix L and [MS-RPCE] 3.1.3.5.3: the octets of an interface at a TCP port.


MAX_SIZE: Final = 2000  # [MS-RPCE] 2.2.1.2.2
MAX_FLOORS: Final = 6
_SHORT: Final = Struct("<H")
_PORT: Final = Struct(">H")
_UUID, _RPC, _TCP, _IP = 0x0D, 0x0B, 0x07, 0x09


@dataclass(frozen=True, slots=True)
class Tower:
    """An interface at a TCP port (ncacn_ip_tcp). The address is 0.0.0.0 if it is unknown or not IPv4."""

    interface: SyntaxId
    port: int
    address: str = "0.0.0.0"
    transfer: SyntaxId = NDR

    def encode(self) -> bytes:
        try:
            address = IPv4Address(self.address).packed
        except ValueError:
            address = bytes(4)
        floors = (
            _syntax_floor(self.interface),
            _syntax_floor(self.transfer),
            (bytes([_RPC]), bytes(2)),
            (bytes([_TCP]), _PORT.pack(self.port)),
            (bytes([_IP]), address),
        )
        parts = [_SHORT.pack(len(floors))]
        for left, right in floors:
            parts += [_SHORT.pack(len(left)), left, _SHORT.pack(len(right)), right]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Tower | None:
        """None for a tower of another protocol. RemoteProtocolError for octets that are not a tower."""
        floors = _floors(data)
        if len(floors) != 5 or [left[:1] for left, _ in floors[2:]] != [bytes([_RPC]), bytes([_TCP]), bytes([_IP])]:
            return None
        (port,), address = _PORT.unpack(_sized(floors[3][1], 2)), _sized(floors[4][1], 4)
        return cls(_read_syntax(*floors[0]), port, str(IPv4Address(address)), _read_syntax(*floors[1]))


def _floors(data: bytes) -> list[tuple[bytes, bytes]]:
    try:
        (count,) = _SHORT.unpack_from(data)
        if count > MAX_FLOORS:
            raise RemoteProtocolError(f"unexpected number of floors in a tower: {count}", 0)
        offset = 2
        floors = []
        for _ in range(count):
            sides = []
            for _ in range(2):
                (size,) = _SHORT.unpack_from(data, offset)
                offset += 2
                sides.append(_sized(data[offset : offset + size], size))
                offset += size
            floors.append((sides[0], sides[1]))
    except error:
        raise RemoteProtocolError("the tower is incomplete") from None
    return floors


def _sized(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise RemoteProtocolError(f"a field of the tower must have {size} octets, got {len(data)}")
    return data


def _syntax_floor(syntax: SyntaxId) -> tuple[bytes, bytes]:
    return bytes([_UUID]) + syntax.uuid.bytes_le + _SHORT.pack(syntax.major), _SHORT.pack(syntax.minor)


def _read_syntax(left: bytes, right: bytes) -> SyntaxId:
    if _sized(left, 19)[0] != _UUID:
        raise RemoteProtocolError("the floor must name an interface")
    return SyntaxId(UUID(bytes_le=left[1:17]), _SHORT.unpack(left[17:])[0], _SHORT.unpack(_sized(right, 2))[0])


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
