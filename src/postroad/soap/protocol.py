"""One connection to the HTTP listener: uvicorn's own protocol, with a limit on how long and how large a head may be."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT_S = 60.0  # from the connection, or from the last answer, to the end of a request's headers
MAX_HEAD = 0x40000  # bytes that may come before the headers end; the first of the body may be among them
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SoapProtocol(HttpToolsProtocol):
    """A peer that trickles a head, or never ends it, loses its connection and nothing else."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head: int | None = 0  # bytes of it so far; None while a request is being answered
        self._too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.send_400_response("")
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._head = None
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and not self.pipeline:
            self._expect_head()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def _expect_head(self) -> None:
        self._head = 0
        self._stop_waiting()
        self._too_slow = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None
