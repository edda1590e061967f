"""One HTTP request as far as it has arrived: its head, and ways to read its body.

http.py parses the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.net.http import HttpConnection


SMALL_PIECE = 1024  # bytes: smaller ones are joined, because each costs an object more than the wire


class ClientLeft(Exception):
    """The client is gone, so no answer can be sent."""


class BodyTooLarge(Exception):
    """The body is longer than its reader allows."""


class Request:
    """`target` is the path with its query, as it was sent. `fields` has all headers, and `headers` has the first of
    each name. Names are in lower case."""

    __slots__ = (
        *("_limit", "_pieces", "_taken", "_wake", "answered", "chunks", "complete", "connection", "expects", "fields"),
        *("head_size", "headers", "keep_alive", "length", "lost", "method", "path", "query", "size"),
    )

    def __init__(
        self,
        connection: HttpConnection,
        method: str,
        target: bytes,
        fields: list[tuple[bytes, bytes]],
        headers: Mapping[bytes, str],
        length: int | None,
        *,
        chunks: bool,
        keep_alive: bool,
        head_size: int = 0,
    ) -> None:
        self.connection = connection
        self.method = method
        path, _, self.query = target.partition(b"?")
        self.path = path.decode("latin-1")  # percent-encoded
        self.fields = fields
        self.headers = headers
        self.length = length  # of the body, by its header; None if it comes in chunks
        self.chunks = chunks  # whether the client reads an answer in chunks
        self.keep_alive = keep_alive
        self.expects = chunks and headers.get(b"expect", "").lower() == "100-continue"
        self.head_size = head_size  # bytes of the target and the headers
        self.complete = False
        self.lost = False  # the connection ended
        self.answered = False
        self.size = 0  # bytes of the body that have arrived
        self._taken = 0  # those that the application has taken
        self._pieces: list[bytes] = []
        self._limit = 0
        self._wake: Callable[[], None] | None = None

    def header(self, name: bytes) -> str:
        """The value of a header; empty if the request does not have it."""
        return self.headers.get(name, "")

    @property
    def has_body(self) -> bool:
        return self.length is None or self.length > 0

    # For the application

    def so_far(self) -> bytes:
        """The part of the body that has arrived and is not taken yet. It stays available."""
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def take(self) -> bytes:
        """Takes the part of the body that has arrived and is not taken yet."""
        pieces, self._pieces = self._pieces, []
        self._taken = self.size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def collect(self, limit: int, done: Callable[[], None]) -> None:
        """Calls `done` once the body is complete, longer than `limit`, or lost."""
        self._limit = limit
        if self.complete or self.lost or self.size > limit:
            done()
        else:
            self._wake = done
            self.connection.invite(self)

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge as soon as it is known to be longer than `limit`."""
        if self.length is not None and self.length > limit:
            raise BodyTooLarge
        if not self.complete:
            await self._more(limit)
        if self.size > limit:
            raise BodyTooLarge
        return self.take()

    async def stream(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they arrive. Reads no more from the client until these are taken."""
        while True:
            if self.size > self._taken:
                yield self.take()
            elif self.complete:
                return
            else:
                await self._more(self.size)

    async def _more(self, limit: int) -> None:
        more: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.collect(limit, partial(_set, more))
        await more
        if self.lost:
            raise ClientLeft

    # For the connection

    @property
    def unread(self) -> int:
        """Bytes of the body that wait for an application that does not ask for them."""
        return 0 if self._wake is not None else self.size - self._taken

    def receive(self, piece: bytes) -> None:
        pieces = self._pieces
        if pieces and len(pieces[-1]) + len(piece) <= SMALL_PIECE:
            pieces[-1] += piece
        else:
            pieces.append(piece)
        self.size += len(piece)
        if self._wake is not None and self.size > self._limit:
            self._woken()

    def end(self, *, lost: bool = False) -> None:
        self.complete, self.lost = not lost, lost
        if self._wake is not None:
            self._woken()

    def _woken(self) -> None:
        wake, self._wake = self._wake, None
        assert wake is not None
        wake()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
