"""LocalQueueManager, [MS-MQDMPR] 3.1.1.1: the queues, their readers and transactions as one thing without I/O or clock.

Calls change memory and the gathering tick. Whoever drives it commits the tick and says how that went; what was promised
is true after `committed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from uuid import UUID, uuid4

from postroad.errors import (
    AccessDenied,
    InvalidArgument,
    InvalidHandle,
    OperationCancelled,
    PostroadError,
    QueueNotFound,
    QuotaExceeded,
    StorageError,
    TransactionSequence,
    TransactionUsage,
    UnsupportedAccessMode,
    UnsupportedFormatNameOperation,
)
from postroad.message import Composer, Message, multi_queue_header
from postroad.names import (
    DirectName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PathName,
    Protocol,
    parse_name,
)
from postroad.queues.collection import (
    COUNT_STATE,
    DEADLETTER,
    DEADXACT,
    INTERNAL_QUEUES,
    JOURNAL,
    POISON,
    QueueCollection,
)
from postroad.queues.counters import MAX_MESSAGE_ID, Counters
from postroad.queues.counters import STATE as COUNTERS_STATE
from postroad.queues.cursor import Cursor
from postroad.queues.delivery import Delivery
from postroad.queues.descriptor import OpenQueueDescriptor, QueueAccess, ShareMode, check_sharing
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.queues.reading import Reading, check_transaction
from postroad.queues.tick import Tick
from postroad.queues.transaction import OperationType, Transaction, TransactionalOperation
from postroad.store.interface import NEVER, Record, Store
from postroad.store.memory import MemoryStore
from postroad.wire.constants import MessageClass
from postroad.wire.patch import stamp_transaction
from postroad.wire.transaction_header import TxSequenceId
from postroad.wire.view import MessageView

EXPIRY_BATCH = 1000  # messages that one look at the clock takes out at the most
PURGE_BATCH = 1000
_TRANSACTION_NUMBERS = 1 << 20


class LocalQueueManager:
    """Built on a store that is open; `start` makes it ready, and nothing is read but definitions and counts."""

    def __init__(self, name: str, identifier: UUID, store: Store, *, insecure_nacks: bool = False) -> None:
        self.name = name
        self.identifier = identifier
        self.store = store
        self.express = MemoryStore()
        self.counters = Counters(store.state(COUNTERS_STATE).get(COUNTERS_STATE))
        self.queues = QueueCollection(name, identifier, store, self.express)
        self.delivery = Delivery(identifier, self.queues, self.express, self.counters, insecure_nacks)
        self.reading = Reading(self.delivery)
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        self.transactions: dict[UUID, Transaction] = {}
        self._handles = count(1)
        self._transaction_numbers = count(1)
        self._sequence = TxSequenceId(1, 0)
        self._sequence_numbers: dict[Queue, int] = {}

    def start(self, now: float) -> None:
        """Loads the queues, makes the manager's own where they are missing. Commit the tick after."""
        self.queues.load()
        self._sequence = TxSequenceId(1, int(now) & 0xFFFFFFFF)
        for path in (JOURNAL, DEADLETTER, DEADXACT, *INTERNAL_QUEUES):
            if self.queues.find(path) is None:
                self.queues.create(self.tick, path, int(now), transactional=path == DEADXACT)
        self.counters.reserve(self.tick.batch)

    # The tick

    @property
    def tick(self) -> Tick:
        return self.delivery.tick

    def seal(self) -> Tick | None:
        """Hands over what has gathered, to be committed; None where there is nothing. One tick is out at a time."""
        tick = self.delivery.tick
        if not tick:
            return None
        self.delivery.tick = Tick()
        for queue, change in tick.changes.items():
            if queue.number in self.queues.by_number:
                counts = queue.encode_counts(change.added - change.removed, change.added_bytes - change.removed_bytes)
                tick.batch.state[f"{COUNT_STATE}{queue.number}"] = counts
        self.counters.reserve(tick.batch)
        return tick

    def committed(self, tick: Tick, now: float) -> None:
        """The tick is durable: messages appear and vanish, promises are kept, readers are served."""
        for queue, lookup_id in tick.taken:
            queue.positions.pop(lookup_id, None)
        for queue, change in tick.changes.items():
            queue.stored_count += change.added - change.removed
            queue.stored_bytes += change.added_bytes - change.removed_bytes
            queue.reserved_bytes -= change.added_bytes
            if change.first is not None:
                queue.opened_before(change.first)
        for callback in tick.on_commit:
            callback()
        for queue, change in tick.changes.items():
            if change.added and queue.waiting:
                self.reading.wake(queue, now)

    def failed(self, tick: Tick, error: StorageError, now: float) -> None:
        """The tick is lost as a whole: what it took is available again, what it added never was."""
        for queue, lookup_id in tick.taken:
            queue.positions.pop(lookup_id, None)
            queue.opened_before(lookup_id)
        for queue, change in tick.changes.items():
            queue.reserved_bytes -= change.added_bytes
        for callback in tick.on_failure:
            callback(error)
        for queue in tick.changes:
            if queue.waiting:
                self.reading.wake(queue, now)

    # Queues

    def create_queue(self, path: str | PathName, now: float, **attributes: object) -> Queue:
        return self.queues.create(self.tick, path, int(now), **attributes)

    def delete_queue(self, queue: Queue, now: float) -> None:
        """Delete Queue, [MS-MQDMPR] 3.1.7.1.4: every message of it, its journal and its subqueues goes with it."""
        if queue.properties.queue_type in (QueueType.SYSTEM, QueueType.JOURNAL) or is_internal(queue):
            raise AccessDenied(f"{queue.properties.path} belongs to the queue manager and cannot be deleted")
        for each in self.queues.family(queue):
            for request in list(each.waiting):
                self.reading.cancel(each, request, OperationCancelled("the queue was deleted"))
            for descriptor in each.descriptors:
                descriptor.queue = None
            each.descriptors.clear()
            for record in each.everything():
                if each.positions.get(record.lookup_id) is not PositionState.DELETED:
                    self.delivery.take(each, record, MessageClass.NACK_Q_DELETED, now)
        self.queues.remove(self.tick, queue)

    def purge(self, queue: Queue, now: float, limit: int = PURGE_BATCH) -> int:
        """Purge Queue, [MS-MQDMPR] 3.1.7.1.7, a step of `limit`: how many went. Locked ones go when read."""
        for lookup_id, state in queue.positions.items():
            if state is PositionState.LOCKED:
                queue.positions[lookup_id] = PositionState.PURGE_PENDING
        records = queue.available(limit)
        reason = MessageClass.NACK_DELETED if queue.is_outgoing else MessageClass.NACK_Q_PURGED
        for record in records:
            self.delivery.take(queue, record, reason, now)
        return len(records)

    def move(self, queue: Queue, target: Queue, records: Sequence[Record], now: float) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, without a transaction: no acknowledgment results from it."""
        check_movable(target)
        for record in records:
            check_kind(target, MessageView(record.packet))
        self.delivery.check_quota(target, sum(len(record.packet) for record in records))
        for record in records:
            self._move(queue, target, record, now)

    def _move(self, queue: Queue, target: Queue, record: Record, now: float) -> None:
        self.delivery.discard(queue, record)
        view = MessageView(record.packet)
        priority = 0 if view.transactional else view.priority
        self.delivery.add(target, record.packet, priority, self.delivery.expiry(target, view, now), now)

    def insert(self, queue: Queue, views: Sequence[MessageView], now: float) -> list[int]:
        """Whole packets, as they are: an import. Nothing is acknowledged. The lookup ids they got."""
        check_movable(queue)
        for view in views:
            check_kind(queue, view)
        self.delivery.check_quota(queue, sum(len(view.data) for view in views))
        lookup_ids = []
        for view in views:
            priority = 0 if view.transactional else view.priority
            expires = self.delivery.expiry(queue, view, now)
            lookup_ids.append(self.delivery.add(queue, view.data, priority, expires, now).lookup_id)
        return lookup_ids

    # Opening

    def open(
        self, name: FormatName | PathName | str, access: QueueAccess, share: ShareMode, now: float
    ) -> OpenQueueDescriptor:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5"""
        parsed = parse_name(name) if isinstance(name, str) else name
        if isinstance(parsed, MultipleElementName):
            return self._open_several(parsed, access, share, now)
        if access is QueueAccess.SEND:
            queue = self._sending_queue(parsed, now)
        else:
            http = isinstance(parsed, DirectName) and parsed.protocol in (Protocol.HTTP, Protocol.HTTPS)
            if http or isinstance(parsed, MulticastName):
                raise UnsupportedFormatNameOperation(f"{parsed} can be sent to, not read from")
            queue = self.queues.get(parsed)
        if is_internal(queue):
            raise AccessDenied(f"{parsed} is used by the queue manager itself")
        check_sharing(queue.descriptors, access, share)
        format_name = parsed if isinstance(parsed, FormatName) else None
        descriptor = OpenQueueDescriptor(next(self._handles), format_name, access, share, queue)
        queue.descriptors.append(descriptor)
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _open_several(
        self, names: MultipleElementName, access: QueueAccess, share: ShareMode, now: float
    ) -> OpenQueueDescriptor:
        if access is not QueueAccess.SEND:
            raise UnsupportedFormatNameOperation("a list of several queues can be sent to, not read from")
        if share is not ShareMode.DENY_NONE:
            raise UnsupportedAccessMode("a list of several queues cannot be opened exclusively")
        children: list[OpenQueueDescriptor] = []
        try:
            children.extend(self.open(element, access, share, now) for element in names.elements)
        except PostroadError:
            for child in children:
                self.close(child)
            raise
        descriptor = OpenQueueDescriptor(next(self._handles), names, access, share, None, tuple(children))
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _sending_queue(self, name: FormatName | PathName, now: float) -> Queue:
        """The local queue of this name, or the outgoing queue that leads to it."""
        queue = self.queues.find(name)
        if queue is None:
            if self.queues.is_local(name):
                raise QueueNotFound(f"there is no queue {name} on {self.name}")
            if isinstance(name, MachineName):
                raise UnsupportedFormatNameOperation(f"nobody can send to {name}: these queues are for reading")
            queue = self.queues.outgoing_queue(self.tick, as_format_name(name), int(now))
        if queue.properties.queue_type in (QueueType.SYSTEM, QueueType.JOURNAL):
            raise UnsupportedFormatNameOperation(
                f"nobody can send to {name}: journals and dead letters are for reading"
            )
        return queue

    def close(self, descriptor: OpenQueueDescriptor) -> None:
        """Close Queue, [MS-MQDMPR] 3.1.7.1.6: its waiting reads end, its cursors are gone."""
        if descriptor.closed:
            raise InvalidHandle("the queue is closed already")
        descriptor.closed = True
        del self.descriptors[descriptor.handle]
        for child in descriptor.children:
            self.close(child)
        queue = descriptor.queue
        if queue is None:
            return
        for request in [each for each in queue.waiting if each.descriptor is descriptor]:
            self.reading.cancel(queue, request, OperationCancelled("the queue was closed while the read was waiting"))
        descriptor.cursors.clear()
        queue.descriptors.remove(descriptor)

    def descriptor(self, handle: int) -> OpenQueueDescriptor:
        try:
            return self.descriptors[handle]
        except KeyError:
            raise InvalidHandle(f"there is no open queue {handle}") from None

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> Cursor:
        queue = descriptor.require(frozenset(QueueAccess) - {QueueAccess.SEND}, "be read with a cursor")
        cursor = Cursor(next(self._handles), queue)
        descriptor.cursors[cursor.handle] = cursor
        return cursor

    def close_cursor(self, descriptor: OpenQueueDescriptor, cursor: Cursor) -> None:
        """Close Cursor, [MS-MQDMPR] 3.1.7.1.2"""
        for request in [each for each in cursor.queue.waiting if each.cursor is cursor]:
            self.reading.cancel(cursor.queue, request, OperationCancelled("the cursor was closed"))
        descriptor.cursors.pop(cursor.handle, None)

    # Sending

    def send(
        self,
        destination: FormatName | PathName | str,
        messages: Sequence[Message],
        now: float,
        transaction: Transaction | None = None,
    ) -> list[int]:
        """Messages to one destination, or to each of a list; their message ids. All of them go, or none."""
        name = parse_name(destination) if isinstance(destination, str) else destination
        elements: tuple[FormatName | PathName, ...] = (name,)
        header = None
        if isinstance(name, MultipleElementName):
            elements, header = name.elements, multi_queue_header(name.elements)
        sent_time = int(now)
        first_id = self.counters.take_message_ids(len(elements) * len(messages))
        ids = iter(range(first_id, first_id + len(elements) * len(messages)))
        plans: list[tuple[Queue, list[bytes]]] = []
        for element in elements:
            queue = self._sending_queue(element, now)
            written = element if isinstance(element, FormatName) else self._written_name(queue)
            compose = Composer(self.identifier, written, self._answer_name, header).compose
            packets = [
                compose(each, next(ids) & MAX_MESSAGE_ID, sent_time, transactional=transaction is not None)
                for each in messages
            ]
            self._check_send(queue, packets, transaction, now)
            plans.append((queue, packets))
        for queue, packets in plans:
            if transaction is None:
                self._accept(queue, messages, packets, now)
            else:
                self._accept_in(queue, packets, transaction)
        return [each & MAX_MESSAGE_ID for each in range(first_id, first_id + len(elements) * len(messages))]

    def _check_send(self, queue: Queue, packets: list[bytes], transaction: Transaction | None, now: float) -> None:
        """Refuses the whole batch before anything of it is promised; a sender who asked to be told is told twice."""
        refusal: PostroadError | None = None
        reason = MessageClass.NORMAL
        properties = queue.properties
        if transaction is not None and transaction.ended:
            raise TransactionSequence(f"the transaction {transaction.identifier} has ended")
        if not queue.is_outgoing and properties.transactional != (transaction is not None):
            if properties.transactional:
                reason = MessageClass.NACK_NOT_TRANSACTIONAL_MSG
                refusal = TransactionUsage(f"the queue {properties.path} is transactional: send within a transaction")
            else:
                reason = MessageClass.NACK_NOT_TRANSACTIONAL_Q
                refusal = TransactionUsage(
                    f"the queue {properties.path} is not transactional: send without a transaction"
                )
        else:
            try:
                self.delivery.check_quota(queue, sum(map(len, packets)))
            except QuotaExceeded as error:
                reason, refusal = MessageClass.NACK_Q_EXCEED_QUOTA, error
        if refusal is not None:
            for packet in packets:
                self.delivery.acknowledge(MessageView(packet), reason, now)
            raise refusal

    def _accept(self, queue: Queue, messages: Sequence[Message], packets: list[bytes], now: float) -> None:
        add, arrive = self.delivery.add, self.delivery.arrive
        local = not queue.is_outgoing
        for message, packet in zip(messages, packets, strict=True):
            if local and not (message.ack or message.journal or message.time_to_be_received is not None):
                add(queue, packet, message.priority, NEVER, now)  # nothing follows from its arrival
            else:
                arrive(queue, packet, MessageView(packet), now)

    def _accept_in(self, queue: Queue, packets: list[bytes], transaction: Transaction) -> None:
        for packet in packets:
            record = Record(queue.number, 0, 0, NEVER, 0, packet)
            queue.reserved_bytes += len(packet)
            transaction.operations.append(TransactionalOperation(OperationType.ENQUEUE, queue, record))

    def _written_name(self, queue: Queue) -> FormatName:
        return self.queues.format_name(queue) if queue.is_outgoing else self.queues.direct_name(queue)

    def _answer_name(self, path: PathName) -> FormatName:
        """A local path as other managers have to write it, to answer."""
        queue = self.queues.find(path)
        if queue is not None:
            return self.queues.format_name(queue)
        if self.queues.is_local(path):
            raise QueueNotFound(f"there is no queue {path} on {self.name}")
        return as_format_name(path)

    # Transactions

    def begin(self, identifier: UUID | None = None) -> Transaction:
        """Create Transaction, [MS-MQDMPR] 3.1.7.1.8"""
        identifier = identifier or uuid4()
        if identifier in self.transactions:
            raise InvalidArgument(f"transaction: {identifier} is open already")
        transaction = Transaction(identifier, next(self._transaction_numbers) % _TRANSACTION_NUMBERS)
        self.transactions[identifier] = transaction
        return transaction

    def transaction(self, identifier: UUID) -> Transaction:
        try:
            return self.transactions[identifier]
        except KeyError:
            raise TransactionSequence(f"there is no open transaction {identifier}") from None

    def receive_in(self, queue: Queue, record: Record, transaction: Transaction) -> None:
        check_transaction(queue, transaction)
        queue.positions[record.lookup_id] = PositionState.LOCKED
        transaction.operations.append(TransactionalOperation(OperationType.DEQUEUE, queue, record))

    def move_in(self, queue: Queue, target: Queue, record: Record, transaction: Transaction) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, within a transaction."""
        check_movable(target)
        check_kind(target, MessageView(record.packet))
        self.delivery.check_quota(target, len(record.packet))
        queue.positions[record.lookup_id] = PositionState.LOCKED
        transaction.operations.append(TransactionalOperation(OperationType.MOVE, queue, record, target))

    def commit(self, transaction: Transaction, now: float) -> None:
        """Transaction Commit, [MS-MQDMPR] 3.1.4.4: all of it in the gathering tick, in the order of the calls.

        If that tick fails, the transaction has been aborted.
        """
        self._end(transaction)
        sends = [each for each in transaction.operations if each.operation is OperationType.ENQUEUE]
        first = {each.queue: each for each in reversed(sends)}
        last = {each.queue: each for each in sends}
        for each in transaction.operations:
            queue, record = each.queue, each.record
            if each.operation is OperationType.ENQUEUE:
                queue.reserved_bytes -= len(record.packet)
                if queue.number not in self.queues.by_number:
                    continue  # deleted meanwhile: its messages went with it
                number = self._sequence_numbers.get(queue, 0) + 1
                self._sequence_numbers[queue] = number
                packet = stamp_transaction(
                    record.packet,
                    self._sequence,
                    number,
                    number - 1,
                    transaction.number,
                    first=each is first[queue],
                    last=each is last[queue],
                )
                self._arrive_committed(queue, packet, now)
            elif queue.positions.get(record.lookup_id) is PositionState.PURGE_PENDING:
                self.delivery.take(queue, record, MessageClass.NACK_Q_PURGED, now)
            elif each.operation is OperationType.DEQUEUE:
                self.delivery.take(queue, record, MessageClass.ACK_RECEIVE, now)
            elif each.target is not None:
                self._move(queue, each.target, record, now)
        transaction.operations.clear()

    def _arrive_committed(self, queue: Queue, packet: bytes, now: float) -> None:
        """Quota was checked and reserved at the send: a commit does not fail for it."""
        view = MessageView(packet)
        self.delivery.add(queue, packet, 0, self.delivery.expiry(queue, view, now), now)
        if not queue.is_outgoing:
            self.delivery.acknowledge(view, MessageClass.ACK_REACH_QUEUE, now)

    def abort(self, transaction: Transaction, now: float) -> None:
        """Transaction Abort, [MS-MQDMPR] 3.1.4.5: messages return to their places, and each return is counted."""
        self._end(transaction)
        returned: dict[Queue, None] = {}
        for each in transaction.operations:
            queue, record = each.queue, each.record
            if each.operation is OperationType.ENQUEUE:
                queue.reserved_bytes -= len(record.packet)
            elif queue.positions.get(record.lookup_id) is PositionState.PURGE_PENDING:
                self.delivery.take(queue, record, MessageClass.NACK_Q_PURGED, now)
            else:
                self._return(queue, record, now)
                returned[queue] = None
        transaction.operations.clear()
        for queue in returned:
            if queue.waiting:
                self.reading.wake(queue, now)

    def _return(self, queue: Queue, record: Record, now: float) -> None:
        record = record._replace(aborts=record.aborts + 1)
        queue.positions.pop(record.lookup_id, None)
        limit = queue.properties.abort_limit
        if limit is not None and record.aborts >= limit:
            poison = self.queues.subqueue(self.tick, queue, POISON, int(now))
            self.delivery.discard(queue, record)
            view = MessageView(record.packet)
            priority = 0 if view.transactional else view.priority
            expires = self.delivery.expiry(poison, view, now)
            self.delivery.add(poison, record.packet, priority, expires, now, aborts=record.aborts)
            return
        if MessageView(record.packet).recoverable:
            self.tick.replace(record)
        else:
            self.express.replace(record)
        queue.opened_before(record.lookup_id)

    def _end(self, transaction: Transaction) -> None:
        if transaction.ended or self.transactions.pop(transaction.identifier, None) is None:
            raise TransactionSequence(f"the transaction {transaction.identifier} has ended")
        transaction.ended = True

    # Time

    def run_timers(self, now: float) -> None:
        """Ends reads whose time is over and takes out messages whose time is. Call it about once a second."""
        for queue in list(self.queues):
            if queue.waiting:
                self.reading.expire_waits(queue, now)
        for store in (self.store, self.express):
            for record in store.expired(int(now), EXPIRY_BATCH):
                holder = self.queues.by_number.get(record.queue)
                if holder is not None and record.lookup_id not in holder.positions:
                    self.delivery.expire(holder, record, now)


def is_internal(queue: Queue) -> bool:
    """[MS-MQDMPR] 3.1.3: queues that applications cannot open."""
    return queue.properties.path.lower() in INTERNAL_QUEUES


def check_movable(target: Queue) -> None:
    if target.properties.queue_type is QueueType.JOURNAL or is_internal(target):
        raise AccessDenied(f"messages cannot be moved to {target.properties.path}")


def check_kind(target: Queue, view: MessageView) -> None:
    """A queue for applications holds transactional messages or others, never both."""
    properties = target.properties
    if (
        properties.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC)
        and properties.transactional != view.transactional
    ):
        kind, other = ("transactional", "is not") if properties.transactional else ("not transactional", "is")
        raise TransactionUsage(f"the queue {properties.path} is {kind} and the message {other}")


def as_format_name(name: FormatName | PathName) -> FormatName:
    """A path on another computer as a direct name."""
    return name if isinstance(name, FormatName) else DirectName.from_path(name)
