"""The SOAP protocol of one queue manager: where it posts, what others post to it, and when it tries again.

No I/O and no clock. The driver makes the requests, passes on their answers, and waits for durability.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from postroad.carriers.flights import (
    PeerQueues,
    TransferWatcher,
    attempt,
    may_send,
    sendable,
    transfer_info,
    waiting_for,
)
from postroad.names import DirectName, FormatName, parse_format_name
from postroad.names.format import Protocol as Scheme
from postroad.net import ports
from postroad.net.endpoints import endpoint, is_address, plain_address
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import (
    CarrierReport,
    ConnectionStatus,
    IncomingTransferInfo,
    OutgoingEvent,
    OutgoingTransferInfo,
    Progress,
    SequenceInfo,
)
from postroad.queues.queue import PositionState, Queue
from postroad.reports.info import SessionInfo
from postroad.runtime.deadlines import Source, earliest
from postroad.soap.addresses import url_of
from postroad.soap.receiver import BAD_REQUEST, OK, SERVER_ERROR, Incoming, Outcome, Receiver
from postroad.soap.requests import Outgoing, Request, admin_of
from postroad.soap.sender import Flight, Sender, Standing, Transfer
from postroad.soap.settings import TIMERS, SoapSettings
from postroad.store.interface import Record
from postroad.wire.patch import brought_by
from postroad.wire.view import MessageView

# Descriptions of outgoing queues that lead to a URL: plain values, and a sentence about what a queue waits for. This
# part only reads.


STUCK_S = 15.0  # a step that takes longer needs attention
# The meaning of answers that no queue manager gives, and what to do. Other statuses need no explanation.
_LOGIN = "it wants a login or refuses this manager: allow it there, or set srmp.proxy with its user and password"
_ELSEWHERE = "it redirects us, and messages follow no redirection: send to the right URL, or set [[srmp.outbound]]"
_STATUSES = frozenset(HTTPStatus)
_ADVICE = {
    **dict.fromkeys((301, 302, 303, 307, 308), _ELSEWHERE),
    **dict.fromkeys((401, 403, 407, 511), _LOGIN),
    **dict.fromkeys(
        (404, 405, 410), "nothing takes messages at that URL: check its path, and what the proxy does with it"
    ),
    **dict.fromkeys((408, 425, 429), "it is too busy: nothing to do if it passes"),
    413: "the message is too large for it: raise the limit of the proxy or web server",
    **dict.fromkeys((502, 504), "the proxy or web server does not reach the queue manager: check that it runs"),
}


def report(service: SoapService, queue: Queue, now: float) -> CarrierReport:
    peer = service.peer_of(queue)
    transfer = service.sender.transfers.get(queue) or Transfer()
    posts = [post.flight for post in peer.posts if post.flight.queue is queue] if peer is not None else []
    ordering = [each for each in transfer.unacked if each.answered]
    leaving = sum(state is PositionState.DELETED for state in queue.positions.values())
    held = len(posts) + len(ordering) + len(transfer.awaiting_final) + leaving
    unsent = max(0, queue.count - held)
    retry_s = None if peer is None or peer.retry_at is None else _until(peer.retry_at, now)
    resend_s = None if transfer.resend_at is None or not ordering else _until(transfer.resend_at, now)
    fault = None if peer is None else peer.last_error
    if retry_s is None and (again_at := _again_at(transfer, posts, unsent)) is not None:
        retry_s, fault = _until(again_at, now), transfer.fault
    why, stuck = _why(peer, fault, unsent, posts, ordering, len(transfer.awaiting_final), now, retry_s, resend_s)
    return CarrierReport(
        why=why if queue.count else None,
        stuck=stuck and queue.count > 0,
        unsent=unsent,
        in_flight=len(posts),
        unacknowledged=len(ordering),
        awaiting_final_ack=len(transfer.awaiting_final),
        next_retry_s=retry_s,
        next_resend_s=resend_s,
        resend_interval_s=None if resend_s is None else service.settings.resend_s[transfer.resend_index],
    )


def answer_in_words(host: str, status: int) -> str:
    """An answer other than 2xx and 400, for people."""
    phrase = f" ({HTTPStatus(status).phrase})" if status in _STATUSES else ""
    advice = _ADVICE.get(status)
    return f"{host} answered {status}{phrase}" + ("" if advice is None else f": {advice}")


def _why(
    peer: Peer | None,
    fault: str | None,
    unsent: int,
    posts: list[Flight],
    ordering: list[Flight],
    final: int,
    now: float,
    retry_s: float | None,
    resend_s: float | None,
) -> tuple[str, bool]:
    """What the messages wait for, and whether that needs attention."""
    if peer is None:
        return "not tried yet", False
    host = peer.address.host
    if retry_s is not None:
        return f"{fault or 'not connected'}; next try in {retry_s:.1f} s", True
    if posts:
        since = _longest(posts, now)
        return f"sent to {host}, waiting for its answer for {since:.1f} s", since > STUCK_S
    if ordering:
        since = _longest(ordering, now)
        again = "" if resend_s is None else f"; sent again in {resend_s:.1f} s"
        return f"arrived at {host}, waiting for its stream receipt for {since:.1f} s{again}", since > STUCK_S
    if unsent:
        return f"about to be sent to {host}", False
    if final:
        return f"arrived at {host}, and kept until it is known whether they were received", False
    return "nothing is left to send: held by a reader, or about to leave the queue", False


def _again_at(transfer: Transfer, posts: list[Flight], unsent: int) -> float | None:
    """When a stopped queue goes on; or, if all its messages have stepped aside, when the first of them does."""
    if transfer.waits_until is None and transfer.aside and not posts and unsent == len(transfer.aside):
        return min(again_at for again_at, _ in transfer.aside.values())
    return transfer.waits_until


def _longest(flights: list[Flight], now: float) -> float:
    return max(0.0, now - min(each.sent_at for each in flights))


def _until(time: float, now: float) -> float:
    return round(max(0.0, time - now), 3)


KNOWN_ADDRESSES = 10_000


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect. `secure` means HTTPS."""

    host: str
    port: int
    secure: bool = False

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{endpoint(self.host, self.port)}"


@dataclass(slots=True, eq=False, kw_only=True)
class Peer(PeerQueues):
    """One address, with the requests that it has not answered, and the queues that use it."""

    address: Address
    ready: dict[Queue, None] = field(default_factory=dict)  # queues that may have something to send
    posts: set[Post] = field(default_factory=set)
    connected: bool = False
    idle_at: float | None = None  # Session Cleanup Timer


@dataclass(slots=True, eq=False)
class Post:
    """One request on its way. Its answer counts unless it was given up."""

    peer: Peer
    flight: Flight
    request: Request
    given_up: bool = False


def _due_at(peer: Peer) -> float | None:
    return earliest((peer.retry_at, peer.idle_at))


class Driver(Protocol):
    """What the service needs from its driver."""

    def post(self, post: Post) -> None:
        """Makes the request. Calls `answered` or `failed` afterwards."""

    def close(self, peer: Peer) -> None:
        """Closes the connections to a peer. Its requests are given up."""


class SoapService:
    """The SOAP protocol of one queue manager, and the Carrier of its queues that lead to URLs.

    `port_of` gives the port of a host if it is not the one in its URL. `addresses_of` gives the addresses at which a
    host was found, if anybody looked.
    """

    hardened = True

    def __init__(
        self,
        core: LocalQueueManager,
        settings: SoapSettings,
        driver: Driver,
        port_of: Callable[[str, int], int] = lambda host, port: port,
        addresses_of: Callable[[str], Collection[str]] = lambda host: (),
        watcher: TransferWatcher = TransferWatcher(),  # noqa: B008  (it is frozen)
        first_address: Callable[[str], str] = lambda address: address,
    ) -> None:
        self.core = core
        self.settings = settings
        self.driver = driver
        self.outgoing = Outgoing(core, settings.redirections)
        self.sender = Sender(core, settings, self.outgoing.receipts_url, self._standing)
        self.receiver = Receiver(core, settings, self.sender, watcher, first_address)
        self.peers: dict[Address, Peer] = {}
        self.sent = self.taken = self.refused = 0  # requests of ours and of others, since the start
        self._watcher = watcher
        self._port_of = port_of
        self._addresses: dict[Queue, Address] = {}
        self._addresses_of = addresses_of
        # By host, over all its ports, so that nobody can make us open connections without limit.
        self._posts_to: dict[str, int] = {}
        self._starving: dict[str, dict[Peer, None]] = {}  # by host: the peers that wait for answers of other ports
        self._timed = core.deadlines.source(TIMERS, self._peers_due, _due_at)
        self._retransmission: Source[None] = core.deadlines.source(TIMERS, self._retransmit)  # Retransmission Timer
        core.attach(self)

    # What queues ask of a carrier

    def carries(self, name: FormatName) -> bool:
        return isinstance(name, DirectName) and name.protocol in (Scheme.HTTP, Scheme.HTTPS)

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        (self.sender if queue.is_outgoing else self.receiver).removed(queue, record, reason, now)

    def brought(self, view: MessageView) -> bool:
        return view.arrived_by_http

    def origin(self, view: MessageView) -> str | None:
        return brought_by(view.data) or None

    def names(self, address: str) -> tuple[str, ...]:
        return ()

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        return admin_of(view, message_class)

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        return self.receiver.way_of_acknowledgment(view, name)

    def hosts(self, name: FormatName) -> tuple[str, ...]:
        assert isinstance(name, DirectName)
        return (name.host,)

    def may_answer(self, name: FormatName, address: str) -> bool:
        queue = self.core.queues.outgoing.get(name)
        return queue is not None and self._standing(queue, address) is not Standing.STRANGER

    def report(self, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
        return report(self, queue, now)

    def progress(self, queue: Queue, lookup_id: int, now: float) -> Progress | None:
        return Progress("on its way") if queue.positions.get(lookup_id) is PositionState.LOCKED else None

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        return None  # ids are remembered only together with the address that brought them

    def session_infos(self) -> list[SessionInfo]:
        return []

    traffic = (0, 0)

    def transfer(self, queue: Queue) -> OutgoingTransferInfo:
        found = self.sender.transfers.get(queue)
        last_ack = None
        if found is not None and found.stream is not None and found.last_ack_count:
            number = found.stream.acknowledged
            last_ack = SequenceInfo(found.stream.sequence.value, number, number - 1)
        return transfer_info(found, last_ack, self.settings.resend_s)

    def incoming(self) -> Iterator[IncomingTransferInfo]:
        for each in self.receiver.incoming:
            place = each.stream_id.sequence.value
            sender = each.stream_id.guid
            yield IncomingTransferInfo(each.format_name, sender, place, each.number, each.last_access_s, each.rejects)

    def resend(self, queue: Queue, now: float) -> None:
        self.sender.resend(queue, now)

    def take_offline(self, now: float) -> None:
        for peer in list(self.peers.values()):
            self._give_up(peer)

    def bring_online(self, now: float) -> None:
        """Nothing waits: peers lost their time of the next try when the manager went offline."""

    # Outgoing queues

    def start(self, now: float) -> None:
        """3.1.3.1 and 3.1.4.1: starts the Retransmission Timer, and tries every queue that has messages."""
        self.receiver.history.start(now)
        waiting = waiting_for(self.core.queues, self)
        self.sender.start(waiting)
        self._retransmission.set(None, now + self.settings.retransmission_ms / 1000)
        for queue in waiting:
            self.ready(queue, now)

    def ready(self, queue: Queue, now: float) -> None:
        """3.1.7.7: there is something to send."""
        if may_send(self.core.queues, queue):
            peer = self._peer_of(queue)
            peer.ready[queue] = None
            self._pump(peer, now)

    def peer_of(self, queue: Queue) -> Peer | None:
        """The peer that the messages of a queue use. None if nothing was sent yet."""
        name = self.core.queues.outgoing_info[queue].destination
        assert isinstance(name, DirectName)
        peer = self.peers.get(self._address(queue, name))
        return peer if peer is not None and queue in peer.queues else None

    def forget(self, queue: Queue) -> None:
        """The outgoing queue is removed. Drops everything about it."""
        name = parse_format_name(queue.properties.path)
        assert isinstance(name, DirectName)
        self.sender.forget(queue)
        peer = self.peers.get(self._address(queue, name))
        self._addresses.pop(queue, None)
        if peer is not None:
            peer.queues.pop(queue, None)
            peer.ready.pop(queue, None)
            for post in peer.posts:
                post.given_up |= post.flight.queue is queue

    def _peer_of(self, queue: Queue) -> Peer:
        info = self.core.queues.outgoing_info[queue]
        name = info.destination
        assert isinstance(name, DirectName)
        address = self._address(queue, name)
        peer = self.peers.get(address)
        if peer is None:
            peer = self.peers[address] = Peer(address=address)
        if queue not in peer.queues:
            peer.queues[queue] = None
            info.next_hops = (address.host,)
            if peer.connected:
                info.on(OutgoingEvent.CONNECTED)
        return peer

    def _address(self, queue: Queue, name: DirectName) -> Address:
        """3.1.7.9: the host of the name, or the one with which the configuration replaces it."""
        address = self._addresses.get(queue)
        if address is None:
            if len(self._addresses) >= KNOWN_ADDRESSES:  # the cache also has queues that are gone
                self._addresses.clear()
            address = self._addresses[queue] = self._find_address(name)
        return address

    def _find_address(self, name: DirectName) -> Address:
        target = self.settings.redirections.outbound_target(url_of(name))
        if target is not None:
            parts = urlsplit(target)
            secure = parts.scheme == "https"
            host = parts.hostname or name.host
            return Address(host, self._port_of(host, parts.port or (ports.HTTPS if secure else ports.HTTP)), secure)
        assert name.port is not None
        return Address(name.host, self._port_of(name.host, name.port), name.protocol is Scheme.HTTPS)

    def _pump(self, peer: Peer, now: float) -> None:
        """Queues take turns, so that none waits for another's backlog. The ports of one host take turns too."""
        if peer.retry_at is not None:
            return
        waiting = sendable(self.core.queues, peer.ready)
        peer.ready = dict.fromkeys(waiting)
        while waiting and (free := self._free(peer)) > 0:
            queue = waiting.pop(0)
            share = max(1, free // (len(waiting) + 1))
            flights = self.sender.take(queue, share, now)
            for flight in flights:
                self._post(peer, flight, now)
            if len(flights) == share:
                waiting.append(queue)
        if waiting:
            self._starving.setdefault(peer.address.host, {})[peer] = None
        if peer.ready:  # the others go first next time
            first = next(iter(peer.ready))
            del peer.ready[first]
            peer.ready[first] = None

    def _free(self, peer: Peer) -> int:
        return self.settings.posts_per_host - self._posts_to.get(peer.address.host, 0)

    def _post(self, peer: Peer, flight: Flight, now: float) -> None:
        if not peer.connected and not peer.posts:
            peer.happened(self.core.queues, OutgoingEvent.CONNECT)
            peer.note(self.core.queues, ConnectionStatus.IN_PROCESS, now, peer.address.host)
        try:
            request = self.outgoing.request(flight)
        except Exception as error:  # it can never be written as SOAP; the messages after it go on
            self.core.delivery.note_failure(flight.record.packet, error)
            self.sender.refused(flight, now)
            return
        post = Post(peer, flight, request)
        peer.posts.add(post)
        self._posts_to[peer.address.host] = self._posts_to.get(peer.address.host, 0) + 1
        peer.idle_at = None
        self.driver.post(post)

    def _posted(self, post: Post) -> None:
        """The request has ended, with or without an answer."""
        if post not in post.peer.posts:
            return
        post.peer.posts.discard(post)
        host = post.peer.address.host
        self._posts_to[host] -= 1
        if not self._posts_to[host]:
            del self._posts_to[host]

    def _feed(self, host: str, now: float) -> None:
        """A request to the host has ended: the waiting peers take turns."""
        starving = self._starving.get(host, {})
        while starving and self._posts_to.get(host, 0) < self.settings.posts_per_host:
            peer = next(iter(starving))
            del starving[peer]
            self._pump(peer, now)
        if not starving:
            self._starving.pop(host, None)

    # Answers to our requests, 3.1.7.2.5

    def answered(self, post: Post, status: int, now: float) -> None:
        """Any 2xx counts as 200. 400 means never, everything else later, 3.1.2.1."""
        peer = self._over(post)
        if peer is None:
            self._feed(post.peer.address.host, now)
            return
        if status >= SERVER_ERROR:
            self._failed(post, ConnectionStatus.NOT_READY, answer_in_words(peer.address.host, status), now)
            return
        if not peer.connected:
            peer.connected = True
            peer.note(self.core.queues, ConnectionStatus.ESTABLISHED, now, peer.address.host)
            peer.happened(self.core.queues, OutgoingEvent.CONNECTED)
        if OK <= status < 300:
            self.sent += 1
            self._goes_on(post, now)
            self.sender.delivered(post.flight, now)
        elif status == BAD_REQUEST:
            self._goes_on(post, now)
            self._refused(post, status, now)
        else:
            self._put_off(post, status, now)
        if not peer.posts:
            peer.idle_at = now + self.settings.cleanup_ms / 1000
            self._timed.touch(peer)
        self._feed(peer.address.host, now)
        self._pump(peer, now)

    def _refused(self, post: Post, status: int, now: float) -> None:
        info = self.core.queues.outgoing_info.get(post.flight.queue)
        if info is not None:
            info.last_error = f"{post.peer.address.host} refused a message with {status}"
            info.failures += 1
        self.sender.refused(post.flight, now)

    def _put_off(self, post: Post, status: int, now: float) -> None:
        """No queue manager gave this answer. It only affects this queue."""
        queue, host = post.flight.queue, post.peer.address.host
        fault = answer_in_words(host, status)
        self.sender.put_off(post.flight, fault, now)
        info = self.core.queues.outgoing_info.get(queue)
        if info is not None:
            info.note(attempt(ConnectionStatus.NOT_READY, now, host), fault)
            info.on(OutgoingEvent.FAILED)
            facts = {"peer": host, "queue": str(info.destination), "reason": fault}
            self._watcher.suspicious("SOAP message put off", facts)

    def _goes_on(self, post: Post, now: float) -> None:
        queue = post.flight.queue
        info = self.core.queues.outgoing_info.get(queue)
        if self.sender.goes_on(queue, now) and info is not None:
            info.note(attempt(ConnectionStatus.ESTABLISHED, now, post.peer.address.host))
            info.on(OutgoingEvent.CONNECTED)

    def failed(self, post: Post, status: ConnectionStatus, error: str, now: float) -> None:
        """There was no answer."""
        if self._over(post) is not None:
            self._failed(post, status, error, now)
        else:
            self._feed(post.peer.address.host, now)

    def _over(self, post: Post) -> Peer | None:
        self._posted(post)
        return None if post.given_up else post.peer

    def _failed(self, post: Post, status: ConnectionStatus, error: str, now: float) -> None:
        """Gives up the whole peer for a while. Its other requests under way are sent again too."""
        peer = post.peer
        others = list(peer.posts)
        peer.connected = False
        peer.idle_at = None
        peer.retry_at = now + self.settings.retransmission_ms / 1000
        self._timed.touch(peer)
        self.sender.failed(post.flight, now)
        peer.note(self.core.queues, status, now, peer.address.host, error)
        peer.happened(self.core.queues, OutgoingEvent.FAILED)
        if not others:
            self.driver.close(peer)
        self._feed(peer.address.host, now)

    # Requests of others

    def _standing(self, queue: Queue, address: str) -> Standing:
        """Receipts for the messages of a queue must come from where the messages went: the destination, the manager
        that takes them on the way, or an address that the configuration trusts.

        Behind a redirection or a proxy, the address of the destination may be unknown. Then it is enough that a receipt
        has the right ids of stream and message, which nobody can guess.
        """
        name = self.core.queues.outgoing_info[queue].destination
        assert isinstance(name, DirectName)
        address = plain_address(address)
        found = {
            plain_address(each) for host in (name.host, self._address(queue, name).host) for each in self._found(host)
        }
        if address in found or self.core.delivery.relay.trusts(address):
            return Standing.RECEIVER
        return Standing.STRANGER if self._found(name.host) else Standing.UNKNOWN

    def _found(self, host: str) -> Collection[str]:
        return (host,) if is_address(host) else self._addresses_of(host)

    def received(self, incoming: Incoming, now: float) -> Outcome:
        """Takes a request and returns the answer. A 200 must wait until all changes so far are durable."""
        outcome = self.receiver.take(incoming, now)
        if outcome.status == OK:
            self.taken += 1
        else:
            self.refused += 1
        return outcome

    # Time

    def _peers_due(self, peers: list[Peer], now: float) -> None:
        for peer in peers:
            if peer.idle_at is not None and peer.idle_at <= now:
                self._clean_up(peer)
            if peer.retry_at is not None and peer.retry_at <= now:
                peer.retry_at = None
                self._pump(peer, now)
                if not (peer.posts or any(queue.count for queue in peer.queues)):
                    self.peers.pop(peer.address, None)  # its messages have expired or were removed
            self._timed.touch(peer)

    def _retransmit(self, keys: list[None], now: float) -> None:
        """3.1.6.1"""
        self._retransmission.set(None, now + self.settings.retransmission_ms / 1000)
        self.receiver.incoming.forget_old(self.core.tick, now)
        for queue in waiting_for(self.core.queues, self):
            self.ready(queue, now)

    def _clean_up(self, peer: Peer) -> None:
        """3.1.6.4"""
        peer.idle_at = None
        peer.connected = False
        self.driver.close(peer)
        peer.happened(self.core.queues, OutgoingEvent.CLOSED)
        if not any(queue.count for queue in peer.queues):
            self.peers.pop(peer.address, None)

    # People

    def pause(self, queue: Queue) -> None:
        """3.1.7.4: stops sending from this queue. Requests of other queues go on."""
        transfer = self.sender.transfers.get(queue)
        if transfer is not None:
            transfer.resend_at = None
            self.sender.hurry(queue, transfer.put_off_at)
        peer = self.peer_of(queue)
        if peer is not None and not any(may_send(self.core.queues, each) for each in peer.queues):
            self._give_up(peer)

    def _give_up(self, peer: Peer) -> None:
        for post in list(peer.posts):
            self._posted(post)
            if not post.given_up:
                post.given_up = True
                self.sender.failed(post.flight, post.flight.sent_at)
        peer.connected = False
        peer.idle_at = peer.retry_at = None
        self.driver.close(peer)

    def resume(self, queue: Queue, now: float) -> None:
        """3.1.7.5"""
        self.sender.hurry(queue, now)
        if queue.count:
            self.ready(queue, now)
