"""What callers hold, counted by owner. Each owner may hold so much of each kind, over all its connections and
listeners.

An owner is a user, by SID, or the address of callers that have not logged in. A name that a user gives to something is
kept with the SID, so that names of different users never collide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from postroad.errors import IllegalIdentifier, InvalidArgument, LimitReached, TooManyHeld
from postroad.security.descriptors import Sid
from postroad.store.interface import Record

MAX_NAME = 200
ADMINISTRATORS = "administrators"  # they share what they make under a name
SOMEBODY_ELSE = "somebody else"  # shown in place of another user's name
THIS_PROCESS = ""  # an owner without limits


class Held(Enum):
    """Each kind has a setting in `[limits]` that ends in `_per_user`, and words for people."""

    TRANSACTIONS = "transactions"
    LOCKED_MESSAGES = "locked_messages"
    LOCKED_MB = "locked_mb"  # in bytes; the last message may exceed it
    OPEN_QUEUES = "open_queues"
    CURSORS = "cursors"
    WAITING_READS = "waiting_reads"
    HOLDS = "holds"
    SUBMISSIONS = "submissions"

    __hash__ = object.__hash__  # every read looks some of them up, and the enum's own is not native

    @property
    def setting(self) -> str:
        return f"{self.value}_per_user"


DEFAULTS: Mapping[Held, int] = {
    Held.TRANSACTIONS: 1000,
    Held.LOCKED_MESSAGES: 100_000,
    Held.LOCKED_MB: 256 << 20,
    Held.OPEN_QUEUES: 4096,
    Held.CURSORS: 4096,
    Held.WAITING_READS: 8192,
    Held.HOLDS: 1000,
    Held.SUBMISSIONS: 100_000,
}
_DURABLE = frozenset({Held.HOLDS, Held.SUBMISSIONS})
_WORDS = {
    Held.TRANSACTIONS: ("open transactions", "commit or abort some"),
    Held.LOCKED_MESSAGES: ("locked messages", "settle some"),
    Held.LOCKED_MB: ("bytes of locked messages", "settle some"),
    Held.OPEN_QUEUES: ("open queues", "close some"),
    Held.CURSORS: ("cursors", "close some"),
    Held.WAITING_READS: ("reads that wait", "let some end"),
    Held.HOLDS: ("holds", "release some"),
    Held.SUBMISSIONS: ("records of submissions", "delete those of senders that no longer send"),
}


class Owners:
    """`reached` is called at each refusal, with the kind and the owner."""

    def __init__(self, reached: Callable[[Held, str], None] = lambda kind, owner: None) -> None:
        self.maximum = DEFAULTS
        self.refused = dict.fromkeys(Held, 0)
        self._reached = reached
        self._held: dict[Held, dict[str, int]] = {kind: {} for kind in Held}

    def use(self, maximum: Mapping[Held, int]) -> None:
        self.maximum = maximum

    def held(self, kind: Held, owner: str) -> int:
        return self._held[kind].get(owner, 0)

    def full(self, kind: Held, owner: str, more: int = 1) -> bool:
        return owner != THIS_PROCESS and self.held(kind, owner) + more > self.maximum[kind]

    def check(self, kind: Held, owner: str, more: int = 1) -> None:
        """Raises TooManyHeld, or LimitReached for what is kept on disk, if `more` would be too many."""
        if self.full(kind, owner, more):
            self.refuse(kind, owner)

    def refuse(self, kind: Held, owner: str) -> None:
        self.refused[kind] += 1
        self._reached(kind, owner)
        error = LimitReached if kind in _DURABLE else TooManyHeld
        what, remedy = _WORDS[kind]
        setting = f"limits.{kind.setting}"
        raise error(
            f"{owner} has all {self.maximum[kind]} {what} that one owner may have: {remedy}, or raise {setting}",
            setting,
        )

    def take(self, kind: Held, owner: str, count: int = 1) -> None:
        if owner != THIS_PROCESS:
            held = self._held[kind]
            held[owner] = held.get(owner, 0) + count

    def give(self, kind: Held, owner: str, count: int = 1) -> None:
        if owner != THIS_PROCESS:
            held = self._held[kind]
            left = held.pop(owner, 0) - count
            if left > 0:
                held[owner] = left

    # Messages that a reader has locked

    def check_locks(self, owner: str) -> None:
        """As `check`, of messages and of their bytes."""
        if owner == THIS_PROCESS:
            return
        for kind in (Held.LOCKED_MESSAGES, Held.LOCKED_MB):
            if self._held[kind].get(owner, 0) >= self.maximum[kind]:
                self.refuse(kind, owner)

    def lock(self, owner: str, records: Sequence[Record]) -> None:
        self.take(Held.LOCKED_MESSAGES, owner, len(records))
        self.take(Held.LOCKED_MB, owner, sum([len(each.packet) for each in records]))

    def unlock(self, owner: str, records: Sequence[Record]) -> None:
        self.give(Held.LOCKED_MESSAGES, owner, len(records))
        self.give(Held.LOCKED_MB, owner, sum([len(each.packet) for each in records]))

    @property
    def figures(self) -> dict[str, dict[str, int]]:
        """For `status` and the metrics. `current` is the number of the owner with the most."""
        return {
            kind.setting.replace("_mb_", "_bytes_"): {
                "current": max(self._held[kind].values(), default=0),
                "maximum": self.maximum[kind],
                "reached": self.refused[kind],
            }
            for kind in Held
        }


# Names


def owned_name(name: str, owner: Sid | None) -> str:
    """A name in the form in which it is kept: for a user, with the SID before it. Administrators reach every name."""
    return name if owner is None else f"{owner}:{name}"


def owner_in(name: str) -> Sid | None:
    """The user whose name it is. None if it belongs to the administrators."""
    before, colon, _ = name.partition(":")
    if not colon or not before.startswith("S-1-"):
        return None
    try:
        return Sid.parse(before)
    except IllegalIdentifier:
        return None


def name_in(name: str) -> str:
    """The name without its owner."""
    return name if owner_in(name) is None else name.partition(":")[2]


def owner_of(name: str) -> str:
    """The owner whose limits count for what has this name."""
    owner = owner_in(name)
    return ADMINISTRATORS if owner is None else str(owner)


def check_name(name: str) -> None:
    given = name_in(name)
    if not 0 < len(given) <= MAX_NAME or not name.isprintable():
        raise InvalidArgument(f"name: must be 1 to {MAX_NAME} printable characters, got {given[:60]!r}")
