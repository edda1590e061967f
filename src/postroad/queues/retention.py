"""How long journals keep messages: copies of received and sent messages leave after some days.

Dead letters stay: each is a message without a receiver.
"""

from __future__ import annotations

from collections.abc import Iterator

from postroad.queues.collection import JOURNAL, QueueCollection
from postroad.queues.delivery import Delivery
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.store.interface import PRIORITY_SHIFT

DAY_S = 86_400
EVERY_S = 60.0  # between two looks
BATCH = 1000  # messages that leave at one time
_RANKS = 8  # priorities


class Retention:
    """`days` of None keeps everything."""

    def __init__(self, queues: QueueCollection, delivery: Delivery) -> None:
        self.days: float | None = None
        self.removed = 0  # since the start
        self._queues = queues
        self._delivery = delivery
        self._next_look = 0.0

    def run_timers(self, now: float) -> None:
        """Removes a batch at most; the next call goes on."""
        if self.days is None or now < self._next_look:
            return
        self._next_look = now + EVERY_S
        before_ms = int((now - self.days * DAY_S) * 1000)
        left = BATCH
        for queue in self._journals():
            left -= self._remove(queue, before_ms, left)
            if left <= 0:
                self._next_look = now
                return

    def _journals(self) -> Iterator[Queue]:
        for queue in list(self._queues):
            properties = queue.properties
            if queue.count and (properties.queue_type is QueueType.JOURNAL or properties.path.lower() == JOURNAL):
                yield queue

    def _remove(self, queue: Queue, before_ms: int, most: int) -> int:
        """In each priority the oldest messages are first."""
        removed = 0
        for rank in range(_RANKS):
            if removed >= most:
                break
            start, end = (rank << PRIORITY_SHIFT) - 1, (rank + 1) << PRIORITY_SHIFT
            page = [each for each in queue.available(most - removed, start) if each.lookup_id < end]
            old = [each for each in page if each.arrived_ms < before_ms]
            if old:
                with self._delivery.atomic:
                    self._delivery.discard_all(queue, old)
                removed += len(old)
        self.removed += removed
        return removed
