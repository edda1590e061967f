"""Ranges of a queue read on other threads, so the event loop stays free.

Damaged records are handled on the event loop, where the store's reader knows what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from postroad.errors import InvalidArgument
from postroad.queues.queue import Queue
from postroad.store.interface import ARRIVAL_MASK, Columns, Record, Store
from postroad.values.offsets import Selection

PAGE_IDS = 100_000  # lookup ids that one step reads
LOOP_S = 60.0  # how long a thread waits for its turn on the event loop


class Run:
    """Messages of one store and one priority, by lookup id. Made on the event loop, used on other threads."""

    def __init__(self, queue: Queue, store: Store, first: int, last: int) -> None:
        self.first = first
        self.last = last
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

    def lookup_ids(self) -> Iterator[int]:
        after = self.first - 1
        while after < self.last:
            found = self._store.lookup_ids(self._number, after, self.last, PAGE_IDS)
            if found is None:
                found = [record.lookup_id for record in self._scanned(after, self.last, PAGE_IDS)]
            yield from found
            if len(found) < PAGE_IDS:
                return
            after = found[-1]

    def _scanned(self, after: int, last: int, limit: int) -> list[Record]:
        """The same from the event loop, which leaves out and notes damaged records."""

        async def scan() -> list[Record]:
            return self._store.scan(self._number, after, limit)

        records = asyncio.run_coroutine_threadsafe(scan(), self._loop).result(LOOP_S)
        return [record for record in records if record.lookup_id <= last]


def runs(queue: Queue, start: int, end: int) -> list[Run]:
    return [Run(queue, *run) for run in queue.runs(start, end)]


def arrival_behind(found: list[Run], limit: int) -> int | None:
    """The arrival number of the message after the first `limit` ones; None if there are no more."""
    arrivals: list[int] = []
    for run in found:
        for count, lookup_id in enumerate(run.lookup_ids()):
            if count > limit:
                break
            arrivals.append(lookup_id & ARRIVAL_MASK)
    arrivals.sort()
    return arrivals[limit] if len(arrivals) > limit else None


async def stream(
    queue: Queue, start: int, end: int, selection: Selection, clock: Callable[[], float]
) -> AsyncIterator[bytes | memoryview]:
    """One Arrow stream. Reads one batch ahead of the one being sent, and no more."""
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
    """The columns room, if the libraries that it needs are installed."""
    try:
        import pyarrow  # noqa: F401

        from postroad.columns import ranges
    except ImportError:
        raise InvalidArgument("Arrow needs pyarrow and numpy; run pip install postroad[arrow]") from None
    return ranges


def _shown(columns: Any, queue: Queue, name: str | None, now: float) -> Any:
    """What a reader with this name sees now."""
    spans = {hold.name: columns.Span(hold.start, hold.end, tuple(hold.passed_over)) for hold in queue.holds.values()}
    own = spans.pop(name, None) if name is not None else None
    return columns.Shown(tuple(queue.positions), own, tuple(spans.values()), int(now))
