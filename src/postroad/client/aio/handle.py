"""An open queue and its cursors: a reader that keeps others out, or that walks through a queue at its own pace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self

from postroad.errors import InvalidHandle, PostroadError
from postroad.values.reading import ReadCall

if TYPE_CHECKING:
    from postroad.client.aio.manager import QueueManager
    from postroad.received import ReceivedMessage


class OpenQueue:
    """Made by `Queue.open`; a context manager that closes itself. With `exclusive=True` this is the only reader."""

    __slots__ = ("_manager", "closed", "handle", "name")

    def __init__(self, manager: QueueManager, name: str, handle: int) -> None:
        self._manager = manager
        self.name = name
        self.handle = handle
        self.closed = False

    def __repr__(self) -> str:
        return f"<OpenQueue {self.name}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the first message."""
        async with self.cursor() as cursor:
            return await cursor.receive(timeout)

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The first message, which stays."""
        async with self.cursor() as cursor:
            return await cursor.peek(timeout)

    @asynccontextmanager
    async def cursor(self) -> AsyncIterator[Cursor]:
        """A cursor before the first message."""
        if self.closed:
            raise InvalidHandle(f"the queue {self.name} was closed: open it again")
        cursor = Cursor(self._manager, self.handle, await self._manager.backend.open_cursor(self.handle))
        try:
            yield cursor
        finally:
            with suppress(PostroadError):  # the handle, the queue or the manager may be gone
                await self._manager.backend.close_cursor(self.handle, cursor.number)

    async def close(self) -> None:
        """Reads that wait on it end with OperationCancelled. A second call does nothing."""
        if not self.closed and not self._manager.closed:
            self.closed = True
            await self._manager.backend.close_queue(self.handle)


class Cursor:
    """A place in a queue, before the first message at first. Reads that found nothing in time raise NoMessage;
    MessageAlreadyReceived says that another reader took the message at this place."""

    __slots__ = ("_handle", "_manager", "number")

    def __init__(self, manager: QueueManager, handle: int, number: int) -> None:
        self._manager = manager
        self._handle = handle
        self.number = number

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message at the cursor."""
        return await self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK, timeout)

    async def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """The message behind the cursor, which moves there. IllegalCursorAction before the first `peek`."""
        return await self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK_NEXT, timeout)

    async def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the message at the cursor; the next read is about the one behind it."""
        return await self._manager.backend.read_cursor(self._handle, self.number, ReadCall.RECEIVE, timeout)
