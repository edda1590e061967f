"""The SQLite database of the store: how to open it, its schema versions, and what its errors mean.

sqlite.py reads and writes the tables.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

import apsw

from postroad.errors import StorageError
from postroad.runtime.private_files import DIRECTORY_MODE, open_private, tighten

DATABASE_NAME = "store.sqlite"
_BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database, with the modes of the database
APPLICATION_ID = 0x506F7374  # "Post": `file` and SQLite's tools show whose database it is

# Each step takes the schema from the version that is its index to the next. It runs in one transaction.
MIGRATIONS: tuple[str, ...] = (
    files(__package__).joinpath("schema.sql").read_text(encoding="utf-8"),
    # A Postroad that does not know the journal must refuse the database, because it would miss what only the journal
    # has.
    """
    CREATE TABLE journal (
        one      INTEGER PRIMARY KEY CHECK (one = 1),
        spilled  INTEGER NOT NULL, -- the last generation of the journal that is in this database
        newest   INTEGER NOT NULL, -- no message here has a greater arrival number
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    # data_directory.py sets and reads it.
    """
    CREATE TABLE running (
        one  INTEGER PRIMARY KEY CHECK (one = 1),
        word INTEGER NOT NULL
    ) STRICT
    """,
)

# 16 MiB of log between checkpoints, which a restart after a crash has to read. The bulk rate hardly depends on it.
CHECKPOINT_PAGES = 2048
PAGE_SIZE = 8192
ASIDE_CACHE_KB = 16_384
MOST_REWRITTEN = 64 << 20  # bytes of messages in a database that a start may rewrite
BUSY_TIMEOUT_MS = 5000  # for which another SQLite tool may keep the database locked

PRAGMAS = (
    # A page of 8 KiB holds five messages of 1 KiB with their headers; a page of 4 KiB holds two. With pages of 16 KiB,
    # a commit writes more bytes than it needs, and puts are a fifth slower.
    f"PRAGMA page_size = {PAGE_SIZE}",
    "PRAGMA auto_vacuum = INCREMENTAL",  # for a new database: space that a purge frees can be returned to the disk
    "PRAGMA journal_mode = WAL",  # one sync per commit, and readers never wait for the writer
    "PRAGMA wal_autocheckpoint = 0",  # we do it: a failed checkpoint must not look like a failed commit
    "PRAGMA synchronous = FULL",  # a commit is on the disk when it returns and survives a power cut
    "PRAGMA fullfsync = ON",  # for macOS, where a plain sync stops at the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    f"PRAGMA journal_size_limit = {2 * CHECKPOINT_PAGES * PAGE_SIZE}",  # the log shrinks again after a huge transaction
    # A statement that puts many rows keeps an undo journal. In a file, it would cost a quarter of the bulk rate.
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cell_size_check = ON",  # never write into a corrupt page
    "PRAGMA cache_size = -8192",  # KiB; queues are used at their ends, so a larger cache does not help a backlog
)

DISK_FULL = "the disk is full; free some space, then the manager continues by itself"
READ_ONLY = "the file is read-only; make the file and its directory writable for this user"
DISK_ERROR = "the disk reported an error; check the disk, then try again"

_FAULTS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, DISK_FULL),
    (apsw.ReadOnlyError, READ_ONLY),
    (
        apsw.CantOpenError,
        "the file cannot be opened; check that its directory exists and that this user can write there",
    ),
    (
        apsw.CorruptError,
        "the file is damaged; stop the manager, keep a copy, and recover the data with SQLite's .recover command",
    ),
    (apsw.NotADBError, "the file is damaged or not a SQLite database; restore a copy, or move it away to start empty"),
    (apsw.BusyError, "another program keeps it locked; close that program"),
    (apsw.LockedError, "another program keeps it locked; close that program"),
    (apsw.IOError, DISK_ERROR),
    (apsw.ConnectionClosedError, "the store is closed"),
)


@contextmanager
def explained(file: Path, doing: str) -> Iterator[None]:
    """Turns SQLite's errors into StorageErrors that name the file, the cause and the remedy."""
    try:
        yield
    except apsw.Error as error:
        raise explain(file, doing, error) from error


def explain(file: Path, doing: str, error: apsw.Error) -> StorageError:
    cure = next((text for kind, text in _FAULTS if isinstance(error, kind)), "SQLite refused")
    code = apsw.mapping_extended_result_codes.get(getattr(error, "extendedresult", 0), type(error).__name__)
    return StorageError(f"{file}: {doing} failed: {cure} ({code}: {error})")


def open_writer(file: Path, vfs: str | None) -> apsw.Connection:
    """Opens the connection that writes. Creates or migrates the tables. Before it changes anything, it refuses a
    database that is not ours or that a newer Postroad made."""
    connection = _connect(file, vfs)
    try:
        check_identity(connection, file)
        for pragma in PRAGMAS:
            connection.execute(pragma).fetchall()  # read all: SQLite can fail after a pragma's row
        mode = connection.pragma("journal_mode")
        if mode != "wal":
            raise StorageError(
                f"{file}: the file system does not support a write-ahead log; choose a directory on a local disk"
            )
        _migrate(connection)
        _shrink_old(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(file: Path, vfs: str | None) -> apsw.Connection:
    """Opens a connection that only reads. It leaves out cell_size_check, which would refuse a whole page for one
    damaged row."""
    connection = _connect(file, vfs)
    connection.execute("PRAGMA query_only = ON")
    return connection


def open_aside(file: Path, vfs: str | None) -> apsw.Connection:
    """Opens a connection to read long ranges. Its cache keeps pages from reading the numbers until reading the
    packets."""
    connection = open_reader(file, vfs)
    connection.execute(f"PRAGMA cache_size = {-ASIDE_CACHE_KB}").fetchall()
    return connection


def cannot_create(directory: Path, error: OSError) -> StorageError:
    return StorageError(f"{directory}: the data directory cannot be created: {error.strerror}")


def make_directory(directory: Path) -> None:
    """Creates the directory if needed, durably and for its owner only. SQLite makes its own files durable, because the
    first sync of its log also syncs the directory."""
    try:
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_create(directory, error) from error
    # Any other directory may be one like /srv, given by mistake.
    if (directory / DATABASE_NAME).exists() or not any(directory.iterdir()):
        tighten(directory)
    for path in missing:
        sync_directory(path.parent)


def make_private(file: Path) -> None:
    """Lets only the owner read the database and its files. SQLite takes an empty file for a new database, and gives its
    other files the same mode."""
    with suppress(OSError):  # SQLite reports the reason when it opens the file
        os.close(open_private(file, os.O_RDWR))
    for suffix in _BESIDE:
        tighten(file.with_name(file.name + suffix))


def sync_directory(directory: Path) -> None:
    if os.name == "nt":
        return
    with suppress(OSError):  # some file systems cannot sync a directory
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _connect(file: Path, vfs: str | None) -> apsw.Connection:
    connection = apsw.Connection(str(file), vfs=vfs)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def check_identity(connection: apsw.Connection, file: Path) -> None:
    application_id = connection.pragma("application_id")
    version = connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version < 0 or (application_id != APPLICATION_ID and (application_id or version or tables != (0,))):
        raise StorageError(
            f"{file}: must be a database of Postroad, but another program made it; choose another directory"
        )
    if version > len(MIGRATIONS):
        raise StorageError(
            f"{file}: the schema version must be at most {len(MIGRATIONS)} for this Postroad, got {version}; "
            "use a newer Postroad, or another directory"
        )


def _shrink_old(connection: apsw.Connection, file: Path) -> None:
    """Rewrites a database that was made without auto_vacuum, once, if more than half of it is free and the rewrite is
    quick.

    If that fails, the database stays as it is.
    """
    pages, free = connection.pragma("page_count"), connection.pragma("freelist_count")
    used_bytes = (pages - free) * PAGE_SIZE
    if connection.pragma("auto_vacuum") or free * 2 <= pages or used_bytes > MOST_REWRITTEN:
        return
    if shutil.disk_usage(file.parent).free < 3 * used_bytes + MOST_REWRITTEN:
        return
    with suppress(apsw.Error):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
        connection.execute("VACUUM").fetchall()


def _migrate(connection: apsw.Connection) -> None:
    """Migrates the schema, each step in one transaction."""
    for version in range(connection.pragma("user_version"), len(MIGRATIONS)):
        with connection:
            connection.execute(MIGRATIONS[version])
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
