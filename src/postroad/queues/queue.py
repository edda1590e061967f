"""One queue: its messages in order, the positions that are not available, its size and its waiting readers.

[MS-MQDMPR] 3.1.1.2 and 3.1.1.11. Messages stay in the stores; memory holds only what is locked or on its way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from heapq import merge
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

from postroad.queues.properties import QueueProperties, QueueType
from postroad.store.interface import PRIORITY_SHIFT, Record, Store

if TYPE_CHECKING:
    from postroad.queues.descriptor import OpenQueueDescriptor
    from postroad.queues.waiting import WaitingRead

COUNTS = Struct("<QQ")  # messages and bytes, as the store keeps them
START = -1  # the position before Head
END = 1 << 63  # the position past Tail
SCAN_LIMIT = 1000  # records that one look at the store brings at the most
QUOTA_UNIT = 1024
PRIORITIES = 8
ALARM_RATIO = 0.9  # of a quota: from there on the queue is reported as nearly full


class PositionState(Enum):
    """MessagePosition.State. An Available position is not noted anywhere: it is in the store."""

    LOCKED = "locked"
    PURGE_PENDING = "purge pending"
    DELETED = "deleted"  # and not yet committed


class Queue:
    """Order is by lookup id: priority, then arrival."""

    __slots__ = (
        "_durable",
        "_express",
        "_head",
        "deleted",
        "descriptors",
        "express_bytes",
        "express_count",
        "is_outgoing",
        "journal",
        "name",
        "number",
        "positions",
        "properties",
        "reserved_bytes",
        "stored_bytes",
        "stored_count",
        "subqueues",
        "waiting",
    )

    def __init__(self, number: int, name: str, properties: QueueProperties, durable: Store, express: Store) -> None:
        self.number = number
        self.name = name  # what people read, and every command takes: a public queue has its computer in it
        self.properties = properties
        self.is_outgoing = properties.queue_type is QueueType.OUTGOING
        self.deleted = False
        self.positions: dict[int, PositionState] = {}
        self.descriptors: list[OpenQueueDescriptor] = []
        self.waiting: list[WaitingRead] = []
        self.journal: Queue | None = None
        self.subqueues: dict[str, Queue] = {}
        self.stored_count = 0
        self.stored_bytes = 0
        self.reserved_bytes = 0  # of messages that are promised and not yet committed
        self.express_count = 0
        self.express_bytes = 0
        self._durable = durable
        self._express = express
        self._head = START

    def __repr__(self) -> str:
        return f"<Queue {self.number} {self.name!r}, {self.count} messages>"

    # Size

    @property
    def count(self) -> int:
        return self.stored_count + self.express_count

    @property
    def total_bytes(self) -> int:
        """TotalBytes: what is there, without what is only promised."""
        return self.stored_bytes + self.express_bytes

    @property
    def quota_bytes(self) -> int | None:
        quota = self.properties.quota_kb
        return None if quota is None else quota * QUOTA_UNIT

    @property
    def used_bytes(self) -> int:
        """What counts against the quota: promises too."""
        return self.stored_bytes + self.express_bytes + self.reserved_bytes

    @property
    def nearly_full(self) -> bool:
        quota = self.quota_bytes
        return quota is not None and self.used_bytes >= ALARM_RATIO * quota

    @property
    def active(self) -> bool:
        """[MS-MQDMPR] 3.1.1.2 Active, computed."""
        return bool(self.descriptors) or (self.is_outgoing and self.count > 0)

    def encode_counts(self, count: int, size: int) -> bytes:
        return COUNTS.pack(self.stored_count + count, self.stored_bytes + size)

    def decode_counts(self, data: bytes) -> None:
        self.stored_count, self.stored_bytes = COUNTS.unpack(data)

    def recount(self) -> None:
        """Reads every stored message: for a queue whose counts were damaged."""
        sizes = [len(record.packet) for record in self.everything()]
        self.stored_count, self.stored_bytes = len(sizes), sum(sizes)

    # Order

    def available(self, limit: int, after: int = START) -> list[Record]:
        """Up to `limit` Available messages behind `after`, in queue order ([MS-MQDMPR] 3.1.7.3.2, forward)."""
        if self.count == 0:
            return []
        from_head = after <= self._head
        position = self._head if from_head else after
        found: list[Record] = []
        positions = self.positions
        while len(found) < limit:
            wanted = min(SCAN_LIMIT, limit - len(found) + min(len(positions), 64))
            records = self._scan(position, wanted)
            if not records:
                break
            position = records[-1].lookup_id
            if not positions:
                found += records
            else:
                for record in records:
                    if record.lookup_id not in positions:
                        found.append(record)
                    elif from_head and not found:
                        self._head = record.lookup_id  # nothing before here can be had: do not look again
            if len(records) < wanted:
                break
        return found[:limit]

    def available_before(self, limit: int, before: int = END) -> list[Record]:
        """Up to `limit` Available messages before `before`, from the tail on ([MS-MQDMPR] 3.1.7.3.2, backward)."""
        found: list[Record] = []
        position = before
        while len(found) < limit:
            records = self._scan_back(position, SCAN_LIMIT)
            found += [record for record in records if record.lookup_id not in self.positions]
            if len(records) < SCAN_LIMIT:
                break
            position = records[-1].lookup_id
        return found[:limit]

    def get(self, lookup_id: int) -> Record | None:
        """The message at this position, whatever its state; None where there is none."""
        return self._express.get(self.number, lookup_id) or self._durable.get(self.number, lookup_id)

    @property
    def tail(self) -> int:
        """The position of the last message, whatever its state; START where there is none."""
        return next((record.lookup_id for record in self._scan_back(END, 1)), START)

    @property
    def oldest(self) -> Record | None:
        """The message that came first, whatever its state and its priority; None where there is none."""
        if self.count == 0:
            return None
        firsts = (self._scan((rank << PRIORITY_SHIFT) - 1, 1) for rank in range(PRIORITIES))
        return min((records[0] for records in firsts if records), key=lambda each: each.arrived_ms, default=None)

    def everything(self) -> Iterator[Record]:
        """Every message from the head on, whatever its state; the queue may change meanwhile."""
        position = START
        while records := self._scan(position, SCAN_LIMIT):
            yield from records
            position = records[-1].lookup_id

    def everything_back(self) -> Iterator[Record]:
        """The same from the tail on."""
        position = END
        while records := self._scan_back(position, SCAN_LIMIT):
            yield from records
            position = records[-1].lookup_id

    def opened_before(self, lookup_id: int) -> None:
        """A message became available at `lookup_id`: the search for the head starts before it."""
        if lookup_id <= self._head:
            self._head = lookup_id - 1

    def _scan(self, after: int, limit: int) -> list[Record]:
        if not self.express_count:
            return self._durable.scan(self.number, after, limit)
        express = self._express.scan(self.number, after, limit)
        if not self.stored_count:
            return express
        return list(islice(merge(express, self._durable.scan(self.number, after, limit)), limit))

    def _scan_back(self, before: int, limit: int) -> list[Record]:
        express = self._express.scan_back(self.number, before, limit)
        durable = self._durable.scan_back(self.number, before, limit)
        return list(islice(merge(express, durable, reverse=True), limit))
