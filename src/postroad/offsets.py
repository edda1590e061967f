"""Readers and senders that come back: marks, ranges by order of arrival, holds on them, and submissions sent once.

What pipelines need of a manager, on its event loop. The rules are in queues/holds.py and queues/submissions.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from postroad.errors import PostroadError
from postroad.message import Message
from postroad.names import FormatName, PathName, parse_name
from postroad.queues.holds import COMMIT_BATCH, Hold
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.queues.submissions import Part, Sender
from postroad.received import ReceivedMessage
from postroad.store.interface import ARRIVAL_MASK

Name = FormatName | PathName | str
PAGE = 500  # messages that one turn of the event loop reads


@dataclass(frozen=True, slots=True)
class Mark:
    """Below `arrival` nothing can appear any more. `added` counts the stored messages that ever came before it,
    `oldest` is the arrival number of the first that is there, `messages` how many are."""

    arrival: int
    added: int
    oldest: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class HoldInfo:
    """The range that a reader holds, and how many messages are in it; when it was first made."""

    name: str
    start: int
    end: int
    messages: int
    since_s: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a range, by order of arrival, and which columns of them; what is None does not select."""

    start: int = 0
    end: int | None = None
    hold: str | None = None
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    priority: int | None = None
    message_class: int | None = None
    label: str | None = None

    def passes(self, message: ReceivedMessage) -> bool:
        return (
            self.priority in (None, message.priority)
            and self.message_class in (None, message.message_class)
            and self.label in (None, message.label)
        )


@dataclass(frozen=True, slots=True)
class Submission:
    """How many messages were sent now, and how many had been before."""

    sent: int
    dropped: int


class Durably(Protocol):
    def __call__(self, operation: Callable[[], Any]) -> Awaitable[Any]: ...


class Offsets:
    """A manager's part for pipelines; `durably` runs a change and returns when it is on disk."""

    def __init__(self, core: LocalQueueManager, durably: Durably, clock: Callable[[], float]) -> None:
        self._core = core
        self._durably = durably
        self._clock = clock
        self._submitting: dict[Part, _Turns] = {}

    def _queue(self, name: Name) -> Queue:
        return self._core.queues.get(name)

    # Marks

    def mark(self, name: Name, start: int = 0, limit: int | None = None) -> Mark:
        """With `limit`, `arrival` is no further than behind that many messages from `start` on."""
        queue = self._queue(name)
        arrival = self._core.mark(queue)
        if limit is not None:
            following = queue.by_arrival(start, arrival, limit + 1)
            if len(following) > limit:
                arrival = following[-1].lookup_id & ARRIVAL_MASK
        return Mark(arrival, queue.stored_added, queue.first_arrival, queue.count)

    # Ranges

    async def pages(self, name: Name, selection: Selection, page: int = PAGE) -> AsyncIterator[list[ReceivedMessage]]:
        """The messages that a reader with this hold sees, in the order they came, up to `page` at a time."""
        queue = self._queue(name)
        hold = None if selection.hold is None else queue.holds.get(selection.hold)
        arrived = self._core.arrived(queue)
        start, stop = selection.start, arrived if selection.end is None else min(selection.end, arrived)
        left = selection.limit
        while start < stop and left != 0:
            records = queue.by_arrival(start, stop, page, hold)
            if not records:
                return
            messages = [
                ReceivedMessage(each.packet, each.lookup_id, each.arrived_ms, each.aborts, each.reason)
                for each in records
            ]
            found = [each for each in messages if selection.passes(each)][:left]
            if found:
                yield found
            if left is not None:
                left -= len(found)
            start = (records[-1].lookup_id & ARRIVAL_MASK) + 1
            await asyncio.sleep(0)

    # Holds

    def holds(self, name: Name) -> list[HoldInfo]:
        queue = self._queue(name)
        return [self._describe(queue, hold) for hold in queue.holds.values()]

    async def hold(self, name: Name, holder: str, start: int, end: int | None = None) -> HoldInfo:
        """Keeps the range from everybody else until it is committed or released; up to the mark if no end is given."""
        queue = self._queue(name)

        def put() -> Hold:
            arrived = self._core.arrived(queue)
            stop = max(start, self._core.mark(queue)) if end is None else end
            return self._core.holding.put(queue, holder, start, stop, arrived, self._clock())

        return self._describe(queue, await self._durably(put))

    async def commit_hold(self, name: Name, holder: str, end: int) -> int:
        """Receives what is held below `end`, a step at a time; how many messages went."""
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

    def _describe(self, queue: Queue, hold: Hold) -> HoldInfo:
        count = len(queue.by_arrival(hold.start, hold.end, queue.count, hold))
        return HoldInfo(hold.name, hold.start, hold.end, count, hold.since_s)

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
    ) -> Submission:
        """Sends those of the rows from `row` on that were not sent yet: all of them, or none.

        Where nobody says whether they go in a transaction, they go as the local queue wants them.
        """
        part = Part(_sender(destination, sender), epoch, partition)

        def send() -> Submission:
            core = self._core
            dropped = core.submissions.sent(part, row, len(messages))
            rest = messages[dropped:]
            if rest:
                self._send(destination, rest, transactional)
                core.submissions.note(part, row + len(messages))
            return Submission(len(rest), dropped)

        async with self._one_at_a_time(part):
            found: Submission = await self._durably(send)
            return found

    def _send(self, destination: Name, messages: Sequence[Message], transactional: bool | None) -> None:
        core, now = self._core, self._clock()
        if transactional is None:
            queue = core.queues.find(destination)
            transactional = queue is not None and queue.properties.transactional
        if not transactional:
            core.send(destination, messages, now)
            return
        transaction = core.begin()
        try:
            core.send(destination, messages, now, transaction)
        except PostroadError:
            core.abort(transaction, now)
            raise
        core.commit(transaction, now)

    async def commit_submission(self, destination: Name, sender: str, epoch: int) -> None:
        """The epoch is complete: whatever comes of it again has been sent."""
        await self._durably(lambda: self._core.submissions.commit(_sender(destination, sender), epoch))

    async def forget_submission(self, destination: Name, sender: str) -> bool:
        return bool(await self._durably(lambda: self._core.submissions.forget(_sender(destination, sender))))

    @asynccontextmanager
    async def _one_at_a_time(self, part: Part) -> AsyncIterator[None]:
        """A second attempt of the same part waits until it is known whether the first one's tick was lost."""
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
    """The submissions to one part that are under way or wait."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    takers: int = 0


def _sender(destination: Name, name: str) -> Sender:
    parsed = parse_name(destination) if isinstance(destination, str) else destination
    return Sender(str(parsed).lower(), name)
