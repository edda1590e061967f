"""Messages of outgoing queues on their way, [MS-MQQB] 3.1.5.5 to 3.1.5.7 and 3.1.7.1: sent, acknowledged, repeated.

A message in flight is a locked position of its queue, so a restart or a lost session makes it available again.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from postroad.binary.sequences import AwaitingFinalAcks
from postroad.binary.session import MAX_UNWRITTEN, TIMERS, BinarySettings, Session
from postroad.binary.trace_reports import send_report
from postroad.carriers import flights as transfer
from postroad.names import FormatName
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import NextHop, OutgoingTransferInfo, SequenceInfo
from postroad.queues.queue import PositionState, Queue
from postroad.queues.tick import Tick
from postroad.reports.trace import TraceState
from postroad.store.interface import Record
from postroad.wire.headers import TxSequenceId
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.patch import (
    is_recoverable,
    is_traced,
    is_transactional,
    message_id_of,
    wants_copy,
    with_previous_number,
    without_local_part,
)
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView


@dataclass(slots=True, eq=False)
class Flight(transfer.Flight):
    """A sent OutgoingMessagePosition, 3.1.1.3.1.2."""

    session_acked: bool = False
    order_acked: bool = False


# What a session keeps of a message that is in none of our sequences, and when it was sent. It is a plain tuple to save
# an object for each; `flight_of` makes a Flight of it when needed.
Uncounted = tuple[Queue, Record, float]


def flight_of(token: object) -> Flight:
    """The flight for a session's token."""
    if isinstance(token, Flight):
        return token
    assert isinstance(token, tuple)
    queue, record, sent_at = token
    return Flight(queue, record, sent_at=sent_at)


@dataclass(slots=True)
class OutgoingSequence(transfer.OutgoingTransfer[Flight]):
    """OutgoingTransferSequence, 3.1.1.3.1.1: messages of an outgoing queue that the far end has not put in order
    yet."""

    last_acked: dict[TxSequenceId, int] = field(default_factory=dict)
    ordered: set[Flight] = field(default_factory=set)  # put in order, but not acknowledged by the next hop
    last_ack: tuple[TxSequenceId, int] = (TxSequenceId(0, 0), 0)

    def previous(self, sequence_id: TxSequenceId, number: int) -> int:
        """PreviousTxSequenceNumber of a message. It skips expired messages, but no others."""
        for flight in reversed(self.unacked):
            if flight.number < number and (flight.sequence is sequence_id or flight.sequence == sequence_id):
                return flight.number
        return min(self.last_acked.get(sequence_id, 0), number - 1)

    def add(self, flight: Flight) -> None:
        """Adds a flight in order of numbers, because a lost tick brings back earlier ones."""
        if self.unacked and self.unacked[-1].number > flight.number:
            insort(self.unacked, flight, key=lambda each: each.number)
        else:
            self.unacked.append(flight)


_FIRST_OF_ALL = 0x8000  # above every base priority


class Sender:
    """The sender of one queue manager. Callers pass in the sessions."""

    def __init__(
        self,
        core: LocalQueueManager,
        settings: BinarySettings,
        accepts: Callable[[FormatName, OrderAck | FinalAck, Session], bool],
        refused: Callable[[OrderAck | FinalAck, Session], None],
    ) -> None:
        """`accepts` says whether an ordering acknowledgment of a message to a name comes from a manager concerned.
        Others go to `refused`."""
        self.core = core
        self._accepts = accepts
        self._refused = refused
        self.settings = settings
        self.sequences: dict[Queue, OutgoingSequence] = {}
        self._own = core.identifier.bytes_le
        self.awaiting_final_ack = AwaitingFinalAcks(core)  # AwaitingFinalACKTable
        self._sent_by_id: dict[int, Flight] = {}  # of our sequences, while in their outgoing queues
        self._by_sequence: dict[TxSequenceId, Queue] = {}  # the queue of each sequence of which anything was sent
        # Queues that may hold messages sent before the start, or before a lost tick, whose ids are not in
        # `_sent_by_id`.
        self._from_before: set[Queue] = set()
        self._watched: Tick | None = None
        self._resends = core.deadlines.source(TIMERS, self.on_timer)
        self.refused_acks = 0

    def start(self, queues: Iterable[Queue]) -> None:
        """Notes that messages in these queues may have been sent before."""
        self._from_before.update(queues)

    def pump(self, session: Session, queues: Iterable[Queue], now: float, address: str) -> bool | None:
        """Sends up to half a window to the manager at `address`. Returns whether there may be more, or None if it sent
        nothing.

        Queues of one base priority share the window, so that none waits for another's backlog. Those of a higher one go
        first ([MS-MQDMPR] 3.1.7.1.28). Ordering acknowledgments go before all others, because peers repeat their
        messages until they arrive.
        """
        traced: list[MessageView] = []
        levels: dict[int, deque[Queue]] = {}
        outgoing = self.core.queues.outgoing_info
        for queue in queues:
            level = _FIRST_OF_ALL if outgoing[queue].ordering else queue.properties.base_priority
            levels.setdefault(level, deque()).append(queue)
        free, room = session.half_window, session.room
        sent_some = False
        while levels and room >= 0 and free > 0:
            waiting = levels[highest := max(levels)]
            queue = waiting.popleft()
            if not waiting:
                del levels[highest]
            share = free if highest == _FIRST_OF_ALL else max(1, free // (len(waiting) + 1))
            size = queue.stored_bytes + queue.express_bytes
            if size > MAX_UNWRITTEN:  # do not read large ones before there is room
                share = min(share, max(1, MAX_UNWRITTEN * queue.count // size))
            fresh = self.core.delivery.fresh(queue, share, now)
            if not fresh:
                continue
            found, places = self._ready(queue, fresh)
            # An expired message may have caused an answer on this very session, which narrows its window.
            going = _fitting(found[: session.free], room)
            if found and not going:
                break
            if going:
                self._send(session, queue, going, places, now, ordering=highest == _FIRST_OF_ALL)
                traced += [MessageView(record.packet) for record in going if is_traced(record.packet)]
                sent_some = True
                free -= len(going)
                room -= sum([len(record.packet) for record in going])
            if len(found) == share:  # otherwise there are no more, or the rest must wait
                levels.setdefault(highest, waiting).append(queue)
        for view in traced:  # last, because a report may also go by this session
            self.core.delivery.try_after(view.data, send_report, self.core, view, now, address)
        return bool(levels) if sent_some else None

    def _ready(self, queue: Queue, records: list[Record]) -> tuple[list[Record], transfer.Places]:
        """The records that may go now, with the places of those in our sequences, by index.

        3.1.1.5: a new sequence starts when the far end has put the last one in order.

        The receiver knows one sequence at a time, and acknowledges nothing of a sequence that another has followed. It
        also never accepts a message that it was told to skip, so a gap must be durable before it is announced.
        """
        sequence = self.sequences.get(queue)
        active = sequence.unacked[-1].sequence if sequence is not None and sequence.unacked else None
        last: int | None = None
        places = transfer.own_places(records, self._own)
        for index, (sequence_id, number, _) in places.items():
            if active is not None and sequence_id is not active and sequence_id != active:
                return records[:index], places
            if last is None:
                last = 0 if sequence is None else sequence.previous(sequence_id, number)
            if number - last > 1 and transfer.is_losing(queue, records[index].lookup_id):
                return records[:index], places
            active, last = sequence_id, number
        return records, places

    def _send(
        self,
        session: Session,
        queue: Queue,
        records: list[Record],
        places: transfer.Places,
        now: float,
        *,
        ordering: bool,
    ) -> None:
        queue.mark_all([record.lookup_id for record in records], PositionState.LOCKED)
        packets = [without_local_part(record.packet) for record in records]
        tokens: list[Uncounted | Flight] = [(queue, record, now) for record in records]
        if places:
            self._count(queue, records, places, tokens, packets, now)
        if ordering:  # an ordering acknowledgment never carries a SessionHeader
            for packet, token in zip(packets, tokens, strict=True):
                session.send(packet, token, now, recoverable=is_recoverable(packet), plain=True)
            return
        start = 0
        for recoverable, run in groupby(map(is_recoverable, packets)):
            end = start + len([*run])
            session.send_all(packets[start:end], tokens[start:end], now, recoverable=recoverable)
            start = end

    def _count(
        self,
        queue: Queue,
        records: list[Record],
        places: transfer.Places,
        tokens: list[Uncounted | Flight],
        packets: list[bytes],
        now: float,
    ) -> None:
        """Tracks messages of our sequences until the far end has put them in order. Each gets a Flight as its token,
        and its packet names the previous message."""
        sequence = self.sequences.get(queue)
        if sequence is None:
            sequence = self.sequences[queue] = OutgoingSequence()
        newest = sequence.unacked[-1] if sequence.unacked else None
        for index, (sequence_id, number, previous) in places.items():
            if index >= len(records):
                break
            flight = Flight(queue, records[index], sequence_id, number, now)
            if newest is not None and newest.sequence is sequence_id and newest.number == previous:
                sequence.unacked.append(flight)
            else:
                before = sequence.previous(sequence_id, number)
                if before != previous:
                    packets[index] = with_previous_number(packets[index], before)
                sequence.add(flight)
                self._by_sequence[sequence_id] = queue
            newest = sequence.unacked[-1]
            tokens[index] = self._sent_by_id[message_id_of(packets[index])] = flight
        if newest is not None and sequence.resend_at is None:
            self._resend_at(queue, sequence, now + self.settings.resend_s[sequence.resend_index])

    def acknowledged(self, tokens: Iterable[object], now: float, hop: NextHop) -> None:
        """3.1.5.5.2 and 3.1.5.5.3: the next hop has these messages. Messages outside our sequences are then complete; a
        source that asked for a copy keeps one."""
        delivered: dict[Queue, list[Record]] = {}
        settled: dict[Queue, list[Flight]] = {}
        for token in tokens:
            if isinstance(token, Flight):
                token.session_acked = True
                if token.order_acked:
                    settled.setdefault(token.queue, []).append(token)
            else:
                assert isinstance(token, tuple)
                queue, record, _ = token
                if (records := delivered.get(queue)) is None:
                    records = delivered[queue] = []
                records.append(record)
        for queue, records in delivered.items():
            transfer.leave_all(self.core, queue, records, now, hop)
        for queue, flights in settled.items():
            self.core.delivery.try_after(flights[0].record.packet, self._settle, queue, flights)

    def _settle(self, queue: Queue, flights: list[Flight]) -> None:
        """Settles messages that were put in order before the next hop acknowledged them."""
        sequence = self.sequences.get(queue)
        if sequence is not None:
            sequence.ordered.difference_update(flights)
        self._ordered(queue, flights)
        last_number = self.core.transacting.last_number(queue.properties.path)
        for flight in flights:
            if flight.number == last_number:
                self._end_sequence(queue, flight.sequence, flight.number)

    def _ordered(self, queue: Queue, flights: list[Flight]) -> None:
        """Both acknowledgments have come: the messages leave the queue. Those whose end somebody wants to know wait for
        the final one."""
        leaving: list[Record] = []
        for record in transfer.held(queue, [flight.record for flight in flights]):
            message_id = message_id_of(record.packet)
            if wants_copy(record.packet) and self.core.delivery.journals_at_source(MessageView(record.packet)):
                self.awaiting_final_ack.move(queue, record, message_id)
            else:
                leaving.append(record)
            self._forget_sent(message_id)
        if leaving:
            self.core.delivery.discard_all(queue, leaving)
            self.core.departures.delivered(queue, leaving, TraceState.ARRIVED)

    def _forget_sent(self, message_id: int) -> Flight | None:
        """The gathering tick takes the message out of its queue. If the tick is lost, the message is there as
        before."""
        if self.core.tick is not self._watched:
            self._watched = self.core.tick
            self._watched.on_failure.append(lambda error: self._from_before.update(self.sequences))
        return self._sent_by_id.pop(message_id, None)

    def _resend_at(self, queue: Queue, sequence: OutgoingSequence, time: float | None) -> None:
        sequence.resend_at = time
        self._resends.set(queue, time)

    def take_order_ack(self, ack: OrderAck, session: Session, now: float) -> None:
        """3.1.5.6. Ignores a sequence of which nothing was sent since the start, and numbers that were never given out.
        Messages that it could be about are sent and acknowledged again."""
        queue = self._by_sequence.get(ack.sequence_id)
        info = None if queue is None else self.core.queues.outgoing_info.get(queue)
        if queue is None or info is None:
            return
        sequence = self.sequences[queue]
        newest, following = self.core.transacting.next_place(queue.properties.path)
        invented = ack.sequence_id == newest and ack.sequence_number >= following  # for an older sequence, nobody knows
        if invented or not self._accepts(info.destination, ack, session):
            self._refuse(ack, session)
            return
        covered: list[Flight] = []
        rest: list[Flight] = []
        known: TxSequenceId | None = None  # the same id object as in the flights
        for flight in sequence.unacked:
            if flight.sequence is not known and flight.sequence == ack.sequence_id:
                known = flight.sequence
            in_order = flight.sequence is known and flight.number <= ack.sequence_number
            (covered if in_order else rest).append(flight)
        sequence.unacked = rest
        sequence.last_ack_time = now
        sequence.last_ack_count += 1
        last = sequence.last_acked.get(ack.sequence_id, 0)
        sequence.last_acked[ack.sequence_id] = max(last, ack.sequence_number)
        sequence.last_ack = max(sequence.last_ack, (ack.sequence_id, ack.sequence_number))
        for flight in covered:
            flight.order_acked = True
            if not flight.session_acked:
                sequence.ordered.add(flight)
        self._ordered(queue, [flight for flight in covered if flight.session_acked])
        self._end_sequence(queue, ack.sequence_id, ack.sequence_number)
        if covered:
            sequence.resend_index = 0
        again = now + self.settings.resend_s[sequence.resend_index] if sequence.unacked else None
        self._resend_at(queue, sequence, again)
        if not sequence.unacked:
            queue.ready(now)  # a newer sequence may wait for this

    def _refuse(self, ack: OrderAck | FinalAck, session: Session) -> None:
        self.refused_acks += 1
        self._refused(ack, session)

    def _end_sequence(self, queue: Queue, sequence_id: TxSequenceId | None, number: int) -> None:
        def ended() -> None:
            sequence = self.sequences.get(queue)
            if sequence_id is not None:
                self._by_sequence.pop(sequence_id, None)
                if sequence is not None:
                    sequence.last_acked.pop(sequence_id, None)

        transfer.end_sequence(self.core, queue, sequence_id, number, ended)

    def take_final_ack(self, ack: FinalAck, session: Session, now: float) -> None:
        """3.1.5.7: matches by source, message id and place, wherever the message waits."""
        if ack.source_guid != self.core.identifier:
            return

        def accepts(record: Record) -> bool:
            view = MessageView(record.packet)
            if self._concerns(ack, view) and self._accepts(_destination(view), ack, session):
                return True
            self._refuse(ack, session)
            return False

        if self.awaiting_final_ack.take(ack, now, accepts):
            return
        sent = self._sent_by_id.get(ack.acknowledged_message_id) or self._sent_before(ack, session)
        if sent is not None and accepts(sent.record):
            self._forget_sent(ack.acknowledged_message_id)
            self._land(sent)
            self.awaiting_final_ack.settle(sent.queue, sent.record, ack, now)

    def _concerns(self, ack: FinalAck, view: MessageView) -> bool:
        place = (ack.sequence_id, ack.sequence_number)
        return view.message_id == ack.acknowledged_message_id and transfer.own_place(view, self._own) == place

    def _sent_before(self, ack: FinalAck, session: Session) -> Flight | None:
        """Finds a message that was sent before the start. It is at the head of its queue."""
        place = (ack.sequence_id, ack.sequence_number)
        for queue in list(self._from_before):
            info = self.core.queues.outgoing_info.get(queue)
            if info is None or not queue.count:
                self._from_before.discard(queue)
                continue
            if not self._accepts(info.destination, ack, session):
                continue
            for record in queue.available(transfer.HEAD):
                view = MessageView(record.packet)
                found = transfer.own_place(view, self._own)
                if found is None:
                    continue
                if self._concerns(ack, view):
                    return Flight(queue, record)
                if found > place:
                    break
        return None

    def transfer(self, queue: Queue) -> OutgoingTransferInfo:
        sequence = self.sequences.get(queue)
        last_ack = None
        if sequence is not None and sequence.last_ack_count:
            place, number = sequence.last_ack
            last_ack = SequenceInfo(place.value, number, number - 1)
        return transfer.transfer_info(sequence, last_ack, self.settings.resend_s)

    def forget(self, queue: Queue) -> None:
        """The outgoing queue is gone. Drops everything about it."""
        sequence = self.sequences.pop(queue, None)
        self._from_before.discard(queue)
        self._resends.set(queue, None)
        if sequence is not None:
            self._by_sequence = {name: each for name, each in self._by_sequence.items() if each is not queue}

    def _land(self, flight: Flight) -> None:
        """The message is no longer in flight."""
        sequence = self.sequences.get(flight.queue)
        if sequence is not None:
            sequence.ordered.discard(flight)
            if flight in sequence.unacked:
                sequence.unacked.remove(flight)

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """A message in an outgoing queue has expired or was removed."""
        if is_transactional(record.packet):
            view = MessageView(record.packet)
            own = view.source_queue_manager_bytes == self._own  # other managers use the same numbers
            flight = self._forget_sent(view.message_id) if own else None
            if flight is not None:
                self._land(flight)

    def session_closed(self, session: Session, queues: Iterable[Queue], now: float) -> None:
        """Makes available again what the peer has not acknowledged. Transactional messages keep their numbers.

        3.1.3.2: the same for messages not yet in order, of `queues` whose destination is the peer itself. Messages that
        a routing server has acknowledged wait for their own timer.
        """
        lost: set[Flight] = set()
        for token in session.sent.in_flight:
            flight = flight_of(token)
            lost.add(flight)
            if flight.order_acked:  # it has arrived, even if the next hop did not acknowledge it
                self._settle(flight.queue, [flight])
            else:
                flight.release(self.core, now)
        for queue in {flight.queue for flight in lost if flight.number}:
            sequence = self.sequences.get(queue)
            if sequence is not None:
                sequence.unacked = [flight for flight in sequence.unacked if flight not in lost]
        for queue in queues:
            sequence = self.sequences.get(queue)
            if sequence is not None and sequence.unacked:
                again, sequence.unacked = sequence.unacked, []
                self._resend_at(queue, sequence, None)
                for flight in again:
                    flight.release(self.core, now)

    def on_timer(self, queues: list[Queue], now: float) -> None:
        """Transactional Ack Wait Timer, 3.1.6.5: sends everything again that was not put in order."""
        due = []
        for queue in queues:
            sequence = self.sequences.get(queue)
            if sequence is None:
                continue
            sequence.resend_at = None
            if not sequence.unacked:  # the messages were removed, or their FinalAcks came first
                continue
            sequence.resend_index = min(sequence.resend_index + 1, len(self.settings.resend_s) - 1)
            again, sequence.unacked = sequence.unacked, []
            for flight in again:
                flight.release(self.core, now)
            due.append(queue)
        for queue in due:
            queue.ready(now)


def _destination(view: MessageView) -> FormatName:
    name = destination_name(view)
    assert name is not None
    return name


def _fitting(records: list[Record], room: int) -> list[Record]:
    """As many of the first records as fit into `room`; at least one if there is any room."""
    for index, record in enumerate(records):
        if room < 0:
            return records[:index]
        room -= len(record.packet)
    return records
