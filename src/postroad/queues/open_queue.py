"""An open queue, [MS-MQDMPR] 3.1.1.16: who may do what with it, its cursors, its waiting reads and transactions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from postroad.errors import (
    AccessDenied,
    IllegalCursorAction,
    MessageAlreadyReceived,
    PostroadError,
    QueueNotAvailable,
    SharingViolation,
)
from postroad.names import DirectName, FormatName, PathName
from postroad.queues.queue import START, Queue
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode
from postroad.store.interface import Record

if TYPE_CHECKING:
    from postroad.queues.tick import Tick


# A local transaction, [MS-MQDMPR] 3.1.1.13 and 3.1.1.14: sends, receives and moves that happen together.


class OperationType(Enum):
    """3.1.1.13"""

    ENQUEUE = auto()
    DEQUEUE = auto()
    MOVE = auto()


class TransactionalOperation(NamedTuple):
    """The `record` of an Enqueue has no lookup id yet. It gets one at the commit, so readers see messages in order."""

    operation: OperationType
    queue: Queue
    record: Record
    target: Queue | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    """Open until it is committed or aborted. `number` is the 20-bit identifier in its packets."""

    identifier: UUID
    number: int
    operations: list[TransactionalOperation] = field(default_factory=list)
    waiting: list[WaitingRead] = field(default_factory=list)  # reads that began to wait in it
    ended: bool = False

    def add(self, tick: Tick, *operations: TransactionalOperation) -> None:
        """Adds the operations of a change that `tick` may undo."""
        if tick.steps is not None:
            tick.steps.append((self.operations.__delitem__, slice(len(self.operations), None)))
        self.operations += operations


# A cursor, [MS-MQDMPR] 3.2: the place of a reader in a queue. One table says what each call does in each state.


class CursorState(Enum):
    """3.2.1.2"""

    UNREAD = auto()
    READ = auto()
    WAIT_PEEK = auto()
    WAIT_RECEIVE = auto()


class CursorCall(Enum):
    """3.2.7.2 to 3.2.7.4"""

    PEEK = auto()
    PEEK_NEXT = auto()
    RECEIVE = auto()


class _Step(Enum):
    SEEK = auto()  # look after the cursor's position
    SAME = auto()  # the message under the cursor, if it is still there
    REFUSE = auto()


# (state, call) -> (where to look, state if found, state if the reader has to wait)
TRANSITIONS: dict[tuple[CursorState, CursorCall], tuple[_Step, CursorState, CursorState]] = {
    (CursorState.UNREAD, CursorCall.PEEK): (_Step.SEEK, CursorState.READ, CursorState.WAIT_PEEK),
    (CursorState.UNREAD, CursorCall.PEEK_NEXT): (_Step.REFUSE, CursorState.UNREAD, CursorState.UNREAD),
    (CursorState.UNREAD, CursorCall.RECEIVE): (_Step.SEEK, CursorState.UNREAD, CursorState.WAIT_RECEIVE),
    (CursorState.READ, CursorCall.PEEK): (_Step.SAME, CursorState.READ, CursorState.READ),
    (CursorState.READ, CursorCall.PEEK_NEXT): (_Step.SEEK, CursorState.READ, CursorState.WAIT_PEEK),
    (CursorState.READ, CursorCall.RECEIVE): (_Step.SAME, CursorState.UNREAD, CursorState.UNREAD),
}
# 3.2.7.5: the state after a wait that finds a message.
_AFTER_WAIT = {CursorState.WAIT_PEEK: CursorState.READ, CursorState.WAIT_RECEIVE: CursorState.UNREAD}


@dataclass(slots=True, eq=False)
class Cursor:
    """It is before the first message until it is used."""

    handle: int
    queue: Queue
    position: int = START
    state: CursorState = CursorState.UNREAD

    def find(self, call: CursorCall) -> Record | None:
        """The message for `call`. None if the caller has to wait for one."""
        if self.state in _AFTER_WAIT:
            raise IllegalCursorAction("the cursor waits in another call: one at a time")
        step, found, waiting = TRANSITIONS[self.state, call]
        if step is _Step.REFUSE:
            raise IllegalCursorAction("the cursor has not been used yet: peek the current message first, then the next")
        if step is _Step.SAME:
            record = self.queue.get(self.position) if self.queue.is_available(self.position) else None
            if record is None:
                raise MessageAlreadyReceived("the message under the cursor was received by somebody else")
        else:
            record = next(iter(self.queue.available(1, self.position)), None)
        if record is None:
            self.state = waiting
            return None
        self.state = found
        self.position = record.lookup_id
        return record

    def retry(self, opened: Iterable[int] = ()) -> Record | None:
        """Looks again during a wait: 3.2.7.5 Message Available, if there is a message.

        It is a message after the cursor, or one of those that were `opened` just now, wherever they are.
        """
        record = next(iter(self.queue.available(1, self.position)), None)
        if record is None:
            there = (self.queue.get(lookup_id) for lookup_id in opened if self.queue.is_available(lookup_id))
            record = next((each for each in there if each is not None), None)
        if record is not None:
            self.state = _AFTER_WAIT[self.state]
            self.position = record.lookup_id
        return record

    def expire(self) -> None:
        """3.2.7.6 Wait Time Expired"""
        if self.state is CursorState.WAIT_RECEIVE:
            self.position = self.queue.tail  # End: only later messages are seen
        if self.state in _AFTER_WAIT:
            self.state = CursorState.UNREAD


# A read that waits for a message, [MS-MQDMPR] 3.1.1.10 and 3.1.7.3.1. It ends with messages, or with a reason.


CURSOR_CALLS = {
    ReadCall.PEEK: CursorCall.PEEK,
    ReadCall.PEEK_NEXT: CursorCall.PEEK_NEXT,
    ReadCall.RECEIVE: CursorCall.RECEIVE,
}


def always() -> bool:
    return True


@dataclass(slots=True, eq=False)
class WaitingRead:
    """One read, from its first attempt on. A `deadline` of None means that it waits for ever.

    `satisfied` or `failed` is called once, and only if the first attempt found nothing.
    """

    descriptor: OpenQueueDescriptor
    call: ReadCall
    count: int = 1
    deadline: float | None = None
    cursor: Cursor | None = None
    transaction: Transaction | None = None
    two_phase: bool = False
    tag: object = None
    satisfied: Callable[[list[Record]], None] = lambda records: None
    failed: Callable[[PostroadError], None] = lambda error: None
    permitted: Callable[[], bool] = always  # asked after the queue's access list has changed
    matches: Callable[[Record], bool] | None = None  # which messages it waits for; None for all

    @property
    def destructive(self) -> bool:
        return self.call is ReadCall.RECEIVE

    def tell(self, satisfied: Callable[[list[Record]], None], failed: Callable[[PostroadError], None]) -> None:
        """Who hears how the wait ends."""
        self.satisfied, self.failed = satisfied, failed

    def lock_first(self) -> None:
        """From now on it locks what it finds, in place of taking it out."""
        self.two_phase = True


# An open queue, [MS-MQDMPR] 3.1.1.16: who may do what with it, and who shares it with whom.


RECEIVING = frozenset({QueueAccess.RECEIVE, QueueAccess.RECEIVE_ADMIN, QueueAccess.MOVE})
READING = RECEIVING | {QueueAccess.PEEK, QueueAccess.PEEK_ADMIN}
# Only an administrator may read an outgoing queue, which has the name of a queue elsewhere.
ADMIN_ACCESS = {QueueAccess.RECEIVE: QueueAccess.RECEIVE_ADMIN, QueueAccess.PEEK: QueueAccess.PEEK_ADMIN}
_PEEKING = frozenset({QueueAccess.PEEK, QueueAccess.PEEK_ADMIN})


@dataclass(slots=True, eq=False)
class OpenQueueDescriptor:
    """`queue` is None if the queue was deleted, and for a list of several queues; the `children` are open instead.

    `holder` is who has it open, if that client can also hold messages: it then counts as one reader.
    """

    handle: int
    format_name: FormatName | None
    access: QueueAccess
    share: ShareMode
    queue: Queue | None
    children: tuple[OpenQueueDescriptor, ...] = ()
    cursors: dict[int, Cursor] = field(default_factory=dict)
    closed: bool = False
    holder: Hashable = None

    @property
    def queue_name(self) -> str:
        return "a deleted queue" if self.queue is None else self.queue.name

    def require(self, allowed: frozenset[QueueAccess], verb: str) -> Queue:
        """The queue, if it still exists and this access may `verb`."""
        if self.queue is None:
            raise QueueNotAvailable("the queue was deleted while it was open: close it and open it again")
        if self.access not in allowed:
            raise AccessDenied(f"the queue is open for {self.access.name.lower()}, which cannot {verb}")
        return self.queue


def check_sharing(existing: Iterable[OpenQueueDescriptor], access: QueueAccess, share: ShareMode) -> None:
    """[MS-MQDMPR] 3.1.7.1.5: refuses an open that an earlier one excludes. Sending never conflicts."""
    for other in existing:
        exclusive = other.share is ShareMode.DENY_RECEIVE
        if other.access in RECEIVING:
            clash = share is ShareMode.DENY_RECEIVE or (exclusive and access in RECEIVING)
        else:
            clash = other.access in _PEEKING and exclusive and access in RECEIVING
        if clash:
            raise SharingViolation(
                "the queue is open for exclusive receiving"
                if exclusive
                else "the queue is open for receiving elsewhere, so it cannot be opened exclusively"
            )


def elsewhere(name: FormatName | PathName, manager: str, *, waiting: bool) -> str:
    """The error for a queue that is elsewhere: why it cannot be read here, and how it can."""
    place = ["HOST", "QUEUE"]
    if isinstance(name, DirectName):
        place = [name.host, str(name.tail)[1:]]
    elif isinstance(name, PathName):
        place = [name.computer, str(name.tail)[1:]]
    if any(each.startswith("-") for each in place):
        place.insert(0, "--")  # else it would be read as an option
    here = "; what waits here is on its way there" if waiting else ""
    return (
        f"the queue {name} is on another machine, not on {manager}{here}: read it there, or with "
        f"`postroad remote receive {shlex.join(place)}`"
    )
