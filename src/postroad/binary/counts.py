"""What each end of a session counts, [MS-MQQB] 3.1.1.4: messages sent and received, and how far each is acknowledged.

No timers and no packets: session.py knows when to acknowledge, this knows what.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from postroad.errors import LocalProtocolError
from postroad.wire.session_header import SessionHeader

MAX_RECOVERABLE_ACKS = 32  # bits of RecoverableMsgAckFlags
WRAP = 0xFFFF  # the fields of a SessionHeader have 16 bits; the counts here do not wrap


def unwrapped(value: int, newest: int) -> int:
    """The count that a 16-bit field stands for: the latest one that is not above `newest`."""
    return newest - ((newest - value) & WRAP)


class _Sent(NamedTuple):
    """A message in flight, with its SequenceNumber and RecoverableSequenceNumber (3.1.1.3.1.2)."""

    number: int
    recoverable_number: int
    token: object


class SentMessages:
    """MessageSentCount, RecoverableMessageSentCount and the messages that the peer has not acknowledged."""

    __slots__ = ("_acked", "_express", "_recoverable", "count", "recoverable_count")

    def __init__(self) -> None:
        self.count = 0
        self.recoverable_count = 0
        self._acked = 0
        self._express: deque[_Sent] = deque()
        self._recoverable: deque[_Sent] = deque()

    def add(self, token: object, *, recoverable: bool) -> None:
        """3.1.7.1.3"""
        self.count += 1
        if recoverable:
            self.recoverable_count += 1
            self._recoverable.append(_Sent(self.count, self.recoverable_count, token))
        else:
            self._express.append(_Sent(self.count, 0, token))

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
        sent = sorted((*self._express, *self._recoverable), key=lambda each: each.number)
        return [each.token for each in sent]

    def acknowledge(self, header: SessionHeader) -> list[object]:
        """The tokens that a SessionHeader of the peer releases: each comes once."""
        return [*self._acknowledge_all(header), *self._acknowledge_recoverable(header)]

    def _acknowledge_all(self, header: SessionHeader) -> list[object]:
        """3.1.5.5.1 and 3.1.5.5.2. A number that was never sent is taken for one long past: it releases nothing."""
        self._acked = max(self._acked, unwrapped(header.ack_sequence_number, self.count))
        done: list[object] = []
        while self._express and self._express[0].number <= self._acked:
            done.append(self._express.popleft().token)
        return done

    def _acknowledge_recoverable(self, header: SessionHeader) -> list[object]:
        """3.1.5.5.3: everything up to the number, and above it what the bits say."""
        flags = header.recoverable_msg_ack_flags
        if not (header.recoverable_msg_ack_seq_number or flags):
            return []
        base = unwrapped(header.recoverable_msg_ack_seq_number, self.recoverable_count)
        done: list[object] = []
        kept: list[_Sent] = []
        while self._recoverable and (place := self._recoverable[0].recoverable_number - base) < MAX_RECOVERABLE_ACKS:
            sent = self._recoverable.popleft()
            if place <= 0 or flags >> place & 1:
                done.append(sent.token)
            else:
                kept.append(sent)
        self._recoverable.extendleft(reversed(kept))
        return done


class ReceivedMessages:
    """MessageReceivedCount, RecoverableMessageReceivedCount, and what of it is to be acknowledged.

    Recoverable messages are stored in the order they came, so that three numbers say it all.
    """

    __slots__ = ("_express_unacked", "_last_acked", "_stored", "count", "recoverable_count")

    def __init__(self) -> None:
        self.count = 0
        self.recoverable_count = 0
        self._stored = 0
        self._last_acked = 0  # LastAckedRecoverableMsgSeqNumber
        self._express_unacked = 0

    def add(self, *, recoverable: bool) -> int:
        """3.1.5.8.2. Its number among the recoverable ones, or 0."""
        self.count += 1
        if not recoverable:
            self._express_unacked += 1
            return 0
        self.recoverable_count += 1
        return self.recoverable_count

    def store(self, number: int) -> None:
        """Recoverable messages up to `number` may be acknowledged."""
        if number > self.recoverable_count:
            raise LocalProtocolError(f"recoverable message {number} has not come")
        self._stored = max(self._stored, number)

    @property
    def unacked(self) -> int:
        """UnackedReceivedMsgCount: not covered by a SessionHeader of ours, not stored ones included."""
        return self._express_unacked + self.recoverable_unacked

    @property
    def recoverable_unacked(self) -> int:
        return self.recoverable_count - self._last_acked

    @property
    def stored_unacked(self) -> int:
        """How many bits RecoverableMsgAckFlags would have set."""
        return self._stored - self._last_acked

    @property
    def ready(self) -> int:
        """How many messages a SessionHeader can acknowledge now, in every respect."""
        return self._express_unacked + self.stored_unacked

    def header(self, sent: SentMessages, window: int) -> SessionHeader:
        """3.1.6.4: filled in once, as it is written; what it acknowledges is acknowledged from then on."""
        covered = min(self.stored_unacked, MAX_RECOVERABLE_ACKS)
        base = (self._last_acked + 1) & WRAP if covered else 0
        self._last_acked += covered
        self._express_unacked = 0
        return SessionHeader(
            ack_sequence_number=self.count & WRAP,
            recoverable_msg_ack_seq_number=base,
            recoverable_msg_ack_flags=(1 << covered) - 1,
            user_msg_sequence_number=sent.count & WRAP,
            recoverable_msg_seq_number=sent.recoverable_count & WRAP,
            window_size=window,
        )

    def disagreement(self, header: SessionHeader) -> str | None:
        """3.1.5.5.5: how the peer's counts of what it has sent differ from ours of what has come."""
        for what, sent, received in (
            ("messages", header.user_msg_sequence_number, self.count & WRAP),
            ("recoverable messages", header.recoverable_msg_seq_number, self.recoverable_count & WRAP),
        ):
            if sent != received:
                return f"the peer has sent {sent} {what} and {received} have come"
        return None
