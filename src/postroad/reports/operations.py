"""The values that operations on messages take and return: reads, messages sent again, and names that a client signs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from postroad.describe.received import ReceivedMessage
from postroad.message import Message
from postroad.reports.plain import listed
from postroad.wire.constants import INFINITE

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


class SeekAction(Enum):
    """[MS-MQDMPR] 3.1.1.17 MessageSeekAction"""

    FIRST = auto()
    PREVIOUS = auto()
    CURRENT = auto()
    NEXT = auto()
    LAST = auto()


# A message that is sent again: what the new message takes from the old one.


SHORT_LIFETIME_S = 60  # too short for an operator to notice that messages have died again
_NO_CORRELATION = bytes(20)


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


def new_message(dead_letter: ReceivedMessage, ttbr: int | None = None) -> Message:
    """A message with the same content and options. The manager gives it a new id, time and sequence number.

    With `ttbr`, it has that many seconds to be received, and at least as many to reach its queue.
    """
    view = dead_letter.view
    traced = view.debug_header
    return Message(
        view.body,
        label=view.label,
        priority=view.priority,
        recoverable=view.recoverable,
        body_type=view.body_type,
        app_tag=view.application_tag,
        correlation_id=None if view.correlation_id == _NO_CORRELATION else view.correlation_id,
        response_queue=dead_letter.response_queue,
        admin_queue=dead_letter.admin_queue,
        ack=view.ack_flags,
        time_to_reach_queue=max(view.time_to_reach_queue, ttbr or 0),
        time_to_be_received=view.time_to_be_received if ttbr is None else ttbr,
        journal=view.positive_journaling,
        dead_letter=view.negative_journaling,
        dead_letter_queue=dead_letter.dead_letter_queue,
        trace=None if traced is None else traced.queue_identifier,
        extension=view.extension,
        connector_type=view.connector_type,
        message_class=view.message_class,
    )


def is_short(seconds: int | None) -> bool:
    """Whether a message with this lifetime may well die again before anybody looks."""
    return seconds is not None and seconds < SHORT_LIFETIME_S


def lifetime_s(message: ReceivedMessage, ttbr: int | None, *, here: bool) -> int | None:
    """The lifetime of the new message: the time to be received and, for a queue elsewhere, the time to reach it.

    None means for ever.
    """
    view = message.view
    received = view.time_to_be_received if ttbr is None else ttbr
    shortest = received if here else min(received, max(view.time_to_reach_queue, ttbr or 0))
    return None if shortest == INFINITE else shortest


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
