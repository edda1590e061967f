"""The format of a journal: bytes in, values out. A commit is one frame, and frames follow each other in a generation.

A frame has a head and packets. The head lists the deletes, puts and states, and has one checksum. Each packet has its
own checksum, so a flipped bit in a packet costs one message. The generation and the offset in the head bind a frame to
its place, so an old frame in a reused place never counts as a new one. The head also has the end of the previous
generation, so a missing part is detected. No I/O here: every kind of store keeps the frames where it wants.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from zlib import crc32

from postroad.store.interface import NOT_A_LOOKUP_ID, QUEUE_BITS, Key, Pair, Record, check_key

MAGIC = b"PRJ1"

_START = Struct(">4sI")  # the magic, and the checksum of the rest of the head
# Generation, end of the previous one, offset, bytes of the head and of packets; numbers of deletes, puts and states.
_HEAD = Struct(">QQQQQIII")
_KEY = Struct(">HQ")
_PUT = Struct(">HQqqqqII")  # the numbers of a record, the size and the checksum of its packet
_STATE = Struct(">Ii")  # the sizes of a name and a value; -1 removes the value
_FIRST = _START.size + _HEAD.size  # where the tables begin


@dataclass(slots=True)
class Body:
    """The changes of one commit as bytes, independent of their place in a segment."""

    tables: bytes
    packets: list[bytes]
    counts: tuple[int, int, int]
    packet_bytes: int
    size: int

    def frame(self, generation: int, before: int, offset: int) -> bytes:
        """The frame for this place. `before` is where the previous generation ended."""
        head_bytes = _FIRST + len(self.tables)
        head = _HEAD.pack(generation, before, offset, head_bytes, self.packet_bytes, *self.counts)
        checksum = crc32(self.tables, crc32(head))
        return b"".join((_START.pack(MAGIC, checksum), head, self.tables, *self.packets))


@dataclass(slots=True)
class Frame:
    """One commit, read back. `damaged` has the keys of records whose packets fail their checksums."""

    generation: int
    before: int
    start: int
    end: int
    deletes: list[Key] = field(default_factory=list)
    puts: dict[Pair, Record] = field(default_factory=dict)
    state: dict[str, bytes | None] = field(default_factory=dict)
    damaged: list[Key] = field(default_factory=list)


@dataclass(slots=True)
class Segment:
    """The content of a segment: its frames in order, where the next one goes, and the damaged ranges between frames."""

    frames: list[Frame] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def generation(self) -> int | None:
        return self.frames[0].generation if self.frames else None

    @property
    def before(self) -> int:
        """Where the generation before this one ended."""
        return self.frames[0].before if self.frames else 0

    @property
    def end(self) -> int:
        return self.frames[-1].end if self.frames else 0

    def drop_torn(self) -> None:
        """Leaves out an incomplete last frame, which was being written when the power failed."""
        if self.frames and self.frames[-1].damaged:
            torn = self.frames.pop()
            if self.gaps and self.gaps[-1][1] == torn.start:
                self.gaps.pop()


def encode(deletes: Collection[Pair], puts: Mapping[Pair, Record], state: Mapping[str, bytes | None]) -> Body:
    """The bytes of one commit. Raises ValueError if a key is out of range."""
    tables = []
    pack = _KEY.pack
    for queue, lookup_id in deletes:
        if lookup_id & NOT_A_LOOKUP_ID or queue >> QUEUE_BITS:
            check_key(queue, lookup_id)  # raises ValueError
        tables.append(pack(queue, lookup_id))
    pack = _PUT.pack
    packets = []
    packet_bytes = 0
    for queue, lookup_id, arrived_ms, expires_s, aborts, packet, reason in puts.values():
        if lookup_id & NOT_A_LOOKUP_ID or queue >> QUEUE_BITS:
            check_key(queue, lookup_id)
        size = len(packet)
        tables.append(pack(queue, lookup_id, arrived_ms, expires_s, aborts, reason, size, crc32(packet)))
        packets.append(packet)
        packet_bytes += size
    for name, value in state.items():
        encoded = name.encode()
        tables.append(_STATE.pack(len(encoded), -1 if value is None else len(value)))
        tables.append(encoded)
        if value:
            tables.append(value)
    joined = b"".join(tables)
    counts = len(deletes), len(puts), len(state)
    return Body(joined, packets, counts, packet_bytes, _FIRST + len(joined) + packet_bytes)


def decode(content: bytes, is_live: Callable[[int], bool]) -> Segment:
    """Reads the frames of a segment whose generation `is_live`. Bytes between frames that are no frame are a gap."""
    segment = Segment()
    at = 0
    while True:
        frame = next(_frames(content, at, is_live), None)
        if frame is None:
            break
        if frame.start != at:
            segment.gaps.append((at, frame.start))
        segment.frames.append(frame)
        generation = frame.generation
        is_live = generation.__eq__
        at = frame.end
    return segment


def _frames(content: bytes, at: int, is_live: Callable[[int], bool]) -> Iterator[Frame]:
    """Frames with a sound head, at `at` or after it."""
    while (at := content.find(MAGIC, at)) >= 0:
        frame = _frame(content, at, is_live)
        if frame is not None:
            yield frame
        at += 1


def _frame(content: bytes, start: int, is_live: Callable[[int], bool]) -> Frame | None:
    """The frame at `start`; None if there is none or its head is damaged."""
    try:
        _, checksum = _START.unpack_from(content, start)
        head = _HEAD.unpack_from(content, start + _START.size)
    except struct.error:
        return None
    generation, before, offset, head_bytes, packet_bytes, deletes, puts, states = head
    tables, end = start + head_bytes, start + head_bytes + packet_bytes
    if offset != start or not is_live(generation) or tables > len(content):
        return None
    if crc32(memoryview(content)[start + _START.size : tables]) != checksum:
        return None
    frame = Frame(generation, before, start, end)
    at = start + _FIRST
    frame.deletes = [Key(*each) for each in _KEY.iter_unpack(content[at : at + deletes * _KEY.size])]
    at += deletes * _KEY.size
    place = tables
    for queue, lookup_id, arrived_ms, expires_s, aborts, reason, size, packet_checksum in _PUT.iter_unpack(
        content[at : at + puts * _PUT.size]
    ):
        packet = content[place : place + size]
        place += size
        key = Key(queue, lookup_id)
        if len(packet) != size or crc32(packet) != packet_checksum:
            frame.damaged.append(key)
        else:
            frame.puts[key] = Record(queue, lookup_id, arrived_ms, expires_s, aborts, packet, reason)
    at += puts * _PUT.size
    for _ in range(states):
        name_bytes, value_bytes = _STATE.unpack_from(content, at)
        at += _STATE.size
        name = content[at : at + name_bytes].decode()
        at += name_bytes
        frame.state[name] = None if value_bytes < 0 else content[at : at + value_bytes]
        at += max(value_bytes, 0)
    return frame
