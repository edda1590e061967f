"""One queue manager as `postroad serve` runs it: manager, queues and listeners.

Only puts the parts together: queues, store and protocols are in their own rooms.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from postroad.config import Configuration, LogLevel
from postroad.directory.watch import Watch
from postroad.errors import PostroadError
from postroad.manager import NAME_STATE, Manager, build_manager
from postroad.manager.composition import build_limits, core_settings
from postroad.manager.keys import KEY_FILE, StoredKeys, load_keys, open_keys
from postroad.net.limits import Limits, usable_descriptors
from postroad.runtime.logs import set_level
from postroad.runtime.private_files import refuse_unwritable
from postroad.runtime.supervision import Running
from postroad.security.audit import AuditLog
from postroad.server.exposure import announce
from postroad.server.joining import Membership, check_join, join
from postroad.server.listeners import Listeners
from postroad.server.preparation import Prepared, account_reader, own_hosts, prepare
from postroad.server.protection import announce_algorithms
from postroad.server.provision import provide_all, provide_public
from postroad.server.reload import changed_files, read_again, refuse, report
from postroad.server.restore import refuse_unfinished
from postroad.server.shared_store import (
    SharedStore,
    kept_keys,
    key_seal,
    open_kept_keys,
    read_shared_state,
)
from postroad.server.tracing import manager_class
from postroad.store import Batch, MemoryStore, Store, open_store
from postroad.store.database import make_directory
from postroad.store.inspection import read_state

log = logging.getLogger(__name__)

GIVE_UP_S = 5.0  # for which a stop waits for a database that is away


class Server:
    """A queue manager with its listeners. Call `start`, then `stop`. A failed start closes everything it opened."""

    def __init__(self, config: Configuration, level: int | None = None, shared: SharedStore | None = None) -> None:
        """A `level` for the log overrides the configuration. `shared` is the store in a database, for the process that
        holds its lease."""
        self._config = config
        self._shared = shared
        self._level = level
        self._logged: LogLevel | None = None  # as the configuration has set it
        self._prepared: Prepared
        self._published: bytes | None = None  # this manager's keys in the directory, at the last check
        self._directory_asked = asyncio.Event()  # read the directory now
        self._provide_again = False  # a public queue changed here while the directory was read
        self._opened = AsyncExitStack()  # what `stop` closes, in reverse order
        self._running: tuple[Manager, Listeners] | None = None

    @property
    def manager(self) -> Manager:
        """The manager. Only between `start` and `stop`."""
        assert self._running is not None
        return self._running[0]

    @property
    def ready(self) -> dict[str, object]:
        """The line to print once every listener accepts."""
        assert self._running is not None
        manager, listeners = self._running
        return {"ready": True, "name": manager.name, "id": str(manager.identifier), "listen": listeners.addresses}

    @property
    def config(self) -> Configuration:
        """The configuration, as the last reload left it."""
        return self._config

    @property
    def console_url(self) -> str | None:
        return None if self._running is None else self._running[1].console_url

    async def start(self) -> None:
        """Returns once every listener accepts. Raises ConfigurationError or another PostroadError."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Finishes the answers under way, commits what is left, and closes the store."""
        giving_up = None
        if self._shared is not None:  # a database that is away must not keep the process from its end
            giving_up = asyncio.get_running_loop().call_later(GIVE_UP_S, self._shared.give_up)
        try:
            await self._opened.aclose()
        finally:
            if giving_up is not None:
                giving_up.cancel()
            self._opened = AsyncExitStack()
            self._running = None

    async def check(self) -> None:
        """Raises what `start` would raise, as far as reading can tell. Changes nothing."""
        config = self._config
        prepared = await prepare(config, keep=False)
        self._close_later(prepared.watch)
        try:
            store = MemoryStore()  # a copy of the state, in which to try what a start does to the queues
            store.commit([Batch(state=dict(await asyncio.to_thread(self._read_state)))])
            self._check_audit(lambda file: refuse_unwritable(file, config.data))
            if config.directory.publish:
                prepared = replace(prepared, identifier=await check_join(config, store))
            keys = load_keys(config.data / KEY_FILE) if config.store.url is None else kept_keys(config, store)
            manager = self._build(
                manager_class(config, None), prepared, store, AuditLog(), keys, build_limits(config.limits)
            )
            self._opened.push_async_callback(manager.stop)
            await manager.start()
            await provide_all(manager, config, prepared.directory)
        finally:
            await self.stop()

    async def _start(self) -> None:
        config = self._config
        self._prepared = prepared = await prepare(config)
        self._close_later(prepared.watch)
        store: Store
        if self._shared is None:
            refuse_unfinished(config.data)
            store = await asyncio.to_thread(open_store, config.data, reserve=True)
            log.info("store opened", extra={"directory": config.data})
        else:
            await asyncio.to_thread(make_directory, config.data)
            store = await asyncio.to_thread(self._shared.open)
            log.info("store opened", extra={"database": self._shared.place})
        try:
            audit = AuditLog(config.audit.file)
            # After the store, because the file may be in the data directory.
            self._check_audit(lambda file: audit.check())
            keys = await asyncio.to_thread(self._open_keys, store)
            membership = await join(config, store, keys.ring) if config.directory.publish else None
            if membership is not None:
                self._prepared = prepared = await self._joined(prepared, membership)
            make = manager_class(config, self._opened)
            manager = self._build(make, prepared, store, audit, keys, self._limits())
            # Keep the name, so that a program that later opens the directory by itself finds the manager under it.
            manager.core.tick.set_state(NAME_STATE, manager.name.encode())
        except BaseException:
            store.close()
            raise
        self._opened.push_async_callback(manager.stop)
        await manager.start()
        manager.core.use(manager.core.settings, manager.clock())  # users may have gone since the last run
        self._use_log_level()
        for place, reason in store.damaged.items():
            log.warning("damaged record", extra={"record": place, "reason": reason})
        if (watch := prepared.watch) is not None:
            self._check_own_keys(manager)
            manager.supervisor.keep("directory", partial(self._keep_directory, manager, watch))
            self._opened.push_async_callback(manager.supervisor.stop, "directory")
        if membership is not None:
            membership.publish(manager, config, self._directory_asked.set)
            self._provide_again = True
        await provide_all(manager, config, prepared.directory)
        self._use_access_lists(manager)
        listeners = Listeners(manager, config, prepared, self._opened, patient=self._shared is not None)
        await listeners.open()
        self._running = manager, listeners
        announce(config, manager.doors.exposure)
        announce_algorithms(config.security)

    def _read_state(self) -> Mapping[str, bytes]:
        if self._config.store.url is not None:
            return read_shared_state(self._config)
        refuse_unfinished(self._config.data)
        return read_state(self._config.data)

    def _open_keys(self, store: Store) -> StoredKeys:
        """Reads the keys, or makes new ones at the first start."""
        if self._shared is None:
            return open_keys(self._config.data / KEY_FILE, time.time())
        return open_kept_keys(self._config, store, time.time())

    def _build(
        self,
        make: Callable[..., Manager],
        prepared: Prepared,
        store: Store,
        audit: AuditLog,
        keys: StoredKeys | None,
        limits: Limits,
    ) -> Manager:
        """Builds the manager. Without `keys`, it makes some once it needs them."""
        return build_manager(
            self._config,
            store,
            make=make,
            identifier=prepared.identifier,
            hosts=own_hosts(self._config, prepared.entry),
            watch=prepared.watch,
            keys=keys,
            key_place=self._config.data / KEY_FILE if self._config.store.url is None else key_seal(self._config),
            certificates=prepared.certificates,
            audit=audit,
            limits=limits,
            account_reader=account_reader(self._config),
            standing=None if self._shared is None else self._shared.standing,
        )

    async def _joined(self, prepared: Prepared, membership: Membership) -> Prepared:
        """What the directory says after the join."""
        watch = prepared.watch
        if watch is None:
            return prepared
        if membership.created:
            await asyncio.to_thread(partial(watch.reload, time.time(), asked=True))
        entry = watch.directory.manager(membership.identifier)
        return replace(prepared, directory=watch.directory, entry=entry, identifier=membership.identifier)

    def _close_later(self, watch: Watch | None) -> None:
        if watch is not None:
            self._opened.push_async_callback(asyncio.to_thread, watch.close)

    def _check_audit(self, check: Callable[[Path], None]) -> None:
        file = self._config.audit.file
        if file is not None:
            try:
                check(file)
            except OSError as error:
                self._config.fail("audit.file", f"{file} cannot be written: {error.strerror}; create its directory")

    def _limits(self) -> Limits:
        """The configured limits, as far as the system allows them."""
        settings = self._config.limits
        limits = build_limits(settings, usable_descriptors(settings.connections))
        if limits.connections.maximum < settings.connections:
            log.warning(
                "limits.connections lowered to the process's descriptor limit",
                extra={"configured": settings.connections, "used": limits.connections.maximum},
            )
        return limits

    # A reload

    async def reload(self) -> None:
        """Reads the configuration again. The log says what has changed; a fault changes nothing."""
        running, found = self._running, read_again(self._config)
        if running is None or found is None:
            return
        manager, listeners = running
        config, taken, waiting = found
        try:
            prepared = await prepare(config, self._prepared.watch)
            settings = core_settings(config, manager.identifier)
            listeners.check_credentials(config)
            await provide_all(manager, config, prepared.directory)
        except PostroadError as fault:
            listeners.restore_credentials()
            refuse(fault)
            return
        files = changed_files(self._prepared.digests, prepared.digests)
        self._config, self._prepared = config, prepared
        if not listeners.use(config, prepared) and "user" in taken:
            waiting.append("user (remote readers log in)")
        manager.core.use(settings, manager.clock())
        manager.commit_soon()
        manager.core.protection.use_certificates(prepared.certificates)
        if prepared.watch is not None:
            await self._read_directory(manager, prepared.watch, asked=True)
            self._use_access_lists(manager)
        manager.limits.use(config.limits.connections_per_address, config.limits.unfinished_input_mb)
        self._use_log_level()
        manager.doors.expose(listeners.exposure)
        report([*taken, *(each for each in files if each not in taken)], waiting, prepared.digests)

    def _use_log_level(self) -> None:
        level = self._config.log.level
        if self._level is None and level is not self._logged:
            set_level(logging.INFO if level is None else logging.getLevelNamesMapping()[level.value.upper()])
            self._logged = level

    # The directory

    async def _keep_directory(self, manager: Manager, watch: Watch, running: Running) -> None:
        """Asks for a changed directory again and again, so that no wrong routes stay in use."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._directory_asked.wait(), watch.poll_s)
            self._directory_asked.clear()
            await self._read_directory(manager, watch)
            running()

    async def _read_directory(self, manager: Manager, watch: Watch, *, asked: bool = False) -> None:
        now = manager.clock()
        mark = 0 if manager.publishing is None else manager.publishing.mark()
        # in a thread: a large file takes a second to read
        changed = await asyncio.to_thread(partial(watch.reload, now, asked=asked))
        if changed:
            manager.router.initialize(watch.directory, now)
            self._check_own_keys(manager)
            self._use_access_lists(manager)  # first: a new queue must not be open until its list is known
        if changed or self._provide_again:
            self._provide_again = await provide_public(manager, self._config, watch.directory, mark)
        if changed:
            protection = manager.core.protection
            protection.use_certificates(protection.certificates)  # those of other managers may have changed
        else:
            manager.router.run_timers(watch.directory, now)

    def _use_access_lists(self, manager: Manager) -> None:
        """Takes the access lists of public queues from the directory, where the configuration has none."""
        configured = {each.path.tail for each in self._config.queues if each.acl is not None}
        queues = manager.router.directory.queues_of(manager.identifier)
        found = {each.identifier: each.security for each in queues if each.pathname.tail not in configured}
        if not self._config.directory.ldap:  # a file that says nothing of a queue's list leaves the default
            found = {identifier: security for identifier, security in found.items() if security}
        if manager.watch is not None:
            manager.core.use_directory(found, manager.clock(), first=self._config.directory.publish)
            manager.commit_soon()

    def _check_own_keys(self, manager: Manager) -> None:
        """Warns if the directory publishes keys that this manager does not use."""
        if manager.publishing is not None:
            return  # it writes them
        entry = manager.router.directory.manager(manager.identifier)
        published = b"" if entry is None else entry.public_encryption_keys
        if published != self._published and published not in (b"", manager.core.protection.ring.public_keys):
            of_file = f"set public_keys of [[manager]] {manager.name} to what `postroad keys show` prints"
            log.warning(
                "the directory has other public keys of this manager than it uses",
                extra={
                    "source": "" if manager.watch is None else manager.watch.source,
                    "do": of_file if self._config.directory.file else "set publish = true in [directory]",
                },
            )
        self._published = published
