"""A connection of an HTTP door without sockets: what it makes of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from postroad.net.http import App, HttpConnection
from postroad.net.limits import Limits
from postroad.net.listening import Listener
from postroad.net.request import Request
from postroad.net.response import Response


class Transport(asyncio.Transport):
    """Keeps what is written, and tells the protocol of nothing."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 1), "sockname": ("10.0.0.1", 80)})
        self.written = b""
        self._closing = False

    def write(self, data: Any) -> None:
        assert not self._closing, "nothing is written behind the last answer"
        self.written += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """What was cut comes all the same, as it can from a read that was under way."""

    def resume_reading(self) -> None:
        pass


class Collecting(App):
    """Takes bodies of up to 1,000 bytes, and answers at once."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str, bytes, tuple[tuple[bytes, bytes], ...], bytes]] = []

    def begin(self, request: Request) -> None:
        def collected() -> None:
            if request.complete:
                self.taken.append((request.method, request.path, request.query, tuple(request.fields), request.take()))
            request.connection.answer(request, Response(b"done"))

        request.collect(1000, collected)


Taken = list[tuple[str, str, bytes, tuple[tuple[bytes, bytes], ...], bytes]]


def served(pieces: Iterable[bytes]) -> tuple[Taken, int]:
    """The complete requests in these bytes, and how many answers left."""

    async def run() -> tuple[Taken, int]:
        app, limits, transport = Collecting(), Limits(), Transport()
        admission = limits.admit("10.0.0.7", lambda: None)
        assert admission is not None
        connection = HttpConnection(app, Listener("http", limits, lambda *_: connection, "", 0), admission)
        connection.connection_made(transport)
        for piece in pieces:
            if transport.is_closing():
                break
            connection.data_received(piece)
        connection.connection_lost(None)
        assert limits.unfinished_input.current == limits.connections.current == 0
        return app.taken, transport.written.count(b"HTTP/1.1 ") - transport.written.count(b"HTTP/1.1 100 ")

    return asyncio.run(run())
