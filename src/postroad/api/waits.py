"""Reads that wait. Each ends when a message comes, when its client leaves, or when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from postroad.api.problems import HttpFault
from postroad.errors import OperationCancelled
from postroad.net.exchange import ClientLeft, Request

T = TypeVar("T")


class Waits:
    """The waiting reads of one server. A task in `committing` waits no more: its messages leave the queue for good, and
    its client gets them even if the server stops."""

    def __init__(self, committing: Container[asyncio.Task[Any]] = ()) -> None:
        self._committing = committing
        self._ends: set[Callable[[], object]] = set()  # calls that end them
        self._stopping = False

    async def run(self, request: Request, read: Coroutine[Any, Any, T]) -> T:
        """The result of `read`. If the client leaves or the server stops, cancels the read, which then receives no
        message."""
        if self._stopping or request.connection.lost:
            read.close()
            raise _stopped() if self._stopping else ClientLeft
        task = asyncio.current_task()
        assert task is not None
        ended = False  # by this class

        def leave() -> None:
            nonlocal ended
            if not ended:
                ended = True
                task.cancel()

        def end() -> None:
            if task not in self._committing:
                leave()

        self._ends.add(end)
        request.connection.watch(leave)
        try:
            return await read
        except asyncio.CancelledError:
            if not ended:
                raise
            task.uncancel()
            raise (_stopped() if self._stopping else ClientLeft) from None
        finally:
            self._ends.discard(end)
            request.connection.unwatch(leave)

    async def pause(self, seconds: float) -> None:
        """Waits for `seconds`, or until the server stops."""
        if self._stopping:
            return
        task = asyncio.ensure_future(asyncio.sleep(seconds))
        self._ends.add(task.cancel)
        try:
            await asyncio.wait({task})
        finally:
            self._ends.discard(task.cancel)
            task.cancel()

    def stop(self) -> None:
        """Ends every waiting read, and any later one at once."""
        self._stopping = True
        for end in tuple(self._ends):
            end()


def _stopped() -> HttpFault:
    return HttpFault(HTTPStatus.SERVICE_UNAVAILABLE, OperationCancelled("the server stops; try again later"))
