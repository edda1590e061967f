"""The values that operations on messages take and return: reads, messages sent again, and names that a client signs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from postroad.reports.plain import listed

# How a queue is opened and read: access, share mode, and which message to read.


RECORDS_TYPE = "application/vnd.postroad.records"  # messages as the HTTP API sends them to a client


class QueueAccess(Enum):
    """[MS-MQDMPR] 3.1.1.17 QueueAccessType"""

    RECEIVE = auto()
    SEND = auto()
    PEEK = auto()
    MOVE = auto()
    RECEIVE_ADMIN = auto()
    PEEK_ADMIN = auto()


class ShareMode(Enum):
    """[MS-MQDMPR] 3.1.1.17 QueueShareMode"""

    DENY_NONE = auto()
    DENY_RECEIVE = auto()


class ReadCall(Enum):
    """What a reader asks for."""

    PEEK = auto()
    PEEK_NEXT = auto()  # these need a cursor
    RECEIVE = auto()


class RemoteProtocol(StrEnum):
    """By which protocol a reader reads the queues of another server. AUTO is MS-MQRR, or MS-MQQP if the server has no
    other."""

    AUTO = "auto"
    MQRR = "mqrr"
    MQQP = "mqqp"


class SeekAction(Enum):
    """[MS-MQDMPR] 3.1.1.17 MessageSeekAction"""

    FIRST = auto()
    PREVIOUS = auto()
    CURRENT = auto()
    NEXT = auto()
    LAST = auto()


# What became of a message that was sent again.


@dataclass(frozen=True, slots=True)
class Resent:
    """The result for one message: `id` is that of the new message. If it is None, `why` says why nothing was sent.

    `lifetime_s` is after how many seconds the new message dies if nobody receives it. None if it stays for ever.
    """

    lookup_id: int
    to: str | None
    id: str | None = None
    why: str | None = None
    lifetime_s: int | None = None


# What a client must know to sign a message: the names and the manager that its packets will have.


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination as packets have it. `manager` is the id of the manager of a public queue, or zero if unknown."""

    name: str
    manager: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a manager answers to a client that signs.

    `manager` is the id of the sending manager. `names` are format names, in the order of the question. `sender_id` is
    the SID that the certificate is registered for.
    """

    manager: str
    signature_profile: str
    destinations: tuple[Destination, ...] = field(metadata=listed(Destination))
    names: tuple[str, ...]
    sender_id: str | None = None
