"""A coroutine that runs without a task: in the callback that starts it, and on in the callback that has what it awaits.

A task costs two turns of the event loop more: one until it starts, and one until it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Promise(asyncio.Future[T]):
    """A future whose result reaches Steps at once, without a turn of the event loop.

    So set a result only where the caller can bear what follows from it. Tasks wait for it as for any future.
    """

    _then: Callable[[Promise[T]], object] | None = None

    def then(self, go_on: Callable[[Promise[T]], object]) -> None:
        self._then = go_on

    def set_result(self, result: T) -> None:
        super().set_result(result)
        if self._then is not None:
            self._then(self)

    def set_exception(self, exception: type | BaseException) -> None:
        super().set_exception(exception)
        if self._then is not None:
            self._then(self)

    def cancel(self, msg: object = None) -> bool:
        if not super().cancel(msg):
            return False
        if self._then is not None:
            self.get_loop().call_soon(self._then, self)  # after the other callbacks, as a task would go on
        return True


class Steps:
    """Runs a coroutine that handles all of its errors itself. What needs `asyncio.current_task`, such as
    `asyncio.timeout`, does not work in it."""

    __slots__ = ("_awaited", "_cancelled", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, object]) -> None:
        self._coroutine = coroutine
        self._awaited: asyncio.Future[Any] | None = None
        self._cancelled = False

    def go_on(self, awaited: object = None) -> None:
        """The first step, and each one after what it awaited has ended."""
        self._awaited = None
        try:
            if self._cancelled:
                self._cancelled = False
                found = self._coroutine.throw(asyncio.CancelledError())
            else:
                found = self._coroutine.send(None)
        except StopIteration:
            return
        if found is None:  # asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(self.go_on)
            return
        assert asyncio.isfuture(found)
        found._asyncio_future_blocking = False  # as a task says that it waits for it
        self._awaited = found
        if isinstance(found, Promise):
            found.then(self.go_on)
        else:
            found.add_done_callback(self.go_on)

    def cancel(self) -> None:
        """Raises CancelledError where the coroutine waits, as a task does."""
        if self._awaited is None or not self._awaited.cancel():
            self._cancelled = True

    def uncancel(self) -> int:
        """The coroutine has caught it. There is nothing to count here."""
        return 0
