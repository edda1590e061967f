"""From a captured frame to its TCP segment or UDP datagram: link layers, IPv4, IPv6. Nothing is reassembled here."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from struct import Struct

from postroad.net import ports
from postroad.net.endpoints import endpoint

# Link types, as pcap and pcapng number them.
_NULL, _ETHERNET, _LOOP, _LINUX_SLL, _LINUX_SLL2 = 0, 1, 108, 113, 276
_RAW = frozenset({12, 14, 101, 228, 229})
_LINK_TYPES = _RAW | {_NULL, _ETHERNET, _LOOP, _LINUX_SLL, _LINUX_SLL2}
_ETHERTYPE_IP = frozenset({0x0800, 0x86DD})
_ETHERTYPE_VLAN = frozenset({0x8100, 0x88A8, 0x9100})

_TCP, _UDP = 6, 17
_FRAGMENT, _AUTHENTICATION = 44, 51
# Hop-by-hop options, routing, destination options, mobility, HIP, Shim6: a next header and a length in 8 bytes.
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
    """Both ends, as bytes: a key for one direction that is cheap to make."""

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
    """A TCP segment. If the capture cut it off, `payload` is the part present: the rest shows as a gap."""

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
    """Which traffic is ours: TCP sessions and UDP pings, by the port at either end."""

    sessions: frozenset[int] = frozenset({ports.BINARY})  # [MS-MQQB] 1.9
    pings: frozenset[int] = frozenset({ports.PING})

    def of(self, protocol: int) -> frozenset[int]:
        return self.sessions if protocol == _TCP else self.pings


@dataclass(frozen=True, slots=True)
class _IpPayload:
    """The content of an IP packet; `end` is its end by the packet's own length, which the frame may not reach."""

    protocol: int
    source: bytes
    destination: bytes
    start: int
    end: int
    fragment: int | None  # the offset of a fragment, None for a whole packet


def is_known_link(link_type: int) -> bool:
    return link_type in _LINK_TYPES


def read_frame(link_type: int, data: bytes, ports: Ports) -> Segment | Datagram | Unusable | None:
    """The segment or datagram in a frame of a known link type; None if it is not ours."""
    at = _network_layer(link_type, data)
    ip = None if at is None else _internet_layer(data, at)
    if ip is None or ip.protocol not in (_TCP, _UDP):
        return None
    # A later fragment has no ports: the first one is reported for all of them.
    if ip.fragment or len(data) < ip.start + _PORTS.size:
        return None
    source_port, destination_port = _PORTS.unpack_from(data, ip.start)
    if ports.of(ip.protocol).isdisjoint((source_port, destination_port)):
        return None
    endpoints = Endpoints(ip.source, source_port, ip.destination, destination_port)
    if ip.fragment is not None:
        return Unusable(endpoints, "fragments of IP packets are not reassembled")
    return _tcp(data, ip, endpoints) if ip.protocol == _TCP else _udp(data, ip, endpoints)


def _network_layer(link_type: int, data: bytes) -> int | None:
    """The position of the IP header."""
    if link_type in _RAW:
        return 0
    if link_type in (_NULL, _LOOP):
        return 4  # the address family differs between systems; the version in the IP header does not
    type_at, at = {_ETHERNET: (12, 14), _LINUX_SLL: (14, 16), _LINUX_SLL2: (0, 20)}[link_type]
    kind = int.from_bytes(data[type_at : type_at + 2], "big")
    while kind in _ETHERTYPE_VLAN:
        kind = int.from_bytes(data[at + 2 : at + 4], "big")
        at += 4
    return at if kind in _ETHERTYPE_IP else None


def _internet_layer(data: bytes, at: int) -> _IpPayload | None:
    version = data[at] >> 4 if at < len(data) else 0
    if version == 4:
        return _ipv4(data, at)
    return _ipv6(data, at) if version == 6 else None


def _ipv4(data: bytes, at: int) -> _IpPayload | None:
    if len(data) < at + _IPV4.size:
        return None
    first, total, fragment, protocol, source, destination = _IPV4.unpack_from(data, at)
    header = (first & 0x0F) * 4
    if header < _IPV4.size:
        return None
    # Captured before the network card cut it up, a large segment has no length yet.
    end = at + total if total else len(data)
    more, offset = fragment & 0x2000, (fragment & 0x1FFF) * 8
    return _IpPayload(protocol, source, destination, at + header, end, offset if more or offset else None)


def _ipv6(data: bytes, at: int) -> _IpPayload | None:
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
    return _IpPayload(following, source, destination, at, end, fragment)


def _tcp(data: bytes, ip: _IpPayload, endpoints: Endpoints) -> Segment | Unusable:
    if len(data) < ip.start + _TCP_SIZE:
        return Unusable(endpoints, "the capture cut the frame off inside its TCP header")
    _, _, sequence, offset, flags = _TCP_HEAD.unpack_from(data, ip.start)
    header = (offset >> 4) * 4
    if header < _TCP_SIZE:
        return Unusable(endpoints, f"a TCP header must have at least {_TCP_SIZE} bytes, got {header}")
    return Segment(endpoints, sequence, bool(flags & _SYN), data[ip.start + header : ip.end])


def _udp(data: bytes, ip: _IpPayload, endpoints: Endpoints) -> Datagram | Unusable:
    if len(data) < ip.start + _UDP_HEAD.size:
        return Unusable(endpoints, "the capture cut the frame off inside its UDP header")
    _, _, size = _UDP_HEAD.unpack_from(data, ip.start)
    end = min(ip.end, ip.start + size) if size else ip.end
    return Datagram(endpoints, data[ip.start + _UDP_HEAD.size : end])


def _address_text(address: bytes, port: int) -> str:
    return endpoint(str(ip_address(address)), port)
