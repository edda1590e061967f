"""Reads a file of packets in any form, which is recognised by its content, once from front to back."""

from __future__ import annotations

import heapq
import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import BinaryIO

from postroad.bodies.nrbf import is_nrbf
from postroad.bodies.wcf import is_envelope, is_framed
from postroad.describe.capture.hex_text import Piece, read_hex
from postroad.describe.capture.items import DecodedPacket, Item, Kind, Origin, OtherPacket, Skipped
from postroad.describe.capture.other_streams import StreamCutter, kind_of
from postroad.describe.capture.pcap import (
    PCAP_MAGICS,
    PCAPNG_MAGIC,
    Datagram,
    Endpoints,
    Frame,
    Ports,
    Segment,
    Unusable,
    is_known_link,
    read_frame,
    read_pcap,
    read_pcapng,
)
from postroad.errors import RemoteProtocolError
from postroad.wire import Ping

# TCP streams, reassembled from captured segments and cut into packets, each direction separately.
#
# Segments may be late, duplicated, overlapping or missing. Memory is limited, and everything that is dropped is
# reported.


# Bytes of one direction that wait for an earlier segment. A sender has at most one window in flight. If more has
# arrived, the missing segment is lost, not late.
MAX_WAITING = 4 * 1_048_576
MAX_WAITING_SEGMENTS = 16_384
# Limits on the directions that are followed at the same time, and on the bytes held for all of them. The direction that
# was silent for longest is closed first.
MAX_DIRECTIONS = 4_096
MAX_HELD = 128 * 1_048_576
# A segment further back than this is not a retransmission: the ports were used again, and the capture missed the start.
MAX_BACK = 1 << 30

_MODULUS = 1 << 32
_HALF = 1 << 31


@dataclass(slots=True)
class _Direction:
    """One direction of a connection. Positions count from the first byte seen and do not wrap.

    `first` is the sequence number of that byte.
    """

    first: int
    cutter: StreamCutter
    expected: int = 0
    waiting: list[tuple[int, int, bytes, Origin]] = field(default_factory=list)  # a heap by position, then arrival
    waiting_bytes: int = 0
    arrivals: int = 0

    @property
    def held(self) -> int:
        return self.waiting_bytes + self.cutter.buffered

    def distance(self, sequence: int) -> int:
        """How far ahead of the expected byte a sequence number is. Negative if it is behind."""
        ahead = (sequence - self.first - self.expected) % _MODULUS
        return ahead - _MODULUS if ahead >= _HALF else ahead

    def take(self, distance: int, payload: bytes, origin: Origin) -> list[Item]:
        if distance > 0:
            heapq.heappush(self.waiting, (self.expected + distance, self.arrivals, payload, origin))
            self.arrivals += 1
            self.waiting_bytes += len(payload)
            if self.waiting_bytes > MAX_WAITING or len(self.waiting) > MAX_WAITING_SEGMENTS:
                return self._give_up_gap()
            return []
        items = self._deliver(payload[-distance:] if distance else payload, origin)
        return items + self._deliver_waiting()

    def finish(self) -> list[Item]:
        items: list[Item] = []
        while self.waiting:
            items += self._give_up_gap()
        return items + self.cutter.finish()

    def _deliver(self, payload: bytes, origin: Origin) -> list[Item]:
        if not payload:
            return []
        self.expected += len(payload)
        return self.cutter.feed(payload, origin)

    def _deliver_waiting(self) -> list[Item]:
        items: list[Item] = []
        while self.waiting and self.waiting[0][0] <= self.expected:
            position, _, payload, origin = heapq.heappop(self.waiting)
            self.waiting_bytes -= len(payload)
            items += self._deliver(payload[self.expected - position :], origin)
        return items

    def _give_up_gap(self) -> list[Item]:
        missing = self.waiting[0][0] - self.expected
        items = self.cutter.lose(missing, f"the capture lacks {missing} bytes of the stream here")
        self.expected += missing
        return items + self._deliver_waiting()


class Streams:
    """Takes segments in the order of the capture, and returns the items of their streams."""

    def __init__(self) -> None:
        self._directions: OrderedDict[Endpoints, _Direction] = OrderedDict()  # ordered by silence, the longest first
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes held for later, in all directions."""
        return self._held

    def feed(self, segment: Segment, origin: Origin) -> list[Item]:
        items: list[Item] = []
        key, sequence = segment.endpoints, segment.sequence
        direction = self._directions.get(key)
        if segment.syn:
            sequence = (sequence + 1) % _MODULUS
            # A repeat of the same connection request changes nothing. Another request starts a new stream.
            if direction is None or direction.first != sequence:
                items += self._close(key)
                direction = self._open(key, sequence, None)
        if segment.payload:
            if direction is None or direction.distance(sequence) < -MAX_BACK:
                items += self._close(key)
                direction = self._open(key, sequence, "the capture begins inside this stream")
            items += self._take(key, direction, sequence, segment.payload, origin)
        while self._held > MAX_HELD or len(self._directions) > MAX_DIRECTIONS:
            items += self._close(next(iter(self._directions)))
        return items

    def finish(self) -> list[Item]:
        """Ends the capture: drops what still waits, and reports streams that end inside a packet."""
        items: list[Item] = []
        while self._directions:
            items += self._close(next(iter(self._directions)))
        return items

    def _open(self, key: Endpoints, first: int, opening: str | None) -> _Direction:
        direction = self._directions[key] = _Direction(first, StreamCutter(opening=opening))
        return direction

    def _take(self, key: Endpoints, direction: _Direction, sequence: int, payload: bytes, origin: Origin) -> list[Item]:
        self._directions.move_to_end(key)
        distance = direction.distance(sequence)
        if distance + len(payload) <= 0:
            return []  # all of it was seen before
        before = direction.held
        origin = replace(origin, source=key.source_text, destination=key.destination_text)
        items = direction.take(distance, payload, origin)
        self._held += direction.held - before
        return items

    def _close(self, key: Endpoints) -> list[Item]:
        direction = self._directions.pop(key, None)
        if direction is None:
            return []
        self._held -= direction.held
        return direction.finish()


STANDARD_PORTS = Ports()
MAX_BODY_SIZE = 16 << 20  # that bodies are read of
HEAD_SIZE = 4096  # bytes that show the form of a file
_CHUNK_SIZE = 65_536
_TEXT = bytes(range(0x20, 0x7F)) + b"\t\n\r\f"
_GZIP = b"\x1f\x8b"
_BOMS_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)


class FileKind(Enum):
    """The form of a file. The values are for people."""

    PCAP = "a pcap capture"
    PCAPNG = "a pcapng capture"
    HEX = "hex text"
    RAW = "raw packets"
    BODY = "the body of a message"


def recognise(head: bytes) -> FileKind:
    """Recognises the form of a file by its first bytes. XML, JSON, WCF's frames and what BinaryFormatter writes are
    bodies, other text is hex text, and anything unknown is raw packets."""
    if head[:4] in PCAP_MAGICS:
        return FileKind.PCAP
    if head[:4] == PCAPNG_MAGIC:
        return FileKind.PCAPNG
    if kind_of(head) is not None:
        return FileKind.RAW
    if is_nrbf(head) or is_framed(head) or is_envelope(head) or _is_document(head):
        return FileKind.BODY
    return FileKind.HEX if _is_text(head) else FileKind.RAW


def _is_document(head: bytes) -> bool:
    """Whether it begins as XML or JSON do, in UTF-8 or UTF-16."""
    start = head.removeprefix(BOM_UTF8)
    for mark in _BOMS_UTF16:
        start = start.removeprefix(mark)
    return start.replace(b"\0", b"").lstrip()[:1] in (b"<", b"{", b"[")


def _is_text(head: bytes) -> bool:
    if head.startswith(_BOMS_UTF16):
        return True
    if any(byte < 0x80 for byte in head.translate(None, _TEXT)):
        return False
    try:
        # comments may be in any language, and the last character may be cut
        getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


class CaptureFile:
    """Reads `stream` from its position. `items` can be iterated once; `kind` and `frames` describe the file.

    Whatever the content, only `stream` itself can cause exceptions. Faults in the content are items.
    """

    def __init__(self, stream: BinaryIO, ports: Ports = STANDARD_PORTS) -> None:
        head = stream.read(HEAD_SIZE)
        self.kind = recognise(head)
        self.empty = not head
        self.frames = 0  # frames of a capture read so far
        self._ports = ports
        self._opening = "the file is compressed; unpack it first" if head.startswith(_GZIP) else None
        self._stream = io.BufferedReader(_Rejoined(head, stream), _CHUNK_SIZE)

    def items(self) -> Iterator[Item]:
        match self.kind:
            case FileKind.PCAP:
                return self._captured(read_pcap(self._stream))
            case FileKind.PCAPNG:
                return self._captured(read_pcapng(self._stream))
            case FileKind.HEX:
                return self._hex()
            case FileKind.RAW:
                return self._raw()
            case FileKind.BODY:
                return self._body()

    def _raw(self) -> Iterator[Item]:
        cutter = StreamCutter(pings=True, opening=self._opening)
        while chunk := self._stream.read(_CHUNK_SIZE):
            yield from cutter.feed(chunk, Origin())
        yield from cutter.finish()

    def _body(self) -> Iterator[Item]:
        body = self._stream.read(MAX_BODY_SIZE + 1)
        if len(body) > MAX_BODY_SIZE:
            yield Skipped(Origin(), 0, f"the body of a message must have at most {MAX_BODY_SIZE} bytes")
        else:
            yield OtherPacket(Origin(), body, Kind.BODY)

    def _hex(self) -> Iterator[Item]:
        encoding = "utf-16" if self._stream.peek(2).startswith(_BOMS_UTF16) else "utf-8-sig"
        text = io.TextIOWrapper(self._stream, encoding, errors="replace")
        cutter = StreamCutter(pings=True)
        for piece in read_hex(text):
            if isinstance(piece, Piece):
                yield from cutter.feed(piece.data, Origin(line=piece.line))
                continue
            yield from cutter.lose(0, piece.reason)
            if piece.reason is not None:
                yield Skipped(Origin(cutter.position, line=piece.line), 0, piece.reason)
        yield from cutter.finish()

    def _captured(self, frames: Iterator[Frame | Skipped]) -> Iterator[Item]:
        streams = Streams()
        unknown: set[int] = set()
        for frame in frames:
            if isinstance(frame, Skipped):
                yield frame
                continue
            self.frames += 1
            if is_known_link(frame.link_type):
                yield from self._frame(frame, streams)
            elif frame.link_type not in unknown:
                unknown.add(frame.link_type)
                reason = f"unknown link type {frame.link_type}"
                yield Skipped(Origin(frame.offset, frame=frame.number), 0, reason)
        yield from streams.finish()

    def _frame(self, frame: Frame, streams: Streams) -> list[Item]:
        found = read_frame(frame.link_type, frame.data, self._ports)
        if found is None:
            return []
        origin = Origin(frame=frame.number, time_ns=frame.time_ns)
        if isinstance(found, Unusable | Datagram):
            source, destination = found.endpoints.source_text, found.endpoints.destination_text
            origin = Origin(0, None, frame.number, frame.time_ns, source, destination)
            return [Skipped(origin, 0, found.reason) if isinstance(found, Unusable) else _ping(found.payload, origin)]
        return streams.feed(found, origin)


def _ping(payload: bytes, origin: Origin) -> Item:
    try:
        return DecodedPacket(origin, payload, Ping.decode(payload))
    except RemoteProtocolError as fault:
        return Skipped(origin, len(payload), fault.fault)


class _Rejoined(io.RawIOBase):
    """A file that gives the bytes already read, and then the rest."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._head[: len(view)] or self._rest.read(len(view))
        self._head = self._head[len(data) :]
        view[: len(data)] = data
        return len(data)
