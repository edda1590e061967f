"""Sockets for PGM, over IP protocol 113 or over UDP: one socket to send and to receive NAKs, and one for each group.

The cores know what packets mean. A packet that cannot be sent counts as lost: receivers ask for it again.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from postroad.pgm.packet import Kind, MalformedPgm, Packet, decode
from postroad.pgm.receiver import OutgoingNak
from postroad.pgm.source import Outgoing

IP_PROTOCOL = 113
MAX_DATAGRAM = 65_535
READ_AT_ONCE = 64  # packets to read before other tasks get a turn
RECEIVE_BUFFER = 4 << 20  # bursts of a fast source; the system may allow less
ADVICE = (
    "raw sockets need the capability NET_RAW: set AmbientCapabilities=CAP_NET_RAW in the systemd unit, --cap-add "
    'NET_RAW for a container, or setcap cap_net_raw+ep on the Python interpreter; or set encapsulation = "udp" in '
    "[multicast] on every manager of the group"
)
_IP_MULTICAST_ALL = 49  # Linux; the socket module has no name for it
_IP_RETOPTS = 7  # Linux
_ROUTER_ALERT = b"\x94\x04\0\0"  # [RFC 2113]
_ALERTED = frozenset({Kind.SPM, Kind.NCF, Kind.RDATA})  # [RFC 3208] 8
_SIOCGIFADDR = 0x8915
_SO_RCVBUFFORCE = 33  # Linux: beyond net.core.rmem_max, with the capability NET_ADMIN
_SO_MEMINFO, _DROPS = 55, 8  # Linux: an array of 32-bit counts, and the index of the dropped packets
_LINUX = sys.platform == "linux"

# A packet, the address it came from, and the group it was sent to. None instead of a group: it was sent to us alone.
Received = Callable[[Packet, str, str | None], None]


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """`interfaces` are names or addresses. The first one sends. An empty list means that of the default route."""

    interfaces: tuple[str, ...] = ()
    udp_port: int | None = None  # None: raw sockets
    hops: int = 1
    router_alert: bool = True


@dataclass(frozen=True, slots=True)
class _Interface:
    index: int
    address: str

    def request(self, group: str = "0.0.0.0") -> bytes:
        """struct ip_mreqn"""
        return struct.pack("=4s4si", socket.inet_aton(group), socket.inet_aton(self.address), self.index)


class PgmTransport:
    """Call `open` on a running loop, `join` groups, `close`. If `open` fails, `error` says what to do."""

    def __init__(self, options: TransportOptions, received: Received) -> None:
        self._options = options
        self._received = received
        self._interfaces: list[_Interface] = []
        self._sender: socket.socket | None = None
        self._groups: dict[str, socket.socket] = {}
        self.error: str | None = None
        self.malformed = 0
        self.unsent = 0
        self._overflowed = 0  # in groups that were left

    @property
    def address(self) -> str | None:
        """The address that packets leave from. None if nothing can be sent."""
        return self._interfaces[0].address if self._sender is not None else None

    def open(self) -> bool:
        """Whether packets can be sent and received."""
        try:
            self._interfaces = [_interface(each) for each in self._options.interfaces or (_default_address(),)]
            first = self._interfaces[0]
            self._sender = self._socket()
            self._sender.bind((first.address, self._options.udp_port or 0))
            self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, first.request())
            self._set_hops(self._options.hops)
        except PermissionError:
            return self._failed(ADVICE)
        except OSError as error:
            return self._failed(error.strerror or str(error))
        self._listen(self._sender, None)
        return True

    def _failed(self, error: str) -> bool:
        self.error = error
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        return False

    def close(self) -> None:
        for group in list(self._groups):
            self.leave(group)
        if self._sender is not None:
            asyncio.get_running_loop().remove_reader(self._sender)
            self._sender.close()
            self._sender = None

    def _socket(self) -> socket.socket:
        udp = self._options.udp_port is not None
        kind, protocol = (socket.SOCK_DGRAM, socket.IPPROTO_UDP) if udp else (socket.SOCK_RAW, IP_PROTOCOL)
        opened = socket.socket(socket.AF_INET, kind, protocol)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        if _LINUX:
            with suppress(PermissionError):
                opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
            # Else the socket would get the packets of every group that anybody on this computer has joined.
            opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        return opened

    # Groups

    def join(self, group: str) -> str | None:
        """Joins a group. Returns why its packets cannot be received; None if they can."""
        if self._sender is None:
            return self.error
        opened = self._socket()
        try:
            opened.bind((group, self._options.udp_port or 0))
            for each in self._interfaces:
                opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, each.request(group))
        except OSError as error:
            opened.close()
            return error.strerror or str(error)
        self._groups[group] = opened
        self._listen(opened, group)
        return None

    def leave(self, group: str) -> None:
        opened = self._groups.pop(group, None)
        if opened is not None:
            asyncio.get_running_loop().remove_reader(opened)
            self._overflowed += _dropped(opened)
            opened.close()

    @property
    def overflowed(self) -> int:
        """Packets that came while a receive buffer was full. 0 if the system does not count them."""
        return self._overflowed + sum(map(_dropped, self._groups.values()))

    # In

    def _listen(self, opened: socket.socket, group: str | None) -> None:
        asyncio.get_running_loop().add_reader(opened, self._read, opened, group)

    def _read(self, opened: socket.socket, group: str | None) -> None:
        for _ in range(READ_AT_ONCE):
            try:
                data, (address, _) = opened.recvfrom(MAX_DATAGRAM)
            except OSError:  # no more packets, or the interface is down
                return
            if self._options.udp_port is None:
                data = _without_ip_header(data)
            try:
                packet = decode(data)
            except MalformedPgm:
                self.malformed += 1
                continue
            if packet is not None:
                self._received(packet, address, group)

    # Out

    def send(self, group: str, out: Outgoing) -> None:
        alert = self._options.router_alert and self._options.udp_port is None and out.kind in _ALERTED and _LINUX
        options = [(socket.IPPROTO_IP, _IP_RETOPTS, _ROUTER_ALERT)] if alert else []
        self._send(out.data, group, options)

    def send_nak(self, group: str, nak: OutgoingNak) -> None:
        """Sends a NAK to the source, and to the group with a TTL of 1: [MC-MQSRM] note 3."""
        self._send(nak.data, nak.nla, [])
        self._set_hops(1)
        self._send(nak.data, group, [])
        self._set_hops(self._options.hops)

    def _send(self, data: bytes, address: str, options: list[tuple[int, int, bytes]]) -> None:
        assert self._sender is not None
        try:
            self._sender.sendmsg([data], options, 0, (address, self._options.udp_port or 0))
        except OSError:
            self.unsent += 1

    def _set_hops(self, hops: int) -> None:
        assert self._sender is not None
        self._sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)


def _dropped(opened: socket.socket) -> int:
    if not _LINUX:
        return 0
    counts = opened.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_DROPS + 1))
    return int(struct.unpack_from("=I", counts, 4 * _DROPS)[0])


def _without_ip_header(data: bytes) -> bytes:
    """Removes the IP header, which a raw socket gives too. Its length depends on its options."""
    return data[(data[0] & 0x0F) * 4 :] if data else data


def _interface(name: str) -> _Interface:
    """Raises OSError with a text of its own for a name or address that no interface has."""
    for index, each in socket.if_nameindex():
        address = _address_of(each)
        if each == name and address is None:
            raise OSError(f"the interface {name} has no IPv4 address")
        if address is not None and each == name:
            return _Interface(index, address)
    try:
        socket.inet_aton(name)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((name, 0))
    except OSError:
        raise OSError(f"there is no interface {name} on this computer") from None
    for index, each in socket.if_nameindex():
        if _address_of(each) == name:
            return _Interface(index, name)
    return _Interface(
        0, name
    )  # a further address of an interface, such as 127.0.0.2: the system knows which one has it


def _address_of(name: str) -> str | None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def _default_address() -> str:
    """The address from which packets to distant hosts would leave. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            raise OSError("this computer has no default route: name the interfaces in [multicast]") from None
        address: str = probe.getsockname()[0]
        return address
