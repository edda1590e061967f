"""A connection of an HTTP door without sockets: what it makes of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from postroad.net.exchange import Request, Response
from postroad.net.http import App, HttpConnection
from postroad.net.limits import Limits
from postroad.net.listening import Listener


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


Taken = list[tuple[Any, ...]]


class Collecting(App):
    """Takes bodies of up to 1,000 bytes, and answers at once; with `refuse`, before any body."""

    def __init__(self, *, headers: bool = False, refuse: int | None = None) -> None:
        self.taken: Taken = []
        self._headers = headers
        self._refuse = refuse

    def begin(self, request: Request) -> None:
        def collected() -> None:
            if request.complete:
                head = (request.method, request.path, request.query)
                body, fields = request.take(), tuple(request.fields)
                self.taken.append((*head, body, request.headers) if self._headers else (*head, fields, body))
            request.connection.answer(request, Response(b"done"))

        if self._refuse is None:
            request.collect(1000, collected)
        else:
            request.connection.answer(request, Response(status=self._refuse))


def answers(pieces: Iterable[bytes], *, headers: bool = False, refuse: int | None = None) -> tuple[Taken, bytes]:
    """The complete requests in these bytes, as (method, path, query, fields, body), and what is written. With
    `headers`, as (method, path, query, body, headers)."""

    async def run() -> tuple[Taken, bytes]:
        app, limits, transport = Collecting(headers=headers, refuse=refuse), Limits(), Transport()
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
        return app.taken, transport.written

    return asyncio.run(run())


def served(pieces: Iterable[bytes]) -> tuple[Taken, int]:
    """The complete requests in these bytes, and how many answers left."""
    taken, written = answers(pieces)
    return taken, written.count(b"HTTP/1.1 ") - written.count(b"HTTP/1.1 100 ")
