r"""Any sequence of sends, reads, transactions, expiry, purges, moves, failed commits and restarts, compared with a
model."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postroad.errors import NoMessage, StorageError
from postroad.manager.composition import SECRET
from postroad.message import Message
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import Transaction, WaitingRead
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.store import LayeredStore, Store
from postroad.store.interface import Record
from postroad.wire.view import MessageView
from tests.model.queues import Model, ModelMessage, ModelQueue, ModelTransaction

PLAIN, OTHER, TRANSACTIONAL = r"private$\plain", r"private$\other", r"private$\transactional"
ABORT_LIMIT = 3
IDENTIFIER = UUID("11223344-5566-7788-99aa-bbccddeeff00")
NON_TRANSACTIONAL = st.sampled_from([PLAIN, OTHER])
ANY_QUEUE = st.sampled_from([PLAIN, OTHER, TRANSACTIONAL])


def labels(records: list[Record]) -> list[str]:
    return [MessageView(record.packet).label for record in records]


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.now = 1_700_000_000.0
        self.sent = 0
        self.open_transactions: list[tuple[Transaction, ModelTransaction]] = []
        self.locked: list[tuple[str, Record, ModelMessage]] = []
        self.model = Model(
            {
                PLAIN: ModelQueue(),
                OTHER: ModelQueue(journaling=True),
                TRANSACTIONAL: ModelQueue(transactional=True, journaling=True),
            },
            ABORT_LIMIT,
        )

    @initialize()
    def create(self) -> None:
        self.open_store()
        self.manager.create_queue(PLAIN, self.now)
        self.manager.create_queue(OTHER, self.now, journal=True)
        self.manager.create_queue(TRANSACTIONAL, self.now, transactional=True, journal=True, abort_limit=ABORT_LIMIT)
        self.commit_tick()

    def open_store(self) -> None:
        self.store: Store = LayeredStore(self.directory)
        self.manager = LocalQueueManager("alpha", IDENTIFIER, self.store, SECRET)
        self.manager.start(self.now)
        self.commit_tick()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def commit_tick(self) -> None:
        while (tick := self.manager.ticks.seal()) is not None:
            self.store.commit([tick.batch])
            self.manager.ticks.committed(tick, self.now)

    def fail_tick(self) -> None:
        tick = self.manager.ticks.seal()
        if tick is not None:
            self.manager.ticks.failed(tick, StorageError("the disk is full"), self.now)

    def new_labels(self, count: int) -> list[str]:
        self.sent += count
        return [f"m{self.sent - count + each}" for each in range(count)]

    # Rules

    @rule(
        queue=NON_TRANSACTIONAL,
        priority=st.integers(0, 7),
        recoverable=st.booleans(),
        count=st.integers(1, 3),
        lives_s=st.none() | st.integers(1, 20),
    )
    def send(self, queue: str, priority: int, recoverable: bool, count: int, lives_s: int | None) -> None:
        names = self.new_labels(count)
        messages = [
            Message(b"x", label=label, priority=priority, recoverable=recoverable, time_to_be_received=lives_s)
            for label in names
        ]
        self.manager.send(queue, messages, self.now)
        self.commit_tick()
        expires = None if lives_s is None else int(self.now) + lives_s
        for label in names:
            self.model.add(queue, label, priority, recoverable, expires)

    @rule(queue=NON_TRANSACTIONAL, priority=st.integers(0, 7))
    def send_and_fail(self, queue: str, priority: int) -> None:
        self.manager.send(queue, [Message(b"x", label="lost", priority=priority, recoverable=True)], self.now)
        self.fail_tick()

    def read(self, queue: str, call: ReadCall, count: int, **options: object) -> list[Record]:
        access = QueueAccess.RECEIVE if call is ReadCall.RECEIVE else QueueAccess.PEEK
        descriptor = self.manager.open(queue, access, ShareMode.DENY_NONE, self.now)
        try:
            request = WaitingRead(descriptor, call, count, self.now, **options)  # type: ignore[arg-type]
            return self.manager.reading.read(request, self.now) or []
        except NoMessage:
            return []
        finally:
            self.manager.close(descriptor)

    def expected(self, queue: str, count: int) -> list[ModelMessage]:
        self.model.expire(int(self.now), [queue])
        return self.model.queues[queue].available()[:count]

    @rule(queue=ANY_QUEUE, count=st.integers(1, 4))
    def receive(self, queue: str, count: int) -> None:
        expected = self.expected(queue, count)
        assert labels(self.read(queue, ReadCall.RECEIVE, count)) == [each.label for each in expected]
        self.commit_tick()
        for each in expected:
            self.model.receive(queue, each)

    @rule(count=st.integers(1, 4))
    def receive_and_fail(self, count: int) -> None:
        expected = self.expected(TRANSACTIONAL, count)
        self.commit_tick()
        assert labels(self.read(TRANSACTIONAL, ReadCall.RECEIVE, count)) == [each.label for each in expected]
        self.fail_tick()

    @rule(queue=ANY_QUEUE, count=st.integers(1, 4))
    def peek(self, queue: str, count: int) -> None:
        expected = self.expected(queue, count)
        assert labels(self.read(queue, ReadCall.PEEK, count)) == [each.label for each in expected]
        self.commit_tick()

    @rule(queue=ANY_QUEUE)
    def lock(self, queue: str) -> None:
        expected = self.expected(queue, 1)
        records = self.read(queue, ReadCall.RECEIVE, 1, two_phase=True)
        self.commit_tick()
        assert labels(records) == [each.label for each in expected]
        for record, each in zip(records, expected, strict=True):
            each.holder = self
            self.locked.append((queue, record, each))

    @precondition(lambda self: self.locked)
    @rule(data=st.data(), delete=st.booleans())
    def settle(self, data: st.DataObject, delete: bool) -> None:
        queue, record, message = self.locked.pop(data.draw(st.integers(0, len(self.locked) - 1)))
        self.manager.reading.end(self.manager.queues.get(queue), record, self.now, delete=delete)
        self.commit_tick()
        if message.purged:
            self.model.queues[queue].messages.remove(message)
        elif delete:
            self.model.receive(queue, message)
        else:
            message.holder = None

    @precondition(lambda self: len(self.open_transactions) < 2)
    @rule()
    def begin(self) -> None:
        self.open_transactions.append((self.manager.begin(uuid4()), ModelTransaction()))

    @precondition(lambda self: self.open_transactions)
    @rule(count=st.integers(1, 3))
    def send_in_transaction(self, count: int) -> None:
        transaction, model = self.open_transactions[-1]
        names = self.new_labels(count)
        self.manager.send(TRANSACTIONAL, [Message(b"x", label=label) for label in names], self.now, transaction)
        model.sends += [(TRANSACTIONAL, label) for label in names]

    @precondition(lambda self: self.open_transactions)
    @rule(count=st.integers(1, 3))
    def receive_in_transaction(self, count: int) -> None:
        transaction, model = self.open_transactions[-1]
        expected = self.expected(TRANSACTIONAL, count)
        records = self.read(TRANSACTIONAL, ReadCall.RECEIVE, count, transaction=transaction)
        self.commit_tick()
        assert labels(records) == [each.label for each in expected]
        for each in expected:
            each.holder = model
            model.receives.append((TRANSACTIONAL, each))

    @precondition(lambda self: self.open_transactions)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        transaction, model = self.open_transactions.pop(data.draw(st.integers(0, len(self.open_transactions) - 1)))
        self.manager.commit(transaction, self.now)
        self.commit_tick()
        self.model.commit(model)

    @precondition(lambda self: self.open_transactions)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        transaction, model = self.open_transactions.pop(data.draw(st.integers(0, len(self.open_transactions) - 1)))
        self.manager.abort(transaction, self.now)
        self.commit_tick()
        self.model.abort(model)

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.manager.run_timers(self.now)
        self.commit_tick()
        self.model.expire(int(self.now), self.model.queues)

    @rule(queue=ANY_QUEUE)
    def purge(self, queue: str) -> None:
        self.manager.purge(self.manager.queues.get(queue), self.now)
        self.commit_tick()
        self.model.purge(queue)

    @rule(source=NON_TRANSACTIONAL, count=st.integers(1, 3))
    def move(self, source: str, count: int) -> None:
        target = OTHER if source == PLAIN else PLAIN
        expected = self.expected(source, count)
        queue = self.manager.queues.get(source)
        records = self.manager.delivery.fresh(queue, 1000, self.now)[:count]  # the model looks at the whole queue
        assert labels(records) == [each.label for each in expected]
        self.manager.move(queue, self.manager.queues.get(target), records, self.now)
        self.commit_tick()
        for each in expected:
            self.model.queues[source].messages.remove(each)
            self.model.add(target, each.label, each.priority, each.recoverable, each.expires_s)

    @rule(promised=st.booleans())
    def restart(self, promised: bool) -> None:
        """A crash. What no tick had committed is gone, and so is every lock and every open transaction."""
        if promised:
            self.manager.send(PLAIN, [Message(b"x", label="never committed", recoverable=True)], self.now)
        self.store.close()
        self.open_transactions.clear()
        self.locked.clear()
        self.model.restart()
        self.open_store()

    # What must hold after every step

    @invariant()
    def the_queues_are_as_the_model_says(self) -> None:
        if not hasattr(self, "manager"):
            return
        queues = self.manager.queues
        assert queues.usage.used_bytes == sum(queue.used_bytes for queue in queues)
        for path, expected in self.model.queues.items():
            queue = self.manager.queues.get(path)
            available = [each.label for each in expected.available()]
            # An expired message is still there until somebody looks. After a look, both sides agree.
            if all(each.expires_s is None or each.expires_s >= int(self.now) for each in expected.messages):
                assert labels(queue.available(1000)) == available
            assert queue.count == len(expected.messages)
            assert queue.total_bytes == sum(len(record.packet) for record in queue.everything())
            assert queue.journal is not None
            assert labels(queue.journal.available(10_000)) == expected.journaled()
        poison = self.manager.queues.get(TRANSACTIONAL).subqueues.get("poison")
        assert (labels(poison.available(10_000)) if poison else []) == self.model.poison


QueueMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("QUEUE_MODEL_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestQueueModel = pytest.mark.spec("DM-3.1.1.2-10", "DM-3.1.4.5-02", "DM-3.1.3-11")(QueueMachine.TestCase)
