"""What the code of both faces needs of its surroundings, for asynchronous programs."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Leaving", "caller", "sleep"]


def caller() -> int:
    """Who runs: a number of the task."""
    return id(asyncio.current_task())


class Leaving:
    """Ends what was left without a word, such as an iterator that a loop has dropped, and can be waited for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(end())
        except RuntimeError:
            return  # the loop is over: what is locked goes back with its lease
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
