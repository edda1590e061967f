"""A received message becomes the packet that is its record, [MC-MQSRM] 3.1.5.1.1. requests.py has the way back.

The packet keeps the envelope's own text in its SoapHeader, [MS-MQMQ] 2.2.20.7, so nothing of it is lost. This is a hot
path: one pack for the fixed headers, and each name is encoded once.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from uuid import UUID

from postroad.errors import LocalProtocolError, MalformedSoap
from postroad.message import DEFAULT_PRIORITY
from postroad.names import (
    DirectName,
    DistributionListName,
    FormatName,
    MessageId,
    MulticastName,
    PrivateName,
    PublicName,
)
from postroad.soap.addresses import destination_of, is_http, via_name
from postroad.soap.elements import LABEL_PREFIX, NO_EXPIRY, Attachments, Envelope, Msmq, Services, Stream
from postroad.soap.simple_types import U32, parse_ordinal, shown
from postroad.wire.constants import (
    ADMIN_SHIFT,
    DESTINATION_SHIFT,
    INFINITE,
    MAX_LABEL_UNITS,
    MAX_PACKET_SIZE,
    RESPONSE_SHIFT,
    SIGNATURE,
    VERSION,
    AckFlags,
    BaseFlags,
    EncryptionAlgorithm,
    FormatType,
    HashAlgorithm,
    MessageClass,
    QueueCode,
    SecurityFlags,
    TransactionFlags,
    UserFlags,
)
from postroad.wire.headers import (
    NO_CORRELATION,
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    ProviderInfo,
    QueueField,
    SecurityHeader,
    TransactionHeader,
    soap_sections,
)
from postroad.wire.headers import PROPERTIES_LAYOUT as PROPERTIES
from postroad.wire.octets import NULL_GUID, Writer
from postroad.wire.patch import caller_field
from postroad.wire.queue_names import destination_field, other_field

NOT_IDENTIFIED = MessageId(NULL_GUID, 1)  # 3.1.5.1.1: the id of every message without an Msmq element

_FIXED = Struct("<BBHIII16s16sIIII")  # BaseHeader and the fixed part of UserHeader
_CACHED_FIELDS, _CACHED_NAME = 2048, 512  # longer names are not cached, so the cache stays small
# Plain integers, because an operation on an IntFlag takes a microsecond.
_RECOVERABLE = 0x20
_JOURNAL = UserFlags.POSITIVE_JOURNALING.value
_DEAD_LETTER = UserFlags.NEGATIVE_JOURNALING.value
_CONNECTOR_TYPE = UserFlags.CONNECTOR_TYPE.value
_TRANSACTION = UserFlags.TRANSACTION_HEADER.value
_SECURITY = UserFlags.SECURITY_HEADER.value
_PROPERTIES = UserFlags.MESSAGE_PROPERTIES_HEADER.value
_SOAP = UserFlags.SOAP_HEADER.value
_ARRIVED_BY_HTTP = 0x02000000  # AH, [MS-MQMQ] 2.2.19.2
_MULTI_QUEUE = UserFlags.MULTI_QUEUE_HEADER.value
_XML_SIGNATURE = 0x0900  # AS, [MS-MQMQ] 2.2.20.6: the digests of an XML signature are right
_TRACED = (BaseFlags.TRACING | BaseFlags.DEBUG_HEADER).value
_POSITIVE_ARRIVAL = AckFlags.POSITIVE_ARRIVAL.value
_POSITIVE_RECEIVE = AckFlags.POSITIVE_RECEIVE.value
_NEGATIVE_RECEIVE = AckFlags.NEGATIVE_RECEIVE.value
_SHA1, _RC4 = HashAlgorithm.SHA1.value, EncryptionAlgorithm.RC4.value
_NO_SERVICES = Services()

_Written = tuple[int, bytes]  # a queue name in a packet: its code in the flags, and its bytes
_NO_QUEUE: _Written = (QueueCode.NONE.value, b"")


def label_of(action: str) -> str | None:
    """The label in an action. An action without its prefix has no label, which is not an error."""
    return action.removeprefix(LABEL_PREFIX) if action.startswith(LABEL_PREFIX) else None


def identifier_of(envelope: Envelope) -> MessageId:
    """The id of a message; without an Msmq element it has none. Note 7: if the GUIDs differ, SourceQmGuid is right."""
    if envelope.msmq is None:
        return NOT_IDENTIFIED
    return MessageId(envelope.msmq.source_qm_guid, parse_ordinal(envelope.path.id, "path/id"))


def packet_of(
    envelope: Envelope,
    attachments: Attachments,
    now: int,
    destination: FormatName | None = None,
    *,
    verified: bool = False,
    address: str | None = None,
) -> bytes:
    """The UserMessage packet. MalformedSoap if a value has no place in a packet.

    `now` replaces a missing time of sending, and `destination` the one in the path. `verified` says that the digests of
    the signature are right. With `address`, the packet says that it arrived by HTTP from there; `brought_by` reads
    it.
    """
    source = envelope.source
    try:
        soap = None if source is None else soap_sections(source.header, source.body)
        packet = _packet(envelope, attachments, now, destination, soap, verified, address)
        if len(packet) > MAX_PACKET_SIZE:  # the body is worth more than the text of its envelope
            packet = _packet(envelope, attachments, now, destination, None, verified, address)
    except LocalProtocolError as error:
        raise MalformedSoap("entity", str(error)) from None
    if len(packet) > MAX_PACKET_SIZE:
        raise MalformedSoap("entity", f"the packet must have at most {MAX_PACKET_SIZE} bytes, got {len(packet)}")
    return packet


def _packet(
    envelope: Envelope,
    attachments: Attachments,
    now: int,
    destination: FormatName | None,
    soap: bytes | None,
    verified: bool,
    caller: str | None,
) -> bytes:
    properties = envelope.properties
    # Note 12: without Msmq, all its elements have their defaults, and expiresAt takes the place of TTrq.
    msmq = envelope.msmq or Msmq(MessageClass.NORMAL.value, DEFAULT_PRIORITY, NULL_GUID, properties.expires_at)
    services = envelope.services or _NO_SERVICES
    stream = envelope.stream
    identifier = identifier_of(envelope)
    sent = now if properties.sent_at is None else properties.sent_at
    if not 0 <= sent <= U32:
        raise MalformedSoap("properties/sentAt", "the year must be between 1970 and 2106")
    target, address = _destination_field(envelope, destination)
    receipts = admin_url(services, stream)
    admin = _NO_QUEUE if receipts is None else _direct(receipts)
    response = _response_field(envelope.path.via, identifier.guid, address)
    flags = target[0] << DESTINATION_SHIFT | admin[0] << ADMIN_SHIFT | response[0] << RESPONSE_SHIFT | _PROPERTIES
    writer = Writer()
    writer.size = _FIXED.size  # it is written last, when the size is known
    writer.put(target[1] + admin[1] + response[1])
    if services.durable or stream is not None:
        flags |= _RECOVERABLE
    if msmq.journal:
        flags |= _JOURNAL
    if msmq.dead_letter:
        flags |= _DEAD_LETTER
    if msmq.connector_type is not None:
        flags |= _CONNECTOR_TYPE
        writer.put(msmq.connector_type.bytes_le)
    if stream is not None:
        flags |= _TRANSACTION
        _transaction(stream, services, msmq).encode(writer)
    if msmq.provider is not None or verified:
        flags |= _SECURITY
        _security(envelope, msmq, verified).encode(writer)
    _put_properties(writer, envelope, msmq, services, attachments)
    if msmq.trace:
        DebugHeader().encode(writer)
    if soap is not None:
        flags |= _SOAP
        writer.put(soap)
    if msmq.destination_mqf or msmq.admin_mqf or msmq.response_mqf:
        flags |= _MULTI_QUEUE
        _multi_queue(msmq).encode(writer)
    if caller is None:
        manager = address.bytes_le
    else:
        flags |= _ARRIVED_BY_HTTP
        manager = caller_field(caller)
    fixed = _FIXED.pack(
        VERSION,
        0,
        msmq.priority | (_TRACED if msmq.trace else 0),
        SIGNATURE,
        writer.size,
        _lifetime(msmq.ttrq, sent),
        identifier.guid.bytes_le,
        manager,
        INFINITE,
        sent,
        identifier.ordinal,
        flags,
    )
    return fixed + writer.getvalue()


def _written(field: QueueField) -> _Written:
    """Each name starts and ends on a 4-byte boundary, wherever it is."""
    writer = Writer()
    field.encode(writer)
    return field.code, writer.getvalue()


def _direct(name: str) -> _Written:
    return _direct_cached(name) if len(name) <= _CACHED_NAME else _written_direct(name)


def _written_direct(name: str) -> _Written:
    return _written(QueueField(QueueCode.DIRECT, direct_name=name))


_direct_cached = lru_cache(_CACHED_FIELDS)(_written_direct)


def _destination_field(envelope: Envelope, destination: FormatName | None) -> tuple[_Written, UUID]:
    name = destination_of(envelope.path.to) if destination is None else destination
    if isinstance(name, DirectName):
        return _direct(name.wire_text), NULL_GUID
    try:
        field, address = destination_field(name)
    except LocalProtocolError as error:
        raise MalformedSoap("path/to", str(error)) from None
    return _written(field), address


def _lifetime(expiry: int, sent: int) -> int:
    """Seconds from the sending. A time before it means that the message has expired, NO_EXPIRY that it never does."""
    if expiry == NO_EXPIRY:
        return INFINITE
    return min(max(expiry - sent, 0), INFINITE)


def admin_url(services: Services, stream: Stream | None) -> str | None:
    """One attribute serves three elements, 3.1.5.1.1. If there are several, the delivery receipt wins, as in sample
    4.3."""
    for request in (services.delivery_receipt_request, services.commitment_receipt_request):
        if request is not None:
            return request.send_to
    return None if stream is None else stream.send_receipts_to


def _response_field(via: str | None, source: UUID, address: UUID) -> _Written:
    if via is None:
        return _NO_QUEUE
    if is_http(via):
        return _direct(via)
    # If the destination is a direct name, its manager is unknown. The source takes its place, so the field cannot say
    # "at the destination".
    manager = source if address == NULL_GUID else address
    try:
        return _written(other_field(via_name(via), source, manager))
    except LocalProtocolError as error:
        raise MalformedSoap("path/rev/via", str(error)) from None


def _put_properties(
    writer: Writer, envelope: Envelope, msmq: Msmq, services: Services, attachments: Attachments
) -> None:
    """MessagePropertiesHeader, [MS-MQMQ] 2.2.19.3."""
    text = label_of(envelope.path.action)
    label = text.encode("utf-16-le") + b"\0\0" if text else b""
    if len(label) > 2 * MAX_LABEL_UNITS:
        raise MalformedSoap("path/action", f"a label must have at most {MAX_LABEL_UNITS - 1} characters")
    acks = _POSITIVE_ARRIVAL if services.delivery_receipt_request is not None else 0
    commitment = services.commitment_receipt_request
    if commitment is not None:
        acks |= _POSITIVE_RECEIVE if commitment.positive_only else 0
        acks |= _NEGATIVE_RECEIVE if commitment.negative_only else 0
    body, extension = attachments.body or b"", attachments.extension or b""
    fixed = PROPERTIES.pack(
        acks,
        len(label) // 2,
        msmq.message_class,
        msmq.correlation or NO_CORRELATION,
        msmq.body_type,
        msmq.app or 0,
        len(body),
        len(body),
        0,
        _SHA1 if msmq.hash_algorithm is None else msmq.hash_algorithm,
        _RC4,
        len(extension),
    )
    writer.put(b"".join((fixed, label, extension, body)))
    writer.align(4)


def _transaction(stream: Stream, services: Services, msmq: Msmq) -> TransactionHeader:
    flags = 0
    connector = None
    if services.commitment_receipt_request is not None:
        flags |= TransactionFlags.FINAL_ACK
    if msmq.eod is not None:
        flags |= TransactionFlags.FIRST if msmq.eod.first else 0
        flags |= TransactionFlags.LAST if msmq.eod.last else 0
        connector = msmq.eod.connector_id
    # 3.1.1.2: in a stream without gaps, messages do not name the one before.
    previous = stream.current - 1 if stream.previous is None else stream.previous
    if not 0 <= previous < stream.current:  # nobody could acknowledge its place
        raise MalformedSoap(
            "stream", f"number {stream.current} must be greater than the number before it, {max(previous, 0)}"
        )
    return TransactionHeader(stream.stream_id.sequence, stream.current, previous, flags, connector)


def _security(envelope: Envelope, msmq: Msmq, verified: bool) -> SecurityHeader:
    """AU stays 0: digests do not show who sent a message."""
    flags = SecurityFlags.SECURITY_DATA.value
    provider = signature = b""
    if msmq.provider is not None:
        provider = ProviderInfo(msmq.provider.type, msmq.provider.name).encode()
    else:
        flags |= SecurityFlags.DEFAULT_PROVIDER.value
    if verified and envelope.signature is not None:
        flags |= _XML_SIGNATURE
        signature = envelope.signature.signature_value
    return SecurityHeader(flags, signature=signature, provider_info=provider)


def _multi_queue(msmq: Msmq) -> MultiQueueFormatHeader:
    return MultiQueueFormatHeader(
        _address_header(msmq.destination_mqf, "Msmq/DestinationMqf"),
        _address_header(msmq.admin_mqf, "Msmq/AdminMqf"),
        _address_header(msmq.response_mqf, "Msmq/ResponseMqf"),
    )


def _address_header(members: tuple[str, ...], place: str) -> AddressHeader:
    return AddressHeader(tuple(_element(member, place) for member in members))


def _element(text: str, place: str) -> FormatNameElement:
    if is_http(text):
        return FormatNameElement(FormatType.DIRECT, direct_name=text)
    match via_name(text, place):
        case PublicName(journal=False) as name:
            return FormatNameElement(FormatType.PUBLIC, guid=name.guid)
        case PrivateName(journal=False) as name:
            return FormatNameElement(FormatType.PRIVATE, name.guid, name.number)
        case DirectName() as name:
            return FormatNameElement(FormatType.DIRECT, direct_name=name.wire_text)
        case MulticastName() as name:
            return FormatNameElement(FormatType.DIRECT, direct_name=str(name))
        case DistributionListName() as name:
            return FormatNameElement(FormatType.DISTRIBUTION_LIST, guid=name.guid)
    raise MalformedSoap(place, f"must be the name of a queue, got {shown(text)}")
