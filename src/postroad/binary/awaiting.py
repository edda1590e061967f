"""AwaitingFinalACKTable, [MS-MQQB] 3.1.1.3.1: messages that have arrived in order and may still be read or refused.

They are kept in a queue of the manager's own. A FinalAck can come at any time, while they are on their way there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from postroad.names.internal import AWAITING_FINAL_ACK
from postroad.queues.local import LocalQueueManager
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick
from postroad.store.interface import NEVER, Key, Record
from postroad.transfer.outgoing import tell_outcome
from postroad.values.trace import TraceState
from postroad.wire.ordering import FinalAck
from postroad.wire.view import MessageView


@dataclass(slots=True, eq=False)
class _Move:
    """A message that a tick takes from its outgoing queue into the table."""

    queue: Queue
    record: Record
    place: Key  # in the table
    tick: Tick
    final: tuple[FinalAck, float] | None = None  # that came while the tick was on its way


class AwaitingFinalAcks:
    """One for a queue manager; messages are known by their ids."""

    def __init__(self, core: LocalQueueManager) -> None:
        self._core = core
        self._queue = core.queues.system(AWAITING_FINAL_ACK)
        self._places = {MessageView(each.packet).message_id: each.lookup_id for each in self._queue.everything()}
        self._moves: dict[int, _Move] = {}

    def __iter__(self) -> Iterator[Record]:
        """Those that are durably there."""
        return self._queue.everything()

    def move(self, queue: Queue, record: Record, message_id: int) -> None:
        """3.1.5.6: from its outgoing queue, with the gathering tick."""
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
        """The message is in its outgoing queue as before."""
        if self._moves.get(message_id) is move:
            del self._moves[message_id]
            if move.final is not None:
                self.settle(move.queue, move.record, *move.final)

    def take(self, ack: FinalAck, now: float, accepts: Callable[[Record], bool] = lambda record: True) -> bool:
        """3.1.5.7: whether it was about one of these, and `accepts` says that it is true of it.

        It is done in the tick that promises the FinalAck.
        """
        message_id = ack.acknowledged_message_id
        move = self._moves.get(message_id)
        if move is not None:
            if not accepts(move.record):
                return True
            if move.tick is self._core.tick:  # so that it need not come here at all
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
        # Or it is on its way out already.
        if record is not None and lookup_id not in self._queue.positions and accepts(record):
            self.settle(self._queue, record, ack, now)
            self._core.tick.on_commit.append(lambda: self._forget(message_id))
        return True

    def _forget(self, message_id: int) -> None:
        self._places.pop(message_id, None)

    def settle(self, queue: Queue, record: Record, ack: FinalAck, now: float) -> None:
        """It is known what became of the message, wherever it waits."""
        self._core.delivery.discard(queue, record)
        state = TraceState.RECEIVED if ack.positive else TraceState.DIED
        self._core.departures.delivered(queue, (record,), state, reason=ack.final_class)
        self._core.delivery.try_after(record.packet, self._tell, record, ack, now)

    def _tell(self, record: Record, ack: FinalAck, now: float) -> None:
        tell_outcome(self._core, record.packet, ack.final_class, now, positive=ack.positive)
