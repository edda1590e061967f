"""`postroad store copy` and restores into a database: everything arrives, or nothing stays."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from postroad.errors import StorageError
from postroad.manager.keys import KEY_FILE, KEYS_STATE, StoredKeys, encode_keys, write_keys
from postroad.manager.manager import IDENTITY_STATE, NAME_STATE
from postroad.security.keys import KeyRing, make_private_key
from postroad.server.store_copy import UNFINISHED_STATE, Database, copy_store, opened
from postroad.store import PRIORITY_SHIFT, Batch, LayeredStore, Record
from tests.clusters import Cluster, new_schema, postgresql_store

IDENTIFIER = UUID(int=7)
STATE: dict[str, bytes | None] = {IDENTITY_STATE: IDENTIFIER.bytes, NAME_STATE: b"alpha", "histories": b"x" * 5000}
RECORDS = [
    Record(queue, priority << PRIORITY_SHIFT | number, 5, 0, 1, b"%d" % number * 50, 0)
    for queue in (1, 2)
    for priority in (0, 3)
    for number in range(500)
]
KEYS = StoredKeys(KeyRing.make(make_private_key), 1_700_000_000)


def filled(directory: Path) -> Path:
    store = LayeredStore(directory)
    store.commit([Batch({(each.queue, each.lookup_id): each for each in RECORDS}, state=STATE)])
    store.close()
    write_keys(directory / KEY_FILE, KEYS)
    return directory


def contents(place: Path | Database) -> tuple[list[Record], dict[str, bytes]]:
    with opened(place) as (store, _):
        return store.scan(1, limit=5000) + store.scan(2, limit=5000), dict(store.state())


def test_a_store_goes_into_a_database_and_back(cluster: Cluster, tmp_path: Path) -> None:
    database = Database(cluster.url, new_schema())
    copied = copy_store(filled(tmp_path / "here"), database)
    assert (copied.name, copied.id, copied.messages) == ("alpha", str(IDENTIFIER), len(RECORDS))
    records, state = contents(database)
    assert records == RECORDS
    assert state.keys() == {*STATE, KEYS_STATE}
    assert copy_store(database, tmp_path / "back").messages == len(RECORDS)
    assert contents(tmp_path / "back") == (RECORDS, STATE)
    assert (tmp_path / "back" / KEY_FILE).read_bytes() == encode_keys(KEYS)


def test_the_keys_are_encrypted_with_the_key_file(cluster: Cluster, tmp_path: Path) -> None:
    secret = tmp_path / "store.key"
    secret.write_text("a secret")
    schema = new_schema()
    copy_store(filled(tmp_path / "here"), Database(cluster.url, schema, key_file=secret))
    assert b"PRIVATE KEY" not in contents(Database(cluster.url, schema))[1][KEYS_STATE]
    with pytest.raises(StorageError, match="--key-file is missing"):
        copy_store(Database(cluster.url, schema), tmp_path / "back")
    assert not (tmp_path / "back").exists()
    copy_store(Database(cluster.url, schema, key_file=secret), tmp_path / "back")
    assert (tmp_path / "back" / KEY_FILE).read_bytes() == encode_keys(KEYS)


def test_a_target_that_has_something_is_refused_and_stays(cluster: Cluster, tmp_path: Path) -> None:
    schema = new_schema()
    with postgresql_store(cluster, schema) as store:
        store.commit([Batch(state={"kept": b"x"})])
    here = filled(tmp_path / "here")
    with pytest.raises(StorageError, match="must be empty, and has a store"):
        copy_store(here, Database(cluster.url, schema))
    with postgresql_store(cluster, schema) as store:
        assert store.state() == {"kept": b"x"}
    with pytest.raises(StorageError, match="must be empty, and has a store"):
        copy_store(here, here)


def test_a_source_without_a_store_is_refused_and_stays(cluster: Cluster, tmp_path: Path) -> None:
    schema = new_schema()
    with pytest.raises(StorageError, match=f"schema {schema}: has no store"):
        copy_store(Database(cluster.url, schema), tmp_path / "there")
    assert cluster.execute(f"SELECT to_regnamespace('{schema}') IS NULL") == [(True,)]
    assert not (tmp_path / "there").exists()


def test_a_store_in_use_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    store = LayeredStore(filled(tmp_path / "here"))
    try:
        with pytest.raises(StorageError, match="in use by process"):
            copy_store(tmp_path / "here", Database(cluster.url, new_schema()))
    finally:
        store.close()


def test_a_copy_that_fails_leaves_nothing(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = new_schema()
    here = filled(tmp_path / "here")
    monkeypatch.setattr("postroad.server.store_copy.record_checksum", lambda record: hash(uuid4()))
    with pytest.raises(StorageError, match="the copy is not as it was written"):
        copy_store(here, Database(cluster.url, schema))
    assert cluster.execute(f"SELECT to_regnamespace('{schema}') IS NULL") == [(True,)]
    monkeypatch.undo()
    assert copy_store(here, Database(cluster.url, schema)).messages == len(RECORDS)
    assert UNFINISHED_STATE not in contents(Database(cluster.url, schema))[1]
