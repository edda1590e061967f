"""Remote read as a part of a running queue manager: its listeners, its RPC server and its readers.

The methods are in service.py. The handlers of each protocol, mqqp_handlers.py and mqrr.py, pass calls to them. Another
interface is another subclass of Handlers, and one more line here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from functools import partial

from postroad.net import ports
from postroad.net.endpoints import endpoint
from postroad.remote_read.handlers import Handlers, ReadManager
from postroad.remote_read.management import Management
from postroad.remote_read.mqqp_handlers import MqqpHandlers
from postroad.remote_read.mqrr import MqrrHandlers
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.readers import RemoteReaders
from postroad.remote_read.service import RemoteReadService
from postroad.remote_read.structures import MAX_BUFFER
from postroad.remote_read.values import Ports
from postroad.reports.info import LockInfo, ReaderInfo
from postroad.rpc.calls import Limits
from postroad.rpc.client import CONNECT_TIMEOUT_S
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.epm import Offer, Registration, offer
from postroad.rpc.interface import Interface
from postroad.rpc.ntlm import NtlmProvider
from postroad.rpc.security import Provider
from postroad.rpc.server import RpcServer
from postroad.runtime.logs import RateLimitedLog
from postroad.security.attempts import Audit, FailedLogins

log = logging.getLogger(__name__)

CLEAN_UP_S = 0.5  # awake time counts steps of at most 0.75 s
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
        self.service = RemoteReadService(manager.core, authenticate=authenticate)
        self.rpc = RpcServer(
            limits=Limits(max_request=MAX_REQUEST),
            shared=manager.limits,
            providers=providers,
            minimum_level=minimum_level,
            logins=logins,
            clock=manager.clock,  # that of the API, which counts failed logins too
        )
        self.mqqp = MqqpHandlers(manager, self.service, audit, new_handle=partial(secrets.randbits, 32))
        self.mqrr = MqrrHandlers(manager, self.service, audit, new_context=partial(secrets.randbits, 64))
        self._handlers: tuple[Handlers | Management, ...] = (self.mqqp, self.mqrr)
        for each in self._handlers:
            each.register(self.rpc)
        self._manager = manager
        self._taken_back = RateLimitedLog(log, "remote reader did not acknowledge in time")
        self._clean_up_timer: asyncio.TimerHandle | None = None
        self._configured_port = port
        self._configured_read_port = read_port
        self._offer: Offer | None = None

    def manage(self, management: Management) -> None:
        """Offers MS-MQMR at the same ports. Call it before `start`."""
        management.register(self.rpc)
        self._handlers += (management,)

    def set_passwords(self, passwords: Mapping[str, str]) -> bool:
        """Replaces the users who can log in. Users whose login is no longer valid lose their connections. Returns False
        if the server began without users, so that nobody can log in until it is started again."""
        ntlm = self.rpc.endpoint.providers.get(AuthType.NTLM)
        if not isinstance(ntlm, NtlmProvider):
            return not passwords or AuthType.KERBEROS in self.rpc.endpoint.providers
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
        self._clean_up_timer = asyncio.get_running_loop().call_later(CLEAN_UP_S, self._clean_up)

    async def register(self, mapper_port: int, timeout: float = CONNECT_TIMEOUT_S) -> None:
        """Registers the interfaces with an endpoint mapper: our own, or the one with the port. Call it after
        `start`."""
        registrations = [
            Registration.of(interface, self.host, self._port_of(interface), ANNOTATION)
            for each in self._handlers
            for interface in each.interfaces
        ]
        self._offer = await offer(
            registrations,
            self.host,
            mapper_port,
            self.rpc.shared,
            self.rpc.endpoint.providers,
            self.rpc.logins,
            self.rpc.clock,
            timeout=timeout,
        )

    def _port_of(self, interface: Interface) -> int:
        return self.ports.read if interface is QM2QM else self.ports.handshake

    def _clean_up(self) -> None:
        """Gives back what readers have not acknowledged in time."""
        try:
            for entry in self.service.clean_up(self._manager.clock()):
                remote = entry.remote
                facts = {"queue": remote.path, "address": remote.caller.address, "user": remote.caller.user}
                self._taken_back.warn(self.rpc.clock(), facts)
            self._manager.commit_soon()
        except Exception:  # a bug; the next one comes in time
            log.exception("clean-up of remote reads failed")
        self._clean_up_timer = asyncio.get_running_loop().call_later(CLEAN_UP_S, self._clean_up)

    async def stop(self) -> None:
        """Ends every call and connection. Locked messages are back in their queues afterwards."""
        if self._offer is not None:
            await self._offer.stop()
            self._offer = None
        if self._clean_up_timer is not None:
            self._clean_up_timer.cancel()
        await self.rpc.stop()
        self.service.listen_on(Ports(0, 0))

    def readers(self) -> list[ReaderInfo]:
        return list(self.service.readers())

    def locks(self, now: float) -> list[LockInfo]:
        return list(self.service.locks(now))

    @property
    def settled(self) -> tuple[int, int]:
        return self.service.received, self.service.returned
