"""OrderAck and FinalAck, [MS-MQQB] 2.2.4 and 2.2.5: end-to-end acknowledgments of transactional messages.

They travel as UserMessage packets to order_queue$ of the manager that sent the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar, Self
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.names.format import ORDER_QUEUE, ORDER_QUEUE_NUMBER
from postroad.wire.constants import DELIVERY_SHIFT, Delivery, MessageClass, QueueCode
from postroad.wire.headers import (
    BaseHeader,
    MessagePropertiesHeader,
    TxSequenceId,
    UserHeader,
)
from postroad.wire.octets import NULL_GUID
from postroad.wire.queue_names import QueueField
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView

LABEL = "QM Ordering Ack"
BODY_SIZE = 0x24
FINAL_ACK_CLASSES = MessageClass.ACK_RECEIVE  # this class and every higher one is final
_ORDER_QUEUE = f"\\{ORDER_QUEUE}"
_SENT_ORDER_QUEUE = re.compile(r"(TCP:[0-9A-Fa-f.:]+|SPX:[0-9A-F]{8}\.[0-9A-F]{12})\\PRIVATE\$\\order_queue\$")
_BODY = Struct("<IIII20s")
_FINAL = Struct("<16sI")


def is_order_queue(queue: QueueField) -> bool:
    """Whether a destination is order_queue$, by number or by direct name."""
    if queue.code is QueueCode.DIRECT:
        return queue.direct_name.lower().endswith(_ORDER_QUEUE)
    return queue.code is QueueCode.PRIVATE_ON_DESTINATION and queue.number == ORDER_QUEUE_NUMBER


def order_queue(address: str | None = None) -> QueueField:
    """order_queue$ of the manager at this IP address, or of the manager that the packet is addressed to."""
    if address is None:
        return QueueField(QueueCode.PRIVATE_ON_DESTINATION, ORDER_QUEUE_NUMBER)
    return QueueField(QueueCode.DIRECT, direct_name=f"TCP:{address}\\PRIVATE$\\order_queue$")


def _check_sent_order_queue(queue: QueueField) -> None:
    """[MS-MQQB] 2.2.4 and 2.2.5: a name that we send follows their grammar. A received name is recognised by its
    end."""
    if not is_order_queue(queue):
        raise LocalProtocolError("the destination of an ordering acknowledgment must be order_queue$")
    if queue.code is QueueCode.DIRECT and not _SENT_ORDER_QUEUE.fullmatch(queue.direct_name):
        raise LocalProtocolError(
            f"a direct name of order_queue$ must start with TCP: or SPX: and an address, got {queue.direct_name}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderingAck:
    """What OrderAck and FinalAck have in common: the two managers, the sequence and the sequence number."""

    delivery: ClassVar[Delivery]

    source_queue_manager: UUID
    message_id: int
    sent_time: int
    destination_queue: QueueField
    sequence_id: TxSequenceId
    sequence_number: int
    previous_sequence_number: int
    queue_manager_address: UUID = NULL_GUID

    @property
    def message_class(self) -> int:
        raise NotImplementedError

    def last_field(self) -> bytes:
        """The last 20 bytes of the body, which differ between OrderAck and FinalAck."""
        raise NotImplementedError

    def encode(self) -> bytes:
        if not 1 <= self.sequence_number <= 0xFFFFFFFF or not 0 <= self.previous_sequence_number <= 0xFFFFFFFE:
            raise LocalProtocolError("the sequence number of an ordering acknowledgment must be from 1 to 0xFFFFFFFF")
        _check_sent_order_queue(self.destination_queue)
        body = _BODY.pack(
            self.sequence_id.ordinal,
            self.sequence_id.time_stamp,
            self.sequence_number,
            self.previous_sequence_number,
            self.last_field(),
        )
        return UserMessage(
            BaseHeader(),
            UserHeader(
                self.source_queue_manager,
                self.message_id,
                self.destination_queue,
                self.queue_manager_address,
                sent_time=self.sent_time,
                flags=self.delivery << DELIVERY_SHIFT,
            ),
            MessagePropertiesHeader(body, LABEL, message_class=self.message_class),
        ).encode()


def _decode(view: MessageView) -> tuple[dict[str, Any], bytes]:
    """The values of an OrderingAck, and the last field of the body."""
    if view.encrypted:
        raise RemoteProtocolError("the body of an ordering acknowledgment must not be encrypted")
    if view.message_size != BODY_SIZE:
        raise RemoteProtocolError(
            f"the body of an ordering acknowledgment must have {BODY_SIZE} bytes, got {view.message_size}"
        )
    ordinal, time_stamp, number, previous, last = _BODY.unpack(view.body)
    if number == 0:
        raise RemoteProtocolError("TxSequenceNumber of an ordering acknowledgment must not be 0")
    if previous == 0xFFFFFFFF:
        raise RemoteProtocolError("TxPreviousSequenceNumber of an ordering acknowledgment must not be 0xFFFFFFFF")
    common = {
        "source_queue_manager": view.source_queue_manager,
        "message_id": view.message_id,
        "sent_time": view.sent_time,
        "destination_queue": view.destination_queue,
        "queue_manager_address": view.queue_manager_address,
        "sequence_id": TxSequenceId(ordinal, time_stamp),
        "sequence_number": number,
        "previous_sequence_number": previous,
    }
    return common, last


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAck(OrderingAck):
    """An OrderAck: all messages of the sequence up to `sequence_number` were accepted or finally rejected."""

    delivery = Delivery.EXPRESS
    reserved: bytes = field(default=bytes(20), compare=False, repr=False)

    @property
    def message_class(self) -> int:
        return MessageClass.ORDER_ACK

    def last_field(self) -> bytes:
        return self.reserved

    @classmethod
    def of(cls, view: MessageView) -> Self:
        common, reserved = _decode(view)
        return cls(**common, reserved=reserved)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAck(OrderingAck):
    """A FinalAck, the final result of one message: received (0x4000), or a higher class if it will not be received."""

    delivery = Delivery.RECOVERABLE
    final_class: int
    source_guid: UUID
    acknowledged_message_id: int

    @property
    def message_class(self) -> int:
        return self.final_class

    @property
    def positive(self) -> bool:
        return self.final_class == MessageClass.ACK_RECEIVE

    def last_field(self) -> bytes:
        if self.final_class < FINAL_ACK_CLASSES:
            raise LocalProtocolError(f"the class of a FinalAck must be final, got {self.final_class:#06x}")
        return _FINAL.pack(self.source_guid.bytes_le, self.acknowledged_message_id)

    @classmethod
    def of(cls, view: MessageView) -> Self:
        common, last = _decode(view)
        source, message_id = _FINAL.unpack(last)
        return cls(
            **common,
            final_class=view.message_class,
            source_guid=UUID(bytes_le=source),
            acknowledged_message_id=message_id,
        )
