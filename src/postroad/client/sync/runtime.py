"""The parts of the client that differ between asynchronous and blocking programs, for programs without an event
loop."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from threading import Event, Lock, Thread
from threading import get_ident as caller
from time import sleep

from postroad.client.payloads import Lane, Outcome, Post
from postroad.errors import OperationCancelled

__all__ = ["Cleanups", "caller", "sleep"]


class Cleanups:
    """Runs the ends of things that nobody closed, such as an iterator that a loop has dropped. `wait` waits for
    them."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []

    def run(self, end: Callable[[], None]) -> None:
        """Runs `end` at once. If Python calls this on the thread of an event loop, which must not block, uses another
        thread."""
        if not _on_a_loop():
            end()
            return
        thread = Thread(target=end, name="postroad-cleanup")
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()


def _on_a_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # do not import it: that takes time that a short program may not have
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Joined sends of threads. Their coroutines never wait for an event loop, so `CallerThread` runs them.


INTERRUPTED = "the thread that sent the message was interrupted, and it is not known whether it was sent"


class _Waiting:
    """A thread that waits for its outcome, or for its turn to send a batch."""

    __slots__ = ("batch", "message", "outcome", "ready")

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.ready = Event()
        self.outcome: Outcome | None = None
        self.batch: list[_Waiting] | None = None


class JoinedSends:
    """Joins sends without a thread of its own: one of the waiting threads sends for all."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._lock = Lock()
        self._lanes: defaultdict[str, Lane[_Waiting]] = defaultdict(Lane)

    async def send(self, name: str, message: bytes) -> str:
        waiting = None
        with self._lock:
            lane = self._lanes[name]
            if lane.busy:
                waiting = _Waiting(message)
                lane.waiting.append(waiting)
            lane.busy = True
        outcome = await (self._send_own(name, message) if waiting is None else self._wait(name, waiting))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _send_own(self, name: str, message: bytes) -> Outcome:
        try:
            (outcome,) = await self._post(name, [message])
        finally:
            self._hand_over(name)
        return outcome

    async def _wait(self, name: str, waiting: _Waiting) -> Outcome:
        try:
            waiting.ready.wait()
        except BaseException:  # such as an interrupt
            self._leave(name, waiting)
            raise
        if waiting.batch is not None:
            await self._send_batch(name, waiting.batch)
        assert waiting.outcome is not None
        return waiting.outcome

    async def _send_batch(self, name: str, batch: list[_Waiting]) -> None:
        outcomes: list[Outcome] = [OperationCancelled(INTERRUPTED) for _ in batch]
        try:
            outcomes = await self._post(name, [each.message for each in batch])
        except Exception as fault:
            outcomes = [fault for _ in batch]
        finally:
            self._hand_over(name)
            for each, outcome in zip(batch, outcomes, strict=True):
                each.outcome = outcome
                each.ready.set()

    def _hand_over(self, name: str) -> None:
        """Ends a request: the first waiting thread sends the next batch."""
        with self._lock:
            lane = self._lanes[name]
            batch = lane.next_batch()
            if not batch:
                del self._lanes[name]
                return
            batch[0].batch = batch
            batch[0].ready.set()

    def _leave(self, name: str, waiting: _Waiting) -> None:
        """Removes a thread that gives up waiting. If it was its turn to send, another thread takes over."""
        with self._lock:
            lane = self._lanes[name]
            if waiting in lane.waiting:
                lane.waiting.remove(waiting)
                return
            batch = waiting.batch
            if batch is None:
                return  # its message is being sent
            lane.waiting.extendleft(reversed(batch[1:]))
        self._hand_over(name)
