"""Submissions: what a sender that tries again has sent already, so that nothing is sent twice.

A sender has a name, sends in epochs, each in partitions, and numbers the rows of each from 0 on. The number of the
next row becomes durable in the tick that sends those before it. Messages themselves are not looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple
from urllib.parse import quote, unquote

from postroad.errors import InvalidArgument, TransactionSequence
from postroad.queues.tick import Tick

STATE = "submission/"
MAX_NAME = 200
MAX_EPOCH = (1 << 63) - 1
_NUMBER = Struct("<Q")


class Sender(NamedTuple):
    """Who sends, and whereto: the same name to another destination is another sender."""

    destination: str
    name: str


class Part(NamedTuple):
    sender: Sender
    epoch: int
    partition: int


class Submissions:
    """Whoever submits waits for the end of one submission to a part before the next: a tick can be lost."""

    def __init__(self, tick: Callable[[], Tick]) -> None:
        self._tick = tick
        self._next_rows: dict[Sender, dict[tuple[int, int], int]] = {}  # by epoch and partition, of open epochs
        self._committed: dict[Sender, int] = {}  # the last epoch that is done

    def load(self, stored: Mapping[str, bytes]) -> None:
        for key, value in stored.items():
            (number,) = _NUMBER.unpack(value)
            destination, name, *part = key.removeprefix(STATE).split("/")
            sender = Sender(unquote(destination), unquote(name))
            if part:
                epoch, partition = map(int, part)
                self._next_rows.setdefault(sender, {})[epoch, partition] = number
            else:
                self._committed[sender] = number

    def sent(self, part: Part, row: int, count: int) -> int:
        """How many of the `count` rows from `row` on have been sent already; they are the first ones."""
        check_name(part.sender.name)
        if part.epoch <= self._committed.get(part.sender, -1):
            return count
        following = self._next_rows.get(part.sender, {}).get((part.epoch, part.partition), 0)
        if row > following:
            raise TransactionSequence(
                f"row: the next one of {part.sender.name}, epoch {part.epoch}, partition {part.partition} "
                f"is {following}, not {row}: those between are missing"
            )
        return min(following - row, count)

    def note(self, part: Part, next_row: int) -> None:
        """In the tick that sends them: all rows before `next_row` are sent."""
        rows = self._next_rows.setdefault(part.sender, {})
        place = (part.epoch, part.partition)
        before = rows.get(place)
        rows[place] = next_row
        tick = self._tick()
        tick.set_state(_key(part.sender, *place), _NUMBER.pack(next_row))

        def undo(_: Tick) -> None:
            if before is None:
                rows.pop(place, None)
            else:
                rows[place] = before

        tick.undo.append(undo)

    def commit(self, sender: Sender, epoch: int) -> None:
        """The epoch and all before it are done: what comes of them later has been sent. Its rows are forgotten."""
        check_name(sender.name)
        before = self._committed.get(sender)
        if before is not None and before >= epoch:
            return
        rows = self._next_rows.get(sender, {})
        done = {place: row for place, row in rows.items() if place[0] <= epoch}
        tick = self._tick()
        tick.set_state(_key(sender), _NUMBER.pack(epoch))
        for place in done:
            tick.set_state(_key(sender, *place), None)
            del rows[place]
        self._committed[sender] = epoch

        def undo(_: Tick) -> None:
            self._next_rows.setdefault(sender, {}).update(done)
            if before is None:
                del self._committed[sender]
            else:
                self._committed[sender] = before

        tick.undo.append(undo)

    def forget(self, sender: Sender) -> bool:
        """The sender will not come back; False where nothing was known of it."""
        rows = self._next_rows.get(sender, {})
        known = sender in self._committed or bool(rows)
        tick = self._tick()
        for place in rows:
            tick.set_state(_key(sender, *place), None)
        if sender in self._committed:
            tick.set_state(_key(sender), None)
        tick.on_commit.append(lambda: self._drop(sender))
        return known

    def _drop(self, sender: Sender) -> None:
        self._next_rows.pop(sender, None)
        self._committed.pop(sender, None)


def _key(sender: Sender, *place: int) -> str:
    words = [quote(sender.destination, safe=""), quote(sender.name, safe=""), *map(str, place)]
    return STATE + "/".join(words)


def check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidArgument(f"name: {name[:60]!r} is not 1 to {MAX_NAME} printable characters")
