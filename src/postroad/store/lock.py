"""A lock that lets one process use a data directory. The operating system frees it when the process ends.

Knows nothing about the files in the directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from postroad.errors import StorageError
from postroad.runtime.private_files import open_private

LOCK_NAME = "lock"

if sys.platform == "win32":
    import msvcrt

    # Windows locks keep others from reading, so lock one byte far behind the process id.
    _LOCKED_BYTE = 1 << 30

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def cannot_lock(directory: Path, error: OSError) -> StorageError:
    return StorageError(f"{directory / LOCK_NAME}: this user must be able to write in {directory}: {error.strerror}")


class DirectoryLock:
    """Held from construction to `close` or the end of the process. The file stays: only the lock on it counts."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_NAME
        try:
            self._descriptor = open_private(path, os.O_RDWR)
        except OSError as error:
            raise cannot_lock(directory, error) from error
        try:
            _lock(self._descriptor)
        except (BlockingIOError, PermissionError) as error:
            holder = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            who = f"process {holder}" if holder else "another process"
            raise StorageError(f"{directory}: in use by {who}; stop it, or choose another directory") from error
        except OSError as error:
            os.close(self._descriptor)
            raise StorageError(
                f"{path}: the file cannot be locked ({error.strerror}); choose a directory on a local disk"
            ) from error
        # The process id is only for people: a full disk must not prevent the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode("ascii"))

    def close(self) -> None:
        """Frees the directory. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
