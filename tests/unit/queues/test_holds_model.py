"""Random histories: a stream holds, reads and commits ranges, while others send, receive, lock and purge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postroad.message import Message
from postroad.queues.holds import COMMIT_BATCH
from postroad.queues.open_queue import Transaction
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.store.interface import ARRIVAL_MASK, Record
from tests.unit.queues.harness import LEDGER, ORDERS, Harness

STREAM = "stream"
priorities = st.integers(0, 7)
lifetimes = st.sampled_from((None, None, 5))


@dataclass(slots=True)
class Batch:
    """What the stream has planned, and what it saw when it first read it."""

    start: int
    end: int
    seen: list[int]
    committing: bool = False


class Pipeline(RuleBasedStateMachine):
    name: ClassVar[str]

    @initialize()
    def begin(self) -> None:
        self.harness = Harness()
        self.harness.create(self.name, transactional=self.name == LEDGER)
        self.out: Tick | None = None
        self.open: list[Transaction] = []
        self.locked: list[Record] = []
        self.offset = 0
        self.batch: Batch | None = None
        self.delivered: set[int] = set()
        self.returned: set[int] = set()  # by a lost tick: a disk that fails is no reader

    @property
    def queue(self) -> Queue:
        return self.harness.queue(self.name)

    def flush(self) -> None:
        """All changes land."""
        if self.out is not None:
            self.harness.land(self.out)
            self.out = None
        self.harness.tick()

    def read(self) -> list[int]:
        """What the stream sees of its batch."""
        assert self.batch is not None
        hold = self.queue.holds[STREAM]
        records = self.queue.by_arrival(self.batch.start, self.batch.end, 10_000, hold)
        return [record.lookup_id for record in records]

    def message(self, priority: int, lifetime: int | None) -> Message:
        return Message(b"body", priority=priority, recoverable=True, time_to_be_received=lifetime)

    # Ticks

    @precondition(lambda self: self.out is None and bool(self.harness.manager.tick))
    @rule()
    def seal(self) -> None:
        self.out = self.harness.manager.ticks.seal()

    @precondition(lambda self: self.out is not None)
    @rule()
    def land(self) -> None:
        assert self.out is not None
        self.harness.land(self.out)
        self.out = None

    @precondition(lambda self: self.out is not None)
    @rule()
    def lose(self) -> None:
        assert self.out is not None
        self.returned |= {each for queue, taken in self.out.taken if queue is self.queue for each in taken}
        self.harness.lose(self.out)
        self.out = None

    @rule()
    def crash(self) -> None:
        self.harness.restart()
        self.out = None
        self.open.clear()
        self.locked.clear()
        if self.batch is not None and not self.batch.committing:
            manager = self.harness.manager
            queue = self.queue
            manager.holding.put(
                queue, STREAM, self.batch.start, self.batch.end, manager.ticks.arrived(queue), self.harness.now
            )
            self.harness.tick()
            assert self.read() == self.batch.seen

    # Others

    @rule(number=st.integers(1, 4), priority=priorities, lifetime=lifetimes)
    def send(self, number: int, priority: int, lifetime: int | None) -> None:
        messages = [self.message(priority, lifetime) for _ in range(number)]
        manager, now = self.harness.manager, self.harness.now
        if self.name == LEDGER:
            transaction = manager.begin()
            manager.send(self.name, messages, now, transaction)
            manager.commit(transaction, now)
        else:
            manager.send(self.name, messages, now)

    @precondition(lambda self: self.name == LEDGER)
    @rule(number=st.integers(1, 3))
    def send_late(self, number: int) -> None:
        transaction = self.harness.manager.begin()
        messages = [self.message(3, None) for _ in range(number)]
        self.harness.manager.send(self.name, messages, self.harness.now, transaction)
        self.open.append(transaction)

    @precondition(lambda self: bool(self.open))
    @rule(commit=st.booleans())
    def end_late(self, commit: bool) -> None:
        transaction = self.open.pop(0)
        manager = self.harness.manager
        (manager.commit if commit else manager.abort)(transaction, self.harness.now)

    @rule()
    def receive(self) -> None:
        delivery, now = self.harness.manager.delivery, self.harness.now
        delivery.receive(self.queue, delivery.fresh(self.queue, 1, now), now)

    @rule()
    def lock(self) -> None:
        for record in self.harness.manager.delivery.fresh(self.queue, 1, self.harness.now):
            self.harness.manager.reading._claim(self.queue, (record,), None, True, self.harness.now)
            self.locked.append(record)

    @precondition(lambda self: bool(self.locked))
    @rule(delete=st.booleans())
    def settle(self, delete: bool) -> None:
        record = self.locked.pop(0)
        self.harness.manager.reading.end(self.queue, record, self.harness.now, delete=delete)

    @rule()
    def purge(self) -> None:
        self.harness.manager.purge(self.queue, self.harness.now)

    @rule(seconds=st.sampled_from((1, 10)))
    def wait(self, seconds: int) -> None:
        self.harness.now += seconds
        self.harness.manager.run_timers(self.harness.now)

    # The stream

    @precondition(lambda self: self.batch is None)
    @rule()
    def plan(self) -> None:
        manager, queue = self.harness.manager, self.queue
        end = manager.ticks.mark(queue)
        if end <= self.offset:
            return
        hold = manager.holding.put(queue, STREAM, self.offset, end, manager.ticks.arrived(queue), self.harness.now)
        assert hold.passed_over <= {each for each in queue.positions if each not in {r.lookup_id for r in self.locked}}
        self.flush()
        self.batch = Batch(self.offset, end, [])
        self.batch.seen = self.read()
        assert not self.delivered & set(self.batch.seen)

    @precondition(lambda self: self.batch is not None and not self.batch.committing)
    @rule()
    def read_again(self) -> None:
        assert self.batch is not None
        assert self.read() == self.batch.seen

    @precondition(lambda self: self.batch is not None)
    @rule(lost=st.booleans())
    def commit(self, lost: bool) -> None:
        """One step of the commit: the first one if the tick is lost, or all of them."""
        assert self.batch is not None
        self.flush()
        self.batch.committing = True
        self.harness.manager.holding.commit(self.queue, STREAM, self.batch.end, self.harness.now, COMMIT_BATCH)
        if lost:
            if self.harness.manager.tick:
                self.harness.fail()
            return
        self.flush()
        assert STREAM not in self.queue.holds
        there = {record.lookup_id for record in self.queue.everything()}
        assert there.isdisjoint(self.batch.seen)
        self.delivered |= set(self.batch.seen)
        self.offset, self.batch = self.batch.end, None

    @precondition(lambda self: self.batch is not None and not self.batch.committing)
    @rule()
    def give_up(self) -> None:
        """The stream ends, and somebody releases its hold. Everybody can have the messages again."""
        assert self.batch is not None
        self.flush()
        self.harness.manager.holding.release(self.queue, STREAM, self.harness.now)
        self.flush()
        there = {record.lookup_id for record in self.queue.everything()}
        assert set(self.batch.seen) <= there
        self.batch = None

    # What always holds

    @invariant()
    def what_is_held_is_nobody_elses(self) -> None:
        if self.batch is not None and not self.batch.committing:
            seen = set(self.batch.seen)
            assert seen.isdisjoint(record.lookup_id for record in self.queue.available(10_000))
            assert seen.isdisjoint(self.queue.positions)

    @invariant()
    def nothing_is_passed_over(self) -> None:
        for record in self.queue.available(10_000):
            if record.lookup_id & ARRIVAL_MASK < self.offset:
                assert record.lookup_id in self.returned

    @invariant()
    def nothing_appears_below_the_mark(self) -> None:
        mark = self.harness.manager.ticks.mark(self.queue)
        for tick in (self.out, self.harness.manager.tick):
            if tick is not None:
                assert all(lookup_id & ARRIVAL_MASK >= mark for lookup_id in tick.added_to(self.queue))


class OfPriorities(Pipeline):
    name = ORDERS


class OfTransactions(Pipeline):
    name = LEDGER


TestOfPriorities = OfPriorities.TestCase
TestOfPriorities.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestOfTransactions = OfTransactions.TestCase
TestOfTransactions.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
