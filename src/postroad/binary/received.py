"""What a session has received, [MS-MQQB] 3.1.1.3.1: the counts, and how much of it is acknowledged. No packets here."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.binary.sent import WRAP, SentMessages
from postroad.errors import LocalProtocolError
from postroad.wire.session_header import SessionHeader

MAX_RECOVERABLE_ACKS = 32  # bits of RecoverableMsgAckFlags


@dataclass(slots=True)
class ReceivedMessages:
    """MessageReceivedCount, RecoverableMessageReceivedCount, and what of it is to be acknowledged.

    Recoverable messages are stored in the order they came, so that three numbers say it all.
    """

    count: int = 0
    recoverable_count: int = 0
    _stored: int = 0
    _last_acked: int = 0  # LastAckedRecoverableMsgSeqNumber
    _express_unacked: int = 0

    def add(self, count: int = 1, *, recoverable: bool) -> int:
        """3.1.5.8.2. The number of the last one among the recoverable ones, or 0."""
        self.count += count
        if not recoverable:
            self._express_unacked += count
            return 0
        self.recoverable_count += count
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
