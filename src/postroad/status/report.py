"""What people are told of outgoing queues and sessions: plain values, and one sentence on what a queue waits for.

Only reads. What a state means and when it changes is in service.py, sender.py and session.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

from postroad.binary.sender import Flight
from postroad.binary.service import NAME_SERVICES, BinaryService, Peer
from postroad.binary.session import Session
from postroad.deadlines import earliest
from postroad.errors import IllegalName
from postroad.names import DirectName, FormatName
from postroad.queues.info import WayReport, describe_queue
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing import OutgoingState
from postroad.queues.queue import PositionState, Queue
from postroad.store.interface import Key
from postroad.values.info import QueueInfo, SessionInfo
from postroad.wire.layout import NULL_GUID
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

K = TypeVar("K")

STUCK_S = 15.0  # a step that takes longer is worth a look: no order acknowledgment is held back for so long
FINAL_ACK_LOOK = 1000  # messages that wait for a final acknowledgment and are sorted by where they went, at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingReport:
    """The facts of one outgoing queue, times in seconds from now or until now, and what they come to."""

    state: OutgoingState
    messages: int
    unsent: int = 0
    in_flight: int = 0
    unacknowledged: int = 0  # by the destination
    awaiting_final_ack: int = 0
    host: str | None = None  # the next hop that is used or tried
    protocol: str | None = None  # one that nothing here speaks
    way: WayReport | None = None  # what another protocol says of it
    served: bool = True  # whether there is a binary service
    session_open: bool = False
    window_full: int = 0  # messages of the session that are not acknowledged, where no more may be sent
    opening_s: float | None = None
    connecting: bool = False
    sent_s: float | None = None  # since the first of those in flight was sent
    ack_due_s: float = 0.0  # after which the peer acknowledges even a single express message
    ordered_s: float | None = None  # the same of those that the next hop has
    oldest_arrived_ms: int | None = None
    oldest_s: float | None = None
    last_error: str | None = None
    failures: int = 0
    next_retry_s: float | None = None
    next_resend_s: float | None = None
    resend_interval_s: float | None = None

    @property
    def paused(self) -> bool:
        return self.state is OutgoingState.ON_HOLD

    @property
    def why(self) -> str | None:
        """What the messages wait for, in one sentence; None where there are none."""
        if not self.messages:
            return None
        if self.way is not None and not self.paused:
            return self.way.why
        return self._closed_for_sending() or (self._on_a_session() if self.session_open else self._on_the_way_there())

    @property
    def stuck(self) -> bool:
        """Whether somebody ought to look: nothing moves, or it moves too slowly."""
        if not self.messages:
            return False
        if self.way is not None and not self.paused:
            return self.way.stuck
        if self._closed_for_sending() is not None:
            return True
        if self.session_open:
            if self.in_flight or self.unacknowledged:
                return (self.sent_s or 0.0) > self.ack_due_s + STUCK_S or (self.ordered_s or 0.0) > STUCK_S
            return (self.oldest_s or 0.0) > STUCK_S
        return self.last_error is not None or (self.oldest_s or 0.0) > STUCK_S

    def _closed_for_sending(self) -> str | None:
        if self.paused:
            return "paused by an operator"
        if self.state is OutgoingState.LOCKED:
            return "locked: this queue manager sends by HTTP alone"
        if self.protocol is not None:
            return f"nothing here sends by {self.protocol}"
        if not self.served:
            return (
                "the binary protocol is off here: nothing is sent until `postroad serve` runs on this data with it on"
            )
        return None

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
        return f"arrived at {place}, waiting for the destination's order acknowledgment for {since}{again}"

    def _leaving(self) -> str:
        return "nothing is left to send: held by a reader, or about to leave the queue"


class Outlook:
    """One look at a manager's queues, and at its binary service if it has one, at one time."""

    def __init__(
        self,
        core: LocalQueueManager,
        service: BinaryService | None,
        now: float,
        others: Callable[[Queue], WayReport | None] = lambda queue: None,
    ) -> None:
        """`others` speaks for the outgoing queues of other protocols."""
        self.core = core
        self.service = service
        self.now = now
        self._others = others
        self._oldest: list[Mapping[int, int]] = []  # of all queues, where all are asked for

    def describe(self, queue: Queue) -> QueueInfo:
        """Everything that is told of a queue."""
        info = describe_queue(self.core.queues, queue, self._damaged.get(queue.number, 0))
        if info.state is None:
            return info
        report = self.outgoing(queue)
        return replace(
            info,
            oldest_arrived_ms=report.oldest_arrived_ms,
            why=report.why,
            stuck=report.stuck,
            paused=report.paused,
            unsent=report.unsent,
            in_flight=report.in_flight,
            unacknowledged=report.unacknowledged,
            awaiting_final_ack=report.awaiting_final_ack,
            last_error=report.last_error,
            failures=report.failures,
            next_retry_s=report.next_retry_s,
            next_resend_s=report.next_resend_s,
            resend_interval_s=report.resend_interval_s,
        )

    def describe_all(self) -> Iterator[QueueInfo]:
        """Every queue, as long as it is there: whoever asks may do other things in between."""
        self._oldest = [store.oldest() for store in (self.core.store, self.core.express)]
        for queue in list(self.core.queues):
            if self.core.queues.by_number.get(queue.number) is queue:
                yield self.describe(queue)

    def _oldest_arrived_ms(self, queue: Queue) -> int | None:
        if not queue.count:
            return None
        found = [table[queue.number] for table in self._oldest if queue.number in table]
        if found:
            return min(found)
        oldest = queue.oldest
        return None if oldest is None else oldest.arrived_ms

    def outgoing(self, queue: Queue) -> OutgoingReport:
        info = self.core.queues.outgoing_info[queue]
        name = info.destination
        oldest = self._oldest_arrived_ms(queue)
        report = OutgoingReport(
            state=info.state,
            messages=queue.count,
            unsent=queue.count - sum(state is PositionState.DELETED for state in queue.positions.values()),
            awaiting_final_ack=self._awaiting_final_ack.get(name, 0),
            protocol=name.protocol.value
            if isinstance(name, DirectName) and name.protocol not in NAME_SERVICES
            else None,
            served=self.service is not None,
            oldest_arrived_ms=oldest,
            oldest_s=None if oldest is None else self._since(oldest / 1000),
            last_error=info.last_error,
            failures=info.failures,
        )
        way = self._others(queue)
        if way is not None:
            return replace(
                report,
                way=way,
                protocol=None,
                unsent=way.unsent,
                in_flight=way.in_flight,
                unacknowledged=way.unacknowledged,
                awaiting_final_ack=way.awaiting_final_ack,
                next_retry_s=way.next_retry_s,
                next_resend_s=way.next_resend_s,
                resend_interval_s=way.resend_interval_s,
            )
        return report if self.service is None else self._with_way(queue, self._with_flights(queue, report))

    def _with_flights(self, queue: Queue, report: OutgoingReport) -> OutgoingReport:
        flying = self.flights(queue)
        sent = [each.sent_at for each in flying.values() if not each.session_acked]
        arrived = [each.sent_at for each in flying.values() if each.session_acked]
        report = replace(
            report,
            unsent=max(0, report.unsent - len(flying)),
            in_flight=len(sent),
            unacknowledged=len(arrived),
            sent_s=self._since(min(sent)) if sent else None,
            ordered_s=self._since(min(arrived)) if arrived else None,
        )
        assert self.service is not None
        sequence = self.service.sender.sequences.get(queue)
        if sequence is None or sequence.resend_at is None:
            return report
        interval = self.service.settings.resend_s[sequence.resend_index]
        return replace(report, next_resend_s=self._until(sequence.resend_at), resend_interval_s=interval)

    def _with_way(self, queue: Queue, report: OutgoingReport) -> OutgoingReport:
        assert self.service is not None
        peers = self._peers(queue)
        retry_at = earliest((self.service.unresolved.get(queue), *(peer.retry_at for peer in peers)))
        if retry_at is not None:
            report = replace(report, next_retry_s=self._until(retry_at))
        if not peers:
            return report
        peer = next((each for each in peers if each.session is not None), peers[0])
        report = replace(report, host=peer.hop.host, connecting=any(each.connecting for each in peers))
        session = peer.session
        if session is None or session.closed:
            return report
        if not session.opened_at:
            return replace(report, opening_s=self._since(session.made_at))
        full = 0 if session.free else session.sent.unacknowledged
        ack_due_s = session.ack_wait_timeout_ms / 2000  # 3.1.5.8.2
        return replace(report, session_open=True, window_full=full, ack_due_s=ack_due_s, next_retry_s=None)

    def flights(self, queue: Queue) -> dict[int, Flight]:
        """The messages of an outgoing queue that were sent and are still in it, by their lookup ids."""
        if self.service is None:
            return {}
        sequence = self.service.sender.sequences.get(queue)
        candidates = [*(sequence.unacked if sequence is not None else ()), *self._in_flight.get(queue, ())]
        return {
            each.record.lookup_id: each
            for each in candidates
            if queue.positions.get(each.record.lookup_id) is PositionState.LOCKED
        }

    def sessions(self) -> list[SessionInfo]:
        """In the order they were made."""
        if self.service is None:
            return []
        return [self._session(session, peer) for session, peer in self.service.sessions.items()]

    def _session(self, session: Session, peer: Peer | None) -> SessionInfo:
        assert self.service is not None
        return SessionInfo(
            peer=None if session.peer == NULL_GUID else str(session.peer),
            address=self.service.addresses[session],
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

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages sent and received by sessions, those that are over included."""
        if self.service is None:
            return 0, 0
        sessions = self.service.sessions
        return (
            self.service.past_sent + sum(each.sent.count for each in sessions),
            self.service.past_received + sum(each.received.count for each in sessions),
        )

    # What one look finds once, for all queues

    @cached_property
    def _damaged(self) -> Counter[int]:
        return Counter(key.queue for key in self.core.store.damaged if isinstance(key, Key))

    @cached_property
    def _in_flight(self) -> dict[Queue, list[Flight]]:
        assert self.service is not None
        found: dict[Queue, list[Flight]] = {}
        for session in self.service.sessions:
            for flight in session.in_flight:
                assert isinstance(flight, Flight)
                found.setdefault(flight.queue, []).append(flight)
        return found

    @cached_property
    def _peers_by_queue(self) -> dict[Queue, list[Peer]]:
        assert self.service is not None
        return _grouped((queue, peer) for peer in self.service.peers.values() for queue in peer.queues)

    @cached_property
    def _peers_by_host(self) -> dict[str, list[Peer]]:
        assert self.service is not None
        return _grouped((hop.host, peer) for hop, peer in self.service.peers.items())

    def _peers(self, queue: Queue) -> list[Peer]:
        """Whom a queue uses; between two tries nobody, and then those it may use."""
        if queue in self._peers_by_queue:
            return self._peers_by_queue[queue]
        info = self.core.queues.outgoing_info[queue]
        tried = info.history[-1].addresses if info.history else ()
        return [peer for host in {*info.next_hops, *tried} for peer in self._peers_by_host.get(host, ())]

    @cached_property
    def _awaiting_final_ack(self) -> dict[FormatName, int]:
        found: dict[FormatName, int] = {}
        names: dict[bytes, FormatName | None] = {}
        if self.service is None:
            return found
        for record in islice(self.service.sender.awaiting_final_ack(), FINAL_ACK_LOOK):
            view = MessageView(record.packet)
            key = view.destination_bytes + view.queue_manager_address_bytes
            if key not in names:
                names[key] = _destination(view)
            if (name := names[key]) is not None:
                found[name] = found.get(name, 0) + 1
        return found

    def _since(self, time: float) -> float:
        return max(0.0, self.now - time)

    def _until(self, time: float) -> float:
        return round(max(0.0, time - self.now), 3)


def _grouped(pairs: Iterable[tuple[K, Peer]]) -> dict[K, list[Peer]]:
    found: dict[K, list[Peer]] = {}
    for key, peer in pairs:
        found.setdefault(key, []).append(peer)
    return found


def _destination(view: MessageView) -> FormatName | None:
    try:
        return destination_name(view)
    except IllegalName:
        return None


def _waiting(count: int) -> str:
    return "1 message waits" if count == 1 else f"{count} messages wait"


def span(seconds: float) -> str:
    """A length of time as people say it: `0.8 s`, `45 s`, `12 min`, `3 h`, `4 days`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
