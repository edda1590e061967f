"""The binary protocol of one queue manager: its peers, their sessions, and the outgoing queues that use them.

No I/O and no clock: the driver connects, writes and waits for durability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from postroad.binary.neighbours import DirectoryView, Neighbours, NoDirectory, plain
from postroad.binary.neighbours import Hop as Hop
from postroad.binary.neighbours import Resolve as Resolve
from postroad.binary.receiver import Receiver
from postroad.binary.sender import Sender
from postroad.binary.session import TIMERS, BinarySettings, Session
from postroad.binary.session_reports import progress, report, session_info
from postroad.binary.states import Acknowledged, Closed, Event, Opened, Received, ReceivedRun, SessionState, singly
from postroad.carriers.flights import (
    PeerQueues,
    TransferWatcher,
    attempt,
    may_send,
    sendable,
    waiting_for,
)
from postroad.errors import IllegalName, NoRoute, StorageError
from postroad.names import DirectName, FormatName, PrivateName, PublicName
from postroad.names.format import Protocol as Transport
from postroad.net.endpoints import SILENT_S, AddressOrder, is_address
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import (
    CarrierReport,
    ConnectionStatus,
    IncomingTransferInfo,
    NextHop,
    OutgoingEvent,
    OutgoingState,
    OutgoingTransferInfo,
    Progress,
)
from postroad.queues.queue import Queue
from postroad.reports.info import SessionInfo
from postroad.runtime.deadlines import Source
from postroad.security.guard import Verdict
from postroad.store.interface import Record
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.queue_names import admin_name
from postroad.wire.view import MessageView

OFFLINE = "an administrator has disconnected the queue manager"
QUICK_RETRIES = 3  # of a lost peer, however many others are out of reach
RETRIES_AT_ONCE = 100  # peers to try in each retry_connect_s, of those that have failed often
MAX_REFUSALS = 100  # callers at a time that are told why they are refused; the connections of others just close
NAME_SERVICES = frozenset({Transport.TCP, Transport.OS})


@dataclass(slots=True, eq=False, kw_only=True)
class Peer(PeerQueues):
    """The connection to one hop: at most one session, whoever opened it, and the queues that use it."""

    hop: Hop
    session: Session | None = None
    connecting: bool = False
    failures: int = 0  # since a session was last open
    waiting: list[Queue] = field(default_factory=list)  # queues that had messages for it when it was lost

    @property
    def asking(self) -> bool:
        """Whether it is only asked who answers there: no queue needs it."""
        return not self.queues and not self.waiting


class Driver(Protocol):
    """What the service needs from its driver."""

    def connect(self, peer: Peer) -> None:
        """Starts connecting. `connected` or `connect_failed` follows."""

    def flush(self, session: Session) -> None:
        """Writes the session's output, and closes the connection if the session is over."""

    def open(self, session: Session, packets: list[bytes], done: Callable[[list[Verdict] | None], None]) -> None:
        """Decrypts and checks packets off the event loop, and calls `done`, with None if that failed. Until then, the
        session should read nothing."""

    def when_durable(self, done: Callable[[StorageError | None], object], *, repeats: bool) -> None:
        """Calls `done` once all changes so far are durable, or with the error. Set `repeats` if duplicates were
        dropped, which depend on the commit under way."""


class BinaryService:
    """The binary protocol of one queue manager, and the Carrier of its queues that lead to other managers by TCP."""

    hardened = False

    def __init__(
        self,
        core: LocalQueueManager,
        settings: BinarySettings,
        resolve: Resolve,
        driver: Driver,
        directory: DirectoryView | None = None,
        watcher: TransferWatcher = TransferWatcher(),  # noqa: B008  (it is frozen)
    ) -> None:
        self.core = core
        self.settings = settings
        self.driver = driver
        self.neighbours = Neighbours(core, resolve, directory or NoDirectory(), settings.remote_managers)
        self.watcher = watcher
        self.sender = Sender(core, settings, self._accepts, self._ack_refused)
        self.receiver = Receiver(core, settings, self.neighbours, self.sender, self._claimed, watcher)
        self.order = AddressOrder()
        self.peers: dict[Hop, Peer] = {}
        self.sessions: dict[Session, Peer | None] = {}
        self.addresses: dict[Session, str] = {}
        self.past_sent = self.past_received = 0  # messages of past sessions
        self._unreachable: set[str] = set()  # hosts, from a failure until a session opens
        # Peers and sessions by address or host, and their timers, so that no event has to look at all of them.
        self._peers_at: dict[str, dict[Peer, None]] = {}
        self._open_at: dict[str, dict[Session, None]] = {}
        self._session_timers = core.deadlines.source(TIMERS, self._sessions_due)
        self._retry_timers = core.deadlines.source(TIMERS, self._peers_due)
        self._unresolved_timers = core.deadlines.source(TIMERS, self._unresolved_due)
        # A message can become available unnoticed: another had locked it, or a tick was lost. So queues with messages
        # are checked periodically.
        self._sweeping = False
        self._sweeps: Source[None] = core.deadlines.source(TIMERS, self._sweep)
        self._active: dict[Queue, None] = {}  # queues that have messages, or had some
        self._refusing = 0
        # Sessions whose messages are being checked, and the events that came after those.
        self._opening: dict[Session, list[Event]] = {}
        self._hops: dict[Queue, tuple[list[Hop], int]] = {}
        self.unresolved: dict[Queue, float] = {}  # queues without a next hop, and when to ask for one again
        core.attach(self)

    # What queues ask of a carrier

    def carries(self, name: FormatName) -> bool:
        if isinstance(name, DirectName):
            return name.protocol in NAME_SERVICES
        return not name.is_send_only

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        (self.sender if queue.is_outgoing else self.receiver).removed(queue, record, reason, now)

    def brought(self, view: MessageView) -> bool:
        return not view.arrived_by_http and view.source_queue_manager != self.core.identifier

    def origin(self, view: MessageView) -> str | None:
        return self.neighbours.address_of(view.source_queue_manager_bytes)

    def names(self, address: str) -> Iterable[str]:
        return self.neighbours.names(address)

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        return admin_name(view)

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        """The name itself, if the sender may make us connect there. For an unknown computer's name, which anybody can
        claim, the address that the sender's messages come from, whatever the name service says. If the name is the
        sender's own, the answer arrives."""
        origin = self.origin(view)
        delivery = self.core.delivery
        if delivery.is_callable(name, origin):
            return name
        if (
            origin is not None
            and isinstance(name, DirectName)
            and name.protocol is Transport.OS
            and not is_address(name.host)
        ):
            try:
                return DirectName.from_wire(f"TCP:{origin}{name.tail}")
            except IllegalName:
                pass  # no name can express this address
        delivery.withhold(name, origin)
        return None

    def hosts(self, name: FormatName) -> list[str]:
        return self.neighbours.hosts(name)

    def may_answer(self, name: FormatName, address: str) -> bool:
        return self.neighbours.speaks_for(name, address, None)

    def report(self, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
        return report(self, queue, oldest_s, now)

    def progress(self, queue: Queue, lookup_id: int, now: float) -> Progress | None:
        return progress(self, queue, lookup_id, now)

    def next_hop(self, session: Session) -> NextHop:
        return NextHop(None if session.peer == NULL_GUID else session.peer, self.addresses[session])

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        seen_s = self.receiver.history.seen_at(identifier)
        return None if seen_s is None else (seen_s, "came in by a session from another queue manager")

    def session_infos(self) -> list[SessionInfo]:
        """The sessions, in the order they were made."""
        return [session_info(self, session, peer) for session, peer in self.sessions.items()]

    def transfer(self, queue: Queue) -> OutgoingTransferInfo:
        return self.sender.transfer(queue)

    def incoming(self) -> Iterator[IncomingTransferInfo]:
        for each in self.receiver.incoming:
            place = each.sequence_id.value
            yield IncomingTransferInfo(
                each.format_name, each.sender, place, each.number, each.last_access_s, each.rejects
            )

    def resend(self, queue: Queue, now: float) -> None:
        self.sender.on_timer([queue], now)

    def take_offline(self, now: float) -> None:
        self._close_all(OFFLINE)

    def bring_online(self, now: float) -> None:
        for peer in self.peers.values():
            peer.retry_at = None
            self._retry_timers.set(peer, None)

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages sent and received by all sessions, past ones included."""
        return (
            self.past_sent + sum(each.sent.count for each in self.sessions),
            self.past_received + sum(each.received.count for each in self.sessions),
        )

    # Outgoing queues

    def start(self, now: float) -> None:
        """3.1.4.1: opens a session for every queue with messages."""
        self.receiver.history.start(now)
        waiting = waiting_for(self.core.queues, self)
        self.sender.start(waiting)
        for queue in waiting:
            self.ready(queue, now)

    def ready(self, queue: Queue, now: float) -> None:
        """The queue has something to send ([MS-MQQB] 3.1.7.12)."""
        if not may_send(self.core.queues, queue):
            return
        self._active[queue] = None
        if not self._sweeping:
            self._sweeping = True
            self._sweeps.set(None, now + self.settings.retry_connect_s)
        peer = self._peer_of(queue, now)
        if peer is None:
            return
        if peer.session is None and not peer.connecting and peer.retry_at is None:
            self._connect(peer)
        if peer.session is not None and peer.session.opened_at:
            info = self.core.queues.outgoing_info[queue]
            if info.state is not OutgoingState.CONNECTED:
                info.on(OutgoingEvent.CONNECTED)  # the queue is new, the session is not
            self._pump(peer, now)

    def _peer_of(self, queue: Queue, now: float) -> Peer | None:
        name = self.core.queues.outgoing_info[queue].destination
        hops, index = self._hops.get(queue, ([], 0))
        if not hops:
            fault = f"no way to {name} is known"
            try:
                hops = self.neighbours.hops(name)
            except NoRoute as error:
                fault = f"no route to {name}: {error}"
            self._hops[queue] = (hops, 0)
            index = 0
        info = self.core.queues.outgoing_info[queue]
        if not hops:
            info.on(OutgoingEvent.NO_ROUTE)
            info.note(attempt(ConnectionStatus.ROUTING_DATA_UNAVAILABLE, now), fault)
            self.unresolved[queue] = now + self.settings.retry_connect_s
            self._unresolved_timers.set(queue, self.unresolved[queue])
            return None
        self.unresolved.pop(queue, None)
        self._unresolved_timers.set(queue, None)
        peer = self._peer(hops[index])
        peer.queues[queue] = None
        info.next_hops = tuple(host for each in hops for host in each.hosts)
        return peer

    def _peer(self, hop: Hop) -> Peer:
        peer = self.peers.get(hop)
        if peer is None:
            peer = self.peers[hop] = Peer(hop=hop)
            for host in hop.hosts:
                self._peers_at.setdefault(host.lower(), {})[peer] = None
        return peer

    def _drop(self, peer: Peer) -> None:
        """Forgets a peer that no queue uses or waits for."""
        if peer.queues or peer.waiting or peer.connecting or peer.session is not None:
            return
        self.peers.pop(peer.hop, None)
        self._retry_timers.set(peer, None)
        for host in peer.hop.hosts:
            others = self._peers_at.get(host.lower(), {})
            others.pop(peer, None)
            if not others:
                self._peers_at.pop(host.lower(), None)
                self._unreachable.discard(host)

    def peers_of(self, queue: Queue) -> list[Peer]:
        """The peers that a queue uses. Between two tries it uses none: then those that it may use."""
        hops, index = self._hops.get(queue, ([], 0))
        peer = self.peers.get(hops[index]) if hops else None
        if peer is not None and queue in peer.queues:
            return [peer]
        info = self.core.queues.outgoing_info[queue]
        tried = info.history[-1].addresses if info.history else ()
        hosts = {host.lower() for host in (*info.next_hops, *tried)}
        return [peer for host in hosts for peer in self._peers_at.get(host, ())]

    def forget(self, queue: Queue) -> None:
        """An outgoing queue was removed. Drops everything about it."""
        hops, index = self._hops.pop(queue, ([], 0))
        self._active.pop(queue, None)
        self.unresolved.pop(queue, None)
        self._unresolved_timers.set(queue, None)
        self.sender.forget(queue)
        peer = self.peers.get(hops[index]) if hops else None
        if peer is not None:
            peer.queues.pop(queue, None)
            self._drop(peer)

    def _connect(self, peer: Peer) -> None:
        peer.retry_at = None
        self._retry_timers.set(peer, None)
        existing = self._session_to(peer.hop)
        if existing is not None:  # a session carries messages both ways, whoever opened it
            asked = self.sessions[existing]
            if asked is not None:
                asked.session = None
                self._drop(asked)
            peer.session = existing
            self.sessions[existing] = peer
            self._set_reachable(peer, None)
            peer.happened(self.core.queues, OutgoingEvent.CONNECTED)
            return
        peer.connecting = True
        peer.happened(self.core.queues, OutgoingEvent.CONNECT)
        self.driver.connect(peer)

    def _session_to(self, hop: Hop) -> Session | None:
        """A session that nobody uses, with an address of this hop: a claim to be that manager is not enough."""
        for address in self.neighbours.places(hop):
            for session in self._open_at.get(address, ()):
                user = self.sessions[session]
                if hop.manager in (NULL_GUID, session.peer) and (user is None or user.asking):
                    return session
        return None

    def _pump(self, peer: Peer, now: float) -> None:
        session = peer.session
        if session is None or session.closed:
            return
        more: bool | None = True
        while more and (active := sendable(self.core.queues, peer.queues)):
            more = self.sender.pump(session, active, now, self.addresses[session])
            if more is None:
                return
            if active[0] in peer.queues:  # the others go first next time
                del peer.queues[active[0]]
                peer.queues[active[0]] = None
            self._flush(session)

    def _flush(self, session: Session) -> None:
        if session.output or session.state is SessionState.CLOSED:
            self.driver.flush(session)
        self._session_timers.set(session, session.deadline)

    def _set_reachable(self, peer: Peer, fault: str | None) -> None:
        """Tells the watcher once that a host is out of reach, however often it is tried, and once that it is back."""
        host = peer.hop.host
        if (host in self._unreachable) != (fault is not None):
            self._unreachable ^= {host}
            self.watcher.reachable(host, fault)

    # Connections

    def connected(self, peer: Peer, address: str, now: float, *, pinged: bool = False) -> Session:
        """Our connection is made: begins the handshake."""
        settings = self.settings
        if self.neighbours.elsewhere(peer.hop, plain(address)):
            settings = replace(settings, initialization_ms=min(settings.initialization_ms, int(SILENT_S * 1000)))
        session = Session.initiate(self.core.identifier, peer.hop.manager, settings, now, pinged=pinged)
        peer.connecting = False
        peer.session = session
        self.sessions[session] = peer
        self.addresses[session] = address
        peer.note(self.core.queues, ConnectionStatus.IN_PROCESS, now, peer.hop.host)
        if not self.core.connection_active:
            session.close(OFFLINE)
        self._flush(session)
        return session

    def connect_failed(self, peer: Peer, status: ConnectionStatus, error: str, now: float) -> None:
        peer.connecting = False
        peer.note(self.core.queues, status, now, peer.hop.host, error)
        self._set_reachable(peer, error)
        self.neighbours.unreachable(peer.hop)
        self._retry(peer, now)

    @property
    def full(self) -> bool:
        """Whether no more sessions are taken: the limit is reached, or the manager is offline. Sessions that are being
        refused do not count."""
        if not self.core.connection_active:
            return True
        return len(self.sessions) - self._refusing >= self.settings.max_sessions

    def accepted(self, address: str, now: float) -> Session | None:
        """3.1.5.10: a connection was accepted. If there are too many sessions, the caller is told so (2.2.1). None if
        too many are being told already."""
        full = self.full
        if full and len(self.sessions) >= self.settings.max_sessions + MAX_REFUSALS:
            return None
        session = Session.accept(self.core.identifier, self.settings, now, refuse=full)
        self._refusing += full
        self.sessions[session] = None
        self.addresses[session] = address
        self._session_timers.set(session, session.deadline)
        return session

    def received(self, session: Session, data: bytes, now: float) -> None:
        answer_due = session.state is SessionState.WAITING_ECR_MSG
        session.receive_data(data, now)
        peer = self.sessions.get(session)
        if answer_due and peer is not None and session.state in (SessionState.WAITING_CPR_MSG, SessionState.OPEN):
            peer.note(self.core.queues, ConnectionStatus.ESTABLISH_PACKET_RECEIVED, now, peer.hop.host)
        self._after(session, now)

    def unblocked(self, session: Session, now: float) -> None:
        """The peer reads again after its session was blocked."""
        session.unblock(now)
        peer = self.sessions.get(session)
        if peer is not None:
            self._pump(peer, now)
        self.driver.flush(session)

    def disconnected(self, session: Session, now: float) -> None:
        session.disconnected()
        self._after(session, now)

    def _after(self, session: Session, now: float) -> None:
        """Handles the events of a session after its input."""
        events = session.events()
        waiting = self._opening.get(session)
        if waiting is None:
            self._handle(session, events, now)
        else:  # after the messages that are being checked
            waiting += events
            self._flush(session)

    def _handle(self, session: Session, events: list[Event], now: float) -> None:
        """Handles events. Signed and encrypted messages first go to the driver, to be checked."""
        if not any(self._needs_opening(event) for event in events):
            self._take(session, events, now, {})
            return
        events = singly(events)
        secured = {place: event for place, event in enumerate(events) if self._needs_opening(event)}
        packets = [event.data for event in secured.values() if isinstance(event, Received)]
        self._opening[session] = []

        def done(opened: list[Verdict] | None) -> None:
            verdicts = None if opened is None else dict(zip(secured, opened, strict=True))
            self._opened_all(session, events, verdicts, now)

        self.driver.open(session, packets, done)

    def _needs_opening(self, event: Event) -> bool:
        if type(event) is ReceivedRun:
            return self.receiver.needs_opening(event.run.view)
        packet = event.packet if type(event) is Received else None
        return isinstance(packet, MessageView) and self.receiver.needs_opening(packet)

    def _opened_all(
        self, session: Session, events: list[Event], opened: Mapping[int, Verdict] | None, now: float
    ) -> None:
        """Continues after the checks. With None, the driver failed: the session ends, and the peer repeats what was not
        acknowledged."""
        later = self._opening.pop(session)
        if opened is None:
            session.close("messages could not be checked")
            messages = (Received, ReceivedRun)
            later = [each for each in (*events, *later, *session.events()) if not isinstance(each, messages)]
        else:
            self._take(session, events, now, opened)
        if later:
            self._handle(session, later, now)

    def _take(self, session: Session, events: list[Event], now: float, opened: Mapping[int, Verdict]) -> None:
        """Takes events. `opened` has the verdicts of the checks, by place among the events."""
        stored = 0
        if len(events) == 1:
            stored = self._take_one(session, events[0], now, opened.get(0))
        elif events:
            with self.core.delivery.together(now):
                for place, event in enumerate(events):
                    stored = self._take_one(session, event, now, opened.get(place)) or stored
        if stored:
            self.driver.when_durable(lambda error: self._stored(session, stored, error, now), repeats=True)
        peer = self.sessions.get(session)
        if peer is not None:
            self._pump(peer, now)
        self._flush(session)

    def _take_one(self, session: Session, event: Event, now: float, opened: Verdict | None) -> int:
        """Takes an event. Returns the number of its last message among the recoverable ones, or 0."""
        match event:
            case ReceivedRun():
                self.receiver.take_run(session, event, self.addresses[session], now)
                return event.number
            case Received():
                self.receiver.take(session, event, self.addresses[session], now, opened)
                return event.number
            case Acknowledged():
                self.sender.acknowledged(event.tokens, now, self.next_hop(session))
            case Opened():
                self._opened(session, now)
            case Closed():
                self._closed(session, event, now)
        return 0

    def _stored(self, session: Session, number: int, error: StorageError | None, now: float) -> None:
        if error is not None:
            session.close(f"messages could not be stored: {error}")
            self._after(session, now)
            return
        session.stored(number, now)
        self._flush(session)

    def _opened(self, session: Session, now: float) -> None:
        address = plain(self.addresses[session])
        self._open_at.setdefault(address, {})[session] = None
        peer = self.sessions.get(session)
        if peer is not None:
            self.order.answered(address)
            for host in peer.hop.hosts if len(peer.hop.hosts) == 1 else (address,):
                self.neighbours.reached(host, address, session.peer)
            peer.failures = 0
            peer.note(self.core.queues, ConnectionStatus.ESTABLISHED, now, peer.hop.host)
            self._set_reachable(peer, None)
            peer.happened(self.core.queues, OutgoingEvent.CONNECTED)
            for queue in peer.queues:  # 3.1.5.4.2: of several next hops, the queue now uses this one
                if may_send(self.core.queues, queue):
                    self.core.queues.outgoing_info[queue].next_hops = (self.addresses[session],)
            if not peer.asking:
                return
        for host in self.neighbours.names(address):  # a host that we wanted to reach has connected
            for waiting in list(self._peers_at.get(host, ())):
                if waiting.session is not None and waiting.session.silent(now):
                    self._leave(waiting, now)
                elif waiting.session is None and not waiting.connecting and self._session_to(waiting.hop) is session:
                    queues, waiting.waiting = waiting.waiting, []
                    self._connect(waiting)
                    for queue in queues:
                        self.ready(queue, now)

    def _closed(self, session: Session, event: Closed, now: float) -> None:
        peer = self.sessions.pop(session, None)
        address = plain(self.addresses.pop(session, ""))
        self._session_timers.set(session, None)
        self._refusing -= session.refusing
        others = self._open_at.get(address, {})
        others.pop(session, None)
        if not others:
            self._open_at.pop(address, None)
        self.past_sent += session.sent.count
        self.past_received += session.received.count
        queues = () if peer is None else [each for each in peer.queues if self._leads_to(peer.hop, each)]
        self.sender.session_closed(session, queues, now)
        if event.broken:
            facts = {"peer": address, "manager": str(session.peer), "reason": event.reason}
            self.watcher.suspicious("session closed: a packet cannot be read", facts)
        if peer is None:
            return
        peer.session = None
        peer.note(self.core.queues, event.status, now, peer.hop.host, event.reason)
        if not session.opened_at:
            self.order.failed(address)
            self._set_reachable(peer, event.reason)
            if session.answered_by != peer.hop.manager:  # a manager that has no room for us is not gone
                self.neighbours.unreachable(peer.hop)
        peer.happened(self.core.queues, OutgoingEvent.CLOSING)
        self._flush(session)
        peer.happened(self.core.queues, OutgoingEvent.CLOSED)
        self._retry(peer, now)

    def _leads_to(self, hop: Hop, queue: Queue) -> bool:
        """Whether the hop is the queue's destination itself, not a router."""
        info = self.core.queues.outgoing_info.get(queue)
        name = None if info is None else info.destination
        if isinstance(name, PrivateName):
            return name.guid == hop.manager
        if isinstance(name, PublicName):
            return hop.manager != NULL_GUID and self.core.delivery.manager_of(name) == hop.manager
        return isinstance(name, DirectName)

    def _retry(self, peer: Peer, now: float) -> None:
        """3.1.5.9 and 3.1.6.1: after a while, tries the next hop. After the last one, asks for the next hops again."""
        peer.waiting = [queue for queue in peer.queues if queue.count]
        for queue in list(peer.queues):
            hops, index = self._hops.pop(queue, ([], 0))
            if queue.count and index + 1 < len(hops):
                self._hops[queue] = (hops, index + 1)
            del peer.queues[queue]
        if peer.waiting:
            peer.failures += 1
            wait_s = self.settings.retry_connect_s
            if peer.failures > QUICK_RETRIES:  # trying thousands of hosts that are down must not take all our time
                wait_s *= max(1.0, len(self._retry_timers) / RETRIES_AT_ONCE)
            peer.retry_at = now + wait_s
            self._retry_timers.set(peer, peer.retry_at)
        else:
            self._drop(peer)

    # Whom to believe

    def _accepts(self, name: FormatName, ack: OrderAck | FinalAck, session: Session) -> bool:
        return self.neighbours.speaks_for(name, self.addresses[session], ack.source_queue_manager)

    def _ack_refused(self, ack: OrderAck | FinalAck, session: Session) -> None:
        facts = {
            "kind": "final" if isinstance(ack, FinalAck) else "order",
            "from": self.addresses.get(session),
            "manager": str(ack.source_queue_manager),
        }
        self.watcher.suspicious("acknowledgment refused: it is not of the manager that the message went to", facts)

    def _claimed(self, source: UUID, address: str, passed_on: bool) -> None:
        """Somebody speaks for a manager that is known at another address, or forwards its transactional messages. Logs
        that, and checks whether the manager is still where it was."""
        known = self.neighbours.held_address(source)
        listed = self.neighbours.directory.hosts_of(source)
        facts = {"manager": str(source), "from": address, "known_at": known}
        event = "message refused: it is in the name of another manager"
        if passed_on:
            event = "transactional message put off: the manager that passed it on is no router of the directory"
            facts["advice"] = "add the router to the directory; until then the sender keeps the message"
        self.watcher.suspicious(event, facts)
        if known is None or any(session.peer == source for session in self._open_at.get(known, ())):
            return
        peer = self._peer(Hop(listed[0], source, listed[1:]) if listed else Hop(known, source))
        if peer.session is None and not peer.connecting and peer.retry_at is None:
            self._connect(peer)

    # Time

    def _sessions_due(self, sessions: list[Session], now: float) -> None:
        for session in sessions:
            session.on_timer(now)
            self._after(session, now)

    def _unresolved_due(self, queues: list[Queue], now: float) -> None:
        for queue in queues:
            self.unresolved.pop(queue, None)
            self.ready(queue, now)

    def _peers_due(self, peers: list[Peer], now: float) -> None:
        for peer in peers:
            waiting = [*peer.waiting, *peer.queues]
            peer.retry_at, peer.waiting = None, []
            for queue in waiting:
                if queue.count:
                    self.ready(queue, now)
        for peer in peers:  # after those that are due have tried again
            self._drop(peer)

    def _sweep(self, keys: list[None], now: float) -> None:
        self._sweeping = False
        for queue in self._waiting():
            self.ready(queue, now)
            for peer in self.peers_of(queue):
                if peer.session is not None and peer.session.silent(now):
                    self._leave(peer, now)

    def _leave(self, peer: Peer, now: float) -> None:
        """The peer owes an answer for long. If its manager has moved, the session ends; if it may have, its other
        addresses are asked. A manager that is only slow answers at no other address."""
        session = peer.session
        assert session is not None
        elsewhere = self.neighbours.elsewhere(peer.hop, plain(self.addresses[session]))
        for address in elsewhere:
            if any(each.peer == session.peer for each in self._open_at.get(address, ())):
                self.order.failed(self.addresses[session])
                session.close("the queue manager now answers at another address")
                self._after(session, now)
                return
        for address in elsewhere:
            asked = self._peer(Hop(address, session.peer))
            if asked.session is None and not asked.connecting and asked.retry_at is None:
                self._connect(asked)

    def _waiting(self) -> list[Queue]:
        """Queues with messages and a next hop. Queues without a next hop have their own timer."""
        for queue in [queue for queue in self._active if not queue.count]:
            del self._active[queue]
        return [queue for queue in self._active if queue not in self.unresolved]

    # People

    def pause(self, queue: Queue) -> None:
        """3.1.7.13"""
        for peer in self.peers.values():
            if queue in peer.queues and peer.session is not None:
                peer.session.announce_pause()
                self._flush(peer.session)

    def resume(self, queue: Queue, now: float) -> None:
        """3.1.7.14"""
        if queue.count:
            self.ready(queue, now)

    def stop(self) -> None:
        """3.1.4.2"""
        self._close_all("the queue manager stops")

    def _close_all(self, reason: str) -> None:
        for session in list(self.sessions):
            session.close(reason)
            self._flush(session)
