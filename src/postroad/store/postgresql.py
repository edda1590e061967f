"""The durable store in PostgreSQL: frames of commits are rows of journal tables, and what stays moves into a table of
messages.

Each commit is one statement, and takes place only if this process still holds the lease. If its answer is lost, the
store looks it up on a new connection before anybody is told. The new connection first changes the fence of the lease,
so that nothing can still arrive by the old one. Nobody's wait for a replica is ever ended from here.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from struct import Struct
from threading import Event, Lock, Thread
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from postroad.errors import CorruptRecord, LeaseLost, StorageError
from postroad.store.frames import Body, Segment, decode
from postroad.store.interface import MAX_ARRIVAL, Batch, Columns, Key, Pair, Post, Record
from postroad.store.layered import Layers
from postroad.store.postgresql_connection import (
    READ_S,
    Blame,
    Connection,
    Connector,
    DatabaseFault,
    check_rights,
    close_quietly,
    has_tables,
    is_broken,
)
from postroad.store.replay import RANDOM_BYTES, replay_segments
from postroad.store.rows import (
    MAX_KEY,
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
from postroad.store.snapshot import StoreSnapshot
from postroad.store.writer import Writer

log = logging.getLogger(__name__)

SEGMENT_BYTES = 16 << 20  # of a generation of the journal: each one is a table, and tables cost the server something
FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 1.0  # between attempts to reach the database
MOST_ASIDE = 4  # idle connections for readers of long ranges
SNAPSHOT_ROWS = 500  # read at once
DROP_MS = 50  # for which the drop of a journal table waits for others that read it: the next try comes soon
USE_S = 60.0  # between two looks at the size of the tables

T = TypeVar("T")

_COLUMNS = "key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum, packet"
_REFENCE = "UPDATE lease SET fence = fence + 1 WHERE epoch = %s AND instance = %s AND NOT free RETURNING fence"
_HOLDER = "SELECT holder FROM lease"
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (position BIGINT PRIMARY KEY, frame BYTEA NOT NULL);
ALTER TABLE {} ALTER COLUMN frame SET STORAGE EXTERNAL"""
_COMMIT = "INSERT INTO {} (position, frame) SELECT %s, %b FROM lease WHERE fence = %s FOR KEY SHARE"
_FIND = "SELECT 1 FROM {} WHERE position = %s"
_FRAMES = "SELECT position, frame FROM {} ORDER BY position"
_JOURNALS = """
SELECT substr(relname, 9)::bigint FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname ~ '^journal_[0-9]+$' ORDER BY 1"""
_MARK = "SELECT spilled, newest, checksum, serial FROM mark"
_SET_MARK = """
WITH held AS (SELECT 1 FROM lease WHERE fence = %s FOR KEY SHARE)
UPDATE mark SET serial = serial + 1, spilled = %s, newest = %s, checksum = %s FROM held WHERE serial = %s"""
_SET_STATE = """
INSERT INTO state SELECT * FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[])
ON CONFLICT (name) DO UPDATE SET value = excluded.value, checksum = excluded.checksum"""
_DELETE_STATE = "DELETE FROM state WHERE name = ANY(%s::bytea[])"
_DELETE = "DELETE FROM message WHERE key = ANY(%s::bigint[])"
_COPY = f"COPY message ({_COLUMNS}) FROM STDIN (FORMAT binary)"
_FORWARD = f"SELECT {_COLUMNS} FROM message WHERE key BETWEEN %s AND %s ORDER BY key LIMIT %s"
_BACKWARD = f"SELECT {_COLUMNS} FROM message WHERE key BETWEEN %s AND %s ORDER BY key DESC LIMIT %s"
_SIZES = """
SELECT key, key_checksum, octet_length(packet) FROM message WHERE key BETWEEN %s AND %s ORDER BY key LIMIT %s"""
_EXPIRED = f"""
SELECT {_COLUMNS} FROM message WHERE expires_s <> 0 AND (expires_s, key) > (%s, %s) AND expires_s < %s
ORDER BY expires_s, key LIMIT %s"""
_STATE = "SELECT name, value, checksum FROM state"
# Goes from the first message of each queue and priority straight to that of the next, in one step each.
_FIRSTS = """
WITH RECURSIVE first (key) AS (
    (SELECT key FROM message ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (SELECT key FROM message WHERE key >= ((first.key >> 44) + 1) << 44 ORDER BY key LIMIT 1)
    FROM first WHERE first.key >> 44 < 524287 -- behind the last priority of the last queue there is no number
)
SELECT key, key_checksum, arrived_ms FROM first JOIN message USING (key)"""
_USE = """
SELECT sum(pg_total_relation_size(oid)) FILTER (WHERE relname !~ '^journal_'),
    sum(pg_total_relation_size(oid)) FILTER (WHERE relname ~ '^journal_')
FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"""

# The binary format of COPY: a head, a row as a count of columns and each with its size, and an end.
_COPY_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_ROW = Struct(">h" + "iq" * 7 + "i")
_COPY_END = b"\xff\xff"


def first_generation() -> int:
    """The generation before the first one of a new journal: random, so that no sender can imitate it in a message."""
    return int.from_bytes(os.urandom(RANDOM_BYTES), "big")


class Sessions:
    """The connections of the process that holds the lease, and what becomes of them.

    One thread at a time may use `certain`, `mover` and `finish`; `read` belongs to the event loop, or to whoever holds
    the store's lock.
    """

    def __init__(self, connector: Connector, epoch: int, instance: UUID, lost: Callable[[str], object]) -> None:
        self.connector = connector
        self.fence = 0
        self.trouble: str | None = None  # why the database does not answer
        self.waits_since: float | None = None  # when the transaction under way began, by time.monotonic
        self._epoch = epoch
        self._instance = instance
        self._lost = lost
        self._writer: Connection | None = None
        self._mover: Connection | None = None
        self._reader: Connection | None = None
        self._reader_fence = 0  # of the lease when it was opened
        self._mending = Lock()
        self._given_up = Event()
        self._aside: deque[Connection] = deque()

    # Writing

    def certain(self, doing: str, work: Callable[[Connection], T], find: Callable[[Connection], T | None]) -> T:
        """Runs `work`, a transaction, until it is certain that it took place, and that a replica has it too where the
        database waits for one. `find` looks for what it did, after its answer was lost. Raises LeaseLost once another
        process has taken over, and StorageError after `give_up`."""
        outermost = self.waits_since is None
        if outermost:
            self.waits_since = time.monotonic()
        try:
            return self._until_certain(doing, work, find)
        finally:
            if outermost:
                self.waits_since = None

    def _until_certain(self, doing: str, work: Callable[[Connection], T], find: Callable[[Connection], T | None]) -> T:
        doubtful = False
        pause_s = FIRST_PAUSE_S
        while True:
            connection = None
            try:
                connection = self.writer()
                found = find(connection) if doubtful else None
                if found is None:
                    doubtful = True
                    connection.expect_confirmation()
                    found = work(connection)
                    if connection.unconfirmed:
                        raise psycopg.OperationalError("the wait for a replica was ended")
                self._well()
                return found
            except (psycopg.Error, OSError, DatabaseFault) as error:
                ended = connection is not None and connection.unconfirmed
                if connection is not None and not is_broken(connection) and not ended:
                    doubtful = False  # the server has refused: nothing has happened
                else:
                    self._drop_writer()
                self.failed(doing, error)
            if self._given_up.wait(pause_s):
                raise StorageError(f"{self.trouble}; the manager stops")
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def writer(self) -> Connection:
        """The connection that commits. A new one changes the fence."""
        if self._writer is None or is_broken(self._writer):
            close_quietly(self._writer)
            self._writer = None
            connection = self.connector.connect("store")
            try:
                self._refence(connection)
            except BaseException:
                close_quietly(connection)
                raise
            self._writer = connection
        return self._writer

    def _refence(self, connection: Connection) -> None:
        """After this, nothing that was sent by another connection can still change the store. What had changed before
        is on the replica too: its place in the log is before that of this change."""
        while True:
            connection.expect_confirmation()
            row = connection.execute(_REFENCE, (self._epoch, self._instance)).fetchone()
            if row is None:
                raise self.deposed(connection)
            self.fence = row[0]
            if not connection.unconfirmed:
                return

    def deposed(self, connection: Connection) -> LeaseLost:
        """Tells of the process that has taken over."""
        row = connection.execute(_HOLDER).fetchone()
        holder = "another process" if row is None or not row[0] else str(row[0])
        self._lost(holder)
        return LeaseLost(f"{self.connector.place}: {holder} has taken over")

    def give_up(self) -> None:
        """From now on, nothing waits for the database."""
        self._given_up.set()

    def mover(self) -> Connection:
        """The connection that moves what stays, in long transactions."""
        if self._mover is None or is_broken(self._mover):
            self.drop_mover()
            self._mover = self.connector.connect("store")
        return self._mover

    def drop_mover(self) -> None:
        close_quietly(self._mover)
        self._mover = None

    def _drop_writer(self) -> None:
        close_quietly(self._writer)
        self._writer = None

    def fence_off(self) -> None:
        """The next use of the writer begins a new connection, which changes the fence."""
        self._drop_writer()

    def failed(self, doing: str, error: Exception) -> StorageError:
        if isinstance(error, DatabaseFault):
            fault = error
        elif isinstance(error, psycopg.Error | OSError):
            fault = self.connector.explain(doing, error)
        else:
            fault = DatabaseFault(f"{self.connector.place}: {doing} failed: {error!r}", Blame.SERVER)
        if self.trouble is None:
            log.warning("the store's database does not do its work", extra={"reason": fault})
        self.trouble = str(fault)
        return fault

    def _well(self) -> None:
        if self.trouble is not None:
            if self._reader is None:
                self._mend_soon()
            else:
                self._recovered()

    def _recovered(self) -> None:
        self.trouble = None
        log.info("the store's database works again")

    # Reading

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Raises StorageError at once while there is no connection, and after READ_S without an answer."""
        connection = self._reader
        if connection is None:
            self._mend_soon()
            raise StorageError(self.trouble or f"{self.connector.place}: the connection is being opened")
        try:
            try:
                return fetch(connection, query, parameters)
            except psycopg.OperationalError:
                if self._reader_fence == self.fence:
                    raise
                # Since it was opened, the writer has reached the server anew: it was restarted, or another one took its
                # place, and a new connection is quick.
                close_quietly(connection)
                self.open_reader()
                return fetch(self._reader or connection, query, parameters)
        except (psycopg.Error, OSError, DatabaseFault) as error:
            connection = self._reader or connection
            self._reader = None
            close_quietly(connection)
            fault = self.failed("reading", error)
            self._mend_soon()
            raise fault from error

    def open_reader(self) -> None:
        connection = self.connector.connect("store")
        connection.bound(READ_S)
        self._reader, self._reader_fence = connection, self.fence

    def _mend_soon(self) -> None:
        """Opens the reader's connection again, in a thread of its own, however long that takes."""
        if self._mending.acquire(blocking=False):
            Thread(target=self._mend, name="postroad-mender", daemon=True).start()

    def _mend(self) -> None:
        try:
            pause_s = FIRST_PAUSE_S
            while self._reader is None:
                try:
                    self.open_reader()
                    self._recovered()
                except (psycopg.Error, OSError, StorageError) as error:
                    self.failed("connecting", error)
                    if self._given_up.wait(pause_s):
                        return
                    pause_s = min(2 * pause_s, MOST_PAUSE_S)
        finally:
            self._mending.release()

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        """A connection for one reader of a long range, in any thread. Raises StorageError."""
        if self._given_up.is_set():
            raise StorageError("the store is closed")
        try:
            try:
                connection = self._aside.pop()
            except IndexError:
                connection = self.connector.connect("store")
            try:
                yield connection
            except BaseException:
                close_quietly(connection)
                raise
        except (psycopg.Error, OSError) as error:
            raise self.failed("reading", error) from error
        if len(self._aside) < MOST_ASIDE and not self._given_up.is_set():
            self._aside.append(connection)
        else:
            close_quietly(connection)

    def close(self) -> None:
        self.give_up()
        for connection in (self._writer, self._mover, self._reader):
            close_quietly(connection)
        self._writer = self._mover = self._reader = None
        while self._aside:
            close_quietly(self._aside.pop())


def fetch(connection: Connection, query: str, parameters: Sequence[object] = ()) -> list[Row]:
    with connection.cursor(binary=True) as cursor:
        return cursor.execute(query.encode(), parameters or None, prepare=True).fetchall()


class FrameTables:
    """The journal: a table for each generation, a row for each commit."""

    def __init__(self, sessions: Sessions, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.generation = 0
        self.position = 0
        self._before = 0  # where the previous generation ended
        self._sessions = sessions

    def go_on(self, generation: int, before: int, position: int) -> None:
        """Continues a generation at `position`, or begins one at 0."""
        self._create(generation)
        self.generation, self._before, self.position = generation, before, position

    def append(self, body: Body) -> bool:
        if self.position > max(0, self.segment_bytes - body.size):
            return False
        position = self.position
        frame = body.frame(self.generation, self._before, position)
        table = _journal(self.generation)
        commit, find = _COMMIT.format(table).encode(), _FIND.format(table).encode()

        def work(connection: Connection) -> bool:
            with connection.cursor(binary=True) as cursor:
                if cursor.execute(commit, (position, frame, self._sessions.fence), prepare=True).rowcount != 1:
                    raise self._sessions.deposed(connection)
            return True

        self._sessions.certain(
            "committing", work, lambda connection: True if connection.execute(find, (position,)).fetchone() else None
        )
        self.position = position + len(frame)
        return True

    def rotate(self) -> None:
        self.go_on(self.generation + 1, self.position, 0)

    def _create(self, generation: int) -> None:
        table = _journal(generation)

        def work(connection: Connection) -> bool:
            connection.execute(_CREATE.format(table, table).encode(), prepare=False)
            return True

        self._sessions.certain("making a table of the journal", work, lambda connection: None)


class Tables:
    """The database of the store. The reading methods are those of Store."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._damaged: dict[Key | str, str] = {}
        self._serial = 0
        self._moved_newest = MAX_ARRIVAL  # no message with a greater arrival number can be here
        self._newest = 0  # of the transaction under way
        self._moving = False
        self._state: tuple[int, dict[str, bytes]] = (-1, {})  # as of this serial

    def mark(self) -> Mark:
        """Raises StorageError if it is damaged."""
        rows = self._sessions.read(_MARK)
        if len(rows) != 1 or Mark(*rows[0][:2]).checksum != rows[0][2]:
            raise StorageError(f"{self._sessions.connector.place}: the row of `mark` is damaged; restore the database")
        mark = Mark(*rows[0][:2])
        self._serial, self._moved_newest = rows[0][3], mark.newest
        return mark

    # Moving

    def move(self, deletes: Collection[Pair], puts: Collection[Record]) -> None:
        try:
            connection = self._sessions.mover()
            if not self._moving:
                connection.execute("BEGIN")
                self._moving = True
            rows = [to_row(record) for record in puts]
            here = self._moved_newest
            gone = [pack_key(*key) for key in deletes]
            gone += [row[0] for row in rows if row[0] & MAX_ARRIVAL <= here]
            if gone:
                connection.execute(_DELETE, (gone,), prepare=True)
            if rows:
                self._newest = max(self._newest, max(row[0] & MAX_ARRIVAL for row in rows))
                with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
                    copy.write(_copied(rows))
        except (psycopg.Error, OSError) as error:
            self.abandon()
            raise self._sessions.failed("moving messages", error) from error

    def finish(self, state: Mapping[str, bytes | None], mark: Mark) -> None:
        sessions = self._sessions
        kept = [(name.encode(), value) for name, value in state.items() if value is not None]
        gone = [name.encode() for name, value in state.items() if value is None]
        connection: Connection | None = None
        try:
            connection = sessions.mover()
            if not self._moving:
                connection.execute("BEGIN")
                self._moving = True
            if gone:
                connection.execute(_DELETE_STATE, (gone,))
            if kept:
                checksums = [state_checksum(*each) for each in kept]
                connection.execute(_SET_STATE, ([each for each, _ in kept], [each for _, each in kept], checksums))
            marked = connection.execute(_SET_MARK, (sessions.fence, *mark, mark.checksum, self._serial))
            if marked.rowcount != 1:
                self.abandon()
                sessions.fence_off()
                sessions.writer()  # raises LeaseLost if that is why
                raise DatabaseFault(f"{sessions.connector.place}: another process has moved messages", Blame.NOBODY)
            connection.expect_confirmation()
            connection.execute("COMMIT")
            if connection.unconfirmed:
                raise psycopg.OperationalError("the wait for a replica was ended")
        except (psycopg.Error, OSError) as error:
            self.abandon()
            fault = sessions.failed("moving messages", error)
            if not self._took_place():
                raise fault from error
        self._moving = False
        self._serial += 1
        self._moved_newest, self._newest = max(self._moved_newest, mark.newest), 0
        self._state = -1, {}

    def _took_place(self) -> bool:
        """Whether the transaction whose answer was lost is there."""
        self._sessions.fence_off()
        serial = self._sessions.certain(
            "looking up a commit", lambda connection: fetch(connection, _MARK)[0][3], lambda connection: None
        )
        return bool(serial == self._serial + 1)

    def abandon(self) -> None:
        self._moving = False
        self._moved_newest = max(self._moved_newest, self._newest)  # unless its transaction did take place after all
        self._newest = 0
        self._sessions.drop_mover()

    def drop_journals(self, spilled: int) -> None:
        """Drops the tables of generations that are here. Leaves one that somebody reads, for the next time."""
        if self._moving:
            return
        try:
            connection = self._sessions.mover()
            for (generation,) in connection.execute(_JOURNALS).fetchall():
                if generation <= spilled:
                    with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
                        connection.execute(f"SET LOCAL lock_timeout TO {DROP_MS}")
                        connection.execute(f"DROP TABLE {_journal(generation)}".encode())
        except (psycopg.Error, OSError):
            self._sessions.drop_mover()

    def use(self) -> Mapping[str, int]:
        """Bytes of the tables. Slow."""
        try:
            connection = self._sessions.mover()
            row = connection.execute(_USE).fetchone() or (0, 0)
            return {"database": int(row[0] or 0), "journal": int(row[1] or 0)}
        except (psycopg.Error, OSError):
            self._sessions.drop_mover()
            return {}

    def forget(self, *changed: Iterable[Pair | str]) -> None:
        if self._damaged:
            for keys in changed:
                for key in keys:
                    self._damaged.pop(key if isinstance(key, str) else Key(*key), None)

    # Reading

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        low, high = last_key(queue, after) + 1, last_key(queue, MAX_KEY)
        found: list[Record] = []
        while len(found) < limit and low <= high:
            rows = self._sessions.read(_FORWARD, (low, high, limit - len(found)))
            found += self._sound(rows)
            if not rows:
                break
            low = rows[-1][0] + 1
        return found

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        low, high = last_key(queue, -1) + 1, last_key(queue, before - 1)
        found: list[Record] = []
        while len(found) < limit and low <= high:
            rows = self._sessions.read(_BACKWARD, (low, high, limit - len(found)))
            found += self._sound(rows)
            if not rows:
                break
            high = rows[-1][0] - 1
        return found

    def get(self, queue: int, lookup_id: int) -> Record | None:
        try:
            key = pack_key(queue, lookup_id)
        except ValueError:
            return None
        rows = self._sessions.read(_FORWARD, (key, key, 1))
        if rows and not self._sound(rows):
            raise CorruptRecord(self._damaged[Key(queue, lookup_id)])
        return from_row(rows[0]) if rows else None

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        found: list[Record] = []
        after = (0, -1)
        while len(found) < limit:
            rows = self._sessions.read(_EXPIRED, (*after, now_s, limit))
            found += [record for record in self._sound(rows) if not keep(Key(*record[:2]))]
            if len(rows) < limit:
                break
            after = rows[-1][3], rows[-1][0]
        return found[:limit]

    def firsts(self) -> list[tuple[Key, int]]:
        return [(unpack_key(row[0]), row[2]) for row in self._sessions.read(_FIRSTS) if key_is_sound(row)]

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        read_at, found = self._state
        if read_at != self._serial:
            serial, found = self._serial, {}
            for name, value, checksum in self._sessions.read(_STATE):
                text = name.decode("utf-8", "replace")
                if checksum != state_checksum(name, value):
                    self._damaged[text] = f"{self._place}: state {text!r}: the checksum is wrong"
                else:
                    found[text] = value
            self._state = serial, found
        return {name: value for name, value in found.items() if name.startswith(prefix)}

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None:
        low, high = last_key(queue, after) + 1, last_key(queue, last)
        if low > high or limit <= 0:
            return Columns(b"", b"")
        with self._sessions.aside() as connection:
            total = count = 0
            until = low - 1
            for key, _, size in fetch(connection, _SIZES, (low, high, limit)):
                total += size
                if count and total > most_bytes:
                    break
                count, until = count + 1, key
            rows = fetch(connection, _FORWARD, (low, until, count)) if count else []
        try:
            records = [from_row(row) for row in rows]
        except CorruptRecord:
            return None
        return Columns.of(records) if all(map(key_is_sound, rows)) else None

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None:
        low, high = last_key(queue, after) + 1, last_key(queue, last)
        if low > high or limit <= 0:
            return []
        with self._sessions.aside() as connection:
            rows = fetch(connection, _SIZES, (low, high, limit))
        return [unpack_key(row[0]).lookup_id for row in rows] if all(map(key_is_sound, rows)) else None

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        return dict(self._damaged)

    @property
    def _place(self) -> str:
        return str(self._sessions.connector.place)

    def _sound(self, rows: Iterable[Row]) -> list[Record]:
        found = []
        for row in rows:
            try:
                if not key_is_sound(row):
                    raise CorruptRecord("the checksum of the key is wrong")
                found.append(from_row(row))
            except CorruptRecord as error:
                self._damaged[unpack_key(row[0])] = f"{self._place}: {error}"
        return found


class PostgresqlSource:
    """The database of a snapshot: one transaction on a connection of its own."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        with self._explained():
            self._connection = connector.connect("snapshot")
            self._connection.execute("SET idle_in_transaction_session_timeout TO 0")

    def begin(self) -> None:
        """From here on, what is read is as it is now."""
        with self._explained():
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._connection.execute("SELECT 1 FROM mark")  # the first statement takes the snapshot

    def rows(self) -> Iterator[Row]:
        yield from self._all("rows", f"SELECT {_COLUMNS} FROM message ORDER BY key")

    def states(self) -> Iterator[tuple[bytes, bytes, int]]:
        yield from self._all("states", _STATE)

    def _all(self, name: str, query: str) -> Iterator[Any]:
        with self._explained(), self._connection.cursor(name) as cursor:
            cursor.execute(query.encode(), binary=True)
            while rows := cursor.fetchmany(SNAPSHOT_ROWS):
                yield from rows

    def close(self) -> None:
        close_quietly(self._connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError) as error:
            raise self._connector.explain("reading", error) from error


class PostgresqlStore(Layers[FrameTables, Tables]):
    """A Store in one schema, for the process that holds its lease. `lost` is called, in any thread, with HOST:PID of
    another process once that one has taken over: nothing was committed since.

    A commit waits for the database however long it is away. It raises StorageError only after `give_up`, and then it is
    not known whether its changes are there.
    """

    def __init__(
        self,
        connector: Connector,
        epoch: int,
        instance: UUID,
        lost: Callable[[str], object],
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._sessions = sessions = Sessions(connector, epoch, instance, lost)
        self._use: Mapping[str, int] = {}
        self._used_at = 0.0
        self._tidy_at = 0.0  # not before, after a fault
        try:
            sessions.writer()
            sessions.open_reader()
            tables, journal = Tables(sessions), FrameTables(sessions, segment_bytes)
            mark = tables.mark()
            found = _segments(sessions.writer(), mark.spilled)
            named = [(f"{connector.place}: {_journal(generation)}", segment) for generation, segment in found]
            replayed = replay_segments(mark, named, str(connector.place), tables.state)
            if found:
                generation, segment = found[-1]
                journal.go_on(generation, segment.before, segment.end)
            else:
                journal.go_on(mark.spilled + 1, 0, 0)
        except (psycopg.Error, OSError) as error:
            sessions.close()
            raise connector.explain("opening", error) from error
        except BaseException:
            sessions.close()
            raise
        super().__init__(journal, tables, replayed)

    @property
    def trouble(self) -> str | None:
        """Why the database does not answer; None while it does. Any thread may ask."""
        return self._sessions.trouble

    @property
    def waits_since(self) -> float | None:
        """Since when a commit waits for the database, by time.monotonic; None while none does. Any thread may ask."""
        return self._sessions.waits_since

    def committer(self, post: Post) -> Writer:
        return Writer(self, post)

    def is_short(self, batch: Batch) -> bool:
        return False

    def no_room(self) -> str | None:
        return None  # a full disk of the server lets commits wait

    def disk_use(self) -> Mapping[str, int]:
        return self._use

    def give_up(self) -> None:
        """Lets commits that wait for the database fail, because the process stops."""
        self._sessions.give_up()

    def _move_all(self) -> None:
        def work(connection: Connection) -> bool:
            super(PostgresqlStore, self)._move_all()
            return True

        self._sessions.certain("moving messages", work, lambda connection: None)

    def tidy(self, *, busy: bool = False) -> bool:
        now = time.monotonic()
        if now < self._tidy_at:
            return False
        spilled = self._spilled
        try:
            more = super().tidy(busy=busy)
        except StorageError:
            self._tidy_at = now + MOST_PAUSE_S  # nothing is lost
            return False
        if self._overlay.frozen is None and (self._spilled != spilled or not (more or busy)):
            self._database.drop_journals(self._spilled)
        if now - self._used_at > USE_S and not busy and self._overlay.frozen is None:
            self._used_at = now
            self._use = self._database.use()
        return more

    def snapshot(self) -> StoreSnapshot:
        source = PostgresqlSource(self._sessions.connector)
        try:
            with self._lock:
                hot, state = self._hot()
                source.begin()
        except BaseException:
            source.close()
            raise
        return StoreSnapshot(source, hot, state, len(self._damaged))

    def close(self) -> None:
        """Closes the connections. What the journal has stays there. A second call does nothing."""
        self._closed = True
        self._sessions.close()


def _segments(connection: Connection, spilled: int) -> list[tuple[int, Segment]]:
    """What only the journal has, by generation."""
    found = []
    for (generation,) in connection.execute(_JOURNALS).fetchall():
        if generation <= spilled:
            continue
        content = bytearray()
        with connection.cursor(binary=True) as cursor:
            for position, frame in cursor.stream(_FRAMES.format(_journal(generation)).encode()):
                content += bytes(max(0, position - len(content)))  # a missing row shows as damage
                content[position:] = frame
        segment = decode(bytes(content), generation.__eq__)
        if segment.frames:
            found.append((generation, segment))
    return found


def read_state(connector: Connector) -> dict[str, bytes]:
    """What `Store.state` would return after opening; nothing if there is no store yet. Takes and changes nothing."""
    try:
        with connector.connect("check") as connection:
            check_rights(connector, connection)
            if not has_tables(connector, connection):
                return {}
            found: dict[str, bytes | None] = {}
            for name, value, checksum in fetch(connection, _STATE):
                if checksum == state_checksum(name, value):
                    found[name.decode("utf-8", "replace")] = value
            spilled = fetch(connection, _MARK)[0][0]
            for _, segment in _segments(connection, spilled):
                for frame in segment.frames:
                    found |= frame.state
    except (psycopg.Error, OSError) as error:
        raise connector.explain("reading", error) from error
    return {name: value for name, value in found.items() if value is not None}


def _journal(generation: int) -> str:
    return f"journal_{generation}"


def _copied(rows: list[Row]) -> bytes:
    pieces = [_COPY_HEAD]
    pack = _COPY_ROW.pack
    for key, key_checksum, arrived_ms, expires_s, aborts, reason, checksum, packet in rows:
        pieces += (
            pack(
                8, 8, key, 8, key_checksum, 8, arrived_ms, 8, expires_s, 8, aborts, 8, reason, 8, checksum, len(packet)
            ),
            packet,
        )
    pieces.append(_COPY_END)
    return b"".join(pieces)
