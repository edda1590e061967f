"""A packet that leaves by SOAP, [MC-MQSRM] 3.1.7.2.4: its envelope, its request, and receipts, 3.1.1.3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from struct import Struct
from uuid import UUID

from postroad.errors import IllegalName, LocalProtocolError, MalformedSoap, RemoteProtocolError
from postroad.message import DEFAULT_PRIORITY, Message
from postroad.names import (
    DirectName,
    DistributionListName,
    FormatName,
    MessageId,
    MulticastName,
    PathName,
    PrivateName,
    PublicName,
    QueueKind,
)
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.soap.addresses import (
    MSMQ_PREFIX,
    Redirections,
    Resolve,
    destination_of,
    is_http,
    own_url,
    receipt_url,
    request_target,
    to_text,
    url_of,
    via_text,
)
from postroad.soap.elements import (
    LABEL_PREFIX,
    NEGATIVE,
    NO_EXPIRY,
    POSITIVE,
    Attachments,
    CommitmentReceipt,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceipt,
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
    StreamReceipt,
)
from postroad.soap.envelope import END, START, read_envelope, write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.packets import NOT_IDENTIFIED
from postroad.soap.sender import Flight
from postroad.soap.simple_types import message_id_text, to_xml_text
from postroad.wire.constants import (
    DEFAULT_TIME_TO_REACH_QUEUE_S,
    INFINITE,
    AckFlags,
    FormatType,
    HashAlgorithm,
    MessageClass,
    QueueCode,
    TransactionFlags,
    UserFlags,
)
from postroad.wire.headers import (
    NO_CORRELATION,
    AddressHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    ProviderInfo,
    TransactionHeader,
    TxSequenceId,
)
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import LABEL
from postroad.wire.queue_names import MULTICAST_PREFIX, admin_name, destination_name, response_name
from postroad.wire.view import MessageView

# A packet that leaves by SOAP, as an envelope with attachments, [MC-MQSRM] 3.1.7.2.4; and what a packet still contains
# of the envelope that it came with. packets.py has the way in.


_POSITIVE_ARRIVAL = AckFlags.POSITIVE_ARRIVAL.value
_POSITIVE_RECEIVE = AckFlags.POSITIVE_RECEIVE.value
_NEGATIVE_RECEIVE = AckFlags.NEGATIVE_RECEIVE.value
_RECEIVE = _POSITIVE_RECEIVE | _NEGATIVE_RECEIVE
_NO_LISTS = MultiQueueFormatHeader()
_RESPONSE_QUEUE = UserFlags.RESPONSE_QUEUE.value
_FINAL_ACK = TransactionFlags.FINAL_ACK.value


def action_of(label: str | None) -> str:
    """3.1.7.2.4. U+FFFD stands for each character that XML cannot express."""
    return "" if label is None else LABEL_PREFIX + to_xml_text(label)


def nowhere(name: FormatName) -> PathName | None:
    """A Resolve that finds no queue."""
    return None


def envelope_of(
    view: MessageView, stream: Stream | None = None, resolve: Resolve = nowhere, destination: FormatName | None = None
) -> Envelope:
    """The envelope of a packet that leaves by SOAP, built as in 3.1.7.2.4. LocalProtocolError if there can be none.

    `stream` is the place of a transactional message in its stream. `resolve` finds the path of an administration queue
    that is named by an identifier. If it finds none, the envelope asks for no receipts. `destination` replaces the
    packet's own.
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
        msmq=_msmq_or_none(view, expiry)
        if stream is None and message_id == NOT_IDENTIFIED
        else _msmq(view, message_id.guid, expiry),
        signature=signature_of(view),
    )


def attachments_of(view: MessageView) -> Attachments:
    """What travels beside the envelope of a packet. An empty body is not attached."""
    return Attachments(view.body or None, view.extension or None)


def soap_envelope_of(view: MessageView) -> str | None:
    """SoapEnvelope, [MS-MQDMPR] 3.1.1.12: the text of the envelope that a message came with. None if it had none."""
    soap = view.soap_header
    if soap is None or soap.header is None:
        return None
    return f"{START}{soap.header}{soap.body or ''}{END}"


def received_envelope_of(view: MessageView) -> Envelope | None:
    """The envelope that a message came with, parsed again. None if the packet contains none."""
    text = soap_envelope_of(view)
    try:
        return None if text is None else read_envelope(text.encode("utf-8", "surrogatepass"))
    except MalformedSoap:
        return None  # an application can put anything into a SoapHeader


def commitment_url_of(view: MessageView) -> str | None:
    """2.2.5.5: a commitment receipt goes to its own sendTo, for which a packet has no field."""
    envelope = received_envelope_of(view)
    if envelope is not None and envelope.services is not None:
        request = envelope.services.commitment_receipt_request
        if request is not None:
            return request.send_to
    field = view.admin_queue
    return field.direct_name if field.code is QueueCode.DIRECT and is_http(field.direct_name) else None


def stream_id_of(view: MessageView) -> StreamId | None:
    """The stream of a received message; None if it belongs to none."""
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
        return None  # nobody could answer to this name
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


def _msmq_or_none(view: MessageView, expiry: int) -> Msmq | None:
    """None for a message that came without Msmq. The element would add only an id, and all such messages have the same
    one: the receiver would take them for duplicates."""
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
    """The signature that a message came with. It is passed on, because only the author could make another."""
    soap = view.soap_header
    if soap is None or soap.header is None or "Signature" not in soap.header:
        return None
    envelope = received_envelope_of(view)
    return None if envelope is None else envelope.signature


# Receipts, [MC-MQSRM] 3.1.1.3: the receipts of streams, and how classes of acknowledgments are written. Delivery and
# commitment receipts are the acknowledgments that queues send anyway, in the form of SOAP.


_RECEIPT = Struct("<16sIII")  # a stream receipt in a packet of ours: the stream, and lastOrdinal

# 3.1.7.3.1 and 3.1.7.3.3: the reasons for a negative receipt. `written_class` replaces those that it cannot express.
REMOVED_UNREAD = NEGATIVE | {MessageClass.NACK_RECEIVE_REJECTED}
REPORTED = REMOVED_UNREAD | POSITIVE


def decision(message_class: int) -> Decision:
    return Decision.POSITIVE if message_class in POSITIVE else Decision.NEGATIVE


def written_class(reason: int) -> int:
    """The class that a receipt gives for a reason. It is one that the receiver knows."""
    return reason if reason in POSITIVE | NEGATIVE else MessageClass.NACK_DELETED


def admin_of(view: MessageView, message_class: int) -> FormatName | None:
    """2.2.5.2.3: where receipts go. Those of one message can go to two places."""
    if view.arrived_by_http and message_class != MessageClass.ACK_REACH_QUEUE:
        url = commitment_url_of(view)
        if url is not None:
            return DirectName.from_wire(url)
    return admin_name(view)


def stream_receipt(
    stream_id: StreamId,
    last_ordinal: int,
    queue: FormatName | None,
    *,
    final_class: int | None = None,
    original: bytes | None = None,
) -> Message:
    """What goes into the outgoing queue: a stream receipt, 3.1.6.3; or, with a class and the id of the `original`
    message, a final one, 3.1.7.3.3.

    A stream receipt is repeated on request. Nobody asks for a final receipt again, so it is recoverable.
    """
    sequence = stream_id.sequence
    return Message(
        label=LABEL,
        message_class=MessageClass.ORDER_ACK if final_class is None else written_class(final_class),
        recoverable=final_class is not None,
        priority=0,
        correlation_id=original,
        response_queue=queue,
        extension=_RECEIPT.pack(stream_id.guid.bytes_le, sequence.ordinal, sequence.time_stamp, last_ordinal),
        time_to_reach_queue=INFINITE,
    )


def stream_receipt_of(view: MessageView) -> StreamReceipt | None:
    """The content that `stream_receipt` has put into a packet of this manager. None for any other packet."""
    extension = view.extension
    if len(extension) != _RECEIPT.size or view.message_class == MessageClass.NORMAL or view.label != LABEL:
        return None
    guid, ordinal, time_stamp, last_ordinal = _RECEIPT.unpack(extension)
    return StreamReceipt(StreamId(UUID(bytes_le=guid), TxSequenceId(ordinal, time_stamp)), last_ordinal)


# A message of an outgoing queue as an HTTP request, [MC-MQSRM] 3.1.7.2.4 and 4.1.


_HEADERS = {"SOAPAction": '"MSMQMessage"', "Proxy-Accept": "NonInteractiveClient"}  # 4.1


@dataclass(frozen=True, slots=True)
class Request:
    """One POST: the path and query, the headers without Host and Content-Length, and the entity.

    `server_name` is the name that the certificate must have, if that is not the host that is called.
    """

    target: str
    headers: Mapping[str, str]
    body: bytes
    server_name: str | None = None


class Outgoing:
    """Builds the requests of one queue manager. `ports` are the ports that it listens on, by scheme."""

    def __init__(self, core: LocalQueueManager, redirections: Redirections) -> None:
        self.core = core
        self.redirections = redirections
        self.ports: dict[str, int] = {}

    def receipts_url(self, queue: Queue) -> str:
        """3.1.7.2.4: where the receipts of a queue's stream shall be sent."""
        name = self.core.queues.outgoing_info[queue].destination
        assert isinstance(name, DirectName)
        return self.redirections.receipts_url(url_of(name), self.core.name, self.ports)

    def request(self, flight: Flight) -> Request:
        way = self.core.queues.outgoing_info[flight.queue].destination
        assert isinstance(way, DirectName)
        view = MessageView(flight.record.packet)
        receipt = view.message_class != MessageClass.NORMAL
        name = self._receiver(view) or way if receipt else way
        attachments = Attachments() if receipt else attachments_of(view)  # 2.2.2
        text = self._passed_on(view, name)
        envelope = text if text is not None else write_envelope(self._envelope(flight, view, name))
        # A signature names the parts by the Content-Ids that their sender gave them.
        manager = self.core.identifier if text is None else view.source_queue_manager
        content_type, pieces = join_entity(envelope, attachments, manager, view.message_id)
        headers = {"Content-Type": content_type, **_HEADERS}
        server_name = name.host if name.host != way.host else None
        return Request(request_target(url_of(name)), headers, b"".join(pieces), server_name)

    def multicast(self, view: MessageView, name: MulticastName) -> tuple[str, bytes]:
        """Returns Content-Type and entity of a message to a group. Receipts can only come back by HTTP."""
        envelope = envelope_of(view, None, self._resolve, name)
        if envelope.services is not None:
            envelope = replace(envelope, services=self._reachable(envelope.services, "http://"))
        attachments = attachments_of(view)
        content_type, pieces = join_entity(write_envelope(envelope), attachments, self.core.identifier, view.message_id)
        return content_type, b"".join(pieces)

    def _receiver(self, view: MessageView) -> DirectName | None:
        """The receiver of a receipt of ours. If we call it at an address, it keeps the name that the receipt was wanted
        at."""
        if view.arrived_by_http:
            return None
        try:
            name = destination_name(view)
        except IllegalName:
            return None
        return name if isinstance(name, DirectName) and name.is_send_only else None

    def _passed_on(self, view: MessageView, name: DirectName) -> bytes | None:
        """The envelope of another manager's message, passed on as it came, except for a redirection."""
        if not view.arrived_by_http:
            return None
        envelope = received_envelope_of(view)
        if envelope is None:
            return None
        if destination_of(envelope.path.to) == name:
            text = soap_envelope_of(view)
            assert text is not None
            return text.encode("utf-8", "surrogatepass")
        return write_envelope(replace(envelope, path=replace(envelope.path, to=url_of(name)), source=None))

    def _envelope(self, flight: Flight, view: MessageView, name: DirectName) -> Envelope:
        envelope = envelope_of(view, flight.stream, self._resolve, name)
        if view.message_class != MessageClass.NORMAL:
            return self._with_receipt(envelope, view)
        services = envelope.services
        return envelope if services is None else replace(envelope, services=self._reachable(services, url_of(name)))

    def _with_receipt(self, envelope: Envelope, view: MessageView) -> Envelope:
        """3.1.1.3: adds the elements that say what an acknowledgment acknowledges."""
        assert envelope.msmq is not None
        # The values that every receipt in the samples of 4.3 and 4.4 has.
        ttrq = view.sent_time + DEFAULT_TIME_TO_REACH_QUEUE_S
        msmq = replace(envelope.msmq, app=0, hash_algorithm=0, ttrq=ttrq)
        envelope = replace(envelope, msmq=msmq)
        message_class = view.message_class
        streamed = stream_receipt_of(view)
        original = message_id_text(MessageId.from_bytes(view.correlation_id))
        if streamed is not None:
            envelope = replace(envelope, stream_receipt=streamed)
        if message_class == MessageClass.ACK_REACH_QUEUE:
            return replace(envelope, delivery_receipt=DeliveryReceipt(view.sent_time, original))
        if message_class == MessageClass.ACK_RECEIVE or message_class in REMOVED_UNREAD:
            return replace(
                envelope,
                commitment_receipt=CommitmentReceipt(view.sent_time, decision(message_class), original),
                msmq=replace(msmq, message_class=written_class(message_class)),
            )
        return envelope

    def _resolve(self, name: FormatName) -> PathName | None:
        """The path of a queue here, in the form that others have to write."""
        queue = self.core.queues.find(name) if self.core.queues.is_local(name) else None
        if queue is None:
            return None
        path = PathName.parse(f"{self.core.name}\\{queue.properties.path}")
        return None if path.tail.kind is QueueKind.SYSTEM else path

    def _reachable(self, services: Services, destination: str) -> Services:
        """The URL of one of our queues, with the scheme that we use for this peer and the port that we listen on."""
        plain = f"http://{self.core.name}/"
        delivery, commitment = services.delivery_receipt_request, services.commitment_receipt_request
        if not any(each is not None and each.send_to.startswith(plain) for each in (delivery, commitment)):
            return services
        own = own_url(destination, self.core.name, self.ports)
        if delivery is not None and delivery.send_to.startswith(plain):
            delivery = replace(delivery, send_to=f"{own}/{delivery.send_to.removeprefix(plain)}")
        if commitment is not None and commitment.send_to.startswith(plain):
            commitment = replace(commitment, send_to=f"{own}/{commitment.send_to.removeprefix(plain)}")
        return replace(services, delivery_receipt_request=delivery, commitment_receipt_request=commitment)
