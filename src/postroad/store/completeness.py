"""Whether all files of a store are there: a copy of the database alone would start with old messages, or with none.

While a store is open, its newest changes are in SQLite's log and in the journal. The database says so in a row that is
in its own file, so a copy without the other files is refused.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from postroad.errors import StorageError
from postroad.store.journal_file import NAMES

OPEN = 0x4F50454E  # not 1: one flipped bit must not make a closed store look like an open one
CLOSED = 0
_GET = "SELECT word FROM running"
_SET = "INSERT OR REPLACE INTO running (one, word) VALUES (1, ?)"
_REMEDY = (
    "copy all files of the directory again while no manager runs on it, or use `postroad backup`; to start without "
    "{name}, and without the messages in it, create it as an empty file (nothing is lost if an SQLite tool has removed "
    "it)"
)


def refuse_without_log(file: Path) -> None:
    """Raises StorageError if the database needs its log, and the log is missing. Creates no file."""
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
    with suppress(apsw.Error):  # what is no database at all is refused when it is opened
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with closing(apsw.Connection(f"file:{quote(str(file.resolve()))}?immutable=1", flags)) as connection:
            if is_open(connection):
                raise incomplete(log)


def is_open(connection: apsw.Connection) -> bool:
    """Whether the store was not closed cleanly. False if the row is damaged, or an earlier version made the store."""
    with suppress(apsw.SQLError, apsw.CorruptError):
        return bool(connection.execute(_GET).get == OPEN)
    return False


def set_open(connection: apsw.Connection, value: bool) -> None:
    connection.execute(_SET, (OPEN if value else CLOSED,))


def incomplete(missing: Path) -> StorageError:
    """The refusal of a store without this file."""
    return StorageError(
        f"{missing}: is missing: the store was copied while a manager ran, or after a crash, and its newest messages "
        f"are in this file; {_REMEDY.format(name=missing.name)}"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
