"""One connection to the HTTP listener: uvicorn's own protocol, with limits on the time and the size of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_TIMEOUT_S = 60.0  # for the whole of one request, and for the quiet before it
MAX_HEAD = 0x40000  # bytes that may come before the headers end; the first of the body may be among them
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SoapProtocol(HttpToolsProtocol):
    """A peer that trickles a request, or never ends it, loses its connection and nothing else."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head: int | None = 0  # bytes of it so far; None from the end of the headers to the answer
        self._begun = False  # some of a request is here, and not all
        self._owed = 0  # answers to requests that have come whole
        self._due = 0.0  # when the next one has to be here
        self._watch: asyncio.TimerHandle | None = None  # one for the connection: it fires early rather than being moved

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.send_400_response("")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._begun = True
        self._expect()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._begun = False
        self._owed += 1
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._owed -= 1
        super().on_response_complete()
        if not self.pipeline:
            self._head = 0
            self._expect()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def _expect(self) -> None:
        self._due = self.loop.time() + REQUEST_TIMEOUT_S

    def _look(self) -> None:
        wait = REQUEST_TIMEOUT_S if self._owed > 0 else self._due - self.loop.time()
        if wait > 0:
            self._watch = self.loop.call_later(wait, self._look)
        elif self._begun:
            self.send_400_response("")
        else:
            self.transport.close()
