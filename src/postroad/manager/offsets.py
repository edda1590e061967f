"""The calls of pipelines, on a manager's event loop. A change returns once it is durable. Long reads use threads."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from postroad.describe.received import ReceivedMessage
from postroad.errors import AccessDenied, InvalidArgument
from postroad.manager.reads import received
from postroad.message import Message
from postroad.names import FormatName, PathName, parse_name
from postroad.queues.holds import COMMIT_BATCH, Hold
from postroad.queues.local import TRUSTED, LocalQueueManager
from postroad.queues.open_queue import check_sharing
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue, Run
from postroad.queues.submissions import Part, Sender
from postroad.reports.offsets import (
    HoldInfo,
    Mark,
    Plan,
    Selection,
    Submission,
    SubmissionState,
)
from postroad.reports.offsets import (
    Part as PlannedPart,
)
from postroad.reports.operations import QueueAccess, ShareMode
from postroad.security.access import Token
from postroad.store.interface import ARRIVAL_MASK, NUMBERS, Columns, Record

Name = FormatName | PathName | str
_MADE = (QueueType.PRIVATE, QueueType.PUBLIC)  # the types of queue that applications create and delete
PAGE = 500  # messages in one turn of the event loop
PAGE_IDS = 100_000  # lookup ids in one step
PAGE_SIZES = 5000  # messages whose sizes are read in one step
PAGE_BYTES = 4 << 20  # and their bytes, about
LOOP_S = 60.0  # for which a thread waits for its turn on the event loop


class Durably(Protocol):
    def __call__(self, operation: Callable[[], Any]) -> Awaitable[Any]: ...


class Offsets:
    """A manager's part for pipelines. `durably` runs a change and returns once it is on disk."""

    def __init__(self, core: LocalQueueManager, durably: Durably, clock: Callable[[], float]) -> None:
        self._core = core
        self._durably = durably
        self._clock = clock
        self._run = uuid4().hex
        self._submitting: dict[Part, _Turns] = {}

    def _queue(self, name: Name) -> Queue:
        queue = self._core.queues.get(name)
        if queue.is_internal:
            raise AccessDenied(f"{name}: the queue manager itself uses this queue")
        return queue

    # Marks

    async def mark(self, name: Name, start: int = 0, limit: int | None = None) -> Mark:
        """The mark of a queue. With `limit`, `arrival` is at most the number after that many messages from `start`
        on."""
        queue = self._queue(name)
        arrival = self._core.ticks.mark(queue)
        arrived = self._core.ticks.arrived(queue)
        mark = Mark(
            arrival,
            queue.stored_added,
            queue.first_arrival,
            queue.count,
            arrived,
            queue.express_added,
            self._run,
            arrival > self._core.counters.last_arrival,
            str(queue.properties.identifier) if queue.properties.queue_type in _MADE else "",
        )
        if limit is None or start >= arrival:
            return mark
        behind = await asyncio.to_thread(arrival_behind, runs(queue, start, arrival), limit)
        return mark if behind is None else replace(mark, arrival=behind)

    async def plan(
        self,
        name: Name,
        start: int = 0,
        end: int | None = None,
        *,
        hold: str | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
        parts: int = 1,
        since_ms: int | None = None,
        everything: bool = False,
    ) -> Plan:
        """Counts the messages of a range that a reader with this hold sees, or all with `everything`, and divides them.

        With `limit` or `most_bytes`, the range ends after as many messages as they allow. With `since_ms`, it begins
        with the first message that arrived at that time or later.
        """
        queue = self._queue(name)
        mark = self._core.ticks.mark(queue)
        stop = max(start, mark if end is None else min(end, self._core.ticks.arrived(queue)))
        if since_ms is not None:
            first = await asyncio.to_thread(first_arrival_since, runs(queue, start, stop), since_ms)
            start = stop if first is None else first
        own = None if hold is None else queue.holds.get(hold)
        locked, holds = frozenset(queue.positions), list(queue.holds.values())

        def shown(lookup_id: int) -> bool:
            if lookup_id in locked:
                return False
            if own is not None and own.spans(lookup_id):
                return own.covers(lookup_id)
            return not any(each.covers(lookup_id) for each in holds)

        visible = None if everything or not (locked or holds) else shown
        found = await asyncio.to_thread(counted, runs(queue, start, stop), visible, limit, most_bytes)
        arrivals, behind = found.arrivals, stop
        if arrivals and found.is_cut:
            behind = arrivals[-1] + 1
        following = queue.by_arrival(behind, self._core.ticks.arrived(queue), 1, own)
        divided_into = divided(start, behind, arrivals, parts) if arrivals else ()
        next_ms = following[0].arrived_ms if following else None
        return Plan(start, behind, len(arrivals), found.express, divided_into, next_ms)

    # Ranges

    async def pages(self, name: Name, selection: Selection, page: int = PAGE) -> AsyncIterator[list[ReceivedMessage]]:
        """The messages that a reader with this hold sees, in order of arrival, up to `page` at a time."""
        queue = self._queue(name)
        hold = None if selection.hold is None else queue.holds.get(selection.hold)
        start, stop = selection.start, self._end(queue, selection)
        left = selection.limit
        while start < stop and left != 0:
            records = queue.by_arrival(start, stop, page, hold)
            if not records:
                return
            messages = [*map(received, records)]
            found = [each for each in messages if selection.passes(each)][:left]
            if found:
                yield found
            if left is not None:
                left -= len(found)
            start = (records[-1].lookup_id & ARRIVAL_MASK) + 1
            await asyncio.sleep(0)

    def arrow(self, name: Name, selection: Selection) -> AsyncIterator[bytes | memoryview]:
        """The same messages as one Arrow stream, in pieces. Raises at once for an unknown queue or column."""
        queue = self._queue(name)
        columns = arrow_columns()
        if selection.columns is not None:
            columns.schema_of(selection.columns)
        return stream(queue, selection.start, self._end(queue, selection), selection, self._clock)

    def _end(self, queue: Queue, selection: Selection) -> int:
        arrived = self._core.ticks.arrived(queue)
        return arrived if selection.end is None else min(selection.end, arrived)

    # Holds

    async def holds(self, name: Name) -> list[HoldInfo]:
        queue = self._queue(name)
        return [await self._describe(queue, hold) for hold in list(queue.holds.values())]

    async def hold(self, name: Name, holder: str, start: int, end: int | None = None) -> HoldInfo:
        """Hides a range from other readers until it is committed or released. Without an end, the range ends at the
        mark."""
        queue = self._queue(name)

        def put() -> Hold:
            check_sharing(queue.descriptors, QueueAccess.RECEIVE, ShareMode.DENY_NONE)
            arrived = self._core.ticks.arrived(queue)
            stop = max(start, self._core.ticks.mark(queue)) if end is None else end
            return self._core.holding.put(queue, holder, start, stop, arrived, self._clock())

        return await self._describe(queue, await self._durably(put))

    async def commit_hold(self, name: Name, holder: str, end: int) -> int:
        """Receives the held messages below `end`, step by step. Returns how many."""
        queue = self._queue(name)
        removed = 0
        while True:
            step: int = await self._durably(lambda: self._core.holding.commit(queue, holder, end, self._clock()))
            removed += step
            if step < COMMIT_BATCH:
                return removed

    async def release(self, name: Name, holder: str) -> bool:
        queue = self._queue(name)
        return bool(await self._durably(lambda: self._core.holding.release(queue, holder, self._clock())))

    async def _describe(self, queue: Queue, hold: Hold) -> HoldInfo:
        locked = frozenset(queue.positions)
        found = runs(queue, hold.start, hold.end)

        def count() -> int:
            lookup_ids = (lookup_id for run in found for lookup_id in run.lookup_ids())
            return sum(lookup_id not in hold.passed_over and lookup_id not in locked for lookup_id in lookup_ids)

        messages = await asyncio.to_thread(count)
        return HoldInfo(hold.name, hold.start, hold.end, messages, hold.since_s, len(hold.passed_over))

    # Submissions

    async def submit(
        self,
        destination: Name,
        sender: str,
        epoch: int,
        partition: int,
        row: int,
        messages: Sequence[Message],
        transactional: bool | None = None,
        token: Token = TRUSTED,
        *,
        run: str = "",
        digest: str = "",
    ) -> Submission:
        """Sends those rows from `row` on that are not sent yet: all of them or none.

        If `transactional` is None, they go as the local queue requires. `digest` describes all rows of the partition up
        to the last of these, so that a later run can be compared.
        """
        part = Part(_sender(destination, sender), epoch, partition)

        def send() -> Submission:
            core = self._core
            dropped = core.submissions.sent(part, row, len(messages), run, digest)
            rest = messages[dropped:]
            if rest:
                self._send(destination, rest, transactional, token)
                core.submissions.note(part, row + len(messages), run, digest)
            return Submission(len(rest), dropped)

        async with self._one_at_a_time(part):
            found: Submission = await self._durably(send)
            return found

    def _send(self, destination: Name, messages: Sequence[Message], transactional: bool | None, token: Token) -> None:
        core, now = self._core, self._clock()
        if transactional is None:
            queue = core.queues.find(destination)
            transactional = queue is not None and queue.properties.transactional
        if transactional:
            core.send_transactional(destination, messages, now, token)
        else:
            core.send(destination, messages, now, token=token)

    def submission(self, destination: Name, sender: str, epoch: int) -> SubmissionState:
        """What was sent of an epoch."""
        found, known = _sender(destination, sender), self._core.submissions
        parts = tuple(
            {"partition": partition, "rows": sent.next_row, "run": sent.run, "digest": sent.digest}
            for partition, sent in known.progress(found, epoch).items()
        )
        return SubmissionState(known.is_complete(found, epoch), parts)

    async def take_over_submission(
        self, destination: Name, sender: str, epoch: int, partition: int, rows: int, run: str, digest: str
    ) -> None:
        """Lets a new run of the sender's job continue a partition, if its first rows are those that were sent."""
        part = Part(_sender(destination, sender), epoch, partition)
        async with self._one_at_a_time(part):
            await self._durably(lambda: self._core.submissions.take_over(part, rows, run, digest))

    async def commit_submission(
        self, destination: Name, sender: str, epoch: int, *, run: str = "", keep: bool = False
    ) -> None:
        """Completes an epoch: all its messages count as sent from now on."""
        submissions, found = self._core.submissions, _sender(destination, sender)
        await self._durably(lambda: submissions.commit(found, epoch, run=run, keep=keep))

    async def forget_submission(self, destination: Name, sender: str) -> bool:
        return bool(await self._durably(lambda: self._core.submissions.forget(_sender(destination, sender))))

    @asynccontextmanager
    async def _one_at_a_time(self, part: Part) -> AsyncIterator[None]:
        """Makes a second attempt at the same part wait until the tick of the first has been committed or lost."""
        turns = self._submitting.setdefault(part, _Turns())
        turns.takers += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.takers -= 1
            if not turns.takers:
                del self._submitting[part]


@dataclass(slots=True)
class _Turns:
    """The submissions to one part, under way or waiting."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    takers: int = 0


def _sender(destination: Name, name: str) -> Sender:
    parsed = parse_name(destination) if isinstance(destination, str) else destination
    return Sender(str(parsed).lower(), name)


# Ranges of a queue, read on other threads, so that the event loop stays free.
#
# Damaged records are read on the event loop, by the store's reader, which knows how.


class RunReader:
    """Reads a run of a queue by lookup id. Make it on the event loop, use it on other threads."""

    def __init__(self, queue: Queue, run: Run) -> None:
        self._store, self.first, self.last, self.is_express = run
        self._number = queue.number
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


def runs(queue: Queue, start: int, end: int) -> list[RunReader]:
    return [RunReader(queue, run) for run in queue.runs(start, end)]


def arrival_behind(found: list[RunReader], limit: int) -> int | None:
    """The arrival number of the message after the first `limit` messages; None if there are no more."""
    arrivals: list[int] = []
    for run in found:
        for count, lookup_id in enumerate(run.lookup_ids()):
            if count > limit:
                break
            arrivals.append(lookup_id & ARRIVAL_MASK)
    arrivals.sort()
    return arrivals[limit] if len(arrivals) > limit else None


def first_arrival_since(found: list[RunReader], arrived_ms: int) -> int | None:
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
    found: list[RunReader], shown: Callable[[int], bool] | None, limit: int | None, most_bytes: int | None
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


def divided(start: int, end: int, arrivals: Sequence[int], parts: int) -> tuple[PlannedPart, ...]:
    """Divides a range into up to `parts` parts whose numbers of messages differ by at most one."""
    count = len(arrivals)
    parts = max(1, min(parts, count))
    firsts = [count * part // parts for part in range(parts)] + [count]
    bounds = [start, *(arrivals[first] for first in firsts[1:-1]), end]
    return tuple(PlannedPart(bounds[part], bounds[part + 1], firsts[part + 1] - firsts[part]) for part in range(parts))


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
