"""Reads that wait: each ends when there is a message, when its client goes away, or when the server stops."""

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
    """There is nobody to answer any more."""


class Waits:
    """The reads of one server that wait now."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._stopping = False

    async def run(self, request: Request, read: Coroutine[Any, Any, T]) -> T:
        """What `read` gives. It is cancelled, and so takes no message, once its client is gone or the server stops."""
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
                await asyncio.wait({task})  # until the messages that it had locked are back in their places
        if not task.cancelled():
            return task.result()
        raise _stopped() if self._stopping else ClientLeft

    async def pause(self, seconds: float) -> None:
        """Returns after so many seconds, and at once when the server stops."""
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
        """Ends everything that waits now, and everything that comes."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _stopped() -> HttpFault:
    return HttpFault(
        HTTPStatus.SERVICE_UNAVAILABLE, OperationCancelled("the server stops: read again elsewhere, or later")
    )
