"""The interface of a store: records and batches. LayeredStore and MemoryStore implement it.

A store keeps bytes under keys, atomically and in order. It knows no queue rules and no packet fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple, Protocol

PRIORITY_SHIFT = 56  # a lookup id is 7 - priority, then 56 bits of arrival order, so lookup order is queue order
ARRIVAL_MASK = (1 << PRIORITY_SHIFT) - 1
MAX_ARRIVAL = (
    1 << 44
) - 1  # a key packs queue, priority and arrival into 63 bits, enough for 25,000 messages a second for 20 years
QUEUE_BITS = 16
MAX_QUEUE = (1 << QUEUE_BITS) - 1
PRIORITY_MASK = 7
NOT_A_LOOKUP_ID = ~(PRIORITY_MASK << PRIORITY_SHIFT | MAX_ARRIVAL)
NUMBERS = Struct(">6q16x")  # of a record in Columns
NEVER = 0  # `expires_s` of a record that does not expire


class Key(NamedTuple):
    """The key of a record: the queue's number, and the lookup id in that queue."""

    queue: int
    lookup_id: int


class Record(NamedTuple):
    """One stored message: its packet, and the values that are not in the packet."""

    queue: int
    lookup_id: int
    arrived_ms: int  # [MS-MQDMPR] Message.ArrivalTime
    expires_s: int  # seconds since 1970 UTC, or NEVER
    aborts: int  # how often aborted transactions put it back
    packet: bytes
    reason: int = 0  # for a dead letter: the message class that says why it died


Pair = tuple[int, int]  # a Key, or a plain pair, which is equal and costs less


def check_key(queue: int, lookup_id: int) -> None:
    """Raises ValueError if no record can have this key."""
    if lookup_id & NOT_A_LOOKUP_ID or not 0 <= queue <= MAX_QUEUE:
        raise ValueError(f"queue {queue}, lookup id {lookup_id:#x}: the key is out of range")


class Columns(NamedTuple):
    """Records side by side: 64 bytes of numbers for each, and their packets back to back. The numbers are big-endian,
    signed, of 64 bits: lookup id, size of the packet, arrived_ms, expires_s, aborts, reason. The last 16 bytes belong
    to the store."""

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
    """Changes that become durable together or not at all: first deletes, then puts, then state.

    A put replaces a record with the same key. Deleting a missing key does nothing. A key out of range raises ValueError
    at the commit. None as a state value removes it. Batches are equal only if they are the same object.
    """

    puts: dict[Pair, Record] = field(default_factory=dict)
    deletes: set[Pair] = field(default_factory=set)
    state: dict[str, bytes | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes or self.state)


class Snapshot(Protocol):
    """A store as it was at one moment. Once all of it has been read, `damaged` counts what was left out."""

    damaged: int

    def state(self) -> Mapping[str, bytes]: ...

    def pages(self) -> Iterator[list[Record]]:
        """All records, each once, a page at a time, in no order."""

    def close(self) -> None: ...


Post = Callable[[Callable[[], object]], object]


class Committer(Protocol):
    """Makes batches durable in the way that suits its store: on the caller's thread, on its own thread, or on another
    machine."""

    def submit(self, batch: Batch, done: Callable[[Exception | None], object]) -> None:
        """Calls `done` with None once the batch is durable, or with the error: before this returns, or later by `post`.
        No batch overtakes another."""

    def tidy(self) -> None:
        """Does a step of the postponed work now, because the disk is full."""

    def close(self) -> None:
        """Commits what waits, and then accepts no more. The store stays open."""


class RecordStore(Protocol):
    """Records in queue order, and small named state. Only one thread at a time may call `commit`, `is_short` and
    `tidy`. One other thread at a time may call the reading methods, which see only whole batches."""

    def commit(self, batches: Iterable[Batch]) -> None:
        """Applies all `batches` in order, as one, and returns once they are durable. After a StorageError nothing has
        changed."""

    def is_short(self, batch: Batch) -> bool:
        """Whether committing this batch alone is one short write, with nothing to tidy after it."""

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        """Up to `limit` records with a lookup id above `after`, ascending; fewer only where the queue ends. Leaves out
        damaged records and notes them in `damaged`."""

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        """Up to `limit` records with a lookup id below `before`, descending; fewer only where the queue begins."""

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None:
        """Records with `after` < lookup id <= `last`, ascending: up to `limit`, and about `most_bytes` of packets, but
        at least one; fewer only where the range ends. None if anything is damaged: then use `scan`. Any number of
        threads may call this."""

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None:
        """The lookup ids of the same range. None if anything is damaged."""

    def oldest(self) -> Mapping[int, int]:
        """`arrived_ms` of the oldest message of each queue, by the queue's number. Queues without messages are absent;
        queues with damaged ones may be."""

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """The record, or None. Raises CorruptRecord if its checksum is wrong."""

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        """Up to `limit` records with NEVER < expires_s < now_s, the earliest first. Leaves out those for which `keep`
        is true."""

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        """All state values whose names start with `prefix`, by name. Reads the whole state, so use it at a start, not
        for each message. Leaves out damaged values and notes them in `damaged`."""

    def snapshot(self) -> Snapshot:
        """Everything that is committed now. Others may go on reading and committing. One thread at a time may use it,
        until it is closed."""

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        """The damaged records (by key) and state values (by name) found so far, with the reasons."""

    def disk_use(self) -> Mapping[str, int]:
        """Bytes on the disk: of the `database`, its `log`, the `journal` and the `reserve`, and `free` and `total` of
        the file system. Empty for a store in memory. Any thread may call this."""

    def no_room(self) -> str | None:
        """Why nothing more can be stored now; None while the disk has space. Any thread may call this."""

    def tidy(self, *, busy: bool = False) -> bool:
        """Does one short step of postponed work: moves messages to where they stay, and returns the space of deleted
        ones to the disk. Returns True if there is more to do. Call it while nothing is committed, and with `busy` after
        a commit, which does only the steps that the next commits need."""

    def close(self) -> None: ...


class Store(RecordStore, Protocol):
    """A RecordStore that a running manager can be built on."""

    def committer(self, post: Post) -> Committer:
        """Returns what makes batches durable from now on. `post` runs a callback on the submitting thread, in a later
        turn of its event loop."""
