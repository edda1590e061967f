"""Holds: a named reader keeps a range of a queue, by order of arrival, to itself until it commits or releases it.

A hold is durable and names no message, so it costs the same for one message and for a million. It widens at once, but
narrows only when that is durable: nobody else gets a message that a lost tick would give back to its holder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from postroad.errors import InvalidArgument, SharingViolation, StorageError, TransactionSequence
from postroad.queues.collection import QueueCollection
from postroad.queues.delivery import Delivery
from postroad.queues.owners import SOMEBODY_ELSE, Held, Owners, check_name, name_in, owner_in, owner_of
from postroad.queues.queue import Queue
from postroad.queues.reading import Reading
from postroad.security.descriptors import Sid
from postroad.store.interface import ARRIVAL_MASK

STATE = "hold/"
COMMIT_BATCH = 1000  # messages that one step of a commit receives


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """The messages with `start` <= arrival < `end`, except those that somebody else had when the hold was made.

    Two holds are equal only if they are the same object: each change makes a new one.
    """

    name: str
    start: int
    end: int
    since_s: int
    passed_over: frozenset[int] = frozenset()  # lookup ids

    def spans(self, lookup_id: int) -> bool:
        """Whether the message is in the range, held or passed over."""
        return self.start <= lookup_id & ARRIVAL_MASK < self.end

    def covers(self, lookup_id: int) -> bool:
        return self.start <= lookup_id & ARRIVAL_MASK < self.end and lookup_id not in self.passed_over

    def encode(self) -> bytes:
        values = {"from": self.start, "to": self.end, "since_s": self.since_s, "passed_over": sorted(self.passed_over)}
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, name: str, data: bytes) -> Hold:
        try:
            values = json.loads(data)
            return cls(name, values["from"], values["to"], values["since_s"], frozenset(values["passed_over"]))
        except (ValueError, KeyError, TypeError) as fault:
            raise StorageError(f"the stored hold {name!r} cannot be read: {fault}") from fault


@dataclass(slots=True, eq=False)
class Holding:
    """Makes, commits and releases the holds of a manager's queues."""

    _queues: QueueCollection
    _delivery: Delivery
    _reading: Reading
    _owners: Owners

    def load(self, stored: Mapping[str, bytes]) -> None:
        """Restores the holds from before the restart, before anybody reads."""
        for key, value in stored.items():
            number, _, name = key.removeprefix(STATE).partition("/")
            queue = self._queues.by_number.get(int(number))
            if queue is None:
                self._delivery.tick.set_state(key, None)
            else:
                queue.holds[name] = Hold.decode(name, value)
                self._owners.take(Held.HOLDS, owner_of(name))

    def put(self, queue: Queue, name: str, start: int, end: int, arrived: int, now: float) -> Hold:
        """Holds a range, or widens the hold of this name by it. Returns the whole hold. `arrived` limits the range."""
        check_name(name)
        if not 0 <= start <= end:
            raise InvalidArgument(f"from: must be between 0 and {end}, got {start}")
        if end > arrived:
            raise InvalidArgument(f"to: must be at most {arrived}, below which all messages have arrived, got {end}")
        for other in queue.holds.values():
            if other.name != name and other.start < end and start < other.end:
                raise SharingViolation(
                    f"messages from {max(start, other.start)} to {min(end, other.end)} of {queue.properties.path} "
                    f"are held by {_display_name(other.name, name)}"
                )
        before = queue.holds.get(name)
        if before is None:
            self._owners.check(Held.HOLDS, owner_of(name))
        if before is not None and (start > before.end or end < before.start):
            raise TransactionSequence(
                f"{name_in(name)} holds messages from {before.start} to {before.end} of {queue.properties.path}: "
                f"a range from {start} to {end} does not touch them; commit or release them first"
            )
        taken = frozenset(
            lookup_id
            for lookup_id in queue.positions
            if start <= lookup_id & ARRIVAL_MASK < end and not (before is not None and before.spans(lookup_id))
        )
        if before is None:
            hold = Hold(name, start, end, int(now), taken)
        else:
            hold = replace(
                before, start=min(start, before.start), end=max(end, before.end), passed_over=before.passed_over | taken
            )
        self._write(queue, hold)
        if before is None:
            self._owners.take(Held.HOLDS, owner_of(name))
        queue.holds[name] = hold
        self._delivery.tick.undo.append(lambda _: self._undo_put(queue, hold, before))
        return hold

    def _undo_put(self, queue: Queue, hold: Hold, before: Hold | None) -> None:
        if queue.holds.get(hold.name) is hold:
            self._become(queue, hold, before)

    def commit(self, queue: Queue, name: str, end: int, now: float, limit: int = COMMIT_BATCH) -> int:
        """Receives up to `limit` held messages below `end`, and returns how many. Fewer than `limit` means that they
        were the last.

        The last step narrows the hold, or ends it. A hold that does not exist has nothing left.
        """
        hold = queue.holds.get(name)
        if hold is None or end < hold.start:
            return 0
        end = min(end, hold.end)
        records = queue.by_arrival(hold.start, end, limit, hold)
        with self._delivery.atomic:
            self._delivery.receive(queue, records, now)
            if len(records) == limit:
                return limit
            narrowed = None
            if end < hold.end:
                rest = frozenset(each for each in hold.passed_over if each & ARRIVAL_MASK >= end)
                narrowed = replace(hold, start=end, passed_over=rest)
            self._narrow(queue, hold, narrowed, now)
        return len(records)

    def release(self, queue: Queue, name: str, now: float) -> bool:
        """Gives back what is still held, once that is durable. Returns False if there is no such hold."""
        hold = queue.holds.get(name)
        if hold is None:
            return False
        self._narrow(queue, hold, None, now)
        return True

    def forget(self, queue: Queue) -> None:
        """The queue is deleted with all its messages."""
        for hold in queue.holds.values():
            self._delivery.tick.set_state(_key(queue, hold.name), None)
        self._delivery.tick.on_commit.append(lambda: self._drop_all(queue))

    def _drop_all(self, queue: Queue) -> None:
        for name in queue.holds:
            self._owners.give(Held.HOLDS, owner_of(name))
        queue.holds.clear()

    def end_forbidden(self, queues: Iterable[Queue], may_receive: Callable[[Queue, Sid], bool], now: float) -> None:
        """Releases the holds of users who have lost the right."""
        for queue in queues:
            for name in list(queue.holds):
                owner = owner_in(name)
                if owner is not None and not may_receive(queue, owner):
                    self.release(queue, name, now)

    def _narrow(self, queue: Queue, hold: Hold, narrowed: Hold | None, now: float) -> None:
        tick = self._delivery.tick
        if narrowed is None:
            tick.set_state(_key(queue, hold.name), None)
        else:
            self._write(queue, narrowed)

        def landed() -> None:
            if queue.holds.get(hold.name) is not hold:
                return  # the hold was made again meanwhile, and that has been or will be written
            self._become(queue, hold, narrowed)
            if queue.waiting:
                self._reading.wake(queue, now, ())

        tick.on_commit.append(landed)

    def _write(self, queue: Queue, hold: Hold) -> None:
        self._delivery.tick.set_state(_key(queue, hold.name), hold.encode())

    def _become(self, queue: Queue, hold: Hold, after: Hold | None) -> None:
        if after is None:
            del queue.holds[hold.name]
            self._owners.give(Held.HOLDS, owner_of(hold.name))
        else:
            queue.holds[hold.name] = after
        queue.opened_before(hold.start)  # the lowest id: nothing that was held comes before it


def _display_name(name: str, own_name: str) -> str:
    """The name for a user: users do not learn the names of others."""
    own = owner_in(own_name)
    return name_in(name) if own is None or own == owner_in(name) else SOMEBODY_ELSE


def _key(queue: Queue, name: str) -> str:
    return f"{STATE}{queue.number}/{name}"
