"""How changes become durable. Changes gather in a tick. One tick at a time is written to the disk. Every caller that
waits for a tick then learns whether it was written.

No I/O and no clock here: the driver passes in the time, an event loop and a committer. Promises, group commit, failures
and room on the disk are decided here and nowhere else.
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

# Changes that nobody waits for, such as removing messages that have arrived elsewhere, share the next commit.
UNHURRIED_S = 0.01
ENOUGH = 64  # callers that wait for one commit: waiting for more gains nothing
LOOK_S = 0.01  # between two checks of the free space: the reserve has room for what is committed in between

T = TypeVar("T")
Done = Callable[[StorageError | None], object]


class Promise(Awaitable[None], Protocol):
    """A future of the event loop."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


UNSURE = "it is not known whether another process has taken over the store"


def _no_promise() -> Promise:
    raise NotImplementedError("nobody can wait where there is no event loop")


class Durability:
    """Use `durably` if you can await, `change_then` to answer at once where possible, `when_durable` with a callback,
    and `soon` for changes that nobody waits for."""

    def __init__(self, core: LocalQueueManager, clock: Callable[[], float]) -> None:
        self.gathered: list[Done] = []  # callers that wait for the gathering tick
        self.under_way: list[Done] = []  # callers that wait for the tick that is being written
        self._relying: list[Done] = []  # those of `gathered` that also depend on the tick being written
        self.last_error: StorageError | None = None  # of the last commit; None if it succeeded
        self.last_failure: StorageError | None = None
        self.failures = 0
        self._store = core.store
        self._ticks = core.ticks
        self._delivery = core.delivery
        self._clock = clock
        self._committer: Committer
        self._loop: EventLoop
        self._promise: Callable[[], Promise] = _no_promise
        self._holds: Callable[[], bool] = lambda: True
        self._in_flight: Tick | None = None
        self._scheduled = False
        self._shared = False  # several callers waited for the last commit
        self._seen = 0  # how many callers waited one turn ago
        self._unhurried: Timer | None = None
        self._looked_at = 0.0  # when the free space was last checked

    def drive(
        self,
        loop: EventLoop,
        committer: Committer,
        promise: Callable[[], Promise] = _no_promise,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Sets what runs callbacks later and what commits batches. Call it before anything changes. `promise` makes an
        object to await. While `holds` is false, another process may have taken over the store: what is known here may
        be wrong, so an answer that no commit confirms is an error."""
        self._loop, self._committer, self._promise, self._holds = loop, committer, promise, holds

    @property
    def writing(self) -> bool:
        return self._in_flight is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is being written and nothing waits to be."""
        return not (self.writing or self.gathered or self._delivery.tick)

    @property
    def error(self) -> str | None:
        """Why the last commit failed or there is no room for more messages. None if neither is so."""
        return self._delivery.full if self.last_error is None else str(self.last_error)

    # Change, then answer

    def run(self, operation: Callable[[], T]) -> tuple[T, bool]:
        """Runs an operation. Returns its result, and whether the answer has to wait until the change is durable."""
        tick, writes = self._delivery.tick, self._delivery.tick.writes
        try:
            result = operation()
        except PostroadError:
            if self._delivery.tick:
                self.hurry()  # a refusal may have sent an acknowledgment
            raise
        return result, tick.writes != writes or not self._holds()

    async def durably(self, operation: Callable[[], T]) -> T:
        """Runs an operation and returns its result once its changes are durable. Raises StorageError if they could not
        be stored."""
        result, changed = self.run(operation)
        if changed:
            await self.landed()
        return result

    def landed(self) -> Promise:
        """An object to await: it ends when every change before this call is durable, or raises StorageError."""
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
        """Runs an operation and calls `done` with its result: at once if nothing has changed, otherwise after the
        commit.

        `repeats` tells from the result whether a duplicate was dropped. The answer then also depends on the commit
        under way.
        """
        result, changed = self.run(operation)
        repeated = repeats(result)
        if changed or repeated:
            self.when_durable(lambda error: done(result, error), repeats=repeated)
        else:
            done(result, None)
        return result

    def when_durable(self, done: Done, *, repeats: bool = False) -> None:
        """Calls `done` once every change before this call is on disk, or with the error that prevented it.

        Set `repeats` after dropping a duplicate of a message that may not be on disk yet: `done` then also gets the
        error of the commit under way.
        """
        self.gathered.append(done)
        if repeats and self.writing:
            self._relying.append(done)
        self.hurry()

    def soon(self) -> None:
        """Commits what has gathered, without hurry."""
        if self._unhurried is None and not self._scheduled and self._in_flight is None and self._delivery.tick.writes:
            self._unhurried = self._loop.call_later(UNHURRIED_S, self.hurry)

    def hurry(self) -> None:
        """Commits what has gathered, now or right after the commit under way."""
        if not self._scheduled and self._in_flight is None:
            self._scheduled = True
            self._seen = 0
            self._loop.call_soon(self._gather)
            if self._unhurried is not None:
                self._unhurried.cancel()
                self._unhurried = None

    def _gather(self) -> None:
        """Callers that got their answers together send their next requests together, but not all in one turn of the
        event loop. So if several callers waited for the last commit, the next commit starts after the first turn that
        brings no more callers. A single caller never waits for others."""
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
            self._answer(promised, None if self._holds() else StorageError(UNSURE))
            self._go_on()
            return
        self._in_flight, self.under_way = tick, promised
        try:
            self._committer.submit(tick.batch, self._landed)
        except Exception as error:
            if self._in_flight is not tick:
                raise  # the commit has already ended
            self._landed(StorageError(f"the store accepted no batch: {error!r}"))

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
            self.look()  # this write may have used the last space: then no other may follow
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
        """Tells every caller how the commit ended, even if the callback of another one fails."""
        for done in promised:
            try:
                done(error)
            except Exception as fault:
                self._delivery.note_failure(None, fault)

    def _go_on(self) -> None:
        """Commits what has gathered in the meantime."""
        if self.gathered:
            self.hurry()
        else:
            self.soon()

    # Room on the disk

    def look(self) -> str | None:
        """Checks the room on the disk. Returns why nothing more is stored, or None while there is room. Without room,
        nothing is added to queues."""
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
