"""OutgoingTransferInfo of queues that lead to a URL, [MS-MQDMPR] 3.1.1.4, as [MC-MQSRM] 3.1.5.1.8.2 keeps it.

The sender keeps the streams; here they are only read, under the names that management tools know.
"""

from __future__ import annotations

from postroad.queues.queue import Queue
from postroad.queues.transfers import NOTHING, OutgoingTransferInfo
from postroad.soap.sender import Flight, Sender, Transfer
from postroad.soap.streams import OutgoingStream
from postroad.wire.records import SequenceInfo


def outgoing_transfer(sender: Sender, queue: Queue) -> OutgoingTransferInfo:
    """The figures of one outgoing queue; those of a queue that has sent nothing in a stream are 0."""
    transfer = sender.transfers.get(queue) or Transfer()
    stream = transfer.stream
    unacked = sorted(transfer.unacked, key=lambda each: each.number)
    name, number = sender.core.transacting.next_place(queue.properties.path)
    place = number if stream is None or stream.sequence != name else stream.current(number)
    shown = name if stream is None or stream.sequence != name else stream.name
    return OutgoingTransferInfo(
        eod_first_non_ack=_flight(unacked[0]) if unacked else NOTHING,
        eod_last_non_ack=_flight(unacked[-1]) if unacked else NOTHING,
        eod_last_ack=NOTHING if stream is None else _last_ack(stream),
        eod_next_seq=SequenceInfo(shown.value, place, place - 1),
        eod_last_ack_time_s=int(transfer.last_ack_time),
        eod_last_ack_count=transfer.last_ack_count,
        eod_no_ack_count=len(unacked),
        eod_no_read_count=len(transfer.awaiting_final),
        eod_resend_count=transfer.resend_index,
        eod_resend_interval_s=sender.settings.resend_s[transfer.resend_index],
        eod_resend_time_s=int(transfer.resend_at or 0),
    )


def _last_ack(stream: OutgoingStream) -> SequenceInfo:
    number = max(0, stream.current(stream.acknowledged))
    return SequenceInfo(stream.name.value, number, max(0, number - 1))


def _flight(flight: Flight) -> SequenceInfo:
    assert flight.stream is not None
    element = flight.stream
    return SequenceInfo(element.stream_id.sequence.value, element.current, element.previous or 0)
