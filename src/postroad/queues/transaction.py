"""A local transaction, [MS-MQDMPR] 3.1.1.13 and 3.1.1.14: sends, receives and moves that happen together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from postroad.queues.queue import Queue
from postroad.store.interface import Record

if TYPE_CHECKING:
    from postroad.queues.tick import Tick
    from postroad.queues.waiting import WaitingRead


class OperationType(Enum):
    """3.1.1.13"""

    ENQUEUE = auto()
    DEQUEUE = auto()
    MOVE = auto()


class TransactionalOperation(NamedTuple):
    """`record` of an Enqueue has no lookup id yet: it gets one at commit, so that it is never seen out of turn."""

    operation: OperationType
    queue: Queue
    record: Record
    target: Queue | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    """Open until it is committed or aborted. `number` is the 20-bit identifier that its packets carry."""

    identifier: UUID
    number: int
    operations: list[TransactionalOperation] = field(default_factory=list)
    waiting: list[WaitingRead] = field(default_factory=list)  # reads that began to wait in it
    ended: bool = False

    def add(self, tick: Tick, *operations: TransactionalOperation) -> None:
        """More operations, of a change that `tick` may take back."""
        if tick.steps is not None:
            tick.steps.append((self.operations.__delitem__, slice(len(self.operations), None)))
        self.operations += operations
