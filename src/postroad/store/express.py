"""The store of express messages: in memory, for one thread, with the interface of every store.

Nothing here survives the process or uses a disk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice

from sortedcontainers import SortedList

from postroad.store.interface import PRIORITY_SHIFT, Batch, Columns, Key, Record, check_key

_SPARE = 64  # places of removed records that a run may always keep


class _Run:
    """The records of one queue and one priority. Lookup ids grow, so most records go to the end.

    `ids` keeps the places of removed records until more than half of the places are empty. So removing a record from
    anywhere costs no search.
    """

    __slots__ = ("ids", "records", "start")

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.ids: list[int] = []
        self.start = 0  # the first place in `ids` in use

    def put(self, record: Record) -> Record | None:
        """Adds a record. Returns the record that it replaces, if any."""
        lookup_id = record.lookup_id
        replaced = self.records.get(lookup_id)
        self.records[lookup_id] = record
        ids = self.ids
        if not ids or lookup_id > ids[-1]:
            ids.append(lookup_id)
        elif replaced is None:  # a record comes back
            place = bisect_left(ids, lookup_id)
            if ids[place] != lookup_id:
                ids.insert(place, lookup_id)
            self.start = min(self.start, place)
        return replaced

    def pop(self, lookup_id: int) -> Record | None:
        records, ids = self.records, self.ids
        record = records.pop(lookup_id, None)
        if record is None:
            return None
        start, end = self.start, len(ids)
        if ids[start] == lookup_id:
            start += 1
            while start < end and ids[start] not in records:
                start += 1
            self.start = start
        self._shrink()
        return record

    def pop_first(self, lookup_ids: list[int]) -> bool:
        """Removes these records if they are the first ones, and otherwise changes nothing."""
        records, ids = self.records, self.ids
        start = self.start + len(lookup_ids)
        if ids[self.start : start] != lookup_ids or not all(map(records.__contains__, lookup_ids)):
            return False
        for lookup_id in lookup_ids:
            del records[lookup_id]
        while ids[start] not in records:  # at least one is left
            start += 1
        self.start = start
        self._shrink()
        return True

    def _shrink(self) -> None:
        if len(self.ids) > 2 * len(self.records) + _SPARE:
            self.ids = [each for each in islice(self.ids, self.start, None) if each in self.records]
            self.start = 0

    def after(self, after: int, last: int | None = None) -> Iterator[int]:
        """The lookup ids above `after`, up to and including `last`, ascending."""
        ids = self.ids
        begin = bisect_right(ids, after, self.start)
        end = len(ids) if last is None else bisect_right(ids, last, begin)
        return filter(self.records.__contains__, islice(ids, begin, end))

    def before(self, before: int) -> Iterator[int]:
        """The lookup ids below `before`, descending."""
        ids = self.ids
        end = bisect_left(ids, before, self.start)
        return filter(self.records.__contains__, (ids[place] for place in range(end - 1, self.start - 1, -1)))


class MemorySnapshot:
    """A Snapshot of a store in memory."""

    def __init__(self, records: list[Record], state: dict[str, bytes]) -> None:
        self.damaged = 0
        self._records = records
        self._state = state

    def state(self) -> dict[str, bytes]:
        return self._state

    def pages(self) -> Iterator[list[Record]]:
        yield self._records

    def close(self) -> None:
        self._records = []


class ExpressStore:
    """A Store in memory. Besides `commit`, it takes single changes (`put`, `put_all`, `replace`, `delete`,
    `delete_all`, `set_state`), which take effect at once. Express messages promise nothing, so they need no batch."""

    def __init__(self) -> None:
        self._queues: dict[int, dict[int, _Run]] = {}  # by queue, then by the priority bits of a lookup id
        self._expiring: dict[int, dict[tuple[int, int], None]] = {}  # by second: queue and lookup id
        self._expiring_at = SortedList()  # the seconds
        self._unsorted: set[int] = set()  # those to which something was added
        self._state: dict[str, bytes] = {}
        self._lock: AbstractContextManager[object] = nullcontext()

    def put(self, record: Record) -> None:
        """Adds a record, or replaces the one with the same key."""
        check_key(record.queue, record.lookup_id)
        with self._lock:
            self._put(record)

    def put_all(self, records: Sequence[Record]) -> None:
        """Adds records."""
        for record in records:
            check_key(record.queue, record.lookup_id)
        with self._lock:
            for record in records:
                self._put(record)

    replace = put

    def delete(self, key: Key) -> None:
        """Removes a record if it is there."""
        with self._lock:
            self._delete(*key)

    def delete_all(self, records: Sequence[Record]) -> None:
        """Removes those of the records that exist."""
        with self._lock:
            if not self._delete_first(records):
                for record in records:
                    self._delete(record.queue, record.lookup_id)

    def _delete_first(self, records: Sequence[Record]) -> bool:
        """Removes the records if they are the first of a run but not all of it, and never expire. That is the usual way
        of readers."""
        queue, lookup_id = records[0][:2] if records else (-1, 0)
        run = self._queues.get(queue, {}).get(lookup_id >> PRIORITY_SHIFT)
        if run is None or len(records) >= len(run.records):
            return False
        for record in records:
            if record.queue != queue or record.expires_s:
                return False
        return run.pop_first([record.lookup_id for record in records])

    def set_state(self, name: str, value: bytes | None) -> None:
        """Sets a state value; None removes it."""
        with self._lock:
            self._set_state(name, value)

    def commit(self, batches: Iterable[Batch]) -> None:
        batches = list(batches)
        for batch in batches:
            for key in (*batch.puts, *batch.deletes):
                check_key(*key)  # refuses before anything changes
        with self._lock:
            for batch in batches:
                for key in batch.deletes:
                    self._delete(*key)
                for record in batch.puts.values():
                    self._put(record)
                for name, value in batch.state.items():
                    self._set_state(name, value)

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        with self._lock:
            return list(islice(self._records(queue, after), max(limit, 0)))

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        with self._lock:
            runs = self._queues.get(queue, {})
            found = (
                runs[rank].records[each] for rank in sorted(runs, reverse=True) for each in runs[rank].before(before)
            )
            return list(islice(found, max(limit, 0)))

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns:
        found: list[Record] = []
        size = 0
        with self._lock:
            for record in islice(self._records(queue, after, last), max(limit, 0)):
                size += len(record.packet)
                if found and size > most_bytes:
                    break
                found.append(record)
        return Columns.of(found)

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int]:
        with self._lock:
            return [record.lookup_id for record in islice(self._records(queue, after, last), max(limit, 0))]

    def _records(self, queue: int, after: int, last: int | None = None) -> Iterator[Record]:
        runs = self._queues.get(queue, {})
        in_order = (map(runs[rank].records.__getitem__, runs[rank].after(after, last)) for rank in sorted(runs))
        return chain.from_iterable(in_order)

    def disk_use(self) -> Mapping[str, int]:
        return {}

    def snapshot(self) -> MemorySnapshot:
        with self._lock:
            return MemorySnapshot(
                [each for queue in self._queues for each in self._records(queue, -1)], {**self._state}
            )

    def oldest(self) -> Mapping[int, int]:
        with self._lock:  # within one priority, arrivals are in order
            return {
                queue: min(run.records[run.ids[run.start]].arrived_ms for run in runs.values())
                for queue, runs in self._queues.items()
            }

    def get(self, queue: int, lookup_id: int) -> Record | None:
        with self._lock:
            run = self._queues.get(queue, {}).get(lookup_id >> PRIORITY_SHIFT)
            return None if run is None else run.records.get(lookup_id)

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        with self._lock:
            due = (Key(*each) for second in self._expiring_at.irange(None, now_s - 1) for each in self._due_in(second))
            return [
                self._queues[key.queue][key.lookup_id >> PRIORITY_SHIFT].records[key.lookup_id]
                for key in islice((key for key in due if not keep(key)), max(limit, 0))
            ]

    def _due_in(self, second: int) -> Iterable[tuple[int, int]]:
        """The keys that expire in a second, in order. Sorts them once: only records that come back are added to a
        second in the past."""
        if second in self._unsorted:
            self._unsorted.remove(second)
            self._expiring[second] = dict.fromkeys(sorted(self._expiring[second]))
        return self._expiring[second]

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        with self._lock:
            return {name: self._state[name] for name in sorted(self._state) if name.startswith(prefix)}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        return {}

    def no_room(self) -> str | None:
        return None

    def is_short(self, batch: Batch) -> bool:
        return False

    def tidy(self, *, busy: bool = False) -> bool:
        return False

    def close(self) -> None:
        """Does nothing. What was stored stays as long as the object."""

    def _put(self, record: Record) -> None:
        queue, lookup_id, _, expires_s, *_ = record
        runs = self._queues.get(queue)
        if runs is None:
            runs = self._queues[queue] = {}
        run = runs.get(lookup_id >> PRIORITY_SHIFT)
        if run is None:
            run = runs[lookup_id >> PRIORITY_SHIFT] = _Run()
        replaced = run.put(record)
        if replaced is not None and replaced.expires_s:
            self._forget_expiry(replaced)
        if expires_s:
            expiring = self._expiring.get(expires_s)
            if expiring is None:
                expiring = self._expiring[expires_s] = {}
                self._expiring_at.add(expires_s)
            expiring[queue, lookup_id] = None
            self._unsorted.add(expires_s)

    def _delete(self, queue: int, lookup_id: int) -> None:
        runs = self._queues.get(queue, {})
        run = runs.get(lookup_id >> PRIORITY_SHIFT)
        record = None if run is None else run.pop(lookup_id)
        if run is None or record is None:
            return
        if record.expires_s:
            self._forget_expiry(record)
        if not run.records:
            del runs[lookup_id >> PRIORITY_SHIFT]
            if not runs:
                del self._queues[queue]

    def _forget_expiry(self, record: Record) -> None:
        expiring = self._expiring[record.expires_s]
        del expiring[record.queue, record.lookup_id]
        if not expiring:
            del self._expiring[record.expires_s]
            self._expiring_at.remove(record.expires_s)
            self._unsorted.discard(record.expires_s)

    def _set_state(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._state.pop(name, None)
        else:
            self._state[name] = value
