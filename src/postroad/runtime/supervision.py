"""Background work that must not end: who runs, who is down and why, and the next try.

For tasks and timers of one event loop. What the work is, and how it is told to people, is in other rooms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

RETRY_S = 1.0  # between the end of a task or the failure of a step and the next try
REPEAT_S = 30.0  # between two errors of one task in the log: it may fail at every try

Running = Callable[[], None]
Work = Callable[[Running], Coroutine[Any, Any, None]]


class Supervisor:
    """Keeps tasks by name. One that ends or raises is an error in the log, is started again, and is `down` until it
    says that it runs."""

    def __init__(self) -> None:
        self.down: dict[str, str] = {}  # by name: why
        self.failures = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._logged_at: dict[str, float] = {}

    def keep(self, name: str, work: Work) -> None:
        """Runs `work` until `stop`. It is given a function to call when it runs, or runs again: once a turn is
        best."""
        task = asyncio.get_running_loop().create_task(work(lambda: self.runs(name)), name=f"postroad-{name}")
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, work, done))

    def _ended(self, name: str, work: Work, task: asyncio.Task[None]) -> None:
        """It returned, raised, or somebody else has cancelled it: it is started again all the same."""
        if self._tasks.get(name) is not task:
            return  # stopped
        del self._tasks[name]
        error = asyncio.CancelledError("it was cancelled") if task.cancelled() else task.exception()
        self.fails(name, error or RuntimeError("it ended, and it never should"))
        task.get_loop().call_later(RETRY_S, self._again, name, work)

    def _again(self, name: str, work: Work) -> None:
        if name in self.down and name not in self._tasks:
            self.keep(name, work)

    async def stop(self, *names: str) -> None:
        """Ends these tasks, or all; nothing of them is down any more."""
        for name in names or (*self._tasks, *self.down):
            self.down.pop(name, None)
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    # Steps of timers, and of work that somebody else keeps going

    def step(self, name: str, step: Callable[[], object]) -> bool:
        """Runs one step, and notes how it went; False where it failed: the next try comes after RETRY_S."""
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
        """Notes that it is down. The log gets the error with its traceback, though not at every try."""
        self.failures += 1
        self.down[name] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        now = time.monotonic()
        if now - self._logged_at.get(name, -REPEAT_S) >= REPEAT_S:
            self._logged_at[name] = now
            log.error("background task failed, and is started again", extra={"task": name}, exc_info=error)
