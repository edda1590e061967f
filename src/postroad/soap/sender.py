"""Messages of outgoing queues on their way by HTTP, [MC-MQSRM] 3.1.7.2: sent, answered, acknowledged, sent again.

A message on its way is a locked position of its queue, so a restart makes it available again. service.py decides which
requests are made and when; requests.py builds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from math import inf

from postroad.carriers import flights
from postroad.errors import RemoteProtocolError
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import PositionState, Queue
from postroad.reports.trace import TraceState
from postroad.runtime.deadlines import earliest
from postroad.soap.elements import CommitmentReceipt, Decision, Stream, StreamReceipt
from postroad.soap.settings import TIMERS, SoapSettings
from postroad.soap.simple_types import parse_ordinal
from postroad.soap.streams import OutgoingStream
from postroad.store.interface import NEVER, Record
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from postroad.wire.patch import arrived_by_http, is_transactional, wants_positive_copy
from postroad.wire.view import MessageView

OUTGOING_STATE = "soap-outgoing/"
REFUSED = MessageClass.NACK_BAD_DST_Q  # what a 400 means: nobody there accepts the message, whatever the fault
STEP_ASIDE = 3  # answers that put a message off, before it lets later ones go first
# A record of an outgoing queue with this reason has its stream receipt, and waits for the final one.
ORDERED = MessageClass.ACK_REACH_QUEUE


class Taken(Enum):
    """What happened with a receipt."""

    DONE = auto()
    OF_NOTHING = auto()  # nothing matches: the receipt came late or again, or was made up
    NOT_FROM_THERE = auto()  # it came from somebody to whom the messages did not go


class Standing(Enum):
    """What an address is to the messages of a queue."""

    RECEIVER = auto()  # they go there, or the address is trusted
    UNKNOWN = auto()  # nobody here knows where they end
    STRANGER = auto()


@dataclass(slots=True, eq=False)
class Flight(flights.Flight):
    """An SRMPMessage, 3.1.1.1.4.

    It waits for a stream receipt until it is `ordered`. After that it waits for a final one, if it asked for dead
    letters.
    """

    answered: bool = False  # with 200
    ordered: bool = False
    stream: Stream | None = None  # the element in its envelope


@dataclass(slots=True)
class Transfer(flights.OutgoingTransfer[Flight]):
    """OutgoingTransferInfo of one queue, and its Stream if it has one. `unacked` is AwaitingStreamReceipt, in order.
    `resend_at` is the Stream Receipt Wait Timer."""

    stream: OutgoingStream | None = None
    waits_until: float | None = None  # 3.1.2.1: an answer other than 2xx and 400 stops the queue until then
    put_off: int = 0  # how many times in a row it was stopped
    put_off_at: float = 0.0  # when it was last stopped
    fault: str = ""  # the answer that stopped it
    tries: dict[int, int] = field(default_factory=dict)  # by lookup id: how many such answers a message has got
    aside: dict[int, tuple[float, float]] = field(default_factory=dict)  # stepped aside: until when, time of expiry
    on_the_way: Flight | None = None  # transactional messages go one at a time, to keep their order
    awaiting_final: dict[int, Flight] = field(default_factory=dict)  # AwaitingFinalStreamReceipt, by number
    settling: bool = False  # a new name for the stream is on its way to the disk
    kept: bool = False  # that the stream has started is durable, or will be with this tick
    last_number: int = 0

    def previous(self, number: int) -> int:
        """3.1.7.2.3: the number before this one. It skips messages that have expired, but none that has to arrive."""
        before = max((each.number for each in self.unacked if each.number < number), default=0)
        acknowledged = 0 if self.stream is None else self.stream.acknowledged
        return min(max(before, acknowledged), number - 1)


class Sender:
    """Sends for one queue manager."""

    def __init__(
        self,
        core: LocalQueueManager,
        settings: SoapSettings,
        receipts_url: Callable[[Queue], str],
        standing: Callable[[Queue, str], Standing],
    ) -> None:
        """`receipts_url` is where receipts of a queue's stream go. `standing` says what an address is to a queue."""
        self.core = core
        self._receipts_url = receipts_url
        self._standing = standing
        self.settings = settings
        self.transfers: dict[Queue, Transfer] = {}
        self._own = core.identifier.bytes_le
        self._named: dict[TxSequenceId, Queue] = {}  # every name of every stream, no two alike
        self._resending = core.deadlines.source(TIMERS, self.on_timer, self._resend_at)
        self._stored = {
            name.removeprefix(OUTGOING_STATE): OutgoingStream.decode(value)
            for name, value in core.store.state(OUTGOING_STATE).items()
        }

    def start(self, queues: Iterable[Queue]) -> None:
        """3.1.3.2: restores open streams. A receipt may come before anything is sent, and nobody repeats it."""
        for queue in queues:
            for record in queue.available(flights.HEAD):
                place = self._place(record)
                if place is not None:
                    self._stream(self.transfers.setdefault(queue, Transfer()), Flight(queue, record, *place))
                    break

    def _place(self, record: Record) -> tuple[TxSequenceId, int] | None:
        """The sequence and number of a message in our own streams. None for any other message, whatever it claims."""
        if not is_transactional(record.packet) or arrived_by_http(record.packet):
            return None
        return flights.own_place(MessageView(record.packet), self._own)

    def forget(self, queue: Queue) -> None:
        """The queue is gone. Drops everything about its stream."""
        transfer = self.transfers.pop(queue, None)
        if transfer is not None and transfer.stream is not None:
            self._unname(transfer.stream)
        path = queue.properties.path
        if self._stored.pop(path, None) is not None or (transfer is not None and transfer.kept):
            self.core.tick.set_state(f"{OUTGOING_STATE}{path}", None)

    def _name(self, queue: Queue, stream: OutgoingStream) -> None:
        for name in stream.bases:
            self._named[name] = queue

    def _unname(self, stream: OutgoingStream) -> None:
        for name in stream.bases:
            self._named.pop(name, None)

    # Out

    def take(self, queue: Queue, limit: int, now: float) -> list[Flight]:
        """Up to `limit` messages to send now, in their order. Each of them is locked from here on."""
        transfer = self.transfers.setdefault(queue, Transfer())
        if transfer.unacked and transfer.resend_at is None:
            self._arm(queue, transfer, now)
        self._wake(queue, transfer, now)
        if transfer.waits_until is not None:
            return []
        taken: list[Flight] = []
        while len(taken) < limit:
            records = self.core.delivery.fresh(queue, limit - len(taken), now)
            if not records:
                if self._bring_back(queue, transfer, now, now):
                    continue
                break
            for record in records:
                flight = Flight(queue, record, sent_at=now)
                if is_transactional(record.packet) and not self._may_go(transfer, flight, now):
                    if flight.ordered:
                        continue
                    return taken
                queue.mark(record.lookup_id, PositionState.LOCKED)
                taken.append(flight)
        return taken

    def _may_go(self, transfer: Transfer, flight: Flight, now: float) -> bool:
        """Whether a transactional message can be sent now."""
        place = self._place(flight.record)
        if place is None:  # passed on: its stream is between others
            if transfer.on_the_way is not None:
                return False
            transfer.on_the_way = flight
            return True
        flight.sequence, flight.number = place
        stream = self._stream(transfer, flight)
        if flight.record.reason == ORDERED:  # sent before the manager started
            flight.ordered = flight.answered = True
            flight.queue.mark(flight.record.lookup_id, PositionState.LOCKED)
            transfer.awaiting_final[flight.number] = flight
            return False
        if transfer.on_the_way is not None or transfer.settling or stream is None:
            return False
        if len(transfer.unacked) >= self.settings.unacknowledged:
            return False
        gap = flight.number - transfer.previous(flight.number) > 1
        if gap and flights.is_losing(flight.queue, flight.record.lookup_id):
            return False  # a gap must be durable first: the receiver never accepts what it was told to skip
        if not stream.may_follow(flight.number):
            if not transfer.unacked:
                self._begin_anew(transfer, stream, flight, now)
            return False
        self._number(transfer, stream, flight, now)
        return True

    def _stream(self, transfer: Transfer, flight: Flight) -> OutgoingStream | None:
        """The stream of a message. None while messages of the stream before it wait for receipts."""
        stream = transfer.stream
        if stream is not None and stream.sequence == flight.sequence:
            return stream
        if transfer.unacked or transfer.settling:
            return None
        assert flight.sequence is not None
        stored = self._stored.pop(flight.queue.properties.path, None)
        known = stored is not None and stored.sequence == flight.sequence
        if transfer.stream is not None:
            self._unname(transfer.stream)
        transfer.stream = stream = stored if stored is not None and known else OutgoingStream.of(flight.sequence)
        self._name(flight.queue, stream)
        transfer.kept = known and stream.started
        transfer.last_ack_count = transfer.last_number = 0
        return stream

    def _number(self, transfer: Transfer, stream: OutgoingStream, flight: Flight, now: float) -> None:
        """3.1.7.2.3: gives the message its place in the stream, the same each time it is sent."""
        previous = transfer.previous(flight.number)
        url = self._receipts_url(flight.queue)
        flight.stream = stream.element(self.core.identifier, flight.number, previous, url)
        transfer.on_the_way = flight
        transfer.last_number = max(transfer.last_number, flight.number)
        transfer.unacked.append(flight)
        if transfer.resend_at is None:
            self._arm(flight.queue, transfer, now)

    def _arm(self, queue: Queue, transfer: Transfer, now: float) -> None:
        transfer.resend_at = now + self.settings.resend_s[transfer.resend_index]
        self._resending.touch(queue)

    def _resend_at(self, queue: Queue) -> float | None:
        transfer = self.transfers.get(queue)
        if transfer is None:
            return None
        aside = [] if transfer.put_off else [again_at for again_at, _ in transfer.aside.values()]
        return earliest((transfer.resend_at, transfer.waits_until, *aside))

    def _begin_anew(self, transfer: Transfer, stream: OutgoingStream, flight: Flight, now: float) -> None:
        """The messages before this one are gone, and none of them has arrived. This one starts a stream of its own,
        once the stream's name is durable."""
        tick, queue = self.core.tick, flight.queue
        transfer.stream = anew = stream.anew(self.core.transacting.new_sequence(), flight.number)
        transfer.settling = True
        self._unname(stream)
        self._name(queue, anew)
        tick.set_state(f"{OUTGOING_STATE}{queue.properties.path}", anew.encode())

        def settled() -> None:
            transfer.settling = False
            queue.ready(now)

        def lost() -> None:
            transfer.settling = False
            self._unname(anew)
            self._name(queue, stream)
            transfer.stream = stream

        tick.on_commit.append(settled)
        tick.on_failure.append(lambda error: lost())

    # The answers of HTTP, 3.1.7.2.5

    def delivered(self, flight: Flight, now: float) -> None:
        """200: whoever answered is responsible for the message. A message of our streams stays until its receipt."""
        self._land(flight)
        self.transfers[flight.queue].tries.pop(flight.record.lookup_id, None)
        flight.answered = True
        if flight.number:
            stream = self.transfers[flight.queue].stream
            if stream is not None and _is_start(stream, flight) and flight.held:
                stream.started = True
        elif flight.held:
            flights.leave(self.core, flight, copy=wants_positive_copy(flight.record.packet), now=now)

    def refused(self, flight: Flight, now: float) -> None:
        """400: the message will never be accepted. Streams go on without it."""
        self._land(flight)
        if flight.ordered or not flight.held:
            return  # an earlier copy has arrived
        self._no_longer_unacked(flight)
        self.core.delivery.take(flight.queue, flight.record, REFUSED, now)

    def failed(self, flight: Flight, now: float) -> None:
        """5xx, or no answer: as far as we know the message has not arrived. It is sent again later."""
        self._land(flight)
        if flight.ordered:
            return
        self._no_longer_unacked(flight)
        flight.release(self.core, now)
        self.transfers[flight.queue].resend_at = None

    def put_off(self, flight: Flight, fault: str, now: float) -> None:
        """The answer is not 2xx, 400 or 5xx, so a proxy or web server gave it, not a queue manager. It may concern the
        message, its URL or everything. The queue waits, longer each time. After some tries a message that belongs to no
        stream lets later ones go first."""
        self.failed(flight, now)
        queue, lookup_id = flight.queue, flight.record.lookup_id
        transfer = self.transfers[queue]
        if queue.get(lookup_id) is None:
            return
        transfer.tries[lookup_id] = tries = transfer.tries.get(lookup_id, 0) + 1
        if transfer.waits_until is None:
            transfer.put_off += 1
            transfer.put_off_at, transfer.fault = now, fault
            transfer.waits_until = now + self._wait_s(transfer.put_off)
        if tries >= STEP_ASIDE and not is_transactional(flight.record.packet) and lookup_id not in queue.positions:
            queue.mark(lookup_id, PositionState.LOCKED)
            transfer.aside[lookup_id] = (now + self._wait_s(tries + 1), flight.record.expires_s or inf)
        self._resending.touch(queue)

    def _wait_s(self, tries: int) -> float:
        """The Retransmission Timer, doubled with each try, but never longer than the resend table says."""
        table = self.settings.resend_s
        doubled = self.settings.retransmission_ms / 1000 * 2.0 ** min(tries - 1, 40)
        return min(doubled, table[min(tries, len(table)) - 1])

    def goes_on(self, queue: Queue, now: float) -> bool:
        """A queue manager has answered. Returns whether the queue was stopped before."""
        transfer = self.transfers[queue]
        if not transfer.put_off:
            return False
        if transfer.put_off > STEP_ASIDE:  # the answers were not about these messages
            self._bring_back(queue, transfer, inf, now)
        transfer.put_off, transfer.waits_until = 0, None
        return True

    def hurry(self, queue: Queue, now: float) -> None:
        """Everything that was put off may be tried at once."""
        transfer = self.transfers.get(queue)
        if transfer is not None:
            self._bring_back(queue, transfer, inf, now)
            transfer.put_off, transfer.waits_until = 0, None
            transfer.tries.clear()

    def _wake(self, queue: Queue, transfer: Transfer, now: float) -> None:
        """While the receiver accepts nothing, messages that were not tried come before those that have stepped
        aside."""
        if transfer.waits_until is not None and transfer.waits_until <= now:
            transfer.waits_until = None
        if transfer.aside:
            self._bring_back(queue, transfer, -inf if transfer.put_off else now, now)

    def _bring_back(self, queue: Queue, transfer: Transfer, due: float, now: float) -> bool:
        """Messages that stepped aside until `due`, have expired or were purged return to their places. Returns whether
        there were any."""
        returning = [
            lookup_id
            for lookup_id, (again_at, expires_s) in transfer.aside.items()
            if again_at <= due or expires_s < int(now) or queue.positions.get(lookup_id) is not PositionState.LOCKED
        ]
        for lookup_id in returning:
            del transfer.aside[lookup_id]
            record = queue.get(lookup_id)
            if record is not None:
                Flight(queue, record).release(self.core, now)
        return bool(returning)

    def _land(self, flight: Flight) -> None:
        transfer = self.transfers[flight.queue]
        if transfer.on_the_way is flight:
            transfer.on_the_way = None

    def _no_longer_unacked(self, flight: Flight) -> None:
        transfer = self.transfers[flight.queue]
        if flight in transfer.unacked:
            transfer.unacked.remove(flight)

    # Receipts

    def take_stream_receipt(self, receipt: StreamReceipt, address: str, now: float) -> Taken:
        """3.1.5.1.8: the receiver says that everything up to a number has arrived in order."""
        found = self._find(receipt)
        if found is None or found[2].name != receipt.stream_id.sequence:
            return Taken.OF_NOTHING  # after a change of name, all of it is sent again
        queue, transfer, stream, number = found
        sequence, following = self.core.transacting.next_place(queue.properties.path)
        if sequence == stream.sequence and number >= following:
            return Taken.OF_NOTHING  # no such message; those sent before a restart are not known one by one
        if self._standing(queue, address) is Standing.STRANGER:
            return Taken.NOT_FROM_THERE
        covered = [each for each in transfer.unacked if each.number <= number]
        transfer.unacked = [each for each in transfer.unacked if each.number > number]
        transfer.last_ack_time = now
        transfer.last_ack_count += 1
        stream.acknowledged = max(stream.acknowledged, min(number, transfer.last_number))
        stream.started = True
        for flight in covered:
            flight.ordered = True
            self._ordered(transfer, flight, now)
        if covered:
            transfer.resend_index = 0
            self._keep(transfer, queue)
        transfer.resend_at = None
        if transfer.unacked:
            self._arm(queue, transfer, now)
        queue.ready(now)  # others may have waited for this
        return Taken.DONE

    def _ordered(self, transfer: Transfer, flight: Flight, now: float) -> None:
        """3.1.5.1.8.3: the message leaves the queue, unless it waits for its final receipt."""
        if not flight.held:
            return
        record = flight.record
        if MessageView(record.packet).negative_journaling:
            transfer.awaiting_final[flight.number] = flight
            flight.record = record._replace(reason=int(ORDERED), expires_s=NEVER)
            self.core.tick.replace(flight.record)
        else:
            self._settle(flight, True, now, state=TraceState.ARRIVED)

    def take_final_receipt(
        self, receipt: StreamReceipt, outcome: CommitmentReceipt, reason: int, address: str, now: float
    ) -> Taken:
        """3.1.5.1.9: the receiver says that one message has left its destination queue."""
        found = self._find(receipt)
        if found is None:
            return Taken.OF_NOTHING
        queue, transfer, stream, number = found
        flight = transfer.awaiting_final.get(number)
        if flight is None:
            flight = next((each for each in transfer.unacked if each.number == number), None)
            flight = flight or self._sent_before(queue, stream, number)
        if flight is None:
            return Taken.OF_NOTHING
        standing = self._standing(queue, address)
        if standing is Standing.STRANGER or (standing is Standing.UNKNOWN and not _is_of(outcome, flight)):
            return Taken.NOT_FROM_THERE
        transfer.awaiting_final.pop(number, None)
        flight.ordered = True
        self._no_longer_unacked(flight)
        if stream.name == receipt.stream_id.sequence:
            stream.started = True
            self._keep(transfer, queue)
        self._settle(flight, outcome.decision is Decision.POSITIVE, now, reason)
        return Taken.DONE

    def _settle(
        self,
        flight: Flight,
        positive: bool,
        now: float,
        reason: int = 0,
        state: TraceState = TraceState.RECEIVED,
    ) -> None:
        """The end of the message is known: 3.1.5.2.1.2 and 3.1.5.2.2."""
        if flight.queue.positions.get(flight.record.lookup_id) is PositionState.DELETED:
            return
        packet = flight.record.packet
        self.core.delivery.discard(flight.queue, flight.record)
        state = state if positive else TraceState.DIED
        self.core.departures.delivered(flight.queue, (flight.record,), state, reason=reason or None)
        tell = partial(flights.tell_outcome, positive=positive)
        self.core.delivery.try_after(packet, tell, self.core, packet, reason, now)
        self._end_stream(flight)

    def _find(self, receipt: StreamReceipt) -> tuple[Queue, Transfer, OutgoingStream, int] | None:
        """The stream of a receipt, by any of its names, and the receipt's number as the packets have it."""
        if receipt.stream_id.guid != self.core.identifier:
            return None
        name = receipt.stream_id.sequence
        queue = self._named.get(name)
        transfer = None if queue is None else self.transfers.get(queue)
        stream = None if transfer is None else transfer.stream
        if queue is None or transfer is None or stream is None or name not in stream.bases:
            return None
        return queue, transfer, stream, stream.bases[name] + receipt.last_ordinal

    def _sent_before(self, queue: Queue, stream: OutgoingStream, number: int) -> Flight | None:
        """Finds a message that was sent and is to be sent again. It is near the head of its queue."""
        for record in queue.available(flights.HEAD):
            place = self._place(record)
            if place == (stream.sequence, number):
                return Flight(queue, record, *place)
            if place is not None and place > (stream.sequence, number):
                break
        return None

    # The end of messages and streams

    def _keep(self, transfer: Transfer, queue: Queue) -> None:
        """Stores that the stream has started, before its first message leaves: a restart must not forget it."""
        if not transfer.kept and transfer.stream is not None:
            transfer.kept = True
            self.core.tick.set_state(f"{OUTGOING_STATE}{queue.properties.path}", transfer.stream.encode())
            self.core.tick.on_failure.append(lambda error: self._not_kept(transfer))

    def _not_kept(self, transfer: Transfer) -> None:
        transfer.kept = False

    def _end_stream(self, flight: Flight) -> None:
        """3.1.1.2 and 3.1.7.6: when all of the stream has left, the next message begins a new one."""
        queue, sequence = flight.queue, flight.sequence
        number = max(flight.number, self.transfers[queue].last_number)  # those that asked for dead letters leave late

        def ended() -> None:
            if queue in self.transfers:
                self.transfers[queue].kept = False
                self.core.tick.set_state(f"{OUTGOING_STATE}{queue.properties.path}", None)

        flights.end_sequence(self.core, queue, sequence, number, ended)

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """A message in an outgoing queue has expired, was refused, or was removed by somebody."""
        transfer = self.transfers.get(queue)
        if transfer is None:
            return
        transfer.tries.pop(record.lookup_id, None)
        place = self._place(record)
        if place is None:
            return
        gone = Flight(queue, record, *place)
        for flight in [each for each in transfer.unacked if each.record.lookup_id == record.lookup_id]:
            transfer.unacked.remove(flight)
        transfer.awaiting_final.pop(gone.number, None)
        if transfer.stream is not None and _is_start(transfer.stream, gone) and not transfer.kept:
            transfer.stream.started = False  # the 200 may have come from a manager on the way, where it ended too
        self._end_stream(gone)
        # Later messages may have waited for this to be durable.
        self.core.tick.on_commit.append(lambda: queue.ready(now))

    # Time

    def resend(self, queue: Queue, now: float) -> None:
        """An administrator wants everything sent again that has no receipt."""
        transfer = self.transfers.get(queue)
        if transfer is not None and transfer.resend_at is not None:
            transfer.resend_at = now
            self.on_timer([queue], now)

    def on_timer(self, queues: list[Queue], now: float) -> None:
        """Stream Receipt Wait Timer, 3.1.6.2: everything that has no receipt is sent again, and what was put off."""
        due = []
        for queue in queues:
            transfer = self.transfers[queue]
            self._wake(queue, transfer, now)
            if transfer.resend_at is None or transfer.resend_at > now:
                self._resending.touch(queue)
                due.append(queue)
                continue
            transfer.resend_at = None
            self._resending.touch(queue)
            answered = [each for each in transfer.unacked if each.answered]
            if not answered:  # nothing here can have a receipt: HTTP has a timer of its own
                continue
            transfer.resend_index = min(transfer.resend_index + 1, len(self.settings.resend_s) - 1)
            transfer.unacked = [each for each in transfer.unacked if not each.answered]
            for flight in answered:
                flight.release(self.core, now)
            due.append(queue)
        for queue in due:
            queue.ready(now)


def _is_start(stream: OutgoingStream, flight: Flight) -> bool:
    """Whether the receiver needs this message before all others of the stream."""
    return stream.sequence == flight.sequence and stream.current(flight.number) == 1


def _is_of(outcome: CommitmentReceipt, flight: Flight) -> bool:
    """Whether a final receipt names the message, 2.2.5.5: by its id, which only those who have the message know."""
    try:
        ordinal = parse_ordinal(outcome.id, "commitmentReceipt/id")
    except RemoteProtocolError:
        return False
    return ordinal == MessageView(flight.record.packet).message_id
