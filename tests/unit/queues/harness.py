"""A queue manager's core in a test's hands: a store in memory, a clock that stands still, ticks that land on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from postroad.errors import PostroadError, StorageError
from postroad.message import Message
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import Cursor, OpenQueueDescriptor, Transaction, WaitingRead
from postroad.queues.outgoing_queues import Carrier, Watcher
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.store.interface import Record
from postroad.store.memory import MemoryStore
from postroad.wire.view import MessageView
from tests.follow_ups import raised
from tests.unit.stations import chance

NAME = "alpha"
IDENTIFIER = UUID("11223344-5566-7788-99aa-bbccddeeff00")
STARTED = 1_700_000_000.0
DISK_FULL = StorageError("the disk is full")

ORDERS = r"private$\orders"
OTHER = r"private$\other"
LEDGER = r"private$\ledger"  # transactional
ACKS = r"private$\acks"
JOURNAL, DEADLETTER, DEADXACT = ";journal", ";deadletter", ";deadxact"
ELSEWHERE = r"DIRECT=OS:beta\private$\orders"


class Answer:
    """The result of a waiting read, once there is one."""

    def __init__(self) -> None:
        self.records: list[Record] | None = None
        self.error: PostroadError | None = None

    @property
    def waits(self) -> bool:
        return self.records is None and self.error is None

    @property
    def labels(self) -> list[str]:
        assert self.records is not None
        return labels(self.records)

    def satisfied(self, records: list[Record]) -> None:
        assert self.waits
        self.records = records

    def failed(self, error: PostroadError) -> None:
        assert self.waits
        self.error = error


class Harness:
    """Every verb commits what it changed, unless its name says otherwise. Only a test moves `now`."""

    def __init__(self, *, hardened_security: bool = False, insecure_nacks: bool = False) -> None:
        self.store = MemoryStore()
        self.now = STARTED
        self.hardened_security = hardened_security
        self._insecure_nacks = insecure_nacks
        self.chance = chance(IDENTIFIER)
        self.carriers: list[Carrier] = []  # of every start
        self._start()

    def _start(self) -> None:
        self.manager = LocalQueueManager(
            NAME,
            IDENTIFIER,
            self.store,
            self.chance,
            insecure_nacks=self._insecure_nacks,
            hardened_security=self.hardened_security,
        )
        self.manager.watch(Watcher(follow_up_failed=raised))
        self.manager.start(self.now)
        for carrier in self.carriers:
            self.manager.attach(carrier)
        self.tick()

    def use(self, **settings: Any) -> None:
        """Other settings, as a reload brings them."""
        self.manager.use(replace(self.manager.settings, **settings), self.now)

    def restart(self) -> None:
        """A crash and a new start. What no tick had committed is gone."""
        self._start()

    # Ticks

    def seal(self) -> Tick:
        """A tick that is on its way to the disk."""
        tick = self.manager.ticks.seal()
        assert tick is not None
        return tick

    def land(self, tick: Tick) -> None:
        self.store.commit([tick.batch])
        self.manager.ticks.committed(tick, self.now)

    def lose(self, tick: Tick) -> None:
        self.manager.ticks.failed(tick, DISK_FULL, self.now)

    def tick(self) -> None:
        """Commits all changes, and everything that follows from that."""
        while (tick := self.manager.ticks.seal()) is not None:
            self.land(tick)

    def fail(self) -> None:
        """The commit of all changes fails."""
        self.lose(self.seal())

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.manager.run_timers(self.now)
        self.tick()

    # Queues

    def create(self, path: str, **attributes: object) -> Queue:
        queue = self.manager.create_queue(path, self.now, **attributes)
        self.tick()
        return queue

    def queue(self, name: str) -> Queue:
        return self.manager.queues.get(name)

    def delete(self, name: str) -> None:
        self.manager.delete_queue(self.queue(name), self.now)
        self.tick()

    def purge(self, name: str) -> int:
        purged = self.manager.purge(self.queue(name), self.now)
        self.tick()
        return purged

    def open(
        self, name: str, access: QueueAccess = QueueAccess.RECEIVE, share: ShareMode = ShareMode.DENY_NONE
    ) -> OpenQueueDescriptor:
        return self.manager.open(name, access, share, self.now)

    # Messages

    def send(self, name: str, *messages: Message | str, transaction: Transaction | None = None) -> list[int]:
        """Sends whole messages, or plain ones with these labels."""
        ids = self.promise(name, *messages, transaction=transaction)
        self.tick()
        return ids

    def promise(self, name: str, *messages: Message | str, transaction: Transaction | None = None) -> list[int]:
        """Like `send`, without the commit."""
        whole = [Message(b"body", label=each, recoverable=True) if isinstance(each, str) else each for each in messages]
        return self.manager.send(name, whole, self.now, transaction)

    def send_transactional(self, name: str, *messages: Message | str) -> None:
        """Sends messages in a transaction of their own."""
        transaction = self.manager.begin()
        self.promise(name, *messages, transaction=transaction)
        self.manager.commit(transaction, self.now)
        self.tick()

    def messages(self, name: str) -> list[MessageView]:
        """The messages that a reader could get, in queue order."""
        return [MessageView(record.packet) for record in self.queue(name).available(10_000)]

    def labels(self, name: str) -> list[str]:
        return [view.label for view in self.messages(name)]

    def classes(self, name: str) -> list[int]:
        """The classes of the acknowledgments in a queue. For dead letters, why they died."""
        return [
            record.reason or MessageView(record.packet).message_class for record in self.queue(name).available(10_000)
        ]

    # Reading

    def read(
        self,
        name: str | OpenQueueDescriptor,
        call: ReadCall = ReadCall.RECEIVE,
        count: int = 1,
        *,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
        two_phase: bool = False,
    ) -> list[Record]:
        """A read that does not wait. Raises an error if there is no message."""
        descriptor = self.open(name) if isinstance(name, str) else name
        try:
            request = WaitingRead(descriptor, call, count, self.now, cursor, transaction, two_phase)
            records = self.manager.reading.read(request, self.now)
        finally:
            if isinstance(name, str):
                self.manager.close(descriptor)
            self.tick()
        assert records is not None
        return records

    def receive(self, name: str, count: int = 1) -> list[str]:
        return labels(self.read(name, ReadCall.RECEIVE, count))

    def peek(self, name: str, count: int = 1) -> list[str]:
        return labels(self.read(name, ReadCall.PEEK, count))

    def lock(self, name: str, count: int = 1) -> list[Record]:
        return self.read(name, count=count, two_phase=True)

    def end(self, name: str, record: Record, *, delete: bool) -> None:
        self.manager.reading.end(self.queue(name), record, self.now, delete=delete)
        self.tick()

    def ask(
        self,
        descriptor: OpenQueueDescriptor,
        call: ReadCall = ReadCall.RECEIVE,
        seconds: float | None = None,
        *,
        cursor: Cursor | None = None,
        count: int = 1,
        transaction: Transaction | None = None,
        two_phase: bool = False,
        tag: object = None,
    ) -> Answer:
        """A read that waits, for ever if no time is given."""
        answer = Answer()
        deadline = None if seconds is None else self.now + seconds
        request = WaitingRead(
            descriptor, call, count, deadline, cursor, transaction, two_phase, tag, answer.satisfied, answer.failed
        )
        records = self.manager.reading.read(request, self.now)
        if records is not None:
            answer.records = records
        self.tick()
        return answer


def labels(records: Iterable[Record]) -> list[str]:
    return [MessageView(record.packet).label for record in records]


@contextmanager
def refused(status: int) -> Iterator[None]:
    """The code in this block must end with this HRESULT."""
    with pytest.raises(PostroadError) as caught:
        yield
    assert caught.value.status == status
