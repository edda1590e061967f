"""One HTTP answer, whole or in pieces, and its head as sent."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import quote

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_URL = ":/%#?=@[]!$&'()*+,;"  # characters of a URL that are not encoded


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
