"""The tick: all changes of one store transaction, and what follows once it has committed or failed.

Readers see a message only after its commit, and callers that wait for durability are answered then. Atomic changes of
several steps are here too, and the counters of arrivals and message ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from struct import Struct
from typing import TYPE_CHECKING, Any

from postroad.errors import StorageError
from postroad.queues.queue import END, PositionState, Queue
from postroad.store.interface import ARRIVAL_MASK, MAX_ARRIVAL, Batch, Key, Pair, Record

if TYPE_CHECKING:
    from postroad.queues.delivery import Delivery
    from postroad.queues.local import LocalQueueManager

FollowUp = Callable[..., None]

COUNT_STATE = "count/"  # followed by a queue's number: how many messages the queue has
COUNTERS_STATE = "counters"
_LAYOUT = Struct("<QI")
ARRIVAL_BLOCK = 1 << 20
MESSAGE_ID_BLOCK = 1 << 16
MAX_MESSAGE_ID = (1 << 32) - 1
SKIPPED_ARRIVALS = 1 << 32
SKIPPED_MESSAGE_IDS = 1 << 28


@dataclass(slots=True)
class Change:
    """What a tick does to the size of one queue."""

    added: int = 0
    added_bytes: int = 0
    removed: int = 0
    removed_bytes: int = 0
    first: int | None = None  # the first position, in queue order, that was added
    first_arrival: int | None = None


@dataclass(slots=True)
class Tick:
    """Changes gathered since the last commit."""

    batch: Batch = field(default_factory=Batch)
    changes: dict[Queue, Change] = field(default_factory=dict)
    taken: list[tuple[Queue, list[int]]] = field(default_factory=list)
    replaced: set[Pair] = field(default_factory=set)
    sequenced: dict[Queue, list[Pair]] = field(default_factory=dict)  # what got numbers of our sequence, in order
    writes: int = 0  # grows with every change, so that a caller can tell whether it made any
    on_seal: list[Callable[[], None]] = field(default_factory=list)  # for what is written once per tick
    on_commit: list[Callable[[], None]] = field(default_factory=list)
    on_failure: list[Callable[[StorageError], None]] = field(default_factory=list)
    undo: list[Callable[[Tick], None]] = field(default_factory=list)  # takes the change back, in reverse order
    # While a change can still fail (see Atomic): the calls that take it back, to be made in reverse order.
    steps: list[tuple[Any, ...]] | None = None

    def __bool__(self) -> bool:
        batch = self.batch
        return bool(batch.puts or batch.deletes or batch.state)

    def change(self, queue: Queue) -> Change:
        change = self.changes.get(queue)
        if change is None:
            change = self.changes[queue] = Change()
        return change

    def put(self, queue: Queue, record: Record, *, moved: bool = False) -> None:
        """Adds a record. Its bytes count against the quota from now on. A `moved` one has the number of its first
        arrival: readers by order of arrival may be past it."""
        self.batch.puts[Key(record.queue, record.lookup_id)] = record
        self.writes += 1
        change = self.change(queue)
        if self.steps is not None:
            self.steps.append((_unput, self, queue, record, change.first, change.first_arrival))
        size = len(record.packet)
        change.added += 1
        change.added_bytes += size
        if change.first_arrival is None and not moved:
            change.first_arrival = record.lookup_id & ARRIVAL_MASK  # arrival numbers only grow
        if change.first is None or record.lookup_id < change.first:
            change.first = record.lookup_id
        queue.reserve(size)

    def put_all(self, queue: Queue, records: Sequence[Record]) -> None:
        """Adds several records of one queue, in order."""
        if not records:
            return
        lookup_ids = [record.lookup_id for record in records]
        size = sum([len(record.packet) for record in records])
        self.batch.puts.update(zip(keys(queue.number, lookup_ids), records, strict=True))
        self.writes += 1
        change = self.change(queue)
        if self.steps is not None:
            self.steps.append((_unput_all, self, queue, records, change.first, change.first_arrival))
        change.added += len(records)
        change.added_bytes += size
        first = min(lookup_ids)
        if change.first_arrival is None:
            change.first_arrival = lookup_ids[0] & ARRIVAL_MASK  # arrival numbers only grow
        if change.first is None or first < change.first:
            change.first = first
        queue.reserve(size)

    def set_state(self, name: str, value: bytes | None) -> None:
        if self.steps is not None:
            self.steps.append((_restore, self.batch.state, name, self.batch.state.get(name, _ABSENT)))
        self.writes += 1
        self.batch.state[name] = value

    def replace(self, record: Record) -> None:
        """Replaces a stored record by one whose packet is the same and whose other fields differ."""
        self.writes += 1
        key = Key(record.queue, record.lookup_id)
        if self.steps is not None:
            self.steps.append((_restore, self.batch.puts, key, self.batch.puts.get(key, _ABSENT)))
            if key not in self.replaced:
                self.steps.append((self.replaced.discard, key))
        self.batch.puts[key] = record
        self.replaced.add(key)

    def delete_all(self, queue: Queue, records: Sequence[Record], states: Sequence[PositionState | None] = ()) -> None:
        """Deletes records of one queue. Until the commit they stay in place, and nobody else can take them. For a
        change that can be taken back, `states` are the previous states of their positions."""
        lookup_ids = [record.lookup_id for record in records]
        deleted = keys(queue.number, lookup_ids)
        puts = self.batch.puts
        # A batch deletes first and puts then, so a replacement left in it would outlive its record.
        replacements = [puts.pop(key) for key in deleted if key in puts] if puts else []
        if self.steps is not None:
            self.steps.append((_undelete_all, self, queue, records, replacements, states))
        self.batch.deletes.update(deleted)
        self.writes += 1
        change = self.change(queue)
        change.removed += len(records)
        change.removed_bytes += sum([len(record.packet) for record in records])
        self.taken.append((queue, lookup_ids))

    def withdraw(self, queue: Queue) -> list[Record]:
        """Takes back what this tick adds to a queue. All stored records of the queue must be taken."""
        records = [record for record in self.batch.puts.values() if record.queue == queue.number]
        for record in records:
            self.take_back(Key(record.queue, record.lookup_id))
        sequenced = self.sequenced.pop(queue, None)
        if self.steps is not None and sequenced is not None:
            self.steps.append((self.sequenced.__setitem__, queue, sequenced))
        return records

    def note_sequenced(self, queue: Queue, records: Sequence[Record]) -> None:
        """Notes records that got numbers of our own sequence to this queue's destination."""
        noted = self.sequenced.setdefault(queue, [])
        if self.steps is not None:
            self.steps.append((noted.__delitem__, slice(len(noted), None)))
        noted += keys(queue.number, [record.lookup_id for record in records])

    def last_puts(self, count: int) -> list[Pair]:
        """The keys of the newest `count` records, the last one first."""
        return list(islice(reversed(self.batch.puts), count))

    def take_back(self, key: Pair) -> None:
        """Undoes one `put` of this tick, if it still stands."""
        record = self.batch.puts.pop(key, None)
        if record is not None:
            queue, change = next(each for each in self.changes.items() if each[0].number == key[0])
            change.added -= 1
            change.added_bytes -= len(record.packet)
            queue.release(len(record.packet))
            if self.steps is not None:
                self.steps.append((self._put_again, queue, record))

    def _put_again(self, queue: Queue, record: Record) -> None:
        self.batch.puts[Key(record.queue, record.lookup_id)] = record
        change = self.changes[queue]
        change.added += 1
        change.added_bytes += len(record.packet)
        queue.reserve(len(record.packet))

    def added_to(self, queue: Queue) -> list[int]:
        """The lookup ids that this tick adds to a queue, in queue order."""
        number, replaced = queue.number, self.replaced
        return sorted([key[1] for key in self.batch.puts if key[0] == number and key not in replaced])


_ABSENT: Any = object()


def keys(queue: int, lookup_ids: Iterable[int]) -> list[Pair]:
    """The keys of records of one queue."""
    return list(zip(repeat(queue), lookup_ids))


# Functions that take changes back. They are no methods: binding one for each message would cost time.


def _unput(tick: Tick, queue: Queue, record: Record, first: int | None, first_arrival: int | None) -> None:
    if tick.batch.puts.pop(Key(record.queue, record.lookup_id), None) is not None:
        change = tick.changes[queue]
        change.added -= 1
        change.added_bytes -= len(record.packet)
        change.first, change.first_arrival = first, first_arrival
        queue.release(len(record.packet))


def _unput_all(
    tick: Tick, queue: Queue, records: Sequence[Record], first: int | None, first_arrival: int | None
) -> None:
    for record in reversed(records):
        _unput(tick, queue, record, first, first_arrival)


def _undelete_all(
    tick: Tick,
    queue: Queue,
    records: Sequence[Record],
    replacements: Sequence[Record],
    states: Sequence[PositionState | None],
) -> None:
    change = tick.changes[queue]
    change.removed -= len(records)
    change.removed_bytes -= sum([len(record.packet) for record in records])
    lookup_ids = [record.lookup_id for record in records]
    tick.batch.deletes.difference_update(keys(queue.number, lookup_ids))
    tick.batch.puts.update({Key(each.queue, each.lookup_id): each for each in replacements})
    del tick.taken[-1]
    queue.restore(lookup_ids, states)


def _restore(values: dict[Any, Any], key: object, before: object) -> None:
    """Restores the value that was there, or none."""
    if before is _ABSENT:
        values.pop(key, None)
    else:
        values[key] = before


class Atomic:
    """A change of several steps that happens as a whole or not at all, and the work that follows once it stands.

    Put `with atomic:` around the steps. A nested block is a part of the outer one and can fail by itself. An exception
    in the block restores memory, express messages and the gathering tick, and nothing follows. Numbers that were given
    out are not given again.
    """

    __slots__ = ("_delivery", "_marks", "follow_ups")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._marks: list[tuple[Tick, int, int, int, int, int, int, int]] = []
        self.follow_ups: list[tuple[FollowUp, tuple[object, ...]]] = []

    def then(self, follow_up: FollowUp, *arguments: object) -> None:
        """Calls `follow_up` once the change stands, or at once if no change is open. It must not raise."""
        if self._marks:
            self.follow_ups.append((follow_up, arguments))
        else:
            follow_up(*arguments)

    def __enter__(self) -> None:
        tick = self._delivery.tick
        if tick.steps is None:
            tick.steps = []
        self._marks.append(
            (
                tick,
                len(tick.steps),
                len(self.follow_ups),
                tick.writes,
                len(tick.on_seal),
                len(tick.on_commit),
                len(tick.on_failure),
                len(tick.undo),
            )
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        tick, steps, follow_ups, writes, on_seal, on_commit, on_failure, undo = self._marks.pop()
        assert tick.steps is not None
        if kind is not None:
            go = self._delivery.try_after  # if one fails, the others are still taken back
            for step, *arguments in reversed(tick.steps[steps:]):
                go(None, step, *arguments)
            for back in reversed(tick.undo[undo:]):
                go(None, back, tick)
            del tick.undo[undo:], tick.on_failure[on_failure:], tick.on_commit[on_commit:], tick.on_seal[on_seal:]
            del tick.steps[steps:], self.follow_ups[follow_ups:]
            tick.writes = writes
        if not self._marks:
            tick.steps = None
            if self.follow_ups:
                waiting, self.follow_ups = self.follow_ups, []
                for follow_up, each in waiting:
                    follow_up(*each)


class Counters:
    """Arrival order ([MS-MQDMPR] SequentialID) and message ids: two numbers that only grow.

    The store keeps a ceiling for each, which is raised in advance. So no message waits for a commit to get its number,
    and no number is given twice, even after a crash. A restart goes on from the last ceiling. A clean stop lowers the
    ceilings to the numbers used.

    A new store begins at `first_message_id`, so that strangers cannot guess message ids.
    """

    def __init__(self, stored: bytes | None, first_message_id: int = 1) -> None:
        self._arrival: int = 1
        self._message_id: int = first_message_id  # not 0: that means a message without an id, [MS-MQQB] 3.1.7.1.1
        if stored:
            self._arrival, self._message_id = _LAYOUT.unpack(stored)
        self._arrival_ceiling = self._arrival
        self._message_id_ceiling = self._message_id

    def next_arrival(self) -> int:
        arrival = self._arrival
        self._arrival = arrival + 1
        return arrival

    def take_arrivals(self, number: int) -> int:
        """Takes `number` consecutive arrival numbers, and returns the first."""
        first = self._arrival
        self._arrival = first + number
        return first

    def take_message_ids(self, number: int) -> int:
        """Takes `number` consecutive ids, and returns the first. The caller masks each with MAX_MESSAGE_ID."""
        first = self._message_id
        self._message_id = first + number
        return first

    def next_message_id(self) -> int:
        return self.take_message_ids(1) & MAX_MESSAGE_ID

    @property
    def last_arrival(self) -> int:
        return self._arrival - 1

    def reserve(self, batch: Batch) -> None:
        """Writes higher ceilings into this batch once half of a block is used."""
        if (
            self._arrival_ceiling - self._arrival >= ARRIVAL_BLOCK // 2
            and self._message_id_ceiling - self._message_id >= MESSAGE_ID_BLOCK // 2
        ):
            return
        self._arrival_ceiling = min(self._arrival + ARRIVAL_BLOCK, MAX_ARRIVAL)
        self._message_id_ceiling = self._message_id + MESSAGE_ID_BLOCK
        batch.state[COUNTERS_STATE] = _LAYOUT.pack(self._arrival_ceiling, self._message_id_ceiling & MAX_MESSAGE_ID)

    def lapse(self) -> None:
        """A tick was lost, perhaps with higher ceilings in it: the next tick writes them again."""
        self._arrival_ceiling = self._arrival
        self._message_id_ceiling = self._message_id

    def recover(self, now: float) -> None:
        """Replaces damaged ceilings by numbers from the clock: above all arrival numbers so far, because no manager
        takes a thousand a second."""
        self._arrival = max(self._arrival, int(now * 1000))
        self._message_id = max(self._message_id, int(now) & MAX_MESSAGE_ID)
        self.lapse()

    @staticmethod
    def skipped(stored: bytes) -> bytes:
        """The counters for a restored backup. They skip far more numbers than a manager uses between two backups, so
        that no number given after the backup is given again."""
        arrival, message_id = _LAYOUT.unpack(stored)
        return _LAYOUT.pack(
            min(arrival + SKIPPED_ARRIVALS, MAX_ARRIVAL), (message_id + SKIPPED_MESSAGE_IDS) & MAX_MESSAGE_ID
        )

    def settle(self, batch: Batch) -> None:
        """Lowers the ceilings to the numbers used. For a clean stop."""
        batch.state[COUNTERS_STATE] = _LAYOUT.pack(self._arrival, self._message_id & MAX_MESSAGE_ID)


class Ticks:
    """Seals what has gathered, and later marks it as committed or lost. One tick is being committed at a time."""

    def __init__(self, core: LocalQueueManager) -> None:
        self._core = core
        self._delivery = core.delivery
        self._out: Tick | None = None  # the tick that is being committed

    def seal(self, now: float = 0.0) -> Tick | None:
        """Returns what has gathered, to be committed; None if there is nothing.

        Raises StorageError if the tick cannot be encoded. The whole tick is then lost, as if the disk had refused it.
        """
        tick = self._delivery.tick
        try:
            for callback in tick.on_seal:
                callback()
            if not tick:
                tick.writes = 0  # all of them were taken back
                return None
            for queue, change in tick.changes.items():
                if queue.number in self._core.queues.by_number:
                    tick.batch.state[f"{COUNT_STATE}{queue.number}"] = queue.encode_counts(change)
        except Exception as error:
            self._delivery.note_failure(None, error)
            lost = StorageError(f"the changes cannot be encoded: {error!r}")
            self._delivery.tick = Tick()
            self.failed(tick, lost, now)
            raise lost from error
        self._delivery.tick = Tick()
        self._out = tick
        self._core.counters.reserve(tick.batch)
        return tick

    def committed(self, tick: Tick, now: float, answer: Callable[[], object] = lambda: None) -> None:
        """Makes the changes of a durable tick visible and serves waiting readers. Never raises.

        Calls `answer` before it serves the readers, so that senders can go on meanwhile.
        """
        self._out = None
        try_after = self._delivery.try_after
        for queue, lookup_ids in tick.taken:
            queue.gone(lookup_ids)
        self._note_records(tick)
        for queue, change in tick.changes.items():
            queue.note(change)
            if queue.deleted:
                try_after(None, self._core.empty, queue, now)  # the queue was deleted during the commit
        for callback in tick.on_commit:
            try_after(None, callback)
        answer()
        for queue, change in tick.changes.items():
            if change.added and queue.waiting:
                try_after(None, self._core.reading.wake, queue, now, tick.added_to(queue))
            if change.added and queue.carrier is not None:
                try_after(None, queue.carrier.ready, queue, now)

    def _note_records(self, tick: Tick) -> None:
        """Tells queues about new and changed records."""
        puts, by_number = tick.batch.puts, self._core.queues.by_number
        for key in tick.replaced:
            if key in puts and (replaced := by_number.get(key[0])):
                replaced.changed()
        added: dict[int, list[Record]] = {}
        for key, record in puts.items():
            if (records := added.get(record.queue)) is None:
                records = added[record.queue] = []
            if key not in tick.replaced:
                records.append(record)
        for queue in tick.changes:
            if records := added.get(queue.number):
                queue.came(records)

    def failed(self, tick: Tick, error: StorageError, now: float) -> None:
        """Undoes a lost tick: what it took is available again, and what it added disappears. Never raises."""
        self._out = None
        try_after = self._delivery.try_after
        for queue, lookup_ids in tick.taken:
            queue.unmark_all(lookup_ids)
        for queue, change in tick.changes.items():
            queue.release(change.added_bytes)
        for queue, sequenced in tick.sequenced.items():
            try_after(None, self._core.transacting.close_gap, queue, len(sequenced))
        for step in reversed(tick.undo):
            try_after(None, step, self._delivery.tick)
        for callback in tick.on_failure:
            try_after(None, callback, error)
        self._core.counters.lapse()
        for queue in tick.changes:
            if queue.deleted:
                try_after(None, self._core.empty, queue, now)
            elif queue.waiting:
                opened = sorted(chain.from_iterable(lookup_ids for each, lookup_ids in tick.taken if each is queue))
                try_after(None, self._core.reading.wake, queue, now, opened)

    def arrived(self, queue: Queue) -> int:
        """The arrival number below which no more messages can enter the queue, because all ticks with such numbers have
        ended.

        The messages of a transaction get their numbers when it commits, however long it was open.
        """
        for tick in (self._out, self._delivery.tick):
            change = None if tick is None else tick.changes.get(queue)
            if change is not None and change.added and change.first_arrival is not None:
                return change.first_arrival
        return self._core.counters.last_arrival + 1

    def mark(self, queue: Queue) -> int:
        """The arrival number below which no message can come into the queue or return from a reader."""
        locked = (
            lookup_id & ARRIVAL_MASK
            for lookup_id, state in queue.positions.items()
            if state is not PositionState.DELETED
        )
        return min(self.arrived(queue), min(locked, default=END))
