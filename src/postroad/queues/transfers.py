"""What is known of transactional messages between managers, [MS-MQDMPR] 3.1.1.4 and 3.1.1.5: the values alone.

Each protocol fills them in from what its sender and receiver keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from postroad.wire.records import SequenceInfo

NOTHING = SequenceInfo()


@dataclass(frozen=True, slots=True)
class OutgoingTransferInfo:
    """3.1.1.4. `eod_resend_time_s` is 0 while nothing waits to be sent again."""

    eod_first_non_ack: SequenceInfo
    eod_last_non_ack: SequenceInfo
    eod_last_ack: SequenceInfo
    eod_next_seq: SequenceInfo
    eod_last_ack_time_s: int
    eod_last_ack_count: int
    eod_no_ack_count: int
    eod_no_read_count: int
    eod_resend_count: int
    eod_resend_interval_s: float
    eod_resend_time_s: int


@dataclass(frozen=True, slots=True)
class IncomingTransferInfo:
    """3.1.1.5: one sender to one local queue. `sender_identifier` is where the messages come from first, whoever passed
    them on, and `sequence_number` is that of the last one that was accepted."""

    format_name: str
    sender_identifier: UUID
    sequence_identifier: int
    sequence_number: int
    last_access_time_s: int
    reject_count: int
