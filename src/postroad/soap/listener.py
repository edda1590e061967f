"""The HTTP listener of the SOAP protocol: uvicorn under a supervisor. Every bad request gets 400 and no body."""

from __future__ import annotations

import asyncio
import socket
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn

from postroad.errors import ConfigurationError
from postroad.net.endpoints import endpoint
from postroad.net.http import AcceptingServer, BoundedHttpProtocol
from postroad.net.limits import Limits
from postroad.runtime.supervision import Running, Supervisor

KEEP_ALIVE_S = 75
GRACE_S = 5  # that answers under way have, once the server stops
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class SoapProtocol(BoundedHttpProtocol):
    """A peer that trickles a request, or never ends it, loses its connection and nothing else."""

    def refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.transport.write(_BAD_REQUEST)
        self.transport.close()


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
