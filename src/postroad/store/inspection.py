"""Reads a store's state without opening the store. It locks, creates and changes nothing, even beside a running
manager.

It refuses what LayeredStore would refuse, in the same words, as far as reading can tell.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from postroad.runtime.private_files import refuse_unwritable
from postroad.store import data_directory
from postroad.store.data_directory import LOCK_NAME, cannot_lock
from postroad.store.database import BUSY_TIMEOUT_MS, DATABASE_NAME, cannot_create, check_identity, explained
from postroad.store.journal import NAMES
from postroad.store.journal import explained as journal_explained
from postroad.store.journal_replay import live_segments
from postroad.store.rows import Mark, state_checksum
from postroad.store.sqlite import STATE, UNREADABLE, read_mark

ATTEMPTS = 3  # a running manager may move its journal into the database meanwhile


def read_state(directory: Path) -> dict[str, bytes]:
    """What `Store.state` would return after opening; nothing if there is no store yet. Raises StorageError."""
    if not directory.exists():
        _refuse_uncreatable(directory)
        return {}
    try:
        refuse_unwritable(directory / LOCK_NAME)
    except OSError as error:
        raise cannot_lock(directory, error) from None
    file = directory / DATABASE_NAME
    data_directory.refuse_without_log(file)
    if not file.exists() or not file.stat().st_size:
        return {}
    with explained(file, "opening"), closing(_connect(file)) as connection:
        check_identity(connection, file)
        if data_directory.is_open(connection):
            for name in NAMES:
                if not (directory / name).exists():
                    raise data_directory.incomplete(directory / name)
        for _ in range(ATTEMPTS):
            mark = _mark(connection)
            found, still = _state(connection, directory, mark)
            if still == mark:
                break
        return found


def _connect(file: Path) -> apsw.Connection:
    """A connection that only reads and creates no file. If there is no log, or no index of the log, which only a writer
    may create, it reads the database's file alone."""
    beside = [file.with_name(f"{file.name}{suffix}") for suffix in ("-wal", "-shm")]
    alone = "" if all(each.exists() for each in beside) else "&immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(file.resolve()))}?mode=ro{alone}", flags)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def _state(connection: apsw.Connection, directory: Path, mark: Mark | None) -> tuple[dict[str, bytes], Mark | None]:
    """The state, with the journal's changes, and the database's mark that goes with it."""
    segments = live_segments(lambda number: _read(directory / NAMES[number]), None if mark is None else mark.spilled)
    connection.execute("BEGIN")
    try:
        still = _mark(connection)
        state: dict[str, bytes | None] = {}
        with suppress(*UNREADABLE):
            for name, value, checksum in connection.execute(STATE, (0,)):
                if checksum == state_checksum(name, value):
                    state[name.decode(errors="replace")] = value
    finally:
        connection.execute("COMMIT")
    for _, segment in segments:
        for frame in segment.frames:
            state |= frame.state
    return {name: value for name, value in state.items() if value is not None}, still


def _mark(connection: apsw.Connection) -> Mark | None:
    with suppress(apsw.SQLError):  # databases of earlier versions have none
        return read_mark(connection)
    return None


def _read(file: Path) -> bytes:
    with journal_explained(file, "reading"):
        return file.read_bytes() if file.exists() else b""


def _refuse_uncreatable(directory: Path) -> None:
    """Raises the error that `make_directory` would raise."""
    above = next(each for each in directory.absolute().parents if each.exists())
    code = errno.ENOTDIR if not above.is_dir() else 0 if os.access(above, os.W_OK | os.X_OK) else errno.EACCES
    if code:
        raise cannot_create(directory, OSError(code, os.strerror(code)))
