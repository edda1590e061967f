"""The listeners of `postroad serve`: which ones a configuration opens, in which order, and their addresses.

The protocols are in their own rooms.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Protocol

from postroad.api.logins import KerberosSettings
from postroad.api.server import ApiServer
from postroad.binary.next_hops import KnownManagers, resolver
from postroad.binary.ping_udp import PingClient, PingResponder
from postroad.binary.service import BinaryService
from postroad.binary.session import CLEANUP_MS, ROUTING_CLEANUP_MS, BinarySettings
from postroad.binary.transport import BinaryTransport
from postroad.config import WITH_RPC, Configuration, Encapsulation, RpcLevel, SrmpSettings, StandardPort
from postroad.config import BinarySettings as ConfiguredBinary
from postroad.errors import ConfigurationError, PostroadError, RpcUnavailable
from postroad.manager import Manager
from postroad.net import ports
from postroad.net.endpoints import endpoint, is_address
from postroad.net.http import HttpConnection
from postroad.net.listening import Listener
from postroad.queues.collection import AnswerAddresses
from postroad.reports.info import ListenerInfo
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.gss import KerberosProvider, providers
from postroad.rpc.tickets import Principals
from postroad.server.console_process import ConsoleProcess
from postroad.server.exposure import RpcFacts, exposure, multicast_exposure
from postroad.server.preparation import WILDCARDS, Prepared, refuse_listener
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.requests import Outgoing
from postroad.soap.service import SoapService
from postroad.soap.settings import SoapSettings
from postroad.soap.transport import ClientOptions, SoapTransport

if TYPE_CHECKING:  # optional parts are imported where they start
    from postroad.amqp.listener import AmqpListener, Credentials
    from postroad.remote_read.server import RemoteReadServer
    from postroad.soap.multicast_transport import MulticastTransport

log = logging.getLogger(__name__)

RETRY_S = 0.1  # between two attempts to listen on a port that is in use
STANDARD_S = 5.0  # for which a port that the configuration does not name is waited for
MAPPER_TIMEOUT_S = 2.0  # for the mapper of another program, if the configuration does not ask for one
SOAP_GRACE_S = 5.0  # for requests under way when a listener stops
_LEVELS = {
    RpcLevel.CONNECT: AuthLevel.CONNECT,
    RpcLevel.INTEGRITY: AuthLevel.INTEGRITY,
    RpcLevel.PRIVACY: AuthLevel.PRIVACY,
}


class Accepting(Protocol):
    """A listener that is open."""

    @property
    def address(self) -> str: ...


class Listeners:
    """The listeners of one manager. Call `open` once. `opened` closes what it opens, in reverse order."""

    def __init__(
        self,
        manager: Manager,
        config: Configuration,
        prepared: Prepared,
        opened: AsyncExitStack,
        *,
        patient: bool = False,
    ) -> None:
        """A `patient` one waits for ports that are in use: their process may be one that has just lost its lease."""
        self._patient = patient
        self._manager = manager
        self._config = config
        self._prepared = prepared
        self._opened = opened
        self._reachable = prepared.reachable
        self._accepting: dict[str, Accepting] = {}
        self._tls: list[Callable[[Prepared], None]] = []  # set the certificates of a listener or a client
        self._api: ApiServer | None = None
        self._remote_read: RemoteReadServer | None = None
        self._amqp: AmqpListener | None = None
        self._multicast: MulticastTransport | None = None
        self._console: ConsoleProcess | None = None
        self._kerberos: KerberosProvider | None = None  # of remote readers

    @property
    def console_url(self) -> str | None:
        return None if self._console is None else self._console.url

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each open listener."""
        found = {name: listener.address for name, listener in self._accepting.items()}
        if self._remote_read is not None and self._remote_read.mapper_address is not None:
            found["epm"] = self._remote_read.mapper_address
        return found

    @property
    def exposure(self) -> tuple[ListenerInfo, ...]:
        """Who can reach each listener, and what they may do."""
        rpc = RpcFacts(False)
        if (server := self._remote_read) is not None:
            other = None if server.read_address == server.address else server.read_address
            offered = (AuthType(each) for each in server.rpc.endpoint.providers if each != AuthType.SPNEGO)
            rpc = RpcFacts(server.service.authenticate, tuple(each.name.lower() for each in offered), other)
        found = exposure(self._config, self.addresses, reachable=self._reachable, rpc=rpc)
        multicast = None if self._multicast is None else self._multicast.address
        return found if multicast is None else (*found, multicast_exposure(multicast))

    async def open(self) -> None:
        """Returns once all listeners accept. Raises ConfigurationError or another PostroadError."""
        listen = self._config.listen
        console_key = secrets.token_urlsafe(32)
        if self._patient and listen.api is not None:  # it says what the others wait for
            await self._open_api(listen.api, console_key)
        if listen.binary is not None:
            await self._open_binary(listen.binary)
        if listen.ping is not None:
            await self._open_ping(listen.ping)
        if listen.http is not None or listen.https is not None:
            await self._open_soap()
        if self._prepared.entry is None:
            self._manager.core.queues.use_answers(self._answer_addresses())
        if self._config.multicast.enabled:
            self._open_multicast()
        if listen.rpc is not None:
            await self._open_remote_read(listen.rpc)
        if listen.amqp is not None:
            await self._open_amqp(listen.amqp)
        if listen.api is not None:
            if self._api is None:
                await self._open_api(listen.api, console_key)
            await self._open_console(console_key)
        self._manager.doors.expose(self.exposure)

    # A reload

    def check_credentials(self, config: Configuration) -> None:
        """Gives the API a new token and passwords. Raises ConfigurationError, and keeps the old ones, if the API must
        not run with the new ones."""
        if self._api is None:
            return
        try:
            self._api.set_credentials(config.api.token, passwords_of(config))
        except PostroadError:
            self.restore_credentials()
            raise

    def restore_credentials(self) -> None:
        if self._api is not None:
            self._api.set_credentials(self._config.api.token, passwords_of(self._config))

    def use(self, config: Configuration, prepared: Prepared) -> bool:
        """Uses new certificates for new connections; existing ones go on. Returns False if remote readers cannot log in
        with the new passwords until a restart."""
        self._config, self._prepared = config, prepared
        for use_tls in self._tls:
            use_tls(prepared)
        if self._console is not None:
            self._console.renew(config)
        if self._amqp is not None:
            self._amqp.use(self._amqp_credentials())
        if self._api is not None and (kerberos := self._api_kerberos()) is not None:
            self._api.use_kerberos(kerberos)
        if self._kerberos is not None and prepared.rpc_acceptor is not None:
            self._kerberos.use(prepared.rpc_acceptor)
        return self._remote_read is None or self._remote_read.set_passwords(passwords_of(config))

    # Opening

    def _answer_addresses(self) -> AnswerAddresses:
        """The addresses at which managers without a directory find this one; none if it listens on all its
        addresses."""
        host = self._config.listen.host
        if host in WILDCARDS:
            return AnswerAddresses()
        binary = f"{'TCP' if is_address(host) else 'OS'}:{host}" if "binary" in self._accepting else None
        scheme = next((each for each in ("http", "https") if each in self._accepting), None)
        return AnswerAddresses(binary, None if scheme is None else f"{scheme.upper()}://{self.addresses[scheme]}/msmq")

    async def _open_binary(self, port: int) -> None:
        manager, config = self._manager, self._config
        entry = self._prepared.entry
        settings = binary_settings(
            config.binary, config.limits.remote_managers, routing=entry is not None and entry.routing_server
        )
        peers = {peer.host.lower(): peer for peer in config.peers}

        def binary_port(host: str) -> int:
            return peers[host.lower()].binary if host.lower() in peers else ports.BINARY

        def ping_port(host: str) -> int:
            return peers[host.lower()].ping if host.lower() in peers else ports.PING

        ping_client = PingClient(manager.identifier, ping_port) if config.binary.ping else None
        transport = BinaryTransport(manager, config.listen.host, port, binary_port, ping_client)
        known = KnownManagers(lambda: manager.router, manager.identifier)
        service = BinaryService(
            manager.core, settings, resolver(lambda: manager.router), transport, known, transport.watcher
        )
        manager.doors.open(binary=service)
        self._opened.push_async_callback(transport.stop)
        await self._listen("binary", port, partial(transport.start, service))
        self._accepts("binary", transport)

    async def _open_ping(self, port: int) -> None:
        manager = self._manager
        responder = PingResponder(manager.identifier, manager.doors.binary, self._config.listen.host, port)
        self._opened.callback(responder.stop)
        await self._listen("ping", port, responder.start)
        self._accepts("ping", responder)

    async def _open_soap(self) -> None:
        """Opens the listeners before it sends: receipts come to their ports."""
        manager, config, srmp, prepared = self._manager, self._config, self._config.srmp, self._prepared
        host = config.listen.host
        peers = {peer.host.lower(): peer for peer in config.peers}

        def port_of(name: str, port: int) -> int:
            peer = peers.get(name.lower())
            return port if peer is None else {ports.HTTP: peer.http, ports.HTTPS: peer.https}.get(port, port)

        def known(name: str) -> tuple[str, ...]:
            entry = manager.router.directory.manager_named(name)
            return () if entry is None else entry.hosts

        assert prepared.client_tls is not None
        no_proxy = frozenset(each.lower() for each in srmp.no_proxy)
        transport = SoapTransport(manager, ClientOptions(host, prepared.client_tls, srmp.proxy, no_proxy), known)
        self._opened.push_async_callback(transport.stop)
        settings = soap_settings(srmp, config.limits.remote_managers, config.security.accept_hashes)
        service = SoapService(
            manager.core,
            settings,
            transport,
            port_of,
            transport.addresses_of,
            transport.watcher,
            lambda address: manager.router.directory.first_address(address),
        )
        transport.serve(service)
        self._tls.append(_renewal(transport, lambda prepared: prepared.client_tls))
        factory = partial(HttpConnection, transport)
        for scheme, port in (("http", config.listen.http), ("https", config.listen.https)):
            if port is None:
                continue
            tls = prepared.https_tls if scheme == "https" else None
            listener = Listener(
                scheme,
                manager.limits,
                factory,
                host,
                port,
                tls=tls,
                supervisor=manager.supervisor,
                grace_s=SOAP_GRACE_S,
            )
            if tls is not None:
                self._tls.append(_renewal(listener, lambda prepared: prepared.https_tls))
            if await self._start_http(listener):
                service.outgoing.ports[scheme] = listener.port
                manager.core.queues.http_ports.add(listener.port)
        transport.start()
        manager.doors.open(soap=service)

    async def _start_http(self, listener: Listener) -> bool:
        """Returns False if the standard port is not available and the configuration does not ask for it."""
        try:
            most_s = STANDARD_S if isinstance(listener.port, StandardPort) else None
            await self._persist(listener.name, listener.start, most_s)
        except OSError as error:
            if not isinstance(listener.port, StandardPort):
                refuse_listener(self._config, f"listen.{listener.name}", f"cannot listen on {listener.address}", error)
            log.warning(
                "not listening", extra={"listener": listener.name, "port": listener.port, "reason": error.strerror}
            )
            return False
        self._opened.push_async_callback(listener.stop)
        self._accepts(listener.name, listener)
        return True

    def _open_multicast(self) -> None:
        """It also works without an HTTP listener."""
        from postroad.pgm.settings import PgmSettings
        from postroad.pgm.sockets import TransportOptions
        from postroad.soap.multicast import MulticastService, MulticastSettings, ReceiptSettings
        from postroad.soap.multicast_transport import MulticastTransport

        config, manager = self._config.multicast, self._manager
        udp_port = config.port_udp if config.encapsulation is Encapsulation.UDP else None
        options = TransportOptions(config.interfaces, udp_port, config.hops, config.router_alert)
        transport = MulticastTransport(manager, options)
        pgm = PgmSettings(txw_max_rte=config.rate_kb_s * 1000, txw_secs=float(config.window_s))
        soap = manager.doors.soap
        written = Outgoing(manager.core, Redirections()) if soap is None else soap.outgoing
        service = MulticastService(
            manager.core,
            MulticastSettings(pgm, receipts=ReceiptSettings(config.receipts and soap is not None)),
            transport,
            written,
            secrets.SystemRandom().random,
            transport.watcher,
            frozenset(self._config.security.accept_hashes),
            self._config.srmp.clock_tolerance_s,
        )
        transport.serve(service)
        self._multicast = transport
        manager.doors.open(multicast=service)
        self._opened.push_async_callback(transport.stop)
        transport.start()

    def _api_kerberos(self) -> KerberosSettings | None:
        acceptor = self._prepared.api_acceptor
        if acceptor is None:
            return None
        return KerberosSettings(acceptor, self._principals(), self._config.api.require_channel_binding)

    def _principals(self) -> Principals:
        """Whose tickets count."""
        lookups = self._manager.lookups
        return Principals(lambda: self._manager.core.access.users, None if lookups is None else lookups.accounts)

    async def _open_remote_read(self, port: int) -> None:
        from postroad.remote_read.management import Management
        from postroad.remote_read.server import RemoteReadServer

        manager, config = self._manager, self._config
        read_port = config.listen.rpc_read
        if read_port == WITH_RPC:
            read_port = ports.RPC_READ if port == ports.RPC_HANDSHAKE else None
        if self._prepared.rpc_acceptor is not None:
            self._kerberos = KerberosProvider(self._prepared.rpc_acceptor, self._principals())
        server = RemoteReadServer(
            manager,
            config.listen.host,
            port,
            read_port,
            providers=providers(passwords_of(config), manager.name, self._kerberos, ntlm=config.rpc.ntlm),
            authenticate=self._prepared.authenticate_readers,
            minimum_level=_LEVELS[config.rpc.minimum_level],
            logins=manager.logins,
            audit=manager.audit,
        )
        open_to_all = not (self._prepared.authenticate_readers or self._reachable)
        server.manage(Management(manager, manager.audit, open_to_all=open_to_all))
        manager.doors.open(remote_read=server)
        await self._listen("rpc", port, server.start)
        self._opened.push_async_callback(server.stop)
        self._remote_read = server
        self._accepts("rpc", server, read=server.read_address)
        if config.listen.epm is not None:
            await self._open_mapper(server, config.listen.epm)

    async def _open_amqp(self, port: int) -> None:
        from postroad.amqp.engine import EngineSettings
        from postroad.amqp.listener import AmqpListener

        manager, config, limits = self._manager, self._config, self._config.limits
        settings = EngineSettings(
            manager.name,
            frame_size=limits.amqp_frame_kb << 10,
            sessions=limits.amqp_sessions,
            links=limits.amqp_links,
            idle_s=config.amqp.idle_timeout_s,
        )
        amqp = AmqpListener(
            manager,
            manager.leases.core,
            config.listen.host,
            port,
            settings,
            self._amqp_credentials(),
            self._prepared.amqp_tls,
        )
        manager.doors.open(amqp=amqp.service)
        await self._listen("amqp", port, amqp.start)
        self._opened.push_async_callback(amqp.stop)
        self._amqp = amqp
        self._tls.append(_renewal(amqp, lambda prepared: prepared.amqp_tls))
        self._accepts("amqp", amqp)

    def _amqp_credentials(self) -> Credentials:
        """Who needs no login at the API needs none here."""
        from postroad.amqp.listener import Credentials

        api = self._config.api
        everybody = api.token is None and api.client_ca is None and not self._reachable
        return Credentials(passwords_of(self._config), api.token, everybody)

    async def _open_mapper(self, server: RemoteReadServer, port: int) -> None:
        """A configuration that does not name the port is content without it: most users may not listen there, and the
        mapper of another program may take registrations from its own computer's system alone, as Samba's does."""
        try:
            if isinstance(port, StandardPort):
                await server.register(port, MAPPER_TIMEOUT_S)
            else:
                await self._listen("epm", port, partial(server.register, port))
        except (RpcUnavailable, OSError) as fault:
            if not isinstance(port, StandardPort):
                raise PostroadError(f"listen.epm: {fault}") from None
            log.info("not listening", extra={"listener": "epm", "port": int(port), "reason": fault})
            return
        log.info("listening", extra={"listener": "epm", "address": server.mapper_address})

    async def _open_api(self, port: int, console_key: str) -> None:
        config, prepared = self._config, self._prepared
        host, files = config.listen.host, prepared.api_files
        api = ApiServer(
            self._manager,
            host,
            port,
            config.api.token,
            files,
            passwords_of(config),
            console_key=console_key,
            kerberos=self._api_kerberos(),
        )
        if prepared.api_tls is not None:
            api.use_tls(prepared.api_tls)
        try:
            await self._persist("api", api.start)
        except ConfigurationError as fault:
            if isinstance(fault.__cause__, OSError):
                what = f"cannot listen on {endpoint(host, port)}"
                refuse_listener(config, fault.key, what, fault.__cause__)
            config.fail(fault.key, fault.fault)
        self._opened.push_async_callback(api.stop)
        self._api = api
        self._tls.append(_renewal(api, lambda prepared: prepared.api_tls))
        self._accepting["api"] = api
        log.info("listening", extra={"listener": "api", "address": api.url})

    async def _open_console(self, key: str) -> None:
        assert self._api is not None
        config = self._config
        console = ConsoleProcess(config, self._api.url, self._reachable, key)
        try:
            if not await console.start():
                return
        except OSError as error:
            what = f"cannot listen on {endpoint(config.listen.host, config.listen.console)}"
            refuse_listener(config, "listen.console", what, error)
        self._opened.push_async_callback(console.stop)
        self._console = self._accepting["console"] = console

    async def _persist(self, name: str, start: Callable[[], Awaitable[None]], most_s: float | None = None) -> None:
        """Starts a listener. A patient one tries again while its port is in use, for up to `most_s`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        told = False
        while True:
            try:
                await start()
                return
            except (OSError, ConfigurationError) as error:
                cause = error if isinstance(error, OSError) else error.__cause__
                taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
                if not (taken and self._patient) or (most_s is not None and loop.time() - began > most_s):
                    raise
                if not told:
                    log.warning("waiting for a port that is in use", extra={"listener": name})
                    told = True
            await asyncio.sleep(RETRY_S)

    async def _listen(self, name: str, port: int, start: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._persist(name, start)
        except OSError as error:
            what = f"cannot listen on {endpoint(self._config.listen.host, port)}"
            refuse_listener(self._config, f"listen.{name}", what, error)

    def _accepts(self, name: str, listener: Accepting, **facts: str) -> None:
        self._accepting[name] = listener
        log.info("listening", extra={"listener": name, "address": listener.address, **facts})


def passwords_of(config: Configuration) -> dict[str, str]:
    """Users without a password log in by Kerberos alone."""
    return {user.name: user.password for user in config.users if user.password}


def _renewal(
    listener: ApiServer | AmqpListener | Listener | SoapTransport, certificate: Callable[[Prepared], SSLContext | None]
) -> Callable[[Prepared], None]:
    def renew(prepared: Prepared) -> None:
        context = certificate(prepared)
        if context is not None:
            listener.use_tls(context)

    return renew


def binary_settings(binary: ConfiguredBinary, remote_managers: int, *, routing: bool = False) -> BinarySettings:
    """The settings of the configuration in the protocol's form."""
    return BinarySettings(
        window_size=binary.window_size,
        ack_timeout_ms=binary.ack_timeout_ms,
        retry_connect_s=binary.retry_connect_s,
        resend_s=binary.resend_s,
        cleanup_ms=binary.cleanup_ms or (ROUTING_CLEANUP_MS if routing else CLEANUP_MS),
        remote_managers=remote_managers,
    )


def soap_settings(srmp: SrmpSettings, remote_managers: int, accept_hashes: Iterable[str]) -> SoapSettings:
    """The settings of the configuration in the protocol's form."""
    return SoapSettings(
        retransmission_ms=srmp.retransmission_ms,
        resend_s=srmp.resend_s,
        cleanup_ms=srmp.cleanup_ms,
        clock_tolerance_s=srmp.clock_tolerance_s,
        remote_managers=remote_managers,
        accept_hashes=frozenset(accept_hashes),
        redirections=Redirections(
            store_and_forward=srmp.store_and_forward,
            inbound=tuple(Redirection(each.source, each.target) for each in srmp.inbound),
            outbound=tuple(Redirection(each.source, each.target) for each in srmp.outbound),
            outbound_exceptions=srmp.outbound_exceptions,
            receipts=tuple(Redirection(each.source, each.target) for each in srmp.receipts),
            default_receipts=srmp.receipts_url or "",
        ),
    )
