"""An open queue, [MS-MQDMPR] 3.1.1.16: who may do what with it, and who shares it with whom."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from postroad.errors import AccessDenied, QueueNotAvailable, SharingViolation
from postroad.names import DirectName, FormatName, PathName
from postroad.queues.cursor import Cursor
from postroad.queues.queue import Queue
from postroad.values.reading import QueueAccess, ShareMode

RECEIVING = frozenset({QueueAccess.RECEIVE, QueueAccess.RECEIVE_ADMIN, QueueAccess.MOVE})
READING = RECEIVING | {QueueAccess.PEEK, QueueAccess.PEEK_ADMIN}
# Reading an outgoing queue, which stands here under the name of a queue elsewhere, takes an administrator.
ADMIN_ACCESS = {QueueAccess.RECEIVE: QueueAccess.RECEIVE_ADMIN, QueueAccess.PEEK: QueueAccess.PEEK_ADMIN}
_PEEKING = frozenset({QueueAccess.PEEK, QueueAccess.PEEK_ADMIN})


@dataclass(slots=True, eq=False)
class OpenQueueDescriptor:
    """`queue` is None once the queue was deleted, and for a list of several, whose `children` are open instead.

    `holder` is who has it open, where that client can hold messages too: it is one reader all the same.
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
        """The queue, if it is still there and this access may `verb`."""
        if self.queue is None:
            raise QueueNotAvailable("the queue was deleted while it was open: close it and open it again")
        if self.access not in allowed:
            raise AccessDenied(f"the queue is open for {self.access.name.lower()}, which cannot {verb}")
        return self.queue


def check_sharing(existing: Iterable[OpenQueueDescriptor], access: QueueAccess, share: ShareMode) -> None:
    """[MS-MQDMPR] 3.1.7.1.5: refuses an open that an earlier one excludes. Sending collides with nobody."""
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
    """Why a queue cannot be read here, and how it can."""
    place = ["HOST", "QUEUE"]
    if isinstance(name, DirectName):
        place = [name.host, str(name.tail)[1:]]
    elif isinstance(name, PathName):
        place = [name.computer, str(name.tail)[1:]]
    if any(each.startswith("-") for each in place):
        place.insert(0, "--")  # or it would be read as an option
    here = "; what waits here is on its way there" if waiting else ""
    return (
        f"the queue {name} is on another machine, not on {manager}{here}: read it there, or with "
        f"`postroad remote receive {shlex.join(place)}`"
    )
