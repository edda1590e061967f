"""Messages on their way out: what a carrier has been given, and who is informed of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from postroad.errors import Status
from postroad.queues.collection import JOURNAL, QueueCollection
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import (
    NOBODY_KNOWN,
    SILENT,
    Carrier,
    ConnectionAttempt,
    ConnectionStatus,
    NextHop,
    OutgoingEvent,
    OutgoingTransferInfo,
    SequenceInfo,
)
from postroad.queues.queue import PositionState, Queue
from postroad.security.refusals import Refused
from postroad.store.interface import Record
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from postroad.wire.patch import SOURCE, transaction_fields_of, wants_positive_copy
from postroad.wire.view import MessageView

# Messages of outgoing queues on their way, by any carrier, and what a carrier notes about the queues. A message on its
# way is a locked position of its queue, so a restart makes it available again. The carrier decides how messages are
# sent, and when they are sent again.


HEAD = 1000  # messages of a queue that are searched for one that was sent before the manager started
_HELD = (PositionState.LOCKED, PositionState.PURGE_PENDING)
# ConnectionHistory.Error for a failure. For all others: the machine cannot be reached.
_ERRORS = {
    ConnectionStatus.UNKNOWN_FAILURE: Status.ERROR,
    ConnectionStatus.ROUTING_DATA_UNAVAILABLE: Status.NO_DS,
    ConnectionStatus.CONNECTION_LIMIT_REACHED: Status.INSUFFICIENT_RESOURCES,
    ConnectionStatus.LOW_RESOURCE: Status.INSUFFICIENT_RESOURCES,
}


# Record fields by index: sequence, number and previous number of a message that one of our sequences counts.
Places = dict[int, tuple[TxSequenceId, int, int]]


@dataclass(slots=True, eq=False)
class Flight:
    """A message of an outgoing queue that was sent. `number` is 0 unless one of our sequences counts it."""

    queue: Queue
    record: Record
    sequence: TxSequenceId | None = None
    number: int = 0
    sent_at: float = 0.0

    @property
    def held(self) -> bool:
        """Whether the message is still where it was when it was sent."""
        return self.queue.positions.get(self.record.lookup_id) in _HELD

    def release(self, core: LocalQueueManager, now: float) -> None:
        """Makes the message available again, unless somebody has purged the queue meanwhile."""
        state = self.queue.positions.get(self.record.lookup_id)
        if state is PositionState.LOCKED:
            core.reading.put_back(self.queue, self.record, now)
        elif state is PositionState.PURGE_PENDING:
            core.delivery.take(self.queue, self.record, MessageClass.NACK_DELETED, now)


F = TypeVar("F", bound=Flight)


@dataclass(slots=True)
class OutgoingTransfer(Generic[F]):
    """The part of an outgoing queue that the receiver has not put in order yet, and when it is sent again."""

    unacked: list[F] = field(default_factory=list)
    resend_index: int = 0
    resend_at: float | None = None
    last_ack_time: float = 0.0
    last_ack_count: int = 0


def transfer_info(
    transfer: OutgoingTransfer[F] | None, last_ack: SequenceInfo | None, resend_s: Sequence[float]
) -> OutgoingTransferInfo:
    """What an administrator sees of it."""
    if transfer is None:
        return OutgoingTransferInfo()
    counted = [each for each in transfer.unacked if each.sequence is not None]
    return OutgoingTransferInfo(
        last_ack=last_ack,
        last_ack_time=int(transfer.last_ack_time),
        last_ack_count=transfer.last_ack_count,
        first_non_ack=_place_info(counted[0]) if counted else None,
        last_non_ack=_place_info(counted[-1]) if counted else None,
        no_ack_count=len(transfer.unacked),
        resend_time=int(transfer.resend_at or 0),
        resend_interval=int(resend_s[transfer.resend_index]),
        resend_count=transfer.resend_index,
    )


def _place_info(flight: Flight) -> SequenceInfo:
    assert flight.sequence is not None
    return SequenceInfo(flight.sequence.value, flight.number, flight.number - 1)


def own_place(view: MessageView, own: bytes) -> tuple[TxSequenceId, int] | None:
    """The sequence and number of a message of the manager `own`. None for any other message, and outside of
    transactions."""
    fields = view.transaction_fields
    if fields is None or view.source_queue_manager_bytes != own:
        return None
    return TxSequenceId(fields[1], fields[2]), fields[3]


def own_places(records: Sequence[Record], own: bytes) -> Places:
    """The places of messages that sequences of the manager `own` count. All messages of one sequence share its id."""
    packets = [record.packet for record in records]
    found: Places = {}
    sequence = TxSequenceId(0, 0)
    for index, fields in enumerate(transaction_fields_of(packets)):
        if fields is None or packets[index][SOURCE] != own:
            continue
        _, ordinal, time_stamp, number, previous = fields
        if ordinal != sequence.ordinal or time_stamp != sequence.time_stamp:
            sequence = TxSequenceId(ordinal, time_stamp)
        found[index] = (sequence, number, previous)
    return found


def held(queue: Queue, records: Sequence[Record]) -> list[Record]:
    """The messages that are still where they were when they were sent, each once: after a lost tick, one session may
    have sent a message twice."""
    positions = queue.positions
    once = {record.lookup_id: record for record in records}
    return [record for lookup_id, record in once.items() if positions.get(lookup_id) in _HELD]


def is_losing(queue: Queue, before: int) -> bool:
    """Whether something before this position is on its way out, and not durably gone."""
    return any(state is PositionState.DELETED and at < before for at, state in queue.positions.items())


def leave(core: LocalQueueManager, flight: Flight, *, copy: bool, now: float, hop: NextHop = NOBODY_KNOWN) -> None:
    """The next hop has the message, so it leaves. Its source may have asked for a copy."""
    packet = flight.record.packet
    core.delivery.discard(flight.queue, flight.record)
    core.departures.delivered(flight.queue, (flight.record,), hop=hop)
    if copy and core.delivery.journals_at_source(MessageView(packet)):
        core.delivery.try_after(packet, core.delivery.copy, core.queues.system(JOURNAL), packet, now)


def leave_all(
    core: LocalQueueManager, queue: Queue, records: Sequence[Record], now: float, hop: NextHop = NOBODY_KNOWN
) -> None:
    """The next hop has messages that none of our sequences counts. Those that are still where they were leave."""
    leaving = held(queue, records)
    if copied := [record for record in leaving if wants_positive_copy(record.packet)]:
        for record in copied:
            core.delivery.try_after(
                record.packet, partial(leave, core, Flight(queue, record), copy=True, now=now, hop=hop)
            )
        leaving = [record for record in leaving if not wants_positive_copy(record.packet)]
    if leaving:
        core.delivery.try_after(leaving[0].packet, core.delivery.discard_all, queue, leaving)
        core.departures.delivered(queue, leaving, hop=hop)


def withdraw(core: LocalQueueManager, place: tuple[Queue, Record] | None) -> None:
    """Removes an acknowledgment once a newer one replaces it, unless it is on its way or has left."""
    if place is not None:
        queue, record = place
        if record.lookup_id not in queue.positions and queue.get(record.lookup_id) is not None:
            core.delivery.discard(queue, record)


def tell_outcome(core: LocalQueueManager, packet: bytes, reason: int, now: float, *, positive: bool) -> None:
    """Reports what became of a message at its destination: its source journals it, or keeps a dead letter."""
    view = MessageView(packet)
    if positive and view.positive_journaling:
        core.delivery.copy(core.queues.system(JOURNAL), packet, now)
    elif not positive and view.negative_journaling:
        core.delivery.dead_letter(packet, view, reason, now)


def end_sequence(
    core: LocalQueueManager, queue: Queue, sequence: TxSequenceId | None, number: int, ended: Callable[[], None]
) -> None:
    """[MS-MQQB] 3.1.5.6: when everything is in order and has left, the next message begins a new sequence."""
    transacting, path = core.transacting, queue.properties.path
    if sequence is None or not transacting.is_last(path, sequence, number):
        return

    def end() -> None:  # once it is durable that they have left
        if not queue.count and transacting.is_last(path, sequence, number):
            transacting.end_sequence(path)
            ended()

    if core.tick:
        core.tick.on_commit.append(end)
    else:
        end()


def attempt(status: ConnectionStatus, now: float, *addresses: str) -> ConnectionAttempt:
    failed = status >= ConnectionStatus.UNKNOWN_FAILURE
    error = _ERRORS.get(status, Status.REMOTE_MACHINE_NOT_AVAILABLE) if failed else Status.OK
    return ConnectionAttempt(status, int(now), error.value, addresses)


@dataclass(slots=True, eq=False)
class PeerQueues:
    """The outgoing queues that use one peer, and how the attempts to reach it go. Deleted queues are skipped."""

    queues: dict[Queue, None] = field(default_factory=dict)
    retry_at: float | None = None
    last_error: str | None = None

    def happened(self, collection: QueueCollection, event: OutgoingEvent) -> None:
        for queue in self.queues:
            info = collection.outgoing_info.get(queue)
            if info is not None:
                info.on(event)

    def note(
        self, collection: QueueCollection, status: ConnectionStatus, now: float, host: str, error: str | None = None
    ) -> None:
        self.last_error = error
        noted = attempt(status, now, host)
        for queue in self.queues:
            info = collection.outgoing_info.get(queue)
            if info is not None:
                info.note(noted, error)


def may_send(collection: QueueCollection, queue: Queue) -> bool:
    """False for a queue that is paused or locked, for one that was deleted meanwhile, and for all while the manager is
    offline."""
    info = collection.outgoing_info.get(queue)
    return collection.online and info is not None and info.state not in SILENT


def waiting_for(collection: QueueCollection, carrier: Carrier) -> list[Queue]:
    """The outgoing queues of a carrier that have messages."""
    return [queue for queue in collection.outgoing.values() if queue.count and queue.carrier is carrier]


def sendable(collection: QueueCollection, queues: Iterable[Queue]) -> list[Queue]:
    """The queues that have messages and may send them."""
    return [queue for queue in queues if queue.count and may_send(collection, queue)]


# Events of a carrier that people should know about. Whoever logs or counts them says so when the carrier is made.


def _ignore(*arguments: object) -> None:
    """Does nothing: nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferWatcher:
    """Functions that get facts. Nothing depends on what they do."""

    refused: Callable[[MessageView, Refused], None] = _ignore  # a message from another manager, and why
    suspicious: Callable[[str, Mapping[str, object]], None] = _ignore  # what strangers do: an event and its facts
    reachable: Callable[[str, str | None], None] = _ignore  # a host has changed: why it is out of reach, or None
