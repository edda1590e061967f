"""Transactional sequences, [MS-MQQB] 3.1.1.5: the numbers that make messages arrive exactly once and in order.

Both ends keep theirs in the store, changed in the same tick as the messages they speak of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from struct import Struct
from uuid import UUID

from postroad.errors import IllegalName
from postroad.queues.tick import Tick
from postroad.store.interface import Key, Store
from postroad.wire.queue_names import destination_name
from postroad.wire.transaction_header import TxSequenceId
from postroad.wire.view import MessageView

INCOMING_STATE = "incoming/"
_INCOMING = Struct("<IIIII")
NO_SEQUENCE = TxSequenceId(0, 0)
DROPPED = 16  # of a full table, the share that makes room: one look at the whole for many newcomers


@dataclass(slots=True, eq=False)
class _Step:
    """What one tick does to a sequence."""

    tick: Tick
    before: tuple[TxSequenceId, int, int]
    number: int = 0
    added: list[Key] = field(default_factory=list)  # messages, and what follows from their arrival


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
    step: _Step | None = None  # of the newest tick that has moved it

    def accepts(self, sequence_id: TxSequenceId, number: int, previous: int) -> bool:
        """3.1.5.8.6: the next of this sequence, whatever expired in between, or the first of a newer one."""
        if sequence_id == self.sequence_id:
            return number > self.number and previous <= self.number
        return sequence_id > self.sequence_id and previous == 0

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
        resting = [(name, each) for name, each in self._sequences.items() if each.step is None]
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
        view: MessageView,
        added: Iterable[Key],
        now: float,
    ) -> None:
        """The message is accepted, or finally refused: either way the sequence moves past it. `added` is what the tick
        has got by it."""
        fields = view.transaction_fields
        assert fields is not None
        step = sequence.step
        if step is None or step.tick is not tick:
            before = (sequence.sequence_id, sequence.number, sequence.durable)
            step = sequence.step = _Step(tick, before)
            tick.on_seal.append(partial(_write, tick, name, sequence, step))
            tick.on_commit.append(partial(_committed, sequence, step))
            tick.undo.append(partial(_lost, name, sequence, step))
        place = TxSequenceId(fields[1], fields[2])
        if place != sequence.sequence_id:
            sequence.sequence_id, sequence.durable, sequence.order_acked = place, 0, 0
        step.number = sequence.number = fields[3]
        sequence.rejects = 0
        sequence.last_access_s = int(now)
        step.added += added


def _format_name(view: MessageView) -> str:
    try:
        return str(destination_name(view))
    except IllegalName as fault:
        return fault.name


def _write(tick: Tick, name: str, sequence: IncomingSequence, step: _Step) -> None:
    if step.number:
        tick.set_state(name, sequence.encode())


def _committed(sequence: IncomingSequence, step: _Step) -> None:
    if step.number:
        sequence.durable = step.number
    if sequence.step is step:
        sequence.step = None


def _lost(name: str, sequence: IncomingSequence, step: _Step, gathering: Tick) -> None:
    """Back to where it was. What came on top of the lost messages goes too: it would stand before them."""
    if not step.number:
        return
    sequence.sequence_id, sequence.number, sequence.durable = step.before
    later = sequence.step
    if later is not None and later is not step:
        for key in later.added:
            gathering.take_back(key)
        gathering.batch.state.pop(name, None)
        later.number = 0  # nothing follows from it any more
    sequence.step = None
