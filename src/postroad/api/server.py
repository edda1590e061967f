"""The HTTP API on a socket, in the running event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from postroad.api.app import Settings, build_app
from postroad.api.logins import KerberosSettings
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
    """A certificate chain, its key and, if clients need certificates, their authority. All PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ApiServer(Listener):
    """The API of a manager on its own listener. Raises ConfigurationError if it cannot listen, or if the address is not
    loopback and neither a token nor client certificates are set: TLS alone keeps strangers from reading the traffic,
    not from calling. Once it listens, `host` is the address."""

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
        kerberos: KerberosSettings | None = None,
    ) -> None:
        """`credentials` are passwords by user name. With `console_key`, this manager's own console proves that it may
        name the addresses of people."""
        self._token = token
        self._files = tls
        certificates = tls is not None and tls.client_ca is not None
        self._app = build_app(manager, Settings(token, certificates, credentials or {}, console_key, kerberos))
        factory = partial(HttpConnection, self._app)
        super().__init__("api", manager.limits, factory, host, port, supervisor=manager.supervisor, grace_s=GRACE_S)

    @property
    def url(self) -> str:
        return f"{'http' if self._files is None else 'https'}://{self.address}"

    def set_credentials(self, token: str | None, passwords: Mapping[str, str]) -> None:
        """Replaces the token and the passwords. Raises ConfigurationError if other computers could then call without a
        token."""
        certified = self._files is not None and self._files.client_ca is not None
        if token is None and not certified and not is_loopback(self.host):
            raise ConfigurationError("", "api.token", f"is missing: other computers can reach {self.host}")
        self._token = token
        self._app.gate.set_credentials(token, passwords)

    def use_kerberos(self, settings: KerberosSettings) -> None:
        """Takes another keytab, if there was one."""
        if self._app.gate.kerberos is not None:
            self._app.gate.kerberos.use(settings)

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
        """Stops listening. Waiting reads end with 503 and receive nothing. A second call does nothing."""
        self._app.waits.stop()
        await super().stop()
        await self._app.finish(GRACE_S)


def refuse_strangers(host: str, address: str, token: str | None, tls: TlsFiles | None) -> None:
    """Raises ConfigurationError if other computers can reach `address`, which is that of `host`, and callers need no
    credentials."""
    if token is None and (tls is None or tls.client_ca is None) and not is_loopback(address):
        words = "" if tls is None else "; TLS alone does not authenticate callers"
        raise ConfigurationError(
            "",
            "api.token",
            f"is missing: other computers can reach {host}, and could read and delete messages without a "
            f"token{words}; set api.token_file or api.client_ca, or listen on 127.0.0.1",
        )
