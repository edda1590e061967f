"""LocalQueueManager, [MS-MQDMPR] 3.1.1.1: the queues, their readers and transactions as one thing without I/O or clock.

Calls change memory and the gathering tick. Whoever drives it commits the tick and says how that went; what was promised
is true after `committed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import count
from uuid import UUID

from postroad.errors import (
    AccessDenied,
    IllegalFormatName,
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
    DistributionListName,
    FormatName,
    MulticastName,
    MultipleElementName,
    PathName,
    PublicName,
    ResolveDistributionList,
    expand_format_name,
    parse_name,
)
from postroad.queues.collection import (
    COUNT_STATE,
    DEADLETTER,
    DEADXACT,
    INTERNAL_QUEUES,
    JOURNAL,
    QueueCollection,
)
from postroad.queues.counters import MAX_MESSAGE_ID, Counters
from postroad.queues.counters import STATE as COUNTERS_STATE
from postroad.queues.cursor import Cursor
from postroad.queues.delivery import Delivery, as_format_name, check_kind, check_movable, is_internal
from postroad.queues.descriptor import ADMIN_ACCESS, OpenQueueDescriptor, QueueAccess, ShareMode, check_sharing
from postroad.queues.holds import STATE as HOLD_STATE
from postroad.queues.holds import Holding
from postroad.queues.outgoing import is_http
from postroad.queues.properties import QueueType
from postroad.queues.queue import END, PositionState, Queue
from postroad.queues.reading import Reading
from postroad.queues.submissions import STATE as SUBMISSION_STATE
from postroad.queues.submissions import Submissions
from postroad.queues.tick import Tick
from postroad.queues.transacting import STATE as SEQUENCE_STATE
from postroad.queues.transacting import Transacting
from postroad.queues.transaction import Transaction
from postroad.store.interface import ARRIVAL_MASK, NEVER, Key, Record, Store
from postroad.store.memory import MemoryStore
from postroad.wire.constants import MessageClass
from postroad.wire.multi_queue_header import MultiQueueFormatHeader
from postroad.wire.view import MessageView

EXPIRY_BATCH = 1000  # messages that one look at the clock takes out at the most
PURGE_BATCH = 1000


class QueueManagerState(Enum):
    """[MS-MQDMPR] 3.1.1.1"""

    STOPPED = "stopped"
    INITIALIZING = "initializing"
    READY = "ready"
    STOPPING = "stopping"


class LocalQueueManager:
    """Built on a store that is open; `start` makes it ready, and nothing is read but definitions and counts.

    `state` follows whoever starts and stops it; `connection_active` is False while it takes nothing from others.
    """

    def __init__(
        self,
        name: str,
        identifier: UUID,
        store: Store,
        *,
        insecure_nacks: bool = False,
        hardened_security: bool = False,
    ) -> None:
        self.name = name
        self.identifier = identifier
        self.store = store
        self.state = QueueManagerState.STOPPED
        self.connection_active = True
        self.resolve_list: ResolveDistributionList = _no_directory
        self.express = MemoryStore()
        self.counters = Counters(store.state(COUNTERS_STATE).get(COUNTERS_STATE))
        self.queues = QueueCollection(name, identifier, store, self.express, hardened_security)
        self.delivery = Delivery(identifier, self.queues, self.express, self.counters, insecure_nacks)
        self.reading = Reading(self.delivery)
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        self.transacting = Transacting(self.delivery, self.reading)
        self.transactions = self.transacting.open
        self.holding = Holding(self.queues, self.delivery, self.reading)
        self.submissions = Submissions(lambda: self.tick)
        self._handles = count(1)
        self._out: Tick | None = None  # the tick that is being committed

    def start(self, now: float) -> None:
        """Loads the queues, makes the manager's own where they are missing. Commit the tick after."""
        self.state = QueueManagerState.INITIALIZING
        if COUNTERS_STATE in self.store.damaged:
            self.counters.recover(now)
        self.queues.load()
        self.transacting.start(self.store.state(SEQUENCE_STATE), now)
        self.holding.load(self.store.state(HOLD_STATE))
        self.submissions.load(self.store.state(SUBMISSION_STATE))
        for path in (JOURNAL, DEADLETTER, DEADXACT, *INTERNAL_QUEUES):
            if self.queues.find(path) is None:
                self.queues.create(self.tick, path, int(now), transactional=path == DEADXACT)
        self.counters.reserve(self.tick.batch)

    def take_offline(self) -> None:
        """[MS-MQDMPR] 3.1.4.12"""
        self.connection_active = False

    def bring_online(self) -> None:
        """[MS-MQDMPR] 3.1.4.13"""
        self.connection_active = True

    # The tick

    @property
    def tick(self) -> Tick:
        return self.delivery.tick

    def seal(self) -> Tick | None:
        """Hands over what has gathered, to be committed; None where there is nothing. One tick is out at a time."""
        tick = self.delivery.tick
        for callback in tick.on_seal:
            callback()
        if not tick:
            return None
        self.delivery.tick = Tick()
        self._out = tick
        for queue, change in tick.changes.items():
            if queue.number in self.queues.by_number:
                tick.batch.state[f"{COUNT_STATE}{queue.number}"] = queue.encode_counts(change)
        self.counters.reserve(tick.batch)
        return tick

    def committed(self, tick: Tick, now: float) -> None:
        """The tick is durable: messages appear and vanish, promises are kept, readers are served."""
        self._out = None
        for queue, lookup_id in tick.taken:
            queue.positions.pop(lookup_id, None)
        for queue, change in tick.changes.items():
            queue.note(change)
            if change.first is not None:
                queue.opened_before(change.first)
            if queue.deleted:
                self._empty(queue, now)  # it was deleted while the tick was out
        for callback in tick.on_commit:
            callback()
        for queue, change in tick.changes.items():
            if change.added and queue.waiting:
                self.reading.wake(queue, now, tick.added_to(queue))
            if change.added and queue.is_outgoing:
                self.delivery.outgoing_ready(queue, now)

    def failed(self, tick: Tick, error: StorageError, now: float) -> None:
        """The tick is lost as a whole: what it took is available again, what it added never was."""
        self._out = None
        for queue, lookup_id in tick.taken:
            queue.positions.pop(lookup_id, None)
            queue.opened_before(lookup_id)
        for queue, change in tick.changes.items():
            queue.release(change.added_bytes)
        for queue, keys in tick.sequenced.items():
            self.transacting.close_gap(queue, len(keys))
        for step in reversed(tick.undo):
            step(self.tick)
        for callback in tick.on_failure:
            callback(error)
        self.counters.lapse()
        for queue in tick.changes:
            if queue.deleted:
                self._empty(queue, now)
            elif queue.waiting:
                opened = sorted(lookup_id for each, lookup_id in tick.taken if each is queue)
                self.reading.wake(queue, now, opened)

    # Marks

    def arrived(self, queue: Queue) -> int:
        """The arrival number below which no message can come into the queue any more: all ticks with such have landed.

        A transaction's messages get theirs when it commits, however long it was open.
        """
        for tick in (self._out, self.tick):
            change = None if tick is None else tick.changes.get(queue)
            if change is not None and change.added and change.first_arrival is not None:
                return change.first_arrival
        return self.counters.last_arrival + 1

    def mark(self, queue: Queue) -> int:
        """The same, and no message below it can return from a reader who has it locked."""
        locked = (
            lookup_id & ARRIVAL_MASK
            for lookup_id, state in queue.positions.items()
            if state is not PositionState.DELETED
        )
        return min(self.arrived(queue), min(locked, default=END))

    # Queues

    def create_queue(self, path: str | PathName, now: float, **attributes: object) -> Queue:
        return self.queues.create(self.tick, path, int(now), **attributes)

    def delete_queue(self, queue: Queue, now: float) -> None:
        """Delete Queue, [MS-MQDMPR] 3.1.7.1.4: every message of it, its journal and its subqueues goes with it."""
        if queue.properties.queue_type in (QueueType.SYSTEM, QueueType.JOURNAL) or is_internal(queue):
            raise AccessDenied(f"{queue.name} belongs to the queue manager and cannot be deleted")
        self.queues.remove(self.tick, queue)  # first, so that no acknowledgment of its messages comes back to it
        self.transacting.forget_reads()
        for each in self.queues.family(queue):
            self.holding.forget(each)
            for request in list(each.waiting):
                self.reading.cancel(each, request, OperationCancelled("the queue was deleted"))
            for descriptor in each.descriptors:
                descriptor.queue = None
            each.descriptors.clear()
            self._empty(each, now)

    def _empty(self, queue: Queue, now: float) -> None:
        """Every message of a deleted queue goes. Those that a tick on its way still adds go when it has landed."""
        reason = MessageClass.NACK_DELETED if queue.is_outgoing else MessageClass.NACK_Q_DELETED
        for record in queue.everything():
            if queue.positions.get(record.lookup_id) is not PositionState.DELETED:
                self.delivery.take(queue, record, reason, now)
        for record in self.tick.withdraw(queue):
            self.delivery.undelivered(queue, record.packet, reason, now)

    def purge(self, queue: Queue, now: float, limit: int = PURGE_BATCH) -> int:
        """Purge Queue, [MS-MQDMPR] 3.1.7.1.7, a step of `limit`: how many went. Locked ones go when read."""
        for lookup_id, state in queue.positions.items():
            if state is PositionState.LOCKED:
                queue.mark(lookup_id, PositionState.PURGE_PENDING)
        records = queue.available(limit)
        reason = MessageClass.NACK_DELETED if queue.is_outgoing else MessageClass.NACK_Q_PURGED
        for record in records:
            self.delivery.take(queue, record, reason, now)
        return len(records)

    def move(self, queue: Queue, target: Queue, records: Sequence[Record], now: float) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, without a transaction: no acknowledgment results from it.

        In its new place a message has not been put back yet: aborts are counted from 0 again.
        """
        check_movable(target)
        for record in records:
            check_kind(target, MessageView(record.packet))
        self.delivery.check_quota(target, sum(len(record.packet) for record in records))
        for record in records:
            self.delivery.move(queue, target, record, now)

    def insert(self, queue: Queue, views: Sequence[MessageView], now: float) -> list[int]:
        """Whole packets, as they are: an import. Nothing is acknowledged. The lookup ids they got."""
        check_movable(queue)
        for view in views:
            check_kind(queue, view)
        self.delivery.check_quota(queue, sum(len(view.data) for view in views))
        lookup_ids = []
        for view in views:
            priority = 0 if view.transactional else view.priority
            expires = self.delivery.expiry(queue, view.data, now)
            lookup_ids.append(self.delivery.add(queue, view.data, priority, expires, now).lookup_id)
        return lookup_ids

    # Opening

    def open(
        self, name: FormatName | PathName | str, access: QueueAccess, share: ShareMode, now: float
    ) -> OpenQueueDescriptor:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5"""
        parsed = self._expanded(name)
        if isinstance(parsed, MultipleElementName):
            return self._open_several(parsed, access, share, now)
        if access is QueueAccess.SEND:
            queue = self.delivery.sending_queue(parsed, now, own=True)
        else:
            queue = self._reading_queue(parsed, access)
        if is_internal(queue):
            raise AccessDenied(f"{parsed} is used by the queue manager itself")
        check_sharing(queue.descriptors, access, share)
        format_name = parsed if isinstance(parsed, FormatName) else None
        descriptor = OpenQueueDescriptor(next(self._handles), format_name, access, share, queue)
        queue.descriptors.append(descriptor)
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _reading_queue(self, name: FormatName | PathName, access: QueueAccess) -> Queue:
        """A queue that is here. Messages on their way elsewhere are no reader's: to see them takes an administrator."""
        queue = self.queues.find(name)
        if queue is not None and queue.is_outgoing and access in ADMIN_ACCESS.values():
            return queue
        if is_http(name) or isinstance(name, MulticastName):
            raise UnsupportedFormatNameOperation(f"{name} can be sent to, not read from")
        if queue is None and (self.queues.is_local(name) or isinstance(name, PublicName)):
            raise QueueNotFound(f"there is no queue {name} on {self.name}")
        if queue is None or queue.is_outgoing:
            raise QueueNotFound(_elsewhere(name, self.name, waiting=queue is not None))
        return queue

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

    def _expanded(self, name: FormatName | PathName | str) -> FormatName | PathName:
        """Expand Format Name, [MS-MQDMPR] 3.1.7.3.8"""
        parsed = parse_name(name) if isinstance(name, str) else name
        if isinstance(parsed, MultipleElementName | DistributionListName):
            return expand_format_name(parsed, self.resolve_list)
        return parsed

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
        name = self._expanded(destination)
        elements: tuple[FormatName | PathName, ...] = (name,)
        header = None
        if isinstance(name, MultipleElementName):
            elements, header = name.elements, multi_queue_header(name.elements)
        first_id = self.counters.take_message_ids(len(elements) * len(messages))
        ids = iter(range(first_id, first_id + len(elements) * len(messages)))
        plans: list[tuple[Queue, list[bytes]]] = []
        made = self.queues.outgoing_made
        try:
            for element in elements:
                queue = self.delivery.sending_queue(element, now, own=True)
                plans.append((queue, self._packets(element, queue, messages, ids, header, transaction, now)))
        except PostroadError:
            self._forget_new(self.queues.outgoing_made - made)
            raise
        with self.delivery.together(now):
            for queue, packets in plans:
                if transaction is None:
                    self._accept(queue, messages, packets, now)
                else:
                    self.transacting.send(queue, packets, transaction)
        return [each & MAX_MESSAGE_ID for each in range(first_id, first_id + len(elements) * len(messages))]

    def _packets(
        self,
        name: FormatName | PathName,
        queue: Queue,
        messages: Sequence[Message],
        ids: Iterator[int],
        header: MultiQueueFormatHeader | None,
        transaction: Transaction | None,
        now: float,
    ) -> list[bytes]:
        """The messages as packets to one destination, if its queue takes them."""
        written = name if isinstance(name, FormatName) else self._written_name(queue)
        compose = Composer(
            self.identifier, written, self._answer_name, header, self.delivery.manager_of(written)
        ).compose
        packets = [
            compose(each, next(ids) & MAX_MESSAGE_ID, int(now), transactional=transaction is not None)
            for each in messages
        ]
        self._check_send(queue, packets, transaction, now)
        return packets

    def _forget_new(self, count: int) -> None:
        """A send that is refused leaves no outgoing queue behind: of the last ones made, those that are empty go."""
        for queue in list(self.queues.outgoing.values())[len(self.queues.outgoing) - count :]:
            if not queue.count and not queue.used_bytes:
                self.queues.remove(self.tick, queue)

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
                refusal = TransactionUsage(f"the queue {queue.name} is transactional: send within a transaction")
            else:
                reason = MessageClass.NACK_NOT_TRANSACTIONAL_Q
                refusal = TransactionUsage(f"the queue {queue.name} is not transactional: send without a transaction")
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
        if queue.is_outgoing:
            for packet in packets:
                self.delivery.leave(queue, packet, now)
            return
        for message, packet in zip(messages, packets, strict=True):
            if not (message.ack or message.journal or message.time_to_be_received is not None):
                add(queue, packet, message.priority, NEVER, now)  # nothing follows from its arrival
            else:
                arrive(queue, packet, MessageView(packet), now)

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
        return self.transacting.begin(identifier)

    def transaction(self, identifier: UUID) -> Transaction:
        return self.transacting.get(identifier)

    def commit(self, transaction: Transaction, now: float) -> None:
        """All of it in the gathering tick. If that tick fails, the transaction has been aborted."""
        self.transacting.commit(transaction, now)

    def abort(self, transaction: Transaction, now: float) -> None:
        self.transacting.abort(transaction, now)

    def move_in(self, queue: Queue, target: Queue, record: Record, transaction: Transaction) -> None:
        self.transacting.move(queue, target, record, transaction)

    # Time

    def run_timers(self, now: float) -> None:
        """Ends reads whose time is over and takes out messages whose time is. Call it about once a second."""
        self.reading.expire_all_waits(now)
        self.queues.idle.sweep(self.tick, now)
        for store in (self.store, self.express):
            for record in store.expired(int(now), EXPIRY_BATCH, self._stays):
                holder = self.queues.by_number.get(record.queue)
                if holder is not None:
                    self.delivery.expire(holder, record, now)
        self.counters.reserve(self.tick.batch)  # messages that never touch the store use up ids too

    def _stays(self, key: Key) -> bool:
        """What is locked or held stays, whatever its time, and must not hide those that can go."""
        queue = self.queues.by_number.get(key.queue)
        return queue is not None and not queue.is_available(key.lookup_id)


def _elsewhere(name: FormatName | PathName, manager: str, *, waiting: bool) -> str:
    """Why a queue cannot be read here, and how it can."""
    host, queue = "HOST", "QUEUE"
    if isinstance(name, DirectName):
        host, queue = name.host, f"'{str(name.tail)[1:]}'"
    elif isinstance(name, PathName):
        host, queue = name.computer, f"'{str(name.tail)[1:]}'"
    here = "; what waits here is on its way there" if waiting else ""
    return (
        f"the queue {name} is on another machine, not on {manager}{here}: read it there, or with "
        f"`postroad remote receive {host} {queue}`"
    )


def _no_directory(name: DistributionListName) -> Iterable[FormatName]:
    raise IllegalFormatName(str(name), 0, "there is no directory here that knows the members of a distribution list")
