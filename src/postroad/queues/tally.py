"""Counts of what has happened to messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from postroad.wire.constants import MessageClass

EXPIRED = frozenset({MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT})
PURGED = frozenset({MessageClass.NACK_Q_PURGED, MessageClass.NACK_DELETED, MessageClass.NACK_Q_DELETED})


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
    refused: Counter[str] = field(default_factory=Counter)  # messages of other managers, by reason

    def count_taken(self, reason: int, count: int = 1) -> None:
        if reason == MessageClass.ACK_RECEIVE:
            self.received += count
        elif reason in EXPIRED:
            self.expired += count
        elif reason in PURGED:
            self.purged += count
