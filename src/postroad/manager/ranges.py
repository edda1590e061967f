"""Reads ranges of a queue on other threads, so that the event loop stays free.

Damaged records are read on the event loop, by the store's reader, which knows how.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

from postroad.errors import InvalidArgument
from postroad.queues.queue import Queue
from postroad.reports.offsets import Part, Selection
from postroad.store.interface import ARRIVAL_MASK, NUMBERS, Columns, Record, RecordStore

PAGE_IDS = 100_000  # lookup ids in one step
PAGE_SIZES = 5000  # messages whose sizes are read in one step
PAGE_BYTES = 4 << 20  # and their bytes, about
LOOP_S = 60.0  # for which a thread waits for its turn on the event loop


class Run:
    """Messages of one store and one priority, by lookup id. Make it on the event loop, use it on other threads."""

    def __init__(self, queue: Queue, store: RecordStore, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.is_express = queue.is_express(store)
        self._number = queue.number
        self._store = store
        self._loop = asyncio.get_running_loop()

    def columns(self, after: int, last: int, limit: int, most_bytes: int) -> Columns:
        found = self._store.columns(self._number, after, last, limit, most_bytes)
        if found is None:
            records = self._scanned(after, last, limit)
            size, fitting = 0, 0
            for record in records:
                size += len(record.packet)
                if fitting and size > most_bytes:
                    break
                fitting += 1
            found = Columns.of(records[:fitting])
        return found

    def lookup_ids(self, page: int = PAGE_IDS) -> Iterator[int]:
        after = self.first - 1
        while after < self.last:
            found = self._store.lookup_ids(self._number, after, self.last, page)
            if found is None:
                found = [record.lookup_id for record in self._scanned(after, self.last, page)]
            yield from found
            if len(found) < page:
                return
            after = found[-1]

    def sizes(self) -> Iterator[tuple[int, int]]:
        """The lookup id and size of each message."""
        after = self.first - 1
        while after < self.last and (page := self.columns(after, self.last, PAGE_SIZES, PAGE_BYTES).numbers):
            for after, size, *_ in NUMBERS.iter_unpack(page):
                yield after, size

    def first_since(self, arrived_ms: int) -> int | None:
        """The lookup id of the first message that arrived at this time or later. Correct only if the clock never went
        back."""
        found, low, high = None, self.first, self.last
        while low <= high:
            middle = (low + high) // 2
            page = self.columns(middle - 1, high, 1, 1).numbers
            if not page:
                high = middle - 1
                continue
            lookup_id, _, arrived, *_ = NUMBERS.unpack_from(page)
            if arrived >= arrived_ms:
                found, high = lookup_id, middle - 1
            else:
                low = lookup_id + 1
        return found

    def _scanned(self, after: int, last: int, limit: int) -> list[Record]:
        """Reads the records on the event loop, where damaged ones are noted and left out."""

        async def scan() -> list[Record]:
            return self._store.scan(self._number, after, limit)

        records = asyncio.run_coroutine_threadsafe(scan(), self._loop).result(LOOP_S)
        return [record for record in records if record.lookup_id <= last]


def runs(queue: Queue, start: int, end: int) -> list[Run]:
    return [Run(queue, *run) for run in queue.runs(start, end)]


def arrival_behind(found: list[Run], limit: int) -> int | None:
    """The arrival number of the message after the first `limit` messages; None if there are no more."""
    arrivals: list[int] = []
    for run in found:
        for count, lookup_id in enumerate(run.lookup_ids()):
            if count > limit:
                break
            arrivals.append(lookup_id & ARRIVAL_MASK)
    arrivals.sort()
    return arrivals[limit] if len(arrivals) > limit else None


def first_arrival_since(found: list[Run], arrived_ms: int) -> int | None:
    """The arrival number of the first message that arrived at this time or later; None if there is none."""
    firsts = [run.first_since(arrived_ms) for run in found]
    return min((each & ARRIVAL_MASK for each in firsts if each is not None), default=None)


class Counted(NamedTuple):
    """The messages of a range: their arrival numbers in order, and how many are express. `is_cut` means that there may
    be more."""

    arrivals: list[int]
    express: int
    is_cut: bool = False


def counted(
    found: list[Run], shown: Callable[[int], bool] | None, limit: int | None, most_bytes: int | None
) -> Counted:
    """The first messages that the reader sees: up to `limit`, and up to `most_bytes` but at least one."""
    if limit is None and most_bytes is None:
        runs = [[each & ARRIVAL_MASK for each in run.lookup_ids() if shown is None or shown(each)] for run in found]
        express = sum(len(ids) for run, ids in zip(found, runs, strict=True) if run.is_express)
        return Counted(sorted(chain.from_iterable(runs)), express)
    page = PAGE_IDS if limit is None else min(PAGE_IDS, limit + 1)
    entries: list[tuple[int, int, bool]] = []
    is_cut = False
    for run in found:
        size, taken = 0, 0
        each_size = ((each, 0) for each in run.lookup_ids(page)) if most_bytes is None else run.sizes()
        for lookup_id, length in each_size:
            if shown is not None and not shown(lookup_id):
                continue
            entries.append((lookup_id & ARRIVAL_MASK, length, run.is_express))
            size, taken = size + length, taken + 1
            if taken == limit or (most_bytes is not None and size > most_bytes):
                is_cut = True
                break
    entries.sort()
    chosen = entries[:limit]
    if most_bytes is not None:
        sizes = list(accumulate(length for _, length, _ in chosen))
        chosen = chosen[: max(1, bisect_right(sizes, most_bytes))]
    is_cut = is_cut or len(chosen) < len(entries)
    return Counted([arrival for arrival, _, _ in chosen], sum(express for _, _, express in chosen), is_cut)


def divided(start: int, end: int, arrivals: Sequence[int], parts: int) -> tuple[Part, ...]:
    """Divides a range into up to `parts` parts whose numbers of messages differ by at most one."""
    count = len(arrivals)
    parts = max(1, min(parts, count))
    firsts = [count * part // parts for part in range(parts)] + [count]
    bounds = [start, *(arrivals[first] for first in firsts[1:-1]), end]
    return tuple(Part(bounds[part], bounds[part + 1], firsts[part + 1] - firsts[part]) for part in range(parts))


async def stream(
    queue: Queue, start: int, end: int, selection: Selection, clock: Callable[[], float]
) -> AsyncIterator[bytes | memoryview]:
    """One Arrow stream. Reads at most one batch ahead of the one being sent."""
    columns = arrow_columns()
    sources = [(run.columns, run.first, run.last) for run in runs(queue, start, end)]
    reader = columns.RangeReader(
        sources,
        columns.MESSAGE if selection.columns is None else selection.columns,
        limit=selection.limit,
        equal=selection.equal,
    )

    def begin() -> asyncio.Future[list[memoryview] | None]:
        return asyncio.ensure_future(asyncio.to_thread(reader.pages, _shown(columns, queue, selection.hold, clock())))

    following = begin()
    try:
        yield bytes(reader.schema.serialize())
        while (pages := await following) is not None:
            following = begin()
            for page in pages:
                yield page
        yield columns.END_OF_STREAM
    finally:
        following.cancel()


def arrow_columns() -> Any:
    """The module `columns`, if its libraries are installed."""
    try:
        import pyarrow  # noqa: F401

        from postroad.columns import ranges
    except ImportError:
        raise InvalidArgument("Arrow needs pyarrow and numpy; run pip install postroad[arrow]") from None
    return ranges


def _shown(columns: Any, queue: Queue, name: str | None, now: float) -> Any:
    """What the reader with this name sees now."""
    spans = {hold.name: columns.Span(hold.start, hold.end, tuple(hold.passed_over)) for hold in queue.holds.values()}
    own = spans.pop(name, None) if name is not None else None
    return columns.Shown(tuple(queue.positions), own, tuple(spans.values()), int(now))
