"""What a store is: records, batches, and the one small interface that SQLite and memory both serve.

No queue rules and no packet fields here: a store keeps bytes under keys, atomically, and gives them back in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

PRIORITY_SHIFT = (
    56  # the lookup id holds 7 - priority above 56 bits of arrival order, so that lookup order is queue order
)
ARRIVAL_MASK = (1 << PRIORITY_SHIFT) - 1
MAX_ARRIVAL = (
    1 << 44
) - 1  # a key packs queue, priority and arrival into 63 bits: 20 years of 25,000 messages a second
MAX_QUEUE = (1 << 16) - 1
NEVER = 0  # `expires_s` of a record that does not expire


class Key(NamedTuple):
    """Where a record lives: the queue's number, and the lookup id within it."""

    queue: int
    lookup_id: int


class Record(NamedTuple):
    """One stored message. The packet is the message; the rest is what the packet does not say."""

    queue: int
    lookup_id: int
    arrived_ms: int  # [MS-MQDMPR] Message.ArrivalTime
    expires_s: int  # seconds since 1970 UTC, or NEVER
    aborts: int  # how often an aborted transaction put it back
    packet: bytes
    reason: int = 0  # of a dead letter: the message class that says why it died


@dataclass(slots=True, eq=False)
class Batch:
    """Changes that become durable together, or not at all: deletes first, then puts, then state.

    A put replaces a record of the same key; a delete of a key that is not there does nothing; a key out of range is a
    ValueError at the commit. A state value of None removes it. Two batches are the same only if they are one object.
    """

    puts: dict[Key, Record] = field(default_factory=dict)
    deletes: set[Key] = field(default_factory=set)
    state: dict[str, bytes | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes or self.state)


class Store(Protocol):
    """Durable records in queue order, and small named state. `commit` is called by one writer thread at a time;
    the reading methods by any one other thread, and they see whole batches only."""

    def commit(self, batches: Iterable[Batch]) -> None:
        """Applies all of `batches` in order, as one; returns when they are durable.
        Raises StorageError, and then has changed nothing."""

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        """Up to `limit` records with a lookup id above `after`, ascending; fewer only where the queue ends.
        Damaged records are left out and noted in `damaged`."""

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        """Up to `limit` records with a lookup id below `before`, descending; fewer only where the queue begins."""

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """The record, None where there is none; raises CorruptRecord where its checksum fails."""

    def expired(self, now_s: int, limit: int = 100) -> list[Record]:
        """Up to `limit` records with NEVER < expires_s < now_s, the soonest first."""

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        """Every state value whose name starts with `prefix`, by name. Reads all of the state: for starting, not for
        every message. Damaged values are left out and noted in `damaged`."""

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        """Records (by key) and state values (by name) that were met and failed their checksum, with the reason."""

    def close(self) -> None: ...
