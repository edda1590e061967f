"""The ticks of a queue manager on their way to the disk: one at a time, and what gathers meanwhile goes with the next.

Without I/O or clock: whoever drives it gives it the time, a way to wait, and a disk that says how a batch has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Protocol, TypeVar

from postroad.errors import PostroadError, StorageError
from postroad.queues.collection import COUNT_STATE
from postroad.queues.tick import Tick
from postroad.store.interface import Batch, Record

if TYPE_CHECKING:
    from postroad.queues.local import LocalQueueManager
    from postroad.queues.queue import Queue

# What nobody waits for, such as the end of messages that have arrived elsewhere, shares a commit with what comes next.
UNHURRIED_S = 0.01
ENOUGH = 64  # callers that wait for one commit: it gains nothing by more

T = TypeVar("T")
Done = Callable[[StorageError | None], object]


class Timer(Protocol):
    def cancel(self) -> None: ...


class Ticks:
    """What has gathered is sealed, and then it has landed or is lost. One tick is out at a time."""

    def __init__(self, core: LocalQueueManager) -> None:
        self._core = core
        self._delivery = core.delivery
        self._out: Tick | None = None  # the tick that is being committed

    def seal(self, now: float = 0.0) -> Tick | None:
        """Hands over what has gathered, to be committed; None where there is nothing. One tick is out at a time.

        StorageError where it cannot be written down: then it is lost as a whole, as if the disk had refused it.
        """
        tick = self._delivery.tick
        try:
            for callback in tick.on_seal:
                callback()
            if not tick:
                return None
            for queue, change in tick.changes.items():
                if queue.number in self._core.queues.by_number:
                    tick.batch.state[f"{COUNT_STATE}{queue.number}"] = queue.encode_counts(change)
        except Exception as error:
            self._delivery.note_failure(None, error)
            lost = StorageError(f"what was to be stored cannot be written down: {error!r}")
            self._delivery.tick = Tick()
            self.failed(tick, lost, now)
            raise lost from error
        self._delivery.tick = Tick()
        self._out = tick
        self._core.counters.reserve(tick.batch)
        return tick

    def committed(self, tick: Tick, now: float, answer: Callable[[], object] = lambda: None) -> None:
        """The tick is durable: messages appear and vanish, promises are kept, readers are served. Never raises.

        `answer` comes before the readers: a sender that waits for it can go on while they are served.
        """
        self._out = None
        try_after = self._delivery.try_after
        for queue, lookup_ids in tick.taken:
            queue.gone(lookup_ids)
        self._note_records(tick)
        for queue, change in tick.changes.items():
            queue.note(change)
            if queue.deleted:
                try_after(None, self._core.empty, queue, now)  # it was deleted while the tick was out
        for callback in tick.on_commit:
            try_after(None, callback)
        answer()
        for queue, change in tick.changes.items():
            if change.added and queue.waiting:
                try_after(None, self._core.reading.wake, queue, now, tick.added_to(queue))
            if change.added and queue.carrier is not None:
                try_after(None, queue.carrier.ready, queue, now)

    def _note_records(self, tick: Tick) -> None:
        """Queues hear of the records that are new, or have changed."""
        puts, by_number = tick.batch.puts, self._core.queues.by_number
        for key in tick.replaced:
            if key in puts and (replaced := by_number.get(key[0])):
                replaced.changed()
        added: dict[int, list[Record]] = {}
        for key, record in puts.items():
            if (records := added.get(record.queue)) is None:
                records = added[record.queue] = []
            if key not in tick.replaced:
                records.append(record)
        for queue in tick.changes:
            if records := added.get(queue.number):
                queue.came(records)

    def failed(self, tick: Tick, error: StorageError, now: float) -> None:
        """The tick is lost as a whole: what it took is available again, what it added never was. Never raises."""
        self._out = None
        try_after = self._delivery.try_after
        for queue, lookup_ids in tick.taken:
            queue.unmark_all(lookup_ids)
        for queue, change in tick.changes.items():
            queue.release(change.added_bytes)
        for queue, keys in tick.sequenced.items():
            try_after(None, self._core.transacting.close_gap, queue, len(keys))
        for step in reversed(tick.undo):
            try_after(None, step, self._delivery.tick)
        for callback in tick.on_failure:
            try_after(None, callback, error)
        self._core.counters.lapse()
        for queue in tick.changes:
            if queue.deleted:
                try_after(None, self._core.empty, queue, now)
            elif queue.waiting:
                opened = sorted(chain.from_iterable(lookup_ids for each, lookup_ids in tick.taken if each is queue))
                try_after(None, self._core.reading.wake, queue, now, opened)

    def arrived(self, queue: Queue) -> int:
        """The arrival number below which no message can come into the queue any more: all ticks with such have landed.

        A transaction's messages get theirs when it commits, however long it was open.
        """
        for tick in (self._out, self._delivery.tick):
            change = None if tick is None else tick.changes.get(queue)
            if change is not None and change.added and change.first_arrival is not None:
                return change.first_arrival
        return self._core.counters.last_arrival + 1


class Commits:
    """Durable, then answered: `run` a change, and answer at once or in `when_durable`. `soon` is for changes that
    nobody waits for."""

    def __init__(
        self,
        core: LocalQueueManager,
        clock: Callable[[], float],
        after: Callable[[float, Callable[[], None]], Timer],
        write: Callable[[Batch, Done], None],
    ) -> None:
        """`after` with 0 seconds runs what else is ready first: all of that is one commit."""
        self.gathered: list[Done] = []  # who waits for the tick that gathers
        self.under_way: list[Done] = []  # who waits for the one that is being written
        self._relying: list[Done] = []  # of those gathered, whose answers depend on the one being written too
        self.last_error: StorageError | None = None  # of the last commit; None where it worked
        self.last_failure: StorageError | None = None
        self.failures = 0
        self._ticks = core.ticks
        self._delivery = core.delivery
        self._clock = clock
        self._after = after
        self._write = write
        self._in_flight: Tick | None = None
        self._scheduled = False
        self._shared = False  # several have waited for the last commit
        self._seen = 0  # who waited one turn ago
        self._unhurried: Timer | None = None

    @property
    def writing(self) -> bool:
        return self._in_flight is not None

    @property
    def idle(self) -> bool:
        """Nothing is on its way, and nothing has to be."""
        return not (self.writing or self.gathered or self._delivery.tick)

    def run(self, operation: Callable[[], T]) -> tuple[T, bool]:
        """The result of an operation, and whether an answer has to wait until the change is durable."""
        tick, writes = self._delivery.tick, self._delivery.tick.writes
        try:
            result = operation()
        except PostroadError:
            if self._delivery.tick:
                self.hurry()  # a refusal may have been told to an administration queue
            raise
        return result, tick.writes != writes

    def when_durable(self, done: Done, *, repeats: bool = False) -> None:
        """Calls `done` when everything that was changed before this call is on disk, or with the reason it is not.

        With `repeats`, something was dropped as a duplicate of a message that may still be on its way to the disk: then
        `done` also hears of the failure of that commit.
        """
        self.gathered.append(done)
        if repeats and self.writing:
            self._relying.append(done)
        self.hurry()

    def soon(self) -> None:
        """Commits what has gathered, if anything has, without anybody waiting for it."""
        if self._delivery.tick and self._unhurried is None and not self._scheduled and not self.writing:
            self._unhurried = self._after(UNHURRIED_S, self.hurry)

    def hurry(self) -> None:
        """Commits what has gathered now, or right after the commit that is under way."""
        if not self._scheduled and not self.writing:
            self._scheduled = True
            self._seen = 0
            self._after(0.0, self._gather)
            if self._unhurried is not None:
                self._unhurried.cancel()
                self._unhurried = None

    def _gather(self) -> None:
        """Callers that got their answers together send their next requests together, but not all in one turn of the
        event loop. So after a commit that several have waited for, the next one starts with the first turn that brings
        no more of them. A caller that is alone never waits for others."""
        waiting = len(self.gathered)
        if self._shared and self._seen < waiting < ENOUGH:
            self._seen = waiting
            self._after(0.0, self._gather)
        else:
            self._shared = waiting > 1
            self._commit()

    def _commit(self) -> None:
        self._scheduled = False
        promised, self.gathered = self.gathered, []
        try:
            tick = self._ticks.seal(self._clock())
        except StorageError as error:
            self.last_error = error
            self._answer(promised, error)
            self._go_on()
            return
        if tick is None:
            self._answer(promised, None)
            self._go_on()
            return
        self._in_flight, self.under_way = tick, promised
        try:
            self._write(tick.batch, self._landed)
        except Exception as error:
            if self._in_flight is not tick:
                raise  # it has ended
            self._landed(StorageError(f"the store took no batch: {error!r}"))

    def _landed(self, error: StorageError | None) -> None:
        tick, self._in_flight = self._in_flight, None
        promised, self.under_way = self.under_way, []
        relying, self._relying = self._relying, []
        assert tick is not None
        self.last_error = error
        if error is None:
            self._ticks.committed(tick, self._clock(), lambda: self._answer(promised, None))
        else:
            self.failures += 1
            self.last_failure = error
            self._ticks.failed(tick, error, self._clock())
            promised += relying
            self.gathered = [done for done in self.gathered if done not in relying]
            self._answer(promised, error)
        self._go_on()

    def _answer(self, promised: list[Done], error: StorageError | None) -> None:
        """Every caller hears how it ended, also if another one fails at that."""
        for done in promised:
            self._delivery.try_after(None, done, error)

    def _go_on(self) -> None:
        """Commits what has gathered meanwhile."""
        if self.gathered:
            self.hurry()
        else:
            self.soon()
