"""Messages of outgoing queues on their way, [MS-MQQB] 3.1.5.5 to 3.1.5.7 and 3.1.7.1: sent, acknowledged, sent again.

A message in flight is a locked position of its queue: a restart or a lost session makes it available again by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from postroad.binary.session import Session
from postroad.binary.settings import BinarySettings
from postroad.queues.collection import AWAITING_FINAL_ACK, JOURNAL
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import PositionState, Queue
from postroad.store.interface import NEVER, Record
from postroad.wire.constants import MessageClass
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.patch import with_previous_number
from postroad.wire.transaction_header import TxSequenceId
from postroad.wire.view import MessageView


@dataclass(slots=True, eq=False)
class Flight:
    """An OutgoingMessagePosition that was sent, 3.1.1.3.1.2. `number` is 0 unless a sequence of ours counts it."""

    queue: Queue
    record: Record
    sequence_id: TxSequenceId | None = None
    number: int = 0
    session_acked: bool = False
    order_acked: bool = False


@dataclass(slots=True)
class OutgoingSequence:
    """OutgoingTransferSequence, 3.1.1.3.1.1: what of an outgoing queue the far end has not put in order yet."""

    last_acked: dict[TxSequenceId, int] = field(default_factory=dict)
    unacked: list[Flight] = field(default_factory=list)
    resend_index: int = 0
    resend_at: float | None = None
    last_ack_time: float = 0.0
    last_ack_count: int = 0

    def previous(self, sequence_id: TxSequenceId) -> int:
        """PreviousTxSequenceNumber of the next message: it bridges those that have expired, and never goes beyond."""
        for flight in reversed(self.unacked):
            if flight.sequence_id == sequence_id:
                return flight.number
        return self.last_acked.get(sequence_id, 0)


class Sender:
    """One for a queue manager; sessions are handed in."""

    def __init__(self, core: LocalQueueManager, settings: BinarySettings) -> None:
        self.core = core
        self.settings = settings
        self.sequences: dict[Queue, OutgoingSequence] = {}
        self._own = core.identifier.bytes_le
        self._awaiting = core.queues.system(AWAITING_FINAL_ACK)
        self._awaiting_by_id = {MessageView(each.packet).message_id: each for each in self._awaiting.everything()}

    def pump(self, session: Session, queues: Iterable[Queue], now: float) -> int:
        """Sends what the window takes, queue by queue; how many went."""
        sent = 0
        for queue in queues:
            while (free := session.free) > 0:
                records = self.core.reading.fresh(queue, free, now)
                for record in records:
                    self._send(session, queue, record, now)
                sent += len(records)
                if len(records) < free:
                    break
        return sent

    def _send(self, session: Session, queue: Queue, record: Record, now: float) -> None:
        view = MessageView(record.packet)
        flight = Flight(queue, record)
        packet = record.packet
        queue.positions[record.lookup_id] = PositionState.LOCKED
        fields = view.transaction_fields
        if fields is not None and view.source_queue_manager_bytes == self._own:
            flight.sequence_id, flight.number = TxSequenceId(fields[1], fields[2]), fields[3]
            sequence = self.sequences.setdefault(queue, OutgoingSequence())
            previous = sequence.previous(flight.sequence_id)
            if previous != fields[4]:
                packet = with_previous_number(packet, previous)
            sequence.unacked.append(flight)
            if sequence.resend_at is None:
                sequence.resend_at = now + self.settings.resend_s[sequence.resend_index]
        ordering = not view.base_flags and view.message_class != MessageClass.NORMAL
        session.send(packet, flight, now, recoverable=view.recoverable, plain=ordering)

    def acknowledged(self, tokens: Iterable[object], now: float) -> None:
        """3.1.5.5.2 and 3.1.5.5.3: the next hop has them."""
        for flight in tokens:
            assert isinstance(flight, Flight)
            flight.session_acked = True
            if not flight.number:
                self._delivered(flight, now)
            elif flight.order_acked:
                self._ordered(flight)

    def _delivered(self, flight: Flight, now: float) -> None:
        """A message that is not of one of our sequences is done with; its source keeps a copy if it asked to."""
        if flight.queue.positions.get(flight.record.lookup_id) is not PositionState.LOCKED:
            return  # purged meanwhile
        view = MessageView(flight.record.packet)
        if view.positive_journaling and view.source_queue_manager_bytes == self._own:
            self.core.delivery.copy(self.core.queues.system(JOURNAL), flight.record.packet, now)
        self.core.delivery.discard(flight.queue, flight.record)

    def _ordered(self, flight: Flight) -> None:
        """Both acknowledgments are there: it leaves the queue, to wait for the final one if anybody wants to know."""
        if flight.queue.positions.get(flight.record.lookup_id) is not PositionState.LOCKED:
            return
        packet = flight.record.packet
        view = MessageView(packet)
        if view.positive_journaling or view.negative_journaling:
            record = self.core.delivery.add(self._awaiting, packet, 0, NEVER, flight.record.arrived_ms / 1000)
            self._awaiting_by_id[view.message_id] = record
        self.core.delivery.discard(flight.queue, flight.record)

    def take_order_ack(self, ack: OrderAck, now: float) -> None:
        """3.1.5.6"""
        for sequence in self.sequences.values():
            covered = [
                each
                for each in sequence.unacked
                if each.sequence_id == ack.sequence_id and each.number <= ack.sequence_number
            ]
            if not covered and ack.sequence_id not in sequence.last_acked:
                continue
            sequence.last_ack_time = now
            sequence.last_ack_count += 1
            last = sequence.last_acked.get(ack.sequence_id, 0)
            sequence.last_acked[ack.sequence_id] = max(last, ack.sequence_number)
            for flight in covered:
                sequence.unacked.remove(flight)
                flight.order_acked = True
                if flight.session_acked:
                    self._ordered(flight)
            if covered:
                sequence.resend_index = 0
            sequence.resend_at = now + self.settings.resend_s[sequence.resend_index] if sequence.unacked else None
            return

    def take_final_ack(self, ack: FinalAck, now: float) -> None:
        """3.1.5.7: matched by source and message id, wherever the message waits."""
        if ack.source_guid != self.core.identifier:
            return
        record = self._awaiting_by_id.pop(ack.acknowledged_message_id, None)
        if record is not None:
            self._final(self._awaiting, record, ack, now)
            return
        for queue, sequence in self.sequences.items():
            for flight in sequence.unacked:
                if MessageView(flight.record.packet).message_id == ack.acknowledged_message_id:
                    sequence.unacked.remove(flight)
                    self._final(queue, flight.record, ack, now)
                    return

    def _final(self, queue: Queue, record: Record, ack: FinalAck, now: float) -> None:
        delivery = self.core.delivery
        view = MessageView(record.packet)
        if ack.positive and view.positive_journaling:
            delivery.copy(self.core.queues.system(JOURNAL), record.packet, now)
        elif not ack.positive and view.negative_journaling:
            delivery.dead_letter(record.packet, view, ack.final_class, now)
        delivery.discard(queue, record)

    def session_closed(self, session: Session, now: float) -> None:
        """What the peer has not acknowledged is available again; a transactional message keeps its number."""
        for flight in session.in_flight:
            assert isinstance(flight, Flight)
            if flight.number:
                sequence = self.sequences[flight.queue]
                if flight in sequence.unacked:
                    sequence.unacked.remove(flight)
            if flight.queue.positions.get(flight.record.lookup_id) is PositionState.LOCKED:
                self.core.reading.put_back(flight.queue, flight.record, now)

    @property
    def deadline(self) -> float | None:
        times = [each.resend_at for each in self.sequences.values() if each.resend_at is not None]
        return min(times, default=None)

    def on_timer(self, now: float) -> list[Queue]:
        """Transactional Ack Wait Timer, 3.1.6.5: everything that was not put in order is sent again; which queues."""
        due = []
        for queue, sequence in self.sequences.items():
            if sequence.resend_at is None or sequence.resend_at > now:
                continue
            sequence.resend_index = min(sequence.resend_index + 1, len(self.settings.resend_s) - 1)
            again, sequence.unacked = sequence.unacked, []
            for flight in again:
                if flight.queue.positions.get(flight.record.lookup_id) is PositionState.LOCKED:
                    self.core.reading.put_back(flight.queue, flight.record, now)
            sequence.resend_at = None
            due.append(queue)
        return due
