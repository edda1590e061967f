"""What an envelope is to queues: the type of its message, and the packet that is its record, [MC-MQSRM] 3.1.5.1.1.

The packet keeps the envelope's own text in its SoapHeader, [MS-MQMQ] 2.2.20.7, so nothing of it is lost. This is a hot
path: one pack for the fixed headers, each name is encoded once, and what many messages have in common is kept as a
form. requests.py has the way back.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import Final
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
from postroad.soap.elements import (
    LABEL_PREFIX,
    NEGATIVE,
    NO_EXPIRY,
    ORDERING_ACK,
    POSITIVE,
    Attachments,
    Decision,
    Envelope,
    Msmq,
    Services,
    Stream,
)
from postroad.soap.envelope import read_fast
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
    SECTION_SIZE,
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    ProviderInfo,
    SecurityHeader,
    TransactionHeader,
    soap_sections,
)
from postroad.wire.headers import PROPERTIES_LAYOUT as PROPERTIES
from postroad.wire.octets import NULL_GUID, Writer
from postroad.wire.patch import Pattern, brought_by, caller_field
from postroad.wire.queue_names import QueueField, destination_field, other_field
from postroad.wire.view import MessageView

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


class MessageType(Enum):
    """3.1.5.1.5"""

    USER = "user message"
    DELIVERY_RECEIPT = "delivery receipt"
    STREAM_RECEIPT = "stream receipt"
    FINAL_STREAM_RECEIPT = "final stream receipt"
    COMMITMENT_RECEIPT = "commitment receipt"


def identify(envelope: Envelope) -> MessageType | None:
    """The type of a message. None if it has no type; such a message is ignored."""
    message_class = MessageClass.NORMAL if envelope.msmq is None else envelope.msmq.message_class
    delivery, commitment = envelope.delivery_receipt is not None, envelope.commitment_receipt is not None
    match delivery, envelope.stream_receipt is not None, commitment:
        case False, False, False if message_class == MessageClass.NORMAL:
            return MessageType.USER
        case True, False, False if message_class == MessageClass.ACK_REACH_QUEUE:
            return MessageType.DELIVERY_RECEIPT
        case False, True, False if envelope.path.action == ORDERING_ACK and message_class == MessageClass.ORDER_ACK:
            return MessageType.STREAM_RECEIPT
        case False, True, True if envelope.path.action == ORDERING_ACK and _agrees(envelope, message_class):
            return MessageType.FINAL_STREAM_RECEIPT
        case False, False, True if _agrees(envelope, message_class):
            return MessageType.COMMITMENT_RECEIPT
    return None


def _agrees(envelope: Envelope, message_class: int) -> bool:
    assert envelope.commitment_receipt is not None
    positive = envelope.commitment_receipt.decision is Decision.POSITIVE
    return message_class in (POSITIVE if positive else NEGATIVE)


def label_of(action: str) -> str | None:
    """The label in an action. An action without its prefix has no label, which is not an error."""
    return action.removeprefix(LABEL_PREFIX) if action.startswith(LABEL_PREFIX) else None


def identifier_of(envelope: Envelope) -> MessageId:
    return MessageId(*_identity(envelope))


def _identity(envelope: Envelope) -> tuple[UUID, int]:
    """The id of a message; without an Msmq element it has none. Note 7: if the GUIDs differ, SourceQmGuid is right."""
    if envelope.msmq is None:
        return NOT_IDENTIFIED.guid, NOT_IDENTIFIED.ordinal
    return envelope.msmq.source_qm_guid, parse_ordinal(envelope.path.id, "path/id")


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
    source, ordinal = _identity(envelope)
    sent = now if properties.sent_at is None else properties.sent_at
    if not 0 <= sent <= U32:
        raise MalformedSoap("properties/sentAt", "the year must be between 1970 and 2106")
    target, address = _destination_field(envelope, destination)
    receipts = admin_url(services, stream)
    admin = _NO_QUEUE if receipts is None else _direct(receipts)
    response = _response_field(envelope.path.via, source, address)
    flags = target[0] << DESTINATION_SHIFT | admin[0] << ADMIN_SHIFT | response[0] << RESPONSE_SHIFT | _PROPERTIES
    parts = [target[1], admin[1], response[1]]  # each ends on a 4-byte boundary, as every header does
    if services.durable or stream is not None:
        flags |= _RECOVERABLE
    if msmq.journal:
        flags |= _JOURNAL
    if msmq.dead_letter:
        flags |= _DEAD_LETTER
    if msmq.connector_type is not None:
        flags |= _CONNECTOR_TYPE
        parts.append(msmq.connector_type.bytes_le)
    if stream is not None:
        flags |= _TRANSACTION
        parts.append(_octets(_transaction(stream, services, msmq)))
    if msmq.provider is not None or verified:
        flags |= _SECURITY
        parts.append(_octets(_security(envelope, msmq, verified)))
    parts.append(_properties(envelope, msmq, services, attachments))
    if msmq.trace:
        parts.append(_octets(DebugHeader()))
    if soap is not None:
        flags |= _SOAP
        parts.append(soap)
    if msmq.destination_mqf or msmq.admin_mqf or msmq.response_mqf:
        flags |= _MULTI_QUEUE
        parts.append(_octets(_multi_queue(msmq)))
    if caller is None:
        manager = address.bytes_le
    else:
        flags |= _ARRIVED_BY_HTTP
        manager = caller_field(caller)
    rest = b"".join(parts)
    fixed = _FIXED.pack(
        VERSION,
        0,
        msmq.priority | (_TRACED if msmq.trace else 0),
        SIGNATURE,
        _FIXED.size + len(rest),
        _lifetime(msmq.ttrq, sent),
        source.bytes_le,
        manager,
        INFINITE,
        sent,
        ordinal,
        flags,
    )
    return fixed + rest


def _written(field: QueueField) -> _Written:
    """Each name starts and ends on a 4-byte boundary, wherever it is."""
    return field.code, _octets(field)


def _octets(header: QueueField | TransactionHeader | SecurityHeader | DebugHeader | MultiQueueFormatHeader) -> bytes:
    writer = Writer()
    header.encode(writer)
    return writer.getvalue()


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


def _properties(envelope: Envelope, msmq: Msmq, services: Services, attachments: Attachments) -> bytes:
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
    size = len(fixed) + len(label) + len(extension) + len(body)
    return b"".join((fixed, label, extension, body, bytes(-size & 3)))


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


# Forms: what many messages of one sender have in common, read once.
#
# Messages that one manager sends to one queue within one second differ only in their ids and bodies. The second such
# message makes a form: its packet, with gaps for the id and the body. All further ones only fill the gaps.
#
# A form is for plain messages to a local queue: they are unsigned, belong to no stream, and want no receipt of arrival.


MAX_FORMS: Final = 256
MAX_TEXT: Final = 2048  # bytes of an envelope that can have a form, so that all forms together stay small

_ID: Final = b"<id>uuid:"  # no text that `read_fast` accepts contains markup, so this is the element in the path
_MAX_DIGITS: Final = 10
_MAX_LONG: Final = b"3999999999"  # of ten digits: it fits 32 bits


class Form:
    """`view` is a message of this form without a body. The other messages differ from it only in ids and sizes."""

    __slots__ = (
        "_ends",
        "_header",
        "_pattern",
        "_tail",
        "caller",
        "durable",
        "name",
        "priority",
        "source",
        "view",
    )

    def __init__(self, envelope: Envelope, name: DirectName, packet: bytes, header: tuple[str, str]) -> None:
        """`packet` has no body. `header` is the text around the number in the id, as the SoapHeader keeps it."""
        assert envelope.source is not None
        self.view = view = MessageView(packet)
        self.name = name
        self.priority = view.priority
        self.durable = view.recoverable
        self.source = view.source_queue_manager_bytes
        self.caller = brought_by(packet)
        self._header = header
        self._tail = envelope.source.body
        self._ends: dict[int, tuple[bytes, bytes]] = {}  # by the number of digits: the SoapHeader around it
        self._pattern = Pattern(view)

    def packet(self, digits: bytes, body: bytes) -> bytes:
        """Returns the packet of the message with this number and body. It may be larger than allowed."""
        ends = self._ends.get(len(digits))
        if ends is None:
            ends = self._ends[len(digits)] = self._soap_ends(len(digits))
        return self._pattern.filled(
            int(digits), body, b"".join((ends[0], digits.decode("ascii").encode("utf-16-le"), ends[1]))
        )

    def _soap_ends(self, digits: int) -> tuple[bytes, bytes]:
        before, after = self._header
        soap = soap_sections(f"{before}{'0' * digits}{after}", self._tail)
        at = SECTION_SIZE + len(before.encode("utf-16-le"))
        return soap[:at], soap[at + 2 * digits :]


class Forms:
    """The newest forms, by the text around the number in the id and by the address that brings the messages."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, str], Form | None] = {}  # None: seen once, or without a form

    def find(self, text: bytes, address: str) -> tuple[Form, bytes] | None:
        """The form of an envelope, and the digits of its message's number. None if the envelope has to be read."""
        if len(text) > MAX_TEXT:
            return None
        start = text.find(_ID) + len(_ID)
        stop = text.find(b"@", start, start + _MAX_DIGITS + 1)
        digits = text[start:stop]
        if not digits.isdigit() or (len(digits) == _MAX_DIGITS and digits > _MAX_LONG):
            return None
        key = (text[:start], text[stop:], address)
        try:
            form = self._known[key]
        except KeyError:
            if len(self._known) >= MAX_FORMS:
                del self._known[next(iter(self._known))]
            self._known[key] = None
            return None
        if form is None:
            form = self._known[key] = form_of(text, digits, address)
        return None if form is None else (form, digits)


def form_of(text: bytes, digits: bytes, address: str) -> Form | None:
    """Makes the form of the message with this envelope. None if the message is not plain, or not valid."""
    try:
        envelope = read_fast(text.decode("utf-8"))
        if envelope is None or not _is_plain(envelope):
            return None
        name = destination_of(envelope.path.to)
        assert envelope.source is not None
        assert envelope.properties.sent_at is not None
        if not isinstance(name, DirectName):
            return None
        packet = packet_of(envelope, Attachments(), envelope.properties.sent_at, name, address=address)
    except (MalformedSoap, UnicodeDecodeError):
        return None  # the XML reader will say what is wrong
    before, mark, rest = envelope.source.header.partition(_ID.decode())
    form = Form(envelope, name, packet, (before + mark, rest[len(digits) :]))
    return form if form.packet(digits, b"") == packet else None  # they differ if the SoapHeader was too large


def _is_plain(envelope: Envelope) -> bool:
    services, msmq = envelope.services, envelope.msmq
    return (
        envelope.stream is None
        and envelope.properties.sent_at is not None  # else the time of arrival takes its place
        and identify(envelope) is MessageType.USER
        and (services is None or not (services.delivery_receipt_request or services.commitment_receipt_request))
        and msmq is not None
        and not (msmq.journal or msmq.trace)
    )
