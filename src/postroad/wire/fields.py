"""Single fields of a whole packet, [MS-MQMQ] 2.2.20, where no view of it is needed. The bytes must be a valid packet.

The hot path reads these a few times a message: plain functions, one look at the bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from uuid import UUID

from postroad.names import MessageId
from postroad.wire.patch import transaction_header_at
from postroad.wire.transaction_header import LAYOUT as _TRANSACTION

SOURCE, MESSAGE_ID = slice(16, 32), slice(56, 60)  # UserHeader.SourceQueueManager and MessageID
_FLAGS_AT = 60
_TIMES, _TIMES_AT = Struct("<I32xII"), 12
_BY_HTTP = 0x02


def is_recoverable(packet: bytes) -> bool:
    """UserHeader.Flags.DM"""
    return packet[60] & 0x60 != 0


def is_transactional(packet: bytes) -> bool:
    """UserHeader.Flags.TH"""
    return packet[62] & 0x10 != 0


def transaction_fields_of(packets: Sequence[bytes]) -> list[tuple[int, int, int, int, int] | None]:
    """Of each packet, what a MessageView has as `transaction_fields`."""
    found: list[tuple[int, int, int, int, int] | None] = []
    names, at = None, 0
    for packet in packets:
        if not is_transactional(packet):
            found.append(None)
            continue
        if packet[_FLAGS_AT:at] != names:  # with the same names it is in the same place
            at = transaction_header_at(packet)
            names = packet[_FLAGS_AT:at]
        found.append(_TRANSACTION.unpack_from(packet, at))
    return found


def is_traced(packet: bytes) -> bool:
    """BaseHeader.Flags.TR"""
    return packet[3] & 0x01 != 0


def arrived_by_http(packet: bytes) -> bool:
    """UserHeader.Flags.AH"""
    return packet[63] & _BY_HTTP != 0


def wants_positive_copy(packet: bytes) -> bool:
    """UserHeader.Flags.JP: a copy in its source's journal."""
    return packet[61] & 0x02 != 0


def wants_negative_copy(packet: bytes) -> bool:
    """UserHeader.Flags.JN: a dead letter."""
    return packet[61] & 0x01 != 0


def wants_copy(packet: bytes) -> bool:
    """UserHeader.Flags.JP or JN: a copy in its source's journal, or a dead letter."""
    return packet[61] & 0x03 != 0


def asks_for_nothing(packet: bytes) -> bool:
    """Whether nobody wants to know what becomes of the message: it has no AdminQueue, asks for no copy, and did not
    come by HTTP."""
    return not packet[61] & 0xE3 and not packet[63] & _BY_HTTP


def priority_of(packet: bytes) -> int:
    return packet[2] & 7


def message_id_of(packet: bytes) -> int:
    return int.from_bytes(packet[MESSAGE_ID], "little")


def times_of(packet: bytes) -> tuple[int, int, int]:
    """TimeToReachQueue, TimeToBeReceived and SentTime."""
    return _TIMES.unpack_from(packet, _TIMES_AT)


def identifier_of(packet: bytes) -> MessageId | None:
    """The id of the message, of whatever there is of its packet; None where there is too little."""
    if len(packet) < MESSAGE_ID.stop:
        return None
    return MessageId(UUID(bytes_le=packet[SOURCE]), message_id_of(packet))
