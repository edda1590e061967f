"""The heads of HTTP answers, and how their bodies end ([RFC 9112]). No I/O: sync/transport.py reads the bytes."""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEAD = 0x10000  # bytes
END = b"\r\n\r\n"


class BadAnswer(ConnectionError):
    """The answer is not HTTP, or it ends too early."""


@dataclass(frozen=True, slots=True)
class Head:
    """The names of headers are in lower case. `length` is None for a body that says by itself where it ends: in chunks,
    or with the connection."""

    status: int
    headers: dict[str, str]
    length: int | None
    chunked: bool
    keep_alive: bool

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def read_head(data: bytes) -> Head:
    """The head of an answer, without the empty line at its end."""
    try:
        first, *lines = data.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = int(rest[:3])
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError
            headers[name.lower()] = value.strip()
        if not version.startswith("HTTP/1."):
            raise ValueError
        chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        length: int | None = None
        if status in (204, 304) or status < 200:
            length, chunked = 0, False
        elif not chunked and "content-length" in headers:
            length = _size(headers["content-length"], 10)
    except ValueError:
        raise BadAnswer("the answer is not HTTP") from None
    closes = "close" in headers.get("connection", "").lower() or version == "HTTP/1.0"
    return Head(status, headers, length, chunked, not closes and (chunked or length is not None))


def chunk_size(line: bytes) -> int:
    """Of a line such as `1f4;extension`."""
    try:
        return _size(line.decode("latin-1").partition(";")[0].strip(), 16)
    except ValueError:
        raise BadAnswer("the size of a chunk must be hexadecimal") from None


def _size(text: str, base: int) -> int:
    if not text.isalnum():  # `int` also takes signs and underscores
        raise ValueError
    return int(text, base)
