"""One HTTP request as far as it has arrived, with ways to read its body, and the response to it, whole or in pieces.

http.py parses and sends the bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from postroad.net.http import HttpConnection


SMALL_PIECE = 1024  # bytes: smaller ones are joined, because each costs an object more than the wire
HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_URL = ":/%#?=@[]!$&'()*+,;"  # characters of a URL that are not encoded


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


class Response:
    """If `pieces` is set, it yields the body and `body` is not used. `over` is called once the answer has ended, for
    whatever reason. The names in `headers` are in lower case."""

    __slots__ = ("body", "headers", "media_type", "over", "pieces", "status")

    def __init__(
        self,
        body: bytes = b"",
        status: int = HTTPStatus.OK,
        media_type: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        pieces: AsyncGenerator[bytes, None] | AsyncGenerator[bytes | memoryview, None] | None = None,
        over: Callable[[], None] | None = None,
    ) -> None:
        self.body = body
        self.status = int(status)  # members of an enumeration are slower to look up
        self.media_type = media_type
        self.headers = dict(headers) if headers else {}
        self.pieces = pieces
        self.over = over

    def head(self, ending: bytes) -> bytes:
        """The head as bytes. `ending` holds the headers that say how the body ends, and whether the connection
        closes."""
        start = _start(self.status, self.media_type)
        if self.headers:
            start += b"".join([_line(name, value) for name, value in self.headers.items()])
        return b"%b%bdate: %b\r\n\r\n" % (start, ending, _date(int(time.time())))


def text(content: str, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    return Response(content.encode(), status, TEXT, headers)


def redirect(url: str) -> Response:
    """Sends the browser to another page, which it requests with GET."""
    return Response(status=HTTPStatus.SEE_OTHER, headers={"location": quote(url, safe=_URL)})


@lru_cache(256)
def _start(status: int, media_type: str) -> bytes:
    kind = f"content-type: {media_type}\r\n" if media_type else ""
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{kind}".encode("latin-1")


def _line(name: str, value: str) -> bytes:
    if "\r" in value or "\n" in value:
        raise ValueError(f"the header {name} must be one line")
    return f"{name}: {value}\r\n".encode("latin-1")


@lru_cache(1)
def _date(now: int) -> bytes:
    return formatdate(now, usegmt=True).encode()
