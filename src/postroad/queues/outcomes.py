"""What becomes of messages: the classes that say it, which of them a message asks for, and how often each happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from postroad.wire.constants import AckFlags, MessageClass

EXPIRED = frozenset({MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT})
PURGED = frozenset({MessageClass.NACK_Q_PURGED, MessageClass.NACK_DELETED, MessageClass.NACK_Q_DELETED})
# What a message dies of, where nobody here wanted it gone.
DEATHS = EXPIRED | {MessageClass(each) for each in MessageClass if each & 0x8000} - PURGED
POSITIVE = frozenset({MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE})
# Acknowledgments of a message that was here and goes: one at the most for each.
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
    """What has happened to messages since the start. A tick that fails is not taken back: these are for watching."""

    added: int = 0
    received: int = 0
    expired: int = 0
    purged: int = 0
    dead_lettered: int = 0
    follow_up_errors: int = 0  # what followed from a change and failed: the change stands
    withheld: int = 0  # acknowledgments, reports and messages of strangers to hosts that they may not make us call
    unwritten: int = 0  # what their cause could not have written: its target is closed to it, or there is no room
    refused: Counter[str] = field(default_factory=Counter)  # messages of other managers, by reason

    def count_taken(self, reason: int, count: int = 1) -> None:
        if reason == MessageClass.ACK_RECEIVE:
            self.received += count
        elif reason in EXPIRED:
            self.expired += count
        elif reason in PURGED:
            self.purged += count
