"""Changes the few fields that change when a packet is forwarded or stored, or when a packet is made from a pattern.

All other bytes stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from struct import Struct
from uuid import UUID

from postroad.names import MessageId
from postroad.wire.constants import PROPERTIES_HEADER_SIZE, QUEUE_CODE_SIZES, TRANSACTION_ID_SHIFT, TransactionFlags
from postroad.wire.headers import TRANSACTION_LAYOUT as TRANSACTION
from postroad.wire.headers import TRANSACTION_LAYOUT as _TRANSACTION
from postroad.wire.headers import TxSequenceId
from postroad.wire.internal import SessionHeader
from postroad.wire.view import MessageView

# Single fields of a whole packet, [MS-MQMQ] 2.2.20, for callers that need no view. The bytes must be a valid packet.
#
# These are on the hot path, several times for each message. So they are plain functions that look at the bytes once.


_SIZE = slice(8, 12)  # BaseHeader.PacketSize
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


def without_local_part(packet: bytes) -> bytes:
    """The packet as other managers and programs may see it."""
    size = int.from_bytes(packet[_SIZE], "little")
    return packet if len(packet) == size else packet[:size]


def transaction_fields_of(packets: Sequence[bytes]) -> list[tuple[int, int, int, int, int] | None]:
    """For each packet, the `transaction_fields` of its MessageView."""
    found: list[tuple[int, int, int, int, int] | None] = []
    names, at = None, 0
    for packet in packets:
        if not is_transactional(packet):
            found.append(None)
            continue
        if packet[_FLAGS_AT:at] != names:  # packets with the same names have it in the same place
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
    """UserHeader.Flags.JP: whether the source's journal gets a copy."""
    return packet[61] & 0x02 != 0


def wants_negative_copy(packet: bytes) -> bool:
    """UserHeader.Flags.JN: whether the message becomes a dead letter."""
    return packet[61] & 0x01 != 0


def wants_copy(packet: bytes) -> bool:
    """UserHeader.Flags.JP or JN: whether the source's journal gets a copy, or the message becomes a dead letter."""
    return packet[61] & 0x03 != 0


def asks_for_nothing(packet: bytes) -> bool:
    """Whether nobody must be told what happens to the message.

    It has no AdminQueue, asks for no copy, and did not come by HTTP.
    """
    return not packet[61] & 0xE3 and not packet[63] & _BY_HTTP


def priority_of(packet: bytes) -> int:
    return packet[2] & 7


def message_id_of(packet: bytes) -> int:
    return int.from_bytes(packet[MESSAGE_ID], "little")


def times_of(packet: bytes) -> tuple[int, int, int]:
    """TimeToReachQueue, TimeToBeReceived and SentTime."""
    return _TIMES.unpack_from(packet, _TIMES_AT)


def identifier_of(packet: bytes) -> MessageId | None:
    """The id of a message whose packet may be incomplete. None if too little is left of it."""
    if len(packet) < MESSAGE_ID.stop:
        return None
    return MessageId(UUID(bytes_le=packet[SOURCE]), message_id_of(packet))


_SIZE_AT, _MESSAGE_ID_AT, _USER_FLAGS_AT = 8, 56, 60
_BODY_SIZES_AT = 32  # MessageSize and AllocationBodySize, in MessagePropertiesHeader
_NAMES_AT = 64
_NOBODY = bytes(16)
_CACHED = 1024
_U32 = Struct("<I")
_TWO_U32 = Struct("<II")
_MAPPED = bytes(10) + b"\xff\xff"  # the prefix of an IPv4 address as an IPv6 address
_CONNECTOR_TYPE = 0x00400000
_KEPT = (TransactionFlags.RESERVED | TransactionFlags.CONNECTOR_QM_GUID | TransactionFlags.FINAL_ACK).value
_IDENTIFIER, _FIRST, _LAST = (
    TransactionFlags.IDENTIFIER.value,
    TransactionFlags.FIRST.value,
    TransactionFlags.LAST.value,
)


def transaction_header_at(packet: bytes) -> int:
    """The offset of the TransactionHeader in a valid packet."""
    flags = int.from_bytes(packet[_USER_FLAGS_AT:_NAMES_AT], "little")
    offset = _NAMES_AT
    for shift in (10, 13, 16):
        code = flags >> shift & 7
        if code == 7:
            offset = offset + 2 + (packet[offset] | packet[offset + 1] << 8) + 3 & ~3
        else:
            offset += QUEUE_CODE_SIZES[code]
    return offset + 16 if flags & _CONNECTOR_TYPE else offset


def stamp_transaction(
    packet: bytes, sequence: TxSequenceId, number: int, previous: int, transaction_id: int, *, first: bool, last: bool
) -> bytes:
    """The packet with its TransactionHeader filled in, [MS-MQMQ] 2.2.20.5. Other flags of that header are kept."""
    at = transaction_header_at(packet)
    flags = int.from_bytes(packet[at : at + 4], "little") & _KEPT
    flags |= transaction_id << TRANSACTION_ID_SHIFT & _IDENTIFIER
    if first:
        flags |= _FIRST
    if last:
        flags |= _LAST
    header = TRANSACTION.pack(flags, sequence.ordinal, sequence.time_stamp, number, previous)
    return packet[:at] + header + packet[at + TRANSACTION.size :]


def stamp_transactions(
    packets: Sequence[bytes], sequence: TxSequenceId, number: int, transaction_id: int, *, first: bool, last: bool
) -> list[bytes]:
    """Stamps consecutive packets of one transaction with the numbers from `number` on.

    `first` and `last` say whether the transaction begins and ends with them.
    """
    stamped: list[bytes] = []
    names, at = None, 0
    identifier = transaction_id << TRANSACTION_ID_SHIFT & _IDENTIFIER
    ordinal, time_stamp = sequence.ordinal, sequence.time_stamp
    final = len(packets) - 1
    for index, packet in enumerate(packets):
        if packet[_USER_FLAGS_AT:at] != names:  # packets with the same names have it in the same place
            at = transaction_header_at(packet)
            names = packet[_USER_FLAGS_AT:at]
        flags = int.from_bytes(packet[at : at + 4], "little") & _KEPT | identifier
        if first and index == 0:
            flags |= _FIRST
        if last and index == final:
            flags |= _LAST
        header = TRANSACTION.pack(flags, ordinal, time_stamp, number + index, number + index - 1)
        stamped.append(b"".join((packet[:at], header, packet[at + TRANSACTION.size :])))
    return stamped


def with_session_header(packet: bytes, header: SessionHeader) -> bytes:
    """The packet followed by a SessionHeader, [MS-MQMQ] 2.2.20.4, which PacketSize does not count."""
    flags = packet[2] | 0x10
    return packet[:2] + bytes((flags,)) + packet[3:] + header.encode()


def without_session_header(packet: bytes) -> bytes:
    """The packet without its SessionHeader, which belongs to the session that it arrived on."""
    if not packet[2] & 0x10:
        return packet
    return packet[:2] + bytes((packet[2] & ~0x10,)) + packet[3:-16]


def as_stored(packet: bytes) -> bytes:
    """The packet as a queue stores it: without its SessionHeader, and without AH, which a sender must not set."""
    packet = without_session_header(packet)
    return packet if not packet[63] & 0x02 else packet[:63] + bytes((packet[63] & ~0x02,)) + packet[64:]


def with_hop_count(packet: bytes, hop_count: int) -> bytes:
    """[MS-MQQB] 3.1.5.8.2: sets RC, the number of routing servers that the packet has passed."""
    return packet[:_USER_FLAGS_AT] + bytes((packet[_USER_FLAGS_AT] & ~0x1F | hop_count,)) + packet[_USER_FLAGS_AT + 1 :]


def with_previous_number(packet: bytes, previous: int) -> bytes:
    """[MS-MQQB] 3.1.7.1.3: sets PreviousTxSequenceNumber, which skips messages that have expired."""
    at = transaction_header_at(packet) + 16
    return packet[:at] + previous.to_bytes(4, "little") + packet[at + 4 :]


def renumber_transaction(packet: bytes, number: int, previous: int) -> bytes:
    """The packet with other sequence numbers."""
    at = transaction_header_at(packet) + 12
    return packet[:at] + number.to_bytes(4, "little") + previous.to_bytes(4, "little") + packet[at + 8 :]


def brought_by(packet: bytes) -> str:
    """The address that a message came from by HTTP, or empty text.

    It is in a field that a packet to a direct name does not use, so it stays with the message. A sender cannot forge
    it, because `as_stored` removes AH, [MS-MQMQ] 2.2.19.2, from received packets.
    """
    caller = packet[32:48]
    if not packet[63] & 0x02 or caller == _NOBODY:
        return ""
    return _address_in(caller)


# The same few addresses come with every message, and parsing one costs more than the rest of the field.
@lru_cache(_CACHED)
def _address_in(caller: bytes) -> str:
    address = IPv6Address(caller)
    return str(address.ipv4_mapped or address)


@lru_cache(_CACHED)
def caller_field(address: str) -> bytes:
    """The address of an HTTP client in the form that a packet holds."""
    try:
        found = ip_address(address)
    except ValueError:
        return _NOBODY
    return found.packed if isinstance(found, IPv6Address) else _MAPPED + found.packed


class Pattern:
    """A packet without a body, to make packets that differ only in their message id, their body and what follows the
    body."""

    __slots__ = ("_after_id", "_after_size", "_after_sizes", "_body_at", "_start")

    def __init__(self, view: MessageView) -> None:
        packet, properties_at = view.data, view._properties_at
        sizes_at = properties_at + _BODY_SIZES_AT
        self._body_at = properties_at + PROPERTIES_HEADER_SIZE + 2 * packet[properties_at + 1]
        self._start = packet[:_SIZE_AT]
        self._after_size = packet[_SIZE_AT + 4 : _MESSAGE_ID_AT]
        self._after_id = packet[_USER_FLAGS_AT:sizes_at]
        self._after_sizes = packet[sizes_at + 8 : self._body_at]

    def filled(self, message_id: int, body: bytes, rest: bytes) -> bytes:
        """The packet with this id, this body, and the headers that follow the body. It may be too large."""
        size = len(body)
        padding = -(self._body_at + size) % 4
        return b"".join(
            (
                self._start,
                _U32.pack(self._body_at + size + padding + len(rest)),
                self._after_size,
                _U32.pack(message_id),
                self._after_id,
                _TWO_U32.pack(size, size),
                self._after_sizes,
                body,
                bytes(padding),
                rest,
            )
        )
