"""Read your own writes: what was changed but is not durable yet, laid over what the store holds.

No threads and no waiting here: a caller seals a batch, hands it to the Writer, and says how it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from sortedcontainers import SortedList

from postroad.store.interface import Batch, Key, Record, Store

MAX_READ = 1024  # the most records one step reads from the store when it has to look past deleted ones


class _Overlay:
    """One queue's changes. `entries` has the newest change of each lookup id, with the batch that made it (None: a
    delete); `put_ids` the ids among them that are there to be read, in order.

    `swept`: up to this lookup id the store has no record that `entries` does not hide. A queue is read at its head,
    where the deletes of a batch in flight pile up: without it every read would step over all of them again.
    """

    __slots__ = ("entries", "put_ids", "swept")

    def __init__(self) -> None:
        self.entries: dict[int, tuple[Batch, Record | None]] = {}
        self.put_ids = SortedList()
        self.swept = -1

    def set(self, lookup_id: int, batch: Batch, record: Record | None) -> None:
        before = self.entries.get(lookup_id)
        was_there = before is not None and before[1] is not None
        if record is not None and not was_there:
            self.put_ids.add(lookup_id)
        elif record is None and was_there:
            self.put_ids.remove(lookup_id)
        self.entries[lookup_id] = batch, record

    def forget(self, lookup_id: int) -> None:
        if self.entries.pop(lookup_id)[1] is not None:
            self.put_ids.remove(lookup_id)
            self.swept = min(self.swept, lookup_id - 1)  # it is in the store now, and no longer hidden


class Pending:
    """The store as it will be once every batch has been committed. Used by one thread.

    A caller changes records, then `seal`s the batch and submits it; `committed` or `failed` ends it. Batches are
    committed in the order they were sealed. Reading sees every change at once, committed or not.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._current = Batch()
        self._new: set[Key] = set()  # put in the current batch, and nowhere else
        self._in_flight: set[Batch] = set()
        self._queues: dict[int, _Overlay] = {}
        self._expiring: dict[Key, Record] = {}
        self._state: dict[str, tuple[Batch, bytes | None]] = {}

    def __bool__(self) -> bool:
        """Whether there is something to seal."""
        return bool(self._current)

    # Changes

    def put(self, record: Record) -> None:
        """Adds a record under a key that the store has never had or no longer has."""
        key = Key(record.queue, record.lookup_id)
        overlay = self._queues.get(record.queue)
        if overlay is None or record.lookup_id not in overlay.entries:
            self._new.add(key)
        self._set(key, record)
        self._current.puts[key] = record

    def replace(self, record: Record) -> None:
        """Puts a record in the place of the one with its key."""
        key = Key(record.queue, record.lookup_id)
        self._set(key, record)
        self._current.puts[key] = record

    def delete(self, key: Key) -> None:
        """Removes a record. One that was put in this same batch never reaches the store."""
        self._current.puts.pop(key, None)
        if key in self._new:
            self._new.remove(key)
            self._forget(key)
        else:
            self._current.deletes.add(key)
            self._set(key, None)

    def set_state(self, name: str, value: bytes | None) -> None:
        """Sets a state value; None removes it."""
        self._current.state[name] = value
        self._state[name] = self._current, value

    # From here to the disk

    def seal(self) -> Batch | None:
        """Ends the current batch and gives it to be committed; None where nothing was changed."""
        if not self._current:
            return None
        batch, self._current = self._current, Batch()
        self._in_flight.add(batch)
        self._new.clear()
        return batch

    def committed(self, batch: Batch) -> None:
        """The batch is in the store: it need not be remembered here."""
        if batch not in self._in_flight:
            return  # it was dropped with one before it
        self._in_flight.remove(batch)
        for keys in (batch.puts, batch.deletes):
            for key in keys:
                overlay = self._queues.get(key.queue)
                if overlay is not None:
                    entry = overlay.entries.get(key.lookup_id)
                    if entry is not None and entry[0] is batch:  # else a later batch has changed it again
                        self._forget(key)
        for name in batch.state:
            if self._state[name][0] is batch:
                del self._state[name]

    def failed(self, batch: Batch) -> bool:
        """The batch could not be committed: it, every other batch in flight and the current one are dropped, since they
        may be built on it, and readers see what the store holds. False where the batch had been dropped before."""
        if batch not in self._in_flight:
            return False
        self._current = Batch()
        self._new.clear()
        self._in_flight.clear()
        self._queues.clear()
        self._expiring.clear()
        self._state.clear()
        return True

    # Reading

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        """As Store.scan."""
        overlay = self._queues.get(queue)
        if overlay is None:
            return self._store.scan(queue, after, limit)
        entries = overlay.entries
        found = [
            entries[lookup_id][1] for lookup_id in islice(overlay.put_ids.irange(after, None, (False, True)), limit)
        ]
        from_head = after <= overlay.swept
        position = max(after, overlay.swept)
        alive: list[Record] = []
        count = limit
        while len(alive) < limit:
            records = self._store.scan(queue, position, count)
            for record in records:
                if record.lookup_id not in entries:
                    alive.append(record)
                elif from_head and not alive:
                    overlay.swept = record.lookup_id
            if len(records) < count:
                break
            position = records[-1].lookup_id
            count = min(count * 2, MAX_READ)
        return _merged(alive, found, limit, reverse=False)

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        """As Store.scan_back."""
        overlay = self._queues.get(queue)
        if overlay is None:
            return self._store.scan_back(queue, before, limit)
        entries = overlay.entries
        ids = islice(overlay.put_ids.irange(None, before, (True, False), True), limit)
        found = [entries[lookup_id][1] for lookup_id in ids]
        alive: list[Record] = []
        count = limit
        while len(alive) < limit:
            records = self._store.scan_back(queue, before, count)
            alive += [record for record in records if record.lookup_id not in entries]
            if len(records) < count:
                break
            before = records[-1].lookup_id
            count = min(count * 2, MAX_READ)
        return _merged(alive, found, limit, reverse=True)

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """As Store.get."""
        overlay = self._queues.get(queue)
        if overlay is not None:
            entry = overlay.entries.get(lookup_id)
            if entry is not None:
                return entry[1]
        return self._store.get(queue, lookup_id)

    def expired(self, now_s: int, limit: int = 100) -> list[Record]:
        """As Store.expired."""
        hidden = sum(len(overlay.entries) for overlay in self._queues.values())
        stored = self._store.expired(now_s, limit + hidden)
        if not hidden:
            return stored
        due = [record for record in stored if not self._hides(record)]
        due += [record for record in self._expiring.values() if record.expires_s < now_s]
        due.sort(key=lambda record: (record.expires_s, record.queue, record.lookup_id))
        return due[:limit]

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        """As Store.state."""
        stored = self._store.state(prefix)
        if not self._state:
            return stored
        merged: dict[str, bytes | None] = dict(stored)
        merged.update({name: value for name, (_, value) in self._state.items() if name.startswith(prefix)})
        return {name: value for name, value in sorted(merged.items()) if value is not None}

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        """As Store.damaged."""
        return self._store.damaged

    def _hides(self, record: Record) -> bool:
        overlay = self._queues.get(record.queue)
        return overlay is not None and record.lookup_id in overlay.entries

    def _set(self, key: Key, record: Record | None) -> None:
        overlay = self._queues.get(key.queue)
        if overlay is None:
            overlay = self._queues[key.queue] = _Overlay()
        overlay.set(key.lookup_id, self._current, record)
        if record is not None and record.expires_s:
            self._expiring[key] = record
        else:
            self._expiring.pop(key, None)

    def _forget(self, key: Key) -> None:
        overlay = self._queues[key.queue]
        overlay.forget(key.lookup_id)
        if not overlay.entries:
            del self._queues[key.queue]
        self._expiring.pop(key, None)


def _merged(stored: list[Record], pending: list[Record | None], limit: int, *, reverse: bool) -> list[Record]:
    records = stored + [record for record in pending if record is not None]
    if stored and pending:
        records.sort(key=_lookup_id, reverse=reverse)
    return records[:limit]


def _lookup_id(record: Record) -> int:
    return record.lookup_id
