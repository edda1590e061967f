"""Reads that wait: each ends when a message comes, when its client goes away, or when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from postroad.api.problems import HttpFault
from postroad.errors import OperationCancelled

T = TypeVar("T")


class ClientLeft(Exception):
    """The client is gone, so there is no answer to send."""


class Waits:
    """The waiting reads of one server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._stopping = False

    async def run(self, request: Request, read: Coroutine[Any, Any, T]) -> T:
        """The result of `read`. It is cancelled, and receives no message, when its client goes or the server stops."""
        if self._stopping:
            read.close()
            raise _stopped()
        task = asyncio.ensure_future(read)
        gone = asyncio.ensure_future(_disconnected(request.receive))
        self._tasks.add(task)
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._tasks.discard(task)
            gone.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})  # until the messages it had locked are back in their queues
        if not task.cancelled():
            return task.result()
        raise _stopped() if self._stopping else ClientLeft

    async def pause(self, seconds: float) -> None:
        """Returns after so many seconds, or at once when the server stops."""
        if self._stopping:
            return
        task = asyncio.ensure_future(asyncio.sleep(seconds))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._tasks.discard(task)
            task.cancel()

    def stop(self) -> None:
        """Ends every waiting read, and every later one at once."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _stopped() -> HttpFault:
    return HttpFault(HTTPStatus.SERVICE_UNAVAILABLE, OperationCancelled("the server stops; try again later"))
