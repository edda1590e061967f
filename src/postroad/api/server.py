"""The HTTP API on a socket, in the running event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from postroad.api.app import Settings, build_app
from postroad.errors import ConfigurationError
from postroad.manager import Manager
from postroad.net import ports
from postroad.net.endpoints import is_loopback
from postroad.net.http import HttpConnection
from postroad.net.listening import Listener
from postroad.net.tls import server_tls

GRACE_S = 10.0  # for answers under way


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate chain and its key, and the authority for client certificates if they are required; all PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ApiServer(Listener):
    """Raises ConfigurationError if it cannot listen, and if an address that is not loopback has neither a token nor
    client certificates. TLS alone keeps strangers from listening in, not from calling. Once it listens, `host` is the
    address."""

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
        self._app = build_app(manager, Settings(token, certificates, credentials or {}, console_key))
        factory = partial(HttpConnection, self._app)
        super().__init__("api", manager.limits, factory, host, port, supervisor=manager.supervisor, grace_s=GRACE_S)

    @property
    def url(self) -> str:
        return f"{'http' if self._files is None else 'https'}://{self.address}"

    def set_credentials(self, token: str | None, passwords: Mapping[str, str]) -> None:
        """ConfigurationError if other computers could then call without a token."""
        certified = self._files is not None and self._files.client_ca is not None
        if token is None and not certified and not is_loopback(self.host):
            raise ConfigurationError("", "api.token", f"is missing: other computers can reach {self.host}")
        self._token = token
        self._app.gate.set_credentials(token, passwords)

    async def start(self, sockets: Sequence[socket.socket] = ()) -> None:
        where, files = self.address, self._files
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise ConfigurationError(
                "", "listen.host", f"must be an address or the name of a host, got {self.host}: {error.strerror}"
            ) from None
        address = str(found[0][4][0])
        refuse_strangers(self.host, address, self._token, files)
        if self.tls is None and files is not None:
            self.use_tls(server_tls("api", files.certificate, files.key, files.client_ca))
        self.host = address
        try:
            await super().start(sockets)
        except OSError as error:
            raise ConfigurationError("", "listen.api", f"cannot listen on {where}: {error.strerror}") from error

    async def stop(self) -> None:
        """Waiting reads end with 503 and receive nothing. A second call does nothing."""
        self._app.waits.stop()
        await super().stop()
        await self._app.finish(GRACE_S)


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
