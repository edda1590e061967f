"""The HTTP API on a socket: uvicorn in the running event loop. It leaves signals and logs alone."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from postroad.api.app import Settings, build_app
from postroad.api.identity import NamingProtocol
from postroad.errors import ConfigurationError
from postroad.manager import Manager
from postroad.net import ports
from postroad.net.endpoints import endpoint, is_loopback
from postroad.net.http import AcceptingServer
from postroad.runtime.supervision import Running

KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so none sends while we close one
GRACE_S = 10  # time for answers under way once the server stops


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate chain and its key, and the authority for client certificates if they are required; all PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ApiServer:
    """Port 0 means any free one. `start` returns once the server accepts, `stop` once every answer is sent.

    Raises ConfigurationError if it cannot listen, and if an address that is not loopback has neither a token nor client
    certificates. TLS alone keeps strangers from listening in, not from calling.
    """

    def __init__(
        self,
        manager: Manager,
        host: str = "127.0.0.1",
        port: int = ports.API,
        token: str | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._manager = manager
        self._host = host
        self._port = port
        self._token = token
        self._tls = tls
        self._app = build_app(manager, Settings(token, certificates=tls is not None and tls.client_ca is not None))
        self._supervisor = manager.supervisor
        self._server: AcceptingServer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def host(self) -> str:
        """The address it listens on, once it does."""
        return self._host

    @property
    def port(self) -> int:
        """The port it listens on, once it does."""
        return self._port

    @property
    def address(self) -> str:
        """`127.0.0.1:8180`, `[::1]:8180`"""
        return endpoint(self._host, self._port)

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self.address}"

    async def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("the server is running already")
        await self._open()
        self._supervisor.keep(f"api {self.address}", self._serve)

    async def _open(self) -> asyncio.Task[None]:
        config = self._config()
        listener = await self._listen()
        server = AcceptingServer(config, self._manager.limits)
        self._task = task = await server.start(listener, "postroad-api-server")
        self._server = server
        self._host, self._port = listener.getsockname()[:2]
        return task

    async def _serve(self, running: Running) -> None:
        """Runs while the server serves, and starts another one if it ends."""
        task = self._task
        if task is None or task.done():
            task = await self._open()
        running()
        await asyncio.wait({task})
        task.result()

    async def stop(self) -> None:
        """Waiting reads end with 503 and receive nothing. A second call does nothing."""
        if self._task is None or self._server is None:
            return
        await self._supervisor.stop(f"api {self.address}")
        self._app.state.waits.stop()
        self._server.should_exit = True
        await asyncio.wait({self._task})
        self._task = self._server = None

    async def _listen(self) -> socket.socket:
        where = endpoint(self._host, self._port)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise ConfigurationError(
                "", "listen.host", f"must be an address or the name of a host, got {self._host}: {error.strerror}"
            ) from None
        family, kind, protocol, _, address = found[0]
        certified = self._tls is not None and self._tls.client_ca is not None
        if self._token is None and not certified and not is_loopback(str(address[0])):
            tls = "" if self._tls is None else "; TLS alone does not authenticate callers"
            raise ConfigurationError(
                "",
                "api.token",
                f"is missing: other computers can reach {self._host}, and could read and delete messages without a "
                f"token{tls}; set api.token_file or api.client_ca, or listen on 127.0.0.1",
            )
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise ConfigurationError("", "listen.api", f"cannot listen on {where}: {error.strerror}") from error
        return listener

    def _config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._app,
            http=NamingProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=None if self._tls is None else self._tls.certificate,
            ssl_keyfile=None if self._tls is None else self._tls.key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("", "api.tls_certificate", f"cannot be used: {error}") from None
        if self._tls is not None and self._tls.client_ca is not None:
            assert config.ssl is not None
            try:
                config.ssl.load_verify_locations(self._tls.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError("", "api.client_ca", f"cannot be used: {error}") from None
            config.ssl.verify_mode = ssl.CERT_REQUIRED
        return config
