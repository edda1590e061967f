"""What only the journal has: the newest records, deletes and state, in memory.

A record that is put and deleted here never reaches the database. There are two layers, like the journal's two segments:
the active one takes commits, and the frozen one moves into the database. The caller holds a lock. No I/O here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from postroad.store.interface import MAX_ARRIVAL, PRIORITY_SHIFT, Pair, Record

PRIORITIES = 8
_RANK_BITS = 3
_SPARE = 4096  # ids of deleted records that may stay in the lists


class Layer:
    """The changes of one generation. None is a tombstone: a delete of a record that the database may have."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.entries: dict[Any, Record | None] = {}  # by Key; a plain pair works too and costs less
        self.state: dict[str, bytes | None] = {}
        self.changes = 0  # deletes and puts so far
        # Lookup ids in order, by queue and rank. Most records come and go before a reader needs the order, so new keys
        # wait in `_unlisted`. Ids of deleted records stay until there are too many.
        self._lists: dict[int, list[int]] = {}
        self._expiring: set[Pair] = set()
        self._unlisted: list[Pair] = []
        self._listed = 0

    def __bool__(self) -> bool:
        return bool(self.entries or self.state)

    def add(self, entries: Mapping[Pair, Record | None]) -> None:
        self.entries.update(entries)
        self._unlisted.extend(entries)
        if self._listed + len(self._unlisted) > 2 * len(self.entries) + _SPARE:
            self._lists.clear()
            self._expiring.clear()
            self._listed = 0
            self._unlisted = list(self.entries)

    def ids(self, queue: int, rank: int) -> list[int]:
        """The lookup ids of a queue and rank, in order. Some may be gone, so check `entries`."""
        if self._unlisted:
            self._list()
        return self._lists.get(queue << _RANK_BITS | rank, [])

    def forget_front(self, queue: int, ids: list[int]) -> None:
        """Drops the first ids if they are gone, so that reads from the front of a queue do not pass them again."""
        gone = 0
        while gone < len(ids) and (queue, ids[gone]) not in self.entries:
            gone += 1
        del ids[:gone]
        self._listed -= gone

    def expiring(self) -> Iterator[Record]:
        """The records that can expire."""
        if self._unlisted:
            self._list()
        for key in list(self._expiring):
            record = self.entries.get(key)
            if record is None or not record.expires_s:
                self._expiring.discard(key)
            else:
                yield record

    def firsts(self) -> Iterator[Record]:
        """The first record of each queue and rank."""
        if self._unlisted:
            self._list()
        for prefix, ids in self._lists.items():
            queue = prefix >> _RANK_BITS
            record = next((found for each in ids if (found := self.entries.get((queue, each))) is not None), None)
            if record is not None:
                yield record

    def _list(self) -> None:
        lists, entries = self._lists, self.entries
        for key in self._unlisted:
            if key not in entries:
                continue  # already deleted
            record = entries[key]
            queue, lookup_id = key
            prefix = queue << _RANK_BITS | lookup_id >> PRIORITY_SHIFT
            ids = lists.get(prefix)
            if ids is None:
                lists[prefix] = [lookup_id]
            elif not ids or lookup_id > ids[-1]:
                ids.append(lookup_id)
            elif ids[bisect_left(ids, lookup_id)] != lookup_id:
                insort(ids, lookup_id)
            self._listed += 1
            if record is not None and record.expires_s:
                self._expiring.add(key)
        self._unlisted.clear()


class Overlay:
    """Both layers as one. `newest` is the greatest arrival number that may be in the database."""

    def __init__(self, generation: int, newest: int) -> None:
        self.active = Layer(generation)
        self.frozen: Layer | None = None
        self.newest = newest

    @property
    def layers(self) -> list[Layer]:
        return [self.active] if self.frozen is None else [self.frozen, self.active]

    @property
    def size(self) -> int:
        """The number of records and tombstones."""
        return len(self.active.entries) + (0 if self.frozen is None else len(self.frozen.entries))

    def apply(self, deletes: Collection[Pair], puts: Mapping[Pair, Record], state: Mapping[str, bytes | None]) -> None:
        """Applies one commit: deletes, then puts, then state. A key is in at most one layer."""
        active, frozen = self.active, self.frozen
        active.changes += len(deletes) + len(puts)
        entries = active.entries
        if deletes:
            newest = self.newest
            tombstones: dict[Pair, None] = {}
            for key in deletes:
                if key[1] & MAX_ARRIVAL <= newest:
                    tombstones[key] = None
                else:
                    entries.pop(key, None)
            if tombstones:
                active.add(tombstones)
            if frozen is not None:
                for key in frozen.entries.keys() & deletes:
                    del frozen.entries[key]
        if puts:
            active.add(puts)
            if frozen is not None:
                for key in frozen.entries.keys() & puts.keys():
                    del frozen.entries[key]
        active.state.update(state)

    def freeze(self, generation: int) -> None:
        """Makes the active layer the frozen one."""
        assert self.frozen is None
        self.frozen, self.active = self.active, Layer(generation)

    def find(self, key: tuple[int, int]) -> tuple[bool, Record | None]:
        """Whether the key is here, and its record, which is None if deleted."""
        for layer in self.layers:
            if key in layer.entries:
                return True, layer.entries[key]
        return False, None

    def covers(self, key: tuple[int, int]) -> bool:
        return key in self.active.entries or (self.frozen is not None and key in self.frozen.entries)

    def after(self, queue: int, after: int, limit: int) -> list[Record]:
        """Up to `limit` records with a lookup id above `after`, ascending."""
        found: list[Record] = []
        for rank in range(max(after, 0) >> PRIORITY_SHIFT, PRIORITIES):
            of_rank: list[Record] = []
            for layer in self.layers:
                of_rank += _live_after(layer, queue, rank, after, limit - len(found))
            if self.frozen is not None:
                of_rank.sort(key=_lookup_id)
            found += of_rank
            if len(found) >= limit:
                break
        return found[:limit]

    def before(self, queue: int, before: int, limit: int) -> list[Record]:
        """Up to `limit` records with a lookup id below `before`, descending."""
        found: list[Record] = []
        for rank in range(min(max(before, 0) >> PRIORITY_SHIFT, PRIORITIES - 1), -1, -1):
            of_rank: list[Record] = []
            for layer in self.layers:
                ids = layer.ids(queue, rank)
                left = limit - len(found)
                for place in range(bisect_left(ids, before) - 1, -1, -1):
                    record = layer.entries.get((queue, ids[place]))
                    if record is not None:
                        of_rank.append(record)
                        left -= 1
                        if not left:
                            break
            of_rank.sort(key=_lookup_id, reverse=True)
            found += of_rank
            if len(found) >= limit:
                break
        return found[:limit]

    def between(self, queue: int, after: int, last: int, limit: int) -> dict[int, Record | None]:
        """Records and tombstones with `after` < lookup id <= `last`, by lookup id, ascending, up to the `limit`-th
        record."""
        found: dict[int, Record | None] = {}
        for rank in range(max(after, 0) >> PRIORITY_SHIFT, PRIORITIES):
            if rank << PRIORITY_SHIFT > last:
                break
            for layer in self.layers:
                ids = layer.ids(queue, rank)
                left = limit
                for place in range(bisect_right(ids, after), bisect_right(ids, last)):
                    lookup_id = ids[place]
                    if (queue, lookup_id) in layer.entries:
                        found[lookup_id] = record = layer.entries[queue, lookup_id]
                        left -= record is not None
                        if not left:
                            break
        ordered: dict[int, Record | None] = {}
        for lookup_id in sorted(found):
            ordered[lookup_id] = record = found[lookup_id]
            limit -= record is not None
            if limit <= 0:
                break
        return ordered

    def expiring(self, now_s: int) -> list[Record]:
        """The records with expires_s < now_s, in no order."""
        return [record for layer in self.layers for record in layer.expiring() if record.expires_s < now_s]

    def state(self) -> dict[str, bytes | None]:
        return {**(self.frozen.state if self.frozen is not None else {}), **self.active.state}


def _lookup_id(record: Record) -> int:
    return record.lookup_id


def _live_after(layer: Layer, queue: int, rank: int, after: int, limit: int) -> list[Record]:
    ids, entries = layer.ids(queue, rank), layer.entries
    start = bisect_right(ids, after)
    if not start:
        layer.forget_front(queue, ids)
    found: list[Record] = []
    for place in range(start, len(ids)):
        record = entries.get((queue, ids[place]))
        if record is not None:
            found.append(record)
            if len(found) == limit:
                break
    return found
