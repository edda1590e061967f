"""The store that several processes share: one is active, the others stand by.

When a process is active is decided in store/lease.py; here is what it does then: it opens the store and serves, or it
says who is active. The driver of the database is imported only where a configuration names one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from selectors import DefaultSelector, SelectorKey
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID, uuid4

from postroad.api.server import ApiServer
from postroad.config import Configuration
from postroad.errors import InvalidArgument, PostroadError, SharingViolation, StorageError
from postroad.manager import build_manager
from postroad.manager.composition import build_limits
from postroad.manager.keys import KEYS_STATE, KeySeal, StoredKeys
from postroad.manager.standing import Standing
from postroad.security.keys import KeyRing, make_private_key
from postroad.server.preparation import server_tls_files
from postroad.server.store_copy import UNFINISHED_STATE
from postroad.store.interface import Batch, Store
from postroad.store.lease import Lease, Role
from postroad.store.memory import MemoryStore

if TYPE_CHECKING:
    from postroad.store.lease_keeper import LeaseKeeper, View
    from postroad.store.postgresql import PostgresqlStore
    from postroad.store.postgresql_connection import Connector

log = logging.getLogger(__name__)

DEPOSED = 4  # the exit code of a process from which another one has taken over
FIRST_LOOK_S = 1.0  # the free lease of a first start is taken in this time, without a word about standing by
LOOK_S = 2.0  # for which everything waits for a look at a lease that may have run out
RETRY_S = 1.0  # between two attempts to open the store
NOBODY = UUID(int=0)  # the id that a standby shows while it does not know its manager's


def connector_of(config: Configuration) -> Connector:
    """Raises ConfigurationError where the driver is missing, and for a URL that it cannot read."""
    try:
        from postroad.store.postgresql_connection import Connector, DatabaseFault, Place
    except ImportError:
        config.fail("store.url", "needs the driver of PostgreSQL: pip install 'postroad[postgresql]'")
    assert config.store.url is not None
    try:
        return Connector(Place(config.store.url, config.schema, config.store.password_file))
    except DatabaseFault as fault:
        config.fail("store.url", str(fault))


def read_shared_state(config: Configuration) -> Mapping[str, bytes]:
    """What a start would find. Raises ConfigurationError for what would keep it from starting."""
    from postroad.store.postgresql import read_state

    connector = connector_of(config)
    try:
        return read_state(connector)
    except StorageError as fault:
        refuse(config, fault)
        raise


def refuse(config: Configuration, fault: StorageError) -> None:
    """Raises ConfigurationError if the configuration is to blame."""
    from postroad.store.postgresql_connection import Blame, DatabaseFault

    if isinstance(fault, DatabaseFault) and fault.blame is Blame.SETTINGS:
        config.fail("store.url", str(fault))


# The private keys


def key_seal(config: Configuration) -> KeySeal:
    file = config.store.key_file
    if file is None:
        return KeySeal(None)
    try:
        secret = file.read_bytes().strip()
    except OSError as error:
        config.fail("store.key_file", f"{file} cannot be read: {error.strerror}")
    if not secret:
        config.fail("store.key_file", f"{file} must hold a secret, and is empty")
    return KeySeal(secret)


def kept_keys(config: Configuration, store: Store) -> StoredKeys | None:
    """The keys in the store; None before the first start. Raises ConfigurationError."""
    value = store.state(KEYS_STATE).get(KEYS_STATE)
    if value is None:
        return None
    try:
        return key_seal(config).decode(value)
    except InvalidArgument as fault:
        config.fail("store.key_file", str(fault))


def open_kept_keys(config: Configuration, store: Store, now: float) -> StoredKeys:
    """Reads the keys from the store, or makes new ones. Call it in a thread, before the manager is built."""
    seal, stored = key_seal(config), kept_keys(config, store)
    value = store.state(KEYS_STATE).get(KEYS_STATE, b"")
    if stored is None:
        stored = StoredKeys(KeyRing.make(make_private_key), int(now))
    if not seal.is_current(value):
        store.commit([Batch(state={KEYS_STATE: seal.encode(stored)})])
    if config.store.key_file is None:
        log.warning("the private keys are in the database as they are", extra={"do": "set store.key_file"})
    return stored


# The standing of this process


class GuardedSelector(DefaultSelector):
    """Runs a guard before the event loop does anything with what has come. A process that was stopped for long must not
    answer with what it knew before."""

    def __init__(self) -> None:
        super().__init__()
        self._guard: Callable[[], None] | None = None

    def use(self, guard: Callable[[], None]) -> None:
        self._guard = guard

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        found = super().select(timeout)
        if self._guard is not None:
            self._guard()
        return found


class SharedStanding(Standing):
    """The standing of a process on a shared store."""

    can_fail_over = True

    def __init__(self, shared: SharedStore) -> None:
        self._shared = shared

    def report(self) -> dict[str, object]:
        view = self._shared.view
        return {
            "kind": "postgresql",
            "role": "active" if self._shared.serves else "standby",
            "epoch": view.epoch,
            "active": view.active,
            "standbys": list(view.standbys),
            "synchronous": bool(view.synchronous),
            "trouble": self.stalled() or view.trouble,
        }

    def refusal(self) -> str | None:
        shared = self._shared
        if shared.serves:
            return None
        view = shared.view
        if view.trouble is not None:
            return f"this process stands by, and cannot reach the database: {view.trouble}"
        if view.active is None:
            return "this process stands by, and none is active"
        if view.active == shared.name:
            return "this process is about to be active"
        return f"this process stands by; {view.active} is active"

    def holds(self) -> bool:
        return self._shared.keeper.holds()

    def stalled(self) -> str | None:
        shared = self._shared
        if not shared.serves:
            return None
        if shared.store is not None and shared.store.trouble is not None:
            return shared.store.trouble
        return None if shared.keeper.holds() else shared.view.trouble or "the lease of the store ran out"

    def waits_since(self) -> float | None:
        store = self._shared.store
        return None if store is None else store.waits_since

    def hand_over(self) -> None:
        self._shared.hand_over()


class SharedStore:
    """This process' part in a shared store. `start` looks for the lease; `until_active` waits for it."""

    def __init__(self, config: Configuration, connector: Connector, name: str | None = None) -> None:
        from postroad.store.lease_keeper import LeaseKeeper
        from postroad.store.postgresql import first_generation

        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.serves = False
        self.store: PostgresqlStore | None = None
        self.standing = SharedStanding(self)
        self._has_waited = False  # for a look that the database has not answered
        self._config = config
        self._connector = connector
        self._lease = Lease(uuid4(), config.store.lease_s)
        self._changed = asyncio.Event()
        self._handing_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.keeper: LeaseKeeper = LeaseKeeper(
            connector, self._lease, self.name, first_generation, self._tell, self._deposed
        )

    @property
    def place(self) -> str:
        return str(self._connector.place)

    @property
    def view(self) -> View:
        return self.keeper.view

    def open(self) -> PostgresqlStore:
        """Opens the store. Blocks. Raises StorageError."""
        from postroad.store.postgresql import PostgresqlStore

        store = PostgresqlStore(self._connector, self._lease.epoch, self._lease.instance, self._taken_over)
        if UNFINISHED_STATE in store.state(UNFINISHED_STATE):
            store.close()
            drop = f'DROP SCHEMA "{self._config.schema}" CASCADE'
            self._config.fail("store.schema", f"a copy or restore was interrupted here; run {drop}, and copy again")
        self.store = store
        return store

    def give_up(self) -> None:
        if self.store is not None:
            self.store.give_up()

    def guard(self) -> None:
        """Holds everything up until it is known whether another process has taken over. It waits once: if the database
        hangs, `stalled` keeps calls waiting, and everything else goes on."""
        if not self.serves:
            return
        if self.keeper.holds():
            self._has_waited = False
        elif not self._has_waited and self.view.trouble is None:
            self._has_waited = not self.keeper.look(LOOK_S)

    def hand_over(self) -> None:
        """Raises SharingViolation if nobody stands by."""
        if not self.view.standbys:
            self.keeper.look(LOOK_S)  # one may have come since the last look
        if not self.view.standbys:
            raise SharingViolation("no other process stands by; start one with the same store.url and schema")
        self._handing_over.set()

    async def change(self) -> None:
        """Returns after the next change of the view."""
        await self._changed.wait()
        self._changed.clear()

    async def asked_to_hand_over(self) -> None:
        await self._handing_over.wait()
        self._handing_over.clear()

    def serve(self, value: bool) -> None:
        self.serves = value
        if not value:
            self.store = None

    @property
    def is_active(self) -> bool:
        return self._lease.role is Role.ACTIVE

    def _tell(self, view: View) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._changed.set)

    def _taken_over(self, holder: str) -> None:
        exit_deposed(f"{self.place}: {holder} has taken over; this process stops")

    def _deposed(self, view: View) -> None:
        self._taken_over(view.active or "another process")


def exit_deposed(sentence: str) -> NoReturn:
    """Ends the process at once, in any thread. Its connections close with it, and nothing more is answered."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{sentence}\n")
        sys.stderr.flush()
    os._exit(DEPOSED)


class StandbyApi:
    """The API of a process that stands by: it says so, and who is active."""

    def __init__(self, config: Configuration, shared: SharedStore) -> None:
        self._config = config
        self._shared = shared
        self._open: tuple[Any, ApiServer] | None = None

    async def start(self) -> None:
        """Does nothing if it is open, or if there is to be no API."""
        config = self._config
        if self._open is not None or config.listen.api is None:
            return
        manager = build_manager(
            config,
            MemoryStore(),
            identifier=config.manager.id or NOBODY,
            limits=build_limits(config.limits),
            standing=self._shared.standing,
        )
        await manager.start()
        passwords = {user.name: user.password for user in config.users if user.password}
        files, context = server_tls_files(config)
        api = ApiServer(manager, config.listen.host, config.listen.api, config.api.token, files, passwords)
        if context is not None:
            api.use_tls(context)
        try:
            await api.start()
        except PostroadError:
            await manager.stop()
            raise
        self._open = manager, api
        log.info("standing by", extra={"api": api.url})

    async def stop(self) -> None:
        if self._open is not None:
            (manager, api), self._open = self._open, None
            await api.stop()
            await manager.stop()


async def check_database(config: Configuration, connector: Connector) -> None:
    """Makes the tables if they are missing. Raises ConfigurationError if that can never succeed; otherwise the keeper
    of the lease goes on trying."""
    import psycopg

    from postroad.store.postgresql import first_generation
    from postroad.store.postgresql_connection import is_synchronous, prepare_tables

    def check() -> bool:
        with connector.connect("check") as connection:
            prepare_tables(connector, connection, first_generation)
            return is_synchronous(connection)

    try:
        if not await asyncio.to_thread(check):
            log.warning(
                "the database waits for no replica: what it confirms is lost with its disk",
                extra={"do": "set synchronous_standby_names in PostgreSQL"},
            )
    except (psycopg.Error, OSError) as error:
        fault = connector.explain("opening", error)
        refuse(config, fault)
        log.warning("the database cannot be used yet", extra={"reason": fault})
    except StorageError as fault:
        refuse(config, fault)
        log.warning("the database cannot be used yet", extra={"reason": fault})
