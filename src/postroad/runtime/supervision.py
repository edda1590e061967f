"""Keeps background work running: which tasks run, which are down and why, and when to try again.

It serves the tasks and timers of one event loop, and does not know what they do.
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

RETRY_S = 1.0  # from a failure to the next try
REPEAT_S = 30.0  # between two log lines about a task that keeps failing

Running = Callable[[], None]
Work = Callable[[Running], Coroutine[Any, Any, None]]


class Supervisor:
    """Keeps tasks by name. If one ends or raises an error, it logs that, starts the task again, and lists it in `down`
    until it runs."""

    def __init__(self) -> None:
        self.down: dict[str, str] = {}  # the reasons, by name
        self.failures = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._logged_at: dict[str, float] = {}

    def keep(self, name: str, work: Work) -> None:
        """Runs `work` until `stop`. `work` gets a function that it calls to report that it runs, best once in each of
        its loops."""
        task = asyncio.get_running_loop().create_task(work(lambda: self.runs(name)), name=f"postroad-{name}")
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, work, done))

    def _ended(self, name: str, work: Work, task: asyncio.Task[None]) -> None:
        """Starts a task again that returned, raised or was cancelled."""
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
        """Ends these tasks, or all of them, and removes them from `down`."""
        for name in names or (*self._tasks, *self.down):
            self.down.pop(name, None)
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    # Steps of timers, and of work that somebody else repeats

    def step(self, name: str, step: Callable[[], object]) -> bool:
        """Runs one step and notes the result. Returns False if it failed: the next try is then due after RETRY_S."""
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
        """Notes that the work is down. Logs the error with its traceback, but not at every try."""
        self.failures += 1
        self.down[name] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        now = time.monotonic()
        if now - self._logged_at.get(name, -REPEAT_S) >= REPEAT_S:
            self._logged_at[name] = now
            log.error("background task failed, restarting it", extra={"task": name}, exc_info=error)


# Tuning of Python's cyclic garbage collector for a queue manager.


YOUNG = 50_000  # objects: more than the messages in flight have at any time


def relax_collector() -> None:
    """Makes the collector run less often. Messages have no cycles, so Python frees them without it. With Python's
    threshold of 700 objects, the collector would run several times in each batch of messages. Call this once all
    modules are loaded: it also exempts what exists by then from further collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
