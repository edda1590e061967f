"""Descriptions of sessions, and of outgoing queues that use them, for people: values, and one sentence.

Only reads. service.py, sender.py and session.py have the states and their changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from postroad.binary.sender import Flight, flight_of
from postroad.binary.session import Session
from postroad.queues.outgoing_queues import NOBODY_KNOWN, CarrierReport, Progress
from postroad.queues.queue import PositionState, Queue
from postroad.reports.info import SessionInfo, counted, span
from postroad.runtime.deadlines import earliest
from postroad.wire.octets import NULL_GUID

if TYPE_CHECKING:
    from postroad.binary.service import BinaryService, Peer

STUCK_S = 15.0  # a step that takes longer needs attention: no order acknowledgment is delayed for this long


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingFacts:
    """The facts of one outgoing queue, and what they mean. Times are seconds from now or until now."""

    unsent: int = 0
    in_flight: int = 0
    unacknowledged: int = 0  # by the destination
    host: str | None = None  # the next hop in use or being tried
    session_open: bool = False
    window_full: int = 0  # unacknowledged messages of the session, if no more may be sent
    opening_s: float | None = None
    connecting: bool = False
    sent_s: float | None = None  # since the first message in flight was sent
    ack_due_s: float = 0.0  # within which the peer acknowledges even a single express message
    ordered_s: float | None = None  # since the first message that the next hop has was sent
    oldest_s: float | None = None
    last_error: str | None = None
    next_retry_s: float | None = None
    next_resend_s: float | None = None
    resend_interval_s: float | None = None

    @property
    def why(self) -> str:
        """What the messages wait for, in one sentence."""
        return self._on_a_session() if self.session_open else self._on_the_way_there()

    @property
    def stuck(self) -> bool:
        """Whether it needs attention: messages move too slowly or not at all."""
        if self.session_open:
            if self.in_flight or self.unacknowledged:
                return (self.sent_s or 0.0) > self.ack_due_s + STUCK_S or (self.ordered_s or 0.0) > STUCK_S
            return (self.oldest_s or 0.0) > STUCK_S
        return self.last_error is not None or (self.oldest_s or 0.0) > STUCK_S

    def _on_a_session(self) -> str:
        if self.unsent and self.window_full:
            since = "" if self.sent_s is None else f", the first for {span(self.sent_s)}"
            return f"the window is full: {_waiting(self.window_full)} for an acknowledgment from {self.host}{since}"
        if self.in_flight:
            return f"sent to {self.host}, waiting for the peer's acknowledgment for {span(self.sent_s or 0.0)}"
        if self.unacknowledged:
            return self._to_be_ordered()
        return f"about to be sent to {self.host}" if self.unsent else self._leaving()

    def _on_the_way_there(self) -> str:
        if self.opening_s is not None:
            return f"connected to {self.host}, waiting for the session to open for {span(self.opening_s)}"
        if self.unsent:
            return self._to_be_tried()
        return self._to_be_ordered() if self.unacknowledged else self._leaving()

    def _to_be_tried(self) -> str:
        if self.connecting:
            return f"connecting to {self.host}" if self.last_error is None else f"{self.last_error}; trying again now"
        if self.next_retry_s is not None:
            return f"{self.last_error or 'not connected'}; next try in {span(self.next_retry_s)}"
        return "not tried yet" if self.last_error is None else f"{self.last_error}; no further try is planned"

    def _to_be_ordered(self) -> str:
        again = "" if self.next_resend_s is None else f"; sent again in {span(self.next_resend_s)}"
        place = "the next hop" if self.host is None else self.host
        since = span(self.ordered_s or 0.0)
        return f"handed over to {place}, waiting for the destination's order acknowledgment for {since}{again}"

    def _leaving(self) -> str:
        return "nothing is left to send: held by a reader, or about to leave the queue"


def report(service: BinaryService, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
    facts = _with_connection(service, queue, _with_flights(service, queue, oldest_s, now), now)
    return CarrierReport(
        why=facts.why,
        stuck=facts.stuck,
        unsent=facts.unsent,
        in_flight=facts.in_flight,
        unacknowledged=facts.unacknowledged,
        next_retry_s=facts.next_retry_s,
        next_resend_s=facts.next_resend_s,
        resend_interval_s=facts.resend_interval_s,
    )


def progress(service: BinaryService, queue: Queue, lookup_id: int, now: float) -> Progress | None:
    flight = _flights(service, queue).get(lookup_id)
    if flight is None:
        return None
    since = span(max(0.0, now - flight.sent_at))
    if flight.session_acked:
        sessions = [each.session for each in service.peers_of(queue) if each.session is not None]
        hop = service.next_hop(sessions[0]) if sessions else NOBODY_KNOWN
        return Progress(f"sent {since} ago; the next hop has it, the destination has not put it in order", hop)
    return Progress(f"sent {since} ago; the next hop has not acknowledged it")


def _with_flights(service: BinaryService, queue: Queue, oldest_s: float | None, now: float) -> SendingFacts:
    flying = _flights(service, queue)
    sent = [each.sent_at for each in flying.values() if not each.session_acked]
    arrived = [each.sent_at for each in flying.values() if each.session_acked]
    leaving = sum(state is PositionState.DELETED for state in queue.positions.values())
    facts = SendingFacts(
        unsent=max(0, queue.count - leaving - len(flying)),
        in_flight=len(sent),
        unacknowledged=len(arrived),
        sent_s=max(0.0, now - min(sent)) if sent else None,
        ordered_s=max(0.0, now - min(arrived)) if arrived else None,
        oldest_s=oldest_s,
        last_error=service.core.queues.outgoing_info[queue].last_error,
    )
    sequence = service.sender.sequences.get(queue)
    if sequence is None or sequence.resend_at is None:
        return facts
    interval = service.settings.resend_s[sequence.resend_index]
    return replace(facts, next_resend_s=_until(sequence.resend_at, now), resend_interval_s=interval)


def _with_connection(service: BinaryService, queue: Queue, facts: SendingFacts, now: float) -> SendingFacts:
    peers = service.peers_of(queue)
    retry_at = earliest((service.unresolved.get(queue), *(peer.retry_at for peer in peers)))
    if retry_at is not None:
        facts = replace(facts, next_retry_s=_until(retry_at, now))
    if not peers:
        return facts
    peer = next((each for each in peers if each.session is not None), peers[0])
    facts = replace(facts, host=peer.hop.host, connecting=any(each.connecting for each in peers))
    session = peer.session
    if session is None or session.closed:
        return facts
    if not session.opened_at:
        return replace(facts, opening_s=max(0.0, now - session.made_at))
    full = 0 if session.free else session.sent.unacknowledged
    ack_due_s = session.ack_wait_timeout_ms / 2000  # 3.1.5.8.2
    return replace(facts, session_open=True, window_full=full, ack_due_s=ack_due_s, next_retry_s=None)


def _flights(service: BinaryService, queue: Queue) -> dict[int, Flight]:
    """The messages of an outgoing queue that were sent and are still in it, by lookup id."""
    sequence = service.sender.sequences.get(queue)
    found = [] if sequence is None else list(sequence.unacked)
    for peer in service.peers_of(queue):
        for token in () if peer.session is None else peer.session.sent.in_flight:
            if (flight := flight_of(token)).queue is queue:
                found.append(flight)
    return {
        each.record.lookup_id: each
        for each in found
        if queue.positions.get(each.record.lookup_id) is PositionState.LOCKED
    }


def session_info(service: BinaryService, session: Session, peer: Peer | None) -> SessionInfo:
    return SessionInfo(
        peer=None if session.peer == NULL_GUID else str(session.peer),
        address=service.addresses[session],
        direction="out" if session.initiator else "in",
        state=session.state.name.lower().replace("_", " "),
        opened_at_s=session.opened_at or None,
        last_received_at_s=session.last_received_at or None,
        messages_in=session.received.count,
        messages_out=session.sent.count,
        unacknowledged=session.sent.unacknowledged,
        window=session.window,
        queues=tuple(queue.name for queue in (peer.queues if peer is not None else ())),
    )


def _waiting(count: int) -> str:
    return counted(count, "message waits", "messages wait")


def _until(time: float, now: float) -> float:
    return round(max(0.0, time - now), 3)
