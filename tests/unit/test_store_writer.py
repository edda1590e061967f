"""The Writer: order, group commit, and who hears of a failure."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest

from postroad.errors import StorageError
from postroad.store import Batch, Key, MemoryStore, Record, Writer


class GatedStore(MemoryStore):
    """Waits before each commit until it is let through, and fails those it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.groups: list[int] = []
        self.fault: BaseException | None = None
        self.tidied = threading.Semaphore(0)

    def commit(self, batches: Iterable[Batch]) -> None:
        batches = list(batches)
        self.arrived.release()
        assert self.gate.acquire(timeout=30)
        self.groups.append(len(batches))
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        super().commit(batches)

    def tidy(self) -> bool:
        self.tidied.release()
        return super().tidy()


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
def writer(store: GatedStore) -> Iterator[Writer]:
    writer = Writer(store)
    yield writer
    for _ in range(10):
        store.gate.release()
    writer.close()


def batch(number: int) -> Batch:
    record = Record(1, number, 0, 0, 0, b"")
    return Batch({Key(1, number): record})


def stored(store: MemoryStore) -> list[int]:
    return [record.lookup_id for record in store.scan(1)]


def test_a_future_is_done_when_its_batch_is_durable(store: GatedStore, writer: Writer) -> None:
    future = writer.submit(batch(1))
    assert store.arrived.acquire(timeout=30)
    assert not future.done()
    assert not future.cancel()
    store.gate.release()
    assert future.result(30) is None
    assert stored(store) == [1]


def test_all_that_waits_is_committed_together(store: GatedStore, writer: Writer) -> None:
    futures = [writer.submit(batch(1))]
    assert store.arrived.acquire(timeout=30)
    futures += [writer.submit(batch(number)) for number in range(2, 6)]
    store.gate.release()
    store.gate.release()
    for future in futures:
        future.result(30)
    assert store.groups == [1, 4]
    assert stored(store) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", [StorageError("the disk is full"), RuntimeError("a bug")])
def test_a_failure_fails_its_own_group_and_no_later_one(store: GatedStore, writer: Writer, fault: Exception) -> None:
    store.fault = fault
    first = writer.submit(batch(1))
    assert store.arrived.acquire(timeout=30)
    later = [writer.submit(batch(2)), writer.submit(batch(3))]
    store.gate.release()
    assert first.exception(30) is fault
    store.gate.release()
    for future in later:
        future.result(30)
    assert stored(store) == [2, 3]


def test_a_group_whose_writer_breaks_is_failed_and_the_writer_goes_on(
    store: GatedStore, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    """KeyboardInterrupt stands for what no store should raise: its batches must not wait for ever."""
    store.fault = KeyboardInterrupt("out of place")
    broken = writer.submit(batch(1))
    store.gate.release()
    with pytest.raises(StorageError, match=r"the store's writer failed: KeyboardInterrupt\('out of place'\)"):
        broken.result(30)
    store.gate.release()
    assert writer.submit(batch(2)).result(30) is None
    assert stored(store) == [2]
    assert "store writer failed" in caplog.messages


def test_a_full_disk_is_tidied_at_once(store: GatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.store.writer.IDLE_S", 3600.0)  # it would not happen by itself
    writer = Writer(store)
    writer.tidy()
    assert store.tidied.acquire(timeout=30)
    writer.close()


def test_closing_commits_what_waits_and_then_takes_no_more(store: GatedStore) -> None:
    writer = Writer(store)
    futures = [writer.submit(batch(number)) for number in range(3)]
    for _ in range(3):
        store.gate.release()
    writer.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert stored(store) == [0, 1, 2]
    with pytest.raises(StorageError, match="closed"):
        writer.submit(batch(4)).result(30)
    writer.close()
