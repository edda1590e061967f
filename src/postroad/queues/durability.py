"""How changes become durable: they gather in a tick, one tick at a time is on its way to the disk, and who relies on
it hears how that ended.

Without I/O or clock: whoever drives it gives it the time, an event loop, and somebody who commits batches. Promises,
group commit, failures and room on the disk are decided here, and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from postroad.errors import PostroadError, StorageError
from postroad.queues.tick import Tick
from postroad.runtime.deadlines import EventLoop, Timer
from postroad.store.interface import Committer

if TYPE_CHECKING:
    from postroad.queues.local import LocalQueueManager

log = logging.getLogger(__name__)

# What nobody waits for, such as the end of messages that have arrived elsewhere, shares a commit with what comes next.
UNHURRIED_S = 0.01
ENOUGH = 64  # callers that wait for one commit: it gains nothing by more
LOOK_S = 0.01  # between two looks at the free space: the reserve has room for what is committed meanwhile

T = TypeVar("T")
Done = Callable[[StorageError | None], object]


class Promise(Awaitable[None], Protocol):
    """A future of the event loop."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


def _no_promise() -> Promise:
    raise NotImplementedError("nobody can wait where there is no event loop")


class Durability:
    """`durably` is for callers that can await, `change_then` for those that answer at once if they can, `when_durable`
    for those with a callback, and `soon` for changes that nobody waits for."""

    def __init__(self, core: LocalQueueManager, clock: Callable[[], float]) -> None:
        self.gathered: list[Done] = []  # who waits for the tick that gathers
        self.under_way: list[Done] = []  # who waits for the one that is being written
        self._relying: list[Done] = []  # of those gathered, whose answers depend on the one being written too
        self.last_error: StorageError | None = None  # of the last commit; None where it worked
        self.last_failure: StorageError | None = None
        self.failures = 0
        self._store = core.store
        self._ticks = core.ticks
        self._delivery = core.delivery
        self._clock = clock
        self._committer: Committer
        self._loop: EventLoop
        self._promise: Callable[[], Promise] = _no_promise
        self._in_flight: Tick | None = None
        self._scheduled = False
        self._shared = False  # several have waited for the last commit
        self._seen = 0  # who waited one turn ago
        self._unhurried: Timer | None = None
        self._looked_at = 0.0  # at the free space

    def drive(self, loop: EventLoop, committer: Committer, promise: Callable[[], Promise] = _no_promise) -> None:
        """What runs callbacks later, and who commits, before anything changes; `promise` makes something to await."""
        self._loop, self._committer, self._promise = loop, committer, promise

    @property
    def writing(self) -> bool:
        return self._in_flight is not None

    @property
    def idle(self) -> bool:
        """Nothing is on its way, and nothing has to be."""
        return not (self.writing or self.gathered or self._delivery.tick)

    @property
    def error(self) -> str | None:
        """Why the last commit failed, or why there is no room for more messages."""
        return self._delivery.full if self.last_error is None else str(self.last_error)

    # Change, then answer

    def run(self, operation: Callable[[], T]) -> tuple[T, bool]:
        """The result of an operation, and whether an answer has to wait until the change is durable."""
        tick, writes = self._delivery.tick, self._delivery.tick.writes
        try:
            result = operation()
        except PostroadError:
            if self._delivery.tick:
                self.hurry()  # a refusal may have been told to an administration queue
            raise
        return result, tick.writes != writes

    async def durably(self, operation: Callable[[], T]) -> T:
        """The result of an operation, once what it has changed is durable; StorageError if that failed."""
        result, changed = self.run(operation)
        if changed:
            await self.landed()
        return result

    def landed(self) -> Promise:
        """To await until everything that was changed before this call is durable; StorageError if that failed."""
        promise = self._promise()

        def settle(error: StorageError | None) -> None:
            if promise.done():
                return  # the caller has left
            if error is None:
                promise.set_result(None)
            else:
                promise.set_exception(error)

        self.when_durable(settle)
        return promise

    def change_then(
        self,
        operation: Callable[[], T],
        done: Callable[[T, StorageError | None], object],
        repeats: Callable[[T], bool] = lambda result: False,
    ) -> T:
        """Calls `done` with the result of an operation: at once if nothing has to be on disk, else when it is.

        `repeats` says of the result that a duplicate was dropped: the answer then needs the commit under way too.
        """
        result, changed = self.run(operation)
        repeated = repeats(result)
        if changed or repeated:
            self.when_durable(lambda error: done(result, error), repeats=repeated)
        else:
            done(result, None)
        return result

    def when_durable(self, done: Done, *, repeats: bool = False) -> None:
        """Calls `done` when everything that was changed before this call is on disk, or with the reason it is not.

        With `repeats`, something was dropped as a duplicate of a message that may still be on its way to the disk: then
        `done` also hears of the failure of that commit.
        """
        self.gathered.append(done)
        if repeats and self.writing:
            self._relying.append(done)
        self.hurry()

    def soon(self) -> None:
        """Commits what has gathered, if anything has, without anybody waiting for it."""
        if self._unhurried is None and not self._scheduled and self._in_flight is None and self._delivery.tick:
            self._unhurried = self._loop.call_later(UNHURRIED_S, self.hurry)

    def hurry(self) -> None:
        """Commits what has gathered now, or right after the commit that is under way."""
        if not self._scheduled and self._in_flight is None:
            self._scheduled = True
            self._seen = 0
            self._loop.call_soon(self._gather)
            if self._unhurried is not None:
                self._unhurried.cancel()
                self._unhurried = None

    def _gather(self) -> None:
        """Callers that got their answers together send their next requests together, but not all in one turn of the
        event loop. So after a commit that several have waited for, the next one starts with the first turn that brings
        no more of them. A caller that is alone never waits for others."""
        waiting = len(self.gathered)
        if self._shared and self._seen < waiting < ENOUGH:
            self._seen = waiting
            self._loop.call_soon(self._gather)
        else:
            self._shared = waiting > 1
            self._commit()

    def _commit(self) -> None:
        self._scheduled = False
        promised, self.gathered = self.gathered, []
        try:
            tick = self._ticks.seal(self._clock())
        except StorageError as error:
            self.last_error = error
            self._answer(promised, error)
            self._go_on()
            return
        if tick is None:
            self._answer(promised, None)
            self._go_on()
            return
        self._in_flight, self.under_way = tick, promised
        try:
            self._committer.submit(tick.batch, self._landed)
        except Exception as error:
            if self._in_flight is not tick:
                raise  # it has ended
            self._landed(StorageError(f"the store took no batch: {error!r}"))

    def _landed(self, failure: Exception | None) -> None:
        tick, self._in_flight = self._in_flight, None
        promised, self.under_way = self.under_way, []
        relying, self._relying = self._relying, []
        assert tick is not None
        error = failure
        if error is not None and not isinstance(error, StorageError):
            error = StorageError(f"the store failed: {failure!r}")
        self.last_error = error
        now = self._clock()
        if error is not None or not 0 <= now - self._looked_at < LOOK_S:
            self.look()  # this write may have taken the last space: then no further one may follow
        if error is None:
            self._ticks.committed(tick, now, lambda: self._answer(promised, None))
        else:
            self.failures += 1
            self.last_failure = error
            self._ticks.failed(tick, error, now)
            promised += relying
            self.gathered = [done for done in self.gathered if done not in relying]
            self._answer(promised, error)
        self._go_on()

    def _answer(self, promised: list[Done], error: StorageError | None) -> None:
        """Every caller hears how it ended, also if another one fails at that."""
        for done in promised:
            try:
                done(error)
            except Exception as fault:
                self._delivery.note_failure(None, fault)

    def _go_on(self) -> None:
        """Commits what has gathered meanwhile."""
        if self.gathered:
            self.hurry()
        else:
            self.soon()

    # Room on the disk

    def look(self) -> str | None:
        """Why nothing more is stored; None while there is room. While there is none, nothing is added to the queues."""
        self._looked_at = self._clock()
        before, full = self._delivery.full, self._store.no_room()
        self._delivery.full = full
        if full is not None:
            self._committer.tidy()
            if before is None:
                log.error("disk full", extra={"reason": full})
        elif before is not None:
            log.info("disk has room again")
        return full
