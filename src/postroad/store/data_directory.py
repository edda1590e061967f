"""The data directory: one process locks it, and a store opens only if all its files are there."""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from postroad.errors import StorageError
from postroad.runtime.private_files import open_private
from postroad.store.journal import NAMES

# Checks that all files of a store are there. While a store is open, its newest changes are in SQLite's log and in the
# journal, so a copy of the database alone would start with old messages or none. A row in the database's own file says
# that the store is open, and a copy without the other files is refused.


OPEN = 0x4F50454E  # not 1: a flipped bit must not make a closed store look open
CLOSED = 0
_GET = "SELECT word FROM running"
_SET = "INSERT OR REPLACE INTO running (one, word) VALUES (1, ?)"
_REMEDY = (
    "copy all files of the directory again while no manager runs on it, or use `postroad backup`; to start without "
    "{name}, and without the messages in it, create it as an empty file (nothing is lost if an SQLite tool has removed "
    "it)"
)


def refuse_without_log(file: Path) -> None:
    """Raises StorageError if the database needs its log and the log is missing. Creates no file."""
    log = file.with_name(f"{file.name}-wal")
    if not _size(file):
        for path in (log, *(file.with_name(name) for name in NAMES)):
            if _size(path):
                raise StorageError(
                    f"{file}: is missing or empty, but {path.name} is here: copy all files of the data directory, or "
                    f"remove {path.name} to start empty"
                )
        return
    if log.exists():
        return
    with suppress(apsw.Error):  # opening refuses a file that is no database
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with closing(apsw.Connection(f"file:{quote(str(file.resolve()))}?immutable=1", flags)) as connection:
            if is_open(connection):
                raise incomplete(log)


def is_open(connection: apsw.Connection) -> bool:
    """Whether the store was left open. False if the row is damaged, or an earlier version made the store."""
    with suppress(apsw.SQLError, apsw.CorruptError):
        return bool(connection.execute(_GET).get == OPEN)
    return False


def set_open(connection: apsw.Connection, value: bool) -> None:
    connection.execute(_SET, (OPEN if value else CLOSED,))


def incomplete(missing: Path) -> StorageError:
    """The error for a store without this file."""
    return StorageError(
        f"{missing}: is missing: the store was copied while a manager ran, or after a crash, and its newest messages "
        f"are in this file; {_REMEDY.format(name=missing.name)}"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# A lock that lets one process use a data directory. The operating system frees it when the process ends.


LOCK_NAME = "lock"

if sys.platform == "win32":
    import msvcrt

    # A lock on Windows keeps others from reading, so lock one byte far after the process id.
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
    """Locks the directory from construction to `close` or the end of the process. The file stays; only the lock on it
    counts."""

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
        # The process id is only for people, so a full disk must not prevent the lock.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode("ascii"))

    def close(self) -> None:
        """Frees the directory. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
