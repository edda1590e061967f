"""A message that is sent again: what is the same in the new one."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.message import Message
from postroad.received import ReceivedMessage
from postroad.wire.constants import INFINITE

SHORT_LIFETIME_S = 60  # shorter than an operator takes to see that the messages have died again
_NO_CORRELATION = bytes(20)


@dataclass(frozen=True, slots=True)
class Resent:
    """What became of one message: `id` is that of the new message; without one, `why` says why it was not sent.

    `lifetime_s` is after how many seconds the new message dies if nobody has received it; None if it stays for ever.
    """

    lookup_id: int
    to: str | None
    id: str | None = None
    why: str | None = None
    lifetime_s: int | None = None


def new_message(dead_letter: ReceivedMessage, ttbr: int | None = None) -> Message:
    """A message with the same content and options. The manager gives it a new id, time and sequence number.

    With `ttbr` it has so many seconds to be received, and no fewer to reach its queue.
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
    """Of the new message: the time to be received, and for a queue elsewhere the time to reach it; None for ever."""
    view = message.view
    received = view.time_to_be_received if ttbr is None else ttbr
    shortest = received if here else min(received, max(view.time_to_reach_queue, ttbr or 0))
    return None if shortest == INFINITE else shortest
