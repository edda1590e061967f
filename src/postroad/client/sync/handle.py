# Written by scripts/unasync.py from client/aio/handle.py: edit that one.
"""An open queue and its cursors: a reader that keeps others out, or that walks through a queue at its own pace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from postroad.errors import InvalidHandle, PostroadError
from postroad.values.reading import ReadCall

if TYPE_CHECKING:
    from postroad.client.sync.manager import QueueManager
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the first message."""
        with self.cursor() as cursor:
            return cursor.receive(timeout)

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The first message, which stays."""
        with self.cursor() as cursor:
            return cursor.peek(timeout)

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """A cursor before the first message."""
        if self.closed:
            raise InvalidHandle(f"the queue {self.name} was closed: open it again")
        cursor = Cursor(self._manager, self.handle, self._manager.backend.open_cursor(self.handle))
        try:
            yield cursor
        finally:
            with suppress(PostroadError):  # the handle, the queue or the manager may be gone
                self._manager.backend.close_cursor(self.handle, cursor.number)

    def close(self) -> None:
        """Reads that wait on it end with OperationCancelled. A second call does nothing."""
        if not self.closed and not self._manager.closed:
            self.closed = True
            self._manager.backend.close_queue(self.handle)


class Cursor:
    """A place in a queue, before the first message at first. Reads that found nothing in time raise NoMessage;
    MessageAlreadyReceived says that another reader took the message at this place."""

    __slots__ = ("_handle", "_manager", "number")

    def __init__(self, manager: QueueManager, handle: int, number: int) -> None:
        self._manager = manager
        self._handle = handle
        self.number = number

    def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """The message at the cursor."""
        return self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK, timeout)

    def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """The message behind the cursor, which moves there. IllegalCursorAction before the first `peek`."""
        return self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK_NEXT, timeout)

    def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the message at the cursor; the next read is about the one behind it."""
        return self._manager.backend.read_cursor(self._handle, self.number, ReadCall.RECEIVE, timeout)
