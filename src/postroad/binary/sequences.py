"""Transactional sequences, [MS-MQQB] 3.1.1.5: numbers that make messages arrive exactly once and in order.

Both ends store their numbers, in the same tick as the messages that they count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from uuid import UUID

from postroad.carriers.flights import tell_outcome
from postroad.carriers.steps import Steps
from postroad.errors import IllegalName
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.reports.trace import TraceState
from postroad.runtime.bounded import BoundedTable, Standing
from postroad.store.interface import NEVER, Key, Pair, Record, Store
from postroad.wire.constants import QueueCode
from postroad.wire.headers import TxSequenceId
from postroad.wire.ordering import FinalAck
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

INCOMING_STATE = "incoming/"
DIGESTS = 4096  # destinations whose digests are remembered
_INCOMING = Struct("<IIIII")
NO_SEQUENCE = TxSequenceId(0, 0)


@dataclass(slots=True)
class IncomingSequence:
    """IncomingTxSequenceID and IncomingTxSequenceNumber: of one sender, to one of our queues under one of its names.

    An OrderAck may name numbers up to `durable`. Messages above it are accepted but not yet committed.
    """

    sender: UUID
    format_name: str
    sequence_id: TxSequenceId = NO_SEQUENCE
    number: int = 0
    rejects: int = 0
    last_access_s: int = 0
    durable: int = 0
    last_order_ack: float | None = None  # LastOrderAckSendTime
    order_acked: int = 0  # the number in it

    def accepts(self, sequence_id: TxSequenceId, number: int, previous: int) -> bool:
        """3.1.5.8.6: whether this is the next message of the sequence, apart from expired ones, or the first of a newer
        one."""
        if sequence_id == self.sequence_id:
            return number > self.number and previous <= self.number
        return sequence_id > self.sequence_id and previous == 0

    @property
    def sequence_key(self) -> TxSequenceId:
        return self.sequence_id

    def saved(self) -> object:
        return self.sequence_id, self.number

    def restore(self, saved: object) -> None:
        self.sequence_id, self.number = saved  # type: ignore[misc]

    def encode(self) -> bytes:
        place = self.sequence_id
        fixed = _INCOMING.pack(place.ordinal, place.time_stamp, self.number, self.rejects, self.last_access_s)
        return fixed + self.format_name.encode("utf-8", "surrogatepass")


class IncomingSequences:
    """At most `limit` sequences, by sender and destination name as in [MS-MQDMPR] 3.1.1.5.

    Only a message that a queue could take begins a sequence; refused messages leave none. A sequence is proven once it
    has advanced. A sequence that an uncommitted tick has advanced is never dropped. `owner` and `standing` are those of
    the sender's address. `dropped` is called for a sequence that was dropped to make room.
    """

    def __init__(
        self,
        store: Store,
        limit: int,
        *,
        owner: Callable[[UUID], str],
        standing: Callable[[UUID], Standing],
        dropped: Callable[[str, IncomingSequence], None],
    ) -> None:
        self._steps = Steps()
        self._sequences: BoundedTable[str, IncomingSequence] = BoundedTable(
            limit,
            lowest=Standing.PROVEN,
            in_use=lambda name, _: name in self._steps,
            standing=lambda _, sequence: standing(sequence.sender),
            dropped=dropped,
        )
        stored = [(*_INCOMING.unpack_from(value), name, value) for name, value in store.state(INCOMING_STATE).items()]
        for ordinal, time_stamp, number, rejects, last_access, name, value in sorted(stored, key=lambda each: each[4]):
            sender = UUID(bytes_le=bytes.fromhex(name.removeprefix(INCOMING_STATE).partition("/")[0]))
            place = TxSequenceId(ordinal, time_stamp)
            format_name = value[_INCOMING.size :].decode("utf-8", "surrogatepass")
            sequence = IncomingSequence(sender, format_name, place, number, rejects, last_access, number)
            self._sequences.put(name, sequence, owner(sender), Standing.PROVEN)

    def __iter__(self) -> Iterator[IncomingSequence]:
        return self._sequences.values()

    def find(self, view: MessageView) -> tuple[str, IncomingSequence | None]:
        """The state's name and the sequence of this message, or None if the message would begin the sequence."""
        source = view.source_queue_manager_bytes.hex()
        digest, former = _digests(view.destination_bytes)
        name = f"{INCOMING_STATE}{source}/{digest}"
        sequence = self._sequences.get(name)
        if sequence is None and former != digest:
            begun = f"{INCOMING_STATE}{source}/{former}"
            other = self._sequences.get(begun)
            if other is not None and other.format_name.lower() == _format_name(view).lower():
                return begun, other
        return name, sequence

    def begin(self, name: str, view: MessageView, owner: str, standing: Standing) -> IncomingSequence | None:
        """Begins a sequence. None if there is no room, because all others rank higher or are in use."""
        sequence = IncomingSequence(view.source_queue_manager, _format_name(view))
        return sequence if self._sequences.put(name, sequence, owner, standing) else None

    def reject(self, tick: Tick, name: str, sequence: IncomingSequence, now: float) -> None:
        """Notes that a message came out of order or again."""
        sequence.rejects += 1
        sequence.last_access_s = int(now)
        self._sequences.touch(name)
        if sequence.number and sequence.durable == sequence.number:  # do not store a place that may still be lost
            tick.set_state(name, sequence.encode())

    def advance(
        self,
        tick: Tick,
        name: str,
        sequence: IncomingSequence,
        place: TxSequenceId,
        number: int,
        added: Iterable[Pair],
        now: float,
    ) -> None:
        """Moves the sequence past messages that are accepted or finally refused. `added` are the records that the tick
        gets from them."""
        step = self._steps.of(tick, name, sequence)
        if place != sequence.sequence_id:
            sequence.sequence_id, sequence.durable, sequence.order_acked = place, 0, 0
        sequence.number = number
        sequence.rejects = 0
        sequence.last_access_s = int(now)
        self._sequences.touch(name)
        self._sequences.rise(name, Standing.PROVEN)
        step.added += added
        self._steps.moved(step)


@lru_cache(DIGESTS)
def _digests(destination: bytes) -> tuple[str, str]:
    """What stands for a destination in the name of its sequence, and what did until version 0.2, which took every octet
    for an ASCII letter: the numbers 0x41 and 0x61 of two private queues were then the same."""
    former = destination.lower()
    digested = destination
    if destination[0] == QueueCode.DIRECT:
        ascii_only = not any(destination[4::2])  # behind the code and the length of the text
        text = destination[3:].decode("utf-16-le", "surrogatepass")
        digested = former if ascii_only else destination[:3] + text.lower().encode("utf-16-le", "surrogatepass")
    return _hexdigest(digested), _hexdigest(former)


def _hexdigest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _format_name(view: MessageView) -> str:
    try:
        return str(destination_name(view))
    except IllegalName as fault:
        return fault.name


# AwaitingFinalACKTable, [MS-MQQB] 3.1.1.3.1: messages that have arrived in order and whose end is not known yet. A
# queue of the manager's own keeps them. A FinalAck can come at any time, even while they are being moved there.


@dataclass(slots=True, eq=False)
class _Move:
    """A message that a tick moves from its outgoing queue into the table."""

    queue: Queue
    record: Record
    place: Key  # in the table
    tick: Tick
    final: tuple[FinalAck, float] | None = None  # which came before the tick was committed


class AwaitingFinalAcks:
    """The table of one queue manager. It finds messages by their ids."""

    def __init__(self, core: LocalQueueManager) -> None:
        self._core = core
        self._queue = core.queues.system(AWAITING_FINAL_ACK)
        self._places = {MessageView(each.packet).message_id: each.lookup_id for each in self._queue.everything()}
        self._moves: dict[int, _Move] = {}

    def __iter__(self) -> Iterator[Record]:
        """The messages that are durably in the table."""
        return self._queue.everything()

    def move(self, queue: Queue, record: Record, message_id: int) -> None:
        """3.1.5.6: moves a message from its outgoing queue, in the gathering tick."""
        core = self._core
        with core.delivery.atomic:
            added = core.delivery.add(self._queue, record.packet, 0, NEVER, record.arrived_ms / 1000)
            core.delivery.discard(queue, record)
        move = _Move(queue, record, Key(added.queue, added.lookup_id), core.tick)
        self._moves[message_id] = move
        core.tick.on_commit.append(lambda: self._moved(message_id, move))
        core.tick.on_failure.append(lambda error: self._not_moved(message_id, move))

    def _moved(self, message_id: int, move: _Move) -> None:
        if self._moves.get(message_id) is move:
            del self._moves[message_id]
            self._places[message_id] = move.place.lookup_id
            if move.final is not None:
                self.take(*move.final)

    def _not_moved(self, message_id: int, move: _Move) -> None:
        """The tick is lost: the message is in its outgoing queue as before."""
        if self._moves.get(message_id) is move:
            del self._moves[message_id]
            if move.final is not None:
                self.settle(move.queue, move.record, *move.final)

    def take(self, ack: FinalAck, now: float, accepts: Callable[[Record], bool] = lambda record: True) -> bool:
        """3.1.5.7: settles the message that a FinalAck names, if it is in the table and `accepts` is true of it.
        Returns whether it was.

        That happens in the gathering tick.
        """
        message_id = ack.acknowledged_message_id
        move = self._moves.get(message_id)
        if move is not None:
            if not accepts(move.record):
                return True
            if move.tick is self._core.tick:  # the message need not enter the table at all
                del self._moves[message_id]
                move.tick.take_back(move.place)
                self._core.delivery.try_after(move.record.packet, self._tell, move.record, ack, now)
            else:
                move.final = (ack, now)
            return True
        lookup_id = self._places.get(message_id)
        if lookup_id is None:
            return False
        record = self._queue.get(lookup_id)
        # Or it is already being removed.
        if record is not None and lookup_id not in self._queue.positions and accepts(record):
            self.settle(self._queue, record, ack, now)
            self._core.tick.on_commit.append(lambda: self._forget(message_id))
        return True

    def _forget(self, message_id: int) -> None:
        self._places.pop(message_id, None)

    def settle(self, queue: Queue, record: Record, ack: FinalAck, now: float) -> None:
        """Settles a message whose end is known, wherever it waits."""
        self._core.delivery.discard(queue, record)
        state = TraceState.RECEIVED if ack.positive else TraceState.DIED
        self._core.departures.delivered(queue, (record,), state, reason=ack.final_class)
        self._core.delivery.try_after(record.packet, self._tell, record, ack, now)

    def _tell(self, record: Record, ack: FinalAck, now: float) -> None:
        tell_outcome(self._core, record.packet, ack.final_class, now, positive=ack.positive)
