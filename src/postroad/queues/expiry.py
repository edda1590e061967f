"""Messages whose time is over: looked for in both stores, and taken out a batch at a time.

When a message expires is decided where it enters its queue, and what follows from it in delivery.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from postroad.queues.collection import JOURNAL, QueueCollection
from postroad.queues.delivery import Delivery
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.store.interface import PRIORITY_SHIFT, Key, RecordStore

EXPIRY_BATCH = 1000  # messages that one look at the clock takes out at the most
RETRY_EXPIRY_S = 60.0  # after which messages are tried again that could not be taken out


class Expiry:
    """A message that cannot be taken out is counted and passed over for a while: the others go all the same."""

    def __init__(self, delivery: Delivery, stores: tuple[RecordStore, ...]) -> None:
        self._delivery = delivery
        self._stores = stores
        self._failing: set[Key] = set()
        self._retry_at = 0.0

    def run(self, now: float) -> None:
        """StorageError where a store cannot be read."""
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
        """What is locked or held stays, whatever its time, and must not hide those that can go."""
        queue = self._delivery.queues.by_number.get(key.queue)
        return key in self._failing or (queue is not None and not queue.is_available(key.lookup_id))


# How long journals keep messages: copies of received and sent messages leave after some days.
#
# Dead letters stay: each is a message without a receiver.


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
