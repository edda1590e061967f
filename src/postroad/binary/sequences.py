"""Transactional sequences, [MS-MQQB] 3.1.1.5: the numbers that make messages arrive exactly once and in order.

Both ends keep theirs in the store, changed in the same tick as the messages they speak of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct

from postroad.queues.tick import Tick
from postroad.store.interface import Store
from postroad.wire.transaction_header import TxSequenceId
from postroad.wire.view import MessageView

INCOMING_STATE = "incoming/"
_INCOMING = Struct("<IIIII")


@dataclass(slots=True)
class IncomingSequence:
    """IncomingTxSequenceID and IncomingTxSequenceNumber of one sender to one of our queues.

    `durable` is the number that an OrderAck may name: messages above it are accepted but not yet committed.
    """

    sequence_id: TxSequenceId = field(default_factory=lambda: TxSequenceId(0, 0))
    number: int = 0
    rejects: int = 0
    last_access_s: int = 0
    durable: int = 0

    def accepts(self, sequence_id: TxSequenceId, number: int, previous: int) -> bool:
        """3.1.5.8.6: the next of this sequence, whatever expired in between, or the first of a newer one."""
        if sequence_id == self.sequence_id:
            return number > self.number and previous <= self.number
        return sequence_id > self.sequence_id and previous == 0


class IncomingSequences:
    """By sender and destination name, as [MS-MQDMPR] 3.1.1.5 has it."""

    def __init__(self, store: Store) -> None:
        self._sequences: dict[str, IncomingSequence] = {}
        for name, value in store.state(INCOMING_STATE).items():
            ordinal, time_stamp, number, rejects, last_access = _INCOMING.unpack(value)
            self._sequences[name] = IncomingSequence(
                TxSequenceId(ordinal, time_stamp), number, rejects, last_access, number
            )

    def of(self, view: MessageView) -> tuple[str, IncomingSequence]:
        """The state's name and the sequence that this message belongs to."""
        destination = blake2b(view.destination_bytes.lower(), digest_size=8).hexdigest()
        name = f"{INCOMING_STATE}{view.source_queue_manager_bytes.hex()}/{destination}"
        sequence = self._sequences.get(name)
        if sequence is None:
            sequence = self._sequences[name] = IncomingSequence()
        return name, sequence

    def advance(self, tick: Tick, name: str, sequence: IncomingSequence, view: MessageView, now: float) -> None:
        """The message is accepted, or finally rejected: either way the sequence moves past it."""
        fields = view.transaction_fields
        assert fields is not None
        before = (sequence.sequence_id, sequence.number)
        sequence.sequence_id = TxSequenceId(fields[1], fields[2])
        sequence.number = number = fields[3]
        sequence.rejects = 0
        sequence.last_access_s = int(now)
        tick.set_state(name, _INCOMING.pack(fields[1], fields[2], number, 0, int(now)))

        def committed() -> None:
            sequence.durable = number

        def failed(_: object) -> None:
            # A later message of the same tick has moved it further: the first failure sets it back furthest.
            if sequence.number >= number:
                sequence.sequence_id, sequence.number = before

        tick.on_commit.append(committed)
        tick.on_failure.insert(0, failed)
