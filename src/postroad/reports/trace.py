"""Where a message went: the findings about it, in words and as plain values, ready for JSON.

manager/trace.py does the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from postroad.names import MessageId
from postroad.reports.plain import listed
from postroad.wire.constants import MessageClass, class_name

# The text for a class, after "it". Other classes are shown by name.
_CLASS_WORDS: Mapping[int, str] = {
    MessageClass.ACK_REACH_QUEUE: "reached its queue",
    MessageClass.ACK_RECEIVE: "was received",
    MessageClass.NACK_BAD_DST_Q: "named an unknown queue",
    MessageClass.NACK_DELETED: "was deleted on its way",
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: "did not reach its queue in time",
    MessageClass.NACK_Q_EXCEED_QUOTA: "found its queue full",
    MessageClass.NACK_ACCESS_DENIED: "was not allowed into its queue",
    MessageClass.NACK_HOP_COUNT_EXCEEDED: "took too many hops",
    MessageClass.NACK_BAD_SIGNATURE: "was not signed as its queue requires",
    MessageClass.NACK_BAD_ENCRYPTION: "could not be decrypted, or was not encrypted as its queue requires",
    MessageClass.NACK_NOT_TRANSACTIONAL_Q: "is transactional, but its queue is not",
    MessageClass.NACK_NOT_TRANSACTIONAL_MSG: "is not transactional, but its queue is",
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: "uses a cryptographic provider that the destination lacks",
    MessageClass.NACK_Q_DELETED: "was deleted with its queue",
    MessageClass.NACK_Q_PURGED: "was purged from its queue",
    MessageClass.NACK_RECEIVE_TIMEOUT: "was not received in time",
    MessageClass.NACK_RECEIVE_REJECTED: "was rejected by its receiver",
}


class FindingKind(Enum):
    """The kinds of findings, in the order of a message's life, which orders those of the same moment."""

    SENT = "sent"
    PASSED = "passed"
    OUTGOING = "outgoing"
    QUEUED = "queued"
    REPORT = "report"
    AWAITING_FINAL_ACK = "awaiting-final-ack"
    LEFT = "left"
    ACKNOWLEDGMENT = "acknowledgment"
    JOURNAL = "journal"
    DEAD_LETTER = "dead-letter"
    ANSWER = "answer"


class TraceState(Enum):
    """What is known of a message, at one manager or in all."""

    WAITING = "waiting"  # it is still there, on its way to another manager
    HANDED_OVER = "handed over"  # the next manager has it, but may still refuse or lose it
    ARRIVED = "arrived"  # it is in its queue, or was
    RECEIVED = "received"
    DIED = "died"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TraceHop:
    """A manager that the message was at or is bound for, and what is known of it there, as a TraceState.

    `reason` is the class of the message that says why it died. `address` is known for a manager that was called.
    """

    name: str
    state: str
    sentence: str
    at: str | None = None
    reason: str | None = None
    manager: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about a message: what, where, and since when.

    Times are RFC 3339 and from this manager's clock, except for `sent`, which is from the sender's. `queue` and
    `lookup_id` lead to the source: the message itself, a copy, an acknowledgment or a report. `manager` is the GUID of
    the manager that reported it. `why` is what its outgoing queue waits for.
    """

    at: str | None
    kind: str
    sentence: str
    queue: str | None = None
    lookup_id: int | None = None
    class_name: str | None = None
    manager: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """All findings in order of time, and the managers from the source on.

    `state` is that of the last manager where one is known. The queues in `cut_off` have more messages than
    `limit_per_queue`; only their first and last messages were searched.
    """

    id: str
    findings: tuple[Finding, ...] = field(metadata=listed(Finding))
    looked_at: int
    limit_per_queue: int
    cut_off: tuple[str, ...]
    state: str = TraceState.UNKNOWN.value
    reason: str | None = None  # why the message died
    hops: tuple[TraceHop, ...] = field(default=(), metadata=listed(TraceHop))


def class_words(message_class: int) -> str:
    """A class in words, such as `it was received`. A class without a text is shown by name."""
    words = _CLASS_WORDS.get(message_class)
    return f"class {class_name(message_class)}" if words is None else f"it {words}"


def reason_words(name: str) -> str:
    """A class in words, from its name."""
    known = MessageClass.__members__.get(name.upper().replace("-", "_"))
    return name if known is None else class_words(known)


def read_message_id(text: str) -> MessageId:
    r"""Reads `{guid}\ordinal`, with or without the braces, which Windows programs omit. Raises IllegalIdentifier."""
    guid, backslash, ordinal = text.partition("\\")
    if backslash and not guid.startswith("{"):
        text = f"{{{guid}}}\\{ordinal}"
    return MessageId.parse(text)
