"""The room that is left on the disk of a data directory, and a reserve of it that is given up when there is none.

While the disk is full nothing is added, and with what the reserve frees, what is there can be taken out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from threading import Lock

RESERVE_NAME = "reserve"
RESERVE_BYTES = 16 << 20  # as much as the log: what is in the log can be folded into the database, and the log reused
SHARE = 8  # of a small disk the reserve is one part in so many
_CHUNK = bytes(1 << 20)


class DiskSpace:
    """Any thread may ask. The reserve is a file that stays when the process ends, so that a start finds room too."""

    def __init__(self, directory: Path) -> None:
        self.full = False
        self._directory = directory
        self._file = directory / RESERVE_NAME
        self._lock = Lock()
        self.reserve_bytes = min(RESERVE_BYTES, shutil.disk_usage(directory).total // SHARE)
        with self._lock:
            if not self._file.exists() and self._free() >= 2 * self.reserve_bytes:
                self._make()
        self.look()

    def look(self) -> str | None:
        """Why nothing more is to be stored; None while there is room. It is full sooner than it has room again."""
        free = self._free()
        with self._lock:
            missing = 0 if self._file.exists() else self.reserve_bytes
            if free < self.reserve_bytes:
                self.full = True
            elif self.full and free >= 2 * self.reserve_bytes + missing:
                self.full = bool(missing) and not self._make()
            elif missing and free >= 3 * self.reserve_bytes:
                self._make()
        if not self.full:
            return None
        return (
            f"{self._directory}: the disk is full: {free >> 10} KiB are free; messages can be received and purged, and "
            "nothing more is stored until there is room"
        )

    def is_low(self) -> bool:
        return self._free() < self.reserve_bytes

    def release(self) -> bool:
        """A write found no room. True where there is some now."""
        with self._lock:
            self.full = True
            try:
                self._file.unlink()
            except OSError:
                return False
        return True

    def _free(self) -> int:
        return shutil.disk_usage(self._directory).free

    def _make(self) -> bool:
        """Real blocks, not a hole. What could not be made whole is removed."""
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
