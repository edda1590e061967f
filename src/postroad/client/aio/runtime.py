"""The parts of the client that differ between asynchronous and blocking programs, for asynchronous ones."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from postroad.client.payloads import Lane, Outcome, Post

__all__ = ["Cleanups", "caller", "sleep"]


def caller() -> int:
    """Identifies the current task."""
    return id(asyncio.current_task())


class Cleanups:
    """Runs the ends of things that nobody closed, such as an iterator that a loop has dropped. `wait` waits for
    them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(end())
        except RuntimeError:
            return  # the event loop has ended; locks return when their leases end
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


# Joined sends of tasks on one event loop.


@dataclass(slots=True, eq=False)
class _Waiting:
    message: bytes
    ended: asyncio.Future[str]


class JoinedSends:
    """Joins sends: the first caller sends its own message, and a task sends those that arrive in the meantime."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._lanes: defaultdict[str, Lane[_Waiting]] = defaultdict(Lane)
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, name: str, message: bytes) -> str:
        lane = self._lanes[name]
        if lane.busy:
            waiting = _Waiting(message, asyncio.get_running_loop().create_future())
            lane.waiting.append(waiting)
            return await waiting.ended
        lane.busy = True
        try:
            (outcome,) = await self._post(name, [message])
        finally:
            if lane.waiting:
                task = asyncio.ensure_future(self._send_rest(name, lane))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                del self._lanes[name]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _send_rest(self, name: str, lane: Lane[_Waiting]) -> None:
        try:
            while batch := lane.next_batch():
                batch = [each for each in batch if not each.ended.done()]  # the callers of the others have gone
                if batch:
                    _end(batch, await self._outcomes(name, batch))
        finally:
            for each in lane.waiting:
                each.ended.cancel()
            del self._lanes[name]

    async def _outcomes(self, name: str, batch: list[_Waiting]) -> list[Outcome]:
        try:
            return await self._post(name, [each.message for each in batch])
        except Exception as fault:
            return [fault for _ in batch]
        except BaseException:
            for each in batch:
                each.ended.cancel()
            raise


def _end(batch: list[_Waiting], outcomes: list[Outcome]) -> None:
    for each, outcome in zip(batch, outcomes, strict=True):
        if each.ended.done():
            continue  # the caller has gone
        if isinstance(outcome, Exception):
            each.ended.set_exception(outcome)
        else:
            each.ended.set_result(outcome)
