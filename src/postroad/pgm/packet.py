"""PGM packets, [RFC 3208] 8 and 9, from bytes to values and back.

SPM, ODATA, RDATA, NAK and NCF, with the options FRAGMENT, NAK_LIST, JOIN, SYN, FIN and RST. Parity, redirection and the
options of network elements are not supported, as [MC-MQSRM] 2.1.3 says; they are skipped.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address
from struct import Struct
from typing import NamedTuple

from postroad.errors import LocalProtocolError, RemoteProtocolError

HEADER = 16
DATA_HEADER = HEADER + 8
FRAGMENT_OPTIONS = 20  # OPT_LENGTH and OPT_FRAGMENT
MAX_NAK_LIST = 62  # numbers besides the first one, 9.3
MODULUS = 1 << 32
_HALF = 1 << 31

_HEADER = Struct("!HHBBH6sH")
_CHECKSUM_AT = 6
_SPM = Struct("!IIIHxx4s")
_DATA = Struct("!II")
_NAK = Struct("!IHxx4sHxx4s")
_OPTION_LENGTH = Struct("!BBH")
_FRAGMENT = Struct("!BBBBIII")
_JOIN = Struct("!BBBBI")
_IPV4 = 1  # address family identifier

_PRESENT, _NETWORK_SIGNIFICANT, _PARITY = 0x01, 0x02, 0x80
_END = 0x80
_OPX, _OPX_DISCARD = 0x03, 0x02  # what to do with a packet if an option in it is unknown, 9.1


class Kind(IntEnum):
    SPM = 0x00
    ODATA = 0x04
    RDATA = 0x05
    NAK = 0x08
    NCF = 0x0A


class Option(IntEnum):
    LENGTH = 0x00
    FRAGMENT = 0x01
    NAK_LIST = 0x02
    JOIN = 0x03
    SYN = 0x0D
    FIN = 0x0E
    RST = 0x0F


class MalformedPgm(RemoteProtocolError):
    """A packet violates [RFC 3208] 8 or 9, or its checksum is wrong."""


class Tsi(NamedTuple):
    """Transport session identifier: the source's global id and its port."""

    gsi: bytes
    port: int

    def __str__(self) -> str:
        return f"{self.gsi.hex()}.{self.port}"


class Fragment(NamedTuple):
    """OPT_FRAGMENT: where the payload belongs in an APDU of `length` bytes that starts at `first`."""

    first: int
    offset: int
    length: int


class Spm(NamedTuple):
    """Source path message: the transmit window, and the address that accepts NAKs."""

    tsi: Tsi
    port: int  # the data-destination port
    sequence: int
    trail: int
    lead: int
    nla: str
    join: int | None = None
    fin: bool = False
    rst: bool = False
    syn: bool = False


class Data(NamedTuple):
    """ODATA, or RDATA for a packet that is sent again."""

    kind: Kind
    tsi: Tsi
    port: int
    sequence: int
    trail: int
    payload: bytes
    fragment: Fragment | None = None
    join: int | None = None
    fin: bool = False
    rst: bool = False
    syn: bool = False


class Nak(NamedTuple):
    """NAK, or NCF, which confirms it. `nla` is the source's address."""

    kind: Kind
    tsi: Tsi
    port: int
    sequences: tuple[int, ...]
    nla: str
    group: str


Packet = Spm | Data | Nak


# Sequence numbers, modulo 2^32


def distance(start: int, end: int) -> int:
    """The number of steps from `start` to `end`; negative if `end` comes first."""
    return (end - start + _HALF) % MODULUS - _HALF


def after(sequence: int, steps: int = 1) -> int:
    return (sequence + steps) % MODULUS


# Checksum, 8.1


def checksum(data: bytes) -> int:
    """The ones' complement of the ones' complement sum. Never 0, because 0 means that there is no checksum."""
    padded = data if len(data) % 2 == 0 else data + b"\0"
    return 0xFFFF - int.from_bytes(padded) % 0xFFFF


def _is_sound(data: bytes) -> bool:
    padded = data if len(data) % 2 == 0 else data + b"\0"
    return int.from_bytes(padded) % 0xFFFF == 0


# Encoding


def encode(packet: Packet) -> bytes:
    """The bytes of a packet, as they follow the IP header."""
    if isinstance(packet, Data):
        options = _options(packet.fragment, packet.join, packet.syn, packet.fin, packet.rst)
        body = _DATA.pack(packet.sequence, packet.trail)
        return _finish(packet.kind, packet.tsi, packet.port, body, options, packet.payload)
    if isinstance(packet, Spm):
        options = _options(None, packet.join, packet.syn, packet.fin, packet.rst)
        body = _SPM.pack(packet.sequence, packet.trail, packet.lead, _IPV4, _packed(packet.nla))
        return _finish(Kind.SPM, packet.tsi, packet.port, body, options)
    first, *rest = packet.sequences
    if len(rest) > MAX_NAK_LIST:
        raise LocalProtocolError(f"a NAK names at most {MAX_NAK_LIST + 1} packets, got {len(rest) + 1}")
    body = _NAK.pack(first, _IPV4, _packed(packet.nla), _IPV4, _packed(packet.group))
    listed = [bytes((Option.NAK_LIST, 4 + 4 * len(rest), 0, 0)) + Struct(f"!{len(rest)}I").pack(*rest)] if rest else []
    return _finish(packet.kind, packet.tsi, packet.port, body, listed, significant=bool(listed))


def _options(fragment: Fragment | None, join: int | None, syn: bool, fin: bool, rst: bool) -> list[bytes]:
    found = []
    if fragment is not None:
        found.append(_FRAGMENT.pack(Option.FRAGMENT, _FRAGMENT.size, 0, 0, *fragment))
    if join is not None:
        found.append(_JOIN.pack(Option.JOIN, _JOIN.size, 0, 0, join))
    found += [
        bytes((kind, 4, 0, 0)) for kind, there in ((Option.SYN, syn), (Option.FIN, fin), (Option.RST, rst)) if there
    ]
    return found


def _finish(
    kind: Kind,
    tsi: Tsi,
    port: int,
    body: bytes,
    options: list[bytes],
    payload: bytes = b"",
    *,
    significant: bool = False,
) -> bytes:
    # A NAK travels the other way, so its source port is the data-destination port.
    ports = (port, tsi.port) if kind is Kind.NAK else (tsi.port, port)
    flags = 0
    extension = b""
    if options:
        flags = _PRESENT | (_NETWORK_SIGNIFICANT if significant else 0)
        options[-1] = bytes((options[-1][0] | _END,)) + options[-1][1:]
        listed = b"".join(options)
        extension = _OPTION_LENGTH.pack(Option.LENGTH, 4, 4 + len(listed)) + listed
    data = bytearray(b"".join((_HEADER.pack(*ports, kind, flags, 0, tsi.gsi, len(payload)), body, extension, payload)))
    data[_CHECKSUM_AT : _CHECKSUM_AT + 2] = checksum(bytes(data)).to_bytes(2)
    return bytes(data)


def _packed(address: str) -> bytes:
    return IPv4Address(address).packed


# Decoding


def decode(data: bytes) -> Packet | None:
    """The packet. None for a parity packet and for a kind that is not used here. Else raises MalformedPgm."""
    if len(data) < HEADER:
        raise MalformedPgm(f"a packet has at least {HEADER} bytes, got {len(data)}")
    source, destination, number, flags, check, gsi, size = _HEADER.unpack_from(data)
    kind = _KINDS.get(number)
    if kind is None:
        return None
    if check == 0 and (kind is Kind.ODATA or kind is Kind.RDATA):
        raise MalformedPgm("a data packet must have a checksum", _CHECKSUM_AT)
    if check != 0 and not _is_sound(data):
        raise MalformedPgm("the checksum is wrong", _CHECKSUM_AT)
    if flags & _PARITY:
        return None
    if kind is Kind.ODATA or kind is Kind.RDATA:
        return _decode_data(kind, Tsi(gsi, source), destination, flags, size, data)
    if size:
        raise MalformedPgm(f"only data packets have a payload, got one of {size} bytes", HEADER - 2)
    if kind is Kind.SPM:
        return _decode_spm(Tsi(gsi, source), destination, flags, data)
    if kind is Kind.NAK:
        return _decode_nak(kind, Tsi(gsi, destination), source, flags, data)
    return _decode_nak(kind, Tsi(gsi, source), destination, flags, data)


_KINDS: dict[int, Kind] = {each.value: each for each in Kind}


class _Options(NamedTuple):
    fragment: Fragment | None = None
    nak_list: tuple[int, ...] = ()
    join: int | None = None
    syn: bool = False
    fin: bool = False
    rst: bool = False


_NO_OPTIONS = _Options()


def _decode_data(kind: Kind, tsi: Tsi, port: int, flags: int, size: int, data: bytes) -> Data | None:
    _need(data, DATA_HEADER)
    sequence, trail = _DATA.unpack_from(data, HEADER)
    end, options = _read_options(data, DATA_HEADER) if flags & _PRESENT else (DATA_HEADER, _NO_OPTIONS)
    if options is None:
        return None
    if end + size != len(data):
        raise MalformedPgm(f"the payload must have {size} bytes, got {len(data) - end}", end)
    fragment, _, join, syn, fin, rst = options
    return Data(kind, tsi, port, sequence, trail, data[end:], fragment, join, fin, rst, syn)


def _decode_spm(tsi: Tsi, port: int, flags: int, data: bytes) -> Spm | None:
    end = HEADER + _SPM.size
    _need(data, end)
    sequence, trail, lead, family, nla = _SPM.unpack_from(data, HEADER)
    _need_ipv4(family)
    options = _only_options(data, end, flags)
    if options is None:
        return None
    _, _, join, syn, fin, rst = options
    return Spm(tsi, port, sequence, trail, lead, str(IPv4Address(nla)), join, fin, rst, syn)


def _decode_nak(kind: Kind, tsi: Tsi, port: int, flags: int, data: bytes) -> Nak | None:
    end = HEADER + _NAK.size
    _need(data, end)
    sequence, family, nla, group_family, group = _NAK.unpack_from(data, HEADER)
    _need_ipv4(family)
    _need_ipv4(group_family)
    options = _only_options(data, end, flags)
    if options is None:
        return None
    sequences = (sequence, *options.nak_list)
    return Nak(kind, tsi, port, sequences, str(IPv4Address(nla)), str(IPv4Address(group)))


def _only_options(data: bytes, at: int, flags: int) -> _Options | None:
    end, options = _read_options(data, at) if flags & _PRESENT else (at, _NO_OPTIONS)
    if end != len(data):
        raise MalformedPgm(f"the packet must have {end} bytes, got {len(data)}", end)
    return options


def _need(data: bytes, size: int) -> None:
    if len(data) < size:
        raise MalformedPgm(f"the packet must have at least {size} bytes, got {len(data)}")


def _need_ipv4(family: int) -> None:
    if family != _IPV4:
        raise MalformedPgm(f"the address family must be {_IPV4} (IPv4), got {family}")


def _read_options(data: bytes, at: int) -> tuple[int, _Options | None]:
    """Returns where the options end, and the known ones. None if an unknown option forbids the use of the packet."""
    if len(data) < at + 4:
        raise MalformedPgm("the options are cut off", at)
    kind, length, total = _OPTION_LENGTH.unpack_from(data, at)
    end = at + total
    if kind != Option.LENGTH or length != 4 or total < 8 or end > len(data):
        raise MalformedPgm("the options must begin with OPT_LENGTH and fit into the packet", at)
    at += 4
    found: dict[str, object] = {}
    wanted = True
    last = False
    while not last:
        if end - at < 4:
            raise MalformedPgm("the last option must have the end bit", at)
        last = bool(data[at] & _END)
        length = data[at + 1]
        if length < 4 or at + length > end:
            raise MalformedPgm(f"an option of {length} bytes does not fit", at)
        wanted = _read_option(data[at] & ~_END, data, at, length, found) and wanted
        at += length
    if at != end:
        raise MalformedPgm("OPT_LENGTH must be the length of all options", at)
    return end, _Options(**found) if wanted else None  # type: ignore[arg-type]


def _read_option(kind: int, data: bytes, at: int, length: int, found: dict[str, object]) -> bool:
    """Adds an option to `found`. Returns False for an unknown one that forbids the use of the packet."""
    if kind == Option.FRAGMENT:
        if length != _FRAGMENT.size:
            raise MalformedPgm(f"OPT_FRAGMENT must have {_FRAGMENT.size} bytes, got {length}", at)
        found["fragment"] = Fragment(*_FRAGMENT.unpack_from(data, at)[4:])
    elif kind == Option.NAK_LIST:
        count, rest = divmod(length - 4, 4)
        if rest or not 0 < count <= MAX_NAK_LIST:
            raise MalformedPgm(f"OPT_NAK_LIST must have 1 to {MAX_NAK_LIST} numbers, got {length - 4} bytes", at)
        found["nak_list"] = Struct(f"!{count}I").unpack_from(data, at + 4)
    elif kind == Option.JOIN:
        if length != _JOIN.size:
            raise MalformedPgm(f"OPT_JOIN must have {_JOIN.size} bytes, got {length}", at)
        found["join"] = _JOIN.unpack_from(data, at)[4]
    elif kind in _SIGNS:
        found[_SIGNS[kind]] = True
    else:
        return data[at + 2] & _OPX != _OPX_DISCARD
    return True


_SIGNS: dict[int, str] = {Option.SYN: "syn", Option.FIN: "fin", Option.RST: "rst"}
