"""Messages that came by multicast, into the queues that listen to their address, [MC-MQSRM] 3.1.5.1.3 and 3.1.5.1.12.

Nobody answers: what is refused is counted, and its sender never hears of it.
"""

from __future__ import annotations

from dataclasses import replace

from postroad.errors import IllegalName, MalformedSoap, ManagerFull
from postroad.names import MulticastName
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.security.access import Token
from postroad.security.refusals import WRONG_DIGEST
from postroad.soap.addresses import destination_of
from postroad.soap.elements import Attachments, Envelope
from postroad.soap.envelope import is_receipt, read_envelope
from postroad.soap.multipart import split_entity
from postroad.soap.packets import NOT_IDENTIFIED, identifier_of, packet_of
from postroad.soap.signature import check_signature
from postroad.transfer.arrivals import Credentials, MessageIdHistory, foreign_id, overflow, refusal
from postroad.transfer.watching import TransferWatcher
from postroad.wire.view import MessageView

HISTORY_STATE = "multicast-history/"
DUPLICATES, DUPLICATES_S = 10_000, 1800  # as over HTTP, note 16
_EVERYONE = Credentials(Token.everyone())


class MulticastReceiver:
    """One for a queue manager. `bindings` are the queues that listen, by address."""

    def __init__(self, core: LocalQueueManager, accept_hashes: frozenset[str], watcher: TransferWatcher) -> None:
        self.core = core
        self.bindings: dict[MulticastName, list[Queue]] = {}
        self.history = MessageIdHistory(core.store, DUPLICATES, DUPLICATES_S, HISTORY_STATE)
        self.taken = self.refused = 0  # messages, since the start
        self._accept_hashes = accept_hashes
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
        envelope = _without_answers(envelope)
        packet = packet_of(envelope, attachments, int(now), name, verified=checked.verified, address=address)
        view = MessageView(packet)
        for queue in self.bindings[name]:
            refused = WRONG_DIGEST if checked.fault else refusal(queue, view, _EVERYONE, self.core.access, now)
            refused = refused or overflow(self.core.delivery, queue, len(packet))
            if refused is None:
                self.taken += 1
                self.core.delivery.arrive(queue, packet, view, now)
            else:
                self.refused += 1
                self.core.delivery.tally.refused[refused.reason] += 1
                self.core.delivery.try_after(packet, self._watcher.refused, view, refused)
        if key:
            self.history.add(key, now, self.core.delivery.tick if view.recoverable else None, address)


def _without_answers(envelope: Envelope) -> Envelope:
    """Every receiver would answer at once: no receipts, and no dead letters or journals of another's message here."""
    services = envelope.services
    if services is not None:
        services = replace(services, delivery_receipt_request=None, commitment_receipt_request=None)
    msmq = envelope.msmq
    if msmq is not None and (msmq.journal or msmq.dead_letter or msmq.trace):
        msmq = replace(msmq, journal=False, dead_letter=False, trace=False)
    return replace(envelope, services=services, msmq=msmq)
