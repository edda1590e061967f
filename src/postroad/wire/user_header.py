"""UserHeader, [MS-MQMQ] 2.2.19.2, and the queue names in it (2.2.18.1.5 and 2.2.18.1.7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import (
    ADMIN_CODES,
    ADMIN_SHIFT,
    DESTINATION_CODES,
    DESTINATION_SHIFT,
    INFINITE,
    RESPONSE_SHIFT,
    QueueCode,
    UserFlags,
)
from postroad.wire.layout import NULL_GUID, Reader, Writer, check_text, encode_text

LAYOUT = Struct("<16s16sIIII")
_COUNT = Struct("<H")
_U32 = Struct("<I")
_MAX_COUNT = 0xFFFF
_CONNECTOR_TYPE = UserFlags.CONNECTOR_TYPE.value
_DERIVED = (
    UserFlags.DESTINATION_QUEUE | UserFlags.ADMIN_QUEUE | UserFlags.RESPONSE_QUEUE | UserFlags.CONNECTOR_TYPE
).value


@dataclass(frozen=True, slots=True)
class QueueField:
    """A queue name in the form of the UserHeader. The code says which manager a private number belongs to."""

    code: QueueCode = QueueCode.NONE
    number: int = 0
    guid: UUID = NULL_GUID
    direct_name: str = ""

    @classmethod
    def decode(cls, code: int, reader: Reader, what: str) -> QueueField:
        match QueueCode(code):
            case QueueCode.NONE | QueueCode.SAME_AS_ADMIN as kind:
                return cls(kind)
            case QueueCode.PUBLIC as kind:
                return cls(kind, guid=reader.guid(what))
            case QueueCode.PRIVATE_ON_OTHER as kind:
                guid = reader.guid(what)
                return cls(kind, reader.unpack(_U32, what)[0], guid)
            case QueueCode.DIRECT as kind:
                (count,) = reader.unpack(_COUNT, what)
                name = reader.text(count, what)
                reader.align(4, what)
                return cls(kind, direct_name=name)
            case kind:
                return cls(kind, reader.unpack(_U32, what)[0])

    def encode(self, writer: Writer) -> None:
        match self.code:
            case QueueCode.NONE | QueueCode.SAME_AS_ADMIN:
                pass
            case QueueCode.PUBLIC:
                writer.put(self.guid.bytes_le)
            case QueueCode.PRIVATE_ON_OTHER:
                writer.put(self.guid.bytes_le + _U32.pack(self.number))
            case QueueCode.DIRECT:
                name = encode_text(self.direct_name, "a direct format name")
                if len(name) > _MAX_COUNT:
                    raise LocalProtocolError(f"a direct format name of {len(name)} bytes does not fit a packet")
                writer.put(_COUNT.pack(len(name)) + name)
                writer.align(4)
            case _:
                writer.put(_U32.pack(self.number))


NO_QUEUE = QueueField()


def direct_name_end(data: bytes, offset: int, end: int, what: str) -> int:
    """The offset after a DirectQueueFormatName. Refuses a name that does not end in its terminator."""
    if offset + 2 > end:
        raise RemoteProtocolError(f"{what} is cut off", min(offset, end))
    count = data[offset] | data[offset + 1] << 8
    text_end = offset + 2 + count
    if text_end + 3 & ~3 > end:
        raise RemoteProtocolError(f"{what} of {count} bytes is longer than its packet", offset)
    check_text(data, offset + 2, text_end, what)
    return text_end + 3 & ~3


@dataclass(frozen=True, slots=True)
class UserHeader:
    """The fields set DQ, AQ, RQ and CQ. The other bits of `flags` are kept."""

    source_queue_manager: UUID
    message_id: int
    destination_queue: QueueField
    queue_manager_address: UUID = NULL_GUID
    time_to_be_received: int = INFINITE
    sent_time: int = 0
    flags: int = 0
    admin_queue: QueueField = NO_QUEUE
    response_queue: QueueField = NO_QUEUE
    connector_type: UUID | None = None
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> UserHeader:
        source, address, to_be_received, sent, message_id, flags = reader.unpack(LAYOUT, "UserHeader")
        destination = QueueField.decode(flags >> DESTINATION_SHIFT & 7, reader, "DestinationQueue")
        admin = QueueField.decode(flags >> ADMIN_SHIFT & 7, reader, "AdminQueue")
        response = QueueField.decode(flags >> RESPONSE_SHIFT & 7, reader, "ResponseQueue")
        connector = reader.guid("ConnectorType") if flags & _CONNECTOR_TYPE else None
        return cls(
            source_queue_manager=UUID(bytes_le=source),
            message_id=message_id,
            destination_queue=destination,
            queue_manager_address=UUID(bytes_le=address),
            time_to_be_received=to_be_received,
            sent_time=sent,
            flags=flags,
            admin_queue=admin,
            response_queue=response,
            connector_type=connector,
            padding=reader.padding(),
        )

    def encode(self, writer: Writer, flags: int | None = None) -> None:
        """`flags` replace its own: they have the bits that announce the headers after it."""
        if self.destination_queue.code not in DESTINATION_CODES:
            raise LocalProtocolError(f"a destination queue cannot be written as {self.destination_queue.code.name}")
        if self.admin_queue.code not in ADMIN_CODES:
            raise LocalProtocolError(f"an administration queue cannot be written as {self.admin_queue.code.name}")
        flags = (
            (self.flags if flags is None else flags) & ~_DERIVED
            | self.destination_queue.code << DESTINATION_SHIFT
            | self.admin_queue.code << ADMIN_SHIFT
            | self.response_queue.code << RESPONSE_SHIFT
        )
        if self.connector_type is not None:
            flags |= _CONNECTOR_TYPE
        writer.keep_padding(self.padding)
        writer.put(
            LAYOUT.pack(
                self.source_queue_manager.bytes_le,
                self.queue_manager_address.bytes_le,
                self.time_to_be_received,
                self.sent_time,
                self.message_id,
                flags,
            )
        )
        for queue in (self.destination_queue, self.admin_queue, self.response_queue):
            queue.encode(writer)
        if self.connector_type is not None:
            writer.put(self.connector_type.bytes_le)
