"""Queue managers joined in memory, with any carrier: their verbs and ticks, and a clock that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID, uuid4

from postroad.errors import StorageError
from postroad.message import Message
from postroad.queues.core_settings import Chance
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import WaitingRead
from postroad.queues.outgoing_queues import OutgoingInfo
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.store.interface import Record
from postroad.store.memory import MemoryStore
from postroad.wire.view import MessageView

STARTED = 1_700_000_000.0
DISK_FULL = StorageError("the disk is full")
MOST_STEPS = 20_000  # of one `run`: two managers that never fall silent are a bug

ORDERS = r"private$\orders"
LEDGER = r"private$\ledger"  # transactional
ACKS = r"private$\acks"
JOURNAL, DEADLETTER, DEADXACT = ";journal", ";deadletter", ";deadxact"

Done = Callable[[StorageError | None], object]


def chance(seed: UUID) -> Chance:
    """The same in each run: two runs can be compared."""
    return Chance(uuid4, Random(seed.int).randrange)


class BaseNetwork:
    """The clock that stations share, and the order of what happens."""

    now: float = STARTED

    def _step(self) -> bool:
        """One thing that happens without time passing. Returns whether there was any."""
        raise NotImplementedError

    def _deadlines(self) -> Iterable[float | None]:
        raise NotImplementedError

    def _on_timer(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        """Everything that happens without time passing."""
        for _ in range(MOST_STEPS):
            if not self._step():
                return
        raise AssertionError("the network does not fall silent")

    def wait(self, seconds: float) -> None:
        """Time passes from one deadline to the next. Everything that is due happens at its time."""
        end = self.now + seconds
        self.run()
        for _ in range(MOST_STEPS):
            due = [deadline for deadline in self._deadlines() if deadline is not None]
            if not due or min(due) > end:
                break
            self.now = max(self.now, min(due))
            self._ring()
        else:
            raise AssertionError("timers never rest")
        self.now = end
        self._ring()

    def _ring(self) -> None:
        self._on_timer()
        self.run()


class BaseStation:
    """A queue manager. Its verbs run the network until nothing happens any more."""

    network: BaseNetwork
    core: LocalQueueManager
    store: MemoryStore
    commits = True  # a test that holds ticks back says False, then `land` or `lose`
    _promises: list[Done]
    _out: tuple[Tick, list[Done]] | None

    def use(self, **settings: Any) -> None:
        """Other settings of the core, as a reload brings them."""
        self.core.use(replace(self.core.settings, **settings), self.network.now)

    def _make_queues(self) -> None:
        for path in (ORDERS, ACKS):
            self.create(path)
        self.create(LEDGER, transactional=True)

    # Ticks

    def commit(self) -> bool:
        """Commits what has gathered. Returns whether there was anything."""
        if self._out is not None or not (self.core.tick or self._promises):
            return False
        self.seal()
        self.land()
        return True

    def seal(self) -> None:
        """What has gathered is on its way to the disk. Later changes gather in the next tick."""
        assert self._out is None
        promises, self._promises = self._promises, []
        self._out = (self.core.ticks.seal() or Tick(), promises)

    def land(self) -> None:
        assert self._out is not None
        (tick, promises), self._out = self._out, None
        if tick:
            self.store.commit([tick.batch])
            self.core.ticks.committed(tick, self.network.now)
        for done in promises:
            done(None)

    def lose(self) -> None:
        """The commit of the sealed tick fails. Those who rely on it learn of that too, as in Commits."""
        assert self._out is not None
        (tick, promises), self._out = self._out, None
        relying = self._relying_on_it()
        self._promises = [done for done in self._promises if done not in relying]
        self.core.ticks.failed(tick, DISK_FULL, self.network.now)
        for done in (*promises, *relying):
            done(DISK_FULL)

    def _relying_on_it(self) -> list[Done]:
        """The promises made since a tick was sealed that need it too."""
        return self._promises

    # Queues and messages

    def create(self, path: str, **attributes: object) -> Queue:
        queue = self.core.create_queue(path, self.network.now, **attributes)
        self.network.run()
        return queue

    def queue(self, name: str) -> Queue:
        return self.core.queues.get(name)

    def send(self, name: str, *messages: Message | str) -> list[int]:
        """Sends whole messages, or plain recoverable ones with these labels."""
        ids = self.core.send(name, [whole(each) for each in messages], self.network.now)
        self.network.run()
        return ids

    def send_transactional(self, name: str, *messages: Message | str) -> list[int]:
        transaction = self.core.begin()
        ids = self.core.send(name, [whole(each) for each in messages], self.network.now, transaction)
        self.core.commit(transaction, self.network.now)
        self.network.run()
        return ids

    def receive(self, name: str, count: int = 1) -> list[str]:
        descriptor = self.core.open(name, QueueAccess.RECEIVE, ShareMode.DENY_NONE, self.network.now)
        request = WaitingRead(descriptor, ReadCall.RECEIVE, count, self.network.now)
        records = self.core.reading.read(request, self.network.now)
        self.core.close(descriptor)
        self.network.run()
        assert records is not None
        return [MessageView(record.packet).label for record in records]

    def records(self, name: str) -> list[Record]:
        return self.queue(name).available(10_000)

    def messages(self, name: str) -> list[MessageView]:
        """The messages that a reader could get, in queue order."""
        return [MessageView(record.packet) for record in self.records(name)]

    def labels(self, name: str) -> list[str]:
        return [view.label for view in self.messages(name)]

    def classes(self, name: str) -> list[int]:
        """The classes of the acknowledgments in a queue. For dead letters, why they died."""
        return [each.reason or MessageView(each.packet).message_class for each in self.records(name)]

    def outgoing(self, name: str) -> OutgoingInfo:
        return self.core.queues.outgoing_info[self.queue(name)]

    def waiting(self, name: str) -> list[str]:
        """The labels of the messages in an outgoing queue, sent or not."""
        return [MessageView(record.packet).label for record in self.queue(name).everything()]


def whole(message: Message | str) -> Message:
    return Message(b"body", label=message, recoverable=True) if isinstance(message, str) else message
