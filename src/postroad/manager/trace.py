"""Where a message has been: the search through all queues of a manager, and what the findings mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from postroad.describe.packets import delivery_word, destination_text
from postroad.describe.sections import rfc3339_ns
from postroad.errors import IllegalName, RemoteProtocolError
from postroad.manager.outlook import Outlook
from postroad.names import DirectName, FormatName, MulticastName, PrivateName, Protocol, parse_format_name
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.queues.collection import DEADLETTER, DEADXACT, JOURNAL
from postroad.queues.outcomes import Departure
from postroad.queues.outgoing_queues import NextHop
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.reports.info import counted
from postroad.reports.trace import Finding, FindingKind, Trace, TraceHop, TraceState, class_words, read_message_id
from postroad.store.interface import Record
from postroad.wire.constants import MessageClass, class_name
from postroad.wire.framer import decode_packet
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import FinalAck
from postroad.wire.patch import MESSAGE_ID, SOURCE
from postroad.wire.queue_names import destination_name
from postroad.wire.records import MESSAGE_ID_TAG, TraceReport
from postroad.wire.view import MessageView

# The managers on the way of a message, in order, and what is known of the message at each. Nothing here reads a queue:
# the search below finds the evidence.


# Reasons for which a message dies on its way. All other reasons arise at its destination.
ON_THE_WAY = frozenset(
    {
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.NACK_DELETED,
        MessageClass.NACK_Q_DELETED,
        MessageClass.NACK_HOP_COUNT_EXCEEDED,
    }
)
# If several states are known of a message at one manager, the one listed last counts.
_ORDER = (
    TraceState.UNKNOWN,
    TraceState.WAITING,
    TraceState.HANDED_OVER,
    TraceState.ARRIVED,
    TraceState.DIED,
    TraceState.RECEIVED,
)


class Place(Enum):
    HERE = "here"
    NEXT = "next"  # the manager to which this one handed the message
    DESTINATION = "destination"


class Evidence(NamedTuple):
    """What one finding proves: the message was at a manager, and what became of it there."""

    where: Place | UUID
    state: TraceState
    sentence: str
    at: str | None = None
    reason: int | None = None


@dataclass(slots=True, eq=False)
class _Station:
    manager: UUID | None = None
    address: str | None = None
    known: list[Evidence] = field(default_factory=list)

    @property
    def best(self) -> Evidence | None:
        return max(self.known, key=lambda each: _ORDER.index(each.state), default=None)

    def is_at(self, manager: UUID | None, address: str | None) -> bool:
        return (manager is not None and manager == self.manager) or (address is not None and address == self.address)


class Stations:
    """The managers from the source of one message to its destination."""

    def __init__(self, own: UUID, source: UUID, name_of: Callable[[UUID], str | None]) -> None:
        self._own = own
        self._name_of = name_of
        self._source = _Station(source)
        self._here = self._source if source == own else _Station(own)
        self._next: _Station | None = None
        self._others: list[_Station] = []
        self._destination: _Station | None = None
        self._direct = False

    def bound_for(self, name: FormatName, manager: UUID | None, *, here: bool) -> None:
        """Notes the queue that the message is for, and its manager if known."""
        if isinstance(name, MulticastName):
            return  # nobody knows how many destinations there are
        if here:
            self._destination = self._here
            return
        self._direct = isinstance(name, DirectName)
        guid = name.guid if isinstance(name, PrivateName) else manager
        self._destination = _Station(guid, name.host if isinstance(name, DirectName) else None)

    def handed_to(self, hop: NextHop) -> None:
        """Notes who took the message from this manager."""
        manager, address = hop
        there = self._destination
        if there is not None and there is not self._here and (self._direct or there.is_at(manager, address)):
            there.manager = there.manager or manager
            self._next = there
        elif manager is not None or address is not None:
            self._next = _Station(manager, address)

    def add(self, *evidence: Evidence) -> None:
        for each in evidence:
            if (station := self._station(each)) is not None:
                station.known.append(each)

    def _station(self, evidence: Evidence) -> _Station | None:
        where = evidence.where
        if where is Place.HERE or where == self._own:
            return self._here
        if where is Place.NEXT:
            return self._next
        if where is Place.DESTINATION:
            return self._destination
        assert isinstance(where, UUID)
        known = [self._source, self._next, self._destination, *self._others]
        if (found := next((each for each in known if each is not None and each.manager == where), None)) is not None:
            return found
        there = self._destination
        final = self._direct or evidence.state in (TraceState.ARRIVED, TraceState.RECEIVED)
        if there is not None and there.manager is None and final:
            there.manager = where
            return there
        self._others.append(_Station(where))
        return self._others[-1]

    def hops(self) -> tuple[TraceHop, ...]:
        way = [self._source, self._here if self._here.known else None, self._next, *self._others, self._destination]
        stations = list(dict.fromkeys(each for each in way if each is not None))
        last = max((place for place, each in enumerate(stations) if each.known), default=-1)
        return tuple(self._hop(each, passed=place < last) for place, each in enumerate(stations))

    def _hop(self, station: _Station, *, passed: bool) -> TraceHop:
        manager = station.manager
        name = None if manager is None else self._name_of(manager)
        best = station.best or Evidence(Place.HERE, TraceState.UNKNOWN, "nothing is known of it here: ask there")
        if best.state is TraceState.UNKNOWN and passed:
            best = best._replace(state=TraceState.HANDED_OVER, sentence="has passed it on")
        elif best.state is TraceState.WAITING:  # a later manager has it, or this is its destination
            if passed:
                best = best._replace(state=TraceState.HANDED_OVER)
            elif station is self._destination:
                best = best._replace(state=TraceState.ARRIVED)
        return TraceHop(
            name=name or station.address or str(manager),
            state=best.state.value,
            sentence=best.sentence,
            at=best.at,
            reason=None if best.reason is None else class_name(best.reason),
            manager=None if manager is None else str(manager),
            address=station.address,
        )


def furthest(hops: Sequence[TraceHop]) -> TraceHop | None:
    """The state of the message as a whole: the one at the last manager where it is known."""
    return next((hop for hop in reversed(hops) if hop.state != TraceState.UNKNOWN.value), None)


# The search for a message in all queues of a manager, journals, dead letters and acknowledgments included. It only
# reads, a page of messages per step, so that the driver can serve others in between.


LOOK_LIMIT = 10_000  # messages of one queue, which a store reads in well under a second
PAGE = 500
_REPORT_TAG = MESSAGE_ID_TAG.encode("utf-16-le")
_STATES = {
    None: "not received yet",
    PositionState.LOCKED: "held by a reader or a transaction",
    PositionState.PURGE_PENDING: "purged while a reader holds it",
    PositionState.DELETED: "about to leave it",  # by the commit under way
}
_RANKS = {kind.value: rank for rank, kind in enumerate(FindingKind)}


class Search:
    """The search for one message. Iterate over `pages`, then read `trace`. Raises IllegalIdentifier if `message_id` is
    none."""

    def __init__(
        self, outlook: Outlook, message_id: str, name_of: Callable[[UUID], str | None] = lambda manager: None
    ) -> None:
        """`name_of` returns the directory's name of a manager."""
        self.id = read_message_id(message_id)
        self._name_of = name_of
        self.outlook = outlook
        self.core = outlook.core
        self.looked_at = 0
        self._identifier = self.id.to_bytes()
        self._guid, self._ordinal = self._identifier[:16], self._identifier[16:]
        self._cut_off: list[str] = []
        self._found: dict[tuple[int, int], tuple[int, _Found]] = {}  # by place, each with its time in ms
        self._sent: Finding | None = None
        self._view: MessageView | None = None

    def pages(self) -> Iterator[int]:
        """Searches a page of messages per step. Yields how many messages it has seen so far.

        If nothing is found, it searches once more: the message may have moved to a queue that was already searched.
        """
        yield from self._look_everywhere()
        if not self._found:
            self.looked_at = 0
            self._cut_off.clear()
            yield from self._look_everywhere()

    def trace(self) -> Trace:
        found = sorted(self._found.values(), key=lambda each: (each[0], _RANKS[each[1].finding.kind]))
        findings = [each.finding for _, each in found]
        departures = self.core.departures.find(self._identifier)
        if not findings:  # a copy or an acknowledgment tells more
            findings += [_left(each) for each in departures]
        if (passed := self._passed()) is not None:
            findings.insert(0, passed)
        if self._sent is not None:
            findings.insert(0, self._sent)
        hops = self._hops([each for _, each in found], departures, passed) if findings else ()
        last = furthest(hops)
        return Trace(
            id=str(self.id),
            findings=tuple(findings),
            looked_at=self.looked_at,
            limit_per_queue=LOOK_LIMIT,
            cut_off=tuple(self._cut_off),
            state=TraceState.UNKNOWN.value if last is None else last.state,
            reason=None if last is None else last.reason,
            hops=hops,
        )

    # Where to look

    def _look_everywhere(self) -> Iterator[int]:
        for queue in list(self.core.queues):
            for record in self._messages(queue):
                self.looked_at += 1
                self._look_at(queue, record)
                if self.looked_at % PAGE == 0:
                    yield self.looked_at

    def _messages(self, queue: Queue) -> Iterator[Record]:
        if queue.count <= LOOK_LIMIT:
            yield from islice(queue.everything(), LOOK_LIMIT)
            return
        self._cut_off.append(_shown(queue))
        yield from islice(queue.everything(), LOOK_LIMIT // 2)
        yield from islice(queue.everything_back(), LOOK_LIMIT // 2)

    def _look_at(self, queue: Queue, record: Record) -> None:
        """Compares bytes first, so that hardly any message has to be decoded."""
        packet = record.packet
        if packet[MESSAGE_ID] == self._ordinal and packet[SOURCE] == self._guid:
            view = MessageView(packet)
            self._sent = self._sent or self._origin(view)
            self._view = self._view or view
            found: _Found | None = self._copy(queue, record, view)
        else:
            found = self._reference(queue, record) if self._identifier in packet else None
            if found is None and _REPORT_TAG in packet:
                found = self._report(queue, record)
        if found is not None:
            self._found[record.queue, record.lookup_id] = (record.arrived_ms, found)

    # What it means

    def _origin(self, view: MessageView) -> Finding:
        label = f" {view.label!r}," if view.label else ""
        sentence = (
            f"sent by {self._manager(view.source_queue_manager)}:{label} {delivery_word(view)}, "
            f"to {destination_text(view) or 'nowhere'}"
        )
        at = rfc3339_ns(view.sent_time * 1_000_000_000)
        return Finding(at, FindingKind.SENT.value, sentence, manager=str(view.source_queue_manager))

    def _passed(self) -> Finding | None:
        """The arrival of a message that is not transactional. It is remembered for a while, wherever the message is
        now."""
        for carrier in self.core.queues.carriers:
            if (seen := carrier.seen(self._identifier)) is not None:
                return Finding(rfc3339_ns(seen[0] * 1_000_000_000), FindingKind.PASSED.value, seen[1])
        return None

    def _copy(self, queue: Queue, record: Record, view: MessageView) -> _Found:
        path, queue_type = queue.properties.path, queue.properties.queue_type
        if queue_type is QueueType.OUTGOING:
            return self._outgoing(queue, record)
        if queue_type is QueueType.JOURNAL:
            owner = queue.name.rpartition(";")[0]
            sentence = f"received from {owner}: a copy is in its journal"
            return _found(FindingKind.JOURNAL, sentence, queue, record, here=TraceState.RECEIVED)
        if path == JOURNAL:
            return self._journaled(queue, record, view)
        if record.reason or path in (DEADLETTER, DEADXACT):
            return self._dead(queue, record, view, record.reason or view.message_class)
        if path == AWAITING_FINAL_ACK:
            sentence = "put in order at its destination; whether it was received is not known yet"
            state = TraceState.ARRIVED
            return _found(FindingKind.AWAITING_FINAL_ACK, sentence, queue, record, there=state)
        sentence = f"in {queue.name}, {_STATES[queue.state(record.lookup_id)]}"
        name = self._name(view)
        here = TraceState.ARRIVED if name is None or self._is_here(name) else TraceState.WAITING
        return _found(FindingKind.QUEUED, sentence, queue, record, here=here)

    def _outgoing(self, queue: Queue, record: Record) -> _Found:
        place = f"in the outgoing queue to {queue.name}"
        if queue.positions.get(record.lookup_id) is PositionState.DELETED:
            sentence, hop = f"{place}, {_STATES[PositionState.DELETED]}", None
        else:
            carrier = queue.carrier
            progress = None if carrier is None else carrier.progress(queue, record.lookup_id, self.outlook.now)
            sentence, hop = f"{place}, {'not sent' if progress is None else progress.words}", None
            hop = None if progress is None else progress.taken_by
        arrived = TraceState.ARRIVED if record.reason else None  # the destination has put it in order
        here = TraceState.WAITING if hop is None and arrived is None else TraceState.HANDED_OVER
        why = self.outlook.outgoing(queue).why
        return _found(
            FindingKind.OUTGOING, sentence, queue, record, here=here, there=arrived, why=why, name=queue.name, hop=hop
        )

    def _journaled(self, queue: Queue, record: Record, view: MessageView) -> _Found:
        """The manager's journal: [MS-MQQB] 3.1.5.5.4 and 3.1.5.7, [MC-MQSRM] 3.1.5.2.1.2."""
        kept = "a copy is in the manager's journal"
        name = self._name(view)
        if name is None or not self._is_here(name):
            if not view.transactional:
                sentence = f"handed over to the next hop: {kept}"
                return _found(FindingKind.JOURNAL, sentence, queue, record, here=TraceState.HANDED_OVER)
            by_http = isinstance(name, DirectName) and name.protocol in (Protocol.HTTP, Protocol.HTTPS)
            state = TraceState.ARRIVED if by_http else TraceState.RECEIVED
            return _found(FindingKind.JOURNAL, f"{state.value} at its destination: {kept}", queue, record, there=state)
        state = TraceState.RECEIVED if view.transactional else TraceState.ARRIVED
        sentence = f"{'received' if view.transactional else 'reached its queue'}: {kept}"
        return _found(FindingKind.JOURNAL, sentence, queue, record, here=state)

    def _dead(self, queue: Queue, record: Record, view: MessageView, reason: int) -> _Found:
        sentence = f"died: {class_words(reason)}; a copy is in {_shown(queue)}"
        name = self._name(view)
        was_refused = (
            name is not None
            and not self._is_here(name)
            and self.id.guid == self.core.identifier
            and reason not in ON_THE_WAY
        )
        here, there = (None, TraceState.DIED) if was_refused else (TraceState.DIED, None)
        return _found(FindingKind.DEAD_LETTER, sentence, queue, record, message_class=reason, here=here, there=there)

    def _reference(self, queue: Queue, record: Record) -> _Found | None:
        """A message about the one searched for: an acknowledgment or an answer."""
        view = MessageView(record.packet)
        message_class = view.message_class
        if view.correlation_id != self._identifier:
            return self._final_ack(queue, record)
        where = f"; on its way in the outgoing queue to {queue.name}" if queue.is_outgoing else ""
        manager = view.source_queue_manager
        if message_class == MessageClass.NORMAL:
            sentence = f"answered by {self._manager(manager)} with message {view.message_id}{where}"
            return _found(FindingKind.ANSWER, sentence, queue, record, manager=manager)
        sentence = f"acknowledged by {self._manager(manager)}: {class_words(message_class)}{where}"
        return _found(
            FindingKind.ACKNOWLEDGMENT,
            sentence,
            queue,
            record,
            message_class=message_class,
            manager=manager,
            said=_state_of(message_class),
        )

    def _final_ack(self, queue: Queue, record: Record) -> _Found | None:
        try:
            packet = decode_packet(record.packet)
        except RemoteProtocolError:
            return None  # it only looks like one
        if not isinstance(packet, FinalAck):
            return None
        if (packet.source_guid, packet.acknowledged_message_id) != (self.id.guid, self.id.ordinal):
            return None
        sentence = f"{class_words(packet.final_class)}; the final acknowledgment is on its way to its source"
        return _found(
            FindingKind.ACKNOWLEDGMENT,
            sentence,
            queue,
            record,
            message_class=packet.final_class,
            manager=packet.source_queue_manager,
            said=TraceState.RECEIVED if packet.positive else TraceState.DIED,
        )

    def _report(self, queue: Queue, record: Record) -> _Found | None:
        view = MessageView(record.packet)
        report = TraceReport.of(view)
        if report is None or not report.is_about(self.id.guid, self.id.ordinal):
            return None
        manager = view.source_queue_manager
        hops = counted(report.hops, "hop")
        did = "reported as come in" if report.next_hop is None else f"reported as sent on to {report.next_hop}"
        sentence = f"{did} by {self._manager(manager)}, after {hops}, bound for {report.target_queue or 'nowhere'}"
        return _found(
            FindingKind.REPORT,
            sentence,
            queue,
            record,
            message_class=MessageClass.REPORT,
            manager=manager,
            said=TraceState.WAITING if report.next_hop is None else TraceState.UNKNOWN,
            name=report.target_queue,
        )

    # The managers on its way

    def _hops(
        self, found: Sequence[_Found], departures: Sequence[Departure], passed: Finding | None
    ) -> tuple[TraceHop, ...]:
        stations = Stations(self.core.identifier, self.id.guid, self._called)
        elsewhere = [each for each in departures if each.hop is not None]
        names = [each.name for each in found if each.name] + [each.queue for each in departures]
        name = self._name(self._view) if self._view is not None else next(filter(None, map(_read_name, names)), None)
        if name is not None:
            manager = self.core.delivery.manager_of(name)
            stations.bound_for(name, None if manager == NULL_GUID else manager, here=self._is_here(name))
        for hop in (*[each.hop for each in found], *[each.hop for each in elsewhere]):
            if hop is not None:
                stations.handed_to(hop)
        if passed is not None:
            stations.add(Evidence(Place.HERE, TraceState.UNKNOWN, passed.sentence, passed.at))
        for departure in departures:
            stations.add(*_proof(departure))
        for each in found:
            stations.add(*each.evidence)
        return stations.hops()

    def _called(self, manager: UUID) -> str | None:
        return self.core.name if manager == self.core.identifier else self._name_of(manager)

    def _name(self, view: MessageView) -> FormatName | None:
        try:
            return destination_name(view)
        except IllegalName:
            return None

    def _is_here(self, name: FormatName) -> bool:
        """Whether its queue is here. A message that came from another manager by a direct name is meant for this
        one."""
        return self.core.queues.is_local(name) or (
            isinstance(name, DirectName) and self.id.guid != self.core.identifier
        )

    def _manager(self, identifier: UUID) -> str:
        return f"{self.core.name}, this queue manager" if identifier == self.core.identifier else str(identifier)


class _Found(NamedTuple):
    """A finding and what it proves. `name` is the message's destination, and `hop` is who took it."""

    finding: Finding
    evidence: tuple[Evidence, ...] = ()
    name: str | None = None
    hop: NextHop | None = None


def _found(
    kind: FindingKind,
    sentence: str,
    queue: Queue,
    record: Record,
    *,
    message_class: int | None = None,
    manager: UUID | None = None,
    why: str | None = None,
    here: TraceState | None = None,
    there: TraceState | None = None,
    said: TraceState | None = None,
    name: str | None = None,
    hop: NextHop | None = None,
) -> _Found:
    """`here` is the state that it proves at this manager, `there` at the destination, `said` at `manager`."""
    finding = Finding(
        at=rfc3339_ns(record.arrived_ms * 1_000_000),
        kind=kind.value,
        sentence=sentence,
        queue=_shown(queue),
        lookup_id=record.lookup_id,
        class_name=None if message_class is None else class_name(message_class),
        manager=None if manager is None else str(manager),
        why=why,
    )
    proven = {Place.HERE: here or (there and TraceState.HANDED_OVER), Place.DESTINATION: there, manager: said}
    evidence = tuple(
        Evidence(where, state, sentence, finding.at, message_class if state is TraceState.DIED else None)
        for where, state in proven.items()
        if where is not None and state is not None
    )
    return _Found(finding, evidence, name, hop)


def _left(departure: Departure) -> Finding:
    """A departure, which is remembered for a while."""
    queue, reason = departure.queue.removeprefix("system$"), departure.reason
    if departure.hop is None:
        sentence = f"left {queue}: {class_words(reason or 0)}"
    elif departure.state is TraceState.HANDED_OVER:
        sentence = f"handed over to {departure.hop.address or 'the next hop'}, on the way to {queue}"
    elif reason is None:
        sentence = f"arrived at its destination {queue}"
    else:
        sentence = f"its destination says: {class_words(reason)}"
    name = None if reason is None else class_name(reason)
    return Finding(_second(departure), FindingKind.LEFT.value, sentence, queue=departure.queue, class_name=name)


def _proof(departure: Departure) -> Iterator[Evidence]:
    state, at = departure.state, _second(departure)
    if state is None:
        return
    sentence = _left(departure).sentence
    reason = departure.reason if state is TraceState.DIED else None
    if departure.hop is None:
        yield Evidence(Place.HERE, state, sentence, at, reason)
        return
    yield Evidence(Place.HERE, TraceState.HANDED_OVER, sentence, at)
    if state is TraceState.HANDED_OVER:
        yield Evidence(Place.NEXT, TraceState.UNKNOWN, "has taken it; what became of it there is not known here", at)
    else:
        yield Evidence(Place.DESTINATION, state, sentence, at, reason)


def _second(departure: Departure) -> str | None:
    return rfc3339_ns(int(departure.at_s * 1000) * 1_000_000)


def _state_of(message_class: int) -> TraceState:
    """The state that an administration acknowledgment proves."""
    if message_class == MessageClass.ACK_REACH_QUEUE:
        return TraceState.ARRIVED
    return TraceState.RECEIVED if message_class == MessageClass.ACK_RECEIVE else TraceState.DIED


def _read_name(text: str) -> FormatName | None:
    try:
        return parse_format_name(text)
    except IllegalName:
        return None


def _shown(queue: Queue) -> str:
    """The queue's name as commands take it."""
    return queue.name.removeprefix("system$")
