"""One process at a time in a data directory: a lock that the operating system frees, however the process ends.

Knows nothing of what is in the directory.
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


class DirectoryLock:
    """Held from construction to `close` or the end of the process. The file stays; it is the lock on it that counts."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_NAME
        try:
            self._descriptor = open_private(path, os.O_RDWR)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}; this user must be able to write in {directory}") from error
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
                f"{path}: cannot be locked ({error.strerror}); choose a directory on a local disk"
            ) from error
        # The process id is for people; a disk too full to hold it must not keep the lock from its owner.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode("ascii"))

    def close(self) -> None:
        """Frees the directory. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
