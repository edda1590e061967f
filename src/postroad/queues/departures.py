"""Messages that left this manager a short while ago, for people who search for one: a bounded number, in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from postroad.queues.queue import Queue
from postroad.store.interface import Record
from postroad.wire.fields import MESSAGE_ID, SOURCE

KEPT = 20_000  # messages
_BOTH = slice(SOURCE.start, MESSAGE_ID.stop)
_SOURCE = SOURCE.stop - SOURCE.start
_ORDINAL = MESSAGE_ID.stop - MESSAGE_ID.start


class Departure(NamedTuple):
    """When a message left which queue; `reason` is its message class, None if the next hop has taken it."""

    at_s: float
    queue: str
    reason: int | None


class Departures:
    """The newest messages that left. `now` is set by the timers: to the second is enough."""

    def __init__(self) -> None:
        self.now = 0.0
        self._groups: deque[tuple[Departure, list[bytes]]] = deque()
        self._count = 0

    def delivered(self, queue: Queue, records: Sequence[Record]) -> None:
        """The next hop has taken them."""
        self._note(Departure(self.now, queue.name, None), [record.packet[_BOTH] for record in records])

    def removed(self, queue: Queue, records: Sequence[Record], reason: int, now: float) -> None:
        """Messages were received, or have left for another reason."""
        self._note(Departure(now, queue.name, reason), [record.packet[_BOTH] for record in records])

    def find(self, identifier: bytes) -> list[Departure]:
        """What is known of a message, by the bytes of its id: the source and the ordinal."""
        source, ordinal = identifier[:_SOURCE], identifier[_SOURCE:]
        return [
            departure
            for departure, ids in self._groups
            if any(each[:_SOURCE] == source and each[-_ORDINAL:] == ordinal for each in ids)
        ]

    def _note(self, departure: Departure, ids: list[bytes]) -> None:
        self._groups.append((departure, ids))
        self._count += len(ids)
        while self._count > KEPT:
            self._count -= len(self._groups.popleft()[1])
