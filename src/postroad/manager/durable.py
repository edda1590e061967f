"""A core whose changes go to disk. Every interface of a manager answers through here, once a change is durable.

Everything runs on one event loop; the store's writer is the only other thread. A short commit runs on the loop's own
thread (store/writer.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import TypeVar
from uuid import UUID

from postroad.errors import StorageError
from postroad.manager.leases import LeaseService
from postroad.manager.troubles import Troubles
from postroad.queues.commits import Commits, Done
from postroad.queues.leases import LeaseTimes
from postroad.queues.local import LocalQueueManager
from postroad.queues.open_queue import Transaction
from postroad.store.interface import Batch, Store
from postroad.store.writer import Writer

# Commits between two looks at the free space: the reserve has room for what they write.
LOOK_S = 0.01

T = TypeVar("T")


class DurableCore:
    """`durably` is for callers that can await, `change` for those that answer at once if they can, and
    `when_durable` for those with a callback."""

    def __init__(
        self, core: LocalQueueManager, store: Store, clock: Callable[[], float], lease_times: LeaseTimes
    ) -> None:
        self.core = core
        self.store = store
        self.clock = clock
        self.leases = LeaseService(core, self.durably, clock, lease_times)
        self._loop: asyncio.AbstractEventLoop
        self._thread: int  # of the event loop
        self._next_look = 0.0  # at the free space
        self._writer = Writer(store)
        self._commits = Commits(core, clock, self._after, self._write)
        self.troubles = Troubles(core, self._commits, self._writer)

    @property
    def storage_error(self) -> str | None:
        """Why the last commit failed, or why there is no room for more messages."""
        return self.core.delivery.full if self._commits.last_error is None else str(self._commits.last_error)

    def change(
        self, operation: Callable[[], T], repeats: Callable[[T], bool] = lambda result: False
    ) -> tuple[T, asyncio.Future[None] | None]:
        """The result of an operation, and what to await before the answer: None if nothing has to be on disk.

        `repeats` says of the result that a duplicate was dropped: the answer then needs the commit under way too.
        Awaiting raises StorageError if the change could not be made durable.
        """
        result, changed = self._commits.run(operation)
        repeated = repeats(result)
        return result, self._durable(repeats=repeated) if changed or repeated else None

    def change_then(
        self,
        operation: Callable[[], T],
        done: Callable[[T, StorageError | None], object],
        repeats: Callable[[T], bool] = lambda result: False,
    ) -> T:
        """Like `change`, for callers without a coroutine: calls `done` with the result, at once if nothing has to be on
        disk, else in the callback of the commit."""
        result, changed = self._commits.run(operation)
        repeated = repeats(result)
        if changed or repeated:
            self._commits.when_durable(lambda error: done(result, error), repeats=repeated)
        else:
            done(result, None)
        return result

    async def durably(self, operation: Callable[[], T], repeats: Callable[[T], bool] = lambda result: False) -> T:
        """Like `change`, but waits."""
        result, durable = self.change(operation, repeats)
        if durable is not None:
            await durable
        return result

    def when_durable(self, done: Callable[[BaseException | None], None], *, repeats: bool = False) -> None:
        """Like Commits.when_durable, in a separate turn of the event loop: a failure in `done` harms no other."""
        self._commits.when_durable(lambda error: self._loop.call_soon(done, error), repeats=repeats)

    def used(self, transaction: UUID | None) -> Transaction | None:
        """The open transaction that a call belongs to, if it names one."""
        return None if transaction is None else self.leases.transaction(transaction)

    def commit_soon(self) -> None:
        """Commits what has gathered, if anything, and does not wait."""
        self._commits.soon()

    async def close_store(self) -> None:
        """Commits what has gathered, and closes the store even if that fails."""
        try:
            await self._durable()
        finally:
            await asyncio.to_thread(self._writer.close)
            self.store.close()

    def _durable(self, *, repeats: bool = False) -> asyncio.Future[None]:
        promise: asyncio.Future[None] = self._loop.create_future()
        self._commits.when_durable(lambda error: _settle(promise, error), repeats=repeats)
        return promise

    def _write(self, batch: Batch, done: Done) -> None:
        def written(error: Exception | None) -> None:
            if error is not None and not isinstance(error, StorageError):
                error = StorageError(f"the store failed: {error!r}")
            if get_ident() == self._thread:
                landed(error)
            else:
                self._loop.call_soon_threadsafe(landed, error)

        def landed(error: StorageError | None) -> None:
            if error is not None or self._loop.time() >= self._next_look:
                self._next_look = self._loop.time() + LOOK_S
                if self.store.no_room() is not None:  # this write took the last space: no further one may follow
                    self.troubles.look(self.clock())
            done(error)

        self._writer.submit(batch, written)

    def _after(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_later(seconds, callback) if seconds else self._loop.call_soon(callback)


def _settle(promise: asyncio.Future[None], error: StorageError | None) -> None:
    if promise.done():
        return  # the caller has left
    if error is None:
        promise.set_result(None)
    else:
        promise.set_exception(error)
