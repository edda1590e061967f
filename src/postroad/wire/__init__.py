"""Converts bytes to values and back, and does nothing else: [MS-MQMQ] 2.2.18 to 2.2.20 and [MS-MQQB] 2.2.

`MessageView` reads a message packet lazily, and `UserMessage` holds all of its values. `decode_packet` decodes any
packet of a session, and `Framer` finds packets in a stream.
"""

from postroad.wire.framer import Framer, Packet, decode_packet
from postroad.wire.headers import (
    BaseHeader,
    MessagePropertiesHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
)
from postroad.wire.internal import ConnectionParameters, EstablishConnection, Ping, SessionAck, SessionHeader
from postroad.wire.octets import body_text, encode_body
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.queue_names import QueueField
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView

__all__ = ["Framer", "MessageView", "Packet", "QueueField", "UserMessage", "body_text", "decode_packet", "encode_body"]
__all__ += ["BaseHeader", "MessagePropertiesHeader", "SessionHeader", "TransactionHeader", "TxSequenceId", "UserHeader"]
__all__ += ["ConnectionParameters", "EstablishConnection", "FinalAck", "OrderAck", "Ping", "SessionAck"]
