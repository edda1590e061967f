"""What every durable store does: a journal that makes commits durable, and a database for messages that stay.

A commit is one write to the journal. Its changes live in memory (overlay.py) until their generation is full and moves
into the database in bulk. A message that leaves before that never reaches the database. Where journal and database are,
this module does not know: directory_store.py has files, postgresql.py rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from threading import Lock
from typing import Generic, Protocol, TypeVar

from postroad.errors import CorruptRecord, StorageError
from postroad.store.frames import Body, encode
from postroad.store.interface import MAX_ARRIVAL, NUMBERS, PRIORITY_SHIFT, Batch, Columns, Key, Pair, Record
from postroad.store.overlay import Overlay
from postroad.store.replay import Replayed
from postroad.store.rows import Mark

MAX_ENTRIES = 32_768  # of a generation, because a tombstone is small in the journal but not in memory
STEP_ROWS = 128  # rows that move into the database in one step, or more if time is short
HALF = 0.5  # of a generation
IDLE_ROWS = 1024  # rows in one step while nothing is committed
SHORT_BYTES = 1 << 15  # of packets and state in a commit that counts as one short write
BEGIN, END = -1, 1 << 62  # below and above every lookup id
MOST = 0.75  # of the changes of a generation
BULK = 64  # changes in a commit; from this number on, a commit to the database alone costs no more than both
WINDOW = 8192  # changes
FEW = 8  # times fewer


class Journal(Protocol):
    """Where frames become durable, in the order of the commits. `position` is where the next one goes in its
    generation, which is full at `segment_bytes`."""

    segment_bytes: int
    generation: int
    position: int

    def append(self, body: Body) -> bool:
        """Makes one commit durable. Returns False if the generation has no room for it: nothing is written then. After
        an error the commit does not count."""

    def rotate(self) -> None:
        """Begins the next generation. The one before the last is no longer needed."""


class Database(Protocol):
    """Where messages stay. The reading methods are those of Store. After a StorageError in `move` or `finish`,
    everything moved since the last `finish` is dropped."""

    def move(self, deletes: Collection[Pair], puts: Collection[Record]) -> None:
        """Writes a part of a long transaction, which `finish` commits."""

    def finish(self, state: Mapping[str, bytes | None], mark: Mark) -> None:
        """Commits everything moved, with state and the journal's mark."""

    def abandon(self) -> None:
        """Drops everything moved since the last `finish`."""

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]: ...

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]: ...

    def get(self, queue: int, lookup_id: int) -> Record | None: ...

    def expired(
        self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False
    ) -> list[Record]: ...

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None: ...

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None: ...

    def firsts(self) -> list[tuple[Key, int]]:
        """The first message of each queue and priority, and its arrival."""

    def state(self, prefix: str = "") -> Mapping[str, bytes]: ...

    def forget(self, *changed: Iterable[Pair | str]) -> None:
        """Forgets damage that a commit has replaced or deleted."""

    @property
    def damaged(self) -> Mapping[Key | str, str]: ...


J = TypeVar("J", bound=Journal)
D = TypeVar("D", bound=Database)


class Layers(Generic[J, D]):
    """What every durable store does: it commits to a journal, moves what stays into a database, and merges both for
    readers. LayeredStore does it with files, PostgresqlStore with rows.
    """

    def __init__(self, journal: J, database: D, replayed: Replayed) -> None:
        self._lock = Lock()  # for the overlay: readers see only whole batches
        self._closed = False
        # By queue, a pair (a, b): the overlay covers every record in the database with a < lookup id <= b.
        self._gaps: dict[int, tuple[int, int]] = {}
        self._keeps_gaps = True  # but not while it is unknown whether a commit to the database is visible
        # Entries of the frozen layer that the database's transaction does not have.
        self._unmoved: Iterator[Key] | None = None
        self._left = 0  # how many of those there are
        self._used = 0.0  # how full the active generation was at the last move of the frozen one
        self._moved = 0  # rows of the frozen layer moved so far
        self._was_large = False  # whether the frozen layer was
        self._bulk = Bulk()
        self._journal = journal
        self._database = database
        self._overlay = replayed.overlay
        self._damaged = replayed.damaged  # in the journal
        self._spilled = replayed.mark.spilled  # the last generation that is in the database or about to be

    # Writing

    def commit(self, batches: Iterable[Batch]) -> None:
        deletes, puts, state = _merged(batches)
        if not (deletes or puts or state):
            return
        self._check_open()
        self._write(deletes, puts, state)
        if self._damaged:
            for changed in (deletes, puts, state):
                for key in changed:
                    self._damaged.pop(key if isinstance(key, str) else Key(*key), None)

    def _write(self, deletes: Collection[Pair], puts: Mapping[Pair, Record], state: Mapping[str, bytes | None]) -> None:
        """Makes one commit durable."""
        self._append(encode(deletes, puts, state))
        with self._lock:
            self._overlay.apply(deletes, puts, state)

    def _append(self, body: Body) -> None:
        if len(self._overlay.active.entries) >= MAX_ENTRIES or not self._journal.append(body):
            self._rotate()
            self._journal.append(body)

    def _rotate(self) -> None:
        """Freezes the active layer, after moving the frozen one into the database."""
        if self._overlay.frozen is not None:
            self._move_all()
        self._was_large = self._fill() >= HALF
        with self._lock:
            self._overlay.freeze(self._journal.generation + 1)
        self._journal.rotate()
        self._used = 0.0

    def _move_all(self) -> None:
        while self._overlay.frozen is not None:
            self._move(MAX_ENTRIES)

    def _move(self, rows: int) -> None:
        """Moves up to `rows` entries of the frozen layer. The last one completes the generation in the database.

        After a fault, the next call begins again.
        """
        frozen = self._overlay.frozen
        assert frozen is not None
        entries = frozen.entries
        try:
            if self._unmoved is None:
                keys = sorted(entries)
                # From here on the database may have them, so a delete needs a tombstone.
                arrivals = (key[1] & MAX_ARRIVAL for key in keys if entries[key] is not None)
                self._overlay.newest = max(self._overlay.newest, max(arrivals, default=0))
                self._unmoved, self._left, self._moved = iter(keys), len(keys), 0
            keys = list(islice(self._unmoved, rows))
            self._left -= len(keys)
            puts = [record for key in keys if (record := entries.get(key)) is not None]
            deletes = [key for key in keys if entries.get(key, key) is None]
            self._database.move(deletes, puts)
            self._moved += len(deletes) + len(puts)
            if self._left > 0:
                return
            self._spilled = frozen.generation
            self._database.finish(frozen.state, Mark(frozen.generation, self._overlay.newest))
        except BaseException:
            self._database.abandon()
            self._unmoved = None
            self._spilled = frozen.generation - 1
            raise
        self._unmoved = None
        if self._was_large:
            self._bulk.moved(self._moved / max(frozen.changes, 1), self._overlay.newest)
        with self._lock:
            self._overlay.frozen = None
            self._gaps.clear()

    def tidy(self, *, busy: bool = False) -> bool:
        if busy:
            return self._move_some()
        if self._overlay.frozen is None and self._overlay.active:
            self._rotate()
        if self._overlay.frozen is not None:
            self._move(IDLE_ROWS)
            return True
        return False

    def _move_some(self) -> bool:
        """Moves a part of the frozen layer, so that none of it is left when the active one is full.

        It begins when the active one is half full: messages that leave soon have left by then.
        """
        frozen, before, used = self._overlay.frozen, max(self._used, HALF), self._fill()
        self._used = min(used, 1.0)
        if frozen is None or used < HALF:
            return False
        left = len(frozen.entries) if self._unmoved is None else self._left
        share = 1.0 if used >= 1.0 else (used - before) / (1.0 - before)
        self._move(max(STEP_ROWS, int(left * share)))
        return True

    def _fill(self) -> float:
        """How full the active generation is, from 0 to 1."""
        journal = self._journal
        return max(journal.position / journal.segment_bytes, len(self._overlay.active.entries) / MAX_ENTRIES)

    # Reading

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        if limit <= 0:
            return []
        with self._lock:
            self._check_open()
            hot = self._overlay.after(queue, after, limit)
            cold = self._cold_after(queue, after, limit)
        return _merge(cold, hot, limit)

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        if limit <= 0:
            return []
        with self._lock:
            self._check_open()
            hot = self._overlay.before(queue, before, limit)
            cold: list[Record] = []
            is_last = self._gaps.get(queue) == (BEGIN, END)
            while not is_last and len(cold) < limit:
                page = self._database.scan_back(queue, before, limit)
                is_last = len(page) < limit
                cold += self._uncovered(page)
                before = page[-1].lookup_id if page else before
        return _merge(cold, hot, limit, reverse=True)

    def _cold_after(self, queue: int, after: int, limit: int) -> list[Record]:
        """Up to `limit` records of the database that the overlay does not cover."""
        start, gap = after, self._gaps.get(queue)
        if gap is not None and gap[0] <= after < gap[1]:
            start, after = gap
            if after == END:
                return []
        found: list[Record] = []
        position, is_last = after, False
        while not is_last and len(found) < limit:
            page = self._database.scan(queue, position, limit)
            is_last = len(page) < limit
            found += self._uncovered(page)
            position = page[-1].lookup_id if page else position
        if self._keeps_gaps:
            self._gaps[queue] = max(start, BEGIN), found[0].lookup_id - 1 if found else END
        return found[:limit]

    def _uncovered(self, records: list[Record]) -> list[Record]:
        covers = self._overlay.covers
        return [record for record in records if not covers(record[:2])]

    def get(self, queue: int, lookup_id: int) -> Record | None:
        with self._lock:
            self._check_open()
            is_here, record = self._overlay.find((queue, lookup_id))
            if is_here:
                return record
            gap = self._gaps.get(queue, (0, 0))
            if not gap[0] < lookup_id <= gap[1] or self._database.damaged:
                record = self._database.get(queue, lookup_id)
        if record is None and (key := Key(queue, lookup_id)) in self._damaged:
            raise CorruptRecord(self._damaged[key])
        return record

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        if limit <= 0:
            return []
        with self._lock:
            self._check_open()
            covers = self._overlay.covers
            found = [each for each in self._overlay.expiring(now_s) if not keep(Key(*each[:2]))]
            found += self._database.expired(now_s, limit, lambda key: covers(key) or keep(key))
        found.sort(key=lambda record: (record.expires_s, record.queue, record.lookup_id))
        return found[:limit]

    def oldest(self) -> Mapping[int, int]:
        firsts: dict[tuple[int, int], tuple[int, int]] = {}  # lookup id and arrival, by queue and rank
        with self._lock:
            self._check_open()
            cold = [(*key, arrived_ms) for key, arrived_ms in self._database.firsts()]
            for place, (queue, lookup_id, _) in enumerate(cold):
                if self._overlay.covers((queue, lookup_id)):
                    found = self._cold_after(queue, lookup_id, 1)
                    cold[place] = (queue, found[0].lookup_id, found[0].arrived_ms) if found else (queue, -1, 0)
            hot = [(*record[:2], record.arrived_ms) for layer in self._overlay.layers for record in layer.firsts()]
        for queue, lookup_id, arrived_ms in (*cold, *hot):
            if lookup_id >= 0:
                rank = (queue, lookup_id >> PRIORITY_SHIFT)
                firsts[rank] = min(firsts.get(rank, (END, 0)), (lookup_id, arrived_ms))
        found_ms: dict[int, int] = {}
        for (queue, _), (_, arrived_ms) in firsts.items():
            found_ms[queue] = min(found_ms.get(queue, arrived_ms), arrived_ms)
        return found_ms

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        with self._lock:
            self._check_open()
            found = {**self._database.state(prefix), **self._overlay.state()}
        return {name: value for name, value in sorted(found.items()) if value is not None and name.startswith(prefix)}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        with self._lock:
            state, covers = self._overlay.state(), self._overlay.covers
            found = {
                key: reason
                for key, reason in self._database.damaged.items()
                if not (key in state if isinstance(key, str) else covers(key))
            }
        return {**found, **self._damaged}

    def _hot(self) -> tuple[dict[Pair, Record | None], dict[str, bytes | None]]:
        """What only the journal has. Call it with the lock, and open the database's snapshot with the same lock: then
        no entry comes into the overlay or moves into the database in between."""
        self._check_open()
        hot = {key: record for layer in self._overlay.layers for key, record in layer.entries.items()}
        return hot, self._overlay.state()

    # Reading by any number of threads

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None:
        if limit <= 0 or after >= last:
            return Columns(b"", b"")
        while True:
            with self._lock:
                self._check_open()
                active = self._overlay.active.generation
                hot = self._overlay.between(queue, after, last, limit)
            found = self._columns(queue, after, last, limit, most_bytes, hot)
            if self._spilled < active:  # otherwise the database has newer changes than `hot`
                return found

    def _columns(
        self, queue: int, after: int, last: int, limit: int, most_bytes: int, hot: dict[int, Record | None]
    ) -> Columns | None:
        read = self._database.columns
        first = next(iter(hot), None)
        if first is None:
            return read(queue, after, last, limit, most_bytes)
        found: list[Record] = []
        if first > after + 1:
            page = read(queue, after, first - 1, limit, most_bytes)
            if page is None:
                return None
            found = _split(queue, page)
            if len(found) == limit:
                return page
            if found:
                after = found[-1].lookup_id
                behind = self._database.lookup_ids(queue, after, first - 1, 1)
                if behind is None:
                    return None
                if behind:
                    return page
        is_last = False
        while not is_last and len(found) < limit:
            page = read(queue, after, last, limit, most_bytes)
            if page is None:
                return None
            cold = _split(queue, page)
            is_last = not cold
            until = last if is_last else cold[-1].lookup_id
            part = [record for record in cold if record.lookup_id not in hot]
            part += [record for each, record in hot.items() if record is not None and after < each <= until]
            part.sort(key=_lookup_id)
            found += part
            after = until
            if sum(len(record.packet) for record in found) > most_bytes:
                break
        return Columns.of(_within(found[:limit], most_bytes))

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None:
        if limit <= 0 or after >= last:
            return []
        while True:
            with self._lock:
                self._check_open()
                active = self._overlay.active.generation
                hot = self._overlay.between(queue, after, last, limit)
            found: list[int] = []
            position, is_last = after, False
            while not is_last and len(found) < limit:
                page = self._database.lookup_ids(queue, position, last, limit)
                if page is None:
                    return None
                is_last = len(page) < limit
                until = last if is_last else page[-1]
                part = [each for each in page if each not in hot]
                part += [each for each, record in hot.items() if record is not None and position < each <= until]
                found += sorted(part)
                position = until
            if self._spilled < active:
                return found[:limit]

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the store is closed")


def _lookup_id(record: Record) -> int:
    return record.lookup_id


def _merge(cold: list[Record], hot: list[Record], limit: int, *, reverse: bool = False) -> list[Record]:
    if not cold or not hot:
        return (cold or hot)[:limit]
    return sorted(cold + hot, key=_lookup_id, reverse=reverse)[:limit]


def _split(queue: int, columns: Columns) -> list[Record]:
    """The columns as records."""
    records = []
    at = 0
    for lookup_id, size, arrived_ms, expires_s, aborts, reason in NUMBERS.iter_unpack(columns.numbers):
        records.append(Record(queue, lookup_id, arrived_ms, expires_s, aborts, columns.packets[at : at + size], reason))
        at += size
    return records


def _within(records: list[Record], most_bytes: int) -> list[Record]:
    """The first records with about `most_bytes` together, but at least one."""
    total = 0
    for count, record in enumerate(records):
        total += len(record.packet)
        if count and total > most_bytes:
            return records[:count]
    return records


def _merged(batches: Iterable[Batch]) -> tuple[set[Pair], dict[Pair, Record], dict[str, bytes | None]]:
    """The result of all batches, applied in order."""
    batches = list(batches)
    if len(batches) == 1:
        return batches[0].deletes, batches[0].puts, batches[0].state
    deletes: set[Pair] = set()
    puts: dict[Pair, Record] = {}
    state: dict[str, bytes | None] = {}
    for batch in batches:
        if puts:
            for key in batch.deletes:
                puts.pop(key, None)
        deletes |= batch.deletes
        puts.update(batch.puts)
        state.update(batch.state)
    return deletes, puts, state


# When to commit without the journal: while a backlog grows or is removed.


class Bulk:
    """Whether commits should go straight to the database.

    While a backlog grows or is removed, everything in the journal has to go into the database too, so the journal only
    adds cost. It pays if messages leave soon.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._changes = self._young = 0  # in this window: changes, and deletes of messages that arrived in it
        self._newest = self._floor = 0  # the greatest arrival numbers, now and before the last window

    def moved(self, share: float, newest: int) -> None:
        """Notes which share of a generation's changes had to go into the database."""
        self._is_on = share > MOST
        self._changes = self._young = 0
        self._newest = self._floor = newest

    def takes(self, deletes: Collection[Pair], puts: Collection[Pair]) -> bool:
        if not self._is_on:
            return False
        if len(deletes) + len(puts) < BULK:
            self._is_on = False  # a small commit is cheaper in the journal, and the next ones must then go there too
            return False
        floor = self._floor
        self._young += sum(key[1] & MAX_ARRIVAL > floor for key in deletes)
        self._changes += len(deletes) + len(puts)
        if self._changes > WINDOW:
            self._is_on = self._young * 4 < self._changes
            self._floor, self._newest = self._newest, max((key[1] & MAX_ARRIVAL for key in puts), default=self._newest)
            self._changes = self._young = 0
        return True


def is_cold(deletes: Collection[Pair], puts: Collection[Pair], overlay: Overlay) -> bool:
    """Whether a commit mostly deletes records of the database, and the overlay has few entries, which would have to go
    there first."""
    changes = len(deletes) + len(puts)
    if changes < BULK or overlay.size * FEW > changes:
        return False
    return sum(key[1] & MAX_ARRIVAL <= overlay.newest for key in deletes) > MOST * changes
