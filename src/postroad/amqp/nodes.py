"""What links lead to: queues that take messages, queues that give them, and the coordinator of transactions.

The rules of queues are those of every other interface. What a reader has is a lease that lives as long as its link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from postroad.amqp.codec import Described, read_value
from postroad.amqp.links import Arrived, Link, Settled
from postroad.amqp.mapping import read_message, write_message
from postroad.amqp.performatives import (
    ACCEPTED,
    DECLARE,
    DISCHARGE,
    MODIFIED,
    NOT_IMPLEMENTED,
    REJECTED,
    ROLLED_BACK,
    STATE_ACCEPTED,
    STATE_RELEASED,
    TRANSACTIONAL,
    UNKNOWN_TRANSACTION,
    Fault,
    code_of,
    described_fields,
    state_declared,
    state_rejected,
    state_transactional,
)
from postroad.errors import (
    AccessDenied,
    OperationCancelled,
    PostroadError,
    QueueNotAvailable,
    QuotaExceeded,
    StorageError,
    TooManyHeld,
)
from postroad.message import Message
from postroad.names import FormatName, PathName
from postroad.queues.leases import Holder
from postroad.queues.open_queue import (
    OpenQueueDescriptor,
    OperationType,
    Transaction,
    TransactionalOperation,
    WaitingRead,
)
from postroad.queues.permissions import Action, no_right
from postroad.queues.queue import START, PositionState, Queue
from postroad.queues.reading import check_transaction
from postroad.reports.operations import QueueAccess, ReadCall
from postroad.store.interface import Record

if TYPE_CHECKING:
    from postroad.amqp.service import Guest

CREDIT: Final = 1000  # messages that a sender may have on the way
LEAST_CREDIT: Final = 10  # for a queue that is full: a sender must be able to learn it
AT_ONCE: Final = 100  # messages that one look into a queue gives to one reader: others have their turn
BYTES_AT_ONCE: Final = 1 << 20
_VALUES: Final = (0x77, "amqp:amqp-value:*")
_HELD = (PositionState.LOCKED, PositionState.PURGE_PENDING)


class Producer:
    """A queue, here or elsewhere, to which the peer sends. Without a name, each message says where it goes."""

    def __init__(self, guest: Guest, link: Link, name: PathName | FormatName | None) -> None:
        self.guest = guest
        self.link = link
        self.name = name
        self.in_flight = 0  # messages that have no answer yet
        self.starved = False  # credit is withheld
        self._needed = 1  # bytes that must be free before there is more: what the last refused message has

    @property
    def queue(self) -> Queue | None:
        """The queue, if it is here."""
        return None if self.name is None else self.guest.core.queues.find(self.name)

    def feed(self, now: float) -> None:
        """Gives credit, unless the queue is full or there is enough."""
        link = self.link
        if link.node is not self:
            return
        free = CREDIT - self.in_flight
        if link.credit > free // 2 and (link.credit or self.in_flight):
            return
        if self._has_room():
            self.starved = False
            self.guest.engine.grant(link, free)
        elif not self.starved:
            self.starved = True
            if not link.delivery_count and not link.credit:
                self.guest.engine.grant(link, LEAST_CREDIT)

    def _has_room(self) -> bool:
        queue = self.queue
        try:
            if queue is None:
                self.guest.core.delivery.check_manager_quota(self._needed)
            else:
                self.guest.core.delivery.check_quota(queue, self._needed)
        except QuotaExceeded:
            return False
        return True

    def arrived(self, deliveries: Sequence[Arrived], now: float) -> None:
        ready: list[tuple[Arrived, Message]] = []
        resolve = self.guest.core.answer_name
        for each in deliveries:
            try:
                ready.append((each, read_message(each.payload, resolve)))
            except PostroadError as error:
                self._refuse(each, error)
        if self.name is None:
            for each, message in ready:
                self._send_to_address(each, message)
            return
        for transaction, group in groupby(ready, lambda each: each[0].transaction):
            self._send(self.name, list(group), transaction)

    def _send_to_address(self, delivery: Arrived, message: Message) -> None:
        try:
            name = self.guest.sendable(self.guest.address_in(delivery.payload))
        except PostroadError as error:
            self._refuse(delivery, error)
            return
        self._send(name, [(delivery, message)], delivery.transaction)

    def _send(
        self, name: PathName | FormatName, batch: list[tuple[Arrived, Message]], transaction: bytes | None
    ) -> None:
        if transaction is not None:
            self._send_in(transaction, name, batch)
            return
        queue = self.guest.core.queues.find(name)
        alone = queue is not None and not queue.is_outgoing and queue.properties.transactional
        operation = self._transactions if alone else self._together
        deliveries = [each for each, _ in batch]
        size = sum([len(each.payload) for each in deliveries])
        try:
            self.in_flight += len(batch)
            self.guest.commits(size)
            self.guest.change_then(
                partial(operation, name, [message for _, message in batch]), partial(self._sent, deliveries, size)
            )
        except PostroadError as error:
            self.in_flight -= len(batch)
            self.guest.commits(-size)
            if len(batch) == 1 or isinstance(error, StorageError):
                for each, _ in batch:
                    self._refuse(each, error)
            else:
                for each_of_batch in batch:
                    self._send(name, [each_of_batch], None)

    def _together(self, name: PathName | FormatName, messages: list[Message]) -> None:
        self.guest.core.send(name, messages, self.guest.clock(), None, self.guest.token)

    def _transactions(self, name: PathName | FormatName, messages: list[Message]) -> None:
        """A transaction for each message."""
        core, now, token = self.guest.core, self.guest.clock(), self.guest.token
        with core.delivery.atomic:
            for message in messages:
                core.send_transactional(name, [message], now, token)

    def _sent(self, deliveries: list[Arrived], size: int, _: object, error: StorageError | None) -> None:
        self.in_flight -= len(deliveries)
        self.guest.commits(-size)
        if self.link.node is not self:
            return
        state = STATE_ACCEPTED if error is None else state_rejected(error)
        self._needed = 1
        engine, session = self.guest.engine, self.link.session
        for each in deliveries:
            if not each.settled:
                engine.answer(session, each.delivery_id, state)
        self.feed(self.guest.clock())
        self.guest.output()

    def _send_in(self, identifier: bytes, name: PathName | FormatName, batch: list[tuple[Arrived, Message]]) -> None:
        """Messages of a transaction of the coordinator. They are durable once that is discharged."""
        for delivery, message in batch:
            try:
                work = self.guest.work(identifier)
                transaction = work.open()
                self.guest.run(
                    partial(self.guest.core.send, name, [message], self.guest.clock(), transaction, self.guest.token)
                )
            except PostroadError as error:
                self._refuse(delivery, error)
            else:
                if not delivery.settled:
                    state = state_transactional(identifier, STATE_ACCEPTED)
                    self.guest.engine.answer(self.link.session, delivery.delivery_id, state)
        self.feed(self.guest.clock())

    def _refuse(self, delivery: Arrived, error: PostroadError) -> None:
        if isinstance(error, QuotaExceeded):
            self._needed = len(delivery.payload)
        if isinstance(error, AccessDenied):
            self.guest.note_refusal(error, self.link.address)
        if not delivery.settled:
            self.guest.engine.answer(self.link.session, delivery.delivery_id, state_rejected(error))
        self.feed(self.guest.clock())

    def settled(self, outcomes: Sequence[Settled], now: float) -> None:
        """The peer sends on this link, so it settles nothing of ours."""

    def detached(self, unsettled: Sequence[Any], now: float) -> None:
        pass

    def review(self, now: float) -> PostroadError | None:
        """Why the link must end: its queue is gone, or the right to it."""
        if self.name is None:
            return None
        try:
            self.guest.sendable(str(self.name) if isinstance(self.name, PathName) else self.name)
        except AccessDenied as error:
            return error
        except PostroadError:
            return QueueNotAvailable(f"the queue {self.link.address} was deleted")
        return None

    def run_timers(self, now: float) -> None:
        if self.starved:
            self.starved = False
            self.feed(now)
            if not self.starved:
                self.guest.output()


class Consumer:
    """A queue here that the peer reads. Link credit is how many messages it gets ahead."""

    def __init__(
        self, guest: Guest, link: Link, descriptor: OpenQueueDescriptor, queue: Queue, holder: Holder, dynamic: bool
    ) -> None:
        """A `dynamic` queue ends with the link."""
        self.guest = guest
        self.link = link
        self.queue = queue
        self.descriptor = descriptor
        self.holder = holder
        self.dynamic = dynamic
        self.waiting: WaitingRead | None = None
        self.delayed = False  # the holder has as much as it may
        self.returning = 0  # changes under way that bring messages back: these come before others
        self.orphans: list[Record] = []  # messages whose outcome could not be carried out

    # To the peer

    def feed(self, now: float) -> None:
        engine, link, guest = self.guest.engine, self.link, self.guest
        if self.returning:
            return
        while link.node is self and engine.may_send(link):
            try:
                guest.leases.check_lock(self.holder)
                count = min(link.credit, link.session.remote_window, AT_ONCE)
                records = guest.run(partial(self._take, count, now))
            except TooManyHeld:
                self.delayed = True
                return
            except PostroadError as error:
                engine.detach(link, error, now)
                return
            if not records:
                break
        if link.node is self and link.credit > 0 and not engine.full and not link.session.waiting:
            if link.drain:
                engine.drained(link)
            elif link.session.remote_window > 0:
                self._wait()

    def _take(self, count: int, now: float) -> list[Record]:
        if self.waiting is not None:
            return []  # there is nothing: otherwise the wait would be over
        self.descriptor.require(_RECEIVING, "receive")
        core = self.guest.core
        records = core.delivery.fresh(self.queue, count, now, most_bytes=BYTES_AT_ONCE)
        records = _within(records, BYTES_AT_ONCE)
        if records:
            with core.delivery.atomic:
                core.delivery.lock_all(self.queue, [record.lookup_id for record in records])
            self._give(records, now)
        return records

    def _give(self, records: list[Record], now: float) -> None:
        """Sends messages that are locked."""
        guest, link = self.guest, self.link
        if link.presettled:
            self._give_settled(records, now)
            return
        guest.leases.lock(self.queue, records, self.holder, now)
        send = guest.engine.send
        for record in records:
            send(link, write_message(record, now), record)

    def _give_settled(self, records: list[Record], now: float) -> None:
        """At most once: the messages leave the queue before they leave for the peer."""
        core, link = self.guest.core, self.link
        link.credit -= len(records)  # promised; `send` takes it again

        def left(_: object, error: StorageError | None) -> None:
            if error is not None:
                if link.node is self:
                    self.guest.engine.detach(link, error, self.guest.clock())
                return
            if link.node is not self:
                core.reading.give_back(self.queue, records, self.guest.clock())
                self.guest.soon()
                return
            link.credit += len(records)
            for record in records:
                self.guest.engine.send(link, write_message(record, now), record, settled=True)
            self.guest.output()

        self.guest.change_then(partial(core.reading.end_all, self.queue, records, now), left)

    def _wait(self) -> None:
        """The next messages come by themselves."""
        if self.waiting is not None:
            return
        count = min(self.link.credit, self.link.session.remote_window, AT_ONCE)
        request = WaitingRead(self.descriptor, ReadCall.RECEIVE, count, two_phase=True, permitted=self.permitted)
        request.tell(self._satisfied, self._failed)
        self.waiting = request
        self.guest.core.reading.watch(request)

    def _satisfied(self, records: list[Record]) -> None:
        if self.waiting is None or self.link.node is not self or self.guest.engine.full:
            raise OperationCancelled("the reader takes nothing now")
        self.waiting = None
        self._give(records, self.guest.clock())
        self.guest.refill(self)

    def _failed(self, error: PostroadError) -> None:
        self.waiting = None
        if isinstance(error, OperationCancelled) and not self.queue.deleted:
            return
        if self.queue.deleted:
            error = QueueNotAvailable(f"the queue {self.queue.name} was deleted")
        self.guest.end_later(self, error)

    def stop_waiting(self) -> None:
        if (request := self.waiting) is not None:
            self.waiting = None
            self.guest.core.reading.cancel(self.queue, request, OperationCancelled("the link takes nothing now"))

    def permitted(self) -> bool:
        return self.guest.core.access.allows(self.queue, self.guest.token, Action.RECEIVE)

    # From the peer

    def arrived(self, deliveries: Sequence[Arrived], now: float) -> None:
        """The peer only receives on this link."""

    def settled(self, outcomes: Sequence[Settled], now: float) -> None:
        done = 0
        try:
            for (code, details), group in groupby(outcomes, _outcome_of):
                some = list(group)
                if code == TRANSACTIONAL:
                    self._settle_in(some, details, now)
                else:
                    self._settle(code, details, some, now)
                done += len(some)
        except PostroadError as error:
            self.orphans = [each.item for each in outcomes[done:]]
            self.guest.engine.detach(self.link, error, now)
            return
        self.delayed = False
        self.feed(now)

    def _settle(self, code: int, details: tuple[Any, ...], outcomes: list[Settled], now: float) -> None:
        records = self._held([each.item for each in outcomes])
        answered = [each.delivery_id for each in outcomes if not each.settled]
        state = STATE_ACCEPTED if code == ACCEPTED else STATE_RELEASED

        def done(_: object, error: StorageError | None) -> None:
            self.returning -= returns
            if error is not None:
                self.guest.engine.detach(self.link, error, self.guest.clock())
            elif answered:
                self.guest.engine.settle(self.link, answered, state)
            if returns:
                self.guest.refill(self)
            self.guest.output()

        returns = int(code not in (ACCEPTED, 0))
        if answered or returns:
            self.returning += returns
            try:
                self.guest.change_then(partial(self._end, code, details, records, now), done)
            except BaseException:
                self.returning -= returns
                raise
        else:
            self.guest.run(partial(self._end, code, details, records, now))
            self.guest.soon()

    def _held(self, records: list[Record]) -> list[Record]:
        """Those of the messages that the link still has: an operator may have released some."""
        leases, queue = self.guest.leases, self.queue
        ids = [record.lookup_id for record in records]
        holders = leases.holders(queue, ids)
        try:
            if all(each is self.holder for each in holders):
                return leases.held(queue, ids, None, self.guest.clock())
        except PostroadError:
            pass
        found = []
        for record in records:
            holders = leases.holders(queue, [record.lookup_id])
            if holders and holders[0] is self.holder and queue.positions.get(record.lookup_id) in _HELD:
                found.append(record)
        return found

    def _end(self, code: int, details: tuple[Any, ...], records: list[Record], now: float) -> None:
        """The outcome of messages that the link holds."""
        if not records:
            return
        queue, leases = self.queue, self.guest.leases
        leases.settled(queue, records)  # first: a reader that waits may lock them before this returns
        try:
            self._carry_out(code, details, records, now)
        except BaseException:
            leases.lock(queue, records, self.holder, now)
            raise

    def _carry_out(self, code: int, details: tuple[Any, ...], records: list[Record], now: float) -> None:
        core, queue = self.guest.core, self.queue
        with core.delivery.atomic:
            if code == ACCEPTED:
                core.reading.end_all(queue, records, now)
            elif code == REJECTED or (code == MODIFIED and details[1]):
                for record in records:
                    core.transacting.reject(queue, record, now)
            elif code == MODIFIED and details[0]:
                for record in records:
                    core.transacting.give_back(queue, record, now)
            else:
                for record in records:
                    core.reading.end(queue, record, now, delete=False)

    def _settle_in(self, outcomes: list[Settled], details: tuple[Any, ...], now: float) -> None:
        """Outcomes that count once their transaction is discharged, 4.4.2."""
        identifier, outcome = details
        code, fields = _plain_outcome(outcome)
        work = self.guest.work(identifier)
        transaction = work.open()
        check_transaction(self.queue, transaction)
        records = self._held([each.item for each in outcomes])
        self.guest.leases.settled(self.queue, records)
        if code == ACCEPTED:
            dequeue = OperationType.DEQUEUE
            some = [TransactionalOperation(dequeue, self.queue, record) for record in records]
            transaction.add(self.guest.core.tick, *some)
        else:
            work.later += [(self.queue, record, code, fields) for record in records]
        answered = [each.delivery_id for each in outcomes if not each.settled]
        self.guest.engine.settle(self.link, answered, state_transactional(identifier, STATE_ACCEPTED))

    def detached(self, unsettled: Sequence[Any], now: float) -> None:
        """Gives back what the peer has not settled: the message nearest to the head first."""
        self.stop_waiting()
        records = sorted(self._held([*self.orphans, *unsettled]), key=lambda each: each.lookup_id)
        if records and not self.queue.deleted:
            self.guest.run(partial(self._end, 0, (), records, now))
            self.guest.soon()
        elif records:
            self.guest.leases.settled(self.queue, records)
        if not self.descriptor.closed:
            self.guest.core.close(self.descriptor)
        if self.dynamic:
            self.guest.service.delete_dynamic(self.queue, now)

    def review(self, now: float) -> PostroadError | None:
        if self.queue.deleted or self.descriptor.queue is None:
            return QueueNotAvailable(f"the queue {self.queue.name} was deleted")
        return None if self.permitted() else AccessDenied(no_right(Action.RECEIVE, self.queue))

    def run_timers(self, now: float) -> None:
        if self.delayed:
            self.delayed = False
            self.feed(now)
            self.guest.output()


class Browser(Consumer):
    """A reader with the distribution mode `copy`: it gets every message from the head on, and removes none."""

    def __init__(
        self, guest: Guest, link: Link, descriptor: OpenQueueDescriptor, queue: Queue, holder: Holder, dynamic: bool
    ) -> None:
        super().__init__(guest, link, descriptor, queue, holder, dynamic)
        self.position = START
        self.missed: list[Record] = []  # that came before the position

    def _take(self, count: int, now: float) -> list[Record]:
        self.descriptor.require(_READING, "peek")
        missed, self.missed = self.missed[:count], self.missed[count:]
        records = missed
        if len(records) < count:
            more = self.guest.core.delivery.fresh(
                self.queue, count - len(records), now, self.position, most_bytes=BYTES_AT_ONCE
            )
            more = _within(more, BYTES_AT_ONCE)
            if more:
                self.position = more[-1].lookup_id
            records = records + more
        self._give(records, now)
        return records

    def _give(self, records: list[Record], now: float) -> None:
        for record in records:
            self.guest.engine.send(self.link, write_message(record, now), record, settled=self.link.presettled)

    def _wait(self) -> None:
        if self.waiting is None:
            request = WaitingRead(self.descriptor, ReadCall.PEEK, 1, permitted=self.permitted, matches=self._is_new)
            request.tell(self._satisfied, self._failed)
            self.waiting = request
            self.guest.core.reading.watch(request)

    def _is_new(self, record: Record) -> bool:
        """Notes a message of a higher priority than those that the reader has had."""
        if record.lookup_id > self.position:
            return True
        if len(self.missed) < AT_ONCE:
            self.missed.append(record)
        self.guest.refill(self)
        return False

    def _satisfied(self, records: list[Record]) -> None:
        self.waiting = None
        self.guest.refill(self)

    def permitted(self) -> bool:
        return self.guest.core.access.allows(self.queue, self.guest.token, Action.PEEK)

    def settled(self, outcomes: Sequence[Settled], now: float) -> None:
        answered = [each.delivery_id for each in outcomes if not each.settled]
        self.guest.engine.settle(self.link, answered, STATE_ACCEPTED)
        self.feed(now)

    def detached(self, unsettled: Sequence[Any], now: float) -> None:
        super().detached((), now)


@dataclass(slots=True, eq=False)
class Work:
    """A transaction of a coordinator. `later` are outcomes other than accepted, which its commit carries out."""

    guest: Guest
    identifier: bytes
    find: Callable[[], Transaction]
    later: list[tuple[Queue, Record, int, tuple[Any, ...]]] = field(default_factory=list)

    def open(self) -> Transaction:
        """The transaction. Raises TransactionSequence if it has ended, such as by an operator."""
        return self.find()

    def commit(self, now: float) -> None:
        core = self.guest.core
        with core.delivery.atomic:
            core.commit(self.open(), now)
            self._end_others(now, committed=True)

    def abort(self, now: float) -> None:
        """Gives everything back, and counts it."""
        core = self.guest.core
        with core.delivery.atomic:
            transaction = self.open()
            if not transaction.ended:
                core.abort(transaction, now)
            self._end_others(now, committed=False)

    def give_up(self, now: float) -> None:
        """The same after somebody else has ended the transaction."""
        with self.guest.core.delivery.atomic:
            self._end_others(now, committed=False)

    def _end_others(self, now: float, *, committed: bool) -> None:
        core = self.guest.core
        later, self.later = self.later, []
        for queue, record, code, details in later:
            if queue.deleted or queue.positions.get(record.lookup_id) not in _HELD:
                continue
            if not committed or (code == MODIFIED and details[0] and not details[1]):
                core.transacting.give_back(queue, record, now)
            elif code == REJECTED or (code == MODIFIED and details[1]):
                core.transacting.reject(queue, record, now)
            else:
                core.reading.end(queue, record, now, delete=False)


class Coordinator:
    """Declares and discharges transactions, 4.2 and 4.3."""

    def __init__(self, guest: Guest, link: Link) -> None:
        self.guest = guest
        self.link = link
        self.works: set[bytes] = set()

    def feed(self, now: float) -> None:
        if self.link.node is self and self.link.credit < CREDIT // 2:
            self.guest.engine.grant(self.link, CREDIT)

    def arrived(self, deliveries: Sequence[Arrived], now: float) -> None:
        for each in deliveries:
            try:
                state = self._do(each, now)
            except PostroadError as error:
                state = state_rejected(error)
            if state is not None:
                self._answer(each, state)
        self.feed(now)

    def _answer(self, delivery: Arrived, state: bytes) -> None:
        if self.link.node is self and not delivery.settled:
            self.guest.engine.answer(self.link.session, delivery.delivery_id, state)
        self.guest.output()

    def _do(self, delivery: Arrived, now: float) -> bytes | None:
        value = _value_of(delivery.payload)
        if not isinstance(value, Described):
            raise Fault(NOT_IMPLEMENTED, "a coordinator takes declare and discharge")
        if described_fields(value, DECLARE) is not None:
            identifier = self.guest.declare(now)
            self.works.add(identifier)
            return state_declared(identifier)
        found = described_fields(value, DISCHARGE)
        if found is None:
            raise Fault(NOT_IMPLEMENTED, "a coordinator takes declare and discharge")
        identifier, fails = found[1]
        work = self.guest.works.pop(identifier, None)
        self.works.discard(identifier)
        if work is None:
            raise Fault(UNKNOWN_TRANSACTION, "there is no such transaction on this connection")
        if fails:
            self.guest.change_then(partial(self._abort, work, now), partial(self._ended, delivery))
            return None
        try:
            self.guest.change_then(partial(work.commit, now), partial(self._ended, delivery))
        except PostroadError as error:
            self._abort(work, now)
            self.guest.soon()
            raise Fault(ROLLED_BACK, str(error)) from None
        return None

    def _abort(self, work: Work, now: float) -> None:
        try:
            work.abort(now)
        except PostroadError:  # an operator was faster
            work.give_up(now)

    def _ended(self, delivery: Arrived, _: object, error: StorageError | None) -> None:
        fault = None if error is None else Fault(ROLLED_BACK, str(error))
        self._answer(delivery, STATE_ACCEPTED if fault is None else state_rejected(fault))

    def settled(self, outcomes: Sequence[Settled], now: float) -> None:
        """A coordinator sends nothing."""

    def detached(self, unsettled: Sequence[Any], now: float) -> None:
        """4.3: what was not discharged is rolled back."""
        for identifier in self.works:
            if (work := self.guest.works.pop(identifier, None)) is not None:
                self._abort(work, now)
        self.guest.soon()

    def review(self, now: float) -> PostroadError | None:
        return None

    def run_timers(self, now: float) -> None:
        pass


_RECEIVING: Final = frozenset({QueueAccess.RECEIVE, QueueAccess.RECEIVE_ADMIN})
_READING: Final = _RECEIVING | {QueueAccess.PEEK, QueueAccess.PEEK_ADMIN}


def _value_of(payload: bytes) -> object:
    """The value in the body of a message."""
    at, end = 0, len(payload)
    while at < end:
        section, at = read_value(payload, at, end)
        if isinstance(section, Described) and section.descriptor in _VALUES:
            return section.value
    return None


def _outcome_of(settled: Settled) -> tuple[int, tuple[Any, ...]]:
    """What the peer says of a message, in a form that can be compared. Nothing at all gives it back."""
    state = settled.state
    if state is not None and code_of(state.descriptor) == TRANSACTIONAL:
        found = described_fields(state, TRANSACTIONAL)
        if found is not None:
            return TRANSACTIONAL, tuple(found[1])
    return _plain_outcome(state)


def _plain_outcome(state: object) -> tuple[int, tuple[Any, ...]]:
    if not isinstance(state, Described):
        return 0, ()
    code = code_of(state.descriptor)
    if code == MODIFIED:
        found = described_fields(state, MODIFIED)
        return code, (False, False) if found is None else tuple(found[1][:2])
    return (code, ()) if code in (ACCEPTED, REJECTED) else (0, ())


def _within(records: list[Record], most_bytes: int) -> list[Record]:
    """The first of the records, to the one that brings them to so many bytes."""
    for count, record in enumerate(records, 1):
        most_bytes -= len(record.packet)
        if most_bytes <= 0:
            return records[:count]
    return records
