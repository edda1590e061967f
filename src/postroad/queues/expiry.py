"""Messages whose time is over: looked for in both stores, and taken out a batch at a time.

When a message expires is decided where it enters its queue, and what follows from it in delivery.py.
"""

from __future__ import annotations

from postroad.queues.delivery import Delivery
from postroad.store.interface import Key, Store

EXPIRY_BATCH = 1000  # messages that one look at the clock takes out at the most
RETRY_EXPIRY_S = 60.0  # after which messages are tried again that could not be taken out


class Expiry:
    """A message that cannot be taken out is counted and passed over for a while: the others go all the same."""

    def __init__(self, delivery: Delivery, stores: tuple[Store, ...]) -> None:
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
