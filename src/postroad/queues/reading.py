"""Readers: peek, receive, two-phase receive, lookup ids, waiting and cancelling ([MS-MQDMPR] 3.1.7.1.10 to 3.1.7.1.17).

Time is an argument. A read that finds nothing waits until a message comes, its time is over, or somebody cancels it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from postroad.errors import (
    AccessDenied,
    InvalidArgument,
    MessageAlreadyReceived,
    MessageNotFound,
    NoMessage,
    PostroadError,
    QueueNotAvailable,
    Status,
    TransactionSequence,
    TransactionUsage,
)
from postroad.queues.delivery import Delivery, is_stale
from postroad.queues.open_queue import (
    CURSOR_CALLS,
    READING,
    RECEIVING,
    Cursor,
    CursorCall,
    CursorState,
    OpenQueueDescriptor,
    OperationType,
    Transaction,
    TransactionalOperation,
    WaitingRead,
)
from postroad.queues.permissions import Action, no_right
from postroad.queues.queue import READ_BYTES, PositionState, Queue
from postroad.reports.operations import SeekAction
from postroad.store.interface import PRIORITY_SHIFT, Record
from postroad.wire.constants import MessageClass


class Reading:
    """Reads see only committed messages. What a tick has promised becomes visible when it is true."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self._waited: dict[Queue, None] = {}  # queues with waiting reads; some of these may be over

    # Now, or when there is a message

    def read(self, request: WaitingRead, now: float) -> list[Record] | None:
        """Returns messages if there are any, None if the request waits from now on. Raises an error if it must not
        wait."""
        if request.count < 1:
            raise InvalidArgument(f"count: must be at least 1, got {request.count}")
        if request.transaction is not None and request.two_phase:
            raise InvalidArgument("transaction: a two-phase read is acknowledged by its end, not by a transaction")
        queue = self._queue_of(request)
        records = self._attempt(queue, request, now)
        if records:
            return records
        if request.deadline is not None and request.deadline <= now:
            if request.cursor is not None and request.destructive:
                request.cursor.state = CursorState.UNREAD  # 3.2.7.4 iNoWait: the cursor stays where it is
                raise MessageNotFound("there is no message behind the cursor")
            raise _time_out(request)
        queue.waiting.append(request)
        self._waited[queue] = None
        if request.transaction is not None:
            request.transaction.waiting.append(request)
        return None

    def watch(self, request: WaitingRead) -> None:
        """The request waits for messages that become available from now on. It does not look at those that are
        available already."""
        queue = self._queue_of(request)
        queue.waiting.append(request)
        self._waited[queue] = None

    def lock_first(self, descriptor: OpenQueueDescriptor, now: float) -> Record | None:
        """The first phase of a receive that finds a message at once. None if there is none yet."""
        queue = descriptor.require(RECEIVING, "receive")
        records = self.delivery.fresh(queue, 1, now)
        if not records:
            return None
        self.delivery.lock_all(queue, (records[0].lookup_id,))
        return records[0]

    def _queue_of(self, request: WaitingRead) -> Queue:
        verb = "receive" if request.destructive else "peek"
        queue = request.descriptor.require(RECEIVING if request.destructive else READING, verb)
        if request.transaction is not None:
            if not request.destructive:
                raise InvalidArgument("transaction: a peek takes no part in one")
            check_transaction(queue, request.transaction)
        return queue

    def _attempt(
        self, queue: Queue, request: WaitingRead, now: float, opened: Iterable[int] | None = None
    ) -> list[Record]:
        """One attempt: the first, or a later one because messages were `opened`."""
        cursor = request.cursor
        if request.matches is not None:
            records = self._matching(queue, request.matches, now, opened)
        elif cursor is None:
            records = self.delivery.fresh(queue, request.count, now, most_bytes=READ_BYTES)
        else:
            place = cursor.state, cursor.position
            record = self._at_cursor(queue, cursor, CURSOR_CALLS[request.call], now, opened)
            records = [] if record is None else [record]
        if records and (request.destructive or opened is not None):
            try:
                with self.delivery.atomic:
                    if request.destructive:
                        self._claim(queue, records, request.transaction, request.two_phase, now)
                    if opened is not None:
                        request.satisfied(records)  # inside: a reader that cannot be informed has not got them
            except BaseException:
                if cursor is not None:
                    cursor.state, cursor.position = place
                raise
        return records

    def _matching(
        self, queue: Queue, matches: Callable[[Record], bool], now: float, opened: Iterable[int] | None
    ) -> list[Record]:
        """The first of the `opened` messages that matches. If these are not known, the first of all messages."""
        ids = sorted(opened or ())
        for record in map(queue.get, ids) if ids else queue.everything():
            if record is None or not queue.is_available(record.lookup_id) or is_stale(record, now):
                continue
            if matches(record):
                return [record]
        return []

    def _at_cursor(
        self, queue: Queue, cursor: Cursor, call: CursorCall, now: float, opened: Iterable[int] | None
    ) -> Record | None:
        while True:
            place = cursor.state, cursor.position
            record = cursor.find(call) if opened is None else cursor.retry(opened)
            if record is None or not is_stale(record, now):
                return record
            self.delivery.expire(queue, record, now)
            cursor.state, cursor.position = place

    def _claim(
        self, queue: Queue, records: Sequence[Record], transaction: Transaction | None, two_phase: bool, now: float
    ) -> None:
        if transaction is None and not two_phase:
            self.delivery.receive(queue, records, now)
            return
        self.delivery.lock_all(queue, [record.lookup_id for record in records])
        if transaction is not None:
            dequeue = OperationType.DEQUEUE
            transaction.add(self.delivery.tick, *[TransactionalOperation(dequeue, queue, record) for record in records])

    # Waiting

    def wake(self, queue: Queue, now: float, opened: Iterable[int] = ()) -> None:
        """Message Position Available, 3.1.7.2.2: serves waiting readers in the order in which they came.

        A receive removes the message before later peeks can see it. `opened` are the positions that have become
        available, for readers whose cursors are past them.
        """
        index = 0
        while index < len(queue.waiting):
            request = queue.waiting.pop(index)  # what follows from its read may wake others, which must not find it
            try:
                records = self._attempt(queue, request, now, opened)
            except PostroadError as error:
                self._fail(request, error)
                continue
            except Exception as error:  # this reader gets the error, and the others have their turn
                self.delivery.note_failure(None, error)
                self._fail(request, PostroadError(f"the read failed within the queue manager: {error!r}"))
                continue
            if records:
                index = 0  # readers that were skipped may have been served meanwhile
            else:
                queue.waiting.insert(index, request)
                if request.cursor is None and request.matches is None:
                    return
                index += 1

    def expire_all_waits(self, now: float) -> None:
        """Looks only at queues that have waiting reads."""
        for queue in list(self._waited):
            self.delivery.try_after(None, self.expire_waits, queue, now)
            if not queue.waiting:
                del self._waited[queue]

    def expire_waits(self, queue: Queue, now: float) -> None:
        """Waiting Message Read Timer Expired, 3.1.6.3"""
        for request in [each for each in queue.waiting if each.deadline is not None and each.deadline <= now]:
            self.time_out(queue, request)

    def time_out(self, queue: Queue, request: WaitingRead) -> None:
        """Ends one waiting read as if its time were over."""
        self.cancel(queue, request, _time_out(request))

    def cancel(self, queue: Queue, request: WaitingRead, error: PostroadError) -> None:
        """Ends one waiting read with `error`."""
        if request in queue.waiting:
            queue.waiting.remove(request)
            self._fail(request, error)

    def _fail(self, request: WaitingRead, error: PostroadError) -> None:
        if request.cursor is not None:
            request.cursor.expire()  # 3.1.7.1.14: whatever ends the wait
        self.delivery.try_after(None, request.failed, error)

    def cancel_tagged(self, queue: Queue, tag: object, error: PostroadError) -> Status:
        """Cancel Waiting Message Read Request, 3.1.7.1.17"""
        for request in queue.waiting:
            if request.tag is not None and request.tag == tag:
                self.cancel(queue, request, error)
                return Status.OK
        return Status.STATUS_NOT_FOUND

    def end_forbidden(self, queues: Iterable[Queue]) -> None:
        """Ends the waiting reads whose readers have lost the right, because the access list has changed."""
        for queue in queues:
            for request in [each for each in queue.waiting if not each.permitted()]:
                action = Action.RECEIVE if request.destructive else Action.PEEK
                self.cancel(queue, request, AccessDenied(no_right(action, queue)))

    # The second phase

    def end(self, queue: Queue, record: Record, now: float, *, delete: bool, transactional: bool = False) -> None:
        """Dequeue Message End, 3.1.7.1.12. After a purge in between, a successful acknowledgment changes nothing.

        For a message that was read in a transaction, the commit or abort decides, not this call.
        """
        if queue.deleted:
            raise QueueNotAvailable(f"the queue {queue.name} was deleted while the message was being received")
        state = queue.positions.get(record.lookup_id)
        if state not in (PositionState.LOCKED, PositionState.PURGE_PENDING):
            raise TransactionSequence(f"message {record.lookup_id} is not being received")
        if transactional:
            return
        if state is PositionState.PURGE_PENDING:
            self.delivery.take(queue, record, MessageClass.NACK_Q_PURGED, now)
        elif delete:
            self.delivery.receive(queue, (record,), now)
        else:
            self.put_back(queue, record, now)

    def end_all(self, queue: Queue, records: Sequence[Record], now: float) -> None:
        """The same for several messages that were received."""
        positions = queue.positions
        if queue.deleted or [each for each in records if positions.get(each.lookup_id) is not PositionState.LOCKED]:
            for record in records:
                self.end(queue, record, now, delete=True)
        else:
            self.delivery.receive(queue, records, now)

    def put_back(self, queue: Queue, record: Record, now: float) -> None:
        """The position is Available again, in its old place."""
        self.delivery.unlock(queue, record.lookup_id)
        self.delivery.atomic.then(self.wake_after, queue, now, (record.lookup_id,))

    def give_back(self, queue: Queue, records: Sequence[Record], now: float) -> None:
        """Puts messages that are durably gone into their queue again. Each gets a new place behind the others of its
        priority: whoever reads the queue by order of arrival may be past the old one."""
        if queue.deleted:
            return
        with self.delivery.atomic:
            for each in records:
                priority = 7 - (each.lookup_id >> PRIORITY_SHIFT)
                self.delivery.add(
                    queue, each.packet, priority, each.expires_s, now, reason=each.reason, aborts=each.aborts
                )

    def wake_after(self, queue: Queue, now: float, opened: Iterable[int]) -> None:
        """Wakes readers, as something that follows from a change."""
        if queue.waiting:
            self.delivery.try_after(None, self.wake, queue, now, opened)

    # Lookup ids

    def seek(self, queue: Queue, lookup_id: int, action: SeekAction, *, peek: bool) -> Record:
        """Seek Available Message Position With Id, 3.1.7.3.3. First and last accept any existing id, or 0."""
        if action in (SeekAction.FIRST, SeekAction.LAST):
            if lookup_id and queue.get(lookup_id) is None:
                raise MessageNotFound(f"there is no message with lookup id {lookup_id}")
            records = queue.available(1) if action is SeekAction.FIRST else queue.available_before(1)
        else:
            record = queue.get(lookup_id)
            state = queue.state(lookup_id)
            if state is PositionState.DELETED and action is SeekAction.CURRENT:
                raise MessageAlreadyReceived(f"the message with lookup id {lookup_id} was received by somebody else")
            if record is None or (state is PositionState.DELETED):
                raise MessageNotFound(f"there is no message with lookup id {lookup_id}")
            if action is SeekAction.CURRENT:
                if state is PositionState.LOCKED and peek:
                    raise TransactionUsage(f"the message with lookup id {lookup_id} is locked by another reader")
                if state is not None:
                    raise MessageNotFound(f"the message with lookup id {lookup_id} is locked by another reader")
                return record
            if action is SeekAction.NEXT:
                records = queue.available(1, lookup_id)
            else:
                records = queue.available_before(1, lookup_id)
        if not records:
            raise MessageNotFound(f"there is no message {action.name.lower()} of lookup id {lookup_id}")
        return records[0]

    def read_by_lookup_id(
        self,
        descriptor: OpenQueueDescriptor,
        lookup_id: int,
        action: SeekAction,
        now: float,
        *,
        peek: bool,
        transaction: Transaction | None = None,
        two_phase: bool = False,
    ) -> Record:
        """Read Message By Lookup Identifier, 3.1.7.1.13"""
        queue = descriptor.require(READING if peek else RECEIVING, "peek" if peek else "receive")
        if transaction is not None:
            if peek:
                raise InvalidArgument("transaction: a peek takes no part in one")
            check_transaction(queue, transaction)
        while True:
            record = self.seek(queue, lookup_id, action, peek=peek)
            if not is_stale(record, now):
                break
            self.delivery.expire(queue, record, now)
        if not peek:
            self._claim(queue, (record,), transaction, two_phase, now)
        return record


def _time_out(request: WaitingRead) -> PostroadError:
    if request.cursor is not None:
        request.cursor.expire()
    return NoMessage(request.descriptor.queue_name)


def check_transaction(queue: Queue, transaction: Transaction) -> None:
    """Requires an open transaction, and a queue that takes part in transactions."""
    if transaction.ended:
        raise TransactionSequence(f"the transaction {transaction.identifier} has ended")
    if not queue.properties.transactional:
        raise TransactionUsage(f"the queue {queue.name} is not transactional: receive from it without a transaction")
