"""One queue manager as `postroad serve` runs it: manager, queues and listeners, built from a configuration.

Only the composition: how a queue, a store or a protocol works is in its own room.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from postroad.api.server import ApiServer
from postroad.binary.next_hops import KnownManagers, resolver
from postroad.binary.ping_udp import PingClient, PingResponder
from postroad.binary.service import BinaryService
from postroad.binary.settings import CLEANUP_MS, ROUTING_CLEANUP_MS, BinarySettings
from postroad.binary.transport import BinaryTransport
from postroad.config import (
    WITH_RPC,
    Configuration,
    LogLevel,
    RpcLevel,
    SenderIds,
    SrmpSettings,
    StandardPort,
)
from postroad.directory.file import Enterprise, ManagerEntry
from postroad.directory.watch import DirectoryWatch
from postroad.errors import ConfigurationError, PostroadError, RpcUnavailable
from postroad.manager import NAME_STATE, Manager
from postroad.manager.keys import KEY_FILE, StoredKeys, load_keys, open_keys
from postroad.names import DirectName
from postroad.net import ports
from postroad.net.endpoints import endpoint, is_address
from postroad.net.http import HttpConnection
from postroad.net.limits import Limits, usable_descriptors
from postroad.net.listening import Listener
from postroad.queues.collection import AnswerAddresses
from postroad.queues.leases import LeaseTimes
from postroad.queues.owners import Held
from postroad.reports.info import ListenerInfo
from postroad.routing import Router
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.gss import providers
from postroad.runtime.logs import set_level
from postroad.runtime.private_files import refuse_unwritable
from postroad.runtime.supervision import Running
from postroad.security.audit import AuditLog
from postroad.security.keys import KeyRing
from postroad.security.relay import Relay
from postroad.server.console_process import ConsoleProcess
from postroad.server.exposure import RpcFacts, announce, exposure, multicast_exposure
from postroad.server.preparation import Prepared, prepare, refuse_listener
from postroad.server.protection import (
    announce_algorithms,
    build_protection,
    build_users,
)
from postroad.server.provision import provide_all, provide_public
from postroad.server.reload import changed_files, read_again, refuse, report
from postroad.server.restore import refuse_unfinished
from postroad.server.tracing import manager_class
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.listener import SoapApp
from postroad.soap.service import SoapService
from postroad.soap.settings import SoapSettings
from postroad.soap.transport import ClientOptions, SoapTransport
from postroad.store import Batch, MemoryStore, Store, open_store
from postroad.store.inspection import read_state
from postroad.validation.queue_properties import MAX_QUOTA_KB

if TYPE_CHECKING:  # what a configuration can leave out is imported where it starts
    from postroad.remote_read.server import RemoteReadServer
    from postroad.soap.multicast_transport import MulticastTransport

log = logging.getLogger(__name__)

SOAP_GRACE_S = 5.0  # for requests under way once a listener stops
_WILDCARDS = frozenset({"0.0.0.0", "::"})
_LOOPBACK = ("127.0.0.1", "::1")
_LEVELS = {
    RpcLevel.CONNECT: AuthLevel.CONNECT,
    RpcLevel.INTEGRITY: AuthLevel.INTEGRITY,
    RpcLevel.PRIVACY: AuthLevel.PRIVACY,
}


class Server:
    """`start`, then `stop`. A failed start closes everything it opened."""

    def __init__(self, config: Configuration, level: int | None = None) -> None:
        """`level` of the log is one that the configuration does not change."""
        self._config = config
        self._level = level
        self._logged: LogLevel | None = None  # what the configuration has set
        self._prepared: Prepared
        self._enterprise = Enterprise()
        self._published: bytes | None = None  # this manager's keys in the directory, when they were last checked
        self._opened = AsyncExitStack()  # what `stop` closes, the last first
        self._manager: Manager | None = None
        self._api: ApiServer | None = None
        self._binary: BinaryTransport | None = None
        self._ping: PingResponder | None = None
        self._http: Listener | None = None
        self._https: Listener | None = None
        self._soap: SoapTransport | None = None
        self._remote_read: RemoteReadServer | None = None
        self._multicast: MulticastTransport | None = None
        self._console: ConsoleProcess | None = None

    @property
    def ready(self) -> dict[str, object]:
        """The line for when every listener accepts."""
        assert self._manager is not None
        manager = self._manager
        return {"ready": True, "name": manager.name, "id": str(manager.identifier), "listen": self._addresses}

    @property
    def console_url(self) -> str | None:
        return None if self._console is None else self._console.url

    @property
    def _addresses(self) -> dict[str, str]:
        """The address of each listener that is on."""
        listeners = {
            "binary": self._binary,
            "ping": self._ping,
            "http": self._http,
            "https": self._https,
            "api": self._api,
            "console": self._console,
        }
        listen = {name: listener.address for name, listener in listeners.items() if listener is not None}
        if self._remote_read is not None:
            listen["rpc"] = self._remote_read.address
            if self._remote_read.mapper_address is not None:
                listen["epm"] = self._remote_read.mapper_address
        return listen

    async def start(self) -> None:
        """Returns once every listener accepts; else raises ConfigurationError or another PostroadError."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Finishes the answers under way, commits the rest, and closes the store."""
        await self._opened.aclose()
        self._opened = AsyncExitStack()
        self._manager = self._api = self._binary = self._ping = self._http = self._https = self._remote_read = None
        self._soap = self._multicast = self._console = None

    async def check(self) -> None:
        """Raises what `start` would, as far as reading shows it. Nothing is opened, made or changed."""
        config = self._config
        self._prepared = prepared = await prepare(config)
        self._enterprise = prepared.enterprise
        refuse_unfinished(config.data)
        store = MemoryStore()  # with a copy of the state: what a start would do to the queues happens there
        store.commit([Batch(state=dict(await asyncio.to_thread(read_state, config.data)))])
        self._check_audit(lambda file: refuse_unwritable(file, config.data))
        keys = load_keys(config.data / KEY_FILE)
        manager = self._make_manager(manager_class(config, None), store, AuditLog(), keys)
        self._opened.push_async_callback(manager.stop)
        try:
            await manager.start()
            await provide_all(manager, config, self._enterprise)
        finally:
            await self.stop()

    async def _start(self) -> None:
        config = self._config
        self._prepared = prepared = await prepare(config)
        self._enterprise = prepared.enterprise
        entry, reachable = prepared.entry, prepared.reachable
        refuse_unfinished(config.data)
        store = await asyncio.to_thread(open_store, config.data, reserve=True)
        log.info("store opened", extra={"directory": config.data})
        try:
            audit = AuditLog(config.audit.file)
            self._check_audit(lambda file: audit.check())  # after the store: it may be in the data directory
            keys = await asyncio.to_thread(open_keys, config.data / KEY_FILE, time.time())
            manager = self._make_manager(manager_class(config, self._opened), store, audit, keys)
            # A program that opens the directory later by itself then finds the manager under the same name.
            manager.core.tick.set_state(NAME_STATE, manager.name.encode())
        except BaseException:
            store.close()
            raise
        self._manager = manager
        self._opened.push_async_callback(manager.stop)
        manager.limits = self._limits()
        manager.metrics_queues = config.metrics.queues
        await manager.start()
        manager.core.change_users(manager.core.access.users, manager.clock())
        manager.core.queues.local_hosts |= self._own_addresses(entry)
        self._apply(manager)
        for place, reason in store.damaged.items():
            log.warning("damaged record", extra={"record": place, "reason": reason})
        if (watch := prepared.watch) is not None:
            manager.watch = watch
            manager.router = Router(manager.identifier, watch.directory, manager.clock(), config.directory.query_s)
            self._check_own_keys(manager)
            manager.supervisor.keep("directory", partial(self._keep_directory, manager, watch))
            self._opened.push_async_callback(manager.supervisor.stop, "directory")
        await provide_all(manager, config, self._enterprise)
        if config.listen.binary is not None:
            self._binary = await self._start_binary(manager, config.listen.binary)
        if config.listen.ping is not None:
            self._ping = await self._start_ping(manager, config.listen.ping)
        if config.listen.http is not None or config.listen.https is not None:
            await self._start_soap(manager)
        if entry is None:
            manager.core.queues.answers = self._answer_addresses()
        if config.multicast.enabled:
            from postroad.server.multicast import make_multicast

            self._multicast = make_multicast(manager, config)
            self._opened.push_async_callback(self._multicast.stop)
            self._multicast.start()
        if config.listen.rpc is not None:
            await self._start_remote_read(manager, config.listen.rpc, prepared.authenticate_readers)
        if config.listen.api is not None:
            console_key = secrets.token_urlsafe(32)
            self._api = await self._start_api(manager, config.listen.api, console_key)
            self._console = await self._start_console(self._api, reachable, console_key)
        manager.exposure = self._exposure(reachable)
        announce(config, manager.exposure)
        announce_algorithms(config.security)

    async def reload(self) -> None:
        """Reads the configuration again. The log says what was taken; after a fault nothing has changed."""
        manager, found = self._manager, read_again(self._config)
        if manager is None or found is None:
            return
        config, taken, waiting = found
        passwords = {user.name: user.password for user in config.users}
        try:
            prepared = await prepare(config, self._prepared.watch)
            users = build_users(config, manager.identifier)
            if self._api is not None:
                self._api.set_credentials(config.api.token, passwords)
            await provide_all(manager, config, self._enterprise)
        except PostroadError as fault:
            if self._api is not None:
                before = {user.name: user.password for user in self._config.users}
                self._api.set_credentials(self._config.api.token, before)
            refuse(fault)
            return
        if self._remote_read is not None and not self._remote_read.set_passwords(passwords) and "user" in taken:
            waiting.append("user (remote readers log in)")
        files = changed_files(self._prepared.digests, prepared.digests)
        self._config, self._prepared = config, prepared
        manager.core.change_users(users, manager.clock())
        manager.commit_soon()
        manager.core.protection.use_certificates(prepared.certificates)
        self._use_tls()
        if prepared.watch is not None:
            await self._read_directory(manager, prepared.watch, asked=True)
        manager.limits.connections_per_address.maximum = config.limits.connections_per_address
        manager.limits.unfinished_input.maximum = config.limits.unfinished_input_mb << 20
        self._apply(manager)
        manager.exposure = self._exposure(any(each.reachable for each in manager.exposure))
        if self._console is not None:
            self._console.renew(config)
        report([*taken, *(each for each in files if each not in taken)], waiting, prepared.digests)

    def _use_tls(self) -> None:
        """New connections get the new certificates, and existing ones go on."""
        prepared = self._prepared
        if self._api is not None and prepared.api_tls is not None:
            self._api.use_tls(prepared.api_tls)
        if self._https is not None and prepared.https_tls is not None:
            self._https.use_tls(prepared.https_tls)
        if self._soap is not None and prepared.client_tls is not None:
            self._soap.use_tls(prepared.client_tls)

    def _apply(self, manager: Manager) -> None:
        """What counts from now on, at the start and after a reload."""
        config = self._config
        quota_kb = config.manager.quota_kb
        manager.core.delivery.quota_kb = None if quota_kb == MAX_QUOTA_KB else quota_kb
        manager.core.delivery.relay = self._relay(manager)
        manager.core.access.claimed = config.security.sender_ids is SenderIds.CLAIMED
        manager.core.queues.idle.limit = config.limits.outgoing_queues
        for kind in Held:
            most = getattr(config.limits, kind.setting)
            manager.core.owners.maximum[kind] = most << 20 if kind is Held.LOCKED_MB else most
        leases = config.leases
        manager.leases.core.times = LeaseTimes(receive_s=leases.receive_s, transaction_s=leases.transaction_s)
        manager.retention.days = config.manager.keep_journal_days
        level = config.log.level
        if self._level is None and level is not self._logged:
            set_level(logging.INFO if level is None else logging.getLevelNamesMapping()[level.value.upper()])
            self._logged = level

    def _exposure(self, reachable: bool) -> tuple[ListenerInfo, ...]:
        rpc = RpcFacts(False)
        if (server := self._remote_read) is not None:
            other = None if server.read_address == server.address else server.read_address
            offered = (AuthType(each) for each in server.rpc.endpoint.providers if each != AuthType.SPNEGO)
            rpc = RpcFacts(server.service.authenticate, tuple(each.name.lower() for each in offered), other)
        found = exposure(self._config, self._addresses, reachable=reachable, rpc=rpc)
        multicast = None if self._multicast is None else self._multicast.address
        return found if multicast is None else (*found, multicast_exposure(multicast))

    def _make_manager(
        self, make: Callable[..., Manager], store: Store, audit: AuditLog, keys: StoredKeys | None
    ) -> Manager:
        """Without `keys` it will have some, but needs none now."""
        config, prepared = self._config, self._prepared
        ring = KeyRing({}) if keys is None else keys.ring
        manager = make(
            config.manager.name,
            store,
            identifier=prepared.identifier,
            insecure_nacks=config.binary.insecure_nacks,
            hardened_security=config.security.hardened,
            quota_kb=config.manager.quota_kb,
            audit=audit,
            lease_times=LeaseTimes(receive_s=config.leases.receive_s, transaction_s=config.leases.transaction_s),
            protection=build_protection(config.security, ring, prepared.certificates),
            key_file=config.data / KEY_FILE,
            keys_made_at_s=None if keys is None else keys.made_at_s,
        )
        manager.core.access.users = build_users(config, manager.identifier)
        return manager

    def _check_audit(self, check: Callable[[Path], None]) -> None:
        file = self._config.audit.file
        if file is not None:
            try:
                check(file)
            except OSError as error:
                self._config.fail("audit.file", f"{file} cannot be written: {error.strerror}; create its directory")

    def _limits(self) -> Limits:
        """The limits of the configuration, as far as the system allows them."""
        settings = self._config.limits
        limits = Limits(
            settings.connections,
            settings.connections_per_address,
            settings.unfinished_input_mb,
            usable_descriptors(settings.connections),
        )
        if limits.connections.maximum < settings.connections:
            log.warning(
                "limits.connections lowered to the process's descriptor limit",
                extra={"configured": settings.connections, "used": limits.connections.maximum},
            )
        return limits

    def _own_addresses(self, entry: ManagerEntry | None) -> set[str]:
        """Other hosts that mean this manager in a direct name, besides its name."""
        host = self._config.listen.host
        addresses = {*_LOOPBACK} if host in _WILDCARDS else {host.lower()}
        return addresses if entry is None or entry.address is None else {*addresses, entry.address.lower()}

    def _answer_addresses(self) -> AnswerAddresses:
        """Where managers that know no directory find this one: nowhere if it listens on all its addresses."""
        host = self._config.listen.host
        if host in _WILDCARDS:
            return AnswerAddresses()
        binary = None if self._binary is None else f"{'TCP' if is_address(host) else 'OS'}:{host}"
        listener, scheme = (self._http, "HTTP") if self._http is not None else (self._https, "HTTPS")
        return AnswerAddresses(binary, None if listener is None else f"{scheme}://{endpoint(host, listener.port)}/msmq")

    def _relay(self, manager: Manager) -> Relay:
        """The hosts that strangers may make this manager call, with those that applications have sent to before."""
        known = KnownManagers(lambda: manager.router, manager.identifier)
        hosts = {peer.host.lower() for peer in self._config.peers}
        own = manager.core.queues.local_hosts
        relay = Relay(self._config.relay.allow, lambda host: host in hosts or host in own or known.knows(host))
        for destination in manager.core.queues.outgoing:
            if isinstance(destination, DirectName):
                relay.name(destination.host)
        return relay

    # The directory

    async def _keep_directory(self, manager: Manager, watch: DirectoryWatch, running: Running) -> None:
        """Loads a file as soon as it was written: waiting for the timer would only keep wrong routes."""
        while True:
            await asyncio.sleep(self._config.directory.poll_s)
            await self._read_directory(manager, watch)
            running()

    async def _read_directory(self, manager: Manager, watch: DirectoryWatch, *, asked: bool = False) -> None:
        now = manager.clock()
        if await asyncio.to_thread(partial(watch.reload, now, asked=asked)):  # a large file takes a second to read
            self._enterprise = watch.enterprise
            manager.router.initialize(watch.directory, now)
            self._check_own_keys(manager)
            await provide_public(manager, self._config, self._enterprise)
        else:
            manager.router.run_timers(watch.directory, now)

    def _check_own_keys(self, manager: Manager) -> None:
        """Warns if the directory publishes keys that this manager no longer has, or never had."""
        entry = manager.router.directory.manager(manager.identifier)
        published = b"" if entry is None else entry.public_encryption_keys
        if published != self._published and published not in (b"", manager.core.protection.ring.public_keys):
            log.warning(
                "the directory has other public keys of this manager than it uses",
                extra={
                    "file": self._config.directory.file,
                    "do": f"set public_keys of [[manager]] {manager.name} to what `postroad keys show` prints",
                },
            )
        self._published = published

    # Listeners

    async def _start_binary(self, manager: Manager, port: int) -> BinaryTransport:
        config = self._config
        entry = self._enterprise.manager(config.manager.name)
        routing = entry is not None and entry.routing_server
        settings = BinarySettings(
            window_size=config.binary.window_size,
            ack_timeout_ms=config.binary.ack_timeout_ms,
            retry_connect_s=config.binary.retry_connect_s,
            resend_s=config.binary.resend_s,
            cleanup_ms=config.binary.cleanup_ms or (ROUTING_CLEANUP_MS if routing else CLEANUP_MS),
            remote_managers=config.limits.remote_managers,
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
        manager.binary = service
        self._opened.push_async_callback(transport.stop)
        await self._listen("binary", port, transport.start(service))
        log.info("listening", extra={"listener": "binary", "address": transport.address})
        return transport

    async def _start_soap(self, manager: Manager) -> None:
        """Starts the listeners first: receipts must come to their ports."""
        config, srmp = self._config, self._config.srmp
        host = config.listen.host
        manager.core.queues.local_hosts |= {each.lower() for each in srmp.hosts}
        peers = {peer.host.lower(): peer for peer in config.peers}

        def port_of(name: str, port: int) -> int:
            peer = peers.get(name.lower())
            return port if peer is None else {ports.HTTP: peer.http, ports.HTTPS: peer.https}.get(port, port)

        def known(name: str) -> str | None:
            entry = manager.router.directory.manager_named(name)
            return None if entry is None else entry.host

        assert self._prepared.client_tls is not None
        no_proxy = frozenset(each.lower() for each in srmp.no_proxy)
        options = ClientOptions(host, self._prepared.client_tls, srmp.proxy, no_proxy)
        transport = SoapTransport(manager, options, known)
        self._opened.push_async_callback(transport.stop)
        settings = replace(
            soap_settings(srmp),
            remote_managers=config.limits.remote_managers,
            accept_hashes=frozenset(config.security.accept_hashes),
        )
        transport.service = service = SoapService(
            manager.core, settings, transport, port_of, transport.addresses_of, transport.watcher
        )
        factory = partial(HttpConnection, SoapApp(transport))

        def door(name: str, port: int, tls: ssl.SSLContext | None = None) -> Listener:
            return Listener(
                name, manager.limits, factory, host, port, tls=tls, supervisor=manager.supervisor, grace_s=SOAP_GRACE_S
            )

        if config.listen.http is not None:
            self._http = await self._listen_http(door("http", config.listen.http))
        if config.listen.https is not None:
            assert self._prepared.https_tls is not None
            self._https = await self._listen_http(door("https", config.listen.https, self._prepared.https_tls))
        for scheme, listener in (("http", self._http), ("https", self._https)):
            if listener is not None:
                service.outgoing.ports[scheme] = listener.port
                manager.core.queues.http_ports.add(listener.port)
        transport.start()
        manager.soap, self._soap = service, transport

    async def _listen_http(self, listener: Listener) -> Listener | None:
        """None if the configuration does not ask for the standard port, and it is not available."""
        try:
            await listener.start()
        except OSError as error:
            if not isinstance(listener.port, StandardPort):
                self._refuse_listener(f"listen.{listener.name}", f"cannot listen on {listener.address}", error)
            log.warning(
                "not listening", extra={"listener": listener.name, "port": listener.port, "reason": error.strerror}
            )
            return None
        self._opened.push_async_callback(listener.stop)
        log.info("listening", extra={"listener": listener.name, "address": listener.address})
        return listener

    async def _start_ping(self, manager: Manager, port: int) -> PingResponder:
        responder = PingResponder(manager, self._config.listen.host, port)
        self._opened.callback(responder.stop)
        await self._listen("ping", port, responder.start())
        log.info("listening", extra={"listener": "ping", "address": responder.address})
        return responder

    async def _start_remote_read(self, manager: Manager, port: int, authenticate: bool) -> None:
        from postroad.remote_read.server import RemoteReadServer

        config = self._config
        read_port = config.listen.rpc_read
        if read_port == WITH_RPC:
            read_port = ports.RPC_READ if port == ports.RPC_HANDSHAKE else None
        server = RemoteReadServer(
            manager,
            config.listen.host,
            port,
            read_port,
            providers=providers({user.name: user.password for user in config.users}, manager.name),
            authenticate=authenticate,
            minimum_level=_LEVELS[config.rpc.minimum_level],
            logins=manager.logins,
            audit=manager.audit,
        )
        manager.remote_read = server
        await self._listen("rpc", port, server.start())
        self._opened.push_async_callback(server.stop)
        log.info("listening", extra={"listener": "rpc", "address": server.address, "read": server.read_address})
        self._remote_read = server
        if config.listen.epm is not None:
            try:
                await self._listen("epm", config.listen.epm, server.register(config.listen.epm))
            except RpcUnavailable as fault:
                raise PostroadError(f"listen.epm: {fault}") from None
            log.info("listening", extra={"listener": "epm", "address": server.mapper_address})

    async def _listen(self, name: str, port: int, starting: Awaitable[None]) -> None:
        try:
            await starting
        except OSError as error:
            host = self._config.listen.host
            self._refuse_listener(f"listen.{name}", f"cannot listen on {endpoint(host, port)}", error)

    def _refuse_listener(self, key: str, what: str, error: OSError) -> NoReturn:
        refuse_listener(self._config, key, what, error)

    async def _start_api(self, manager: Manager, port: int, console_key: str) -> ApiServer:
        config = self._config
        passwords = {user.name: user.password for user in config.users}
        files = self._prepared.api_files
        api = ApiServer(manager, config.listen.host, port, config.api.token, files, passwords, console_key=console_key)
        if self._prepared.api_tls is not None:
            api.use_tls(self._prepared.api_tls)
        try:
            await api.start()
        except ConfigurationError as fault:
            if isinstance(fault.__cause__, OSError):
                where = endpoint(config.listen.host, port)
                self._refuse_listener(fault.key, f"cannot listen on {where}", fault.__cause__)
            config.fail(fault.key, fault.fault)
        self._opened.push_async_callback(api.stop)
        log.info("listening", extra={"listener": "api", "address": api.url})
        return api

    async def _start_console(self, api: ApiServer, reachable: bool, key: str) -> ConsoleProcess | None:
        console = ConsoleProcess(self._config, api.url, reachable, key)
        try:
            if not await console.start():
                return None
        except OSError as error:
            where = endpoint(self._config.listen.host, self._config.listen.console)
            self._refuse_listener("listen.console", f"cannot listen on {where}", error)
        self._opened.push_async_callback(console.stop)
        return console


def soap_settings(srmp: SrmpSettings) -> SoapSettings:
    """The settings of the configuration in the protocol's form."""
    return SoapSettings(
        retransmission_ms=srmp.retransmission_ms,
        resend_s=srmp.resend_s,
        cleanup_ms=srmp.cleanup_ms,
        clock_tolerance_s=srmp.clock_tolerance_s,
        redirections=Redirections(
            store_and_forward=srmp.store_and_forward,
            inbound=tuple(Redirection(each.source, each.target) for each in srmp.inbound),
            outbound=tuple(Redirection(each.source, each.target) for each in srmp.outbound),
            outbound_exceptions=srmp.outbound_exceptions,
            receipts=tuple(Redirection(each.source, each.target) for each in srmp.receipts),
            default_receipts=srmp.receipts_url or "",
        ),
    )
