"""A cursor, [MS-MQDMPR] 3.2: where a reader stands in a queue. What each call does in each state is one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from postroad.errors import IllegalCursorAction, MessageAlreadyReceived
from postroad.queues.queue import START, Queue
from postroad.store.interface import Record


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
    SEEK = auto()  # look behind the cursor's position
    SAME = auto()  # the message under the cursor, if it is still there
    REFUSE = auto()


# (state, call) -> (where to look, state when found, state when the reader has to wait)
TRANSITIONS: dict[tuple[CursorState, CursorCall], tuple[_Step, CursorState, CursorState]] = {
    (CursorState.UNREAD, CursorCall.PEEK): (_Step.SEEK, CursorState.READ, CursorState.WAIT_PEEK),
    (CursorState.UNREAD, CursorCall.PEEK_NEXT): (_Step.REFUSE, CursorState.UNREAD, CursorState.UNREAD),
    (CursorState.UNREAD, CursorCall.RECEIVE): (_Step.SEEK, CursorState.UNREAD, CursorState.WAIT_RECEIVE),
    (CursorState.READ, CursorCall.PEEK): (_Step.SAME, CursorState.READ, CursorState.READ),
    (CursorState.READ, CursorCall.PEEK_NEXT): (_Step.SEEK, CursorState.READ, CursorState.WAIT_PEEK),
    (CursorState.READ, CursorCall.RECEIVE): (_Step.SAME, CursorState.UNREAD, CursorState.UNREAD),
}
# 3.2.7.5: where a wait ends when there is a message.
_AFTER_WAIT = {CursorState.WAIT_PEEK: CursorState.READ, CursorState.WAIT_RECEIVE: CursorState.UNREAD}


@dataclass(slots=True, eq=False)
class Cursor:
    """Stands before the first message until it is used."""

    handle: int
    queue: Queue
    position: int = START
    state: CursorState = CursorState.UNREAD

    def find(self, call: CursorCall) -> Record | None:
        """The message that `call` is about; None where the caller has to wait for one."""
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
        """Looks again while waiting: 3.2.7.5 Message Available, if there is something.

        That is a message behind the cursor, or one of those that were `opened` just now, wherever they stand.
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
            self.position = self.queue.tail  # End: only what arrives later is seen
        if self.state in _AFTER_WAIT:
            self.state = CursorState.UNREAD
