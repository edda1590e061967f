"""Messages that came by multicast, into the queues that listen to their address, [MC-MQSRM] 3.1.5.1.3 and 3.1.5.1.12.

What is refused is counted, and its sender never hears of it. Receipts go out only where `receipts` is set, by HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count

from postroad.deadlines import earliest
from postroad.errors import IllegalName, MalformedSoap, ManagerFull
from postroad.names import MulticastName
from postroad.queues.access import Credentials
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.security.access import Token
from postroad.security.refusals import EXPIRED, WRONG_DIGEST
from postroad.soap.addresses import destination_of, is_http
from postroad.soap.elements import Attachments, Envelope, Services
from postroad.soap.envelope import is_receipt, read_envelope
from postroad.soap.multipart import split_entity
from postroad.soap.packets import NOT_IDENTIFIED, identifier_of, packet_of
from postroad.soap.receiver import late_facts
from postroad.soap.signature import check_signature
from postroad.transfer.arrivals import MessageIdHistory, foreign_id, overflow, refusal
from postroad.transfer.watching import TransferWatcher
from postroad.wire.constants import MessageClass
from postroad.wire.view import MessageView

HISTORY_STATE = "multicast-history/"
DUPLICATES, DUPLICATES_S = 10_000, 1800  # as over HTTP, note 16
_EVERYONE = Credentials(Token.everyone())


@dataclass(frozen=True, slots=True)
class ReceiptSettings:
    """Every receiver of a message answers it, so each of them waits: up to `delay_s` seconds, by chance."""

    enabled: bool = False
    delay_s: float = 5.0
    waiting: int = 1000  # that wait at the most: no receipt is sent for a message that arrives then


class MulticastReceiver:
    """One for a queue manager. `bindings` are the queues that listen, by address. `chance` gives 0 to 1."""

    def __init__(
        self,
        core: LocalQueueManager,
        accept_hashes: frozenset[str],
        clock_tolerance_s: float,
        watcher: TransferWatcher,
        receipts: ReceiptSettings,
        chance: Callable[[], float],
    ) -> None:
        self.core = core
        self._receipts = receipts
        self._chance = chance
        self._number = count()
        self._arrived: list[tuple[float, int, MessageView]] = []  # delivery receipts that wait, the next first
        self.bindings: dict[MulticastName, list[Queue]] = {}
        self.history = MessageIdHistory(core.store, DUPLICATES, DUPLICATES_S, HISTORY_STATE)
        self.taken = self.refused = 0  # messages, since the start
        self._accept_hashes = accept_hashes
        self._clock_tolerance_s = clock_tolerance_s
        self._watcher = watcher

    def take(self, content_type: str, entity: bytes, address: str, now: float) -> bool:
        """Whether it is a message for a queue here. What cannot be read is refused."""
        try:
            text, attachments = split_entity(content_type, entity)
            envelope = read_envelope(text)
            name = destination_of(envelope.path.to)
            if not isinstance(name, MulticastName) or name not in self.bindings:
                raise MalformedSoap("path/to", f"no queue here listens to {envelope.path.to[:80]}")
            if envelope.stream is not None or is_receipt(envelope):
                raise MalformedSoap("envelope", "streams and receipts do not come by multicast")
            with self.core.delivery.atomic:
                self._take(name, envelope, attachments, address, now)
        except ManagerFull as fault:
            self.refuse(address, str(fault))
        except (MalformedSoap, IllegalName) as fault:
            self.refuse(address, str(fault))
            return False
        return True

    def refuse(self, address: str, reason: str) -> None:
        self.refused += 1
        self._watcher.suspicious("multicast message refused", {"peer": address, "reason": reason})

    def _take(
        self, name: MulticastName, envelope: Envelope, attachments: Attachments, address: str, now: float
    ) -> None:
        """Copies for several queues share one id, so it is looked up once for all of them."""
        identifier = identifier_of(envelope)
        key = b"" if identifier == NOT_IDENTIFIED else foreign_id(identifier.to_bytes(), address)
        if key and key in self.history:
            self.history.refresh(key, now)
            return
        checked = check_signature(envelope.signature, attachments, self._accept_hashes)
        asked = _answers(envelope, self._receipts.enabled)
        packet = packet_of(
            _without_delivery_receipt(asked), attachments, int(now), name, verified=checked.verified, address=address
        )
        view = MessageView(packet)
        arrived = False
        due = now - self._clock_tolerance_s
        for queue in self.bindings[name]:
            refused = WRONG_DIGEST if checked.fault else refusal(queue, view, _EVERYONE, self.core.access, due)
            refused = refused or overflow(self.core.delivery, queue, len(packet))
            if refused is None:
                self.taken += 1
                arrived = True
                self.core.delivery.arrive(queue, packet, view, now)
            else:
                self.refused += 1
                if refused is EXPIRED:
                    self._watcher.suspicious("SOAP message too late", late_facts(view, self._clock_tolerance_s, now))
                self.core.delivery.tally.refused[refused.reason] += 1
                self.core.delivery.try_after(packet, self._watcher.refused, view, refused)
        if arrived and asked.services is not None and asked.services.delivery_receipt_request is not None:
            self._schedule_receipt(MessageView(packet_of(asked, attachments, int(now), name, address=address)), now)
        if key:
            self.history.add(key, now, self.core.delivery.tick if view.recoverable else None, address)

    # Delivery receipts: one for a message, however many queues have a copy

    @property
    def deadline(self) -> float | None:
        return earliest((self.history.deadline, self._arrived[0][0] if self._arrived else None))

    def _schedule_receipt(self, view: MessageView, now: float) -> None:
        if len(self._arrived) < self._receipts.waiting:
            heappush(self._arrived, (now + self._chance() * self._receipts.delay_s, next(self._number), view))

    def on_timer(self, now: float) -> None:
        self.history.clean(now)
        while self._arrived and self._arrived[0][0] <= now:
            view = heappop(self._arrived)[2]
            self.core.delivery.try_after(
                view.data, self.core.delivery.acknowledge, view, MessageClass.ACK_REACH_QUEUE, now
            )


def _answers(envelope: Envelope, receipts: bool) -> Envelope:
    """What a message may ask for: receipts by HTTP alone and where they are on, and no dead letters or journals here of
    a message of others."""
    services = envelope.services
    if services is not None:
        delivery, commitment = services.delivery_receipt_request, services.commitment_receipt_request
        if delivery is not None and not (receipts and is_http(delivery.send_to)):
            delivery = None
        if commitment is not None and not (receipts and is_http(commitment.send_to)):
            commitment = None
        services = Services(services.durable, delivery, commitment)
    msmq = envelope.msmq
    if msmq is not None and (msmq.journal or msmq.dead_letter or msmq.trace):
        msmq = replace(msmq, journal=False, dead_letter=False, trace=False)
    return replace(envelope, services=services, msmq=msmq)


def _without_delivery_receipt(envelope: Envelope) -> Envelope:
    """It is sent later, and not by the queue that the message reaches."""
    if envelope.services is None or envelope.services.delivery_receipt_request is None:
        return envelope
    return replace(envelope, services=replace(envelope.services, delivery_receipt_request=None))
