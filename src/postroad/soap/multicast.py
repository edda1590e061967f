"""SOAP by multicast, [MC-MQSRM] 2.1.2: the Carrier of outgoing queues that lead to groups, and the queues that listen.

No I/O, no clock, no chance of its own. The driver moves PGM packets, and calls `on_timer` at `deadline`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import md5
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from postroad.carriers.arrivals import MessageIdHistory, foreign_id, overflow, refusal
from postroad.carriers.flights import Flight, TransferWatcher, attempt, leave, may_send, waiting_for
from postroad.errors import IllegalName, MalformedSoap, ManagerFull
from postroad.names import FormatName, MulticastName
from postroad.pgm.packet import Kind, Nak, Packet, Tsi
from postroad.pgm.receiver import Apdu, OutgoingNak, Receiver, ReceiverCounts, Session
from postroad.pgm.settings import PgmSettings
from postroad.pgm.source import Outgoing, Source
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import (
    CarrierReport,
    ConnectionStatus,
    IncomingTransferInfo,
    OutgoingEvent,
    OutgoingTransferInfo,
    Progress,
)
from postroad.queues.permissions import Credentials
from postroad.queues.queue import PositionState, Queue
from postroad.reports.info import GroupInfo, MulticastInfo, SessionInfo
from postroad.runtime.deadlines import earliest
from postroad.security.access import Token
from postroad.security.refusals import EXPIRED, WRONG_DIGEST
from postroad.soap.addresses import destination_of, is_http
from postroad.soap.elements import Attachments, Envelope, Services
from postroad.soap.envelope import is_receipt, read_envelope
from postroad.soap.multipart import split_entity
from postroad.soap.packets import NOT_IDENTIFIED, identifier_of, packet_of
from postroad.soap.receiver import note_late
from postroad.soap.requests import Outgoing as Written
from postroad.soap.settings import CLOCK_TOLERANCE_S, DUPLICATES, DUPLICATES_S
from postroad.soap.signature import check_signature
from postroad.store.interface import Record
from postroad.wire.constants import MessageClass
from postroad.wire.patch import wants_positive_copy
from postroad.wire.view import MessageView

# A message as the text of an HTTP POST, sent and received by multicast, [MC-MQSRM] 2.1.2 and 4.5. Nobody answers such a
# request. Its receivers ignore the HTTP header (note 2), except for what it says about the entity.


MAX_HEADER = 8192
_METHOD = b"POST "
_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")


def join_request(name: MulticastName, content_type: str, entity: bytes) -> bytes:
    """The request line contains only the address, without a slash."""
    address = f"{name.address}:{name.port}"
    lines = (
        f"POST {address} HTTP/1.1",
        f"Host: {address}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(entity)}",
        'SOAPAction: "MSMQMessage"',
        "Proxy-Accept: NonInteractiveClient",
    )
    return "\r\n".join((*lines, "", "")).encode("ascii") + entity


def split_request(text: bytes) -> tuple[str, bytes, int]:
    """Returns Content-Type, the part of the entity that is here, and its whole length. MalformedSoap if this is no
    request."""
    end = _END.search(text, 0, MAX_HEADER)
    if not text.startswith(_METHOD) or end is None:
        raise MalformedSoap("request", "a multicast message must be an HTTP POST with a header of its own")
    content_type, length = "", None
    for line in _FOLD.sub(b" ", text[: end.start()]).split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        match name.strip().lower():
            case b"content-type":
                content_type = value.strip().decode("latin-1")
            case b"content-length" if value.strip().isdigit():
                length = int(value)
    entity = text[end.end() :]
    return content_type, entity, len(entity) if length is None else length


class Requests:
    """The requests of one source. Each APDU has one request, or the rest of an incomplete one."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._unfinished = b""

    def take(self, apdu: bytes) -> tuple[str, bytes] | None:
        """Returns Content-Type and entity; None while more has to come. MalformedSoap for bytes of no request."""
        if apdu.startswith(_METHOD):
            text = apdu
        elif self._unfinished:
            text = self._unfinished + apdu
        else:
            raise MalformedSoap("request", "a multicast message must begin with POST")
        self._unfinished = b""
        content_type, entity, length = split_request(text)
        if length > self._longest:
            raise MalformedSoap("Content-Length", f"must be at most {self._longest} bytes, got {length}")
        if len(entity) < length:
            self._unfinished = text
            return None
        return content_type, entity[:length]

    def lost(self) -> None:
        """Packets are missing. Drops what has come of a request."""
        self._unfinished = b""


# Messages that came by multicast go into the queues that listen to their address, [MC-MQSRM] 3.1.5.1.3 and 3.1.5.1.12.
# A refused message is counted, and its sender never learns of it. Receipts leave only if `receipts` is on, and by HTTP.


HISTORY_STATE = "multicast-history/"
_EVERYONE = Credentials(Token.everyone())


@dataclass(frozen=True, slots=True)
class ReceiptSettings:
    """Every receiver of a message answers it. So each of them waits for a random time of up to `delay_s` seconds."""

    enabled: bool = False
    delay_s: float = 5.0
    waiting: int = 1000  # at most; for messages that arrive beyond that, no receipt is sent


class MulticastReceiver:
    """`bindings` are the queues that listen, by address. `chance` gives 0 to 1. A queue manager has one receiver."""

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
        self._arrived: list[tuple[float, int, MessageView]] = []  # delivery receipts that wait, the next one first
        self.bindings: dict[MulticastName, list[Queue]] = {}
        self.history = MessageIdHistory(core.store, DUPLICATES, DUPLICATES_S, HISTORY_STATE)
        self.taken = self.refused = 0  # messages, since the start
        self._accept_hashes = accept_hashes
        self._clock_tolerance_s = clock_tolerance_s
        self._watcher = watcher

    def take(self, content_type: str, entity: bytes, address: str, now: float) -> bool:
        """Returns whether it is a message for a queue here. Refuses what cannot be read."""
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
        """Puts copies into all queues that listen. They share one id, so the id is looked up once."""
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
                    note_late(self._watcher, view, self._clock_tolerance_s, now)
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
    """Removes what a message must not ask for: receipts, unless they go by HTTP and are on; and dead letters or
    journals here, because the message is somebody else's."""
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
    """The delivery receipt is sent later, and not by the queue that the message reaches."""
    if envelope.services is None or envelope.services.delivery_receipt_request is None:
        return envelope
    return replace(envelope, services=replace(envelope.services, delivery_receipt_request=None))


NOT_WRITTEN = MessageClass.NACK_BAD_DST_Q  # a message that cannot be written as SOAP, or is too long for PGM


@dataclass(frozen=True, slots=True)
class MulticastSettings:
    pgm: PgmSettings = field(default_factory=PgmSettings)
    idle_s: float = 900.0  # a source without messages ends after this time
    backlog: int = 128 << 10  # bytes in a source that wait for the rate limit; further messages wait in their queue
    retry_s: float = 20.0
    receipts: ReceiptSettings = field(default_factory=ReceiptSettings)


class Driver(Protocol):
    """What the service needs from its driver."""

    @property
    def address(self) -> str | None:
        """The address that our packets leave from. None if nothing can be sent."""

    @property
    def error(self) -> str | None:
        """Why nothing can be sent, and what to do about it."""

    @property
    def malformed(self) -> int:
        """Packets that cannot be read."""

    @property
    def overflowed(self) -> int:
        """Packets that came while a receive buffer was full."""

    def send(self, group: str, out: Outgoing) -> None: ...

    def send_nak(self, group: str, nak: OutgoingNak) -> None: ...

    def join(self, group: str) -> str | None:
        """Joins a group. Returns why its packets cannot be received; None if they can."""

    def leave(self, group: str) -> None: ...

    def wake(self) -> None:
        """There may be an earlier deadline, because somebody has sent a message."""


@dataclass(slots=True, eq=False)
class _Stream:
    """What leaves one outgoing queue."""

    queue: Queue
    name: MulticastName
    source: Source
    idle_at: float


@dataclass(slots=True, eq=False)
class _Group:
    """An address and port that queues here listen to."""

    name: MulticastName
    receiver: Receiver
    error: str | None
    requests: dict[Session, Requests] = field(default_factory=dict)


class MulticastService:
    """`chance` gives numbers from 0 to 1. A queue manager has one service."""

    hardened = False  # [MS-MQDMPR] 3.1.3: a hardened manager sends by HTTP alone

    def __init__(
        self,
        core: LocalQueueManager,
        settings: MulticastSettings,
        driver: Driver,
        written: Written,
        chance: Callable[[], float],
        watcher: TransferWatcher = TransferWatcher(),  # noqa: B008  (it is frozen)
        accept_hashes: frozenset[str] = frozenset(),
        clock_tolerance_s: float = CLOCK_TOLERANCE_S,
    ) -> None:
        self.core = core
        self.settings = settings
        self.driver = driver
        self.receiver = MulticastReceiver(core, accept_hashes, clock_tolerance_s, watcher, settings.receipts, chance)
        self.sent = self.refused = 0  # messages, since the start
        self._written = written
        self._chance = chance
        self._watcher = watcher
        self._gsi = md5(core.identifier.bytes_le, usedforsecurity=False).digest()[:6]
        self._streams: dict[Queue, _Stream] = {}
        self._ending: list[_Stream] = []  # sources that have ended but still repair
        self._groups: dict[MulticastName, _Group] = {}
        self._joined: dict[str, str | None] = {}  # addresses; the value says why one cannot be listened to
        self._retry_at: float | None = None
        self._past = ReceiverCounts()  # of groups that no queue listens to any longer
        self._repairs_sent = self._forced = 0  # of sources that have ended
        core.attach(self)

    # What queues ask of a carrier

    def carries(self, name: FormatName) -> bool:
        return isinstance(name, MulticastName)

    def brought(self, view: MessageView) -> bool:
        return False  # a message that came by multicast asks for no acknowledgments

    def origin(self, view: MessageView) -> str | None:
        return None

    def names(self, address: str) -> tuple[str, ...]:
        return ()

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        return None

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        return None

    def hosts(self, name: FormatName) -> tuple[str, ...]:
        return ()  # no stranger can make us send to a group

    def may_answer(self, name: FormatName, address: str) -> bool:
        return False  # a message to a group asks for no acknowledgments

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """Does nothing: what is already in a source leaves all the same."""

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        return None

    def session_infos(self) -> list[SessionInfo]:
        return []

    def transfer(self, queue: Queue) -> OutgoingTransferInfo:
        return OutgoingTransferInfo()

    def incoming(self) -> tuple[IncomingTransferInfo, ...]:
        return ()

    def resend(self, queue: Queue, now: float) -> None:
        """Does nothing: no transactional message goes to a group."""

    def take_offline(self, now: float) -> None:
        """Does nothing: what is in a source leaves, and nothing else is sent or taken."""

    def bring_online(self, now: float) -> None:
        """Does nothing: nothing waits here."""

    traffic = (0, 0)

    def progress(self, queue: Queue, lookup_id: int, now: float) -> Progress | None:
        return Progress("on its way") if queue.positions.get(lookup_id) is PositionState.LOCKED else None

    def report(self, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
        in_flight = sum(state is PositionState.LOCKED for state in queue.positions.values())
        leaving = sum(state is PositionState.DELETED for state in queue.positions.values())
        unsent = max(0, queue.count - in_flight - leaving)
        why: str | None = None
        if queue.count:
            waiting = f"waiting for the rate limit of {self.settings.pgm.txw_max_rte // 1000} kB/s"
            why = waiting if self.driver.address is not None else f"cannot send by multicast: {self.driver.error}"
        retry_s = None if self._retry_at is None else round(max(0.0, self._retry_at - now), 3)
        stuck = self.driver.address is None and queue.count > 0
        return CarrierReport(why=why, stuck=stuck, unsent=unsent, in_flight=in_flight, next_retry_s=retry_s)

    # Out

    def start(self, now: float) -> None:
        self.receiver.history.start(now)
        self.rebind()
        for queue in waiting_for(self.core.queues, self):
            self.ready(queue, now)

    def ready(self, queue: Queue, now: float) -> None:
        """3.1.7.7: there is something to send."""
        if not may_send(self.core.queues, queue):
            return
        stream = self._streams.get(queue) or self._open(queue, now)
        if stream is not None:
            self._pump(stream, now)
            self._poll(stream, now)
        self.driver.wake()

    def _open(self, queue: Queue, now: float) -> _Stream | None:
        """3.1.7.9: opens a PGM session to the address and port in the name."""
        info = self.core.queues.outgoing_info[queue]
        name = info.destination
        assert isinstance(name, MulticastName)
        group, address = str(name.address), self.driver.address
        info.next_hops = (group,)
        info.on(OutgoingEvent.CONNECT)
        if address is None:
            if self._retry_at is None:
                self._retry_at = now + self.settings.retry_s
            info.note(attempt(ConnectionStatus.CREATE_SOCKET_FAILURE, now, group), self.driver.error)
            info.on(OutgoingEvent.FAILED)
            return None
        tsi = Tsi(self._gsi, self._number(0xFFFF))
        source = Source(tsi, address, group, name.port, self.settings.pgm, self._number(0xFFFFFFFF), now)
        stream = self._streams[queue] = _Stream(queue, name, source, now + self.settings.idle_s)
        info.note(attempt(ConnectionStatus.ESTABLISHED, now, group))
        info.on(OutgoingEvent.CONNECTED)
        return stream

    def _number(self, most: int) -> int:
        return int(self._chance() * most)

    def _pump(self, stream: _Stream, now: float) -> None:
        """Moves messages from the queue into the source, which holds only as much as it sends in a short time."""
        queue, source = stream.queue, stream.source
        while source.backlog < self.settings.backlog and may_send(self.core.queues, queue):
            records = self.core.delivery.fresh(queue, 1, now)
            if not records:
                return
            (record,) = records
            stream.idle_at = now + self.settings.idle_s
            try:
                text = self._text(stream.name, record)
                queue.mark(record.lookup_id, PositionState.LOCKED)
                source.send(text, Flight(queue, record, sent_at=now))
            except Exception as error:  # it can never be sent: the messages behind it go on
                self.refused += 1
                self.core.delivery.note_failure(record.packet, error)
                self.core.delivery.take(queue, record, NOT_WRITTEN, now)

    def _text(self, name: MulticastName, record: Record) -> bytes:
        content_type, entity = self._written.multicast(MessageView(record.packet), name)
        return join_request(name, content_type, entity)

    def _poll(self, stream: _Stream, now: float) -> None:
        """Sends what is due. A message leaves its queue when its last packet has been sent."""
        source = stream.source
        for out in source.poll(now):
            self.driver.send(source.group, out)
        for flight in source.take_sent():
            assert isinstance(flight, Flight)
            self.sent += 1
            if flight.held:
                leave(self.core, flight, copy=wants_positive_copy(flight.record.packet), now=now)

    def pause(self, queue: Queue) -> None:
        """Does nothing: what is in the source leaves, and nothing new is sent."""

    def resume(self, queue: Queue, now: float) -> None:
        if queue.count:
            self.ready(queue, now)

    def forget(self, queue: Queue) -> None:
        """The queue is gone, and its source ends; at once if it holds messages that it must not send any more."""
        stream = self._streams.get(queue)
        if stream is None:
            return
        if stream.source.idle:
            self._close(stream)
            self.driver.wake()
            return
        del self._streams[queue]
        stream.source.abort()
        for out in stream.source.poll(stream.source.now):
            self.driver.send(stream.source.group, out)
        self._ended(stream)

    def _ended(self, stream: _Stream) -> None:
        self._repairs_sent += stream.source.counts.repairs
        self._forced += stream.source.counts.forced

    # In

    def rebind(self) -> None:
        """Queues have come, gone or changed. Listens to exactly those groups that some queue wants."""
        wanted = self.core.queues.groups()
        self.receiver.bindings = wanted
        addresses = {str(name.address) for name in wanted}
        for group in self._joined.keys() - addresses:
            self.driver.leave(group)
            del self._joined[group]
        for group in addresses - self._joined.keys():
            self._joined[group] = self.driver.join(group)
        for name in self._groups.keys() - wanted.keys():
            self._past.add(self._groups.pop(name).receiver.counts)
        for name in wanted.keys() - self._groups.keys():
            receiver = Receiver(str(name.address), name.port, self.settings.pgm, self._chance)
            self._groups[name] = _Group(name, receiver, self._joined[str(name.address)])

    def received(self, packet: Packet, address: str, group: str | None, now: float) -> None:
        """Takes a packet, the address it came from, and the group it was sent to; None if it was sent to us alone."""
        if isinstance(packet, Nak) and packet.kind is Kind.NAK:
            for stream in (*self._streams.values(), *self._ending):
                stream.source.receive(packet, now)
        if group is None or not self.core.connection_active:
            return
        for each in list(self._groups.values()):
            if each.receiver.group == group:
                each.receiver.receive(packet, address, now)
                self._take_events(each, now)

    def _take_events(self, group: _Group, now: float) -> None:
        for event in group.receiver.take_events():
            source = event.source
            requests = group.requests.get(source)
            if requests is None:
                self._forget_requests(group)
                requests = group.requests[source] = Requests(self.settings.pgm.max_apdu)
            if isinstance(event, Apdu):
                if self._take(requests, event.data, source, now) and not source.confirmed:
                    source.confirm()
                    if source.unconfirmed_lost:
                        self._report_lost(group, source, source.unconfirmed_lost)
            else:
                requests.lost()
                self._report_lost(group, source, event.packets)

    def _report_lost(self, group: _Group, source: Session, packets: int) -> None:
        what = "multicast packets lost" if source.confirmed else "multicast packets of an unconfirmed source missing"
        self._watcher.suspicious(what, {"group": group.name, "source": str(source), "packets": packets})

    @staticmethod
    def _forget_requests(group: _Group) -> None:
        known = set(group.receiver.sessions.values())
        for source in [each for each in group.requests if each not in known]:
            del group.requests[source]

    def _take(self, requests: Requests, apdu: bytes, source: Session, now: float) -> bool:
        """Whether this is a message for a queue here, or the last part of one."""
        try:
            found = requests.take(apdu)
            return found is not None and self.receiver.take(*found, source.address, now)
        except MalformedSoap as fault:
            self.receiver.refuse(source.address, str(fault))
            return False

    # Time

    @property
    def deadline(self) -> float | None:
        return earliest(
            [
                self._retry_at,
                self.receiver.deadline,
                *(each.source.deadline for each in self._ending),
                *(earliest((each.source.deadline, each.idle_at)) for each in self._streams.values()),
                *(each.receiver.deadline for each in self._groups.values()),
            ]
        )

    def on_timer(self, now: float) -> None:
        self.receiver.on_timer(now)
        for stream in list(self._streams.values()):
            self._poll(stream, now)
            self._pump(stream, now)
            if now >= stream.idle_at and stream.source.idle:
                self._close(stream)
            elif now >= stream.idle_at:  # it still repairs, or waits for the rate limit
                stream.idle_at = now + self.settings.idle_s
        for stream in list(self._ending):
            self._poll(stream, now)
            if stream.source.closed:
                self._ending.remove(stream)
                self._ended(stream)
        for group in list(self._groups.values()):
            for nak in group.receiver.poll(now):
                self.driver.send_nak(group.receiver.group, nak)
            self._take_events(group, now)
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            for queue in waiting_for(self.core.queues, self):
                self.ready(queue, now)

    def _close(self, stream: _Stream) -> None:
        """3.1.6.4: Session Cleanup Timer."""
        del self._streams[stream.queue]
        stream.source.close()
        self._ending.append(stream)
        info = self.core.queues.outgoing_info.get(stream.queue)
        if info is not None:
            info.on(OutgoingEvent.CLOSED)

    def stop(self, now: float) -> None:
        """Tells receivers that nothing more will come. What was not sent stays in its queue."""
        for stream in (*self._streams.values(), *self._ending):
            for out in stream.source.farewell(now):
                self.driver.send(stream.source.group, out)

    # People

    def info(self) -> MulticastInfo:
        groups = [
            GroupInfo(
                address=f"{each.name.address}:{each.name.port}",
                queues=tuple(queue.name for queue in self.receiver.bindings.get(each.name, ())),
                error=each.error,
                sources=tuple(str(source) for source in each.receiver.sessions.values()),
                packets=each.receiver.counts.packets,
                lost=each.receiver.counts.lost,
                unconfirmed=each.receiver.counts.unconfirmed,
                repaired=each.receiver.counts.repaired,
                naks=each.receiver.counts.naks,
            )
            for each in self._groups.values()
        ]
        counts = replace(self._past)
        for each in self._groups.values():
            counts.add(each.receiver.counts)
        streams = [each.source for each in (*self._streams.values(), *self._ending)]
        return MulticastInfo(
            address=self.driver.address,
            error=self.driver.error,
            groups=tuple(groups),
            sources=sum(len(each.sources) for each in groups),
            sent=self.sent,
            received=self.receiver.taken,
            refused=self.refused + self.receiver.refused,
            packets=counts.packets,
            lost=counts.lost,
            unconfirmed=counts.unconfirmed,
            repaired=counts.repaired,
            malformed=self.driver.malformed,
            overflowed=self.driver.overflowed,
            naks=counts.naks,
            repairs_sent=self._repairs_sent + sum(each.counts.repairs for each in streams),
            forced=self._forced + sum(each.counts.forced for each in streams),
        )
