"""The database of the store: SQLite in a data directory, with one connection that writes and one that reads.

layered.py puts a journal in front of it, and database.py opens the database and explains its errors. No queue rules
here.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any, TypeVar
from zlib import crc32

import apsw

from postroad.errors import CorruptRecord
from postroad.store import data_directory
from postroad.store.data_directory import DirectoryLock
from postroad.store.database import (
    BUSY_TIMEOUT_MS,
    CHECKPOINT_PAGES,
    DATABASE_NAME,
    PAGE_SIZE,
    explain,
    explained,
    make_directory,
    make_private,
    open_aside,
    open_reader,
    open_writer,
)
from postroad.store.interface import MAX_ARRIVAL, Columns, Key, Pair, Record
from postroad.store.rows import (
    MAX_KEY,
    MIN_KEY,
    PACKED_KEY,
    ROW_WIDTH,
    Mark,
    Row,
    from_row,
    key_is_sound,
    last_key,
    pack_key,
    state_checksum,
    to_row,
    unpack_key,
)
from postroad.store.space import DiskSpace

# Reads many records in one step of SQLite, without the interpreter's lock and without row objects. If such a read finds
# damage, it raises Suspicious, and the store reads row by row instead.


# Like the walks below, this has no upper end in SQL, so that a record with a damaged key cannot look like the end of
# its range.
_PAGE = "FROM message WHERE key >= ?1 ORDER BY key LIMIT ?3"
# A record as 64 bytes, from hexadecimal digits that `unhex` packs. The size is -1 if the record is after the range, or
# its packet is no blob.
NUMBERS = f"""
SELECT unhex(group_concat(printf('%016x%016x%016x%016x%016x%016x%016x%08x%08x',
    ((key >> 44 & 7) << 56) | (key & 17592186044415), size, arrived_ms, expires_s, aborts, reason,
    key, key_checksum, checksum), ''))
FROM (
    SELECT key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum,
        CASE WHEN key <= ?2 AND typeof(packet) = 'blob' THEN length(packet) ELSE -1 END AS size
    {_PAGE}
)"""
PACKETS = "SELECT CAST(group_concat(packet, '') AS BLOB) FROM message WHERE key BETWEEN ?1 AND ?2"
KEYS = f"SELECT json_group_array(key), json_group_array(key_checksum) FROM (SELECT key, key_checksum {_PAGE})"
BEFORE = "SELECT key, key_checksum FROM message WHERE key <= ?1 ORDER BY key DESC LIMIT 1"

# Lookup id, size, the values that the checksum covers before the packet, the key, its checksum, and that of the row.
_RECORD = Struct(">qq32s8sII")


class Suspicious(Exception):
    """Some data is damaged. Only for this package."""


def read_columns(connection: apsw.Connection, low: int, high: int, limit: int, most_bytes: int) -> Columns:
    """Up to `limit` records with low <= key <= high, and at most `most_bytes` of packets, but at least one record."""
    # One more than wanted: the record after the range, or after this page, shows that the page is complete.
    (numbers,) = _row(connection, NUMBERS, (low, high, limit + 1))
    numbers = numbers or b""
    if len(numbers) % _RECORD.size:
        raise Suspicious
    records = list(_RECORD.iter_unpack(numbers))
    _check_before(connection, low, PACKED_KEY.unpack(records[0][3])[0] if records else None)
    count = _fitting(records, low, high, limit, most_bytes)
    if not count:
        return Columns(b"", b"")
    (first,), (last,) = PACKED_KEY.unpack(records[0][3]), PACKED_KEY.unpack(records[count - 1][3])
    (packets,) = _row(connection, PACKETS, (first, last))
    _check_packets(records, count, packets or b"")
    return Columns(numbers[: count * _RECORD.size], packets or b"")


def read_lookup_ids(connection: apsw.Connection, low: int, high: int, limit: int) -> list[int]:
    """The lookup ids of up to `limit` records with low <= key <= high. Does not read their packets."""
    keys, checksums = map(json.loads, _row(connection, KEYS, (low, high, limit + 1)))
    _check_before(connection, low, keys[0] if keys else None)
    found: list[int] = []
    last = low - 1
    for key, checksum in zip(keys, checksums, strict=True):
        if key <= last or crc32(PACKED_KEY.pack(key)) != checksum:
            raise Suspicious
        if key > high or len(found) == limit:
            break
        found.append(unpack_key(key).lookup_id)
        last = key
    return found


def _row(connection: apsw.Connection, sql: str, parameters: tuple[int, ...]) -> Any:
    return connection.execute(sql, parameters).fetchone()


def _check_before(connection: apsw.Connection, low: int, first: int | None) -> None:
    """Raises Suspicious if a damaged key may have made the search skip records of the range. If none did, the record
    before `first` is sound and outside the range."""
    before = _row(connection, BEFORE, (MAX_KEY if first is None else first - 1,))
    if before is not None and (before[0] >= low or crc32(PACKED_KEY.pack(before[0])) != before[1]):
        raise Suspicious


def _fitting(records: list[Any], low: int, high: int, limit: int, most_bytes: int) -> int:
    """How many of the first records are in the range and have about `most_bytes`. Also checks their keys, and that of
    the next record."""
    last, total = low - 1, 0
    for count, (_, size, _, packed, key_checksum, _) in enumerate(records):
        (key,) = PACKED_KEY.unpack(packed)
        if key <= last or crc32(packed) != key_checksum:
            raise Suspicious
        if key > high or count == limit or (count and total + size > most_bytes):
            return count
        if size < 0:
            raise Suspicious
        last = key
        total += size
    return len(records)


def _check_packets(records: list[Any], count: int, packets: bytes) -> None:
    view = memoryview(packets)
    at = 0
    for _, size, head, _, key_checksum, checksum in islice(records, count):
        stop = at + size
        if crc32(view[at:stop], crc32(head, key_checksum)) != checksum:
            raise Suspicious
        at = stop
    if at != len(packets):
        raise Suspicious


T = TypeVar("T")
MAX_DAMAGED = 10_000  # damaged records to list; more are left out without being listed
KEPT_FREE_PAGES = 1024  # 8 MiB of free pages, kept for the next messages
TIDY_PAGES = 512  # 4 MiB returned in one step, so that no commit waits longer
MAXUNREADABLE = 100  # rows that SQLite cannot read: after so many, a read gives up

# apsw releases the GIL at every step of a statement, and a busy event loop may keep it for up to the switch interval.
# So one step takes many rows: any number up to ROW_GROUP, then multiples of it, so that few statements need preparing.
# Beside a busy thread, this is several times as fast as a step for each row.
ROW_GROUP = 16
MAX_ROWS = 128

_COLUMNS = "key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum"
PUT = f"INSERT OR REPLACE INTO message ({_COLUMNS}, packet) VALUES "
DELETE = "DELETE FROM message WHERE key IN (SELECT value FROM json_each(?))"
SET_STATE = "INSERT OR REPLACE INTO state (name, value, checksum) VALUES "
DELETE_STATE = "DELETE FROM state WHERE name IN (SELECT value FROM json_each(?))"

# The walks have no end in SQL, so that a record with a damaged key cannot look like the end of its queue. Neighbours
# outside the wanted range are read without their packets, which can be megabytes. Keys can be read even where the rest
# of a row cannot. EXCEPT then leaves out that row, by its place, because a search for its key could go astray.
_WALK = f"SELECT {_COLUMNS}, CASE WHEN key BETWEEN ?1 AND ?2 THEN packet END FROM message WHERE key"
_EXCEPT = "AND key NOT IN (SELECT value FROM json_each(?4))"
FORWARD = f"{_WALK} >= ?3 ORDER BY key"
BACKWARD = f"{_WALK} <= ?3 ORDER BY key DESC"
FORWARD_EXCEPT = f"{_WALK} >= ?3 {_EXCEPT} ORDER BY key"
BACKWARD_EXCEPT = f"{_WALK} <= ?3 {_EXCEPT} ORDER BY key DESC"
FORWARD_KEY = f"SELECT key FROM message WHERE key >= ?3 {_EXCEPT} ORDER BY key LIMIT 1 OFFSET ?5"
BACKWARD_KEY = f"SELECT key FROM message WHERE key <= ?3 {_EXCEPT} ORDER BY key DESC LIMIT 1 OFFSET ?5"
# Goes from the first message of each queue and priority straight to that of the next, in one step each.
FIRSTS = """
WITH RECURSIVE first (key) AS (
    SELECT min(key) FROM message
    UNION ALL
    SELECT (SELECT key FROM message WHERE key >= ((first.key >> 44) + 1) << 44 ORDER BY key LIMIT 1)
    FROM first WHERE first.key >> 44 < 524287 -- behind the last priority of the last queue there is no number
)
SELECT key, arrived_ms FROM first JOIN message USING (key)"""
# The greatest arrival number, found in the same way from the last messages.
NEWEST = """
WITH RECURSIVE last (key) AS (
    SELECT max(key) FROM message
    UNION ALL
    SELECT (SELECT key FROM message WHERE key < (last.key >> 44) << 44 ORDER BY key DESC LIMIT 1)
    FROM last WHERE last.key IS NOT NULL
)
SELECT max(key & 17592186044415) FROM last"""
GET_MARK = "SELECT spilled, newest, checksum FROM journal"
SET_MARK = "INSERT OR REPLACE INTO journal (one, spilled, newest, checksum) VALUES (1, ?, ?, ?)"
GET = f"SELECT {_COLUMNS}, packet FROM message WHERE key = ?"
EXPIRED = (
    "SELECT key FROM message INDEXED BY message_expires WHERE expires_s <> 0 AND expires_s < ? ORDER BY expires_s, key"
)
# The casts keep a row readable if a flipped bit has changed its types.
STATE = "SELECT CAST(name AS BLOB), CAST(value AS BLOB), CAST(checksum AS INTEGER) FROM state LIMIT -1 OFFSET ?"
ALL_ROWS = f"SELECT {_COLUMNS}, packet FROM message ORDER BY key"
ALL_STATE = "SELECT CAST(name AS BLOB), CAST(value AS BLOB), CAST(checksum AS INTEGER) FROM state"

# SQLite's errors for a row that it cannot read. Text that is no UTF-8 was a blob before a bit flipped.
UNREADABLE = (apsw.CorruptError, apsw.TooBigError, UnicodeDecodeError)


def read_mark(connection: apsw.Connection) -> Mark | None:
    """The mark of the journal; None if there is none or it is damaged."""
    with suppress(*UNREADABLE, struct.error):
        row = connection.execute(GET_MARK).fetchone()
        if row is not None and Mark(*row[:2]).checksum == row[2]:
            return Mark(*row[:2])
    return None


class SqliteSource:
    """The database of a snapshot."""

    def __init__(self, file: Path, connection: apsw.Connection) -> None:
        self._file = file
        self._connection = connection

    def rows(self) -> Iterator[Row]:
        with explained(self._file, "reading"):
            yield from self._connection.execute(ALL_ROWS)

    def states(self) -> Iterator[tuple[bytes, bytes, int]]:
        with explained(self._file, "reading"):
            for name, value, checksum in self._connection.execute(ALL_STATE):
                yield name or b"", value or b"", checksum

    def close(self) -> None:
        self._connection.close()


class SqliteStore:
    """The database in `directory`, which it creates if needed and locks for this process until `close`. The reading
    methods are those of Store.

    With `reserve`, it reserves disk space, and frees it for a commit that finds no space. The other arguments are for
    tests: `vfs` names SQLite's file system, `checkpoint_pages` is the length of the log, and `kept_free_pages` is what
    `tidy` leaves.
    """

    def __init__(
        self,
        directory: Path,
        *,
        reserve: bool = False,
        vfs: str | None = None,
        checkpoint_pages: int = CHECKPOINT_PAGES,
        kept_free_pages: int = KEPT_FREE_PAGES,
    ) -> None:
        self._kept_free_pages = kept_free_pages
        self.file = directory / DATABASE_NAME
        self._checkpoint_pages = checkpoint_pages
        self._log_pages = 0
        self._commits = 0
        self._state: tuple[int, dict[str, bytes]] = (-1, {})  # as of this number of commits
        self._damaged: dict[Key | str, str] = {}
        self._vfs = vfs
        self._aside: deque[apsw.Connection] = deque()  # idle connections of threads that read columns
        self._closed = False
        make_directory(directory)
        with self._explained("opening"), ExitStack() as opened:
            opened.callback(DirectoryLock(directory).close)
            data_directory.refuse_without_log(self.file)
            if vfs is None:  # a test's own file system handles its files itself
                make_private(self.file)
            self.space = DiskSpace(directory, self._fold_log, keeps=reserve)
            if reserve:
                # On a small disk the log is short, because the reserve must have room for folding it into the database.
                self._checkpoint_pages = min(checkpoint_pages, max(8, self.space.reserve_bytes // 2 // PAGE_SIZE))
            self._writer = self.space.with_room(lambda: open_writer(self.file, vfs))
            opened.callback(self._writer.close)
            self._reader = open_reader(self.file, vfs)
            opened.callback(self._reader.close)
            opened.callback(self._close_aside)
            # Close the readers first: the last connection to close folds the log into the database.
            self._opened = opened.pop_all()

    def write(
        self, deletes: Collection[Pair], puts: Mapping[Pair, Record], state: Mapping[str, bytes | None], mark: Mark
    ) -> None:
        """Commits one transaction, durable when this returns. After a StorageError nothing has changed."""

        def write() -> None:
            self._move(deletes, puts.values())
            self._finish(state, mark)

        with self._explained("writing"):
            self.space.with_room(write, sum(len(each.packet) for each in puts.values()))
        self.forget(deletes, puts, state)

    def move(self, deletes: Collection[Pair], puts: Collection[Record]) -> None:
        """Writes a part of a long transaction, which `finish` commits. Raises StorageError, and then drops all
        parts."""
        with self._explained("writing"):
            self._move(deletes, puts)

    def finish(self, state: Mapping[str, bytes | None], mark: Mark) -> None:
        """Commits everything moved, with state and the journal's mark. Raises StorageError, and then drops all of
        it."""
        with self._explained("writing"):
            self._finish(state, mark)

    def abandon(self) -> None:
        """Drops everything moved since the last `finish`."""
        self._roll_back()

    def _move(self, deletes: Collection[Pair], puts: Collection[Record]) -> None:
        keys = [pack_key(*key) for key in deletes]
        rows = [to_row(record) for record in puts]
        execute = self._writer.execute
        try:
            if not self._writer.in_transaction:
                execute("BEGIN")
            if keys:
                execute(DELETE, (json.dumps(keys),))
            for sql, parameters in _statements(PUT, rows, ROW_WIDTH):
                execute(sql, parameters)
        except BaseException:
            self._roll_back()
            raise

    def _finish(self, state: Mapping[str, bytes | None], mark: Mark) -> None:
        values = [
            (name, value, state_checksum(name.encode(), value)) for name, value in state.items() if value is not None
        ]
        removed = [name for name, value in state.items() if value is None]
        execute = self._writer.execute
        try:
            if not self._writer.in_transaction:
                execute("BEGIN")
            if removed:
                execute(DELETE_STATE, (json.dumps(removed),))
            for sql, parameters in _statements(SET_STATE, values, 3):
                execute(sql, parameters)
            execute(SET_MARK, (*mark, mark.checksum))
            execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self._commits += 1
        self._state = -1, {}
        self._checkpoint_if_long()

    def was_open(self) -> bool:
        """Whether the store was left open the last time."""
        return data_directory.is_open(self._writer)

    def set_open(self, value: bool) -> None:
        """Notes in the database's own file whether it needs the log and the journal."""
        with self._explained("writing"):
            self.space.with_room(lambda: data_directory.set_open(self._writer, value))
            if value:
                self._fold_log()

    def keep_log(self) -> None:
        """Makes `close` leave the log as it is."""
        self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def snapshot(self) -> SqliteSource:
        """The database as it is now."""
        with self._explained("reading"):
            connection = open_reader(self.file, self._vfs)
            connection.execute("BEGIN")
            connection.execute(GET_MARK).fetchall()  # a transaction begins with its first read
        return SqliteSource(self.file, connection)

    def mark(self) -> Mark | None:
        """The mark of the journal; None if there is none or it is damaged."""
        with self._explained("reading"):
            return read_mark(self._writer)

    def newest(self) -> int:
        """The greatest arrival number of a message."""
        with self._explained("reading"), suppress(*UNREADABLE):
            return int(self._writer.execute(NEWEST).get or 0)
        return MAX_ARRIVAL

    def forget(self, *changed: Iterable[Pair | str]) -> None:
        """Forgets damage that a commit has replaced or deleted."""
        if self._damaged:
            for keys in changed:
                for key in keys:
                    self._damaged.pop(key if isinstance(key, str) else Key(*key), None)

    def tidy(self) -> bool:
        try:
            free = self._writer.pragma("freelist_count")
            if free <= (0 if self.space.full else self._kept_free_pages) or not self._writer.pragma("auto_vacuum"):
                return False
            self._writer.execute(f"PRAGMA incremental_vacuum({TIDY_PAGES})").fetchall()
            self._fold_log()
            return bool(self._writer.pragma("freelist_count") < free)
        except apsw.Error:
            return False  # nothing is lost, and the next try comes soon

    def _fold_log(self) -> None:
        """Writes the whole log into the database and makes both as short as possible. Does not wait for readers."""
        with suppress(apsw.Error, AttributeError):  # no connection exists while the database opens
            self._writer.set_busy_timeout(0)
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._log_pages = 0
            finally:
                self._writer.set_busy_timeout(BUSY_TIMEOUT_MS)

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        return self._scan(last_key(queue, after) + 1, last_key(queue, MAX_KEY), limit, forward=True)

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        return self._scan(last_key(queue, -1) + 1, last_key(queue, before - 1), limit, forward=False)

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None:
        low, high = last_key(queue, after) + 1, last_key(queue, last)
        if low > high or limit <= 0:
            return Columns(b"", b"")
        return self._read_aside(lambda connection: read_columns(connection, low, high, limit, most_bytes))

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None:
        low, high = last_key(queue, after) + 1, last_key(queue, last)
        if low > high or limit <= 0:
            return []
        return self._read_aside(lambda connection: read_lookup_ids(connection, low, high, limit))

    def _read_aside(self, read: Callable[[apsw.Connection], T]) -> T | None:
        """Reads one state of the store, on a separate connection."""
        with self._explained("reading"):
            if self._closed:
                raise apsw.ConnectionClosedError
            try:
                connection = self._aside.pop()
            except IndexError:
                connection = open_aside(self.file, self._vfs)
            found: T | None = None
            try:
                with suppress(Suspicious, *UNREADABLE), connection:
                    found = read(connection)
            finally:
                if self._closed:
                    connection.close()
                else:
                    self._aside.append(connection)
        return found

    def oldest(self) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for key, arrived_ms in self.firsts():
            found[key.queue] = min(found.get(key.queue, arrived_ms), arrived_ms)
        return found

    def firsts(self) -> list[tuple[Key, int]]:
        """The first message of each queue and priority, and its arrival; nothing if the database is damaged."""
        with self._explained("reading"), suppress(*UNREADABLE):
            return [(unpack_key(key), arrived_ms) for key, arrived_ms in self._reader.execute(FIRSTS)]
        return []

    def get(self, queue: int, lookup_id: int) -> Record | None:
        try:
            key = pack_key(queue, lookup_id)
        except ValueError:
            return None
        with self._explained("reading"):
            return self._get(key)

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        # Keys come only from the index, so an unreadable row does not hide others.
        found: list[Record] = []
        with self._explained("reading"), self._snapshot(), closing(self._reader.execute(EXPIRED, (now_s,))) as keys:
            for (key,) in keys:
                if len(found) >= limit:
                    break
                if keep(unpack_key(key)):
                    continue
                with suppress(CorruptRecord):
                    record = self._get(key)
                    if record is not None:
                        found.append(record)
        return found

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        # Read every row: a damaged name could mislead a search past sound ones. Keep the result until the next commit,
        # because a start asks for many prefixes.
        commits, (read_at, found) = self._commits, self._state
        if read_at != commits:
            found = {}
            with self._explained("reading"), self._snapshot():
                for name, value, checksum in self._state_rows():
                    text = name.decode("utf-8", "replace")
                    if checksum != state_checksum(name, value):
                        self._note(text, f"{self.file}: state {text!r}: the checksum is wrong")
                    else:
                        found[text] = value
            self._state = commits, found
        return {name: value for name, value in found.items() if name.startswith(prefix)}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        return dict(self._damaged)

    def close(self) -> None:
        """Folds the log into the database, closes it, and frees the directory. A second call does nothing."""
        with self._explained("closing"):
            self._opened.close()

    def _close_aside(self) -> None:
        self._closed = True
        while self._aside:
            self._aside.pop().close()

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turns SQLite's errors into StorageErrors."""
        try:
            yield
        except apsw.Error as error:
            raise explain(self.file, doing, error) from error

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """All reads within this context see one state of the store."""
        self._reader.execute("BEGIN")
        try:
            yield
        finally:
            if self._reader.in_transaction:  # after some errors SQLite has ended it
                self._reader.execute("ROLLBACK")  # nothing was written, and COMMIT fails after an unreadable row

    def _roll_back(self) -> None:
        # After some errors SQLite has rolled back already. If even this fails, report the first error.
        with suppress(apsw.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _checkpoint_if_long(self) -> None:
        self._log_pages += self._writer.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)[0]
        if self._log_pages >= self._checkpoint_pages:
            with suppress(apsw.Error):  # committed data is safe in the log; the next commit tries again
                in_log, folded = self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if folded == in_log:
                    self._log_pages = 0

    def _note(self, key: Key | str, reason: str) -> None:
        if len(self._damaged) < MAX_DAMAGED:
            self._damaged[key] = reason

    def _note_row(self, key: int, reason: str) -> None:
        place = unpack_key(key)
        self._note(place, f"{self.file}: queue {place.queue}, lookup id {place.lookup_id:#x}: {reason}")

    def _get(self, key: int) -> Record | None:
        try:
            row = self._reader.execute(GET, (key,)).fetchone()
            if row is not None and not key_is_sound(row):
                queue, lookup_id = unpack_key(row[0])
                raise CorruptRecord(f"queue {queue}, lookup id {lookup_id:#x}: the checksum of the key is wrong")
            return None if row is None else from_row(row)
        except CorruptRecord as error:
            self._note(unpack_key(key), f"{self.file}: {error}")
            raise CorruptRecord(f"{self.file}: {error}") from error
        except UNREADABLE as error:
            self._note_row(key, f"SQLite cannot read it ({error})")
            raise CorruptRecord(self._damaged.get(unpack_key(key), f"{self.file}: {error}")) from error

    def _scan(self, low: int, high: int, limit: int, *, forward: bool) -> list[Record]:
        """The sound records with low <= key <= high, from one end."""
        if low > high or limit <= 0:
            return []
        found: list[Record] = []
        first: int | None = None
        with self._explained("reading"), self._snapshot():
            with closing(self._walk(low if forward else high, low, high, forward=forward)) as rows:
                for row in rows:
                    key = row[0]
                    if first is None:
                        first = key
                    if low <= key <= high:
                        self._append_sound(found, row)
                        if len(found) == limit:
                            break
                    elif (key > high) is forward:
                        break
            missed = self._missed(first, low, high, forward=forward)
        if missed:
            merged = {record.lookup_id: record for record in (*found, *missed)}
            found = [merged[lookup_id] for lookup_id in sorted(merged, reverse=not forward)][:limit]
        return found

    def _missed(self, first: int | None, low: int, high: int, *, forward: bool) -> list[Record]:
        """Records of the range that the search missed because a damaged key misled it. Usually the nearest neighbour is
        sound and outside the range, which shows that there are none."""
        start = (MAX_KEY if forward else MIN_KEY) if first is None else first - (1 if forward else -1)
        missed: list[Record] = []
        with closing(self._walk(start, low, high, forward=not forward)) as rows:
            for row in rows:
                if low <= row[0] <= high:
                    self._append_sound(missed, row)
                elif (row[0] < low) is forward:
                    break
        return missed

    def _append_sound(self, records: list[Record], row: Row) -> None:
        try:
            records.append(from_row(row))
        except CorruptRecord as error:
            self._note(unpack_key(row[0]), f"{self.file}: {error}")

    def _state_rows(self) -> Iterator[tuple[bytes, bytes, int]]:
        """The rows of `state`. Notes and skips rows that SQLite cannot read."""
        place = 0
        passed_over = -1
        while True:
            try:
                for name, value, checksum in self._reader.execute(STATE, (place,)):
                    yield name or b"", value or b"", checksum
                    place += 1
                return
            except UNREADABLE as error:
                if passed_over == place - 1:
                    raise  # two in a row: the page is damaged
                self._note(f"#{place}", f"{self.file}: state, row {place}: SQLite cannot read it ({error})")
                passed_over = place
                place += 1

    def _walk(self, start: int, low: int, high: int, *, forward: bool) -> Generator[Row]:
        """Rows from `start` on with sound keys, in order. Notes and skips all others, also those that SQLite cannot
        read. Only rows between `low` and `high` have their packets."""
        walk, step = (FORWARD, 1) if forward else (BACKWARD, -1)
        parameters: tuple[Any, ...] = (low, high, start)
        unreadable: list[int] = []
        seen = 0
        last: int | None = None
        while MIN_KEY <= start <= MAX_KEY:
            try:
                with closing(self._reader.execute(walk, parameters)) as rows:
                    for row in islice(rows, seen, None):
                        seen += 1
                        if not key_is_sound(row):
                            self._note_row(row[0], "the checksum of the key fails")
                        elif last is not None and (row[0] - last) * step <= 0:
                            self._note_row(row[0], "the row is out of order: a page of the file is damaged")
                        else:
                            last = row[0]
                            yield row
                return
            except UNREADABLE as error:
                if len(unreadable) == MAXUNREADABLE:
                    raise
                find = FORWARD_KEY if forward else BACKWARD_KEY
                place = (0, 0, start, json.dumps(unreadable), seen)
                row = self._reader.execute(find, place).fetchone()  # raises too if the page is damaged
                if row is None:
                    raise
                self._note_row(row[0], f"SQLite cannot read it ({error})")
                unreadable.append(row[0])
                walk = FORWARD_EXCEPT if forward else BACKWARD_EXCEPT
                parameters = (low, high, start, json.dumps(unreadable))


def _statements(insert: str, rows: list[Row], width: int) -> Iterator[tuple[str, list[Any]]]:
    """The fewest statements, with parameters, that put all `rows`."""
    place = 0
    while place < len(rows):
        count = min(len(rows) - place, MAX_ROWS)
        if count > ROW_GROUP:
            count -= count % ROW_GROUP
        parameters: list[Any] = []
        for row in rows[place : place + count]:
            parameters += row
        yield insert + ",".join(["(" + ",".join("?" * width) + ")"] * count), parameters
        place += count
