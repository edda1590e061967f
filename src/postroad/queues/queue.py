"""One queue: its messages in order, the positions that are not available, its size and its waiting readers.

[MS-MQDMPR] 3.1.1.2 and 3.1.1.11. Messages stay in the stores. Memory has what is locked or on its way out, and a
bounded front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import merge
from itertools import islice, repeat
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from postroad.names.format import is_internal
from postroad.queues.properties import QueueProperties, QueueType
from postroad.store.interface import ARRIVAL_MASK, PRIORITY_SHIFT, Record, RecordStore
from postroad.validation.queue_properties import MAX_QUOTA_KB

if TYPE_CHECKING:
    from postroad.queues.holds import Hold
    from postroad.queues.open_queue import OpenQueueDescriptor, WaitingRead
    from postroad.queues.outgoing_queues import Carrier
    from postroad.queues.tick import Change

COUNTS = Struct("<QQQ")  # messages, bytes, and messages ever added, as the store keeps them
OLD_COUNTS = Struct("<QQ")  # without the last one, as in old stores
START = -1  # the position before Head
END = 1 << 63  # the position past Tail
SCAN_LIMIT = 1000  # records that one look into the store returns, at most
PASSED_OVER = 64  # more that a second look asks for, if the first has found messages that no reader can have
LARGE_BYTES = 64 << 20  # of a queue: with more, it is read a few messages at a time, because each may have 4 MiB
SCAN_LARGE = 16  # records that one look into such a queue returns, at most
READ_BYTES = 16 << 20  # of messages that one read of such a queue returns, with the one that brings them there
READ_AHEAD = 1000  # messages that a look at an outgoing queue returns, at least: more will be wanted soon
AHEAD_OF_READER = 8  # times what a reader asks for, at first: it may not come again
KEPT_BYTES = 4 << 20  # of messages at the front that one queue keeps in memory
ALL_KEPT_BYTES = 32 << 20  # the same for all queues of a manager
QUOTA_UNIT = 1024
PRIORITIES = 8
ALARM_RATIO = 0.9  # of a quota: above this the queue is reported as nearly full


class PositionState(Enum):
    """MessagePosition.State. An Available position is not noted: it is in the store."""

    LOCKED = "locked"
    PURGE_PENDING = "purge pending"
    DELETED = "deleted"  # not yet committed


@dataclass(slots=True)
class Usage:
    """What all queues of a manager use together. Every change of a queue updates it, so no message waits for a sum.

    A deleted queue counts until its messages are gone.
    """

    used_bytes: int = 0
    kept_bytes: int = 0  # of messages at the fronts of queues, in memory


class Run(NamedTuple):
    """Messages of one store and one priority: a range of lookup ids, with both ends."""

    store: RecordStore
    first: int
    last: int
    is_express: bool


@dataclass(slots=True, eq=False)
class Queue:
    """Messages are in the order of their lookup ids: priority, then arrival.

    The front is what readers and senders ask for next: the first Available messages, without gaps, kept in memory.
    While the front is `whole`, there are no others: new messages are added to it, and nobody looks into the store.
    After any other change of the queue, the next look into the store makes the front anew.
    """

    number: int
    name: str  # what people read, and every command accepts: for a public queue, with its computer
    properties: QueueProperties
    _durable: RecordStore
    _express: RecordStore
    usage: Usage
    is_outgoing: bool = field(init=False)
    is_internal: bool = field(init=False)
    carrier: Carrier | None = None  # of an outgoing queue; messages of one without a carrier wait
    deleted: bool = False
    positions: dict[int, PositionState] = field(default_factory=dict)
    descriptors: list[OpenQueueDescriptor] = field(default_factory=list)
    waiting: list[WaitingRead] = field(default_factory=list)
    journal: Queue | None = None
    subqueues: dict[str, Queue] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    stored_count: int = 0
    stored_bytes: int = 0
    stored_added: int = 0  # messages that were ever stored here
    reserved_bytes: int = 0  # of messages that are promised and not yet committed
    express_count: int = 0
    express_added: int = 0  # since the start
    express_bytes: int = 0
    last_added_at: float = 0.0  # since the start
    _stored_at_start: int = 0
    _added_before: int = 0  # messages that were stored here before the start
    _head: int = START  # no message before it is available
    _front: deque[Record] = field(default_factory=deque)
    _front_bytes: int = 0
    _whole: bool = False
    _ahead: int = AHEAD_OF_READER  # doubled whenever readers have used up the front

    def __post_init__(self) -> None:
        self.is_outgoing = self.properties.queue_type is QueueType.OUTGOING
        self.is_internal = is_internal(self.properties.path)

    def __repr__(self) -> str:
        return f"<Queue {self.number} {self.name!r}, {self.count} messages>"

    def ready(self, now: float) -> None:
        """Tells the carrier that there may be something to send."""
        if self.carrier is not None:
            self.carrier.ready(self, now)

    # Size

    @property
    def count(self) -> int:
        return self.stored_count + self.express_count

    @property
    def total_bytes(self) -> int:
        """TotalBytes: what is in the queue, without what is only promised."""
        return self.stored_bytes + self.express_bytes

    @property
    def messages_in(self) -> int:
        """Messages that came since the start."""
        return self.stored_added - self._added_before + self.express_added

    @property
    def messages_out(self) -> int:
        """Messages that left since the start, for any reason. It follows from the other counts, so a message that
        leaves costs nothing more."""
        return self._stored_at_start + self.messages_in - self.count

    @property
    def quota_bytes(self) -> int | None:
        quota = self.properties.quota_kb
        return None if quota is None or quota == MAX_QUOTA_KB else quota * QUOTA_UNIT

    @property
    def used_bytes(self) -> int:
        """What counts against the quota, promises included."""
        return self.stored_bytes + self.express_bytes + self.reserved_bytes

    def has_room(self, size: int) -> bool:
        quota = self.quota_bytes
        return quota is None or self.used_bytes + size <= quota

    @property
    def nearly_full(self) -> bool:
        quota = self.quota_bytes
        return quota is not None and self.used_bytes >= ALARM_RATIO * quota

    @property
    def active(self) -> bool:
        """[MS-MQDMPR] 3.1.1.2 Active, computed."""
        return bool(self.descriptors) or (self.is_outgoing and self.count > 0)

    def encode_counts(self, change: Change) -> bytes:
        """The counts as they will be once `change` is durable."""
        return COUNTS.pack(
            self.stored_count + change.added - change.removed,
            self.stored_bytes + change.added_bytes - change.removed_bytes,
            self.stored_added + change.added,
        )

    def decode_counts(self, data: bytes) -> None:
        if len(data) == OLD_COUNTS.size:
            count, size = OLD_COUNTS.unpack(data)
            self._set_stored(count, size, count)
        else:
            self._set_stored(*COUNTS.unpack(data))

    def _set_stored(self, count: int, size: int, added: int) -> None:
        self.usage.used_bytes += size - self.stored_bytes
        self.stored_count, self.stored_bytes, self.stored_added = count, size, added
        self._stored_at_start, self._added_before = count, added

    def reserve(self, size: int) -> None:
        """Reserves room for a promised message. `note` turns it into stored bytes; `release` gives it back."""
        self.reserved_bytes += size
        self.usage.used_bytes += size

    def release(self, size: int) -> None:
        self.reserved_bytes -= size
        self.usage.used_bytes -= size

    def add_express(self, size: int, count: int = 1, *, back: bool = False) -> None:
        """Counts new messages, or messages that are `back` after they were removed."""
        self.express_added += 0 if back else count
        self.express_count += count
        self.express_bytes += size
        self.usage.used_bytes += size

    def remove_express(self, size: int, count: int = 1, *, undone: bool = False) -> None:
        """Counts messages that left, or whose coming was `undone`."""
        self.express_added -= count if undone else 0
        self.express_count -= count
        self.express_bytes -= size
        self.usage.used_bytes -= size

    def note(self, change: Change) -> None:
        """Counts a change that is durable now."""
        self.stored_count += change.added - change.removed
        self.stored_bytes += change.added_bytes - change.removed_bytes
        self.stored_added += change.added
        self.reserved_bytes -= change.added_bytes
        self.usage.used_bytes -= change.removed_bytes

    def recount(self) -> None:
        """Counts again by reading every stored message, for a queue with damaged counts."""
        sizes = [len(record.packet) for record in self.everything()]
        self._set_stored(len(sizes), sum(sizes), len(sizes))

    # State

    def is_available(self, lookup_id: int) -> bool:
        """Whether any reader can have the message at this position."""
        return lookup_id not in self.positions and (not self.holds or self.holder(lookup_id) is None)

    def state(self, lookup_id: int) -> PositionState | None:
        """The state of a position, None for Available. A held position counts as locked."""
        state = self.positions.get(lookup_id)
        if state is None and self.holds and self.holder(lookup_id) is not None:
            return PositionState.LOCKED
        return state

    def holder(self, lookup_id: int) -> Hold | None:
        return next((hold for hold in self.holds.values() if hold.covers(lookup_id)), None)

    def mark(self, lookup_id: int, state: PositionState) -> None:
        """Marks a position as not Available."""
        self.positions[lookup_id] = state
        self._leave_front((lookup_id,))

    def mark_all(self, lookup_ids: Sequence[int], state: PositionState) -> None:
        self.positions.update(dict.fromkeys(lookup_ids, state))
        self._leave_front(lookup_ids)

    def forget(self, lookup_ids: Sequence[int]) -> list[PositionState | None]:
        """Removes express messages at once. Returns the states that their positions had."""
        states = list(map(self.positions.pop, lookup_ids, repeat(None)))
        self._leave_front(lookup_ids)
        return states

    def gone(self, lookup_ids: Sequence[int]) -> None:
        """Marked messages are deleted for good."""
        positions = self.positions
        for lookup_id in lookup_ids:
            positions.pop(lookup_id, None)

    def unmark_all(self, lookup_ids: Sequence[int]) -> None:
        """Makes marked messages Available again."""
        if lookup_ids:
            self.gone(lookup_ids)
            self.opened_before(min(lookup_ids))

    def unmark(self, lookup_id: int, state: PositionState | None) -> None:
        """Returns to the state before a `mark`. None is Available."""
        if state is None:
            self.positions.pop(lookup_id, None)
            self.opened_before(lookup_id)
        else:
            self.positions[lookup_id] = state

    def restore(self, lookup_ids: Sequence[int], states: Sequence[PositionState | None]) -> None:
        """Returns to the states before a `mark_all`."""
        for lookup_id, state in zip(lookup_ids, states, strict=True):
            self.unmark(lookup_id, state)

    # Order

    def available(self, limit: int, after: int = START, most_bytes: float = inf) -> list[Record]:
        """Up to `limit` Available messages after `after`, in queue order ([MS-MQDMPR] 3.1.7.3.2, forward). Of a large
        queue no more than to the one that brings them to `most_bytes`."""
        if limit == 1 and after == START and self._front and not self.holds:
            return [self._front[0]]
        if self.count == 0:
            return []
        from_head = after <= self._head
        position = self._head if from_head else after
        wanted_in_all = limit
        if self.holds:
            self._drop_front()
        elif from_head:
            if self._whole or len(self._front) >= limit:
                return list(islice(self._front, limit))  # which has no more than KEPT_BYTES
            # No more than are kept: large messages are not read before they are wanted.
            ahead = READ_AHEAD if self.is_outgoing else min(READ_AHEAD, limit * self._ahead)
            wanted_in_all = max(limit, min(ahead, KEPT_BYTES * self.count // max(self.total_bytes, 1)))
        found: list[Record] = []
        positions = self.positions
        passed_over = 0
        whole = False
        large = self.total_bytes > LARGE_BYTES
        step, size = (min(limit, SCAN_LARGE) if large else SCAN_LIMIT), 0
        while len(found) < wanted_in_all:
            wanted = min(step, wanted_in_all - len(found) + passed_over)
            if self.holds:
                position = self._past_holds(position)
            records = self._scan(position, wanted)
            if records:
                position = records[-1].lookup_id
            if not positions and not self.holds:
                found += records
            else:
                for record in records:
                    if self.is_available(record.lookup_id):
                        found.append(record)
                    elif from_head and not found:
                        self._head = record.lookup_id  # no message before it is available: start here the next time
            if len(records) < wanted:
                whole = True
                break
            passed_over = min(len(positions), PASSED_OVER)
            if large:
                step = SCAN_LARGE
                size += sum([len(record.packet) for record in records])
                if found and size >= (most_bytes if len(found) < limit else KEPT_BYTES):
                    break
        if from_head and not self.holds:
            self._set_front(found, whole=whole)
            self._ahead = min(READ_AHEAD, 2 * self._ahead)
        return found[: self._within(found, limit, most_bytes) if large else limit]

    @staticmethod
    def _within(records: Sequence[Record], limit: int, most_bytes: float) -> int:
        """How many of up to `limit` records there are to the one that brings them to `most_bytes`."""
        for count, record in enumerate(islice(records, limit), 1):
            most_bytes -= len(record.packet)
            if most_bytes <= 0:
                return count
        return limit

    def available_before(self, limit: int, before: int = END) -> list[Record]:
        """Up to `limit` Available messages before `before`, from the tail on ([MS-MQDMPR] 3.1.7.3.2, backward)."""
        found: list[Record] = []
        position = before
        while len(found) < limit:
            records = self._scan_back(position, SCAN_LIMIT)
            found += [record for record in records if self.is_available(record.lookup_id)]
            if len(records) < SCAN_LIMIT:
                break
            position = records[-1].lookup_id
        return found[:limit]

    def _past_holds(self, position: int) -> int:
        """Skips what is held directly after `position`: it may be a million messages."""
        for hold in sorted(self.holds.values(), key=lambda each: each.start):
            following = position + 1
            if hold.spans(following):
                last = following & ~ARRIVAL_MASK | hold.end - 1
                passed_over = [each for each in hold.passed_over if following <= each <= last]
                position = min(passed_over) - 1 if passed_over else last
        return position

    def by_arrival(self, start: int, end: int, limit: int, hold: Hold | None = None) -> list[Record]:
        """Up to `limit` messages with `start` <= arrival < `end`, of any priority, in the order of arrival.

        They are the Available messages. If `hold` spans them, they are the messages that it covers.
        """
        found: list[Record] = []
        for rank in range(PRIORITIES):
            found += self._of_rank(rank, start, end, limit, hold)
        found.sort(key=lambda record: record.lookup_id & ARRIVAL_MASK)
        return found[:limit]

    def _of_rank(self, rank: int, start: int, end: int, limit: int, hold: Hold | None) -> list[Record]:
        found: list[Record] = []
        position, stop = (rank << PRIORITY_SHIFT | start) - 1, rank << PRIORITY_SHIFT | end
        wanted = 1  # a look at a priority without such messages returns those of the next one: it need not return many
        while len(found) < limit and position < stop - 1:
            records = self._scan(position, wanted)
            for record in records:
                position = record.lookup_id
                if position >= stop:
                    break
                if self.is_shown(position, hold):
                    found.append(record)
            if len(records) < wanted:
                break
            wanted = min(SCAN_LIMIT, limit - len(found))
        return found

    def runs(self, start: int, end: int) -> list[Run]:
        """Where the messages with `start` <= arrival < `end` are now."""
        stores = [
            store for store, count in ((self._durable, self.stored_count), (self._express, self.express_count)) if count
        ]
        return [run for store in stores for run in self._runs_of(store, start, end)]

    def _runs_of(self, store: RecordStore, start: int, end: int) -> Iterator[Run]:
        position = start
        while start < end and (found := store.scan(self.number, position - 1, 1)):
            rank, arrival = found[0].lookup_id & ~ARRIVAL_MASK, found[0].lookup_id & ARRIVAL_MASK
            if arrival < start:  # the first message of a lower priority
                position = rank | start
                continue
            if arrival < end:
                yield Run(store, rank | start, rank | end - 1, store is self._express)
            position = rank + (1 << PRIORITY_SHIFT) | start

    def is_shown(self, lookup_id: int, hold: Hold | None) -> bool:
        """Whether a reader sees the message: inside its `hold`, what that covers; elsewhere, what nobody has."""
        if lookup_id in self.positions:
            return False
        if hold is not None and hold.spans(lookup_id):
            return hold.covers(lookup_id)
        return not self.holds or self.holder(lookup_id) is None

    def get(self, lookup_id: int) -> Record | None:
        """The message at this position, in any state. None if there is none."""
        return self._express.get(self.number, lookup_id) or self._durable.get(self.number, lookup_id)

    @property
    def tail(self) -> int:
        """The position of the last message, in any state. START if there is none."""
        return next((record.lookup_id for record in self._scan_back(END, 1)), START)

    @property
    def oldest(self) -> Record | None:
        """The message that came first, in any state and of any priority. None if there is none."""
        if self.count == 0:
            return None
        return min(self._firsts(), key=lambda each: each.arrived_ms, default=None)

    @property
    def first_arrival(self) -> int | None:
        """The arrival number of the message that came first, in any state. None if there is none."""
        if self.count == 0:
            return None
        return min((record.lookup_id & ARRIVAL_MASK for record in self._firsts()), default=None)

    def _firsts(self) -> Iterator[Record]:
        """The first message of each priority that has messages."""
        rank = 0
        while rank < PRIORITIES and (found := self._scan((rank << PRIORITY_SHIFT) - 1, 1)):
            yield found[0]
            rank = (found[0].lookup_id >> PRIORITY_SHIFT) + 1

    def everything(self) -> Iterator[Record]:
        """Every message from the head on, in any state. The queue may change meanwhile."""
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

    # The front

    def came(self, records: Sequence[Record]) -> None:
        """New messages are in the queue. Somebody may have seen them in the store before this call."""
        ids = [record.lookup_id for record in records]
        foremost = min(ids)
        size = sum([len(record.packet) for record in records])
        front = self._front
        if not self._whole or not self._may_keep(size):
            self.opened_before(foremost)
            return
        if (not front or front[-1].lookup_id < ids[0]) and self.positions.keys().isdisjoint(ids) and ids == sorted(ids):
            front.extend(records)
            self._front_bytes += size
            self.usage.kept_bytes += size
        else:
            found = {each.lookup_id: each for each in (*front, *records) if each.lookup_id not in self.positions}
            self._set_front(sorted(found.values()), whole=True)
        if foremost <= self._head:
            self._head = foremost - 1

    def opened_before(self, lookup_id: int) -> None:
        """A message became available at `lookup_id`. The search for the head starts before it."""
        self._whole = False
        if self._front and lookup_id < self._front[-1].lookup_id:
            self._drop_front()
        if lookup_id <= self._head:
            self._head = lookup_id - 1

    def changed(self) -> None:
        """Records were replaced, so those in memory may be old."""
        self._drop_front()

    def _leave_front(self, lookup_ids: Sequence[int]) -> None:
        """What a sender takes from the front is never looked at again."""
        front, count = self._front, len(lookup_ids)
        if not count or not front or max(lookup_ids) < front[0].lookup_id:
            return
        size = 0
        if count <= len(front) and front[0].lookup_id == lookup_ids[0] and front[count - 1].lookup_id == lookup_ids[-1]:
            for _ in lookup_ids:
                size += len(front.popleft().packet)
            self._head = lookup_ids[-1]
        else:
            for lookup_id in lookup_ids:
                if front and front[0].lookup_id == lookup_id:
                    size += len(front.popleft().packet)
                    self._head = lookup_id
                elif front and front[0].lookup_id < lookup_id <= front[-1].lookup_id:
                    self._drop_front()
                    return
        self._front_bytes -= size
        self.usage.kept_bytes -= size

    def _set_front(self, records: list[Record], *, whole: bool) -> None:
        self._drop_front()
        size = sum([len(record.packet) for record in records])
        while records and not self._may_keep(size):
            whole = False
            size -= len(records[-1].packet)
            records = records[:-1]
        self._front.extend(records)
        self._front_bytes = size
        self.usage.kept_bytes += size
        self._whole = whole

    def _drop_front(self) -> None:
        if self._front:  # what was read ahead is not used
            self._ahead = AHEAD_OF_READER
        self._front.clear()
        self.usage.kept_bytes -= self._front_bytes
        self._front_bytes = 0
        self._whole = False

    def _may_keep(self, size: int) -> bool:
        return self._front_bytes + size <= KEPT_BYTES and self.usage.kept_bytes + size <= ALL_KEPT_BYTES

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
