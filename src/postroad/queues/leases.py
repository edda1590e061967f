"""What clients hold, and how long they may be silent: messages locked by two-phase receives, transactions, handles.

A client renews what it holds, or uses it. What nobody renews goes back. Time is an argument. Nothing is logged here:
`expire` returns what it took back.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from uuid import UUID

from postroad.errors import LeaseEnded, PostroadError, TransactionSequence
from postroad.queues.core_settings import LeaseTimes
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import (
    Cursor,
    OpenQueueDescriptor,
    OperationType,
    Transaction,
    TransactionalOperation,
)
from postroad.queues.owners import THIS_PROCESS as THIS_PROCESS_OWNER
from postroad.queues.owners import Held
from postroad.queues.permissions import Action
from postroad.queues.queue import PositionState, Queue
from postroad.reports.info import LockInfo, TransactionInfo
from postroad.reports.operations import ShareMode
from postroad.security.access import Token
from postroad.security.descriptors import Sid
from postroad.store.interface import Record

HANDLE_TIMEOUT_S = 3600.0  # a handle that nobody uses is closed
# The longest step of the leases' own time. The timer comes twice a second. After a longer step the clock was set, or
# the manager stood still, and nobody could renew anything meanwhile.
LONGEST_STEP_S = 0.75
REMEMBERED = 10_000  # ends of leases that are kept, so that a client that comes too late learns why
_NO_RIGHT = "its user has lost the right to it"
_HELD = (PositionState.LOCKED, PositionState.PURGE_PENDING)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds something, in words for people. What a lasting holder has never times out, because it lives in this
    process.

    `user` is the user who has logged in; None for administrators without a SID. `address` is where other holders are.
    `token` says what the holder may do now.
    """

    owner: str
    lasting: bool = False
    user: Sid | None = None
    address: str = THIS_PROCESS_OWNER
    token: Callable[[], Token] = field(default=Token.administrator, compare=False)

    @property
    def key(self) -> str:
        """The owner whose limits count."""
        return self.address if self.user is None else str(self.user)


THIS_PROCESS = Holder("this process", lasting=True)


@dataclass(slots=True, eq=False)
class _Lease:
    """Times are those of `AwakeTime`."""

    identifier: UUID
    holder: Holder
    since: float
    renewed: float


@dataclass(slots=True, eq=False)
class _LockLease(_Lease):
    """The messages of one call, by lookup id. Settled messages are removed."""

    queue: Queue
    records: dict[int, Record] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _TransactionLease(_Lease):
    """Its identifier is the transaction's own."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What went back because its client was silent: messages of a queue, or a whole transaction."""

    owner: str
    silent_s: float
    messages: int
    queue: str | None = None
    lookup_id: int | None = None  # of the first message
    transaction: UUID | None = None


class AwakeTime:
    """The seconds for which the manager was awake. Setting the clock does not change them."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._passed = 0.0

    def __call__(self, now: float) -> float:
        step = 0.0 if self._last is None else now - self._last
        self._last = now
        self._passed += min(max(0.0, step), LONGEST_STEP_S)
        return self._passed


class Leases:
    """Every lease has an id that cannot be guessed. Whoever knows the id may renew the lease."""

    def __init__(self, core: LocalQueueManager) -> None:
        self.expired_locks = 0  # messages that went back
        self.expired_transactions = 0
        self._core = core
        self._owners = core.owners
        core.reviews.append(self.review)
        self._awake = AwakeTime()
        self._locks: dict[UUID, _LockLease] = {}
        self._locked: dict[tuple[int, int], _LockLease] = {}  # by number of the queue, and lookup id
        self._transactions: dict[UUID, _TransactionLease] = {}
        self._handle_used: dict[int, float] = {}
        self._handle_holders: dict[int, Holder] = {}
        self._ended: dict[tuple[int, int] | UUID, str] = {}

    @property
    def times(self) -> LeaseTimes:
        return self._core.settings.leases

    # Messages

    def check_lock(self, holder: Holder) -> None:
        """Raises TooManyHeld if the holder must settle messages before it locks more."""
        self._owners.check_locks(holder.key)

    def lock(self, queue: Queue, records: Sequence[Record], holder: Holder, now: float) -> UUID:
        """Makes a lease for the messages that one call has locked."""
        time = self._awake(now)
        lease = _LockLease(
            self._core.new_id(), holder, time, time, queue, {record.lookup_id: record for record in records}
        )
        self._locks[lease.identifier] = lease
        self._owners.lock(holder.key, records)
        for lookup_id in lease.records:
            self._locked[queue.number, lookup_id] = lease
        return lease.identifier

    def held(
        self, queue: Queue, lookup_ids: Sequence[int], leases: Collection[UUID] | None, now: float
    ) -> list[Record]:
        """The messages with these ids, each once, that a client holds. If one of them is not held, raises an error.

        With `leases`, only messages of these leases count: a message that went back may belong to another reader by
        now.
        """
        wanted = dict.fromkeys(lookup_ids)
        for lookup_id in wanted:
            lease = self._locked.get((queue.number, lookup_id))
            if (
                lease is None
                or (leases is not None and lease.identifier not in leases)
                or queue.positions.get(lookup_id) not in _HELD
            ):
                raise self._lost(queue, lookup_id)
        time = self._awake(now)
        for lookup_id in wanted:
            self._locked[queue.number, lookup_id].renewed = time
        return [self._locked[queue.number, lookup_id].records[lookup_id] for lookup_id in wanted]

    def holders(self, queue: Queue, lookup_ids: Sequence[int]) -> list[Holder]:
        """Who has locked any of these messages: one holder for each call that did."""
        found = dict.fromkeys(self._locked.get((queue.number, lookup_id)) for lookup_id in lookup_ids)
        return [lease.holder for lease in found if lease is not None]

    def holder(self, identifier: UUID) -> Holder | None:
        """The holder of this lease or transaction."""
        lease = self._locks.get(identifier) or self._transactions.get(identifier)
        return None if lease is None else lease.holder

    def settled(self, queue: Queue, records: Sequence[Record]) -> None:
        """Nobody holds the messages any more."""
        self._drop(queue, [record.lookup_id for record in records])

    def _drop(self, queue: Queue, lookup_ids: Iterable[int]) -> list[Record]:
        records = []
        for lease, own in groupby(lookup_ids, lambda each: self._locked.pop((queue.number, each))):
            dropped = [lease.records.pop(each) for each in own]
            self._owners.unlock(lease.holder.key, dropped)
            if not lease.records:
                del self._locks[lease.identifier]
            records += dropped
        return records

    def _lost(self, queue: Queue, lookup_id: int) -> PostroadError:
        what = f"message {lookup_id} of {queue.name} is not being received"
        why = self._ended.get((queue.number, lookup_id))
        if why is not None:
            return LeaseEnded(f"{what} any more: {why}, so it may be received twice")
        return TransactionSequence(f"{what}; after a restart of the queue manager every message is back in its place")

    def release(self, queue: Queue, lookup_ids: Sequence[int] | None, now: float) -> list[tuple[str, int]]:
        """Puts messages back that clients have locked: all of the queue, or these. Returns owners and lookup ids.

        Messages of a transaction or of a remote reader stay locked until it ends.
        """
        if lookup_ids is None:
            wanted = [each for number, each in self._locked if number == queue.number]
        else:
            wanted = list(dict.fromkeys(lookup_ids))
        for lookup_id in wanted:
            if (queue.number, lookup_id) not in self._locked:
                raise TransactionSequence(self._not_released(queue, lookup_id))
        return [(self._put_back(queue, each, f"it was released at {_text(now)}", now), each) for each in wanted]

    def _not_released(self, queue: Queue, lookup_id: int) -> str:
        what = f"message {lookup_id} of {queue.name}"
        for lease in self._open_transactions():
            if any(each.queue is queue and each.record.lookup_id == lookup_id for each in _taken(lease.transaction)):
                return f"{what} is held by the transaction {lease.identifier}: abort that"
        if queue.positions.get(lookup_id) in _HELD:
            return f"{what} is held by a remote reader or a session: it is free when that ends"
        return f"{what} is not locked"

    def _put_back(self, queue: Queue, lookup_id: int, why: str, now: float) -> str:
        owner = self._locked[queue.number, lookup_id].holder.owner
        [record] = self._drop(queue, [lookup_id])
        self._remember((queue.number, lookup_id), why)
        with contextlib.suppress(PostroadError):  # the position may no longer be locked
            self._core.reading.end(queue, record, now, delete=False)
        return owner

    # Transactions

    def begin(self, holder: Holder, now: float) -> UUID:
        if self._owners.full(Held.TRANSACTIONS, holder.key):
            self._drop_ended()
            self._owners.check(Held.TRANSACTIONS, holder.key)
        time, transaction = self._awake(now), self._core.begin()
        identifier = transaction.identifier
        self._transactions[identifier] = _TransactionLease(identifier, holder, time, time, transaction)
        self._owners.take(Held.TRANSACTIONS, holder.key)
        return identifier

    def _drop_ended(self) -> None:
        for identifier in [each for each, lease in self._transactions.items() if lease.transaction.ended]:
            self._drop_transaction(identifier)

    def _drop_transaction(self, identifier: UUID) -> _TransactionLease | None:
        lease = self._transactions.pop(identifier, None)
        if lease is not None:
            self._owners.give(Held.TRANSACTIONS, lease.holder.key)
        return lease

    def transaction(self, identifier: UUID, now: float) -> Transaction:
        """An open transaction. Counts as use of it."""
        if identifier in self._ended:
            raise LeaseEnded(f"the transaction {identifier} has ended: {self._ended[identifier]}")
        transaction = self._core.transaction(identifier)
        lease = self._transactions.get(identifier)
        if lease is not None:
            lease.renewed = self._awake(now)
        return transaction

    def abort(self, identifier: UUID, now: float) -> str:
        """An operator ends somebody's transaction. Returns whose it was."""
        self._core.abort(self.transaction(identifier, now), now)
        self._remember(identifier, f"it was aborted at {_text(now)} by an operator")
        lease = self._drop_transaction(identifier)
        return "" if lease is None else lease.holder.owner

    # Both

    def renew(self, identifiers: Sequence[UUID], now: float) -> list[UUID]:
        """Restarts the time of these leases. Returns those that do not exist, or no longer do."""
        time = self._awake(now)
        gone: list[UUID] = []
        for identifier in identifiers:
            lease = self._locks.get(identifier) or self._transactions.get(identifier)
            if lease is None or (isinstance(lease, _TransactionLease) and lease.transaction.ended):
                gone.append(identifier)
            else:
                lease.renewed = time
        return gone

    def use_handle(self, handle: int, now: float) -> None:
        self._handle_used[handle] = self._awake(now)

    def own_handle(self, handle: int, holder: Holder) -> None:
        """Notes that `holder` has opened the handle."""
        self._core.descriptors[handle].holder = self._handle_holders[handle] = holder
        self._owners.take(Held.OPEN_QUEUES, holder.key)

    def check_handle(self, holder: Holder) -> None:
        self._owners.check(Held.OPEN_QUEUES, holder.key)

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> int:
        holder = self._handle_holders.get(descriptor.handle, THIS_PROCESS)
        self._owners.check(Held.CURSORS, holder.key)
        cursor = self._core.open_cursor(descriptor).handle
        self._owners.take(Held.CURSORS, holder.key)
        return cursor

    def close_cursor(self, descriptor: OpenQueueDescriptor, cursor: Cursor) -> None:
        self._core.close_cursor(descriptor, cursor)
        self._owners.give(Held.CURSORS, self._handle_holders.get(descriptor.handle, THIS_PROCESS).key)

    def close_handle(self, descriptor: OpenQueueDescriptor) -> None:
        """Closes a handle and its cursors."""
        cursors = len(descriptor.cursors)
        self._core.close(descriptor)
        self._handle_used.pop(descriptor.handle, None)
        holder = self._handle_holders.pop(descriptor.handle, None)
        if holder is not None:
            self._owners.give(Held.CURSORS, holder.key, cursors)
            self._owners.give(Held.OPEN_QUEUES, holder.key)

    def handle_holder(self, handle: int) -> Holder | None:
        return self._handle_holders.get(handle)

    def expire(self, now: float) -> list[TakenBack]:
        """Takes back what nobody renewed in time. Call it about twice a second."""
        time = self._awake(now)
        taken = [*self._expire_locks(time, now), *self._expire_transactions(time, now)]
        for handle, used in list(self._handle_used.items()):
            descriptor = self._core.descriptors.get(handle)
            if descriptor is None:
                del self._handle_used[handle]
            elif time - used > HANDLE_TIMEOUT_S and not (descriptor.queue and descriptor.queue.waiting):
                self.close_handle(descriptor)
        return taken

    def review(self, queues: Collection[Queue], now: float) -> None:
        """Rights on these queues have changed. What is held without a right goes back; what was begun without one
        ends."""
        changed = set(queues)
        for lease in list(self._locks.values()):
            if lease.queue in changed and self._lacks(lease.holder, lease.queue, Action.RECEIVE):
                for lookup_id in list(lease.records):
                    self._put_back(lease.queue, lookup_id, _NO_RIGHT, now)
        for identifier, transaction_lease in list(self._transactions.items()):
            transaction, holder = transaction_lease.transaction, transaction_lease.holder
            if transaction.ended or not self._forbidden(transaction, holder, changed):
                continue
            self._remember(identifier, _NO_RIGHT)
            self._drop_transaction(identifier)
            self._core.abort(transaction, now)
        for handle, holder in list(self._handle_holders.items()):
            descriptor = self._core.descriptors[handle]
            excludes = descriptor.queue in changed and descriptor.share is ShareMode.DENY_RECEIVE  # other readers
            if holder.token().only is not None or (excludes and self._lacks(holder, descriptor.queue, Action.PEEK)):
                self.close_handle(descriptor)

    def _forbidden(self, transaction: Transaction, holder: Holder, changed: set[Queue]) -> bool:
        return holder.token().only is not None or any(
            queue in changed and self._lacks(holder, queue, action)
            for each in transaction.operations
            for queue, action in _actions(each)
        )

    def _lacks(self, holder: Holder, queue: Queue | None, action: Action) -> bool:
        return queue is not None and not self._core.access.allows(queue, holder.token(), action)

    def _expire_locks(self, time: float, now: float) -> Iterator[TakenBack]:
        for lease in [each for each in self._locks.values() if each.queue.deleted]:
            self._drop(lease.queue, list(lease.records))
        for lease in [each for each in self._locks.values() if _silent(each, time, self.times.receive_s)]:
            lookup_ids = list(lease.records)
            why = f"its lease of {self.times.receive_s:g} s ran out at {_text(now)} and it went back"
            for lookup_id in lookup_ids:
                self._put_back(lease.queue, lookup_id, why, now)
            self.expired_locks += len(lookup_ids)
            silent_s = round(time - lease.renewed, 1)
            yield TakenBack(lease.holder.owner, silent_s, len(lookup_ids), lease.queue.name, lookup_ids[0])

    def _expire_transactions(self, time: float, now: float) -> Iterator[TakenBack]:
        for identifier, lease in list(self._transactions.items()):
            if lease.transaction.ended:
                self._drop_transaction(identifier)
            elif not _silent(lease, time, self.times.transaction_s):
                continue
            elif _waits(lease.transaction):
                lease.renewed = time  # its client is there: the listener ends the reads of a client that has left
            else:
                messages = len(lease.transaction.operations)
                self._drop_transaction(identifier)
                self._remember(
                    identifier,
                    f"its lease of {self.times.transaction_s:g} s ran out at {_text(now)} and it was aborted",
                )
                self._core.abort(lease.transaction, now)
                self.expired_transactions += 1
                silent_s = round(time - lease.renewed, 1)
                yield TakenBack(lease.holder.owner, silent_s, messages, transaction=identifier)

    def _remember(self, key: tuple[int, int] | UUID, why: str) -> None:
        self._ended.pop(key, None)
        self._ended[key] = why
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    # Looking

    def locks(self, queue: Queue | None, now: float) -> list[LockInfo]:
        """Messages that clients have locked or received in transactions, of one queue or of all, the oldest first."""
        time = self._awake(now)
        found = [
            _lock_info(lease, lease.queue, "receive", list(lease.records), time)
            for lease in self._locks.values()
            if not lease.queue.deleted and queue in (None, lease.queue)
        ]
        for lease in self._open_transactions():
            taken: dict[Queue, list[int]] = {}
            for each in _taken(lease.transaction):
                if queue in (None, each.queue):
                    taken.setdefault(each.queue, []).append(each.record.lookup_id)
            for holder_queue, lookup_ids in taken.items():
                found.append(_lock_info(lease, holder_queue, "transaction", lookup_ids, time))
        return sorted(found, key=lambda each: -each.age_s)

    def readers(self) -> Counter[Queue]:
        """How many clients read each queue: those that have it open, and those that work on its messages without. It is
        one moment for all queues, because a client that waits now may work on a message at the next."""
        working: dict[Queue, set[Holder]] = {}
        for lock in self._locks.values():
            working.setdefault(lock.queue, set()).add(lock.holder)
        for lease in self._open_transactions():
            for queue in {each.queue for each in _taken(lease.transaction)}:
                working.setdefault(queue, set()).add(lease.holder)
        found = open_handles(self._core)
        for queue, holders in working.items():
            found[queue] += len(holders.difference(each.holder for each in queue.descriptors))
        return found

    def transactions(self, now: float) -> list[TransactionInfo]:
        """The open transactions of clients, the oldest first."""
        time = self._awake(now)
        return [
            TransactionInfo(
                id=str(lease.identifier),
                owner=lease.holder.owner,
                age_s=round(time - lease.since, 1),
                silent_s=round(time - lease.renewed, 1),
                messages=len(lease.transaction.operations),
                received=len(_taken(lease.transaction)),
                sent=len(lease.transaction.operations) - len(_taken(lease.transaction)),
            )
            for lease in self._open_transactions()
        ]

    def _open_transactions(self) -> Iterator[_TransactionLease]:
        return (each for each in self._transactions.values() if not each.transaction.ended)


def open_handles(core: LocalQueueManager) -> Counter[Queue]:
    """How many handles each queue has."""
    return Counter(each.queue for each in core.descriptors.values() if each.queue is not None)


def locked_messages(queue: Queue) -> int:
    """How many messages of a queue nobody else can see, because a reader, a transaction or a session has them."""
    return sum(state in _HELD for state in queue.positions.values())


def _lock_info(lease: _Lease, queue: Queue, kind: str, lookup_ids: list[int], time: float) -> LockInfo:
    return LockInfo(
        queue=queue.name,
        owner=lease.holder.owner,
        kind=kind,
        age_s=round(time - lease.since, 1),
        silent_s=round(time - lease.renewed, 1),
        messages=len(lookup_ids),
        lookup_ids=tuple(lookup_ids),
        transaction=str(lease.identifier) if kind == "transaction" else None,
    )


def _silent(lease: _Lease, time: float, limit_s: float) -> bool:
    return time - lease.renewed > limit_s and not lease.holder.lasting


def _waits(transaction: Transaction) -> bool:
    """Whether a read of the handle waits for a message now."""
    for request in transaction.waiting:
        queue = request.descriptor.queue
        if queue is not None and request in queue.waiting:
            return True
    return False


def _actions(operation: TransactionalOperation) -> Iterator[tuple[Queue, Action]]:
    """The queues of an operation, with what it does to each."""
    if operation.operation is OperationType.ENQUEUE:
        yield operation.queue, Action.SEND
        return
    yield operation.queue, Action.RECEIVE
    if operation.target is not None:
        yield operation.target, Action.SEND


def _taken(transaction: Transaction) -> list[TransactionalOperation]:
    return [each for each in transaction.operations if each.operation is not OperationType.ENQUEUE]


def _text(now: float) -> str:
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ}"
