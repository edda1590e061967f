"""Reads capture files, pcap and pcapng, frame by frame, and finds TCP segments and UDP datagrams in the frames.

If a file cannot be followed any further, the last item is a Skipped that says where and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct
from typing import BinaryIO

from postroad.describe.capture.items import Origin, Skipped
from postroad.net import ports
from postroad.net.endpoints import endpoint

# libpcap's own MAXIMUM_SNAPLEN. A longer frame means that the file is damaged or is not a capture of a network.
MAX_FRAME_SIZE = 262_144
_NS = 1_000_000_000
_COPY_SIZE = 65_536

# Magic number, as the first four bytes: byte order, and nanoseconds in a unit of the fraction.
PCAP_MAGICS: dict[bytes, tuple[str, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"  # the type of a Section Header Block, the same in both byte orders
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_SECTION_HEADER = 0x0A0D0D0A
_INTERFACE_DESCRIPTION = 1
_SIMPLE_PACKET = 3
_ENHANCED_PACKET = 6
_WANTED = frozenset({_INTERFACE_DESCRIPTION, _SIMPLE_PACKET, _ENHANCED_PACKET})
_SHORTEST = {_SECTION_HEADER: 28, _INTERFACE_DESCRIPTION: 20, _SIMPLE_PACKET: 16, _ENHANCED_PACKET: 32}
_OPTION_TSRESOL = 9
_OPTION_TSOFFSET = 14
_MAX_INTERFACES = 65_536  # in one section
# The largest block that we read: the largest frame with its options, or an interface with very many options.
_MAX_BLOCK_SIZE = MAX_FRAME_SIZE + 1_048_576


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured frame. `number` counts from 1, as in other tools. `offset` is the position in the file."""

    number: int
    offset: int
    link_type: int
    time_ns: int | None
    data: bytes


def read_pcap(stream: BinaryIO) -> Iterator[Frame | Skipped]:
    """The frames of a pcap file, which is read from its first byte."""
    head = stream.read(24)
    order, unit_ns = PCAP_MAGICS[head[:4]]
    if len(head) < 24:
        yield _stop(0, f"the file header of 24 bytes breaks off after {len(head)}")
        return
    (link_type,) = Struct(f"{order}20xI").unpack(head)
    record = Struct(f"{order}IIII")
    offset, number = 24, 0
    while head := stream.read(record.size):
        number += 1
        if len(head) < record.size:
            yield _stop(offset, f"the file breaks off in the header of frame {number}")
            return
        seconds, fraction, size, _ = record.unpack(head)
        if size > MAX_FRAME_SIZE:
            yield _stop(offset, f"frame {number} must have at most {MAX_FRAME_SIZE} bytes, got {size}")
            return
        data = stream.read(size)
        if len(data) < size:
            yield _stop(offset, f"the file breaks off in frame {number}: {len(data)} of {size} bytes are here")
            return
        # The upper bits of the field are the length of the frame check sequences.
        yield Frame(number, offset, link_type & 0xFFFF, seconds * _NS + fraction * unit_ns, data)
        offset += record.size + size


@dataclass(frozen=True, slots=True)
class _Interface:
    link_type: int
    snap_length: int
    ticks_per_second: int = 1_000_000
    offset_s: int = 0

    def time_ns(self, ticks: int) -> int:
        return ticks * _NS // self.ticks_per_second + self.offset_s * _NS


class _Broken(Exception):
    """The file cannot be followed from here on."""


def read_pcapng(stream: BinaryIO) -> Iterator[Frame | Skipped]:
    """The frames of a pcapng file, which is read from its first byte."""
    return _Pcapng(stream).frames()


class _Pcapng:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._order = "<"
        self._offset = 0  # offset of the block being read
        self._next = 0  # offset of the block after it
        self._number = 0
        self._interfaces: list[_Interface] = []

    def frames(self) -> Iterator[Frame | Skipped]:
        try:
            while (block := self._next_block()) is not None:
                kind, body = block
                if kind == _INTERFACE_DESCRIPTION:
                    self._describe_interface(body)
                elif kind in (_ENHANCED_PACKET, _SIMPLE_PACKET):
                    self._number += 1
                    yield self._enhanced(body) if kind == _ENHANCED_PACKET else self._simple(body)
        except _Broken as fault:
            yield _stop(self._offset, str(fault))

    def _next_block(self) -> tuple[int, bytes] | None:
        """The kind and the body of the next block. Skips the bodies of other kinds."""
        self._offset = self._next
        head = self._stream.read(8)
        if not head:
            return None
        if head[:4] == PCAPNG_MAGIC:
            order = self._stream.read(4)
            if order not in _ORDERS:
                raise _Broken("a Section Header Block must have a byte-order magic")
            self._order = _ORDERS[order]
            self._interfaces.clear()
            head += order
        if len(head) < 8:
            raise _Broken("the file breaks off in the header of a block")
        kind, size = self._struct("II").unpack_from(head)
        if size % 4 or size < _SHORTEST.get(kind, 12):
            raise _Broken(f"a block of kind {kind:#x} has a wrong size of {size} bytes")
        rest = size - len(head) - 4
        if kind in _WANTED:
            if size > _MAX_BLOCK_SIZE:
                raise _Broken(f"a block of kind {kind:#x} must have at most {_MAX_BLOCK_SIZE} bytes, got {size}")
            body = self._read(rest)
        else:
            body = b""
            self._pass_over(rest)
        (again,) = self._struct("I").unpack(self._read(4))
        if again != size:
            raise _Broken(f"a block must repeat its size of {size} bytes at its end, got {again}")
        self._next += size
        return kind, body

    def _describe_interface(self, body: bytes) -> None:
        if len(self._interfaces) == _MAX_INTERFACES:
            raise _Broken(f"a section must have at most {_MAX_INTERFACES} interfaces")
        link_type, snap_length = self._struct("HxxI").unpack_from(body)
        ticks, offset_s = 1_000_000, 0
        for code, value in self._options(body, 8):
            if code == _OPTION_TSRESOL and len(value) == 1:
                ticks = 1 << (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
            elif code == _OPTION_TSOFFSET and len(value) == 8:
                (offset_s,) = self._struct("q").unpack(value)
        self._interfaces.append(_Interface(link_type, snap_length, ticks, offset_s))

    def _options(self, body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
        layout = self._struct("HH")
        while at + layout.size <= len(body):
            code, size = layout.unpack_from(body, at)
            if code == 0:
                return
            yield code, body[at + layout.size : at + layout.size + size]
            at += layout.size + size + (-size % 4)

    def _enhanced(self, body: bytes) -> Frame | Skipped:
        index, high, low, size, _ = self._struct("5I").unpack_from(body)
        interface = self._interface(index)
        if interface is None:
            return self._skip(f"frame {self._number} belongs to interface {index}, which the file does not describe")
        if size > min(len(body) - 20, MAX_FRAME_SIZE):
            return self._skip(f"frame {self._number} must have {size} bytes, got {len(body) - 20} in its block")
        return self._frame(interface, interface.time_ns(high << 32 | low), body[20 : 20 + size])

    def _simple(self, body: bytes) -> Frame | Skipped:
        interface = self._interface(0)
        if interface is None:
            return self._skip(f"frame {self._number} comes before any interface is described")
        (size,) = self._struct("I").unpack_from(body)
        size = min(size, interface.snap_length or size, MAX_FRAME_SIZE)
        return self._frame(interface, None, body[4 : 4 + size])

    def _interface(self, index: int) -> _Interface | None:
        return self._interfaces[index] if index < len(self._interfaces) else None

    def _frame(self, interface: _Interface, time_ns: int | None, data: bytes) -> Frame:
        return Frame(self._number, self._offset, interface.link_type, time_ns, data)

    def _skip(self, reason: str) -> Skipped:
        return Skipped(Origin(self._offset, frame=self._number), 0, reason)

    def _struct(self, layout: str) -> Struct:
        return Struct(self._order + layout)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise _Broken("the file breaks off inside a block")
        return data

    def _pass_over(self, size: int) -> None:
        while size > 0:
            size -= len(self._read(min(size, _COPY_SIZE)))


def _stop(offset: int, reason: str) -> Skipped:
    return Skipped(Origin(offset), 0, f"{reason}; the rest of the file cannot be read")


# From a captured frame to its TCP segment or UDP datagram: link layers, IPv4, IPv6. Nothing is reassembled here.


# Link types, as pcap and pcapng number them.
_NULL, _ETHERNET, _LOOP, _LINUX_SLL, _LINUX_SLL2 = 0, 1, 108, 113, 276
_RAW = frozenset({12, 14, 101, 228, 229})
_LINK_TYPES = _RAW | {_NULL, _ETHERNET, _LOOP, _LINUX_SLL, _LINUX_SLL2}
_ETHERTYPE_IP = frozenset({0x0800, 0x86DD})
_ETHERTYPE_VLAN = frozenset({0x8100, 0x88A8, 0x9100})

_TCP, _UDP = 6, 17
_FRAGMENT, _AUTHENTICATION = 44, 51
# Hop-by-hop options, routing, destination options, mobility, HIP, Shim6: each has a next header and a length in 8
# bytes.
_EXTENSIONS = frozenset({0, 43, 60, 135, 139, 140})

_IPV4 = Struct(">BxHxxHxBxx4s4s")
_IPV6 = Struct(">4xHBx16s16s")
_PORTS = Struct(">HH")
_TCP_HEAD = Struct(">HHI4xBB")
_TCP_SIZE = 20
_UDP_HEAD = Struct(">HHH2x")
_SYN = 0x02


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Both ends, as bytes. This is a cheap key for one direction."""

    source: bytes
    source_port: int
    destination: bytes
    destination_port: int

    @property
    def source_text(self) -> str:
        return _address_text(self.source, self.source_port)

    @property
    def destination_text(self) -> str:
        return _address_text(self.destination, self.destination_port)


@dataclass(frozen=True, slots=True)
class Segment:
    """A TCP segment. If the capture cut it off, `payload` is the part that is present, and the rest will show as a
    gap."""

    endpoints: Endpoints
    sequence: int
    syn: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class Datagram:
    """A UDP datagram."""

    endpoints: Endpoints
    payload: bytes


@dataclass(frozen=True, slots=True)
class Unusable:
    """A frame on one of our ports that cannot be read."""

    endpoints: Endpoints
    reason: str


@dataclass(frozen=True, slots=True)
class Ports:
    """The traffic to read: TCP streams and UDP pings, by the port at either end. What a stream is, it says itself."""

    sessions: frozenset[int] = frozenset({ports.BINARY})  # [MS-MQQB] 1.9
    pings: frozenset[int] = frozenset({ports.PING})

    def of(self, protocol: int) -> frozenset[int]:
        return self.sessions if protocol == _TCP else self.pings


@dataclass(frozen=True, slots=True)
class IpPayload:
    """The content of an IP packet. `end` is where its own length says it ends, which may be beyond the frame."""

    protocol: int
    source: bytes
    destination: bytes
    start: int
    end: int
    fragment: int | None  # the offset of a fragment; None for a whole packet


def is_known_link(link_type: int) -> bool:
    return link_type in _LINK_TYPES


def read_frame(link_type: int, data: bytes, ports: Ports) -> Segment | Datagram | Unusable | None:
    """The segment or datagram in a frame of a known link type. None if it is not on our ports."""
    at = network_layer(link_type, data)
    ip = None if at is None else internet_layer(data, at)
    if ip is None or ip.protocol not in (_TCP, _UDP):
        return None
    # A later fragment has no ports. The first one is reported for all of them.
    if ip.fragment or len(data) < ip.start + _PORTS.size:
        return None
    source_port, destination_port = _PORTS.unpack_from(data, ip.start)
    if ports.of(ip.protocol).isdisjoint((source_port, destination_port)):
        return None
    endpoints = Endpoints(ip.source, source_port, ip.destination, destination_port)
    if ip.fragment is not None:
        return Unusable(endpoints, "fragments of IP packets are not reassembled")
    return _tcp(data, ip, endpoints) if ip.protocol == _TCP else _udp(data, ip, endpoints)


def network_layer(link_type: int, data: bytes) -> int | None:
    """The position of the IP header."""
    if link_type in _RAW:
        return 0
    if link_type in (_NULL, _LOOP):
        return 4  # systems number address families differently, but the IP header has the version
    type_at, at = {_ETHERNET: (12, 14), _LINUX_SLL: (14, 16), _LINUX_SLL2: (0, 20)}[link_type]
    kind = int.from_bytes(data[type_at : type_at + 2], "big")
    while kind in _ETHERTYPE_VLAN:
        kind = int.from_bytes(data[at + 2 : at + 4], "big")
        at += 4
    return at if kind in _ETHERTYPE_IP else None


def internet_layer(data: bytes, at: int) -> IpPayload | None:
    version = data[at] >> 4 if at < len(data) else 0
    if version == 4:
        return _ipv4(data, at)
    return _ipv6(data, at) if version == 6 else None


def _ipv4(data: bytes, at: int) -> IpPayload | None:
    if len(data) < at + _IPV4.size:
        return None
    first, total, fragment, protocol, source, destination = _IPV4.unpack_from(data, at)
    header = (first & 0x0F) * 4
    if header < _IPV4.size:
        return None
    # A large segment that was captured before the network card divided it has no length yet.
    end = at + total if total else len(data)
    more, offset = fragment & 0x2000, (fragment & 0x1FFF) * 8
    return IpPayload(protocol, source, destination, at + header, end, offset if more or offset else None)


def _ipv6(data: bytes, at: int) -> IpPayload | None:
    if len(data) < at + _IPV6.size:
        return None
    size, following, source, destination = _IPV6.unpack_from(data, at)
    at += _IPV6.size
    end = at + size if size else len(data)
    fragment: int | None = None
    while following in _EXTENSIONS or following in (_FRAGMENT, _AUTHENTICATION):
        if len(data) < at + 8:
            return None
        if following == _FRAGMENT:
            field = int.from_bytes(data[at + 2 : at + 4], "big")
            if field & ~6:  # an atomic fragment is a whole packet
                fragment = field & ~7
            length = 8
        else:
            length = (data[at + 1] + 2) * 4 if following == _AUTHENTICATION else (data[at + 1] + 1) * 8
        following = data[at]
        if fragment:
            break
        at += length
    return IpPayload(following, source, destination, at, end, fragment)


def _tcp(data: bytes, ip: IpPayload, endpoints: Endpoints) -> Segment | Unusable:
    if len(data) < ip.start + _TCP_SIZE:
        return Unusable(endpoints, "the capture cut the frame off inside its TCP header")
    _, _, sequence, offset, flags = _TCP_HEAD.unpack_from(data, ip.start)
    header = (offset >> 4) * 4
    if header < _TCP_SIZE:
        return Unusable(endpoints, f"a TCP header must have at least {_TCP_SIZE} bytes, got {header}")
    return Segment(endpoints, sequence, bool(flags & _SYN), data[ip.start + header : ip.end])


def _udp(data: bytes, ip: IpPayload, endpoints: Endpoints) -> Datagram | Unusable:
    if len(data) < ip.start + _UDP_HEAD.size:
        return Unusable(endpoints, "the capture cut the frame off inside its UDP header")
    _, _, size = _UDP_HEAD.unpack_from(data, ip.start)
    end = min(ip.end, ip.start + size) if size else ip.end
    return Datagram(endpoints, data[ip.start + _UDP_HEAD.size : end])


def _address_text(address: bytes, port: int) -> str:
    return endpoint(str(ip_address(address)), port)
