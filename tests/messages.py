"""Messages and packets as values: one plain, one with every header, one of each other kind."""

from __future__ import annotations

from postroad.message import Composer, Message
from postroad.names import PublicName
from postroad.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    FinalAck,
    MessagePropertiesHeader,
    OrderAck,
    QueueField,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
)
from postroad.wire.constants import BaseFlags, FormatType, MessageClass, QueueCode
from postroad.wire.headers import (
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
)
from postroad.wire.ordering import order_queue
from tests.packets import ADDRESS, OTHER, SOURCE

SEQUENCE = TxSequenceId(7, 9)
QUEUE = QueueField(QueueCode.PUBLIC, guid=OTHER)
PLAIN = UserMessage(BaseHeader(3), UserHeader(SOURCE, 1, QUEUE, ADDRESS), MessagePropertiesHeader(b"abc"))
FULL = UserMessage(
    BaseHeader(BaseFlags.TRACING.value),
    UserHeader(SOURCE, 1, QUEUE, ADDRESS, flags=0x20),
    MessagePropertiesHeader(b"abc", "label", b"extension"),
    TransactionHeader(SEQUENCE, 1),
    SecurityHeader(signature=b"signature"),
    DebugHeader(OTHER),
    SoapHeader("header", "body"),
    MultiQueueFormatHeader(AddressHeader((FormatNameElement(FormatType.DIRECT, direct_name="OS:a\\q"),))),
    SessionHeader(),
)
INTERNAL = (
    EstablishConnection(SOURCE, ADDRESS, 5),
    ConnectionParameters(1000, 60_000, 64),
    SessionAck(SessionHeader(1)),
)
ORDER_ACK = OrderAck(
    source_queue_manager=SOURCE,
    message_id=2,
    sent_time=3,
    destination_queue=order_queue(),
    sequence_id=SEQUENCE,
    sequence_number=5,
    previous_sequence_number=4,
)
FINAL_ACK = FinalAck(
    source_queue_manager=SOURCE,
    message_id=2,
    sent_time=3,
    destination_queue=order_queue(),
    sequence_id=SEQUENCE,
    sequence_number=5,
    previous_sequence_number=4,
    final_class=MessageClass.ACK_RECEIVE,
    source_guid=OTHER,
    acknowledged_message_id=6,
)
# What we send if nobody asks for anything special.
OURS = [packet.encode() for packet in (PLAIN, FULL, ORDER_ACK, FINAL_ACK, *INTERNAL)] + [
    Composer(SOURCE, PublicName(OTHER)).compose(Message(b"abc", trace=OTHER, priority=7), 1, 2)
]
