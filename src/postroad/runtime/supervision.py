"""Background work that must not end: which tasks run, which are down and why, and the next try.

It serves tasks and timers of one event loop. It does not know what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

RETRY_S = 1.0  # from the end of a task, or a failed step, to the next try
REPEAT_S = 30.0  # between two log lines about one task, which may fail at every try

Running = Callable[[], None]
Work = Callable[[Running], Coroutine[Any, Any, None]]


class Supervisor:
    """Keeps tasks by name. If one ends or raises an error, it logs that, starts the task again, and lists it in `down`
    until it runs."""

    def __init__(self) -> None:
        self.down: dict[str, str] = {}  # by name: why
        self.failures = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._logged_at: dict[str, float] = {}

    def keep(self, name: str, work: Work) -> None:
        """Runs `work` until `stop`, and passes it a function to call once it runs, or runs again: best once in each
        loop."""
        task = asyncio.get_running_loop().create_task(work(lambda: self.runs(name)), name=f"postroad-{name}")
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, work, done))

    def _ended(self, name: str, work: Work, task: asyncio.Task[None]) -> None:
        """The task returned, raised or was cancelled: starts it again."""
        if self._tasks.get(name) is not task:
            return  # stopped
        del self._tasks[name]
        error = asyncio.CancelledError("it was cancelled") if task.cancelled() else task.exception()
        self.fails(name, error or RuntimeError("it ended, although it must run until the server stops"))
        task.get_loop().call_later(RETRY_S, self._restart, name, work)

    def _restart(self, name: str, work: Work) -> None:
        if name in self.down and name not in self._tasks:
            self.keep(name, work)

    async def stop(self, *names: str) -> None:
        """Ends these tasks, or all, and removes them from `down`."""
        for name in names or (*self._tasks, *self.down):
            self.down.pop(name, None)
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    # Steps of timers, and of work that others repeat

    def step(self, name: str, step: Callable[[], object]) -> bool:
        """Runs one step and notes the result. Returns False if the step failed. The next try comes after RETRY_S."""
        try:
            step()
        except Exception as error:
            self.fails(name, error)
            return False
        self.runs(name)
        return True

    def runs(self, name: str) -> None:
        if self.down and self.down.pop(name, None) is not None:
            log.info("background task runs again", extra={"task": name})

    def fails(self, name: str, error: BaseException) -> None:
        """Notes that the work is down. The log gets the error with its traceback, but not at every try."""
        self.failures += 1
        self.down[name] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        now = time.monotonic()
        if now - self._logged_at.get(name, -REPEAT_S) >= REPEAT_S:
            self._logged_at[name] = now
            log.error("background task failed, restarting it", extra={"task": name}, exc_info=error)


# Python's cyclic garbage collector in a process that runs a queue manager.


YOUNG = 50_000  # objects: more than belong to the messages on their way at any time


def relax_collector() -> None:
    """Makes the collector search less often. Messages have no cycles, and are freed as soon as they are used. With
    Python's threshold of 700 objects, each batch of messages would be searched several times. Call this when all
    modules are loaded: they stay, so they need not be searched again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
