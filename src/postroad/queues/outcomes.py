"""What happens to messages: the classes that express it, which ones a message asks for, and how often each occurred."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from postroad.queues.collection import DEADLETTER, DEADXACT
from postroad.queues.outgoing_queues import NOBODY_KNOWN, NextHop
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.reports.trace import TraceState
from postroad.store.interface import Record
from postroad.wire.constants import AckFlags, MessageClass
from postroad.wire.patch import MESSAGE_ID, SOURCE

EXPIRED = frozenset({MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT})
PURGED = frozenset({MessageClass.NACK_Q_PURGED, MessageClass.NACK_DELETED, MessageClass.NACK_Q_DELETED})
# What messages die of without anybody wanting it.
DEATHS = EXPIRED | {MessageClass(each) for each in MessageClass if each & 0x8000} - PURGED
POSITIVE = frozenset({MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE})
# Acknowledgments of a message that was here and leaves. There is at most one for each.
OF_TAKING = PURGED | {MessageClass.ACK_RECEIVE, MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_RECEIVE_REJECTED}


def asks_for(ack_flags: int, message_class: int) -> bool:
    """Whether a message with these flags wants an acknowledgment of this class ([MS-MQMQ] 2.2.19.3)."""
    if message_class == MessageClass.ACK_REACH_QUEUE:
        wanted = AckFlags.POSITIVE_ARRIVAL
    elif message_class == MessageClass.ACK_RECEIVE:
        wanted = AckFlags.POSITIVE_RECEIVE
    elif message_class >= MessageClass.NACK_Q_DELETED:
        wanted = AckFlags.NEGATIVE_RECEIVE
    else:
        wanted = AckFlags.NEGATIVE_ARRIVAL
    return ack_flags & wanted.value != 0


@dataclass(slots=True)
class Tally:
    """Counts what has happened to messages since the start. A tick that fails stays counted: this is for monitoring."""

    added: int = 0
    received: int = 0
    expired: int = 0
    purged: int = 0
    dead_lettered: int = 0
    follow_up_errors: int = 0  # what followed from a change and failed; the change stands
    withheld: int = 0  # acknowledgments, reports and messages of strangers to hosts that these may not make us call
    unwritten: int = 0  # messages that their cause could not have written: no right, or no room
    refused: Counter[str] = field(default_factory=Counter)  # messages of other managers, by reason

    def count_taken(self, reason: int, count: int = 1) -> None:
        if reason == MessageClass.ACK_RECEIVE:
            self.received += count
        elif reason in EXPIRED:
            self.expired += count
        elif reason in PURGED:
            self.purged += count


# Messages that left this manager a short while ago, for people who search for one. A limited number, in memory.


KEPT = 20_000  # messages
_BOTH = slice(SOURCE.start, MESSAGE_ID.stop)
_SOURCE = SOURCE.stop - SOURCE.start
_ORDINAL = MESSAGE_ID.stop - MESSAGE_ID.start


class Departure(NamedTuple):
    """When messages left which queue, and what is known about them, None if nothing. `reason` is a message class.

    With a `hop`, the messages left for another manager, and the state is what is known about them there.
    """

    at_s: float
    queue: str
    state: TraceState | None
    reason: int | None = None
    hop: NextHop | None = None


class Departures:
    """The newest messages that left. The timers say what time it is; seconds are exact enough."""

    def __init__(self) -> None:
        self.now = 0.0
        self._groups: deque[tuple[Departure, list[bytes]]] = deque()
        self._count = 0

    def at(self, now: float) -> None:
        self.now = now

    def delivered(
        self,
        queue: Queue,
        records: Sequence[Record],
        state: TraceState = TraceState.HANDED_OVER,
        hop: NextHop = NOBODY_KNOWN,
        reason: int | None = None,
    ) -> None:
        """Messages left for another manager, with what is known about them there."""
        self._note(Departure(self.now, queue.name, state, reason, hop), [record.packet[_BOTH] for record in records])

    def removed(self, queue: Queue, records: Sequence[Record], reason: int, now: float) -> None:
        """Messages were received, or left for another reason."""
        if dead := [record.packet[_BOTH] for record in records if record.reason]:  # dead letters, in whatever queue
            self._note(Departure(now, queue.name, TraceState.DIED, reason), dead)
        if len(dead) < len(records):
            left = [record.packet[_BOTH] for record in records if not record.reason]
            self._note(Departure(now, queue.name, _state(queue, reason), reason), left)

    def find(self, identifier: bytes) -> list[Departure]:
        """What is known about a message, by the bytes of its id: the source and the ordinal."""
        source, ordinal = identifier[:_SOURCE], identifier[_SOURCE:]
        return [
            departure
            for departure, ids in self._groups
            if any(each[:_SOURCE] == source and each[-_ORDINAL:] == ordinal for each in ids)
        ]

    def _note(self, departure: Departure, ids: list[bytes]) -> None:
        self._groups.append((departure, ids))
        self._count += len(ids)
        while self._count > KEPT:
            self._count -= len(self._groups.popleft()[1])


def _state(queue: Queue, reason: int) -> TraceState | None:
    """What happened to a message that has left this queue. Journals and dead-letter queues have copies."""
    kind = queue.properties.queue_type
    if kind is QueueType.JOURNAL:
        return TraceState.RECEIVED
    if kind is QueueType.SYSTEM:
        return TraceState.DIED if queue.properties.path in (DEADLETTER, DEADXACT) else None
    return TraceState.RECEIVED if reason == MessageClass.ACK_RECEIVE else TraceState.DIED
