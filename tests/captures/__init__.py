"""Captured traffic, as README.md describes it; and capture files and network frames, written byte by byte, for
`postroad.describe.capture` to read.

Checksums of the latter are zero, as in captures of network cards that fill them in later.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from struct import pack

FOLDER = Path(__file__).parent

CLIENT = ("10.0.0.1", 49759)
SERVER = ("10.0.0.2", 1801)
PING_CLIENT = ("10.0.0.1", 4057)
PING_SERVER = ("10.0.0.2", 3527)
CLIENT_V6 = ("fe80::1", 49759)
SERVER_V6 = ("fe80::2", 1801)
SYN, ACK, FIN = 0x02, 0x10, 0x01
TIME_S = 1_700_000_000  # 2023-11-14T22:13:20Z

ETHERNET, NULL, RAW, LOOP, SLL, SLL2 = 1, 0, 101, 108, 113, 276
_MACS = bytes.fromhex("020000000002020000000001")

Address = tuple[str, int]


def tcp(
    payload: bytes = b"",
    sequence: int = 0,
    *,
    flags: int = ACK,
    source: Address = CLIENT,
    destination: Address = SERVER,
    options: bytes = b"",
) -> bytes:
    """A TCP segment. Its ports are those of the addresses."""
    offset = (5 + len(options) // 4) << 4
    return pack(">HHIIBBHHH", source[1], destination[1], sequence, 0, offset, flags, 64, 0, 0) + options + payload


def udp(payload: bytes, source: Address = PING_CLIENT, destination: Address = PING_SERVER) -> bytes:
    return pack(">HHHH", source[1], destination[1], 8 + len(payload), 0) + payload


def ipv4(
    payload: bytes,
    protocol: int = 6,
    *,
    source: Address = CLIENT,
    destination: Address = SERVER,
    fragment: int = 0,
    options: bytes = b"",
    total: int | None = None,
) -> bytes:
    """An IPv4 packet. `fragment` is the word of flags and offset; `total` replaces the true length."""
    header = 20 + len(options)
    total = header + len(payload) if total is None else total
    fixed = pack(">BBHHHBBH", 0x40 | header // 4, 0, total, 0, fragment, 64, protocol, 0)
    return fixed + ip_address(source[0]).packed + ip_address(destination[0]).packed + options + payload


def ipv6(
    payload: bytes,
    next_header: int = 6,
    *,
    source: Address = CLIENT_V6,
    destination: Address = SERVER_V6,
    length: int | None = None,
) -> bytes:
    length = len(payload) if length is None else length
    fixed = pack(">IHBB", 0x60000000, length, next_header, 64)
    return fixed + ip_address(source[0]).packed + ip_address(destination[0]).packed + payload


def ethernet(payload: bytes, ethertype: int = 0x0800, tags: bytes = b"") -> bytes:
    """An Ethernet frame. `tags` are whole VLAN tags, each with its ethertype first."""
    return _MACS + tags + pack(">H", ethertype) + payload


def segment(
    payload: bytes = b"",
    sequence: int = 0,
    *,
    flags: int = ACK,
    source: Address = CLIENT,
    destination: Address = SERVER,
) -> bytes:
    """An Ethernet frame with one TCP segment over IPv4."""
    part = tcp(payload, sequence, flags=flags, source=source, destination=destination)
    return ethernet(ipv4(part, source=source, destination=destination))


def ping_frame(payload: bytes) -> bytes:
    return ethernet(ipv4(udp(payload), 17, source=PING_CLIENT, destination=PING_SERVER))


def pcap(frames: Iterable[bytes], link_type: int = ETHERNET, *, order: str = "<", nanoseconds: bool = False) -> bytes:
    """A pcap file. Frame n has the time TIME_S plus n seconds and 123456 fractions."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, link_type)]
    for number, frame in enumerate(frames, 1):
        parts.append(pack(f"{order}IIII", TIME_S + number, 123456, len(frame), len(frame)) + frame)
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block. `body` is padded."""
    body += bytes(-len(body) % 4)
    return pack(f"{order}II", kind, 12 + len(body)) + body + pack(f"{order}I", 12 + len(body))


def section_header(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link_type: int = ETHERNET, order: str = "<", options: bytes = b"", snap_length: int = 0) -> bytes:
    return block(1, pack(f"{order}HHI", link_type, 0, snap_length) + options, order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def enhanced(frame: bytes, ticks: int = TIME_S * 1_000_000, order: str = "<", interface_id: int = 0) -> bytes:
    head = pack(f"{order}IIIII", interface_id, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame, order)


def simple(frame: bytes, order: str = "<") -> bytes:
    return block(3, pack(f"{order}I", len(frame)) + frame, order)


def pcapng(frames: Iterable[bytes], order: str = "<") -> bytes:
    return section_header(order) + interface(order=order) + b"".join(enhanced(frame, order=order) for frame in frames)
