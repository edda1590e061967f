"""The interface of a store: records and batches. LayeredStore and MemoryStore implement it.

No queue rules and no packet fields here: a store keeps bytes under keys, atomically and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from struct import Struct
from typing import NamedTuple, Protocol

PRIORITY_SHIFT = 56  # the lookup id has 7 - priority above 56 bits of arrival order, so lookup order is queue order
ARRIVAL_MASK = (1 << PRIORITY_SHIFT) - 1
MAX_ARRIVAL = (
    1 << 44
) - 1  # a key packs queue, priority and arrival into 63 bits: 20 years of 25,000 messages a second
MAX_QUEUE = (1 << 16) - 1
NUMBERS = Struct(">6q16x")  # of a record in Columns
NEVER = 0  # `expires_s` of a record that does not expire


class Key(NamedTuple):
    """The key of a record: the queue's number, and the lookup id in that queue."""

    queue: int
    lookup_id: int


class Record(NamedTuple):
    """One stored message: the packet, and the values that are not in the packet."""

    queue: int
    lookup_id: int
    arrived_ms: int  # [MS-MQDMPR] Message.ArrivalTime
    expires_s: int  # seconds since 1970 UTC, or NEVER
    aborts: int  # how often an aborted transaction put it back
    packet: bytes
    reason: int = 0  # of a dead letter: the message class that says why it died


Pair = tuple[int, int]  # a Key, or what is equal to one and costs less

_make_record = partial(tuple.__new__, Record)  # without a call of Python code for each


def keys(queue: int, lookup_ids: Iterable[int]) -> list[Pair]:
    """The keys of records of one queue."""
    return list(zip(repeat(queue), lookup_ids))


def new_records(
    queue: int, lookup_ids: Iterable[int], arrived_ms: int, expires_s: Iterable[int], packets: Iterable[bytes]
) -> list[Record]:
    """Records of messages that arrive together in one queue."""
    parts = zip(repeat(queue), lookup_ids, repeat(arrived_ms), expires_s, repeat(0), packets, repeat(0))
    return list(map(_make_record, parts))


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

    A put replaces a record of the same key. A delete of a missing key does nothing. A key out of range raises
    ValueError at the commit. A state value of None removes it. Batches are equal only if they are the same object.
    """

    puts: dict[Pair, Record] = field(default_factory=dict)
    deletes: set[Pair] = field(default_factory=set)
    state: dict[str, bytes | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes or self.state)


class Snapshot(Protocol):
    """A store as it was at one moment. `damaged` counts what was left out, when all of it was read."""

    damaged: int

    def state(self) -> Mapping[str, bytes]: ...

    def pages(self) -> Iterator[list[Record]]:
        """All records, each once, some at a time and in no order."""

    def close(self) -> None: ...


Post = Callable[[Callable[[], object]], object]


class Committer(Protocol):
    """Makes batches durable in the way that suits its store: on the caller's thread, on a thread of its own, or by
    asking another machine."""

    def submit(self, batch: Batch, done: Callable[[Exception | None], object]) -> None:
        """Calls `done` when the batch is durable, with None, or with what has failed: before it returns, or later by
        `post`. No batch overtakes another."""

    def tidy(self) -> None:
        """A step of work that can wait, now: the disk is full."""

    def close(self) -> None:
        """Commits what waits, and then takes no more. The store stays open."""


class RecordStore(Protocol):
    """Records in queue order, and small named state. One thread at a time calls `commit`, `is_short` and
    `tidy`; any one thread at the same time calls the reading methods, and they see whole batches only."""

    def commit(self, batches: Iterable[Batch]) -> None:
        """Applies all of `batches` in order, as one; returns when they are durable.
        Raises StorageError, and then has changed nothing."""

    def is_short(self, batch: Batch) -> bool:
        """Whether the commit of this batch, and no other, is one short write, with nothing to tidy after it."""

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        """Up to `limit` records with a lookup id above `after`, ascending; fewer only where the queue ends.
        Damaged records are left out and noted in `damaged`."""

    def scan_back(self, queue: int, before: int, limit: int = 100) -> list[Record]:
        """Up to `limit` records with a lookup id below `before`, descending; fewer only where the queue begins."""

    def columns(self, queue: int, after: int, last: int, limit: int, most_bytes: int) -> Columns | None:
        """Records with `after` < lookup id <= `last`, ascending: up to `limit`, and about `most_bytes` of packets, but
        at least one; fewer only where the range ends. None if something is damaged: then use `scan`. Any number of
        threads may call this."""

    def lookup_ids(self, queue: int, after: int, last: int, limit: int) -> list[int] | None:
        """The same without the records."""

    def oldest(self) -> Mapping[int, int]:
        """`arrived_ms` of the oldest message of each queue, by the queue's number. Queues without messages are absent,
        and queues with damaged ones may be."""

    def get(self, queue: int, lookup_id: int) -> Record | None:
        """The record, or None. Raises CorruptRecord if its checksum is wrong."""

    def expired(self, now_s: int, limit: int = 100, keep: Callable[[Key], bool] = lambda key: False) -> list[Record]:
        """Up to `limit` records with NEVER < expires_s < now_s, the earliest first, except those to `keep`."""

    def state(self, prefix: str = "") -> Mapping[str, bytes]:
        """All state values whose names start with `prefix`, by name. Reads the whole state: use it at a start, not for
        each message. Damaged values are left out and noted in `damaged`."""

    def snapshot(self) -> Snapshot:
        """All that is committed now. Others may go on to read and commit; any one thread uses it until it is closed."""

    @property
    def damaged(self) -> Mapping[Key | str, str]:
        """Damaged records (by key) and state values (by name) that were found, with the reason."""

    def disk_use(self) -> Mapping[str, int]:
        """Bytes on the disk: of the `database`, its `log`, the `journal` and the `reserve`, and what is `free` and
        `total` on the file system. Empty for a store in memory. Any thread may call this."""

    def no_room(self) -> str | None:
        """Why nothing more can be stored now, or None while the disk has space. Any thread may call this."""

    def tidy(self, *, busy: bool = False) -> bool:
        """One short step of work that can wait: moves messages to where they stay, and returns space of deleted ones to
        the disk. True if there is more to do. While nothing is committed, and `busy` after a commit for the steps
        that the next commits need."""

    def close(self) -> None: ...


class Store(RecordStore, Protocol):
    """A RecordStore that a running manager can be built on."""

    def committer(self, post: Post) -> Committer:
        """Whoever makes batches durable here from now on. `post` runs a callback on the thread that submits them, in a
        later turn of its event loop."""
