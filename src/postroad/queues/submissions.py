"""Submissions: what a sender that repeats a send has sent already, so that nothing is sent twice.

A sender has a name. It sends in epochs, each in partitions, and numbers the rows of each partition from 0. The number
of the next row becomes durable in the tick that sends the rows before it. This module does not look at the messages.

A sender can also give each run of its job a name, and describe the rows by a digest. A later run under the same name
then sends only if it has the same rows. It takes over a partition by showing the digest of what was sent of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple
from urllib.parse import quote, unquote

from postroad.errors import TransactionSequence
from postroad.queues.owners import Held, Owners, check_name, name_in, owner_in, owner_of
from postroad.queues.tick import Tick
from postroad.security.descriptors import Sid

STATE = "submission/"
MAX_EPOCH = (1 << 63) - 1
_NUMBER = Struct("<Q")


class Sender(NamedTuple):
    """Who sends, and where to: the same name with another destination is another sender."""

    destination: str
    name: str


class Part(NamedTuple):
    sender: Sender
    epoch: int
    partition: int


class Progress(NamedTuple):
    """What was sent of a partition: the rows before `next_row`. `run` and `digest` are empty if not given."""

    next_row: int
    run: str = ""
    digest: str = ""

    def encode(self) -> bytes:
        return _NUMBER.pack(self.next_row) + (f"{self.run} {self.digest}".encode() if self.run else b"")

    @classmethod
    def decode(cls, data: bytes) -> Progress:
        (next_row,) = _NUMBER.unpack_from(data)
        run, _, digest = data[_NUMBER.size :].decode().partition(" ")
        return cls(next_row, run, digest)


class Submissions:
    """A caller waits for the end of one submission to a part before it makes the next, because a tick can be lost.

    Each record on disk counts against the limits of its owner.
    """

    def __init__(self, tick: Callable[[], Tick], owners: Owners) -> None:
        self._tick = tick
        self._owners = owners
        # By epoch and partition: for open epochs, and for the last finished one if its sender wants that.
        self._progress: dict[Sender, dict[tuple[int, int], Progress]] = {}
        self._committed: dict[Sender, int] = {}  # the last finished epoch

    def load(self, stored: Mapping[str, bytes]) -> None:
        for key, value in stored.items():
            destination, name, *part = key.removeprefix(STATE).split("/")
            sender = Sender(unquote(destination), unquote(name))
            if part:
                epoch, partition = map(int, part)
                self._progress.setdefault(sender, {})[epoch, partition] = Progress.decode(value)
                self._owners.take(Held.SUBMISSIONS, owner_of(sender.name))
            else:
                self._owners.take(Held.SUBMISSIONS, owner_of(sender.name))
                (self._committed[sender],) = _NUMBER.unpack(value)

    def is_complete(self, sender: Sender, epoch: int) -> bool:
        return epoch <= self._committed.get(sender, -1)

    def progress(self, sender: Sender, epoch: int) -> dict[int, Progress]:
        """What was sent of an epoch, by partition."""
        found = self._progress.get(sender, {})
        return {place[1]: found[place] for place in sorted(found) if place[0] == epoch}

    def sent(self, part: Part, row: int, count: int, run: str = "", digest: str = "") -> int:
        """How many of the `count` rows from `row` on were sent already. They are the first ones.

        With a run, `digest` describes all rows of the partition up to the last of these.
        """
        check_name(part.sender.name)
        before = self._of(part)
        if self.is_complete(part.sender, part.epoch):
            rows = 0 if before is None else before.next_row
            if run and row + count > rows and self.progress(part.sender, part.epoch):
                raise TransactionSequence(f"{_label(part)} is complete with {rows} rows, but more came; {_REMEDY}")
            return count
        following = 0 if before is None else before.next_row
        if row > following:
            raise TransactionSequence(
                f"row: the next one of {name_in(part.sender.name)}, epoch {part.epoch}, partition {part.partition} "
                f"is {following}, not {row}: those between are missing"
            )
        if run and before is not None:
            end = row + count
            if before.run and before.run != run:
                raise TransactionSequence(f"{_label(part)} is being sent by another run of the job; {_REMEDY}")
            if row < following < end:
                raise TransactionSequence(f"{_label(part)} is being sent by another attempt, up to row {following}")
            if end == following and before.digest and before.digest != digest:
                raise self._mismatch(part, before)
        return min(following - row, count)

    def take_over(self, part: Part, rows: int, run: str, digest: str) -> None:
        """Lets a new run go on after the first `rows` rows, if its digest proves that they are the same."""
        before = self._of(part)
        if before is None and not rows:
            return  # nothing was sent
        if before is None or rows != before.next_row or (before.digest and digest != before.digest):
            raise self._mismatch(part, before)
        if before.run != run and not self.is_complete(part.sender, part.epoch):
            self.note(part, rows, run, digest)

    @staticmethod
    def _mismatch(part: Part, before: Progress | None) -> TransactionSequence:
        rows = 0 if before is None else before.next_row
        return TransactionSequence(f"{_label(part)} was sent before with {rows} rows that differ from these; {_REMEDY}")

    def _of(self, part: Part) -> Progress | None:
        return self._progress.get(part.sender, {}).get((part.epoch, part.partition))

    def note(self, part: Part, next_row: int, run: str = "", digest: str = "") -> None:
        """Notes that all rows before `next_row` are sent, in the tick that sends them."""
        parts = self._progress.setdefault(part.sender, {})
        place = (part.epoch, part.partition)
        before, after = parts.get(place), Progress(next_row, run, digest)
        if before is None:
            self._admit(part.sender)
        parts[place] = after
        tick = self._tick()
        tick.set_state(_key(part.sender, *place), after.encode())

        def undo(_: Tick) -> None:
            if before is not None:
                parts[place] = before
            elif parts.pop(place, None) is not None:
                self._owners.give(Held.SUBMISSIONS, owner_of(part.sender.name))

        tick.undo.append(undo)

    def _admit(self, sender: Sender, leaving: int = 0) -> None:
        """Checks the limit for one more record, while `leaving` others leave."""
        self._owners.check(Held.SUBMISSIONS, owner_of(sender.name), 1 - leaving)
        self._owners.take(Held.SUBMISSIONS, owner_of(sender.name))

    def commit(self, sender: Sender, epoch: int, *, run: str = "", keep: bool = False) -> None:
        """The epoch and all before it are finished: what comes of them later counts as sent. Their rows are dropped.
        With `keep` the rows of this epoch stay, and a repetition is compared with them.

        With `run`, every partition that was sent must belong to that run.
        """
        check_name(sender.name)
        before = self._committed.get(sender)
        if before is not None and before >= epoch:
            return
        sent = self.progress(sender, epoch)
        for partition, each in sent.items():
            if run and each.run not in ("", run):
                part = Part(sender, epoch, partition)
                raise TransactionSequence(
                    f"{_label(part)} was sent before with {each.next_row} rows, and this run of the job has no such "
                    f"partition; {_REMEDY}"
                )
        if keep and not sent:
            self.note(Part(sender, epoch, 0), 0, run)  # a job without rows
        parts = self._progress.get(sender, {})
        done = {place: sent for place, sent in parts.items() if place[0] < epoch or (place[0] == epoch and not keep)}
        if before is None:
            self._admit(sender, len(done))
        tick = self._tick()
        tick.set_state(_key(sender), _NUMBER.pack(epoch))
        for place in done:
            tick.set_state(_key(sender, *place), None)
            del parts[place]
        self._owners.give(Held.SUBMISSIONS, owner_of(sender.name), len(done))
        self._committed[sender] = epoch

        def undo(_: Tick) -> None:
            self._progress.setdefault(sender, {}).update(done)
            self._owners.take(Held.SUBMISSIONS, owner_of(sender.name), len(done))
            if before is None:
                del self._committed[sender]
                self._owners.give(Held.SUBMISSIONS, owner_of(sender.name))
            else:
                self._committed[sender] = before

        tick.undo.append(undo)

    def forget(self, sender: Sender) -> bool:
        """The sender will not come back. Returns False if nothing was known of it."""
        parts = self._progress.get(sender, {})
        known = sender in self._committed or bool(parts)
        tick = self._tick()
        for place in parts:
            tick.set_state(_key(sender, *place), None)
        if sender in self._committed:
            tick.set_state(_key(sender), None)
        tick.on_commit.append(lambda: self._drop(sender))
        return known

    def _drop(self, sender: Sender) -> None:
        records = len(self._progress.pop(sender, ())) + (self._committed.pop(sender, None) is not None)
        self._owners.give(Held.SUBMISSIONS, owner_of(sender.name), records)

    def forget_owners(self, is_gone: Callable[[Sid], bool]) -> None:
        """Removed users send nothing any more."""
        for sender in {*self._progress, *self._committed}:
            owner = owner_in(sender.name)
            if owner is not None and is_gone(owner):
                self.forget(sender)


_REMEDY = (
    "run the job again as it was, with the same rows in the same order and the same number of partitions, "
    "or give it another name"
)


def _label(part: Part) -> str:
    return f"name: partition {part.partition} of {name_in(part.sender.name)}, epoch {part.epoch},"


def _key(sender: Sender, *place: int) -> str:
    words = [quote(sender.destination, safe=""), quote(sender.name, safe=""), *map(str, place)]
    return STATE + "/".join(words)
