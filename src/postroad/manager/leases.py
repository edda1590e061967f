"""Leases in a running manager: the core of queues/leases.py with a clock, a log and commits, and calls for operators.

Operators can list the messages that clients have locked, and take them back even while the clients work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from postroad.manager.durable import DurableCore
from postroad.names import FormatName, PathName
from postroad.queues.core_settings import LeaseTimes
from postroad.queues.leases import Holder, Leases, TakenBack, locked_messages
from postroad.queues.open_queue import Transaction
from postroad.queues.queue import Queue
from postroad.reports.info import LockInfo, TransactionInfo
from postroad.runtime.logs import RateLimitedLog
from postroad.store.interface import Record

Name = FormatName | PathName | str

log = logging.getLogger(__name__)


class LeaseService:
    """The leases of one manager. `remote_locks` lists the locks of remote readers."""

    def __init__(self, durable: DurableCore, remote_locks: Callable[[float], list[LockInfo]]) -> None:
        self.core = Leases(durable.core)
        self._remote_locks = remote_locks
        self._queues = durable.core.queues
        self._durably = durable.durably
        self._clock = durable.clock
        self._taken_back = RateLimitedLog(log, "taken back from a silent client")

    @property
    def times(self) -> LeaseTimes:
        return self.core.times

    # For clients

    def lock(self, queue: Queue, records: Sequence[Record], holder: Holder) -> UUID:
        return self.core.lock(queue, records, holder, self._clock())

    def held(self, queue: Queue, lookup_ids: Sequence[int], leases: Collection[UUID] | None) -> list[Record]:
        return self.core.held(queue, lookup_ids, leases, self._clock())

    def settled(self, queue: Queue, records: Sequence[Record]) -> None:
        self.core.settled(queue, records)

    def begin(self, holder: Holder) -> UUID:
        return self.core.begin(holder, self._clock())

    def transaction(self, identifier: UUID) -> Transaction:
        """An open transaction. Renews its lease."""
        return self.core.transaction(identifier, self._clock())

    def used(self, identifier: UUID | None) -> Transaction | None:
        """The open transaction that a call names, if any. Renews its lease."""
        return None if identifier is None else self.transaction(identifier)

    def renew(self, identifiers: Sequence[UUID]) -> list[UUID]:
        """Renews these leases, and returns those that have ended."""
        return self.core.renew(identifiers, self._clock())

    def use_handle(self, handle: int) -> None:
        self.core.use_handle(handle, self._clock())

    def run_timers(self, now: float) -> None:
        """Takes back what was not renewed in time, and logs that."""
        for taken in self.core.expire(now):
            facts = {name: getattr(taken, name) for name in TakenBack.__slots__}
            self._taken_back.warn(now, {name: value for name, value in facts.items() if value is not None})

    # For operators

    def locks(self, name: Name | None = None) -> list[LockInfo]:
        """Messages that clients and remote readers have locked, in one queue or in all, the oldest first."""
        queue = None if name is None else self._queues.get(name)
        now = self._clock()
        remote = [each for each in self._remote_locks(now) if queue is None or each.queue == queue.name]
        return sorted([*self.core.locks(queue, now), *remote], key=lambda each: -each.age_s)

    def locked(self, name: Name) -> int:
        """How many messages of a queue are locked. Listing, moving and exporting leave those out."""
        return locked_messages(self._queues.get(name))

    def transactions(self) -> list[TransactionInfo]:
        """The open transactions of clients, the oldest first."""
        return self.core.transactions(self._clock())

    async def release(self, name: Name, lookup_ids: Sequence[int] | None = None) -> list[int]:
        """Puts back messages that clients have locked: all of a queue, or these. Returns their lookup ids."""
        queue = self._queues.get(name)
        released = await self._durably(lambda: self.core.release(queue, lookup_ids, self._clock()))
        by_owner: dict[str, list[int]] = {}
        for owner, lookup_id in released:
            by_owner.setdefault(owner, []).append(lookup_id)
        for owner, numbers in by_owner.items():
            facts = {"queue": queue.name, "owner": owner, "messages": len(numbers), "lookup_id": numbers[0]}
            log.info("lock released", extra=facts)
        return [lookup_id for _, lookup_id in released]

    async def abort(self, identifier: UUID) -> None:
        """Aborts a client's transaction."""
        owner = await self._durably(lambda: self.core.abort(identifier, self._clock()))
        log.info("transaction aborted", extra={"transaction": identifier, "owner": owner})
