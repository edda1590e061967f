"""The store of express messages: the contract of every store, in memory, for one thread.

Nothing here survives the process, and nothing here touches a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from sortedcontainers import SortedDict, SortedList

from postroad.store.interface import PRIORITY_SHIFT, Batch, Columns, Key, Record
from postroad.store.row import pack_key


class ExpressStore:
    """A Store in memory. Besides `commit` it takes single changes (`put`, `replace`, `delete`, `set_state`), each at
    once and for itself: express messages promise nothing, so they need no batch."""

    def __init__(self) -> None:
        self._queues: dict[int, SortedDict] = {}  # by queue: lookup id to record
        self._expiring = SortedList()  # (expires_s, queue, lookup_id)
        self._state: dict[str, bytes] = {}
        self._lock: AbstractContextManager[object] = nullcontext()

    def put(self, record: Record) -> None:
        """Adds a record, or takes the place of the one with its key."""
        pack_key(record.queue, record.lookup_id)
        with self._lock:
            self._put(record)

    replace = put

    def delete(self, key: Key) -> None:
        """Removes a record if it is there."""
        with self._lock:
            self._delete(*key)

    def set_state(self, name: str, value: bytes | None) -> None:
        """Sets a state value; None removes it."""
        with self._lock:
            self._set_state(name, value)

    def commit(self, batches: Iterable[Batch]) -> None:
        batches = list(batches)
        for batch in batches:
            for key in (*batch.puts, *batch.deletes):
                pack_key(*key)  # refuse before anything is changed
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
            records = self._queues.get(queue)
            if records is None or limit <= 0:
                return []
            return [records[lookup_id] for lookup_id in islice(records.irange(after, None, (False, True)), limit)]

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        with self._lock:
            records = self._queues.get(queue)
            if records is None or limit <= 0:
                return []
            return [
                records[lookup_id] for lookup_id in islice(records.irange(None, before, (True, False), True), limit)
            ]

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns:
        found: list[Record] = []
        size = 0
        with self._lock:
            records = self._queues.get(queue, {})
            for lookup_id in self._range(queue, after, last, limit):
                record = records[lookup_id]
                size += len(record.packet)
                if found and size > most_bytes:
                    break
                found.append(record)
        return Columns.of(found)

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int]:
        with self._lock:
            return list(self._range(queue, after, last, limit))

    def _range(self, queue: int, after: int, last: int, limit: int) -> Iterator[int]:
        records = self._queues.get(queue)
        if records is None or after >= last:
            return iter(())
        return islice(records.irange(after, last, (False, True)), max(limit, 0))

    def oldest(self) -> Mapping[int, int]:
        found: dict[int, int] = {}
        with self._lock:
            for queue, records in self._queues.items():
                lookup_id = 0
                while (first := next(records.irange(lookup_id), None)) is not None:
                    arrived_ms = records[first].arrived_ms
                    found[queue] = min(found.get(queue, arrived_ms), arrived_ms)
                    lookup_id = (first >> PRIORITY_SHIFT) + 1 << PRIORITY_SHIFT  # arrivals of one priority are in order
        return found

    def get(self, queue: int, lookup_id: int) -> Record | None:
        with self._lock:
            record: Record | None = self._queues.get(queue, {}).get(lookup_id)
            return record

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        with self._lock:
            due = (
                Key(queue, lookup_id) for _, queue, lookup_id in self._expiring.irange(None, (now_s,), (True, False))
            )
            return [
                self._queues[key.queue][key.lookup_id]
                for key in islice((key for key in due if not keep(key)), max(limit, 0))
            ]

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        with self._lock:
            return {name: self._state[name] for name in sorted(self._state) if name.startswith(prefix)}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        return {}

    def no_room(self) -> str | None:
        return None

    def tidy(self, *, busy: bool = False) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to close; what was stored stays as long as the object."""

    def _put(self, record: Record) -> None:
        records = self._queues.get(record.queue)
        if records is None:
            records = self._queues[record.queue] = SortedDict()
        replaced = records.get(record.lookup_id)
        if replaced is not None and replaced.expires_s:
            self._expiring.remove((replaced.expires_s, record.queue, record.lookup_id))
        records[record.lookup_id] = record
        if record.expires_s:
            self._expiring.add((record.expires_s, record.queue, record.lookup_id))

    def _delete(self, queue: int, lookup_id: int) -> None:
        records = self._queues.get(queue)
        if records is None:
            return
        record = records.pop(lookup_id, None)
        if record is None:
            return
        if record.expires_s:
            self._expiring.remove((record.expires_s, queue, lookup_id))
        if not records:
            del self._queues[queue]

    def _set_state(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._state.pop(name, None)
        else:
            self._state[name] = value
