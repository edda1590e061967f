"""The figures of transactional transfer as the SOAP protocol keeps them, [MC-MQSRM] 3.1.5.1.8.2."""

from __future__ import annotations

from postroad.queues.queue import Queue
from postroad.soap.sender import Flight, Sender, Transfer
from postroad.soap.streams import OutgoingStream
from postroad.wire.records import SequenceInfo
from tests.transfers import NOTHING, OutgoingTransferInfo, outgoing_info


def outgoing_transfer(sender: Sender, queue: Queue) -> OutgoingTransferInfo:
    """The figures of one outgoing queue. All are 0 for a queue that has sent nothing in a stream."""
    transfer = sender.transfers.get(queue) or Transfer()
    stream = transfer.stream
    unacked = sorted(transfer.unacked, key=lambda each: each.number)
    name, number = sender.core.transacting.next_place(queue.properties.path)
    place = number if stream is None or stream.sequence != name else stream.current(number)
    shown = name if stream is None or stream.sequence != name else stream.name
    last_ack = NOTHING if stream is None else _last_ack(stream)
    following = SequenceInfo(shown.value, place, place - 1)
    places = [_flight(each) for each in unacked]
    return outgoing_info(transfer, places, last_ack, following, len(transfer.awaiting_final), sender.settings.resend_s)


def _last_ack(stream: OutgoingStream) -> SequenceInfo:
    number = max(0, stream.current(stream.acknowledged))
    return SequenceInfo(stream.name.value, number, max(0, number - 1))


def _flight(flight: Flight) -> SequenceInfo:
    assert flight.stream is not None
    element = flight.stream
    return SequenceInfo(element.stream_id.sequence.value, element.current, element.previous or 0)
