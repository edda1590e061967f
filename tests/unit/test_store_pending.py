"""Pending: a change is seen at once, what failed is seen no more, what cancels out never reaches the store."""

from __future__ import annotations

from postroad.store import NEVER, Batch, Key, MemoryStore, Pending, Record


class CountingStore(MemoryStore):
    """Says how many records were read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def scan(self, queue: int, after: int = -1, limit: int = 100) -> list[Record]:
        found = super().scan(queue, after, limit)
        self.read += len(found)
        return found


def record(lookup_id: int, packet: bytes = b"", queue: int = 1, expires_s: int = NEVER) -> Record:
    return Record(queue, lookup_id, 0, expires_s, 0, packet)


def sealed(pending: Pending) -> Batch:
    batch = pending.seal()
    assert batch is not None
    return batch


def test_nothing_changed_seals_nothing() -> None:
    pending = Pending(MemoryStore())
    assert not pending
    assert pending.seal() is None


def test_a_sealed_batch_holds_the_changes_and_the_next_starts_empty() -> None:
    pending = Pending(MemoryStore())
    pending.put(record(1))
    pending.delete(Key(1, 7))
    pending.set_state("name", b"value")
    assert pending
    batch = sealed(pending)
    assert batch.puts == {Key(1, 1): record(1)}
    assert batch.deletes == {Key(1, 7)}
    assert batch.state == {"name": b"value"}
    assert pending.seal() is None


def test_a_put_deleted_in_the_same_batch_never_reaches_the_store() -> None:
    pending = Pending(MemoryStore())
    pending.put(record(1, expires_s=5))
    pending.replace(record(1, b"put back", expires_s=5))
    pending.delete(Key(1, 1))
    assert pending.scan(1) == []
    assert pending.expired(10) == []
    assert pending.seal() is None


def test_a_put_of_a_sealed_batch_is_deleted_in_the_store() -> None:
    pending = Pending(MemoryStore())
    pending.put(record(1))
    sealed(pending)
    pending.delete(Key(1, 1))
    assert pending.scan(1) == []
    assert sealed(pending).deletes == {Key(1, 1)}


def test_a_record_put_again_where_one_is_being_deleted_is_deleted_for_good() -> None:
    store = MemoryStore()
    store.put(record(1, b"old"))
    pending = Pending(store)
    pending.delete(Key(1, 1))
    pending.put(record(1, b"returned"))
    assert pending.get(1, 1) == record(1, b"returned")
    pending.delete(Key(1, 1))
    assert pending.get(1, 1) is None
    store.commit([sealed(pending)])
    assert store.scan(1) == []


def test_committing_one_batch_keeps_what_a_later_one_changed() -> None:
    store = MemoryStore()
    pending = Pending(store)
    pending.put(record(1))
    pending.put(record(2))
    pending.set_state("name", b"first")
    first = sealed(pending)
    pending.replace(record(1, b"new"))
    pending.delete(Key(1, 2))
    pending.set_state("name", None)
    second = sealed(pending)
    for batch in (first, second):
        store.commit([batch])
        pending.committed(batch)
        assert pending.scan(1) == [record(1, b"new")]
        assert pending.state() == {}
    assert store.scan(1) == [record(1, b"new")]


def test_a_batch_that_has_landed_but_is_not_forgotten_is_seen_once() -> None:
    store = MemoryStore()
    pending = Pending(store)
    for number in range(10):
        pending.put(record(number, expires_s=number + 1))
    store.commit([sealed(pending)])
    assert pending.scan(1) == store.scan(1)
    assert pending.scan_back(1, 100, 4) == store.scan_back(1, 100, 4)
    assert pending.expired(100) == store.expired(100)


def test_a_failed_batch_takes_all_that_was_built_on_it() -> None:
    store = MemoryStore()
    store.put(record(1, b"stored"))
    store.set_state("name", b"stored")
    pending = Pending(store)
    pending.delete(Key(1, 1))
    pending.set_state("name", b"first")
    first = sealed(pending)
    pending.put(record(2, expires_s=3))
    second = sealed(pending)
    pending.put(record(3))
    assert pending.failed(first)
    assert pending.scan(1) == [record(1, b"stored")]
    assert pending.expired(10) == []
    assert pending.state() == {"name": b"stored"}
    assert pending.seal() is None
    pending.put(record(4))
    assert not pending.failed(second)  # dropped before: what came since is not its child
    pending.committed(second)
    assert pending.scan(1) == [record(1, b"stored"), record(4)]
    assert sealed(pending).puts.keys() == {Key(1, 4)}


def test_reading_the_head_of_a_queue_does_not_step_over_the_same_deletes_again() -> None:
    store = CountingStore()
    for number in range(500):
        store.put(record(number))
    pending = Pending(store)
    received = []
    while found := pending.scan(1, limit=1):
        received.append(found[0].lookup_id)
        pending.delete(Key(1, found[0].lookup_id))
        if len(received) % 100 == 0:
            sealed(pending)
    assert received == list(range(500))
    assert store.read < 5 * 500


def test_an_urgent_message_is_found_before_deletes_that_were_swept() -> None:
    store = MemoryStore()
    for number in range(100, 200):
        store.put(record(number))
    pending = Pending(store)
    for number in range(100, 150):
        pending.delete(Key(1, number))
    assert pending.scan(1, limit=1) == [record(150)]
    deletes = sealed(pending)
    pending.put(record(7))
    urgent = sealed(pending)
    assert pending.scan(1, limit=1) == [record(7)]
    pending.delete(Key(1, 199))
    store.commit([deletes, urgent])
    pending.committed(deletes)
    pending.committed(urgent)
    assert pending.scan(1, limit=2) == [record(7), record(150)]


def test_pending_changes_in_other_queues_are_not_looked_at() -> None:
    store = CountingStore()
    pending = Pending(store)
    for number in range(1000):
        pending.put(record(number, queue=number % 50 + 2))
    store.put(record(1))
    assert pending.scan(1) == [record(1)]
    assert len(pending.scan(2)) == 20
    assert store.read == 1
