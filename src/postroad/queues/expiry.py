"""Expired messages: found in both stores, and removed in batches.

A message gets its time of expiry when it enters its queue. delivery.py has what follows from its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from postroad.queues.collection import JOURNAL, QueueCollection
from postroad.queues.delivery import Delivery
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.store.interface import PRIORITY_SHIFT, Key, RecordStore

EXPIRY_BATCH = 1000  # messages that one run removes, at most
RETRY_EXPIRY_S = 60.0  # after this time, messages that could not be removed are tried again


class Expiry:
    """Skips a message that cannot be removed for a while, and counts it. All others are removed."""

    def __init__(self, delivery: Delivery, stores: tuple[RecordStore, ...]) -> None:
        self._delivery = delivery
        self._stores = stores
        self._failing: set[Key] = set()
        self._retry_at = 0.0

    def run(self, now: float) -> None:
        """Removes expired messages. Raises StorageError if a store cannot be read."""
        delivery = self._delivery
        if now >= self._retry_at:
            self._failing.clear()
            self._retry_at = now + RETRY_EXPIRY_S
        for store in self._stores:
            for record in store.expired(int(now), EXPIRY_BATCH, self._stays):
                holder = delivery.queues.by_number.get(record.queue)
                if holder is None:
                    continue
                try:
                    delivery.expire(holder, record, now)
                except Exception as error:
                    self._failing.add(Key(record.queue, record.lookup_id))
                    delivery.note_failure(record.packet, error)

    def _stays(self, key: Key) -> bool:
        """A locked or held message stays, whatever its time. It must not hide others that can be removed."""
        queue = self._delivery.queues.by_number.get(key.queue)
        return key in self._failing or (queue is not None and not queue.is_available(key.lookup_id))


# How long journals keep messages: copies of received and sent messages leave after some days. Dead letters stay,
# because each is a message without a receiver.


DAY_S = 86_400
EVERY_S = 60.0  # between two runs
BATCH = 1000  # messages removed in one step
_RANKS = 8  # priorities


class Retention:
    """Removes old messages from journals. With days of None, everything stays."""

    def __init__(self, queues: QueueCollection, delivery: Delivery) -> None:
        self._days: float | None = None
        self.removed = 0  # since the start
        self._queues = queues
        self._delivery = delivery
        self._next_look = 0.0

    def use(self, days: float | None) -> None:
        self._days = days

    def run_timers(self, now: float) -> None:
        """Removes at most one batch. The next call continues."""
        if self._days is None or now < self._next_look:
            return
        self._next_look = now + EVERY_S
        before_ms = int((now - self._days * DAY_S) * 1000)
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
        """In each priority the oldest messages come first."""
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
