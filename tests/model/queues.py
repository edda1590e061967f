"""A queue manager in a few lines of lists: what every sequence of calls must come to. Slow and obvious."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(eq=False)
class ModelMessage:
    label: str
    priority: int
    arrival: int
    recoverable: bool
    expires_s: int | None = None
    aborts: int = 0
    holder: object = None  # the transaction or reader that has locked it
    purged: bool = False  # by a purge, while it was locked

    @property
    def order(self) -> tuple[int, int]:
        return (-self.priority, self.arrival)


@dataclass
class ModelQueue:
    transactional: bool = False
    journaling: bool = False
    messages: list[ModelMessage] = field(default_factory=list)
    journal: list[ModelMessage] = field(default_factory=list)

    def available(self) -> list[ModelMessage]:
        return sorted((each for each in self.messages if each.holder is None), key=lambda each: each.order)

    def journaled(self) -> list[str]:
        return [each.label for each in sorted(self.journal, key=lambda each: each.order)]


@dataclass(eq=False)
class ModelTransaction:
    sends: list[tuple[str, str]] = field(default_factory=list)  # queue, label
    receives: list[tuple[str, ModelMessage]] = field(default_factory=list)


class Model:
    """Time is a number of seconds; arrivals are counted."""

    def __init__(self, queues: dict[str, ModelQueue], abort_limit: int) -> None:
        self.queues = queues
        self.abort_limit = abort_limit
        self.poison: list[str] = []
        self.arrivals = 0

    def add(self, queue: str, label: str, priority: int, recoverable: bool, expires_s: int | None = None) -> None:
        self.arrivals += 1
        self.queues[queue].messages.append(ModelMessage(label, priority, self.arrivals, recoverable, expires_s))

    def receive(self, queue: str, message: ModelMessage) -> None:
        holder = self.queues[queue]
        holder.messages.remove(message)
        if holder.journaling:
            self.arrivals += 1
            holder.journal.append(ModelMessage(message.label, message.priority, self.arrivals, message.recoverable))

    def commit(self, transaction: ModelTransaction) -> None:
        for queue, message in transaction.receives:
            self.receive(queue, message)
        for queue, label in transaction.sends:
            self.add(queue, label, 0, True)

    def abort(self, transaction: ModelTransaction) -> None:
        for queue, message in transaction.receives:
            message.holder = None
            if message.purged:
                self.queues[queue].messages.remove(message)
                continue
            message.aborts += 1
            if message.aborts >= self.abort_limit:
                self.queues[queue].messages.remove(message)
                self.poison.append(message.label)

    def expire(self, now_s: int, queues: Iterable[str]) -> None:
        for queue in map(self.queues.__getitem__, queues):
            queue.messages = [
                each
                for each in queue.messages
                if each.holder is not None or each.expires_s is None or each.expires_s >= now_s
            ]

    def purge(self, queue: str) -> None:
        for each in self.queues[queue].messages:
            each.purged = each.purged or each.holder is not None
        self.queues[queue].messages = [each for each in self.queues[queue].messages if each.holder is not None]

    def restart(self) -> None:
        for queue in self.queues.values():
            queue.messages = [each for each in queue.messages if each.recoverable]
            queue.journal = [each for each in queue.journal if each.recoverable]
            for each in queue.messages:
                each.holder = None
                each.purged = False
