"""HTTP for the SOAP protocol: a bare ASGI app under uvicorn, and a client beside it. The rules are in service.py."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import uvicorn

from postroad.errors import ConfigurationError, StorageError
from postroad.net.endpoints import endpoint, plain_address
from postroad.net.http import AcceptingServer
from postroad.net.limits import Limits
from postroad.queues.outgoing import ConnectionStatus
from postroad.runtime.logs import RateLimitedLog
from postroad.runtime.supervision import RETRY_S, Running, Supervisor
from postroad.soap.client import ClientOptions, Lookup, SoapClient
from postroad.soap.multipart import MAX_ENTITY_SIZE
from postroad.soap.protocol import SoapProtocol
from postroad.soap.receiver import BAD_REQUEST, SERVER_ERROR, Incoming, Outcome
from postroad.soap.service import Peer, Post, SoapService
from postroad.transfer.watching import TransferWatcher

log = logging.getLogger(__name__)

ROOT = "/msmq/"
KEEP_ALIVE_S = 75
GRACE_S = 5  # that answers under way have, once the server stops
METHOD_NOT_ALLOWED = 405

T = TypeVar("T")
_Scope = dict[str, Any]
_Receive = Callable[[], Awaitable[dict[str, Any]]]
_Send = Callable[[dict[str, Any]], Awaitable[None]]


class Host(Protocol):
    """What the transport needs of the queue manager that it belongs to."""

    clock: Callable[[], float]
    supervisor: Supervisor

    def commit_soon(self) -> None: ...

    async def durably(self, operation: Callable[[], T], repeats: Callable[[T], bool]) -> T: ...


class Listener:
    """One port, with a certificate for HTTPS. Port 0 is any free one."""

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
        self._app = app
        self._limits = limits
        self._supervisor = supervisor or Supervisor()
        self._host = host
        self.port = port
        self._certificate = certificate
        self._key = key
        self._server: AcceptingServer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return endpoint(self._host, self.port)

    async def start(self) -> None:
        """OSError where the port cannot be had; ConfigurationError where the certificate cannot be used."""
        await self._open()
        self._supervisor.keep(f"listener {self.address}", self._serve)

    async def _serve(self, running: Running) -> None:
        """As long as the server serves; where it has ended, another one."""
        task = self._task
        if task is None or task.done():
            task = await self._open()
        running()
        await asyncio.wait({task})
        task.result()

    async def _open(self) -> asyncio.Task[None]:
        config = self._config()
        listener = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self.port))
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        server = AcceptingServer(config, self._limits)
        self._task = task = await server.start(listener, "postroad-soap-server")
        self._server = server
        self.port = listener.getsockname()[1]
        return task

    async def stop(self) -> None:
        await self._supervisor.stop(f"listener {self.address}")
        if self._task is not None and self._server is not None:
            self._server.should_exit = True
            await asyncio.wait({self._task})
        self._task = self._server = None

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._app,
            http=SoapProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=self._certificate,
            ssl_keyfile=self._key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("", "srmp.tls_certificate", f"cannot be used: {error}") from None
        return config


class SoapTransport:
    """The Driver of a SoapService on an event loop. `known` finds hosts before the name service is asked.

    `service` is set before a listener uses this as its app; `start` when all of them accept.
    """

    def __init__(self, manager: Host, options: ClientOptions, known: Lookup = lambda host: None) -> None:
        self.manager = manager
        self.service: SoapService
        self._options = options
        self._known = known
        self._client: SoapClient | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = 0.0
        self._not_before = 0.0  # of the next timer, after a failure
        self._refusals = RateLimitedLog(log, "SOAP request refused")
        self._notices: dict[str, RateLimitedLog] = {}
        self.watcher = TransferWatcher(suspicious=self._notice)

    def start(self) -> None:
        service = self.service
        self._client = SoapClient(self._options, self._known, self._answered, self._request_failed)
        service.start(self.manager.clock())
        self.changed()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.manager.supervisor.stop("soap timers")
        if self._client is not None:
            await self._client.stop()

    # Driver

    def post(self, post: Post) -> None:
        assert self._client is not None  # nothing is sent before the start
        self._client.post(post)

    def close(self, peer: Peer) -> None:
        if self._client is not None:
            self._client.close(peer)

    def addresses_of(self, host: str) -> Collection[str]:
        return () if self._client is None else self._client.addresses_of(host)

    def _answered(self, post: Post, status: int) -> None:
        self.service.answered(post, status, self.manager.clock())
        self.changed()

    def _request_failed(self, post: Post, status: ConnectionStatus, error: str) -> None:
        self.service.failed(post, status, error, self.manager.clock())
        self.changed()

    # Requests of others

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """The ASGI app: every answer has an empty body."""
        if scope["type"] != "http":
            return
        status, headers = await self._answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _answer(self, scope: _Scope, receive: _Receive) -> tuple[int, list[tuple[bytes, bytes]]]:
        empty = [(b"content-length", b"0")]
        closing = [*empty, (b"connection", b"close")]  # so that what was not read is not taken for a request
        if scope["method"] != "POST":
            return METHOD_NOT_ALLOWED, [*closing, (b"allow", b"POST")]
        client, server = scope.get("client"), scope.get("server")
        address = plain_address(client[0]) if client else ""
        if scope["path"][: len(ROOT)].lower() != ROOT:
            self._tell(address, f"the path {scope['path'][:80]!r} does not start with {ROOT}")
            return BAD_REQUEST, closing
        content_type = ""
        for name, value in scope["headers"]:
            if name == b"content-type":
                content_type = value.decode("latin-1")
            elif name == b"content-length" and int(value) > MAX_ENTITY_SIZE:
                self._tell(address, f"its Content-Length is more than {MAX_ENTITY_SIZE} bytes")
                return BAD_REQUEST, closing
        body = await _read(receive)
        if body is None:
            self._tell(address, f"it did not come whole, within {MAX_ENTITY_SIZE} bytes and in time")
            return BAD_REQUEST, closing
        incoming = Incoming(content_type, body, address, server[0] if server else "")
        return await self._take(incoming), empty

    async def _take(self, incoming: Incoming) -> int:
        """[MC-MQSRM] 3.1.7.2.5: a 200 says that the message is where it belongs, and durable if it has to be."""

        def received() -> Outcome:
            try:
                return self.service.received(incoming, self.manager.clock())
            finally:
                self.changed()

        try:
            outcome = await self.manager.durably(received, lambda outcome: outcome.repeated)
        except StorageError:  # the sender keeps its message
            return SERVER_ERROR
        except Exception:  # a bug: the sender keeps its message, and somebody reads the log
            log.exception("request not taken")
            return SERVER_ERROR
        if outcome.status == BAD_REQUEST:
            self._tell(incoming.address, outcome.fault)
        return outcome.status

    def _tell(self, address: str, reason: str | None) -> None:
        """What was wrong with a request: its answer has no room for it."""
        self._refusals.warn(self.manager.clock(), {"peer": address, "reason": reason})

    def _notice(self, event: str, facts: Mapping[str, object]) -> None:
        """What somebody ought to look at, and may happen as often as strangers like."""
        notices = self._notices.setdefault(event, RateLimitedLog(log, event, burst=5))
        notices.warn(self.manager.clock(), facts)

    # Time

    def changed(self) -> None:
        """Something happened: there may be something to commit, and the next deadline may be another one."""
        self.manager.commit_soon()
        deadline = self.service.deadline
        if deadline is None or (self._timer is not None and self._armed_at <= deadline):
            return  # a timer that fires early does nothing
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = deadline = max(deadline, self._not_before)
        wait = max(0.0, deadline - self.manager.clock())
        self._timer = asyncio.get_running_loop().call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        clock = self.manager.clock
        if not self.manager.supervisor.step("soap timers", lambda: self.service.on_timer(clock())):
            self._not_before = clock() + RETRY_S  # what failed is still due
        self.changed()


async def _read(receive: _Receive) -> bytes | None:
    """The whole body; None where it is too large, or where its sender has gone."""
    pieces: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        piece = event.get("body", b"")
        size += len(piece)
        if size > MAX_ENTITY_SIZE:
            return None
        pieces.append(piece)
        if not event.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
