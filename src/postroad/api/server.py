"""The HTTP API on a socket: uvicorn within the event loop that is running, without its hands on signals or logs."""

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

KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that none sends into one that is being closed
GRACE_S = 10  # that answers under way have, once the server stops


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate chain and its key, and who vouches for clients where they need a certificate; all PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ApiServer:
    """Port 0 is any free one. `start` returns once the server accepts, `stop` once every answer under way is out.

    Raises ConfigurationError where it may not or cannot listen: an address that is not loopback wants a token or
    certificates of its clients. TLS alone keeps strangers from listening in, not from calling.
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
        """The address that is listened on, once it is."""
        return self._host

    @property
    def port(self) -> int:
        """The port that is listened on, once it is."""
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
        listener = await self._listen()
        server = AcceptingServer(self._config(), self._manager.limits)
        self._task = task = await server.start(listener, "postroad-api-server")
        self._server = server
        self._host, self._port = listener.getsockname()[:2]
        return task

    async def _serve(self, running: Running) -> None:
        """As long as the server serves; where it has ended, another one."""
        task = self._task
        if task is None or task.done():
            task = await self._open()
        running()
        await asyncio.wait({task})
        task.result()

    async def stop(self) -> None:
        """Waiting reads end with 503 and take nothing. A second call does nothing."""
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
            raise ConfigurationError("", "listen.host", f"cannot find {self._host}: {error.strerror}") from None
        family, kind, protocol, _, address = found[0]
        certified = self._tls is not None and self._tls.client_ca is not None
        if self._token is None and not certified and not is_loopback(str(address[0])):
            tls = "" if self._tls is None else ", and TLS alone does not say who calls"
            raise ConfigurationError(
                "",
                "api.token",
                f"is missing: {self._host} can be reached from other computers, and without a token everybody there "
                f"could read and delete messages{tls}; set api.token_file or api.client_ca, or listen on 127.0.0.1",
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
