"""Copies a store to another place, in files or in a database, while nobody uses either.

The target is empty before, and whole or empty after: a copy that was interrupted cannot be started on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from postroad.errors import InvalidArgument, StorageError
from postroad.manager.keys import KEY_FILE, KEYS_STATE, KeySeal, StoredKeys, decode_keys, encode_keys
from postroad.manager.manager import IDENTITY_STATE, NAME_STATE
from postroad.queues.tick import COUNTERS_STATE, Counters
from postroad.server.restore import check_restorable, refuse_full, replace_store
from postroad.store import Batch, LayeredStore, Store
from postroad.store.backup import BackupReader, record_checksum
from postroad.store.backup import Contents as Backup
from postroad.store.interface import Record
from postroad.store.lease import Lease, Role

if TYPE_CHECKING:
    from postroad.store.postgresql_connection import Connector

PAGES = 8  # in one commit
LEASE_S = 10.0  # a process that has not renewed the lease for so long has gone
UNFINISHED_STATE = "restoring"  # in a database that is being filled
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Database:
    """A schema in a database. Without `schema`, it is the name of the manager whose store it is."""

    url: str
    schema: str | None = None
    password_file: Path | None = None
    key_file: Path | None = None  # encrypts the private keys

    @property
    def seal(self) -> KeySeal:
        return KeySeal(None if self.key_file is None else self.key_file.read_bytes().strip())


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything in a store. `keys` is the content of the file with the private keys."""

    state: Mapping[str, bytes]
    pages: Iterable[list[Record]]
    keys: bytes | None


@dataclass(frozen=True, slots=True)
class Copied:
    name: str
    id: str
    messages: int


def copy_store(source: Path | Database, target: Path | Database, progress: Progress = lambda done: None) -> Copied:
    """Raises StorageError or OSError, and then leaves no store in the target."""
    with opened(source) as (store, keys):
        snapshot = store.snapshot()
        try:
            state = dict(snapshot.state())
            kept = state.pop(KEYS_STATE, None)
            if kept is not None and isinstance(source, Database):
                keys = encode_keys(_decoded(source, kept))
            if len(state.get(IDENTITY_STATE, b"")) != 16:
                raise StorageError(f"{_words(source)}: has no manager; name the place of a store")
            done = fill(target, Contents(state, snapshot.pages(), keys), progress)
            if snapshot.damaged or store.damaged:
                raise StorageError(f"{_words(source)}: has damaged records; the copy has all others")
        finally:
            snapshot.close()
    name = state.get(NAME_STATE, b"").decode()
    return Copied(name, str(UUID(bytes=state[IDENTITY_STATE])), done)


def fill(target: Path | Database, contents: Contents, progress: Progress) -> int:
    """Makes a store with these contents. Returns how many messages it has."""
    if isinstance(target, Database):
        name = contents.state.get(NAME_STATE, b"").decode()
        return _fill_database(target, name, contents, progress)
    target.mkdir(parents=True, exist_ok=True)
    refuse_full(target)

    def write(inside: Path) -> int:
        store = LayeredStore(inside)
        try:
            return _fill(store, contents, {}, progress)
        finally:
            store.close()

    files = {} if contents.keys is None else {KEY_FILE: contents.keys}
    return replace_store(target, write, files)


def _fill_database(target: Database, name: str, contents: Contents, progress: Progress) -> int:
    connector = _connector(target, name)
    existed = _refuse_used(connector)
    try:
        with _held(connector) as store:
            keys = {} if contents.keys is None else {KEYS_STATE: target.seal.encode(decode_keys(contents.keys))}
            store.commit([Batch(state={UNFINISHED_STATE: b"\x01"})])
            return _fill(store, contents, {**keys, UNFINISHED_STATE: None}, progress)
    except BaseException:
        _drop(connector, schema_too=not existed)
        raise


def _fill(store: Store, contents: Contents, more: Mapping[str, bytes | None], progress: Progress) -> int:
    """Writes the state last, in one commit with the rest."""
    done = checksum = 0
    group: dict[tuple[int, int], Record] = {}
    for number, page in enumerate(contents.pages, 1):
        for record in page:
            group[record.queue, record.lookup_id] = record
            checksum += record_checksum(record)
        done += len(page)
        if number % PAGES == 0:
            store.commit([Batch(group)])
            group = {}
            progress(done)
    store.commit([Batch(group), Batch(state={**contents.state, **more})])
    progress(done)
    snapshot = store.snapshot()
    try:
        found = [record_checksum(record) for page in snapshot.pages() for record in page]
        state = {name: value for name, value in snapshot.state().items() if name not in more}
    finally:
        snapshot.close()
    if (len(found), sum(found)) != (done, checksum) or state != dict(contents.state):
        raise StorageError("the copy is not as it was written; check the disk, then try again")
    return done


@contextmanager
def opened(place: Path | Database) -> Iterator[tuple[Store, bytes | None]]:
    """A store that nobody else uses, and its file with private keys."""
    if isinstance(place, Database):
        from postroad.store.postgresql_connection import is_used

        connector = _connector(place, None)
        if not is_used(connector)[1]:
            raise StorageError(f"{connector.place}: has no store; name the schema of a manager")
        with _held(connector) as store:
            yield store, None
        return
    if not (place / "store.sqlite").exists():
        raise StorageError(f"{place}: has no store; name a manager's data directory")
    directory_store = LayeredStore(place)
    try:
        file = place / KEY_FILE
        yield directory_store, file.read_bytes() if file.exists() else None
    finally:
        directory_store.close()


@contextmanager
def _held(connector: Connector) -> Iterator[Store]:
    """The store in a database, with its lease. Raises StorageError while a process uses it."""
    from postroad.store.lease_keeper import LeaseKeeper
    from postroad.store.postgresql import PostgresqlStore, first_generation

    def lost(holder: object) -> None:
        raise StorageError(f"{connector.place}: another process has taken over")

    lease = Lease(uuid4(), LEASE_S)
    keeper = LeaseKeeper(connector, lease, "postroad store", first_generation, lambda view: None, lost)
    with ExitStack() as ended:
        keeper.start()
        ended.callback(keeper.stop)
        until = time.monotonic() + LEASE_S + 2
        while lease.role is not Role.ACTIVE:
            if keeper.view.trouble is not None:
                raise StorageError(keeper.view.trouble)
            if time.monotonic() > until:
                raise StorageError(f"{connector.place}: in use by {keeper.view.active}; stop it first")
            time.sleep(0.05)
        store = PostgresqlStore(connector, lease.epoch, lease.instance, lost)
        ended.callback(keeper.finished)
        ended.callback(keeper.hand_over)
        ended.callback(store.close)
        yield store


def _connector(place: Database, name: str | None) -> Connector:
    try:
        from postroad.store.postgresql_connection import Connector, Place, schemas
    except ImportError:
        raise StorageError("PostgreSQL's driver is missing: pip install 'postroad[postgresql]'") from None
    schema = place.schema or name
    if schema is None:
        found = schemas(Connector(Place(place.url, "", place.password_file)))
        if len(found) != 1:
            which = f"has stores in the schemas {', '.join(found)}" if found else "has no store"
            raise StorageError(f"the database {which}; name one with --schema")
        schema = found[0]
    return Connector(Place(place.url, schema, place.password_file))


def _refuse_used(connector: Connector) -> bool:
    """Raises StorageError if the schema has a store already. Returns whether the schema exists."""
    from postroad.store.postgresql_connection import is_used

    exists, used = is_used(connector)
    if used:
        raise StorageError(f"{connector.place}: must be empty, and has a store; name another schema, or drop this one")
    return exists


def _drop(connector: Connector, *, schema_too: bool) -> None:
    from postroad.store.postgresql_connection import drop_tables

    drop_tables(connector, schema_too=schema_too)


def _decoded(place: Database, value: bytes) -> StoredKeys:
    try:
        return place.seal.decode(value)
    except InvalidArgument as fault:
        raise StorageError(f"--key-file {fault}") from None


def restore_into(file: Path, target: Database, progress: Progress) -> Backup:
    """Restores a backup into a database. Raises StorageError or OSError, and then leaves no store."""
    found = check_restorable(file)
    state = {**found.state, NAME_STATE: str(found.head.get("name", "")).encode()}
    if COUNTERS_STATE in state:
        state[COUNTERS_STATE] = Counters.skipped(state[COUNTERS_STATE])
    with file.open("rb") as stream:
        fill(target, Contents(state, BackupReader(stream, str(file)).pages(), found.files.get(KEY_FILE)), progress)
    return found


def _words(place: Path | Database) -> str:
    return str(place) if isinstance(place, Path) else "the database"
