"""The free disk space of a data directory, and a reserve file that is deleted when the disk is full. Journal and
database share the reserve.

While the disk is full, no message is stored. The space of the reserve then lets applications receive stored messages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from pathlib import Path
from threading import Lock
from typing import TypeVar

import apsw

RESERVE_NAME = "reserve"
RESERVE_BYTES = 16 << 20  # the size of the log, so that the log can be written into the database and reused
SHARE = 8  # on a small disk, the reserve is at most 1/8 of it
_CHUNK = bytes(1 << 20)

T = TypeVar("T")


def disk_use(database: Path) -> dict[str, int]:
    """The bytes that a store uses, and the free and total bytes of its file system."""
    directory = database.parent
    names = {
        "database": (database.name,),
        "log": (f"{database.name}-wal", f"{database.name}-shm"),
        "journal": ("journal-0", "journal-1"),
        "reserve": (RESERVE_NAME,),
    }
    used = {kind: sum(_size(directory / name) for name in files) for kind, files in names.items()}
    try:
        whole = shutil.disk_usage(directory)
    except OSError:
        return used
    return {**used, "free": whole.free, "total": whole.total}


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


class DiskSpace:
    """The space of one data directory. Any thread may use it. The reserve file stays when the process ends, so that the
    next start has space too.

    `reclaim` frees what it can once the reserve is gone. Without `keeps`, there is no reserve and always room.
    """

    def __init__(self, directory: Path, reclaim: Callable[[], object] = lambda: None, *, keeps: bool = True) -> None:
        self.full = False
        self.keeps = keeps
        self.reserve_bytes = 0
        self._directory = directory
        self._file = directory / RESERVE_NAME
        self._lock = Lock()
        self._reclaim = reclaim
        if not keeps:
            return
        self.reserve_bytes = min(RESERVE_BYTES, shutil.disk_usage(directory).total // SHARE)
        with self._lock:
            if not self._file.exists() and self._free() >= 2 * self.reserve_bytes:
                self._make_reserve()
        self.look()

    def look(self) -> str | None:
        """Checks the free space. Returns why nothing more can be stored, or None. After it was full, the disk counts as
        free only at twice the reserve."""
        if not self.keeps:
            return None
        free = self._free()
        with self._lock:
            missing = 0 if self._file.exists() else self.reserve_bytes
            if free < self.reserve_bytes:
                self.full = True
            elif self.full and free >= 2 * self.reserve_bytes + missing:
                self.full = bool(missing) and not self._make_reserve()
            elif missing and free >= 3 * self.reserve_bytes:
                self._make_reserve()
        if not self.full:
            return None
        return (
            f"{self._directory}: the disk is full: {free >> 10} KiB are free; no message is stored until more space is "
            "free; receive or purge messages, or free some space"
        )

    def with_room(self, work: Callable[[], T], added_bytes: int = 0) -> T:
        """Runs `work`. If the disk is full, frees the reserve and tries again, unless `work` adds too many bytes."""
        try:
            return work()
        except (apsw.FullError, apsw.IOError, OSError) as error:
            if not self.make(error, added_bytes):
                raise
            return work()

    def make(self, error: BaseException | None, added_bytes: int = 0) -> bool:
        """Frees the reserve if `error` says that the disk is full. Returns True if another try makes sense."""
        if not self.keeps:
            return False
        full = isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT))
        if not (full or (isinstance(error, apsw.IOError) and self.is_low())):
            return False
        if not self.release() or added_bytes > self.reserve_bytes // 4:
            return False
        self._reclaim()
        return True

    def is_low(self) -> bool:
        return self._free() < self.reserve_bytes

    def release(self) -> bool:
        """Deletes the reserve, because a write found no space. Returns True if that freed any."""
        with self._lock:
            self.full = True
            try:
                self._file.unlink()
            except OSError:
                return False
        return True

    def _free(self) -> int:
        return shutil.disk_usage(self._directory).free

    def _make_reserve(self) -> bool:
        """Writes real blocks, not a hole. Removes an incomplete file."""
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, self.reserve_bytes)
                else:
                    for place in range(0, self.reserve_bytes, len(_CHUNK)):
                        os.write(descriptor, _CHUNK[: self.reserve_bytes - place])
            finally:
                os.close(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.unlink()
            return False
        return True
