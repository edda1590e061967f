"""Transactional sequences, [MS-MQQB] 3.1.1.5: the numbers that make messages arrive exactly once and in order.

Both ends keep theirs in the store, changed in the same tick as the messages they speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from uuid import UUID

from postroad.bounded import BoundedTable, Standing
from postroad.errors import IllegalName
from postroad.queues.tick import Tick
from postroad.store.interface import Pair, Store
from postroad.transfer.steps import Steps
from postroad.wire.queue_names import destination_name
from postroad.wire.transaction_header import TxSequenceId
from postroad.wire.view import MessageView

INCOMING_STATE = "incoming/"
_INCOMING = Struct("<IIIII")
NO_SEQUENCE = TxSequenceId(0, 0)


@dataclass(slots=True)
class IncomingSequence:
    """IncomingTxSequenceID and IncomingTxSequenceNumber of one sender to one of our queues, as one name calls it.

    `durable` is the number that an OrderAck may name: messages above it are accepted but not yet committed.
    """

    sender: UUID
    format_name: str
    sequence_id: TxSequenceId = NO_SEQUENCE
    number: int = 0
    rejects: int = 0
    last_access_s: int = 0
    durable: int = 0
    last_order_ack: float | None = None  # LastOrderAckSendTime
    order_acked: int = 0  # the number that it named

    def accepts(self, sequence_id: TxSequenceId, number: int, previous: int) -> bool:
        """3.1.5.8.6: the next of this sequence, whatever expired in between, or the first of a newer one."""
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
    """By sender and destination name, as [MS-MQDMPR] 3.1.1.5 has it; `limit` at the most.

    A sequence begins with a message that a queue could take: those of messages that are refused are not remembered. It
    is proven once it has moved. One that the newest ticks have moved is never dropped. `owner` and `standing` are of
    senders, by what is known of their addresses; `dropped` hears what made room.
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
        """The state's name and the sequence that this message belongs to; None where it would be the first of it."""
        digest = blake2b(view.destination_bytes.lower(), digest_size=8).hexdigest()
        name = f"{INCOMING_STATE}{view.source_queue_manager_bytes.hex()}/{digest}"
        return name, self._sequences.get(name)

    def begin(self, name: str, view: MessageView, owner: str, standing: Standing) -> IncomingSequence | None:
        """None where there is no room: all others are known better, or in use."""
        sequence = IncomingSequence(view.source_queue_manager, _format_name(view))
        return sequence if self._sequences.put(name, sequence, owner, standing) else None

    def reject(self, tick: Tick, name: str, sequence: IncomingSequence, now: float) -> None:
        """The message came out of order, or again."""
        sequence.rejects += 1
        sequence.last_access_s = int(now)
        self._sequences.touch(name)
        if sequence.number and sequence.durable == sequence.number:  # a place that may still be lost is not written
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
        """Messages up to this number are accepted, or finally refused: either way the sequence moves past them. `added`
        is what the tick has got by them."""
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


def _format_name(view: MessageView) -> str:
    try:
        return str(destination_name(view))
    except IllegalName as fault:
        return fault.name
