"""How far transactional messages have got, [MS-MQDMPR] 3.1.1.4 and 3.1.1.5, under the specification's own names.

Senders and receivers have these figures, and tests read them here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from postroad.carriers.flights import OutgoingTransfer
from postroad.wire.records import SequenceInfo

NOTHING = SequenceInfo()


@dataclass(frozen=True, slots=True)
class OutgoingTransferInfo:
    """[MS-MQDMPR] 3.1.1.4. `eod_resend_time_s` is 0 while nothing waits to be resent."""

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
    """[MS-MQDMPR] 3.1.1.5: the transfer from one sender to one local queue.

    `sender_identifier` is the manager that the messages come from first, and `sequence_number` that of the last
    accepted message.
    """

    format_name: str
    sender_identifier: UUID
    sequence_identifier: int
    sequence_number: int
    last_access_time_s: int
    reject_count: int


def outgoing_info(
    transfer: OutgoingTransfer[Any],
    unacked: list[SequenceInfo],
    last_ack: SequenceInfo,
    following: SequenceInfo,
    unread: int,
    resend_s: tuple[float, ...],
) -> OutgoingTransferInfo:
    """Information about an outgoing transfer.

    `unacked` has the places of the unacknowledged messages, and `following` is the next place. `unread` messages have
    arrived in order.
    """
    return OutgoingTransferInfo(
        eod_first_non_ack=unacked[0] if unacked else NOTHING,
        eod_last_non_ack=unacked[-1] if unacked else NOTHING,
        eod_last_ack=last_ack,
        eod_next_seq=following,
        eod_last_ack_time_s=int(transfer.last_ack_time),
        eod_last_ack_count=transfer.last_ack_count,
        eod_no_ack_count=len(unacked),
        eod_no_read_count=unread,
        eod_resend_count=transfer.resend_index,
        eod_resend_interval_s=resend_s[transfer.resend_index],
        eod_resend_time_s=int(transfer.resend_at or 0),
    )
