"""The headers of a message's packet, [MS-MQMQ] 2.2.19 and 2.2.20, and of its session, [MS-MQQB] 2.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering
from struct import Struct
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import (
    ADMIN_CODES,
    ADMIN_SHIFT,
    BASE_HEADER_SIZE,
    DESTINATION_CODES,
    DESTINATION_SHIFT,
    INFINITE,
    MAX_CERTIFICATE_SIZE,
    MAX_LABEL_UNITS,
    MAX_PACKET_SIZE,
    RESPONSE_SHIFT,
    SIGNATURE,
    TRANSACTION_ID_SHIFT,
    VERSION,
    BaseFlags,
    BodyType,
    EncryptionAlgorithm,
    FormatType,
    HashAlgorithm,
    SectionId,
    SecurityFlags,
    SenderIdType,
    TransactionFlags,
    UserFlags,
)
from postroad.wire.octets import NULL_GUID, Reader, Writer, aligned, check_text, encode_text, terminated_text
from postroad.wire.queue_names import NO_QUEUE, QueueField

# BaseHeader, [MS-MQMQ] 2.2.19.1: the first 16 bytes of every packet of a session.


BASE_LAYOUT = Struct("<BBHIII")


def check_base_header(version: int, signature: int, packet_size: int) -> None:
    """Checks the rules for all packets. Raises RemoteProtocolError with the offset of the field at fault."""
    if signature != SIGNATURE:
        raise RemoteProtocolError(
            f"signature must be {SIGNATURE:#010x}, got {signature:#010x}: this is not an MSMQ packet", 4
        )
    if version != VERSION:
        raise RemoteProtocolError(f"version must be {VERSION:#04x}, got {version:#04x}", 0)
    if not BASE_HEADER_SIZE <= packet_size <= MAX_PACKET_SIZE:
        raise RemoteProtocolError(
            f"PacketSize must be between {BASE_HEADER_SIZE} and {MAX_PACKET_SIZE}, got {packet_size}", 8
        )


@dataclass(frozen=True, slots=True)
class BaseHeader:
    """`packet_size` does not count a SessionHeader after a UserMessage, but counts the one in a SessionAck."""

    flags: int = 0
    packet_size: int = 0
    time_to_reach_queue: int = INFINITE
    reserved: int = 0

    @property
    def priority(self) -> int:
        return self.flags & BaseFlags.PRIORITY

    @classmethod
    def decode(cls, data: bytes) -> BaseHeader:
        if len(data) < BASE_LAYOUT.size:
            raise RemoteProtocolError(f"a BaseHeader must have {BASE_LAYOUT.size} bytes, got {len(data)}", len(data))
        version, reserved, flags, signature, packet_size, time_to_reach_queue = BASE_LAYOUT.unpack_from(data)
        check_base_header(version, signature, packet_size)
        return cls(flags, packet_size, time_to_reach_queue, reserved)

    def encode(self) -> bytes:
        return BASE_LAYOUT.pack(
            VERSION, self.reserved, self.flags, SIGNATURE, self.packet_size, self.time_to_reach_queue
        )


# UserHeader, [MS-MQMQ] 2.2.19.2, and the queue names in it (2.2.18.1.5 and 2.2.18.1.7).


USER_LAYOUT = Struct("<16s16sIIII")
_U32 = Struct("<I")
_CONNECTOR_TYPE = UserFlags.CONNECTOR_TYPE.value
_DERIVED = (
    UserFlags.DESTINATION_QUEUE | UserFlags.ADMIN_QUEUE | UserFlags.RESPONSE_QUEUE | UserFlags.CONNECTOR_TYPE
).value


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
    """Fields of UserHeader. The queue fields determine DQ, AQ, RQ and CQ. Other bits of `flags` are kept."""

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
        source, address, to_be_received, sent, message_id, flags = reader.unpack(USER_LAYOUT, "UserHeader")
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
        """Encodes the header. The argument `flags` replaces its own: it has the bits that announce the headers after
        it."""
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
            USER_LAYOUT.pack(
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


# MessagePropertiesHeader, [MS-MQMQ] 2.2.19.3: label, extension, body and their properties.


PROPERTIES_LAYOUT = Struct("<BBH20sIIIIIIII")
NO_CORRELATION = bytes(20)


@dataclass(frozen=True, slots=True)
class MessagePropertiesHeader:
    """`body` has AllocationBodySize bytes. An encrypted body is longer than `message_size`."""

    body: bytes = b""
    label: str = ""
    extension: bytes = b""
    flags: int = 0
    message_class: int = 0
    correlation_id: bytes = NO_CORRELATION
    body_type: int = BodyType.VT_EMPTY
    application_tag: int = 0
    privacy_level: int = 0
    hash_algorithm: int = HashAlgorithm.SHA1
    encryption_algorithm: int = EncryptionAlgorithm.RC4
    message_size: int | None = None
    # We write the label "" without any unit. A terminator alone is also legal on the wire.
    lone_terminator: bool = field(default=False, compare=False, repr=False)
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> MessagePropertiesHeader:
        flags, units, message_class, correlation_id, body_type, tag, size, allocated, privacy, hashing, cipher, ext = (
            reader.unpack(PROPERTIES_LAYOUT, "MessagePropertiesHeader")
        )
        label = reader.text(2 * units, "Label") if units else ""
        extension = reader.take(ext, "ExtensionData")
        body = reader.take(allocated, "MessageBody")
        reader.align(4, "MessagePropertiesHeader")
        return cls(
            body=body,
            label=label,
            extension=extension,
            flags=flags,
            message_class=message_class,
            correlation_id=correlation_id,
            body_type=body_type,
            application_tag=tag,
            privacy_level=privacy,
            hash_algorithm=hashing,
            encryption_algorithm=cipher,
            message_size=size,
            lone_terminator=units == 1,
            padding=reader.padding(),
        )

    def encode(self, writer: Writer) -> None:
        label = encode_text(self.label, "a label") if self.label or self.lone_terminator else b""
        if len(label) > 2 * MAX_LABEL_UNITS:
            raise LocalProtocolError(
                f"a label must have at most {MAX_LABEL_UNITS - 1} characters, got {len(label) // 2 - 1}"
            )
        if len(self.correlation_id) != len(NO_CORRELATION):
            raise LocalProtocolError(f"a correlation id must have 20 bytes, got {len(self.correlation_id)}")
        size = len(self.body) if self.message_size is None else self.message_size
        if size > len(self.body):
            raise LocalProtocolError(f"MessageSize must be at most the {len(self.body)} bytes of the body, got {size}")
        writer.keep_padding(self.padding)
        writer.put(
            PROPERTIES_LAYOUT.pack(
                self.flags,
                len(label) // 2,
                self.message_class,
                self.correlation_id,
                self.body_type,
                self.application_tag,
                size,
                len(self.body),
                self.privacy_level,
                self.hash_algorithm,
                self.encryption_algorithm,
                len(self.extension),
            )
        )
        writer.put(label)
        writer.put(self.extension)
        writer.put(self.body)
        writer.align(4)


# SecurityHeader, [MS-MQMQ] 2.2.20.6: the sender, the signature, the key. Nothing is verified here.


SECURITY_LAYOUT = Struct("<HHHHII")
_PROVIDER_TYPE = Struct("<I")
_ITEMS = ("SecurityID", "EncryptionKey", "Signature", "SenderCert", "ProviderInfo")
_SIZES_BY_SENDER_ID_TYPE = {SenderIdType.NONE.value: 0, SenderIdType.QUEUE_MANAGER.value: 16}  # a SID can have any size


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """The cryptographic provider of a signature, if it is not the default one."""

    provider_type: int
    provider_name: str

    @classmethod
    def decode(cls, data: bytes) -> ProviderInfo:
        if len(data) < _PROVIDER_TYPE.size:
            raise RemoteProtocolError("ProviderInfo is shorter than its type")
        (provider_type,) = _PROVIDER_TYPE.unpack_from(data)
        return cls(provider_type, terminated_text(data[_PROVIDER_TYPE.size :], "ProviderName", _PROVIDER_TYPE.size))

    def encode(self) -> bytes:
        return _PROVIDER_TYPE.pack(self.provider_type) + encode_text(self.provider_name, "ProviderName")


def security_header_end(data: bytes, offset: int, end: int) -> int:
    """Checks a SecurityHeader and returns the offset of the header after it."""
    if offset + SECURITY_LAYOUT.size > end:
        raise RemoteProtocolError("SecurityHeader is cut off", min(offset, end))
    flags, sender_id, key, signature, certificate, provider = SECURITY_LAYOUT.unpack_from(data, offset)
    sender_id_type = flags & 0x0F
    if sender_id_type > 2:
        raise RemoteProtocolError(f"sender id type {sender_id_type} is not defined", offset)
    if sender_id_type != 1 and sender_id != _SIZES_BY_SENDER_ID_TYPE[sender_id_type]:
        raise RemoteProtocolError(f"a sender id of type {sender_id_type} cannot have {sender_id} bytes", offset + 2)
    if certificate > MAX_CERTIFICATE_SIZE:
        raise RemoteProtocolError(
            f"SenderCertSize must be at most {MAX_CERTIFICATE_SIZE}, got {certificate}", offset + 8
        )
    if not (sender_id or key or signature or certificate or provider):
        raise RemoteProtocolError("a SecurityHeader must have data, but all of its sizes are 0", offset + 2)
    stop: int = (
        offset
        + SECURITY_LAYOUT.size
        + (sender_id + 3 & ~3)
        + (key + 3 & ~3)
        + (signature + 3 & ~3)
        + (certificate + 3 & ~3)
        + (provider + 3 & ~3)
    )
    if stop > end:
        raise RemoteProtocolError(f"SecurityHeader of {stop - offset} bytes is longer than its packet", offset)
    return stop


@dataclass(frozen=True, slots=True)
class SecurityHeader:
    """The five items of SecurityData. An empty item takes no space. The sizes count, not the flag AI."""

    flags: int = 0
    security_id: bytes = b""
    encryption_key: bytes = b""
    signature: bytes = b""
    sender_certificate: bytes = b""
    provider_info: bytes = b""
    padding: bytes = field(default=b"", compare=False, repr=False)

    @property
    def sender_id_type(self) -> SenderIdType:
        return SenderIdType(self.flags & SecurityFlags.SENDER_ID_TYPE)

    @property
    def encrypted_body(self) -> bool:
        return bool(self.flags & SecurityFlags.ENCRYPTED_BODY)

    @property
    def default_provider(self) -> bool:
        return bool(self.flags & SecurityFlags.DEFAULT_PROVIDER)

    @classmethod
    def decode(cls, reader: Reader) -> SecurityHeader:
        security_header_end(reader.data, reader.offset, reader.end)
        flags, *sizes = reader.unpack(SECURITY_LAYOUT, "SecurityHeader")
        security_id, key, signature, certificate, provider = map(reader.padded, sizes, _ITEMS)
        return cls(flags, security_id, key, signature, certificate, provider, reader.padding())

    def encode(self, writer: Writer) -> None:
        items = (self.security_id, self.encryption_key, self.signature, self.sender_certificate, self.provider_info)
        sizes = [len(item) for item in items]
        if not any(sizes):
            raise LocalProtocolError("a SecurityHeader must have a sender id, a key, a signature or a certificate")
        if max(sizes[:4]) > MAX_CERTIFICATE_SIZE:
            raise LocalProtocolError(f"an item of a SecurityHeader must have at most {MAX_CERTIFICATE_SIZE} bytes")
        sender_id_type = self.sender_id_type
        if sizes[0] != _SIZES_BY_SENDER_ID_TYPE.get(sender_id_type, sizes[0]):
            raise LocalProtocolError(f"a sender id of type {sender_id_type.name} cannot have {sizes[0]} bytes")
        writer.keep_padding(self.padding)
        writer.put(SECURITY_LAYOUT.pack(self.flags, *sizes))
        for item in items:
            writer.put(item)
            writer.align(4)


# MultiQueueFormatHeader, [MS-MQMQ] 2.2.20.1 to 2.2.20.3: all the destinations of a message with several.


_ADDRESS = Struct("<IHHI")
_SIGNATURE = Struct("<HHI")
_U16 = Struct("<H")
# No specification limits a list. Without a limit, one packet of empty names keeps its reader busy for seconds.
MAX_ELEMENTS = 4096
_SECTIONS = (SectionId.DESTINATION, SectionId.ADMINISTRATION, SectionId.RESPONSE)


@dataclass(frozen=True, slots=True)
class FormatNameElement:
    """One MQFFormatNameElement, 2.2.18.1.4: a GUID, a GUID and a number, or a direct name."""

    format_type: FormatType
    guid: UUID | None = None
    number: int | None = None
    direct_name: str | None = None

    @classmethod
    def decode(cls, reader: Reader, align_public: bool) -> FormatNameElement:
        start = reader.offset
        (code,) = reader.unpack(_U16, "FormatType")
        match code:
            case FormatType.PUBLIC:
                if align_public:
                    reader.align(4, "a public element")
                return cls(FormatType.PUBLIC, guid=reader.guid("a public element"))
            case FormatType.PRIVATE:
                reader.align(4, "a private element")
                guid = reader.guid("a private element")
                return cls(FormatType.PRIVATE, guid, reader.unpack(_U32, "a private element")[0])
            case FormatType.DIRECT:
                reader.align(2, "a direct element")
                return cls(FormatType.DIRECT, direct_name=reader.text_to_nul("a direct element"))
            case FormatType.DISTRIBUTION_LIST:
                reader.align(4, "a distribution list element")
                return cls(FormatType.DISTRIBUTION_LIST, guid=reader.guid("a distribution list element"))
        raise RemoteProtocolError(f"format type {code} is not defined", start)

    def encode(self, writer: Writer, align_public: bool) -> None:
        writer.put(_U16.pack(self.format_type))
        if self.direct_name is not None:
            writer.align(2)
            writer.put(encode_text(self.direct_name, "a direct name"))
            return
        assert self.guid is not None
        if self.format_type is not FormatType.PUBLIC or align_public:
            writer.align(4)
        writer.put(self.guid.bytes_le)
        if self.number is not None:
            writer.put(_U32.pack(self.number))


@dataclass(frozen=True, slots=True)
class AddressHeader:
    """MQFAddressHeader, 2.2.20.2: a list of queues."""

    elements: tuple[FormatNameElement, ...] = ()
    reserved: int = 0
    # The specification does not say whether a public GUID is aligned, or whether HeaderSize counts the last padding.
    align_public: bool = field(default=False, compare=False)
    header_size: int = field(default=0, compare=False, repr=False)
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader, expected: SectionId) -> AddressHeader:
        start = reader.offset
        size, section_id, reserved, count = reader.unpack(_ADDRESS, "MQFAddressHeader")
        if section_id != expected:
            raise RemoteProtocolError(f"section must be {expected:#06x}, got {section_id:#06x}", start + 4)
        if size < _ADDRESS.size or start + size > reader.end:
            raise RemoteProtocolError(f"HeaderSize {size} does not fit its packet", start)
        if count > size:  # this limits the loop: the shortest element is longer than a byte
            raise RemoteProtocolError(f"{count} elements do not fit a HeaderSize of {size}", start + 8)
        if count > MAX_ELEMENTS:
            raise RemoteProtocolError(f"a list of {count} queues is longer than {MAX_ELEMENTS}", start + 8)
        fault: RemoteProtocolError | None = None
        for align_public in (False, True):
            attempt = Reader(reader.data, reader.offset, start + size)
            try:
                elements = tuple(FormatNameElement.decode(attempt, align_public) for _ in range(count))
                if aligned(attempt.offset) != aligned(start + size):
                    raise RemoteProtocolError(f"HeaderSize {size} is larger than its {count} elements", attempt.offset)
            except RemoteProtocolError as error:
                fault = fault or error
                continue
            attempt.end = reader.end
            attempt.align(4, "MQFAddressHeader")
            reader.offset = attempt.offset
            return cls(elements, reserved, align_public, size, attempt.padding())
        assert fault is not None
        raise fault

    def encode(self, writer: Writer, section_id: SectionId) -> None:
        if len(self.elements) > MAX_ELEMENTS:
            raise LocalProtocolError(f"a list of {len(self.elements)} queues is longer than {MAX_ELEMENTS}")
        body = Writer()
        body.size = writer.size + _ADDRESS.size  # alignment counts from the packet's start
        body.keep_padding(self.padding)
        for element in self.elements:
            element.encode(body, self.align_public)
        body.align(4)
        size = body.size - writer.size
        if aligned(self.header_size) == size:
            size = self.header_size
        writer.put(_ADDRESS.pack(size, section_id, self.reserved, len(self.elements)))
        writer.put(body.getvalue())


@dataclass(frozen=True, slots=True)
class MultiQueueFormatHeader:
    """Three lists of queues and one signature over them."""

    destination: AddressHeader = AddressHeader()
    administration: AddressHeader = AddressHeader()
    response: AddressHeader = AddressHeader()
    signature: bytes = b""
    signature_reserved: int = 0
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> MultiQueueFormatHeader:
        destination, administration, response = (AddressHeader.decode(reader, section) for section in _SECTIONS)
        start = reader.offset
        section_id, reserved, size = reader.unpack(_SIGNATURE, "MQFSignatureHeader")
        if section_id != SectionId.SIGNATURE:
            raise RemoteProtocolError(f"section must be {SectionId.SIGNATURE:#06x}, got {section_id:#06x}", start)
        signature = reader.take(size, "MQFSignatureHeader.Signature")
        reader.align(4, "MQFSignatureHeader")
        return cls(destination, administration, response, signature, reserved, reader.padding())

    def encode(self, writer: Writer) -> None:
        for section, addresses in zip(_SECTIONS, (self.destination, self.administration, self.response), strict=True):
            addresses.encode(writer, section)
        writer.keep_padding(self.padding)
        writer.put(_SIGNATURE.pack(SectionId.SIGNATURE, self.signature_reserved, len(self.signature)))
        writer.put(self.signature)
        writer.align(4)


# TransactionHeader, [MS-MQMQ] 2.2.20.5, and the TxSequenceID of 2.2.18.1.2.


TRANSACTION_LAYOUT = Struct("<IIIII")
SEQUENCE_ID = Struct("<II")
_CONNECTOR_QM_GUID = TransactionFlags.CONNECTOR_QM_GUID.value


@total_ordering
@dataclass(frozen=True, slots=True)
class TxSequenceId:
    """Identifies a sequence of transactional messages. Ordinal comes first on the wire, TimeStamp in comparisons."""

    ordinal: int
    time_stamp: int

    def __lt__(self, other: TxSequenceId) -> bool:
        return (self.time_stamp, self.ordinal) < (other.time_stamp, other.ordinal)

    @property
    def value(self) -> int:
        """The identifier as a 64-bit number, for SEQUENCE_INFO and comparisons."""
        return self.time_stamp << 32 | self.ordinal


@dataclass(frozen=True, slots=True)
class TransactionHeader:
    """A message is transactional if it has this header."""

    sequence_id: TxSequenceId
    sequence_number: int
    previous_sequence_number: int = 0
    flags: int = 0
    connector_qm_guid: UUID | None = None

    @property
    def final_ack_required(self) -> bool:
        return bool(self.flags & TransactionFlags.FINAL_ACK)

    @property
    def first_in_transaction(self) -> bool:
        return bool(self.flags & TransactionFlags.FIRST)

    @property
    def last_in_transaction(self) -> bool:
        return bool(self.flags & TransactionFlags.LAST)

    @property
    def transaction_id(self) -> int:
        return (self.flags & TransactionFlags.IDENTIFIER) >> TRANSACTION_ID_SHIFT

    @classmethod
    def decode(cls, reader: Reader) -> TransactionHeader:
        flags, ordinal, time_stamp, number, previous = reader.unpack(TRANSACTION_LAYOUT, "TransactionHeader")
        connector = reader.guid("ConnectorQMGuid") if flags & _CONNECTOR_QM_GUID else None
        return cls(TxSequenceId(ordinal, time_stamp), number, previous, flags, connector)

    def encode(self, writer: Writer) -> None:
        flags = self.flags & ~_CONNECTOR_QM_GUID
        if self.connector_qm_guid is not None:
            flags |= _CONNECTOR_QM_GUID
        sequence = self.sequence_id
        writer.put(
            TRANSACTION_LAYOUT.pack(
                flags, sequence.ordinal, sequence.time_stamp, self.sequence_number, self.previous_sequence_number
            )
        )
        if self.connector_qm_guid is not None:
            writer.put(self.connector_qm_guid.bytes_le)


# SoapHeader, [MS-MQMQ] 2.2.20.7: the SOAP envelope of a message, as two strings.


_SECTION = Struct("<HHI")
SECTION_SIZE = _SECTION.size  # of what is before the text
_HEADER, _BODY = SectionId.SOAP_HEADER.value, SectionId.SOAP_BODY.value


@dataclass(frozen=True, slots=True)
class SoapHeader:
    """A SOAP envelope. `header` and `body` are None if the packet has no unit of them, not even a terminator."""

    header: str | None
    body: str | None
    reserved: tuple[int, int] = (0, 0)
    aligned: bool = field(default=True, compare=False)  # whether the second section starts on a 4-byte boundary
    padding: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def decode(cls, reader: Reader) -> SoapHeader:
        header, reserved = _decode_section(reader, SectionId.SOAP_HEADER)
        # The specification gives no padding rule between the sections: we accept both with and without padding.
        boundary = -(-reader.offset // 4) * 4
        is_aligned = boundary == reader.offset or _section_id(reader.data, boundary, reader.end) == SectionId.SOAP_BODY
        if is_aligned:
            reader.align(4, "SoapHeader.Header")
        body, reserved1 = _decode_section(reader, SectionId.SOAP_BODY)
        reader.align(4, "SoapHeader.Body")
        return cls(header, body, (reserved, reserved1), is_aligned, reader.padding())

    def encode(self, writer: Writer) -> None:
        writer.keep_padding(self.padding)
        writer.put(_encode_section(_HEADER, self.reserved[0], self.header))
        if self.aligned:
            writer.align(4)
        writer.put(_encode_section(_BODY, self.reserved[1], self.body))
        writer.align(4)


def soap_sections(header: str, body: str) -> bytes:
    """A SoapHeader as `encode` writes it, starting at a 4-byte boundary."""
    first, second = _encode_section(_HEADER, 0, header), _encode_section(_BODY, 0, body)
    return b"".join((first, bytes(-len(first) % 4), second, bytes(-len(second) % 4)))


def soap_header_end(data: bytes, offset: int, end: int) -> int:
    """Checks a SoapHeader with both its sections and returns the offset of its end.

    -1 means that the header has another form. Then `decode` reads it or reports the fault.
    """
    for expected in (_HEADER, _BODY):
        if offset + _SECTION.size > end:
            return -1
        section_id, _, units = _SECTION.unpack_from(data, offset)
        offset += _SECTION.size
        stop = offset + 2 * units
        if section_id != expected or not units or stop > end:
            return -1
        check_text(data, offset, stop, "SoapHeader string")
        offset = stop + 3 & ~3
    return offset


def _section_id(data: bytes, offset: int, end: int) -> int:
    return int.from_bytes(data[offset : min(offset + 2, end)], "little")


def _decode_section(reader: Reader, expected: SectionId) -> tuple[str | None, int]:
    start = reader.offset
    section_id, reserved, units = reader.unpack(_SECTION, "SoapHeader section")
    if section_id != expected:
        raise RemoteProtocolError(f"SoapHeader section must be {expected:#06x}, got {section_id:#06x}", start)
    return (reader.text(2 * units, "SoapHeader string") if units else None), reserved


def _encode_section(section_id: int, reserved: int, text: str | None) -> bytes:
    data = b"" if text is None else encode_text(text, "a SoapHeader string")
    return _SECTION.pack(section_id, reserved, len(data) // 2) + data


# DebugHeader, [MS-MQMQ] 2.2.20.8: the queue for the trace reports of a message.


_TRACE_LAYOUT = Struct("<HH")
QUEUE_TYPE_MASK = 0x0003  # QT
QUEUE_TYPE_PUBLIC = 1


@dataclass(frozen=True, slots=True)
class DebugHeader:
    """The queue for trace reports. `queue_identifier` is a public queue, or None."""

    queue_identifier: UUID | None = None
    flags: int = 0
    reserved: int = 0

    @classmethod
    def decode(cls, reader: Reader) -> DebugHeader:
        start = reader.offset
        flags, reserved = reader.unpack(_TRACE_LAYOUT, "DebugHeader")
        if (queue_type := flags & QUEUE_TYPE_MASK) > QUEUE_TYPE_PUBLIC:
            raise RemoteProtocolError(f"DebugHeader queue type {queue_type} is not defined", start)
        return cls(reader.guid("DebugHeader.QueueIdentifier") if queue_type else None, flags, reserved)

    def encode(self, writer: Writer) -> None:
        queue_type = QUEUE_TYPE_PUBLIC if self.queue_identifier else 0
        writer.put(_TRACE_LAYOUT.pack(self.flags & ~QUEUE_TYPE_MASK | queue_type, self.reserved))
        if self.queue_identifier:
            writer.put(self.queue_identifier.bytes_le)
