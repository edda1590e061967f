"""Capture files: pcap and pcapng, read frame by frame. The content of frames is not known here.

If a file cannot be followed any further, the last item is a Skipped that says where and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import BinaryIO

from postroad.capture.items import Origin, Skipped

# libpcap's own MAXIMUM_SNAPLEN: a longer frame means that the file is damaged, or no capture of a network.
MAX_FRAME_SIZE = 262_144
_NS = 1_000_000_000
_COPY_SIZE = 65_536

# Magic number, as the first four bytes: byte order and nanoseconds per unit of the fraction.
PCAP_MAGICS: dict[bytes, tuple[str, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"  # a Section Header Block, the same in both byte orders
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_SECTION_HEADER = 0x0A0D0D0A
_INTERFACE_DESCRIPTION = 1
_SIMPLE_PACKET = 3
_ENHANCED_PACKET = 6
_WANTED = frozenset({_INTERFACE_DESCRIPTION, _SIMPLE_PACKET, _ENHANCED_PACKET})
_SHORTEST = {_SECTION_HEADER: 28, _INTERFACE_DESCRIPTION: 20, _SIMPLE_PACKET: 16, _ENHANCED_PACKET: 32}
_OPTION_TSRESOL = 9
_OPTION_TSOFFSET = 14
_MAX_INTERFACES = 65_536  # of one section
# A block of one of the kinds we read: the largest frame with its options, or an interface with very many.
_MAX_BLOCK_SIZE = MAX_FRAME_SIZE + 1_048_576


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured frame. `number` counts from 1 as other tools do; `offset` is its place in the file."""

    number: int
    offset: int
    link_type: int
    time_ns: int | None
    data: bytes


def read_pcap(stream: BinaryIO) -> Iterator[Frame | Skipped]:
    """The frames of a pcap file, from its first byte on."""
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
        # The upper bits of the field say how long the frame check sequences are.
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
    """The frames of a pcapng file, from its first byte on."""
    return _Pcapng(stream).frames()


class _Pcapng:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._order = "<"
        self._offset = 0  # of the block being read
        self._next = 0  # of the one after it
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
        """The kind and the body of the next block; skips the body of other kinds."""
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
