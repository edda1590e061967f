"""An HTTP server for other rooms: uvicorn on their event loop, with limits on connections, sizes and times.

It knows nothing of the requests and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Generator, Iterable, MutableMapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from postroad.errors import ConfigurationError
from postroad.net.endpoints import endpoint
from postroad.net.limits import REQUEST_S, Admission, Limits
from postroad.net.listening import Acceptor, ReadWatch
from postroad.runtime.supervision import Running, Supervisor

MAX_HEAD = 0x8000  # bytes up to the end of the headers
MAX_HEADERS = 200
MAX_PIPELINED = 16  # requests that may wait for the answers to those before them
KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so none sends while we close one
BYTES_PER_S = 0x10000  # a large request gets one more second for each of these that has come
CYCLE = "postroad.cycle"  # keys in the scope, for the functions below
LEAVING = "postroad.leaving"
USED = "postroad.used"


def server_tls(table: str, certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """What a listener serves; with `client_ca` its clients need certificates. All files are PEM. ConfigurationError
    names the setting in `table` whose file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("", f"{table}.tls_certificate", f"cannot be used: {error}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("", f"{table}.client_ca", f"cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal, and keep the whole manager waiting."""
    raise OSError("the key must not be encrypted")


class AcceptingServer(uvicorn.Server):
    """Signals when it accepts. The owner of the process handles the system's signals."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = [Acceptor(self._limits, sockets or [], self._protocol, self.config.ssl)]  # type: ignore[list-item]
        self.started = True
        self._accepting.set()

    def _protocol(self, admission: Admission) -> asyncio.BaseProtocol:
        protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        assert isinstance(protocol, BoundedHttpProtocol)
        protocol.admitted(self._limits, admission)
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def use_tls(self, context: ssl.SSLContext) -> None:
        self.config.ssl = context
        for acceptor in self.servers:
            acceptor.tls = context  # type: ignore[attr-defined]

    async def start(self, listener: socket.socket, name: str) -> asyncio.Task[None]:
        """The task that serves, once it accepts; closes the listener and raises if it cannot."""
        task = asyncio.create_task(self.serve([listener]), name=name)
        try:
            accepting = asyncio.ensure_future(self._accepting.wait())
            await asyncio.wait({task, accepting}, return_when=asyncio.FIRST_COMPLETED)
            accepting.cancel()
            if task.done():
                await task
                raise RuntimeError("the server ended as soon as it had started")
        except BaseException:
            listener.close()
            raise
        return task


class BoundedHttpProtocol(HttpToolsProtocol):
    """A peer that sends a request too slowly, never ends it, or reads no answer loses its connection, and only that."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits: Limits
        self._admission: Admission
        self._reading: ReadWatch
        self._in_head = True  # from the start of a request to the end of its headers
        self._size = 0  # bytes of the incomplete request
        self._used = 0  # of these, what the application holds no more
        self._begun = False  # a part of a request is here
        self._owed = 0  # answers to complete requests
        self._due = 0.0  # when the next request must be complete
        self._leaving: set[Callable[[], object]] = set()  # what to call when the connection ends
        self._watch: asyncio.TimerHandle | None = None  # one for the connection: it fires early rather than being moved

    def admitted(self, limits: Limits, admission: Admission) -> None:
        self._limits = limits
        self._admission = admission

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = ReadWatch(self._limits, self._admission, transport)
        self._expect(REQUEST_S)
        self._look()
        self._admission.attach(transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._reading.stop()
        self._admission.close()
        super().connection_lost(exc)
        for callback in tuple(self._leaving):
            callback()

    # Input

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._begun:
            self._size = self._used = 0
            self._admission.hold(0)
        elif self._in_head and self._size > MAX_HEAD:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers must have at most {MAX_HEAD} bytes")
        elif self.cycle is None or not self.cycle.response_complete:  # else input is thrown away
            self._admission.hold(self._size - self._used)

    def _use(self, size: int) -> None:
        if self._begun:
            self._used = min(self._used + size, self._size)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at a time")
        self._begun = self._in_head = True
        self._expect(REQUEST_S)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self.scope[CYCLE] = self.cycle  # type: ignore[literal-required]
        self.scope[LEAVING] = self._leaving  # type: ignore[literal-required]
        self.scope[USED] = self._use  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        self._begun = False
        self._size = self._used = 0
        self._owed += 1
        if self._owed > 0:  # else it is answered already
            self._admission.busy()
        super().on_message_complete()

    # Output

    def on_response_complete(self) -> None:
        self._owed -= 1
        self.server_state.total_requests += 1
        if not self.transport.is_closing():  # uvicorn also sets a timer here for each answer: `_look` does its work
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        if self._begun:  # answered before it was complete: the rest is dropped
            self._size = self._used = 0
            self._admission.hold(0)
        if not self.pipeline:
            self._admission.idle()
            self._expect(REQUEST_S if self._begun else self.timeout_keep_alive)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading.stop()

    def refuse(self, status: HTTPStatus, sentence: str) -> None:
        """The last answer of a connection, to a request that the application never sees."""
        body = f"{sentence}\n".encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self.refuse(HTTPStatus.BAD_REQUEST, "must be a valid HTTP request")

    # Time

    def _expect(self, seconds: float) -> None:
        self._due = self.loop.time() + seconds

    def _look(self) -> None:
        if self._owed > 0:
            wait = REQUEST_S
        else:
            wait = self._due + (self._size / BYTES_PER_S if self._begun else 0) - self.loop.time()
        if wait > 0:
            self._watch = self.loop.call_later(wait, self._look)
        elif self._begun:
            self._limits.requests.hit(address=self._admission.address, bytes=self._size)
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "the request was not complete in time")
        else:
            self.transport.close()


async def answer_whole(
    scope: MutableMapping[str, Any], status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> bool:
    """Sends a whole answer in one write, which ASGI needs two for: the client wakes up once. False, and nothing is
    sent, where another server runs the application."""
    cycle: RequestResponseCycle | None = scope.get(CYCLE)
    if cycle is None:
        return False
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if not cycle.disconnected:
        parts = [STATUS_LINE[status]]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        cycle.transport.write(b"".join(parts))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
    return True


def watchers(scope: MutableMapping[str, Any]) -> set[Callable[[], object]]:
    """What the server calls when the client of the request goes away."""
    leaving: set[Callable[[], object]] = scope.get(LEAVING, set())
    return leaving


def used(scope: MutableMapping[str, Any], size: int) -> None:
    """The application is done with so many more bytes of the request's body: they count as unfinished input no more."""
    use: Callable[[int], None] | None = scope.get(USED)
    if use is not None:
        use(size)


def has_left(scope: MutableMapping[str, Any]) -> bool:
    """Whether the client of a request is gone, as far as the server knows."""
    cycle: RequestResponseCycle | None = scope.get(CYCLE)
    return cycle is not None and cycle.disconnected


class HttpListener:
    """One port that serves `app`, and starts another server if one ends. Port 0 means any free one.

    `start` returns once the server accepts, `stop` once every answer is sent.
    """

    protocol: type[BoundedHttpProtocol]
    task: str  # with the address, the name of the task that the supervisor keeps
    table: str  # of the configuration, with the certificate
    grace_s = 5  # time for answers under way once the server stops

    def __init__(
        self,
        app: Any,
        limits: Limits,
        host: str,
        port: int,
        certificate: Path | None = None,
        key: Path | None = None,
        *,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._app = app
        self._limits = limits
        self._certificate = certificate
        self._key = key
        self._client_ca: Path | None = None
        self._tls: ssl.SSLContext | None = None
        self._supervisor = supervisor or Supervisor()
        self._server: AcceptingServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """`127.0.0.1:8180`, `[::1]:8180`"""
        return endpoint(self.host, self.port)

    async def start(self) -> None:
        """OSError if the port is not available; ConfigurationError if the certificate cannot be used."""
        if self._serving is not None:
            raise RuntimeError("the server is running already")
        await self._open()
        self._supervisor.keep(f"{self.task} {self.address}", self._serve)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """New connections get this certificate; those that exist go on as they are."""
        self._tls = context
        if self._server is not None:
            self._server.use_tls(context)

    async def _serve(self, running: Running) -> None:
        """Runs while the server serves, and starts another one if it ends."""
        serving = self._serving
        if serving is None or serving.done():
            serving = await self._open()
        running()
        await asyncio.wait({serving})
        serving.result()

    async def _open(self) -> asyncio.Task[None]:
        server = AcceptingServer(self._config(), self._limits)
        listener = await self._bind()
        self._serving = serving = await server.start(listener, f"postroad-{self.task}-server")
        self._server = server
        self.port = listener.getsockname()[1]
        return serving

    async def stop(self) -> None:
        """A second call does nothing."""
        if self._serving is None or self._server is None:
            return
        await self._supervisor.stop(f"{self.task} {self.address}")
        self._server.should_exit = True
        await asyncio.wait({self._serving})
        self._serving = self._server = None

    async def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return bound(socket.socket(family, socket.SOCK_STREAM), (self.host, self.port))

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._app,
            http=self.protocol,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=self.grace_s,
        )
        config.load()
        if self._tls is None and self._certificate is not None and self._key is not None:
            self._tls = server_tls(self.table, self._certificate, self._key, self._client_ca)
        config.ssl = self._tls
        return config


def bound(listener: socket.socket, address: Any) -> socket.socket:
    """The socket at this address; it is closed if that is not available."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
