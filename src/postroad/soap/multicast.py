"""SOAP by multicast, [MC-MQSRM] 2.1.2: the Carrier of outgoing queues that lead to groups, and the queues that listen.

Without I/O, clock or chance of its own: the driver moves PGM packets, and calls `on_timer` at `deadline`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Protocol

from postroad.deadlines import earliest
from postroad.errors import MalformedSoap
from postroad.names import FormatName, MulticastName
from postroad.pgm.packet import Kind, Nak, Packet, Tsi
from postroad.pgm.receiver import OutgoingNak, Receiver
from postroad.pgm.session import Apdu, ReceiverCounts, Session
from postroad.pgm.settings import PgmSettings
from postroad.pgm.source import Outgoing, Source
from postroad.queues.carriers import CarrierReport, Progress
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing import ConnectionStatus, OutgoingEvent
from postroad.queues.queue import PositionState, Queue
from postroad.soap.multicast_receiver import MulticastReceiver, ReceiptSettings
from postroad.soap.multicast_text import Requests, join_request
from postroad.soap.outgoing import Outgoing as Written
from postroad.soap.settings import CLOCK_TOLERANCE_S
from postroad.store.interface import Record
from postroad.transfer.outgoing import Flight, attempt, leave, may_send, waiting_for
from postroad.transfer.watching import TransferWatcher
from postroad.values.info import GroupInfo, MulticastInfo, SessionInfo
from postroad.wire.constants import MessageClass
from postroad.wire.fields import wants_positive_copy
from postroad.wire.view import MessageView

NOT_WRITTEN = MessageClass.NACK_BAD_DST_Q  # a message that cannot be written as SOAP, or is too long for PGM


@dataclass(frozen=True, slots=True)
class MulticastSettings:
    pgm: PgmSettings = field(default_factory=PgmSettings)
    idle_s: float = 900.0  # a source ends when it had nothing to send for so long
    backlog: int = 128 << 10  # bytes that wait in a source for the rate limit; the rest waits in its queue
    retry_s: float = 20.0
    receipts: ReceiptSettings = field(default_factory=ReceiptSettings)


class Driver(Protocol):
    """What the service needs from the world."""

    @property
    def address(self) -> str | None:
        """The address that our packets come from; None where nothing can be sent."""

    @property
    def error(self) -> str | None:
        """Why nothing can be sent, and what to do."""

    @property
    def malformed(self) -> int:
        """Packets that cannot be read."""

    @property
    def overflowed(self) -> int:
        """Packets that came while a receive buffer was full."""

    def send(self, group: str, out: Outgoing) -> None: ...

    def send_nak(self, group: str, nak: OutgoingNak) -> None: ...

    def join(self, group: str) -> str | None:
        """Why packets of a group cannot be received; None where they can."""

    def leave(self, group: str) -> None: ...

    def wake(self) -> None:
        """There may be another deadline: somebody has sent a message."""


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
    """One for a queue manager. `chance` gives numbers from 0 to 1."""

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
        self._ending: list[_Stream] = []  # sources that have ended, and still repair
        self._groups: dict[MulticastName, _Group] = {}
        self._joined: dict[str, str | None] = {}  # addresses, and why one cannot be listened to
        self._retry_at: float | None = None
        self._past = ReceiverCounts()  # of groups that no queue listens to any more
        self._repairs_sent = self._forced = 0  # of sources that have ended
        core.attach(self)

    # What queues ask of a carrier

    def carries(self, name: FormatName) -> bool:
        return isinstance(name, MulticastName)

    def brought(self, view: MessageView) -> bool:
        return False  # what comes by multicast asks for no acknowledgments

    def origin(self, view: MessageView) -> str | None:
        return None

    def names(self, address: str) -> tuple[str, ...]:
        return ()

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        return None

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        return None

    def hosts(self, name: FormatName) -> tuple[str, ...]:
        return ()  # no stranger has us send to a group

    def may_answer(self, name: FormatName, address: str) -> bool:
        return False  # a message to a group asks for no acknowledgments

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """What is in a source already leaves all the same."""

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        return None

    def session_infos(self) -> list[SessionInfo]:
        return []

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
        """3.1.7.9: a PGM session to the address and port of the name."""
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
        """From the queue into the source, which holds no more than it sends in a short while."""
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
            except Exception as error:  # it cannot be sent, today or ever: those behind it go on
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
        """What is in the source leaves; nothing new is sent."""

    def resume(self, queue: Queue, now: float) -> None:
        if queue.count:
            self.ready(queue, now)

    def forget(self, queue: Queue) -> None:
        """The queue is gone: its source ends, at once if there are messages that it must not send any more."""
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
        """Queues have come, gone or changed: listens to the groups that some queue wants, and no others."""
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
        """A packet, the address that it came from, and the group that it was sent to; None for us alone."""
        if isinstance(packet, Nak) and packet.kind is Kind.NAK:
            for stream in (*self._streams.values(), *self._ending):
                stream.source.receive(packet, now)
        if group is None:
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
        """Whether it is a message for a queue here, or the last part of one."""
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
            elif now >= stream.idle_at:  # it repairs, or waits for the rate limit
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
        """Tells receivers that nothing more comes. What was not sent stays in its queue."""
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
