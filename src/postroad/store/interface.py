"""What a store is: records, batches, and the one small interface that SQLite and memory both serve.

No queue rules and no packet fields here: a store keeps bytes under keys, atomically, and gives them back in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple, Protocol

PRIORITY_SHIFT = (
    56  # the lookup id holds 7 - priority above 56 bits of arrival order, so that lookup order is queue order
)
ARRIVAL_MASK = (1 << PRIORITY_SHIFT) - 1
MAX_ARRIVAL = (
    1 << 44
) - 1  # a key packs queue, priority and arrival into 63 bits: 20 years of 25,000 messages a second
MAX_QUEUE = (1 << 16) - 1
NUMBERS = Struct(">6q16x")  # of a record in Columns
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


class Columns(NamedTuple):
    """Records side by side: 64 bytes of numbers of each, and their packets back to back. The numbers are big-endian,
    signed and of 64 bits: lookup id, size of the packet, arrived_ms, expires_s, aborts, reason. The last 16 bytes are
    the store's own."""

    numbers: bytes
    packets: bytes

    @classmethod
    def of(cls, records: Sequence[Record]) -> Columns:
        numbers = [
            NUMBERS.pack(each.lookup_id, len(each.packet), each.arrived_ms, each.expires_s, each.aborts, each.reason)
            for each in records
        ]
        return cls(b"".join(numbers), b"".join(each.packet for each in records))


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

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None:
        """Records with `after` < lookup id <= `last`, ascending: up to `limit`, and about `most_bytes` of packets, but
        at least one; fewer only where the range ends. None where something is damaged: then `scan` tells more.
        For any number of threads, beside the one that reads otherwise."""

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None:
        """The same without the records."""

    def oldest(self) -> Mapping[int, int]:
        """`arrived_ms` of the message that came first to each queue, by its number: one look at all of them. A queue
        without messages is not there, nor need be one with damaged ones."""

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """The record, None where there is none; raises CorruptRecord where its checksum fails."""

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        """Up to `limit` records with NEVER < expires_s < now_s, the soonest first, but for those to `keep`."""

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        """Every state value whose name starts with `prefix`, by name. Reads all of the state: for starting, not for
        every message. Damaged values are left out and noted in `damaged`."""

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        """Records (by key) and state values (by name) that were met and failed their checksum, with the reason."""

    def no_room(self) -> str | None:
        """Why nothing more is to be stored, as the disk is now; None while there is room. For any thread."""

    def tidy(self) -> bool:
        """A short step of giving room back that deleted messages had; whether there is more to do. For the thread that
        commits, while nobody waits for it."""

    def close(self) -> None: ...
