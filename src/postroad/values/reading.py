"""How a queue is opened and read: access, share mode, and which message to read."""

from __future__ import annotations

from enum import Enum, auto

RECORDS_TYPE = "application/vnd.postroad.records"  # messages as the HTTP API sends them to a client


class QueueAccess(Enum):
    """3.1.1.17 QueueAccessType"""

    RECEIVE = auto()
    SEND = auto()
    PEEK = auto()
    MOVE = auto()
    RECEIVE_ADMIN = auto()
    PEEK_ADMIN = auto()


class ShareMode(Enum):
    """3.1.1.17 QueueShareMode"""

    DENY_NONE = auto()
    DENY_RECEIVE = auto()


class ReadCall(Enum):
    """What a reader asks for."""

    PEEK = auto()
    PEEK_NEXT = auto()  # with a cursor
    RECEIVE = auto()


class SeekAction(Enum):
    """[MS-MQDMPR] 3.1.1.17 MessageSeekAction"""

    FIRST = auto()
    PREVIOUS = auto()
    CURRENT = auto()
    NEXT = auto()
    LAST = auto()
