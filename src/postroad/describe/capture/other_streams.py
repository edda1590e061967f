"""Streams of MSMQ's other protocols, cut into what they are made of: HTTP messages and RPC fragments.

This finds where each ends. What is in it is for those who know the protocol.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from postroad.describe.capture.cutter import MAX_ORIGINS, Cutter
from postroad.describe.capture.items import Item, Kind, Origin, OtherPacket, Skipped
from postroad.errors import RemoteProtocolError
from postroad.wire.constants import MAX_PACKET_SIZE

DECIDING_SIZE = 8  # bytes that show the protocol of a stream
MAX_HEAD_SIZE = 64 << 10  # of an HTTP message
MAX_ENTITY_SIZE = 2 * MAX_PACKET_SIZE  # the largest message, its envelope and its other parts
_RPC_HEADER_SIZE = 16
_HTTP = re.compile(rb"HTTP/1\.|(?:POST|GET|HEAD|PUT|OPTIONS|CONNECT|MPOST|M-POST|DELETE) ")
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,19})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)


def kind_of(start: bytes | bytearray) -> Kind | None:
    """The protocol of a stream by its first bytes; None if it is neither of these."""
    if start[:1] == b"\x05" and start[1:2] in (b"\0", b"\x01") and start[4:8] in (b"\x10\0\0\0", b"\0\0\0\0"):
        return Kind.RPC
    return Kind.HTTP if _HTTP.match(start) else None


class StreamCutter:
    """Cuts a stream as its first bytes tell: into packets of sessions, HTTP messages or RPC fragments."""

    def __init__(self, *, pings: bool = False, opening: str | None = None) -> None:
        self._packets = Cutter(pings=pings, opening=opening)  # unless it is another protocol
        self._cutter: Cutter | _OtherCutter | None = None
        self._start = b""
        self._origin = Origin()

    @property
    def buffered(self) -> int:
        return len(self._start) if self._cutter is None else self._cutter.buffered

    @property
    def position(self) -> int:
        return 0 if self._cutter is None else self._cutter.position

    def feed(self, data: bytes, origin: Origin) -> list[Item]:
        if self._cutter is None:
            if not self._start:
                self._origin = origin
            self._start += data
            return self._decide(last=False)
        return self._cutter.feed(data, origin)

    def lose(self, size: int, reason: str | None) -> list[Item]:
        items = self._decide(last=True)
        assert self._cutter is not None
        return items + self._cutter.lose(size, reason)

    def finish(self) -> list[Item]:
        return self.lose(0, None)

    def _decide(self, last: bool) -> list[Item]:
        if self._cutter is not None or (len(self._start) < DECIDING_SIZE and not last):
            return []
        kind = kind_of(self._start)
        self._cutter = self._packets if kind is None else _OtherCutter(kind)
        start, self._start = self._start, b""
        return self._cutter.feed(start, self._origin)


class _OtherCutter:
    """Cuts one stream. After a fault it continues with the next segment that begins a message or a fragment."""

    def __init__(self, kind: Kind) -> None:
        self.position = 0
        self._kind = kind
        self._size = _SIZES[kind]
        self._buffer = bytearray()
        self._wanted: int | None = None  # the size of what the buffer begins with, once its head is there
        self._origins: deque[Origin] = deque()
        self._skipped: Skipped | None = None

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes, origin: Origin) -> list[Item]:
        items: list[Item] = []
        if self._skipped is not None:
            if kind_of(data) is not self._kind:
                self._skip(len(data))
                return []
            items = self._end_of_skipping()
        if len(self._origins) < MAX_ORIGINS:
            self._origins.append(replace(origin, offset=self.position + len(self._buffer)))
        self._buffer += data
        while self._buffer:
            try:
                self._wanted = self._wanted or self._size(self._buffer)
            except RemoteProtocolError as fault:
                self._skipped = Skipped(self._origin(), 0, fault.fault)
                self._skip(len(self._buffer))
                break
            if self._wanted is None or len(self._buffer) < self._wanted:
                break
            items.append(OtherPacket(self._origin(), bytes(self._buffer[: self._wanted]), self._kind))
            self._drop(self._wanted)
        return items

    def lose(self, size: int, reason: str | None) -> list[Item]:
        items = self._end_of_skipping()
        if self._buffer:
            items.append(Skipped(self._origin(), len(self._buffer), f"the {self._kind.value} is cut off here"))
            self._drop(len(self._buffer))
        if size and reason is not None:
            items.append(Skipped(Origin(self.position), size, reason))
            self._skipped = Skipped(Origin(self.position + size), 0, reason)
        self.position += size
        return items

    def _skip(self, size: int) -> None:
        assert self._skipped is not None
        self._skipped = replace(self._skipped, size=self._skipped.size + size)
        if self._buffer:
            self._drop(len(self._buffer))
        else:
            self.position += size

    def _end_of_skipping(self) -> list[Item]:
        skipped, self._skipped = self._skipped, None
        return [skipped] if skipped is not None and skipped.size else []

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self.position += count
        self._wanted = None
        while len(self._origins) > 1 and self._origins[1].offset <= self.position:
            self._origins.popleft()
        if not self._buffer:
            self._origins.clear()

    def _origin(self) -> Origin:
        return replace(self._origins[0] if self._origins else Origin(), offset=self.position)


def _rpc_size(data: bytearray) -> int | None:
    """The size of the fragment that starts here, [C706] 12.6.3.1. None if more bytes are needed."""
    if len(data) < _RPC_HEADER_SIZE:
        return None
    if kind_of(data) is not Kind.RPC:
        raise RemoteProtocolError("this is not an RPC fragment")
    size = int.from_bytes(data[8:10], "little" if data[4] else "big")
    if size < _RPC_HEADER_SIZE:
        raise RemoteProtocolError(f"an RPC fragment must have at least {_RPC_HEADER_SIZE} bytes, got {size}")
    return size


def _http_size(data: bytearray) -> int | None:
    """The size of the message that starts here. None if more bytes are needed."""
    if len(data) >= DECIDING_SIZE and kind_of(data) is not Kind.HTTP:
        raise RemoteProtocolError("this is not an HTTP message")
    end = data.find(_END_OF_HEAD, 0, MAX_HEAD_SIZE)
    if end < 0:
        if len(data) >= MAX_HEAD_SIZE:
            raise RemoteProtocolError(f"the head of an HTTP message must have at most {MAX_HEAD_SIZE} bytes")
        return None
    head = bytes(data[: end + 2])
    if _CHUNKED.search(head):
        raise RemoteProtocolError("an HTTP message in chunks, which MSMQ does not send")
    length = _LENGTH.search(head)
    size = int(length[1]) if length else 0
    if size > MAX_ENTITY_SIZE:
        raise RemoteProtocolError(f"an HTTP message must have at most {MAX_ENTITY_SIZE} bytes, got {size}")
    return end + len(_END_OF_HEAD) + size


_SIZES: dict[Kind, Callable[[bytearray], int | None]] = {Kind.RPC: _rpc_size, Kind.HTTP: _http_size}
