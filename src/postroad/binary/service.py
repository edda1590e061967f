"""The binary protocol of one queue manager: its peers, their sessions, and the outgoing queues that lead to them.

Without I/O or clock: whoever drives it gives it a way to connect, to write and to wait for durability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from postroad.binary.receiver import Receiver
from postroad.binary.sender import Sender
from postroad.binary.session import Acknowledged, Closed, Opened, Received, Session
from postroad.binary.settings import BinarySettings
from postroad.binary.states import SessionState
from postroad.deadlines import earliest
from postroad.errors import NoRoute, Status, StorageError
from postroad.names import DirectName, FormatName, MulticastName, PrivateName
from postroad.names.direct import Protocol as Transport
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing import ConnectionAttempt, ConnectionStatus, OutgoingState
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.wire.layout import NULL_GUID

MAX_REFUSALS = 100  # callers at a time that hear why they are refused; others find the connection closed
NAME_SERVICES = frozenset({Transport.TCP, Transport.OS})
# ConnectionHistory.Error of a failure; of any other one, that the machine cannot be reached.
_ERRORS = {
    ConnectionStatus.UNKNOWN_FAILURE: Status.ERROR,
    ConnectionStatus.ROUTING_DATA_UNAVAILABLE: Status.NO_DS,
    ConnectionStatus.CONNECTION_LIMIT_REACHED: Status.INSUFFICIENT_RESOURCES,
    ConnectionStatus.LOW_RESOURCE: Status.INSUFFICIENT_RESOURCES,
}


@dataclass(frozen=True, slots=True)
class Hop:
    """Where to connect: a host, and the manager that must answer there (null where a direct name does not say)."""

    host: str
    manager: UUID = NULL_GUID


# The next hops of a destination, in the order to try; none, or NoRoute with the reason, where there is no way.
Resolve = Callable[[FormatName], list[Hop]]


@dataclass(slots=True, eq=False)
class Peer:
    """The way to one hop: at most one session, whoever opened it, and the queues that use it."""

    hop: Hop
    session: Session | None = None
    connecting: bool = False
    retry_at: float | None = None
    last_error: str | None = None
    queues: dict[Queue, None] = field(default_factory=dict)


class Driver(Protocol):
    """What the service needs from the world."""

    def connect(self, peer: Peer) -> None:
        """Starts connecting; `connected` or `connect_failed` follows."""

    def flush(self, session: Session) -> None:
        """Writes what the session has to send, and closes the connection of one that is over."""

    def when_durable(self, done: Callable[[BaseException | None], None]) -> None:
        """Calls `done` when everything changed so far is durable, or could not be."""


class BinaryService:
    """One for a queue manager."""

    def __init__(self, core: LocalQueueManager, settings: BinarySettings, resolve: Resolve, driver: Driver) -> None:
        self.core = core
        self.settings = settings
        self.driver = driver
        self.sender = Sender(core, settings)
        self.receiver = Receiver(core, settings, self.sender.take_order_ack, self.sender.take_final_ack)
        self.peers: dict[Hop, Peer] = {}
        self.sessions: dict[Session, Peer | None] = {}
        self.addresses: dict[Session, str] = {}
        self.past_sent = self.past_received = 0  # messages of sessions that are over
        self.reachability: Callable[[str, str | None], None] = lambda host, fault: (
            None
        )  # told of changes; None: reached
        self._unreachable: set[str] = set()  # hosts, from the first failure until a session opens
        self._resolve = resolve
        self._hops: dict[Queue, tuple[list[Hop], int]] = {}
        self.unresolved: dict[Queue, float] = {}  # queues without a way, and when it is asked for again
        # A message can become free again where nobody sees it: its lock was another's, or a tick was lost. So queues
        # with messages are looked at again and again.
        self._sweep_at: float | None = None
        self._watched: Tick | None = None
        self._lost_ticks = 0
        core.delivery.outgoing_ready = self.queue_ready

    # Outgoing queues

    def start(self, now: float) -> None:
        """3.1.4.1: a session for every queue with messages."""
        self.receiver.history.start(now)
        for queue in list(self.core.queues.outgoing.values()):
            if queue.count:
                self.queue_ready(queue, now)

    def queue_ready(self, queue: Queue, now: float) -> None:
        """There is something to send ([MS-MQQB] 3.1.7.12)."""
        if not self._may_send(queue):
            return
        if self._sweep_at is None:
            self._sweep_at = now + self.settings.retry_connect_s
        peer = self._peer_of(queue, now)
        if peer is None:
            return
        if peer.session is None and not peer.connecting and peer.retry_at is None:
            self._connect(peer)
        if peer.session is not None and peer.session.opened_at:
            self._set_state(peer, OutgoingState.CONNECTED)  # a queue that is new on a session that is not
            self._pump(peer, now)

    def _peer_of(self, queue: Queue, now: float) -> Peer | None:
        name = self.core.queues.outgoing_info[queue].destination
        if isinstance(name, MulticastName) or (isinstance(name, DirectName) and name.protocol not in NAME_SERVICES):
            return None  # another protocol's
        hops, index = self._hops.get(queue, ([], 0))
        if not hops:
            fault = f"no way to {name} is known"
            try:
                hops = self._resolve(name)
            except NoRoute as error:
                fault = f"no route to {name}: {error}"
            hops = hops or self._caller(name)
            self._hops[queue] = (hops, 0)
            index = 0
        info = self.core.queues.outgoing_info[queue]
        if not hops:
            info.state = OutgoingState.NEED_VALIDATION
            info.note(_attempt(ConnectionStatus.ROUTING_DATA_UNAVAILABLE, now), fault)
            self.unresolved[queue] = now + self.settings.retry_connect_s
            return None
        self.unresolved.pop(queue, None)
        hop = hops[index]
        peer = self.peers.get(hop)
        if peer is None:
            peer = self.peers[hop] = Peer(hop)
        peer.queues[queue] = None
        info.next_hops = tuple(each.host for each in hops)
        return peer

    def _caller(self, name: FormatName) -> list[Hop]:
        """No directory knows the way to a manager, but it has a session with us: what is for it goes that way."""
        for session, peer in self.sessions.items():
            if session.opened_at and isinstance(name, PrivateName) and session.peer == name.guid:
                return [peer.hop if peer is not None else Hop(self.addresses[session], name.guid)]
        return []

    def _connect(self, peer: Peer) -> None:
        peer.retry_at = None
        existing = self._session_to(peer.hop)
        if existing is not None:  # one session carries messages both ways, whoever opened it
            peer.session = existing
            self.sessions[existing] = peer
            self._set_reachable(peer, None)
            self._set_state(peer, OutgoingState.CONNECTED)
            return
        peer.connecting = True
        self._set_state(peer, OutgoingState.WAITING)
        self.driver.connect(peer)

    def _session_to(self, hop: Hop) -> Session | None:
        for session, peer in self.sessions.items():
            if peer is None and session.opened_at and not session.closed:
                address = self.addresses[session]
                direct = hop.host in (address, address.partition("%")[0])  # with its zone, where it has one
                if session.peer == hop.manager if hop.manager != NULL_GUID else direct:
                    return session
        return None

    def _pump(self, peer: Peer, now: float) -> None:
        session = peer.session
        if session is None or session.closed:
            return
        # Half a window at a time, so that the peer stores one half while the other is on its way.
        while session.free:
            active = [queue for queue in peer.queues if queue.count and self._may_send(queue)]
            if not active or not self.sender.pump(session, active, now, self.addresses[session]):
                return
            if active[0] in peer.queues:  # others come first next time
                del peer.queues[active[0]]
                peer.queues[active[0]] = None
            self.driver.flush(session)

    def _may_send(self, queue: Queue) -> bool:
        """False for a queue that is paused or locked, and for one that was deleted meanwhile."""
        info = self.core.queues.outgoing_info.get(queue)
        return info is not None and info.state not in (OutgoingState.ON_HOLD, OutgoingState.LOCKED)

    def _set_state(self, peer: Peer, state: OutgoingState) -> None:
        for queue in peer.queues:
            info = self.core.queues.outgoing_info.get(queue)
            if info is not None and info.state is not OutgoingState.ON_HOLD:
                info.state = state

    def _note(self, peer: Peer, status: ConnectionStatus, now: float, error: str | None = None) -> None:
        peer.last_error = error
        attempt = _attempt(status, now, peer.hop.host)
        for queue in peer.queues:
            info = self.core.queues.outgoing_info.get(queue)
            if info is not None:
                info.note(attempt, error)

    def _set_reachable(self, peer: Peer, fault: str | None) -> None:
        """Who watches hears once that a host is out of reach, however often it is tried, and once that it is back."""
        host = peer.hop.host
        if (host in self._unreachable) != (fault is not None):
            self._unreachable ^= {host}
            self.reachability(host, fault)

    # Connections

    def connected(self, peer: Peer, address: str, now: float, *, pinged: bool = False) -> Session:
        """Our connection stands: the handshake begins."""
        session = Session.initiate(self.core.identifier, peer.hop.manager, self.settings, now, pinged=pinged)
        peer.connecting = False
        peer.session = session
        self.sessions[session] = peer
        self.addresses[session] = address
        self._note(peer, ConnectionStatus.IN_PROCESS, now)
        self.driver.flush(session)
        return session

    def connect_failed(self, peer: Peer, status: ConnectionStatus, error: str, now: float) -> None:
        peer.connecting = False
        self._note(peer, status, now, error)
        self._set_reachable(peer, error)
        self._retry(peer, now)

    @property
    def full(self) -> bool:
        """Whether there are as many sessions as there may be; those that are being refused do not count."""
        most = self.settings.max_sessions
        return len(self.sessions) >= most and sum(not session.refusing for session in self.sessions) >= most

    def accepted(self, address: str, now: float) -> Session | None:
        """3.1.5.10. Where there are too many the caller is told so (2.2.1); None where too many are being told."""
        full = self.full
        if full and len(self.sessions) >= self.settings.max_sessions + MAX_REFUSALS:
            return None
        session = Session.accept(self.core.identifier, self.settings, now, refuse=full)
        self.sessions[session] = None
        self.addresses[session] = address
        return session

    def received(self, session: Session, data: bytes, now: float) -> None:
        answer_due = session.state is SessionState.WAITING_ECR_MSG
        session.receive_data(data, now)
        peer = self.sessions.get(session)
        if answer_due and peer is not None and session.state in (SessionState.WAITING_CPR_MSG, SessionState.OPEN):
            self._note(peer, ConnectionStatus.ESTABLISH_PACKET_RECEIVED, now)
        self._after(session, now)

    def unblocked(self, session: Session, now: float) -> None:
        """The peer of a blocked session reads again."""
        session.unblock(now)
        peer = self.sessions.get(session)
        if peer is not None:
            self._pump(peer, now)
        self.driver.flush(session)

    def disconnected(self, session: Session, now: float) -> None:
        session.disconnected()
        self._after(session, now)

    def _after(self, session: Session, now: float) -> None:
        """What follows from what a session has taken in."""
        stored = 0
        with self.core.delivery.together(now):
            for event in session.events():
                match event:
                    case Received():
                        self.receiver.take(session, event, self.addresses[session], now)
                        stored = event.number or stored
                    case Acknowledged():
                        self.sender.acknowledged(event.tokens, now)
                    case Opened():
                        self._opened(session, now)
                    case Closed():
                        self._closed(session, event, now)
        if stored:
            self._watch_tick()
            lost = self._lost_ticks
            self.driver.when_durable(lambda error: self._stored(session, stored, lost, error, now))
        peer = self.sessions.get(session)
        if peer is not None:
            self._pump(peer, now)
        self.driver.flush(session)

    def _watch_tick(self) -> None:
        """What was taken for a duplicate may be one of a message that is then lost with a tick on its way."""
        if self.core.tick is not self._watched:
            self._watched = self.core.tick
            self._watched.on_failure.append(self._tick_lost)

    def _tick_lost(self, error: StorageError) -> None:
        self._lost_ticks += 1

    def _stored(self, session: Session, number: int, lost: int, error: BaseException | None, now: float) -> None:
        if error is not None or lost != self._lost_ticks:
            session.close(f"messages could not be stored: {error or 'the commit before failed'}")
            self._after(session, now)
            return
        session.stored(number, now)
        self.driver.flush(session)

    def _opened(self, session: Session, now: float) -> None:
        peer = self.sessions.get(session)
        if peer is not None:
            self._note(peer, ConnectionStatus.ESTABLISHED, now)
            self._set_reachable(peer, None)
            self._set_state(peer, OutgoingState.CONNECTED)
            for queue in filter(self._may_send, peer.queues):  # 3.1.5.4.2: of the ways there were, this one it is
                self.core.queues.outgoing_info[queue].next_hops = (self.addresses[session],)
            return
        for waiting in self.peers.values():  # somebody we wanted to reach has called
            if waiting.session is None and not waiting.connecting and self._session_to(waiting.hop) is session:
                self._connect(waiting)
        for queue in self._waiting():
            self.queue_ready(queue, now)

    def _closed(self, session: Session, event: Closed, now: float) -> None:
        peer = self.sessions.pop(session, None)
        self.addresses.pop(session, None)
        self.past_sent += session.sent.count
        self.past_received += session.received.count
        self.sender.session_closed(session, now)
        if peer is None:
            return
        peer.session = None
        self._note(peer, event.status, now, event.reason)
        if not session.opened_at:
            self._set_reachable(peer, event.reason)
        self._set_state(peer, OutgoingState.DISCONNECTING)
        self.driver.flush(session)
        self._set_state(peer, OutgoingState.DISCONNECTED)
        self._retry(peer, now)

    def _retry(self, peer: Peer, now: float) -> None:
        """3.1.5.9 and 3.1.6.1: after a while the next hop in turn; behind the last one the way is asked for again."""
        waiting = [queue for queue in peer.queues if queue.count]
        for queue in list(peer.queues):
            hops, index = self._hops.pop(queue, ([], 0))
            if queue.count and index + 1 < len(hops):
                self._hops[queue] = (hops, index + 1)
            del peer.queues[queue]
        if waiting:
            peer.retry_at = now + self.settings.retry_connect_s

    # Time

    @property
    def deadline(self) -> float | None:
        times = [session.deadline for session in self.sessions]
        times += [peer.retry_at for peer in self.peers.values()]
        times += [self.sender.deadline, self.receiver.deadline, self._sweep_at, *self.unresolved.values()]
        return earliest(times)

    def on_timer(self, now: float) -> None:
        for session in list(self.sessions):
            if session.deadline is not None and session.deadline <= now:
                session.on_timer(now)
                self._after(session, now)
        for queue in self.sender.on_timer(now):
            self.queue_ready(queue, now)
        self.receiver.on_timer(now)
        for queue, due in list(self.unresolved.items()):
            if due <= now:
                del self.unresolved[queue]
                self.queue_ready(queue, now)
        for peer in list(self.peers.values()):
            if peer.retry_at is not None and peer.retry_at <= now:
                peer.retry_at = None
                self._sweep_at = now
        if self._sweep_at is not None and self._sweep_at <= now:
            self._sweep_at = None
            for queue in self._waiting():
                self.queue_ready(queue, now)

    def _waiting(self) -> list[Queue]:
        """Queues with messages, and a way to send them; the others have a timer of their own."""
        outgoing = self.core.queues.outgoing.values()
        return [queue for queue in outgoing if queue.count and queue not in self.unresolved]

    # People

    def pause(self, queue: Queue) -> None:
        """3.1.7.13"""
        self.core.queues.outgoing_info[queue].pause()
        for peer in self.peers.values():
            if queue in peer.queues and peer.session is not None:
                peer.session.announce_pause()
                self.driver.flush(peer.session)

    def resume(self, queue: Queue, now: float) -> None:
        """3.1.7.14"""
        self.core.queues.outgoing_info[queue].resume()
        if queue.count:
            self.queue_ready(queue, now)

    def stop(self) -> None:
        """3.1.4.2"""
        for session in list(self.sessions):
            session.close("the queue manager stops")
            self.driver.flush(session)


def _attempt(status: ConnectionStatus, now: float, *addresses: str) -> ConnectionAttempt:
    failed = status >= ConnectionStatus.UNKNOWN_FAILURE
    error = _ERRORS.get(status, Status.REMOTE_MACHINE_NOT_AVAILABLE) if failed else Status.OK
    return ConnectionAttempt(status, int(now), error.value, addresses)
