"""A packet that leaves by SOAP, as an envelope and what is attached to it, [MC-MQSRM] 3.1.7.2.4; and what a packet
still knows of the envelope that it came with. The way in is in packets.py.
"""

from __future__ import annotations

from uuid import UUID

from postroad.errors import IllegalName, LocalProtocolError, MalformedSoap, RemoteProtocolError
from postroad.message import DEFAULT_PRIORITY
from postroad.names import DistributionListName, FormatName, MessageId, PathName, PrivateName, PublicName
from postroad.soap.addresses import MSMQ_PREFIX, Resolve, is_http, receipt_url, to_text, via_text
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
from postroad.soap.fast_envelope import END, START
from postroad.soap.packets import NOT_IDENTIFIED
from postroad.soap.texts import message_id_text, to_xml_text
from postroad.wire.constants import (
    INFINITE,
    AckFlags,
    FormatType,
    HashAlgorithm,
    MessageClass,
    QueueCode,
    TransactionFlags,
    UserFlags,
)
from postroad.wire.layout import NULL_GUID
from postroad.wire.multi_queue_header import AddressHeader, FormatNameElement, MultiQueueFormatHeader
from postroad.wire.properties_header import NO_CORRELATION
from postroad.wire.queue_names import MULTICAST_PREFIX, admin_name, destination_name, response_name
from postroad.wire.security_header import ProviderInfo
from postroad.wire.transaction_header import TransactionHeader
from postroad.wire.view import MessageView

_POSITIVE_ARRIVAL = AckFlags.POSITIVE_ARRIVAL.value
_POSITIVE_RECEIVE = AckFlags.POSITIVE_RECEIVE.value
_NEGATIVE_RECEIVE = AckFlags.NEGATIVE_RECEIVE.value
_RECEIVE = _POSITIVE_RECEIVE | _NEGATIVE_RECEIVE
_NO_LISTS = MultiQueueFormatHeader()
_RESPONSE_QUEUE = UserFlags.RESPONSE_QUEUE.value
_FINAL_ACK = TransactionFlags.FINAL_ACK.value


def action_of(label: str | None) -> str:
    """3.1.7.2.4; what XML cannot hold is shown as U+FFFD."""
    return "" if label is None else LABEL_PREFIX + to_xml_text(label)


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
        path=Path(action_of(view.label), to_text(name), message_id_text(message_id), _via(view)),
        properties=Properties(expiry, sent),
        services=_services(view, resolve),
        stream=stream,
        msmq=_told_msmq(view, expiry)
        if stream is None and message_id == NOT_IDENTIFIED
        else _msmq(view, message_id.guid, expiry),
        signature=signature_of(view),
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
    if not view.user_flags & _RESPONSE_QUEUE:
        return None
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
    msmq = _msmq(view, NULL_GUID, expiry)
    defaults = Msmq(MessageClass.NORMAL, DEFAULT_PRIORITY, NULL_GUID, expiry, hash_algorithm=HashAlgorithm.SHA1)
    return None if msmq == defaults else msmq


def _msmq(view: MessageView, source: UUID, expiry: int) -> Msmq:
    correlation = view.correlation_id
    security = view.security_header
    lists = view.multi_queue_header or _NO_LISTS
    return Msmq(
        message_class=view.message_class,
        priority=view.priority,
        source_qm_guid=source,
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
        if is_http(element.direct_name):
            return element.direct_name
        if element.direct_name[: len(MULTICAST_PREFIX)].upper() == MULTICAST_PREFIX:
            return f"{MSMQ_PREFIX}{element.direct_name}"
        return f"{MSMQ_PREFIX}DIRECT={element.direct_name}"
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


def signature_of(view: MessageView) -> Signature | None:
    """The signature that a message came with. It goes on with it: only its author could make another."""
    soap = view.soap_header
    if soap is None or soap.header is None or "Signature" not in soap.header:
        return None
    envelope = received_envelope_of(view)
    return None if envelope is None else envelope.signature
