"""Finds the type of a packet, [MS-MQQB] 3.1.5.1.1."""

from __future__ import annotations

from postroad.errors import RemoteProtocolError
from postroad.wire.base_header import BaseHeader
from postroad.wire.constants import MessageClass, PacketType
from postroad.wire.internal import ConnectionParameters, EstablishConnection, InternalHeader, SessionAck
from postroad.wire.ordering import BODY_SIZE, FINAL_ACK_CLASSES, LABEL, FinalAck, OrderAck, is_order_queue
from postroad.wire.patch import transaction_header_at
from postroad.wire.view import MessageView

Packet = MessageView | OrderAck | FinalAck | EstablishConnection | ConnectionParameters | SessionAck

_INTERNAL = 0x0008


def decode_packet(data: bytes) -> Packet:
    """Decodes one complete packet of a session. Raises RemoteProtocolError if the bytes are not a packet."""
    if len(data) > 2 and data[2] & _INTERNAL:
        return SessionAck.plain(data) or _decode_internal(data)
    view = MessageView(data)
    check_place(view)
    # Reports and administration acknowledgments are UserMessages whatever their class.
    if view.message_class and not view.base_flags and view.label == LABEL and is_order_queue(view.destination_queue):
        if view.message_class == MessageClass.ORDER_ACK and view.message_size == BODY_SIZE:
            return OrderAck.of(view)
        if view.message_class >= FINAL_ACK_CLASSES:
            return FinalAck.of(view)
    return view


def check_place(view: MessageView) -> None:
    """[MS-MQMQ] 2.2.20.5: numbers start at 1, and the previous message has a lower one. A FinalAck can name no others.

    Every receiver of packets calls this. A view accepts such packets, because older versions may have stored them.
    """
    fields = view.transaction_fields
    if fields is not None and fields[4] >= fields[3]:
        raise RemoteProtocolError(
            f"PreviousTxSequenceNumber must be below TxSequenceNumber {fields[3]}, got {fields[4]}",
            transaction_header_at(view.data) + 12,
        )


def _decode_internal(data: bytes) -> EstablishConnection | ConnectionParameters | SessionAck:
    base = BaseHeader.decode(data)
    if base.flags & 0x0020:
        raise RemoteProtocolError("an internal packet must not have a DebugHeader", 2)
    internal = InternalHeader.decode(data)
    match internal.packet_type:
        case PacketType.ESTABLISH_CONNECTION:
            return EstablishConnection.decode(data, base, internal)
        case PacketType.CONNECTION_PARAMETERS:
            return ConnectionParameters.decode(data, base, internal)
        case _:
            return SessionAck.decode(data, base, internal)
