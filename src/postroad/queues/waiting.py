"""A read that waits for a message, [MS-MQDMPR] 3.1.1.10 and 3.1.7.3.1: it ends with messages, or with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroad.errors import PostroadError
from postroad.queues.cursor import Cursor, CursorCall
from postroad.queues.descriptor import OpenQueueDescriptor
from postroad.queues.transaction import Transaction
from postroad.store.interface import Record
from postroad.values.reading import ReadCall

CURSOR_CALLS = {
    ReadCall.PEEK: CursorCall.PEEK,
    ReadCall.PEEK_NEXT: CursorCall.PEEK_NEXT,
    ReadCall.RECEIVE: CursorCall.RECEIVE,
}


def always() -> bool:
    return True


@dataclass(slots=True, eq=False)
class WaitingRead:
    """One read, from its first look on. `deadline` is None for one that waits for ever.

    `satisfied` or `failed` is called once, and only if the first look found nothing.
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
    permitted: Callable[[], bool] = always  # asked when the queue's access list has changed
    matches: Callable[[Record], bool] | None = None  # which messages it waits for; None for any

    @property
    def destructive(self) -> bool:
        return self.call is ReadCall.RECEIVE
