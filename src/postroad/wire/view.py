"""A lazy view of a UserMessage packet, [MS-MQMQ] 2.2.20: properties are read from the bytes on demand.

The constructor checks the whole layout, so properties never fail. This is a hot path: plain integers, one pass, no
objects.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from postroad.errors import RemoteProtocolError
from postroad.wire.constants import (
    ADMIN_CODES,
    DESTINATION_CODES,
    INFINITE,
    MAX_PACKET_SIZE,
    PROPERTIES_HEADER_SIZE,
    QUEUE_CODE_SIZES,
    SESSION_HEADER_SIZE,
    SIGNATURE,
    VERSION,
)
from postroad.wire.headers import PROPERTIES_LAYOUT as PROPERTIES
from postroad.wire.headers import SECURITY_LAYOUT as SECURITY
from postroad.wire.headers import TRANSACTION_LAYOUT as TRANSACTION
from postroad.wire.headers import (
    DebugHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    check_base_header,
    direct_name_end,
    security_header_end,
    soap_header_end,
)
from postroad.wire.internal import SessionHeader
from postroad.wire.octets import Reader, check_text
from postroad.wire.queue_names import QueueField

# The local part: what a queue manager stores with a message of its own, where no packet format has a field for it.
#
# It follows the packet, after the end that PacketSize gives. It never leaves the manager, because sessions and exports
# send only the packet. So a peer can neither see nor forge it: bytes from a session end with their packet.


_DEAD_LETTER_QUEUE = b"dead_letter_queue="  # [MS-MQDMPR] 3.1.1.12 ApplicationDeadletterQueue
_SENDER = b"sender="  # the SID of the user that the manager acts for when it writes something because of the message
_MOVES = b"moves="  # [MS-MQRR] 2.2.5.3 MoveCounter, and the time of the last move in milliseconds since 1970
_ITEMS = (_DEAD_LETTER_QUEUE, _SENDER, _MOVES)


def with_dead_letter_queue(packet: bytes, name: str) -> bytes:
    return packet + b"\0" + _DEAD_LETTER_QUEUE + name.encode()


def with_sender(packet: bytes, sid: str) -> bytes:
    return packet + b"\0" + _SENDER + sid.encode()


def with_move(packet: bytes, now_ms: int) -> bytes:
    """The packet of a message that has just been moved to or from a subqueue."""
    end = MessageView(packet).packet_size
    kept = [item for item in packet[end:].split(b"\0") if not item.startswith(_MOVES)]
    count, _ = moves(packet[end:])
    return packet[:end] + b"\0".join((*kept, _MOVES + f"{count + 1} {now_ms}".encode()))


def is_local_part(data: bytes) -> bool:
    """Whether the bytes after a packet are a local part."""
    items = data.split(b"\0")
    if items[0] or len(items) < 2 or not all(item.startswith(_ITEMS) for item in items[1:]):
        return False
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def dead_letter_queue(local_part: bytes) -> str | None:
    """The name of the dead-letter queue in a local part. None without one."""
    return _item(local_part, _DEAD_LETTER_QUEUE)


def sender(local_part: bytes) -> str | None:
    """The sender's SID in a local part. None without one."""
    return _item(local_part, _SENDER)


def moves(local_part: bytes) -> tuple[int, int]:
    """How often the message was moved to or from a subqueue, and when last. Zeroes if never."""
    count, _, last = (_item(local_part, _MOVES) or "").partition(" ")
    return (int(count), int(last)) if count.isdecimal() and last.isdecimal() else (0, 0)


def _item(local_part: bytes, key: bytes) -> str | None:
    for item in local_part.split(b"\0"):
        if item.startswith(key):
            return item[len(key) :].decode()
    return None


_FIXED = Struct("<BBHIII16s16sIIII")  # BaseHeader and the fixed part of UserHeader
_FIXED_SIZE = _FIXED.size

# Plain integers: each operation on an IntFlag costs a microsecond.
_IN, _SESSION, _DEBUG, _TRACING = 0x0008, 0x0010, 0x0020, 0x0100
_DELIVERY, _TH, _SH, _MP, _CQ, _MQ, _HH = 0x60, 0x100000, 0x080000, 0x200000, 0x400000, 0x800000, 0x10000000
_RECOVERABLE = 0x20
_TRAILERS = _MQ | _HH
_Trailers = tuple[DebugHeader | None, SoapHeader | None, MultiQueueFormatHeader | None]
_NO_TRAILERS: _Trailers = (None, None, None)

# UserHeader.Flags and the names of the last packet that was read, and where these names are.
_LAST_NAMES: list[tuple[bytes, tuple[int, int, int, int]]] = [(b"", (64, 64, 64, 64))]
_LONG_NAMES = 1024  # bytes from the packet's start; names beyond them are not remembered


def has_expired(time_to_reach_queue: int, sent_time: int, now: float) -> bool:
    """[MS-MQQB] 3.1.7.1.2 and [MC-MQSRM] 2.2.6.17. A sender's clock that is ahead of ours does not make a message
    expire sooner."""
    return time_to_reach_queue != INFINITE and int(now) - sent_time > time_to_reach_queue


def _names_of(data: bytes, flags: int, end: int) -> tuple[int, int, int, int]:
    """Where DestinationQueue, AdminQueue and ResponseQueue begin, and where the last one ends."""
    code = flags >> 10 & 7
    if code not in DESTINATION_CODES:
        raise RemoteProtocolError(f"destination queue type {code} is not defined", 60)
    admin_at = direct_name_end(data, 64, end, "DestinationQueue") if code == 7 else 64 + QUEUE_CODE_SIZES[code]
    code = flags >> 13 & 7
    if code not in ADMIN_CODES:
        raise RemoteProtocolError(f"administration queue type {code} is not defined", 60)
    response_at = direct_name_end(data, admin_at, end, "AdminQueue") if code == 7 else admin_at + QUEUE_CODE_SIZES[code]
    code = flags >> 16 & 7
    if code == 7:
        names_end = direct_name_end(data, response_at, end, "ResponseQueue")
    else:
        names_end = response_at + QUEUE_CODE_SIZES[code]
    return 64, admin_at, response_at, names_end


class MessageView:
    """A view of `data`, which is exactly one packet, with its SessionHeader. Raises RemoteProtocolError for other
    bytes.

    A packet that this manager has stored may be followed by a local part.
    """

    __slots__ = (
        "_names",
        "_properties",
        "_properties_at",
        "_security_at",
        "_trailers",
        "base_flags",
        "data",
        "message_id",
        "packet_size",
        "queue_manager_address_bytes",
        "recoverable",
        "sent_time",
        "source_queue_manager_bytes",
        "time_to_be_received",
        "time_to_reach_queue",
        "transaction_fields",
        "transactional",
        "user_flags",
    )

    # Fields that every message's way asks for are attributes: a property costs as much as reading the field.
    data: bytes
    base_flags: int
    packet_size: int
    time_to_reach_queue: int
    source_queue_manager_bytes: bytes  # the 16 bytes of the GUID; with the message id, they identify duplicates
    queue_manager_address_bytes: bytes
    time_to_be_received: int
    sent_time: int
    message_id: int
    user_flags: int
    recoverable: bool
    transactional: bool
    # Flags, ordinal and time stamp of the sequence id, sequence number, previous number.
    transaction_fields: tuple[int, int, int, int, int] | None
    _names: tuple[int, int, int, int]
    _properties: tuple[int, int, int, bytes, int, int, int, int, int, int, int, int]
    _trailers: _Trailers | None  # None means that it is decoded on demand

    def __init__(self, data: bytes) -> None:
        if len(data) < _FIXED_SIZE:
            raise RemoteProtocolError(
                f"a UserMessage must have at least {_FIXED_SIZE} bytes, got {len(data)}", len(data)
            )
        self.data = data
        (
            version,
            _,
            base_flags,
            signature,
            end,
            self.time_to_reach_queue,
            self.source_queue_manager_bytes,
            self.queue_manager_address_bytes,
            self.time_to_be_received,
            self.sent_time,
            self.message_id,
            flags,
        ) = _FIXED.unpack_from(data)
        self.base_flags, self.packet_size, self.user_flags = base_flags, end, flags
        if signature != SIGNATURE or version != VERSION or end > MAX_PACKET_SIZE:
            check_base_header(version, signature, end)
        size = end + SESSION_HEADER_SIZE if base_flags & _SESSION else end
        if len(data) != size and (len(data) < size or not is_local_part(data[size:])):
            raise RemoteProtocolError(f"PacketSize {end} does not match the {len(data)} bytes of the packet", 8)
        if base_flags & _IN:
            raise RemoteProtocolError("an internal packet is not a UserMessage", 2)
        if base_flags & _TRACING and not base_flags & _DEBUG:
            raise RemoteProtocolError("a traced message must have a DebugHeader", 2)
        delivery = flags & _DELIVERY
        if delivery > _RECOVERABLE:
            raise RemoteProtocolError(f"delivery mode {delivery >> 5} is not defined", 60)
        if not flags & _MP:
            raise RemoteProtocolError("a UserMessage must have a MessagePropertiesHeader", 60)
        self.recoverable = delivery != 0
        self.transactional = transactional = flags & _TH != 0
        if transactional and not delivery:
            raise RemoteProtocolError("a transactional message must be recoverable", 60)

        known, names = _LAST_NAMES[0]
        # otherwise check the names; those of a queue's messages are usually the same
        if data[60 : names[3]] != known or names[3] > end:
            names = _names_of(data, flags, end)
            if names[3] <= _LONG_NAMES:
                _LAST_NAMES[0] = (data[60 : names[3]], names)
        self._names = names
        offset = names[3]
        if flags & _CQ:
            offset += 16

        if transactional:
            if offset + 20 > end:
                raise RemoteProtocolError("TransactionHeader is cut off", min(offset, end))
            self.transaction_fields = fields = TRANSACTION.unpack_from(data, offset)
            offset += 36 if fields[0] & 1 else 20
        else:
            self.transaction_fields = None
        if flags & _SH:
            self._security_at = offset
            offset = security_header_end(data, offset, end)
        else:
            self._security_at = 0

        body = offset + PROPERTIES_HEADER_SIZE
        if body > end:
            raise RemoteProtocolError("MessagePropertiesHeader is cut off", min(offset, end))
        self._properties_at = offset
        self._properties = properties = PROPERTIES.unpack_from(data, offset)
        units: int = properties[1]
        if units:
            if units > 250:
                raise RemoteProtocolError(f"LabelLength must be at most 250, got {units}", offset + 1)
            label = body
            body += 2 * units
            if body > end:
                raise RemoteProtocolError(f"Label of {2 * units} bytes is longer than its packet", label)
            check_text(data, label, body, "Label")
        allocated: int = properties[7]
        if properties[6] > allocated:
            raise RemoteProtocolError(
                f"AllocationBodySize must be at least MessageSize {properties[6]}, got {allocated}", offset + 36
            )
        # The next header starts after the allocated region, which an encrypted body fills beyond MessageSize.
        stop = body + properties[11] + allocated + 3 & ~3
        if stop == end and not (base_flags & _DEBUG or flags & _TRAILERS):
            self._trailers = _NO_TRAILERS
        elif stop > end:
            raise RemoteProtocolError("label, extension and body are longer than the packet", offset + 32)
        elif flags & _TRAILERS != _HH or base_flags & _DEBUG or soap_header_end(data, stop, end) != end:
            self._trailers = self._decode_trailers(stop)
        else:  # only the envelope, as in every message that arrived by SOAP
            self._trailers = None

    def _decode_trailers(self, offset: int) -> _Trailers:
        end = self.packet_size
        reader = Reader(self.data, offset, end)
        flags = self.user_flags
        debug = DebugHeader.decode(reader) if self.base_flags & _DEBUG else None
        soap = SoapHeader.decode(reader) if flags & _HH else None
        multi_queue = MultiQueueFormatHeader.decode(reader) if flags & _MQ else None
        if reader.offset != end:
            raise RemoteProtocolError(
                f"the packet must end after its last header, but {end - reader.offset} more bytes follow", reader.offset
            )
        return debug, soap, multi_queue

    # BaseHeader

    @property
    def priority(self) -> int:
        return self.base_flags & 7

    @property
    def tracing(self) -> bool:
        return self.base_flags & _TRACING != 0

    def has_expired(self, now: float) -> bool:
        """Whether TimeToReachQueue has passed."""
        return has_expired(self.time_to_reach_queue, self.sent_time, now)

    # UserHeader

    @property
    def source_queue_manager(self) -> UUID:
        return UUID(bytes_le=self.source_queue_manager_bytes)

    @property
    def queue_manager_address(self) -> UUID:
        return UUID(bytes_le=self.queue_manager_address_bytes)

    @property
    def identifier(self) -> bytes:
        """The 20 bytes of the MessageIdentifier, 2.2.18.1.3."""
        return self.data[16:32] + self.data[56:60]

    @property
    def hop_count(self) -> int:
        return self.user_flags & 0x1F

    @property
    def negative_journaling(self) -> bool:
        return self.user_flags & 0x100 != 0

    @property
    def positive_journaling(self) -> bool:
        return self.user_flags & 0x200 != 0

    @property
    def arrived_by_http(self) -> bool:
        return self.user_flags & 0x02000000 != 0

    @property
    def destination_bytes(self) -> bytes:
        """The bytes of the destination in the packet, with its type first. They are equal for messages to the same
        name."""
        data = self.data
        code = self.user_flags >> 10 & 7
        # The padding of a direct name is not a part of it.
        end = 66 + (data[64] | data[65] << 8) if code == 7 else self._names[1]
        return bytes((code,)) + data[64:end]

    @property
    def destination_queue(self) -> QueueField:
        return self._queue(self.user_flags >> 10 & 7, 0, "DestinationQueue")

    @property
    def admin_queue(self) -> QueueField:
        return self._queue(self.user_flags >> 13 & 7, 1, "AdminQueue")

    @property
    def response_queue(self) -> QueueField:
        return self._queue(self.user_flags >> 16 & 7, 2, "ResponseQueue")

    def _queue(self, code: int, which: int, what: str) -> QueueField:
        return QueueField.decode(code, Reader(self.data, self._names[which], self._names[which + 1]), what)

    @property
    def connector_type(self) -> UUID | None:
        at = self._names[3]
        return UUID(bytes_le=self.data[at : at + 16]) if self.user_flags & _CQ else None

    # TransactionHeader

    @property
    def transaction_header(self) -> TransactionHeader | None:
        fields = self.transaction_fields
        if fields is None:
            return None
        start = self._names[3] + (16 if self.user_flags & _CQ else 0) + TRANSACTION.size
        connector = UUID(bytes_le=self.data[start : start + 16]) if fields[0] & 1 else None
        return TransactionHeader(TxSequenceId(fields[1], fields[2]), fields[3], fields[4], fields[0], connector)

    # SecurityHeader

    @property
    def has_security(self) -> bool:
        """Whether there is a SecurityHeader."""
        return self._security_at != 0

    @property
    def security_header(self) -> SecurityHeader | None:
        if not self._security_at:
            return None
        return SecurityHeader.decode(Reader(self.data, self._security_at, self._properties_at))

    @property
    def encrypted(self) -> bool:
        return bool(self._security_at and self.data[self._security_at] & 0x20)

    @property
    def signed(self) -> bool:
        return bool(self._security_at and SECURITY.unpack_from(self.data, self._security_at)[3])

    # MessagePropertiesHeader

    @property
    def ack_flags(self) -> int:
        return self._properties[0]

    @property
    def message_class(self) -> int:
        return self._properties[2]

    @property
    def correlation_id(self) -> bytes:
        return self._properties[3]

    @property
    def body_type(self) -> int:
        return self._properties[4]

    @property
    def application_tag(self) -> int:
        return self._properties[5]

    @property
    def message_size(self) -> int:
        return self._properties[6]

    @property
    def privacy_level(self) -> int:
        return self._properties[8]

    @property
    def hash_algorithm(self) -> int:
        return self._properties[9]

    @property
    def encryption_algorithm(self) -> int:
        return self._properties[10]

    @property
    def label(self) -> str:
        units = self._properties[1]
        start = self._properties_at + PROPERTIES_HEADER_SIZE
        return self.data[start : start + 2 * units - 2].decode("utf-16-le", "surrogatepass") if units else ""

    @property
    def extension(self) -> bytes:
        start = self._properties_at + PROPERTIES_HEADER_SIZE + 2 * self._properties[1]
        return self.data[start : start + self._properties[11]]

    @property
    def body(self) -> bytes:
        """The plain body. For an encrypted body, all bytes up to AllocationBodySize."""
        properties = self._properties
        start = self._properties_at + PROPERTIES_HEADER_SIZE + 2 * properties[1] + properties[11]
        return self.data[start : start + (properties[7] if self.encrypted else properties[6])]

    def body_span(self) -> tuple[int, int]:
        """Where the body begins and ends, AllocationBodySize octets; padding follows."""
        properties = self._properties
        start = self._properties_at + PROPERTIES_HEADER_SIZE + 2 * properties[1] + properties[11]
        return start, start + properties[7]

    # Headers that may follow

    def _trailing(self) -> _Trailers:
        if self._trailers is None:
            properties = self._properties
            stop = self._properties_at + PROPERTIES_HEADER_SIZE + 2 * properties[1] + properties[11] + properties[7]
            self._trailers = self._decode_trailers(stop + 3 & ~3)
        return self._trailers

    @property
    def debug_header(self) -> DebugHeader | None:
        return self._trailing()[0]

    @property
    def soap_header(self) -> SoapHeader | None:
        return self._trailing()[1]

    @property
    def multi_queue_header(self) -> MultiQueueFormatHeader | None:
        return self._trailing()[2]

    @property
    def dead_letter_queue(self) -> str | None:
        """The dead-letter queue that the sender named, which only the sender's own manager knows."""
        end = self.packet_size
        return None if len(self.data) == end else dead_letter_queue(self.data[end:])

    @property
    def local_sender(self) -> str | None:
        """The SID in the local part: the user whose rights count for what the manager writes because of the message.
        None without one."""
        end = self.packet_size
        return None if len(self.data) == end else sender(self.data[end:])

    @property
    def session_header(self) -> SessionHeader | None:
        return SessionHeader.decode(self.data, self.packet_size) if self.base_flags & _SESSION else None
