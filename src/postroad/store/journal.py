"""The journal in files: two segments that take turns. A commit is one frame (frames.py), written at the end of the
active segment.

While one segment takes commits, what is left of the other moves into the database. Then that segment is used again,
with a new generation.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from postroad.errors import StorageError
from postroad.runtime.private_files import open_private
from postroad.store.database import DISK_ERROR, DISK_FULL, READ_ONLY, sync_directory
from postroad.store.frames import Body, encode

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

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
