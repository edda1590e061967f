"""What a message of an outgoing queue looks like as a request, [MC-MQSRM] 3.1.7.2.4 and 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from postroad.errors import IllegalName
from postroad.names import DirectName, FormatName, MessageId, MulticastName, PathName, QueueKind
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.soap.addresses import destination_of, request_target, url_of
from postroad.soap.elements import Attachments, CommitmentReceipt, DeliveryReceipt, Envelope, Services
from postroad.soap.envelope import write_envelope
from postroad.soap.mapping import attachments_of, envelope_of, received_envelope_of, soap_envelope_of
from postroad.soap.multipart import join_entity
from postroad.soap.receipts import REMOVED_UNREAD, decision, stream_receipt_of, written_class
from postroad.soap.redirection import Redirections, own_url
from postroad.soap.sender import Flight
from postroad.soap.texts import message_id_text
from postroad.wire.constants import DEFAULT_TIME_TO_REACH_QUEUE_S, MessageClass
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

_HEADERS = {"SOAPAction": '"MSMQMessage"', "Proxy-Accept": "NonInteractiveClient"}  # 4.1


@dataclass(frozen=True, slots=True)
class Request:
    """One POST: the path and query, the headers without Host and Content-Length, and the entity.

    `server_name` is whose certificate is expected, where that is not the address that is called.
    """

    target: str
    headers: Mapping[str, str]
    body: bytes
    server_name: str | None = None


class Outgoing:
    """One for a queue manager. `ports` are those that it listens on, by scheme."""

    def __init__(self, core: LocalQueueManager, redirections: Redirections) -> None:
        self.core = core
        self.redirections = redirections
        self.ports: dict[str, int] = {}

    def receipts_url(self, queue: Queue) -> str:
        """3.1.7.2.4: where the receipts of a queue's stream are to be sent."""
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
        # A signature names the parts by their Content-Ids, which are their sender's.
        manager = self.core.identifier if text is None else view.source_queue_manager
        content_type, pieces = join_entity(envelope, attachments, manager, view.message_id)
        headers = {"Content-Type": content_type, **_HEADERS}
        server_name = name.host if name.host != way.host else None
        return Request(request_target(url_of(name)), headers, b"".join(pieces), server_name)

    def multicast(self, view: MessageView, name: MulticastName) -> tuple[str, bytes]:
        """Content-Type and entity of a message to a group. Receipts can only come back by HTTP."""
        envelope = envelope_of(view, None, self._resolve, name)
        if envelope.services is not None:
            envelope = replace(envelope, services=self._reachable(envelope.services, "http://"))
        attachments = attachments_of(view)
        content_type, pieces = join_entity(write_envelope(envelope), attachments, self.core.identifier, view.message_id)
        return content_type, b"".join(pieces)

    def _receiver(self, view: MessageView) -> DirectName | None:
        """Whom a receipt of our own is for: one that is called at an address keeps the name it was asked for by."""
        if view.arrived_by_http:
            return None
        try:
            name = destination_name(view)
        except IllegalName:
            return None
        return name if isinstance(name, DirectName) and name.is_send_only else None

    def _passed_on(self, view: MessageView, name: DirectName) -> bytes | None:
        """The envelope of another manager's message goes on as it came; but for a redirection, which has to be told."""
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
        """3.1.1.3: the elements that say what an acknowledgment acknowledges."""
        assert envelope.msmq is not None
        # The samples of 4.3 and 4.4 have these values in every receipt.
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
        """The path of a queue here, as others have to write it."""
        queue = self.core.queues.find(name) if self.core.queues.is_local(name) else None
        if queue is None:
            return None
        path = PathName.parse(f"{self.core.name}\\{queue.properties.path}")
        return None if path.tail.kind is QueueKind.SYSTEM else path

    def _reachable(self, services: Services, destination: str) -> Services:
        """Our own queues by the scheme that we use for this peer, and by the port that we listen on."""
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
