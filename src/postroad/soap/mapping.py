"""A message by SOAP and the packet that is its record: [MC-MQSRM] 3.1.5.1.1 one way, 3.1.7.2.4 the other.

The packet keeps the envelope's own text in its SoapHeader, [MS-MQMQ] 2.2.20.7, so that nothing said there is lost.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from postroad.errors import IllegalName, LocalProtocolError, MalformedSoap, RemoteProtocolError
from postroad.message import DEFAULT_PRIORITY
from postroad.names import (
    DirectName,
    DistributionListName,
    FormatName,
    MessageId,
    PathName,
    PrivateName,
    PublicName,
)
from postroad.soap.addresses import (
    MSMQ_PREFIX,
    Resolve,
    destination_of,
    is_http,
    receipt_url,
    to_text,
    via_name,
    via_text,
)
from postroad.soap.elements import (
    LABEL_PREFIX,
    NO_EXPIRY,
    Attachments,
    CommitmentReceiptRequest,
    DeliveryReceiptRequest,
    Envelope,
    Eod,
    Msmq,
    Path,
    Properties,
    Provider,
    Services,
    Signature,
    Stream,
    StreamId,
)
from postroad.soap.envelope import read_envelope
from postroad.soap.texts import U32, message_id_text, parse_message_id, to_xml_text
from postroad.soap.usual import END, START
from postroad.wire.base_header import BaseHeader
from postroad.wire.constants import (
    INFINITE,
    MAX_LABEL_UNITS,
    AckFlags,
    BaseFlags,
    FormatType,
    HashAlgorithm,
    MessageClass,
    QueueCode,
    SecurityFlags,
    TransactionFlags,
    UserFlags,
)
from postroad.wire.layout import NULL_GUID
from postroad.wire.message import UserMessage
from postroad.wire.multi_queue_header import AddressHeader, FormatNameElement, MultiQueueFormatHeader
from postroad.wire.properties_header import NO_CORRELATION, MessagePropertiesHeader
from postroad.wire.queue_names import admin_name, destination_field, destination_name, other_field, response_name
from postroad.wire.security_header import ProviderInfo, SecurityHeader
from postroad.wire.soap_header import SoapHeader
from postroad.wire.trace_header import DebugHeader
from postroad.wire.transaction_header import TransactionHeader
from postroad.wire.user_header import NO_QUEUE, QueueField, UserHeader
from postroad.wire.view import MessageView

_RECOVERABLE = 0x20
_POSITIVE_ARRIVAL = AckFlags.POSITIVE_ARRIVAL.value
_POSITIVE_RECEIVE = AckFlags.POSITIVE_RECEIVE.value
_NEGATIVE_RECEIVE = AckFlags.NEGATIVE_RECEIVE.value
_RECEIVE = _POSITIVE_RECEIVE | _NEGATIVE_RECEIVE
_FINAL_ACK = TransactionFlags.FINAL_ACK.value
_JOURNAL = UserFlags.POSITIVE_JOURNALING.value
_NO_IDENTIFIER = MessageId(NULL_GUID, 1)
_DEAD_LETTER = UserFlags.NEGATIVE_JOURNALING.value


def label_of(action: str) -> str | None:
    """3.1.5.1.1: the label in an action; without its prefix it says nothing, which is no error."""
    return action.removeprefix(LABEL_PREFIX) if action.startswith(LABEL_PREFIX) else None


def action_of(label: str | None) -> str:
    """3.1.7.2.4; what XML cannot hold is shown as U+FFFD."""
    return "" if label is None else LABEL_PREFIX + to_xml_text(label)


def identifier_of(envelope: Envelope) -> MessageId:
    """3.1.5.1.1: without Msmq nothing identifies a message. Note 7: where the GUIDs differ, SourceQmGuid is right."""
    if envelope.msmq is None:
        return _NO_IDENTIFIER
    index = parse_message_id(envelope.path.id, "path/id").ordinal
    return MessageId(envelope.msmq.source_qm_guid, index)


# From SOAP to the packet


def packet_of(envelope: Envelope, attachments: Attachments, now: int, destination: FormatName | None = None) -> bytes:
    """The UserMessage packet of a received message; MalformedSoap where a value has no place in one.

    `now` stands in for a time of sending that is not told. `destination` is the queue that a multicast address led to.
    """
    message = _user_message(envelope, attachments, now, destination)
    try:
        return message.encode()
    except LocalProtocolError as error:
        if message.soap is None:
            raise MalformedSoap("entity", str(error)) from None
    try:  # the body is worth more than the text of its envelope
        return replace(message, soap=None).encode()
    except LocalProtocolError as error:
        raise MalformedSoap("entity", str(error)) from None


def _user_message(
    envelope: Envelope, attachments: Attachments, now: int, destination: FormatName | None
) -> UserMessage:
    msmq = envelope.msmq
    services = envelope.services or Services()
    stream = envelope.stream
    identifier = identifier_of(envelope)
    target, address = _destination_field(envelope, destination)
    sent_at = envelope.properties.sent_at
    sent = now if sent_at is None else sent_at
    if not 0 <= sent <= U32:
        raise MalformedSoap("properties/sentAt", "the year is not between 1970 and 2106")
    # [3.1.5.1.4] TTrq takes precedence.
    expiry = envelope.properties.expires_at if msmq is None else msmq.ttrq
    flags = _RECOVERABLE if services.durable or stream is not None else 0
    base_flags = DEFAULT_PRIORITY if msmq is None else msmq.priority
    if msmq is not None:
        if msmq.journal:
            flags |= _JOURNAL
        if msmq.dead_letter:
            flags |= _DEAD_LETTER
        if msmq.trace:
            base_flags |= BaseFlags.TRACING
    source = envelope.source
    return UserMessage(
        base=BaseHeader(flags=base_flags, time_to_reach_queue=_lifetime(expiry, sent)),
        user=UserHeader(
            source_queue_manager=identifier.guid,
            message_id=identifier.ordinal,
            destination_queue=target,
            queue_manager_address=address,
            sent_time=sent,
            flags=flags,
            admin_queue=_admin_field(services, stream),
            response_queue=_response_field(envelope.path.via, identifier.guid, address),
            connector_type=None if msmq is None else msmq.connector_type,
        ),
        properties=_properties(envelope, attachments, services),
        transaction=None if stream is None else _transaction(stream, services, msmq),
        security=_security(msmq),
        debug=DebugHeader() if msmq is not None and msmq.trace else None,
        soap=None if source is None else SoapHeader(source.header, source.body),
        multi_queue=_multi_queue(msmq),
    )


def _destination_field(envelope: Envelope, destination: FormatName | None) -> tuple[QueueField, UUID]:
    name = destination_of(envelope.path.to) if destination is None else destination
    if destination is None and isinstance(name, DirectName):
        return QueueField(QueueCode.DIRECT, direct_name=name.wire_text), NULL_GUID
    try:
        return destination_field(name)
    except LocalProtocolError as error:
        raise MalformedSoap("path/to", str(error)) from None


def _lifetime(expiry: int, sent: int) -> int:
    """Seconds from the sending on. What lies before it has expired, and what is told as no expiry never does."""
    if expiry == NO_EXPIRY:
        return INFINITE
    return min(max(expiry - sent, 0), INFINITE)


def _admin_field(services: Services, stream: Stream | None) -> QueueField:
    """One attribute serves three elements, 3.1.5.1.1: of several the delivery receipt's wins, as in sample 4.3."""
    for request in (services.delivery_receipt_request, services.commitment_receipt_request):
        if request is not None:
            return QueueField(QueueCode.DIRECT, direct_name=request.send_to)
    if stream is not None and stream.send_receipts_to is not None:
        return QueueField(QueueCode.DIRECT, direct_name=stream.send_receipts_to)
    return NO_QUEUE


def _response_field(via: str | None, source: UUID, address: UUID) -> QueueField:
    if via is None:
        return NO_QUEUE
    if is_http(via):
        return QueueField(QueueCode.DIRECT, direct_name=via)
    try:
        return other_field(via_name(via), source, address)
    except LocalProtocolError as error:
        raise MalformedSoap("path/rev/via", str(error)) from None


def _properties(envelope: Envelope, attachments: Attachments, services: Services) -> MessagePropertiesHeader:
    label = label_of(envelope.path.action)
    if label and len(label.encode("utf-16-le")) > 2 * (MAX_LABEL_UNITS - 1):
        raise MalformedSoap("path/action", f"a label has at most {MAX_LABEL_UNITS - 1} characters")
    acks = _POSITIVE_ARRIVAL if services.delivery_receipt_request is not None else 0
    commitment = services.commitment_receipt_request
    if commitment is not None:
        acks |= _POSITIVE_RECEIVE if commitment.positive_only else 0
        acks |= _NEGATIVE_RECEIVE if commitment.negative_only else 0
    header = MessagePropertiesHeader(
        body=attachments.body or b"", label=label or "", extension=attachments.extension or b"", flags=acks
    )
    msmq = envelope.msmq
    if msmq is None:
        return header
    return replace(
        header,
        message_class=msmq.message_class,
        correlation_id=msmq.correlation or NO_CORRELATION,
        body_type=msmq.body_type,
        application_tag=msmq.app or 0,
        hash_algorithm=HashAlgorithm.SHA1 if msmq.hash_algorithm is None else msmq.hash_algorithm,
    )


def _transaction(stream: Stream, services: Services, msmq: Msmq | None) -> TransactionHeader:
    flags = 0
    connector = None
    if services.commitment_receipt_request is not None:
        flags |= TransactionFlags.FINAL_ACK
    if msmq is not None and msmq.eod is not None:
        flags |= TransactionFlags.FIRST if msmq.eod.first else 0
        flags |= TransactionFlags.LAST if msmq.eod.last else 0
        connector = msmq.eod.connector_id
    # 3.1.1.2: a stream without gaps does not tell what was before.
    previous = max(stream.current - 1, 0) if stream.previous is None else stream.previous
    return TransactionHeader(stream.stream_id.sequence, stream.current, previous, flags, connector)


def _security(msmq: Msmq | None) -> SecurityHeader | None:
    if msmq is None or msmq.provider is None:
        return None
    provider = ProviderInfo(msmq.provider.type, msmq.provider.name).encode()
    return SecurityHeader(SecurityFlags.SECURITY_DATA, provider_info=provider)


def _multi_queue(msmq: Msmq | None) -> MultiQueueFormatHeader | None:
    if msmq is None or not (msmq.destination_mqf or msmq.admin_mqf or msmq.response_mqf):
        return None
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
        case DistributionListName() as name:
            return FormatNameElement(FormatType.DISTRIBUTION_LIST, guid=name.guid)
    raise MalformedSoap(place, f"{text!r} is no name of a queue")


# From the packet to SOAP


def nowhere(name: FormatName) -> PathName | None:
    """A Resolve that knows no queue."""
    return None


def envelope_of(
    view: MessageView, stream: Stream | None = None, resolve: Resolve = nowhere, destination: FormatName | None = None
) -> Envelope:
    """The envelope of a packet that leaves by SOAP, as 3.1.7.2.4 assembles it; LocalProtocolError where none can be.

    `stream` is the place of a transactional message in its stream. `resolve` finds the path of an administration queue
    that is named by an identifier: one that stays unknown cannot be told, and the receipts for it are not asked for.
    `destination` takes the place of the packet's own.
    """
    name = destination_name(view) if destination is None else destination
    if name is None:
        raise LocalProtocolError("a packet without a destination cannot leave by SOAP")
    sent = view.sent_time
    expiry = NO_EXPIRY if view.time_to_reach_queue == INFINITE else sent + view.time_to_reach_queue
    message_id = MessageId(view.source_queue_manager, view.message_id)
    return Envelope(
        path=Path(action_of(view.label), to_xml_text(to_text(name)), message_id_text(message_id), _via(view)),
        properties=Properties(expiry, sent),
        services=_services(view, resolve),
        stream=stream,
        msmq=_msmq(view, expiry) if stream is not None or message_id != _NO_IDENTIFIER else _told_msmq(view, expiry),
        signature=_signature(view),
    )


def attachments_of(view: MessageView) -> Attachments:
    """What travels beside the envelope of a packet; an empty body is no part."""
    return Attachments(view.body or None, view.extension or None)


def soap_envelope_of(view: MessageView) -> str | None:
    """SoapEnvelope, [MS-MQDMPR] 3.1.1.12: the text of the envelope that a message came with; None if by another way."""
    soap = view.soap_header
    if soap is None or soap.header is None:
        return None
    return f"{START}{soap.header}{soap.body or ''}{END}"


def received_envelope_of(view: MessageView) -> Envelope | None:
    """The envelope that a message came with, read once more; None where the packet holds none."""
    text = soap_envelope_of(view)
    try:
        return None if text is None else read_envelope(text.encode("utf-8", "surrogatepass"))
    except MalformedSoap:
        return None  # any application may fill in a SoapHeader


def commitment_url_of(view: MessageView) -> str | None:
    """2.2.5.5: where a commitment receipt goes: to its own sendTo, which a packet has no field for."""
    envelope = received_envelope_of(view)
    if envelope is not None and envelope.services is not None:
        request = envelope.services.commitment_receipt_request
        if request is not None:
            return request.send_to
    field = view.admin_queue
    return field.direct_name if field.code is QueueCode.DIRECT and is_http(field.direct_name) else None


def stream_id_of(view: MessageView) -> StreamId | None:
    """The stream that a received message is of; None for one that is of none."""
    header = view.transaction_header
    if header is None:
        return None
    envelope = received_envelope_of(view)
    if envelope is not None and envelope.stream is not None:
        return envelope.stream.stream_id
    return StreamId(view.source_queue_manager, header.sequence_id)


def _via(view: MessageView) -> str | None:
    field = view.response_queue
    if field.code is QueueCode.DIRECT and is_http(field.direct_name):
        return to_xml_text(field.direct_name)
    try:
        name = response_name(view)
    except IllegalName:
        return None  # no name that anybody could answer to
    return None if name is None else to_xml_text(via_text(name))


def _services(view: MessageView, resolve: Resolve) -> Services | None:
    acks = view.ack_flags
    transaction = view.transaction_fields
    final_ack_required = acks & _RECEIVE or (transaction is not None and transaction[0] & _FINAL_ACK)
    delivery = commitment = None
    if (acks & _POSITIVE_ARRIVAL or final_ack_required) and (send_to := _admin_url(view, resolve)) is not None:
        if acks & _POSITIVE_ARRIVAL:
            delivery = DeliveryReceiptRequest(send_to)
        if final_ack_required:
            commitment = CommitmentReceiptRequest(
                send_to, bool(acks & _POSITIVE_RECEIVE), bool(acks & _NEGATIVE_RECEIVE)
            )
    if not (view.recoverable or delivery or commitment):
        return None
    return Services(view.recoverable, delivery, commitment)


def _admin_url(view: MessageView, resolve: Resolve) -> str | None:
    try:
        name = admin_name(view)
    except IllegalName:
        return None
    url = None if name is None else receipt_url(name, resolve)
    return None if url is None else to_xml_text(url)


def _told_msmq(view: MessageView, expiry: int) -> Msmq | None:
    """None for a message that came without Msmq: all it would tell is an id that makes it a duplicate of the others."""
    msmq = _msmq(view, expiry)
    defaults = Msmq(MessageClass.NORMAL, DEFAULT_PRIORITY, NULL_GUID, expiry, hash_algorithm=HashAlgorithm.SHA1)
    return None if msmq == defaults else msmq


def _msmq(view: MessageView, expiry: int) -> Msmq:
    correlation = view.correlation_id
    security = view.security_header
    lists = view.multi_queue_header or MultiQueueFormatHeader()
    return Msmq(
        message_class=view.message_class,
        priority=view.priority,
        source_qm_guid=view.source_queue_manager,
        ttrq=expiry,
        body_type=view.body_type,
        journal=view.positive_journaling,
        dead_letter=view.negative_journaling,
        correlation=None if correlation == NO_CORRELATION else correlation,
        trace=view.tracing,
        connector_type=view.connector_type,
        app=view.application_tag or None,
        hash_algorithm=view.hash_algorithm or None,
        eod=_eod(view.transaction_header),
        provider=_provider(security.provider_info) if security is not None and security.provider_info else None,
        destination_mqf=_list(lists.destination),
        admin_mqf=_list(lists.administration),
        response_mqf=_list(lists.response),
    )


def _eod(transaction: TransactionHeader | None) -> Eod | None:
    if transaction is None:
        return None
    eod = Eod(transaction.first_in_transaction, transaction.last_in_transaction, transaction.connector_qm_guid)
    return eod if eod != Eod() else None


def _provider(data: bytes) -> Provider | None:
    try:
        provider = ProviderInfo.decode(data)
    except RemoteProtocolError:
        return None
    return Provider(provider.provider_type, to_xml_text(provider.provider_name))


def _list(addresses: AddressHeader) -> tuple[str, ...]:
    return tuple(to_xml_text(_member(element)) for element in addresses.elements)


def _member(element: FormatNameElement) -> str:
    if element.direct_name is not None:
        return element.direct_name if is_http(element.direct_name) else f"{MSMQ_PREFIX}DIRECT={element.direct_name}"
    guid = element.guid or NULL_GUID
    name: FormatName
    match element.format_type:
        case FormatType.PRIVATE:
            name = PrivateName(guid, element.number or 0)
        case FormatType.DISTRIBUTION_LIST:
            name = DistributionListName(guid)
        case _:
            name = PublicName(guid)
    return f"{MSMQ_PREFIX}{name}"


def _signature(view: MessageView) -> Signature | None:
    """The signature that the message came with goes on with it: only its author could make another."""
    soap = view.soap_header
    if soap is None or soap.header is None or "Signature" not in soap.header:
        return None
    envelope = received_envelope_of(view)
    return None if envelope is None else envelope.signature
