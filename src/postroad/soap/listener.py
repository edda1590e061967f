"""The HTTP listener of the SOAP protocol. Every bad request gets 400 and no body.

A request has no task and no turn of the event loop of its own: the callback that has read all of it hands it over, and
the callback that has the answer writes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from postroad.net.endpoints import plain_address
from postroad.net.http import MAX_HEADERS, MAX_PIPELINED, BoundedHttpProtocol, HttpListener
from postroad.net.limits import REQUEST_S
from postroad.soap.multipart import MAX_ENTITY_SIZE
from postroad.soap.receiver import BAD_REQUEST, Incoming

METHOD_NOT_ALLOWED = 405

_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True, eq=False)
class Request:
    """A request as far as it has come."""

    method: bytes
    url: bytes
    address: str  # of the client
    keep_alive: bool
    content_type: str = ""
    length: int = 0  # as its head says
    expects: bool = False  # the client waits for leave to send the body
    refused: int | None = None  # the status of a request that is answered before it is complete
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0


class App(Protocol):
    """Takes the requests of a listener."""

    def refusal(self, request: Request) -> int | None:
        """The status of a request that is refused by its head; None for one whose body is wanted."""

    def incomplete(self, request: Request) -> None:
        """The body is too large, or its sender has gone before the end."""

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        """A whole request. `answer` follows with the status, now or later."""


class SoapProtocol(BoundedHttpProtocol):
    """A peer that trickles a request, or never ends it, loses its connection and nothing else. Requests of one
    connection are answered one after the other.

    Nothing of uvicorn's ASGI cycles is used: they cost more than a message does.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._app: App = self.app
        self._waiting: deque[Request] = deque()  # for the answers to those before them
        self._coming: Request | None = None  # its head is here
        self._current: Request | None = None  # it is complete, and its answer is on the way
        self._stopping = False
        self._address = self._local = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = plain_address(self.client[0]) if self.client else ""
        self._local = self.server[0] if self.server else ""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._waiting.clear()
        if self._coming is not None and self._coming.refused is None:
            self._app.incomplete(self._coming)

    def shutdown(self) -> None:
        """The server stops: a request that is complete gets its answer."""
        self._stopping = True
        if self._current is None:
            self.transport.close()

    # Input

    def on_message_begin(self) -> None:
        if len(self._waiting) >= MAX_PIPELINED:
            raise ValueError("too many requests at a time")
        self._begun = self._in_head = True
        self._expect(REQUEST_S)
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        parser = self.parser
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        request = Request(parser.get_method(), self.url, self._address, keep_alive)
        for name, value in self.headers:
            if name == b"content-type":
                request.content_type = value.decode("latin-1")
            elif name == b"content-length":
                request.length = int(value)
            elif name == b"expect":
                request.expects = value.lower() == b"100-continue"
        self._coming = request
        request.refused = self._app.refusal(request)
        if request.refused is not None:
            self._line_up(request)
        elif request.expects:
            self._invite()

    def on_body(self, body: bytes) -> None:
        request = self._coming
        assert request is not None
        if request.refused is not None:
            return
        request.pieces.append(body)
        request.size += len(body)
        if request.size > MAX_ENTITY_SIZE:
            self._app.incomplete(request)
            request.pieces.clear()
            request.refused = BAD_REQUEST
            self._line_up(request)

    def on_message_complete(self) -> None:
        self._begun = False
        self._size = 0
        request, self._coming = self._coming, None
        assert request is not None
        if request.refused is None:
            self._owed += 1
            self._admission.busy()
            self._line_up(request)

    # Answers

    def _line_up(self, request: Request) -> None:
        if self.transport.is_closing():
            return  # it stands behind the last request that is answered
        if self._current is None and not self._waiting and not self.flow.write_paused:
            self._start(request)
        else:
            self._waiting.append(request)
            self.flow.pause_reading()

    def _start(self, request: Request) -> None:
        self._current = request
        if request.refused is not None:
            self._answer(request, request.refused)
            return
        body = request.pieces[0] if len(request.pieces) == 1 else b"".join(request.pieces)
        incoming = Incoming(request.content_type, body, self._address, self._local)
        self._app.take(incoming, partial(self._answer, request))

    def _answer(self, request: Request, status: int) -> None:
        self._current = None
        if self.transport.is_closing():
            return
        head = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            head += (name, b": ", value, b"\r\n")
        head.append(b"content-length: 0\r\n")
        # What follows a refused head must not be taken for a request.
        closing = not request.keep_alive or request.refused is not None or self._stopping
        if closing:
            head.append(b"connection: close\r\n")
        if status == METHOD_NOT_ALLOWED:
            head.append(b"allow: POST\r\n")
        head.append(b"\r\n")
        self.transport.write(b"".join(head))
        self.server_state.total_requests += 1
        if request.refused is None:
            self._owed -= 1
        if closing:
            self.transport.close()
        else:
            self._go_on()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        """The next request, unless one is being answered or the peer does not read its answers."""
        if self._current is not None or self.flow.write_paused or self.transport.is_closing():
            return
        if self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._admission.idle()
            self._expect(REQUEST_S if self._begun else self.timeout_keep_alive)
            self.flow.resume_reading()
            self._invite()

    def _invite(self) -> None:
        """[RFC 9110] 10.1.1: the peer may send the body, if no answer has to come before that."""
        request = self._coming
        if request is not None and request.expects and self._current is None and not self._waiting:
            request.expects = False
            self.transport.write(_CONTINUE)

    def refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.transport.write(_BAD_REQUEST)
        self.transport.close()


class Listener(HttpListener):
    """One port, with a certificate for HTTPS."""

    protocol = SoapProtocol
    task = "listener"
    table = "srmp"
