"""Transactional sequences, [MS-MQQB] 3.1.1.5: the numbers that make messages arrive exactly once and in order.

Both ends keep theirs in the store, changed in the same tick as the messages they speak of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from uuid import UUID

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
DROPPED = 16  # of a full table, the share that makes room: one look at the whole for many newcomers


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

    A sequence begins with a message that a queue takes: those of messages that are refused are not remembered.
    """

    def __init__(self, store: Store, limit: int) -> None:
        self.limit = limit
        self._sequences: dict[str, IncomingSequence] = {}
        self._steps = Steps()
        for name, value in store.state(INCOMING_STATE).items():
            ordinal, time_stamp, number, rejects, last_access = _INCOMING.unpack_from(value)
            sender = UUID(bytes_le=bytes.fromhex(name.removeprefix(INCOMING_STATE).partition("/")[0]))
            place = TxSequenceId(ordinal, time_stamp)
            format_name = value[_INCOMING.size :].decode("utf-8", "surrogatepass")
            self._sequences[name] = IncomingSequence(sender, format_name, place, number, rejects, last_access, number)

    def __iter__(self) -> Iterator[IncomingSequence]:
        return iter(self._sequences.values())

    def find(self, view: MessageView) -> tuple[str, IncomingSequence | None]:
        """The state's name and the sequence that this message belongs to; None where it would be the first of it."""
        digest = blake2b(view.destination_bytes.lower(), digest_size=8).hexdigest()
        name = f"{INCOMING_STATE}{view.source_queue_manager_bytes.hex()}/{digest}"
        return name, self._sequences.get(name)

    def begin(self, name: str, view: MessageView) -> IncomingSequence:
        sequence = self._sequences[name] = IncomingSequence(view.source_queue_manager, _format_name(view))
        return sequence

    def make_room(self, tick: Tick) -> list[str]:
        """What is dropped where one more would be too many: first what has brought no message yet, then what was silent
        for longest. A sequence that the newest ticks have moved stays."""
        if len(self._sequences) < self.limit:
            return []
        resting = [(name, each) for name, each in self._sequences.items() if name not in self._steps]
        resting.sort(key=lambda item: (item[1].number > 0, item[1].last_access_s))
        dropped = [name for name, _ in resting[: len(self._sequences) - self.limit + 1 + self.limit // DROPPED]]
        for name in dropped:
            if self._sequences.pop(name).number:
                tick.set_state(name, None)
        return dropped

    def reject(self, tick: Tick, name: str, sequence: IncomingSequence, now: float) -> None:
        """The message came out of order, or again."""
        sequence.rejects += 1
        sequence.last_access_s = int(now)
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
        step.added += added
        self._steps.moved(step)


def _format_name(view: MessageView) -> str:
    try:
        return str(destination_name(view))
    except IllegalName as fault:
        return fault.name
