"""Receipts, [MC-MQSRM] 3.1.1.3: those of streams, and how the classes of acknowledgments are written.

Delivery and commitment receipts are the acknowledgments that queues send by themselves; only their clothes are SOAP's.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from postroad.message import Message
from postroad.names import DirectName, FormatName
from postroad.soap.elements import NEGATIVE, POSITIVE, Decision, StreamId, StreamReceipt
from postroad.soap.mapping import commitment_url_of
from postroad.wire.constants import INFINITE, MessageClass
from postroad.wire.ordering import LABEL
from postroad.wire.queue_names import admin_name
from postroad.wire.transaction_header import TxSequenceId
from postroad.wire.view import MessageView

_RECEIPT = Struct("<16sIII")  # a stream receipt in the packet of a message of ours: the stream, and lastOrdinal

# 3.1.7.3.1 and 3.1.7.3.3: the reasons for a negative receipt. To one that is not in the list above it is not written.
REMOVED_UNREAD = NEGATIVE | {MessageClass.NACK_RECEIVE_REJECTED}
TOLD = REMOVED_UNREAD | POSITIVE


def decision(message_class: int) -> Decision:
    return Decision.POSITIVE if message_class in POSITIVE else Decision.NEGATIVE


def written_class(reason: int) -> int:
    """The class that a receipt has for a reason: one that its receiver knows."""
    return reason if reason in POSITIVE | NEGATIVE else MessageClass.NACK_DELETED


def admin_of(view: MessageView, message_class: int) -> FormatName | None:
    """2.2.5.2.3: the receipts of one message may go to two places."""
    if view.arrived_by_http and message_class != MessageClass.ACK_REACH_QUEUE:
        url = commitment_url_of(view)
        if url is not None:
            return DirectName.from_wire(url)
    return admin_name(view)


def stream_receipt(
    stream_id: StreamId,
    last_ordinal: int,
    queue: FormatName | None,
    *,
    final_class: int | None = None,
    original: bytes | None = None,
) -> Message:
    """3.1.6.3, and with a class and the `original` message's id 3.1.7.3.3: what is put in the outgoing queue.

    A stream receipt is repeated when it is asked for; nobody asks for a final one again, so that it is kept.
    """
    sequence = stream_id.sequence
    return Message(
        label=LABEL,
        message_class=MessageClass.ORDER_ACK if final_class is None else written_class(final_class),
        recoverable=final_class is not None,
        priority=0,
        correlation_id=original,
        response_queue=queue,
        extension=_RECEIPT.pack(stream_id.guid.bytes_le, sequence.ordinal, sequence.time_stamp, last_ordinal),
        time_to_reach_queue=INFINITE,
    )


def stream_receipt_of(view: MessageView) -> StreamReceipt | None:
    """What `stream_receipt` has put into a packet of this manager; None for any other packet."""
    extension = view.extension
    if len(extension) != _RECEIPT.size or view.message_class == MessageClass.NORMAL or view.label != LABEL:
        return None
    guid, ordinal, time_stamp, last_ordinal = _RECEIPT.unpack(extension)
    return StreamReceipt(StreamId(UUID(bytes_le=guid), TxSequenceId(ordinal, time_stamp)), last_ordinal)
