"""The figures of transactional transfer as the binary protocol keeps them."""

from __future__ import annotations

from postroad.binary.receiver import Receiver
from postroad.binary.sender import Flight, OutgoingSequence, Sender
from postroad.errors import IllegalName
from postroad.names import FormatName, parse_format_name
from postroad.queues.queue import Queue
from postroad.wire.headers import TxSequenceId
from postroad.wire.queue_names import destination_name
from postroad.wire.records import SequenceInfo
from postroad.wire.view import MessageView
from tests.transfers import NOTHING, IncomingTransferInfo, OutgoingTransferInfo, outgoing_info


def outgoing_transfer(sender: Sender, queue: Queue) -> OutgoingTransferInfo:
    """The figures of one outgoing queue. All are 0 for a queue that has sent nothing in a transaction."""
    sequence = sender.sequences.get(queue) or OutgoingSequence()
    sequence_id, number = sender.core.transacting.next_place(queue.properties.path)
    last_ack = _place(*sequence.last_ack) if sequence.last_ack_count else NOTHING
    unread = _awaiting_final_ack(sender, queue)
    unacked = [_flight(each) for each in sequence.unacked]
    return outgoing_info(sequence, unacked, last_ack, _place(sequence_id, number), unread, sender.settings.resend_s)


def incoming_transfers(receiver: Receiver, queue: Queue) -> list[IncomingTransferInfo]:
    """IncomingTransactionalTransferInfoCollection of a local queue, under every name that senders use for it."""
    found = []
    for sequence in receiver.incoming:
        name = _parsed(sequence.format_name)
        if name is not None and receiver.destinations.find(name) is queue:
            found.append(
                IncomingTransferInfo(
                    sequence.format_name,
                    sequence.sender,
                    sequence.sequence_id.value,
                    sequence.number,
                    sequence.last_access_s,
                    sequence.rejects,
                )
            )
    return found


def _parsed(name: str) -> FormatName | None:
    try:
        return parse_format_name(name)
    except IllegalName:
        return None


def _place(sequence_id: TxSequenceId, number: int) -> SequenceInfo:
    return SequenceInfo(sequence_id.value, number, number - 1)


def _flight(flight: Flight) -> SequenceInfo:
    fields = MessageView(flight.record.packet).transaction_fields
    assert fields is not None
    return SequenceInfo(TxSequenceId(fields[1], fields[2]).value, fields[3], fields[4])


def _awaiting_final_ack(sender: Sender, queue: Queue) -> int:
    destination = sender.core.queues.outgoing_info[queue].destination
    return sum(destination_name(MessageView(each.packet)) == destination for each in sender.awaiting_final_ack)
