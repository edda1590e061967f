"""The messages that a session has sent and its peer has not acknowledged, [MS-MQQB] 3.1.5.5."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter

from postroad.wire.session_header import SessionHeader

WRAP = 0xFFFF  # the fields of a SessionHeader have 16 bits; the counts here do not wrap


def unwrapped(value: int, newest: int) -> int:
    """The count that a 16-bit field stands for: the latest one that is not above `newest`."""
    return newest - ((newest - value) & WRAP)


# SequenceNumber and RecoverableSequenceNumber of a message (3.1.1.3.1.2), and its token.
_Sent = tuple[int, int, object]


@dataclass(slots=True)
class SentMessages:
    """MessageSentCount, RecoverableMessageSentCount and the messages that the peer has not acknowledged."""

    count: int = 0
    recoverable_count: int = 0
    _acked: int = 0
    _express: deque[_Sent] = field(default_factory=deque)
    _recoverable: deque[_Sent] = field(default_factory=deque)

    def add(self, tokens: Sequence[object], *, recoverable: bool) -> None:
        """3.1.7.1.3"""
        numbers = range(self.count + 1, self.count + len(tokens) + 1)
        self.count += len(tokens)
        if recoverable:
            places = range(self.recoverable_count + 1, self.recoverable_count + len(tokens) + 1)
            self.recoverable_count += len(tokens)
            self._recoverable.extend(zip(numbers, places, tokens, strict=True))
        else:
            self._express.extend(zip(numbers, repeat(0), tokens, strict=False))

    @property
    def unacknowledged(self) -> int:
        """UnAckedMessageCount: sent, and not read by the peer. A backlog that was never sent is not in it."""
        return self.count - self._acked

    @property
    def awaiting_ack(self) -> bool:
        """Whether the peer still owes anything: that it has read a message, or stored a recoverable one."""
        return bool(self.unacknowledged or self._recoverable)

    @property
    def in_flight(self) -> list[object]:
        """The tokens of messages that are not acknowledged, in the order they were sent."""
        sent = sorted((*self._express, *self._recoverable), key=itemgetter(0))
        return [token for _, _, token in sent]

    def acknowledge(self, header: SessionHeader) -> list[object]:
        """The tokens that a SessionHeader of the peer releases: each comes once."""
        return [*self._acknowledge_all(header), *self._acknowledge_recoverable(header)]

    def _acknowledge_all(self, header: SessionHeader) -> list[object]:
        """3.1.5.5.1 and 3.1.5.5.2. A number that was never sent is taken for one long past: it releases nothing."""
        self._acked = acked = max(self._acked, unwrapped(header.ack_sequence_number, self.count))
        done: list[object] = []
        express = self._express
        while express and express[0][0] <= acked:
            done.append(express.popleft()[2])
        return done

    def _acknowledge_recoverable(self, header: SessionHeader) -> list[object]:
        """3.1.5.5.3: everything up to the number, and above it what the bits say."""
        flags = header.recoverable_msg_ack_flags
        if not (header.recoverable_msg_ack_seq_number or flags):
            return []
        base = unwrapped(header.recoverable_msg_ack_seq_number, self.recoverable_count)
        done: list[object] = []
        waiting = self._recoverable
        bits = flags.bit_length()
        covered = base if flags != (1 << bits) - 1 else base + max(bits - 1, 0)  # most peers leave no gaps
        while waiting and waiting[0][1] <= covered:
            done.append(waiting.popleft()[2])
        kept: list[_Sent] = []
        while waiting and (place := waiting[0][1] - base) < bits:
            sent = waiting.popleft()
            if flags >> place & 1:
                done.append(sent[2])
            else:
                kept.append(sent)
        waiting.extendleft(reversed(kept))
        return done
