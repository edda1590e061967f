"""The journal: two segments that take turns, and their format. A commit is one frame, written at the end of the active
segment.

A frame has a head and packets. The head lists the deletes, puts and states, and has one checksum. Each packet has its
own checksum, so a flipped bit in a packet costs one message. The generation and the offset in the head bind a frame to
its place, so an old frame in a reused segment never counts as a new one. The head also has the end of the previous
generation, so a missing part is detected.

While one segment takes commits, what is left of the other moves into the database. Then that segment is used again,
with a new generation.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Protocol
from zlib import crc32

from postroad.errors import StorageError
from postroad.runtime.private_files import open_private
from postroad.store.database import DISK_ERROR, DISK_FULL, READ_ONLY, sync_directory
from postroad.store.interface import NOT_A_LOOKUP_ID, QUEUE_BITS, Key, Pair, Record, check_key

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

# The format: bytes in, values out.


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


# The files.


NAMES = ("journal-0", "journal-1")
SEGMENT_BYTES = 8 << 20
# Steps in which a new segment grows: a write to existing blocks syncs faster than one that adds blocks.
CHUNKS = 16

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # on macOS, a plain sync stops at the drive's cache
_DSYNC: int = 0 if _FULL_SYNC is not None else getattr(os, "O_DSYNC", 0)

_FAULTS = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EROFS: READ_ONLY,
    errno.EACCES: READ_ONLY,
    errno.EPERM: READ_ONLY,
}


class Files(Protocol):
    """The files of a journal, by name. Every method may raise OSError."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes:
        """The whole file; empty if it does not exist."""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Writes data, durable when this returns. Creates the file if needed, for its owner only."""

    def truncate(self, name: str, size: int) -> None: ...

    def remove(self, name: str) -> None:
        """Removes a file. Does nothing if it does not exist."""

    def close(self) -> None: ...


class DirectoryFiles:
    """The files in a data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._descriptors: dict[str, int] = {}
        self._named: set[str] = set()  # files whose names are durable

    def exists(self, name: str) -> bool:
        return (self.directory / name).exists()

    def read(self, name: str) -> bytes:
        if not self.exists(name):
            return b""
        with open(self.open(name), "rb", closefd=False) as file:
            file.seek(0)
            return file.read()

    def write(self, name: str, offset: int, data: bytes) -> None:
        descriptor = self.open(name)
        self.put(name, descriptor, offset, data)
        self.sync(name, descriptor)
        if name not in self._named:
            self.sync_names()
            self._named.add(name)

    def truncate(self, name: str, size: int) -> None:
        os.ftruncate(self.open(name), size)

    def remove(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        (self.directory / name).unlink(missing_ok=True)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def open(self, name: str) -> int:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            # O_DSYNC makes write and sync one system call, so the writer's thread gives up the interpreter's lock only
            # once.
            flags = os.O_RDWR | _DSYNC | getattr(os, "O_BINARY", 0)
            descriptor = self._descriptors[name] = open_private(self.directory / name, flags)
        return descriptor

    def put(self, name: str, descriptor: int, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if hasattr(os, "pwrite"):
                written = os.pwrite(descriptor, view, offset)
            else:
                os.lseek(descriptor, offset, os.SEEK_SET)
                written = os.write(descriptor, view)
            offset += written
            view = view[written:]

    def sync(self, name: str, descriptor: int) -> None:
        if _FULL_SYNC is not None:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        elif not _DSYNC:
            os.fsync(descriptor)

    def sync_names(self) -> None:
        sync_directory(self.directory)


class Journal:
    """Writes frames into the active segment. `position` is where the next one goes."""

    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.generation = 0
        self.position = 0
        self._before = 0  # where the previous generation ended
        self._files = files
        self._paths = [directory / name for name in NAMES]
        self._segment = 0
        self._allocated = [0 for _ in NAMES]
        self._failed = False  # the last write; it may still be on the disk until the next one replaces it

    @property
    def file(self) -> Path:
        return self._paths[self._segment]

    def missing(self) -> list[str]:
        return [name for name in NAMES if not self._files.exists(name)]

    def create(self) -> None:
        """Creates missing segments, durably. Raises OSError."""
        for name in self.missing():
            self._files.write(name, 0, b"")

    def read(self, segment: int) -> bytes:
        with explained(self._paths[segment], "reading"):
            content = self._files.read(NAMES[segment])
        self._allocated[segment] = len(content)
        return content

    def go_on(self, segment: int, generation: int, before: int, position: int) -> None:
        """Continues a segment at `position`, or begins one at 0."""
        self._segment, self.generation, self._before, self.position = segment, generation, before, position

    def has_blocks(self, size: int) -> bool:
        """Whether a commit of this size fits into the file without growing it."""
        end = min(self._allocated[self._segment], self.segment_bytes)
        return not self._failed and self.position + size <= end

    def append(self, body: Body) -> bool:
        """Makes one commit durable. Returns False if the segment has no room: nothing is written then. Raises OSError,
        and then the commit does not count."""
        if not self._failed and self.position > max(0, self.segment_bytes - body.size):
            return False
        data = body.frame(self.generation, self._before, self.position)
        end = self.position + len(data)
        allocated = self._allocated[self._segment]
        if end > allocated:
            chunk = max(self.segment_bytes // CHUNKS, 1)
            allocated = -(-end // chunk) * chunk
            data += bytes(allocated - end)
        self._failed = True
        self._files.write(NAMES[self._segment], self.position, data)
        self._failed = False
        self.position, self._allocated[self._segment] = end, allocated
        return True

    def heal(self) -> None:
        """Overwrites a failed write, if any, with an empty commit. Otherwise it could reappear if the next commits go
        elsewhere. Raises OSError."""
        if self._failed:
            self.append(encode((), {}, {}))

    def rotate(self) -> None:
        """Begins the next generation in the other segment, whose content is no longer needed."""
        other = 1 - self._segment
        if self._allocated[other] > self.segment_bytes:  # a large commit made it grow
            with suppress(OSError):
                self._files.truncate(NAMES[other], self.segment_bytes)
                self._allocated[other] = self.segment_bytes
        self.go_on(other, self.generation + 1, self.position, 0)

    def remove(self) -> None:
        """Removes the segments, once the database has everything in them."""
        with suppress(OSError):  # the next start finds them not needed
            for name in NAMES:
                self._files.remove(name)

    def close(self) -> None:
        self._files.close()


@contextmanager
def explained(file: Path, doing: str) -> Iterator[None]:
    """Turns OSErrors into StorageErrors."""
    try:
        yield
    except OSError as error:
        raise explain(file, doing, error) from error


def explain(file: Path, doing: str, error: OSError) -> StorageError:
    """A StorageError that names the file, the cause and the remedy."""
    cure = _FAULTS.get(error.errno or 0, DISK_ERROR)
    return StorageError(f"{file}: {doing} failed: {cure} ({error.strerror or error})")
