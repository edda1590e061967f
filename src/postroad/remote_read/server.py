"""Remote read as a part of a running queue manager: its listeners, its RPC server and its readers.

The methods are in service.py. handlers.py passes calls to them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial

from postroad.net import ports
from postroad.net.endpoints import endpoint
from postroad.remote_read.handlers import Handlers, ReadManager
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM
from postroad.remote_read.readers import RemoteReaders
from postroad.remote_read.service import RemoteReadService
from postroad.remote_read.structures import MAX_BUFFER
from postroad.remote_read.values import Ports
from postroad.reports.info import LockInfo, ReaderInfo
from postroad.rpc.calls import Limits
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.epm import Offer, Registration, offer
from postroad.rpc.ntlm import NtlmProvider
from postroad.rpc.security import Provider
from postroad.rpc.server import RpcServer
from postroad.security.attempts import Audit, FailedLogins

# A request contains no message. But a request with an lpBuffer of the largest size is valid.
MAX_REQUEST = MAX_BUFFER + 4096
ANNOTATION = "Message Queuing - QMRT V1"


class RemoteReadServer(RemoteReaders):
    """Call `start`, then `stop`. `port` is the port of qmcomm. `read_port` is that of qm2qm; None means the same port.

    Both ports serve both interfaces, as on Windows. If a standard port is taken, the next one 11 higher is tried
    ([MS-MQQP] 3.1.4.8). Any other port is used as given, or `start` fails.
    """

    def __init__(
        self,
        manager: ReadManager,
        host: str,
        port: int,
        read_port: int | None = None,
        *,
        providers: Mapping[int, Provider] | None = None,
        authenticate: bool = False,
        minimum_level: AuthLevel = AuthLevel.INTEGRITY,
        logins: FailedLogins | None = None,
        audit: Audit | None = None,
    ) -> None:
        """With `authenticate`, only users can open a queue. `minimum_level` is the least protection of their calls."""
        self.host = host
        self.minimum_level = minimum_level
        self.service = RemoteReadService(manager.core, partial(secrets.randbits, 32), authenticate=authenticate)
        self.rpc = RpcServer(
            limits=Limits(max_request=MAX_REQUEST),
            shared=manager.limits,
            providers=providers,
            minimum_level=minimum_level,
            logins=logins,
        )
        Handlers(manager, self.service, audit).register(self.rpc)
        self._configured_port = port
        self._configured_read_port = read_port
        self._offer: Offer | None = None

    def set_passwords(self, passwords: Mapping[str, str]) -> bool:
        """Replaces the users who can log in. Users whose login is no longer valid lose their connections. Returns False
        if the server began without users and has to be started again."""
        ntlm = self.rpc.endpoint.providers.get(AuthType.NTLM)
        if not isinstance(ntlm, NtlmProvider):
            return not passwords
        self.rpc.end_logins(ntlm.set_passwords(passwords))
        return True

    @property
    def ports(self) -> Ports:
        return self.service.ports

    @property
    def address(self) -> str:
        return endpoint(self.host, self.ports.handshake)

    @property
    def read_address(self) -> str:
        return endpoint(self.host, self.ports.read)

    @property
    def mapper_address(self) -> str | None:
        """The address of the endpoint mapper that lists this server; None if there is none."""
        return None if self._offer is None else endpoint(self.host, self._offer.port)

    async def start(self) -> None:
        """Starts to listen. OSError if a port is not available; then nothing stays open."""
        try:
            handshake = await self.rpc.listen(
                self.host, self._configured_port, probe=self._configured_port == ports.RPC_HANDSHAKE
            )
            read = handshake
            if self._configured_read_port is not None:
                read = await self.rpc.listen(
                    self.host, self._configured_read_port, probe=self._configured_read_port == ports.RPC_READ
                )
        except OSError:
            await self.rpc.stop()
            raise
        self.service.listen_on(Ports(handshake, read))

    async def register(self, mapper_port: int) -> None:
        """Registers both interfaces with an endpoint mapper: our own, or the one with the port. Call it after
        `start`."""
        registrations = (
            Registration.of(QMCOMM, self.host, self.ports.handshake, ANNOTATION),
            Registration.of(QM2QM, self.host, self.ports.read, ANNOTATION),
        )
        self._offer = await offer(
            registrations, self.host, mapper_port, self.rpc.shared, self.rpc.endpoint.providers, self.rpc.logins
        )

    async def stop(self) -> None:
        """Ends every call and connection. Locked messages are back in their queues afterwards."""
        if self._offer is not None:
            await self._offer.stop()
            self._offer = None
        await self.rpc.stop()
        self.service.listen_on(Ports(0, 0))

    def readers(self) -> list[ReaderInfo]:
        return list(self.service.readers())

    def locks(self, now: float) -> list[LockInfo]:
        return list(self.service.locks(now))

    @property
    def settled(self) -> tuple[int, int]:
        return self.service.received, self.service.returned
