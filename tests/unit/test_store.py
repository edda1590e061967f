"""The contract: every store behaves as one plain dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroad.errors import StorageError
from postroad.store import (
    MAX_ARRIVAL,
    MAX_QUEUE,
    NEVER,
    PRIORITY_SHIFT,
    Batch,
    Key,
    LayeredStore,
    MemoryStore,
    Record,
    Store,
    open_store,
)
from postroad.store.journal import SEGMENT_BYTES
from tests.clusters import new_schema, open_postgresql_store

LOWEST = 7 << PRIORITY_SHIFT | MAX_ARRIVAL  # the last lookup id there is


STORES: dict[str, Callable[[Path], Store]] = {
    "layered": LayeredStore,
    "tiny segments": lambda path: LayeredStore(path, segment_bytes=1),  # every commit begins the next one
    "memory": lambda path: MemoryStore(),
}


POSTGRESQL = {"postgresql": SEGMENT_BYTES, "postgresql, tiny generations": 1}


@pytest.fixture(params=[*sorted(STORES), *POSTGRESQL])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param in POSTGRESQL:
        cluster = request.getfixturevalue("cluster")
        made = open_postgresql_store(cluster, new_schema(), segment_bytes=POSTGRESQL[request.param])
    else:
        made = STORES[request.param](tmp_path / "data")
    yield made
    made.close()


def lookup(arrival: int, priority: int = 3) -> int:
    return 7 - priority << PRIORITY_SHIFT | arrival


def record(queue: int, lookup_id: int, packet: bytes = b"packet", expires_s: int = NEVER, reason: int = 0) -> Record:
    return Record(queue, lookup_id, 1_700_000_000_000, expires_s, 0, packet, reason)


def put(*records: Record) -> Batch:
    return Batch({Key(record.queue, record.lookup_id): record for record in records})


def test_a_record_comes_back_as_it_was(store: Store) -> None:
    kept = Record(5, lookup(9, priority=7), 1_700_000_000_123, 2_000_000_000, 3, bytes(range(256)) * 100, 0x8001)
    store.commit([put(kept)])
    assert store.get(5, lookup(9, priority=7)) == kept
    assert store.scan(5) == [kept]


def test_the_ends_of_every_range_are_kept(store: Store) -> None:
    corners = [record(queue, lookup_id, b"") for queue in (0, MAX_QUEUE) for lookup_id in (0, LOWEST)]
    store.commit([put(*corners)])
    assert store.scan(0) == corners[:2]
    assert store.scan(MAX_QUEUE) == corners[2:]
    assert store.scan_back(MAX_QUEUE, LOWEST + 1) == corners[:1:-1]
    assert store.scan(MAX_QUEUE, LOWEST) == []
    assert store.scan_back(0, 0) == []


def test_a_scan_is_in_queue_order_and_starts_after_the_given_id(store: Store) -> None:
    low, high, first = record(1, lookup(1, 0)), record(1, lookup(2, 7)), record(1, lookup(3, 7))
    store.commit([put(low), put(first, high), put(record(2, lookup(4)), record(0, lookup(5)))])
    assert store.scan(1) == [high, first, low]
    assert store.scan(1, after=high.lookup_id) == [first, low]
    assert store.scan(1, after=high.lookup_id, limit=1) == [first]
    assert store.scan(1, after=low.lookup_id) == []
    assert store.scan(1, limit=0) == []
    assert store.scan(7) == []


def test_a_scan_back_is_in_reverse_order_and_ends_before_the_given_id(store: Store) -> None:
    records = [record(1, lookup(arrival)) for arrival in range(5)]
    store.commit([put(*records), put(record(0, lookup(8)), record(2, lookup(0)))])
    assert store.scan_back(1, LOWEST + 1) == records[::-1]
    assert store.scan_back(1, lookup(3)) == records[2::-1]
    assert store.scan_back(1, lookup(3), limit=2) == [records[2], records[1]]
    assert store.scan_back(1, lookup(0)) == []


@pytest.mark.parametrize("wild", [-5, 1 << 45, (1 << 56) - 1, 8 << 56, 1 << 63, 1 << 70])
def test_ids_that_no_record_can_have_are_fair_questions(store: Store, wild: int) -> None:
    records = [record(1, lookup(1, 7)), record(1, lookup(1, 0))]
    store.commit([put(*records, record(2, lookup(1)))])
    assert store.get(1, wild) is None
    assert store.scan(1, after=wild) == [record for record in records if record.lookup_id > wild]
    assert store.scan_back(1, before=wild) == [record for record in records[::-1] if record.lookup_id < wild]


def test_a_put_replaces_and_a_delete_removes(store: Store) -> None:
    old, new, other = record(1, 1, b"old"), record(1, 1, b"new", expires_s=9), record(1, 2)
    store.commit([put(old, other)])
    store.commit([put(new)])
    assert store.scan(1) == [new, other]
    store.commit([Batch(deletes={Key(1, 1), Key(1, 77), Key(9, 9)})])
    assert store.scan(1) == [other]
    assert store.get(1, 1) is None
    assert store.expired(100) == []


def test_a_batch_deletes_first_and_then_puts(store: Store) -> None:
    store.commit([put(record(1, 1, b"old"))])
    batch = put(record(1, 1, b"new"))
    batch.deletes.add(Key(1, 1))
    store.commit([batch])
    assert store.scan(1) == [record(1, 1, b"new")]


def test_batches_of_one_commit_follow_each_other(store: Store) -> None:
    store.commit(
        [
            put(record(1, 1, b"first"), record(1, 2)),
            Batch(deletes={Key(1, 1), Key(1, 2)}, state={"x": b"1", "y": b"1"}),
            put(record(1, 1, b"second")),
            Batch(state={"x": None}),
        ]
    )
    assert store.scan(1) == [record(1, 1, b"second")]
    assert store.state() == {"y": b"1"}


def test_expired_records_come_soonest_first_and_the_limit_holds(store: Store) -> None:
    late, soon, now, never = (
        record(1, 1, expires_s=50),
        record(9, 2, expires_s=10),
        record(3, 3, expires_s=100),
        record(1, 4),
    )
    store.commit([put(late, soon, now, never)])
    assert store.expired(100) == [soon, late]
    assert store.expired(100, limit=1) == [soon]
    assert store.expired(10) == []
    store.commit([put(soon._replace(expires_s=NEVER))])
    assert store.expired(101) == [late, now]


def test_state_is_kept_by_name_and_found_by_prefix(store: Store) -> None:
    store.commit([Batch(state={"b/2": b"two", "a": b"", "b/1": b"one", "naïve ☃": b"\x00\xff"})])
    assert dict(store.state()) == {"a": b"", "b/1": b"one", "b/2": b"two", "naïve ☃": b"\x00\xff"}
    assert list(store.state("b/")) == ["b/1", "b/2"]
    store.commit([Batch(state={"b/1": None, "b/2": b"changed", "never there": None})])
    assert dict(store.state("b")) == {"b/2": b"changed"}


@pytest.mark.parametrize("count", [1, 15, 16, 17, 127, 128, 129, 300])
def test_any_number_of_records_goes_into_one_commit(store: Store, count: int) -> None:
    records = [record(1, lookup(number), b"%d" % number) for number in range(count)]
    store.commit([put(*records)])
    assert store.scan(1, limit=1000) == records
    store.commit([Batch(deletes={Key(1, lookup(number)) for number in range(0, count, 2)})])
    assert store.scan(1, limit=1000) == records[1::2]


def test_nothing_to_commit_is_no_error(store: Store) -> None:
    store.commit([])
    store.commit([Batch(), Batch()])
    assert dict(store.state()) == {}


@pytest.mark.parametrize("kind", sorted(STORES))
@pytest.mark.parametrize(
    "key", [Key(-1, 0), Key(MAX_QUEUE + 1, 0), Key(1, -1), Key(1, MAX_ARRIVAL + 1), Key(1, 8 << 56)]
)
def test_a_key_out_of_range_is_refused_and_nothing_is_changed(kind: str, key: Key, tmp_path: Path) -> None:
    store = STORES[kind](tmp_path)
    with pytest.raises(ValueError, match=f"queue {key.queue}, lookup id .*: the key is out of range"):
        store.commit([put(record(1, 1)), put(record(*key))])
    with pytest.raises(ValueError, match="the key is out of range"):
        store.commit([put(record(1, 1)), Batch(deletes={key})])
    assert store.scan(1) == []
    store.commit([put(record(1, 2))])
    assert store.scan(1) == [record(1, 2)]


def test_memory_takes_single_changes_too() -> None:
    store = MemoryStore()
    store.put(record(1, 1, expires_s=5))
    store.put(record(1, 2))
    store.replace(record(1, 2, b"new"))
    store.delete(Key(1, 1))
    store.delete(Key(1, 9))
    store.set_state("name", b"value")
    assert store.scan(1) == [record(1, 2, b"new")]
    assert store.expired(10) == []
    assert store.state() == {"name": b"value"}
    with pytest.raises(ValueError, match="the key is out of range"):
        store.put(record(1, -1))


def test_open_store_knows_memory_and_directories(tmp_path: Path) -> None:
    assert isinstance(open_store(":memory:"), MemoryStore)
    for path in (tmp_path / "new" / "deep", str(tmp_path / "text")):
        store = open_store(path)
        assert isinstance(store, LayeredStore)
        store.close()
        assert (Path(path) / "store.sqlite").is_file()


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    kept = [record(queue, lookup(number), b"x" * number) for queue in (1, 2) for number in range(200)]
    store = LayeredStore(tmp_path)
    store.commit([put(*kept), Batch(state={"name": b"value"})])
    store.close()
    store.close()
    store = LayeredStore(tmp_path)
    assert store.scan(1, limit=1000) + store.scan(2, limit=1000) == kept
    assert store.state() == {"name": b"value"}
    store.close()


def test_columns_of_a_closed_store_are_refused(tmp_path: Path) -> None:
    store = LayeredStore(tmp_path)
    assert store.columns(1, -1, 9, 10, 1000) is not None
    store.close()
    with pytest.raises(StorageError, match="the store is closed"):
        store.columns(1, -1, 9, 10, 1000)
    with pytest.raises(StorageError, match="the store is closed"):
        store.lookup_ids(1, -1, 9, 10)
