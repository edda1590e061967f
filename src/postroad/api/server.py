"""The HTTP API on a socket: uvicorn in the running event loop. It leaves signals and logs alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from postroad.api.app import Settings, build_app
from postroad.api.protocol import ApiProtocol
from postroad.errors import ConfigurationError
from postroad.manager import Manager
from postroad.net import ports
from postroad.net.endpoints import is_loopback
from postroad.net.http import HttpListener, bound


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate chain and its key, and the authority for client certificates if they are required; all PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ApiServer(HttpListener):
    """Raises ConfigurationError if it cannot listen, and if an address that is not loopback has neither a token nor
    client certificates. TLS alone keeps strangers from listening in, not from calling. Once it listens, `host` is the
    address."""

    protocol = ApiProtocol
    task = table = "api"
    grace_s = 10

    def __init__(
        self,
        manager: Manager,
        host: str = "127.0.0.1",
        port: int = ports.API,
        token: str | None = None,
        tls: TlsFiles | None = None,
        credentials: Mapping[str, str] | None = None,
        *,
        console_key: str | None = None,
    ) -> None:
        """`credentials` are the passwords of the users by name. `console_key` is what this manager's own console proves
        with that it names the address of a person."""
        self._token = token
        self._files = tls
        certificates = tls is not None and tls.client_ca is not None
        app = build_app(manager, Settings(token, certificates, credentials or {}, console_key))
        files = (None, None) if tls is None else (tls.certificate, tls.key)
        super().__init__(app, manager.limits, host, port, *files, supervisor=manager.supervisor)
        self._client_ca = None if tls is None else tls.client_ca

    @property
    def url(self) -> str:
        return f"{'http' if self._files is None else 'https'}://{self.address}"

    def set_credentials(self, token: str | None, passwords: Mapping[str, str]) -> None:
        """ConfigurationError if other computers could then call without a token."""
        certified = self._client_ca is not None
        if token is None and not certified and not is_loopback(self.host):
            raise ConfigurationError("", "api.token", f"is missing: other computers can reach {self.host}")
        self._token = token
        self._app.gate.set_credentials(token, passwords)

    async def stop(self) -> None:
        """Waiting reads end with 503 and receive nothing. A second call does nothing."""
        if self._serving is not None:
            self._app.waits.stop()
        await super().stop()

    async def _bind(self) -> socket.socket:
        where = self.address
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise ConfigurationError(
                "", "listen.host", f"must be an address or the name of a host, got {self.host}: {error.strerror}"
            ) from None
        family, kind, protocol, _, address = found[0]
        refuse_strangers(self.host, str(address[0]), self._token, self._files)
        try:
            listener = bound(socket.socket(family, kind, protocol), address)
        except OSError as error:
            raise ConfigurationError("", "listen.api", f"cannot listen on {where}: {error.strerror}") from error
        self.host = listener.getsockname()[0]
        return listener


def refuse_strangers(host: str, address: str, token: str | None, tls: TlsFiles | None) -> None:
    """ConfigurationError if other computers could reach `address`, that of `host`, and nothing says who calls."""
    if token is None and (tls is None or tls.client_ca is None) and not is_loopback(address):
        words = "" if tls is None else "; TLS alone does not authenticate callers"
        raise ConfigurationError(
            "",
            "api.token",
            f"is missing: other computers can reach {host}, and could read and delete messages without a "
            f"token{words}; set api.token_file or api.client_ca, or listen on 127.0.0.1",
        )
