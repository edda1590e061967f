"""Bytes to values and back, nothing else: [MS-MQMQ] 2.2.18 to 2.2.20 and [MS-MQQB] 2.2.

`MessageView` reads a message packet lazily, `UserMessage` holds all of its values. `decode_packet` decodes any packet
of a session, and `Framer` finds packets in a stream.
"""

from postroad.wire.base_header import BaseHeader
from postroad.wire.bodies import body_text, encode_body
from postroad.wire.framer import Framer
from postroad.wire.internal import ConnectionParameters, EstablishConnection, SessionAck
from postroad.wire.message import UserMessage
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.packets import Packet, decode_packet
from postroad.wire.ping import Ping
from postroad.wire.properties_header import MessagePropertiesHeader
from postroad.wire.session_header import SessionHeader
from postroad.wire.transaction_header import TransactionHeader, TxSequenceId
from postroad.wire.user_header import QueueField, UserHeader
from postroad.wire.view import MessageView

__all__ = ["Framer", "MessageView", "Packet", "QueueField", "UserMessage", "body_text", "decode_packet", "encode_body"]
__all__ += ["BaseHeader", "MessagePropertiesHeader", "SessionHeader", "TransactionHeader", "TxSequenceId", "UserHeader"]
__all__ += ["ConnectionParameters", "EstablishConnection", "FinalAck", "OrderAck", "Ping", "SessionAck"]
