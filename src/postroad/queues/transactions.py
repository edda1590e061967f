"""Transactions, [MS-MQDMPR] 3.1.4.3 to 3.1.4.5: what they gather, and what becomes of it. All are local and one-phase.

Transactional messages get their numbers ([MS-MQMQ] 2.2.20.5) here, at the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, groupby
from operator import itemgetter
from struct import Struct
from uuid import UUID

from postroad.errors import InvalidArgument, QuotaExceeded, TransactionSequence, TransactionUsage
from postroad.queues.collection import POISON
from postroad.queues.delivery import Delivery, check_kind, check_movable
from postroad.queues.open_queue import (
    OperationType,
    Transaction,
    TransactionalOperation,
)
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.queues.reading import Reading
from postroad.queues.tick import Tick
from postroad.store.interface import NEVER, Record
from postroad.wire.constants import MessageClass
from postroad.wire.headers import SEQUENCE_ID, TxSequenceId
from postroad.wire.patch import renumber_transaction, stamp_transactions
from postroad.wire.view import MessageView

STATE = "sequence"
_OPEN = "sequence/"  # followed by a destination: its open sequence, and the last number given in it
_PLACE = Struct("<III")
_TRANSACTION_NUMBERS = 1 << 20
MOST_APART = 1 << 24  # how far a sequence may be from the one before it, so that nobody can guess its id
_MAX_ORDINAL = (1 << 32) - 1
_COPIES = (QueueType.SYSTEM, QueueType.JOURNAL)


def unknown_transaction(identifier: UUID) -> TransactionSequence:
    return TransactionSequence(f"there is no open transaction {identifier}")


class Transacting:
    """`open` is TransactionCollection: the transactions that have not ended."""

    def __init__(
        self, delivery: Delivery, reading: Reading, new_id: Callable[[], UUID], apart: Callable[[], int]
    ) -> None:
        self.delivery = delivery
        self.reading = reading
        self.open: dict[UUID, Transaction] = {}
        # The distance from the last sequence to the next, 1 to MOST_APART. A manager that strangers can reach draws it
        # at random: ids still grow, but nobody can derive one from another.
        self._apart = apart
        self._new_id = new_id
        self._numbers = count(1)
        self._last_sequence = TxSequenceId(0, 0)
        self._next: TxSequenceId | None = None
        # By destination, which may live longer than its outgoing queue. An OrderAck names no queue, so no two share a
        # sequence.
        self._sequences: dict[str, TxSequenceId] = {}
        self._sequence_numbers: dict[str, int] = {}
        delivery.queues.idle.needed.append(lambda queue: queue.properties.path in self._sequences)

    @property
    def _tick(self) -> Tick:
        return self.delivery.tick

    def start(self, stored: Mapping[str, bytes], now: float) -> None:
        """A sequence continues if messages of it still wait to leave, because the next one must not overtake them.

        Any other sequence is a new one, above the last, whatever the clock says: a store that was restored from a
        backup must not give numbers that were used since.
        """
        self._last_sequence = TxSequenceId(0, int(now) & 0xFFFFFFFF)
        if STATE in stored:
            self._last_sequence = max(self._last_sequence, TxSequenceId(*SEQUENCE_ID.unpack(stored[STATE])))
        waiting = {queue.properties.path for queue in self.delivery.queues.outgoing.values() if queue.count}
        for name, value in stored.items():
            path = name.removeprefix(_OPEN)
            if path != name and path in waiting:
                ordinal, time_stamp, self._sequence_numbers[path] = _PLACE.unpack(value)
                self._sequences[path] = sequence = TxSequenceId(ordinal, time_stamp)
                self._last_sequence = max(self._last_sequence, sequence)
            elif path != name:
                self._tick.set_state(name, None)

    def _sequence_to(self, destination: str) -> TxSequenceId:
        sequence = self._sequences.get(destination)
        if sequence is None:
            self._sequences[destination] = sequence = self.new_sequence()
            if self._tick.steps is not None:
                self._tick.steps.append((self._sequences.pop, destination, None))
        return sequence

    def new_sequence(self) -> TxSequenceId:
        """A name that no sequence has had, and that none will get again once the gathering tick is durable."""
        self._last_sequence = sequence = self._next_sequence()
        self._next = None
        self._keep_last(self._tick)
        return sequence

    def _keep_last(self, tick: Tick) -> None:
        tick.set_state(STATE, SEQUENCE_ID.pack(self._last_sequence.ordinal, self._last_sequence.time_stamp))

    def next_place(self, destination: str) -> tuple[TxSequenceId, int]:
        """OutgoingTxSequenceID and OutgoingTxSequenceNumber, [MS-MQQB] 3.1.1.3.1: what the next message would get."""
        sequence = self._sequences.get(destination) or self._next_sequence()
        return sequence, self._sequence_numbers.get(destination, 0) + 1

    def _next_sequence(self) -> TxSequenceId:
        if self._next is None:
            ordinal, time_stamp = self._last_sequence.ordinal + self._apart(), self._last_sequence.time_stamp
            if ordinal > _MAX_ORDINAL:
                ordinal, time_stamp = ordinal - _MAX_ORDINAL, time_stamp + 1
            self._next = TxSequenceId(ordinal, time_stamp)
        return self._next

    def is_last(self, destination: str, sequence: TxSequenceId, number: int) -> bool:
        """Whether this is the newest message to a destination."""
        return self._sequences.get(destination) == sequence and self._sequence_numbers.get(destination) == number

    def last_number(self, destination: str) -> int:
        """The number of the newest message to a destination. 0 if no sequence is open."""
        return self._sequence_numbers.get(destination, 0)

    def end_sequence(self, destination: str) -> None:
        """[MS-MQQB] 3.1.5.6: all of the sequence has arrived in order. The next message begins a new one, at 1."""
        self._sequences.pop(destination, None)
        self._sequence_numbers.pop(destination, None)

    def _note_place(self, tick: Tick, destination: str) -> None:
        self._keep_last(tick)  # the tick that began the sequence may have been lost
        sequence, number = self._sequences[destination], self._sequence_numbers[destination]
        tick.set_state(f"{_OPEN}{destination}", _PLACE.pack(sequence.ordinal, sequence.time_stamp, number))

    def begin(self, identifier: UUID | None = None) -> Transaction:
        """Create Transaction, 3.1.7.1.8"""
        identifier = identifier or self._new_id()
        if identifier in self.open:
            raise InvalidArgument(f"transaction: {identifier} is open already")
        transaction = Transaction(identifier, next(self._numbers) % _TRANSACTION_NUMBERS)
        self.open[identifier] = transaction
        return transaction

    def get(self, identifier: UUID) -> Transaction:
        try:
            return self.open[identifier]
        except KeyError:
            raise unknown_transaction(identifier) from None

    # What happens in it

    def send(self, queue: Queue, packets: list[bytes], transaction: Transaction) -> None:
        """Adds a send. The caller checks the quota; it stays reserved until the end."""
        number, enqueue = queue.number, OperationType.ENQUEUE
        self.delivery.reserve(queue, sum(map(len, packets)))
        transaction.add(
            self._tick,
            *[TransactionalOperation(enqueue, queue, Record(number, 0, 0, NEVER, 0, each)) for each in packets],
        )

    def move(self, queue: Queue, target: Queue, record: Record, transaction: Transaction) -> None:
        """Move Message, 3.1.7.1.16, within a transaction. Never to one of the manager's own queues."""
        if transaction.ended:
            raise TransactionSequence(f"the transaction {transaction.identifier} has ended")
        if target.properties.queue_type is QueueType.SYSTEM:
            raise TransactionUsage(f"messages move to {target.name} without a transaction")
        check_movable(target)
        check_kind(target, MessageView(record.packet))
        self.delivery.check_quota(target, len(record.packet))
        with self.delivery.atomic:
            self.delivery.reserve(target, len(record.packet))
            self.delivery.lock(queue, record.lookup_id)
            transaction.add(self._tick, TransactionalOperation(OperationType.MOVE, queue, record, target))

    def forget_reads(self) -> None:
        """A queue was deleted. What was read from it is gone, however the transaction ends."""
        for transaction in self.open.values():
            kept = []
            for each in transaction.operations:
                if each.operation is OperationType.ENQUEUE or not each.queue.deleted:
                    kept.append(each)
                elif each.target is not None:
                    self.delivery.reserve(each.target, -len(each.record.packet))
            if len(kept) != len(transaction.operations):
                if self._tick.steps is not None:
                    self._tick.steps.append((setattr, transaction, "operations", transaction.operations))
                transaction.operations = kept

    # Its end

    def commit(self, transaction: Transaction, now: float) -> None:
        """Transaction Commit, 3.1.4.4: puts all of it into the gathering tick, in the order of the calls. If that
        fails, nothing has changed and the transaction is still open."""
        self._check_open(transaction)
        with self.delivery.atomic:
            self.delivery.atomic.then(self._end, transaction)  # first, so that no read that waits in it gets a message
            self._carry_out(transaction, now)

    def _carry_out(self, transaction: Transaction, now: float) -> None:
        """Carries out operations in a row together, if they are of one kind and on one queue."""
        runs = [(*kind, [*run]) for kind, run in groupby(transaction.operations, itemgetter(0, 1))]
        sends = [(place, queue) for place, (kind, queue, _) in enumerate(runs) if kind is OperationType.ENQUEUE]
        first = {queue: place for place, queue in reversed(sends)}
        last = {queue: place for place, queue in sends}
        for place, (kind, queue, operations) in enumerate(runs):
            records = [each.record for each in operations]
            if kind is OperationType.ENQUEUE:
                packets = [record.packet for record in records]
                self.delivery.reserve(queue, -sum(map(len, packets)))
                self._enqueue(queue, packets, transaction.number, place == first[queue], place == last[queue], now)
            elif kind is OperationType.DEQUEUE:
                self.delivery.receive(queue, records, now)
            else:
                for each in operations:
                    self._move(each, now)

    def _move(self, operation: TransactionalOperation, now: float) -> None:
        _, queue, record, target = operation
        assert target is not None
        self.delivery.reserve(target, -len(record.packet))
        if target.deleted:
            self.reading.put_back(queue, record, now)
        else:
            self.delivery.move(queue, target, record, now)

    def _enqueue(
        self, queue: Queue, packets: Sequence[bytes], transaction: int, first: bool, last: bool, now: float
    ) -> None:
        """The send has checked the quota and reserved the room, so a commit does not fail for lack of it."""
        path = queue.properties.path
        number = self._sequence_numbers.get(path, 0)
        sequence = self._sequence_to(path)
        packets = stamp_transactions(packets, sequence, number + 1, transaction, first=first, last=last)
        if queue.deleted:
            for packet in packets:
                self.delivery.undelivered(queue, packet, MessageClass.NACK_Q_DELETED, now)
            return
        if self._tick.steps is not None:
            self._tick.steps.append((self._set_number, path, number))
        self._sequence_numbers[path] = number + len(packets)
        if queue.is_outgoing:
            self._note_place(self._tick, path)
        self._tick.note_sequenced(queue, self.delivery.enter(queue, packets, now))

    def _set_number(self, destination: str, number: int) -> None:
        if number:
            self._sequence_numbers[destination] = number
        else:
            self._sequence_numbers.pop(destination, None)

    def close_gap(self, queue: Queue, lost: int) -> None:
        """Messages were lost before they were promised. Later ones, which gather now, get their numbers."""
        self._sequence_numbers[queue.properties.path] -= lost
        if f"{_OPEN}{queue.properties.path}" in self._tick.batch.state:
            self._note_place(self._tick, queue.properties.path)
        puts = self._tick.batch.puts
        for key in self._tick.sequenced.get(queue, ()):
            record = puts[key]
            fields = MessageView(record.packet).transaction_fields
            assert fields is not None
            _, _, _, number, previous = fields
            puts[key] = record._replace(packet=renumber_transaction(record.packet, number - lost, previous - lost))

    def abort(self, transaction: Transaction, now: float) -> None:
        """Transaction Abort, 3.1.4.5: messages return to their places, and each return is counted."""
        self._check_open(transaction)
        with self.delivery.atomic:
            self.delivery.atomic.then(self._end, transaction)
            for queue, opened in self._take_back(transaction, now).items():
                self.delivery.atomic.then(self.reading.wake_after, queue, now, opened)

    def _take_back(self, transaction: Transaction, now: float) -> dict[Queue, list[int]]:
        """Returns what went back, by queue."""
        returned: dict[Queue, list[int]] = {}
        for each in transaction.operations:
            queue, record = each.queue, each.record
            if each.operation is OperationType.ENQUEUE:
                self.delivery.reserve(queue, -len(record.packet))
                continue
            if each.target is not None:
                self.delivery.reserve(each.target, -len(record.packet))
            if queue.positions.get(record.lookup_id) is PositionState.PURGE_PENDING:
                self.delivery.take(queue, record, MessageClass.NACK_Q_PURGED, now)
            else:
                self._return(queue, record._replace(aborts=record.aborts + 1), now)
                returned.setdefault(queue, []).append(record.lookup_id)
        return returned

    def give_back(self, queue: Queue, record: Record, now: float) -> None:
        """A reader could not work on a message that it has locked. The message returns to its place, which is counted
        as an abort, on a queue of any kind."""
        with self.delivery.atomic:
            counted = record._replace(aborts=record.aborts + 1)
            limit = queue.properties.abort_limit
            dies = limit is not None and counted.aborts >= limit
            if queue.positions.get(record.lookup_id) is PositionState.PURGE_PENDING:
                self.delivery.take(queue, record, MessageClass.NACK_Q_PURGED, now)
            elif dies or not MessageView(record.packet).recoverable:
                self._return(queue, counted, now)
                self.delivery.atomic.then(self.reading.wake_after, queue, now, (record.lookup_id,))
            else:  # nobody reads it before its count is durable: the stored record has the old one
                self._tick.replace(counted)
                self._tick.on_commit.append(partial(self._free, queue, counted, now))
                self._tick.on_failure.append(lambda error: self._free(queue, record, now))

    def _free(self, queue: Queue, record: Record, now: float) -> None:
        """Ends the lock of a message that nobody holds any more."""
        state = queue.positions.get(record.lookup_id)
        if state is PositionState.PURGE_PENDING:
            self.delivery.take(queue, record, MessageClass.NACK_Q_PURGED, now)
        elif state is PositionState.LOCKED and not queue.deleted:
            self.reading.put_back(queue, record, now)

    def reject(self, queue: Queue, record: Record, now: float) -> None:
        """A reader refuses a message that it has locked. It becomes a dead letter here, asked for or not. If there is
        no room for that, it is given back. So is what is a dead letter or the copy of a journal already."""
        if queue.positions.get(record.lookup_id) is PositionState.LOCKED and queue.properties.queue_type not in _COPIES:
            try:
                with self.delivery.atomic:
                    self.delivery.reject(queue, record, now)
            except QuotaExceeded:
                pass
            else:
                return
        self.give_back(queue, record, now)

    def _return(self, queue: Queue, record: Record, now: float) -> None:
        self.delivery.unlock(queue, record.lookup_id)
        limit = queue.properties.abort_limit
        if limit is not None and record.aborts >= limit:
            poison = self.delivery.queues.subqueue(self._tick, queue, POISON, int(now))
            self.delivery.move(queue, poison, record, now, record.aborts)
            return
        if MessageView(record.packet).recoverable:
            self._tick.replace(record)
        else:
            self.delivery.replace_express(record)

    def _check_open(self, transaction: Transaction) -> None:
        if transaction.ended or transaction.identifier not in self.open:
            raise TransactionSequence(f"the transaction {transaction.identifier} has ended")

    def _end(self, transaction: Transaction) -> None:
        """The transaction's change stands, so no read in it may wait any longer."""
        del self.open[transaction.identifier]
        transaction.ended = True
        transaction.operations.clear()
        for request in transaction.waiting:
            queue = request.descriptor.queue
            if queue is not None:
                self.reading.cancel(queue, request, TransactionSequence("the transaction ended while the read waited"))
