"""The Writer: order, group commit, who hears of a failure, and which thread commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from postroad.errors import StorageError
from postroad.store import Batch, Key, MemoryStore, Record
from postroad.store.writer import Writer


class GatedStore(MemoryStore):
    """Waits before each commit until it is let through, and fails those it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.groups: list[int] = []
        self.fault: BaseException | None = None
        self.tidied = threading.Semaphore(0)
        self.short = False  # all commits, or none
        self.threads: list[threading.Thread] = []  # that committed

    def is_short(self, batch: Batch) -> bool:
        return self.short

    def commit(self, batches: Iterable[Batch]) -> None:
        batches = list(batches)
        self.arrived.release()
        assert self.gate.acquire(timeout=30)
        self.groups.append(len(batches))
        self.threads.append(threading.current_thread())
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        super().commit(batches)

    def tidy(self, *, busy: bool = False) -> bool:
        if not busy:
            self.tidied.release()
        return super().tidy()


def here_and_now(callback: Callable[[], object]) -> None:
    """Endings are heard on the thread that brings them."""
    callback()


class Ending:
    """How a batch ended."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: Exception | None = None

    def __call__(self, error: Exception | None) -> None:
        assert not self._ended.is_set()
        self._error = error
        self._ended.set()

    @property
    def known(self) -> bool:
        return self._ended.is_set()

    def error(self) -> Exception | None:
        assert self._ended.wait(30)
        return self._error


def submit(writer: Writer, number: int) -> Ending:
    ending = Ending()
    writer.submit(batch(number), ending)
    return ending


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
def writer(store: GatedStore) -> Iterator[Writer]:
    writer = Writer(store, here_and_now)
    yield writer
    for _ in range(10):
        store.gate.release()
    writer.close()


def batch(number: int) -> Batch:
    record = Record(1, number, 0, 0, 0, b"")
    return Batch({Key(1, number): record})


def stored(store: MemoryStore) -> list[int]:
    return [record.lookup_id for record in store.scan(1)]


def test_a_batch_ends_when_it_is_durable(store: GatedStore, writer: Writer) -> None:
    ending = submit(writer, 1)
    assert store.arrived.acquire(timeout=30)
    assert not ending.known
    store.gate.release()
    assert ending.error() is None
    assert stored(store) == [1]


def test_all_that_waits_is_committed_together(store: GatedStore, writer: Writer) -> None:
    endings = [submit(writer, 1)]
    assert store.arrived.acquire(timeout=30)
    endings += [submit(writer, number) for number in range(2, 6)]
    store.gate.release()
    store.gate.release()
    assert [ending.error() for ending in endings] == [None] * 5
    assert store.groups == [1, 4]
    assert stored(store) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", [StorageError("the disk is full"), RuntimeError("a bug")])
def test_a_failure_fails_its_own_group_and_no_later_one(store: GatedStore, writer: Writer, fault: Exception) -> None:
    store.fault = fault
    first = submit(writer, 1)
    assert store.arrived.acquire(timeout=30)
    later = [submit(writer, 2), submit(writer, 3)]
    store.gate.release()
    assert first.error() is fault
    store.gate.release()
    assert [ending.error() for ending in later] == [None, None]
    assert stored(store) == [2, 3]


def test_a_group_whose_writer_breaks_is_failed_and_the_writer_goes_on(
    store: GatedStore, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    """KeyboardInterrupt stands for what no store should raise: its batches must not wait for ever."""
    store.fault = KeyboardInterrupt("out of place")
    broken = submit(writer, 1)
    store.gate.release()
    error = broken.error()
    assert isinstance(error, StorageError)
    assert str(error) == "the store's writer failed: KeyboardInterrupt('out of place')"
    store.gate.release()
    assert submit(writer, 2).error() is None
    assert stored(store) == [2]
    assert "store writer failed" in caplog.messages


def test_a_listener_that_fails_does_not_keep_the_end_from_others(
    store: GatedStore, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception | None) -> None:
        raise RuntimeError("the event loop is closed")

    submit(writer, 0)
    assert store.arrived.acquire(timeout=30)
    writer.submit(batch(1), fail)
    ending = submit(writer, 2)
    store.gate.release()
    store.gate.release()
    assert ending.error() is None
    assert "a store writer's listener failed" in caplog.messages


def test_a_full_disk_is_tidied_at_once(store: GatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.store.writer.IDLE_S", 3600.0)  # it would not happen by itself
    writer = Writer(store, here_and_now)
    writer.tidy()
    assert store.tidied.acquire(timeout=30)
    writer.close()


def test_an_idle_store_is_tidied_until_nothing_is_left_to_do(
    store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.store.writer.IDLE_S", 0.01)
    writer = Writer(store, here_and_now)
    assert store.tidied.acquire(timeout=30)
    store.gate.release()
    assert submit(writer, 1).error() is None
    assert store.tidied.acquire(timeout=30)  # again, for there is something new
    writer.close()


def test_closing_commits_what_waits_and_then_takes_no_more(store: GatedStore) -> None:
    writer = Writer(store, here_and_now)
    endings = [submit(writer, number) for number in range(3)]
    for _ in range(3):
        store.gate.release()
    writer.close()
    assert [ending.known and ending.error() for ending in endings] == [None, None, None]
    assert stored(store) == [0, 1, 2]
    assert "closed" in str(submit(writer, 4).error())
    writer.close()


# On the caller's own thread


@pytest.fixture
def short(store: GatedStore) -> GatedStore:
    """All commits are short, and none waits at the gate."""
    store.short = True
    for _ in range(100):
        store.gate.release()
    return store


def here(store: GatedStore) -> list[bool]:
    """Of each commit, whether this thread made it."""
    return [thread is threading.current_thread() for thread in store.threads]


def test_a_short_commit_ends_before_the_caller_goes_on(short: GatedStore, writer: Writer) -> None:
    assert [submit(writer, number).known for number in (1, 2)] == [True, True]
    assert here(short) == [True, True]
    assert stored(short) == [1, 2]


def test_a_commit_that_is_not_short_is_for_the_thread(short: GatedStore, writer: Writer) -> None:
    submit(writer, 1)
    short.short = False
    assert submit(writer, 2).error() is None
    assert here(short) == [True, False]


def test_a_short_commit_does_not_overtake_one_that_waits(store: GatedStore, writer: Writer) -> None:
    first = submit(writer, 1)
    assert store.arrived.acquire(timeout=30)
    store.short = True
    later = [submit(writer, 2), submit(writer, 3)]
    assert not any(ending.known for ending in (first, *later))
    store.gate.release()
    store.gate.release()
    assert [ending.error() for ending in (first, *later)] == [None, None, None]
    assert (here(store), store.groups) == ([False, False], [1, 2])


def test_a_commit_that_comes_while_the_thread_tidies_waits_for_it(
    short: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def tidy(*, busy: bool = False) -> bool:
        begun.set()
        assert go_on.wait(30)
        return False

    monkeypatch.setattr(short, "tidy", tidy)
    writer = Writer(short, here_and_now)
    writer.tidy()
    assert begun.wait(30)
    ending = submit(writer, 1)
    assert not ending.known
    go_on.set()
    assert ending.error() is None
    assert here(short) == [False]
    writer.close()


@pytest.mark.parametrize("fault", [StorageError("the disk is full"), RuntimeError("a bug")])
def test_a_short_commit_that_fails_fails_alone(short: GatedStore, writer: Writer, fault: Exception) -> None:
    short.fault = fault
    first, second = submit(writer, 1), submit(writer, 2)
    assert first.known
    assert first.error() is fault
    assert second.error() is None
    assert stored(short) == [2]
    assert here(short) == [True, True]


def test_a_listener_that_fails_does_not_harm_the_caller(
    short: GatedStore, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception | None) -> None:
        raise RuntimeError("a bug")

    writer.submit(batch(1), fail)
    assert submit(writer, 2).error() is None
    assert "a store writer's listener failed" in caplog.messages


def test_a_listener_may_submit_the_next_batch(short: GatedStore, writer: Writer) -> None:
    second = Ending()
    writer.submit(batch(1), lambda error: writer.submit(batch(2), second))
    assert second.known
    assert stored(short) == [1, 2]


def test_a_slow_disk_gives_its_commits_to_the_thread_until_it_is_quick_again(
    short: GatedStore, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    step_s = 0.0

    def clock() -> float:
        nonlocal now
        now += step_s
        return now

    monkeypatch.setattr("postroad.store.writer.perf_counter", clock)
    submit(writer, 0)
    step_s = 0.1
    submit(writer, 1)  # here is where it turns out
    submit(writer, 2).error()
    submit(writer, 3).error()
    assert here(short) == [True, True, False, False]
    step_s = 0.0
    for number in range(4, 90):
        submit(writer, number).error()
    assert here(short)[4:12] == [False] * 8  # the slow ones still count
    assert here(short)[-1]


def test_closing_waits_for_a_commit_of_another_thread(store: GatedStore) -> None:
    store.short = True
    writer = Writer(store, here_and_now)
    endings: list[Ending] = []
    caller = threading.Thread(target=lambda: endings.append(submit(writer, 1)))
    caller.start()
    assert store.arrived.acquire(timeout=30)
    closer = threading.Thread(target=writer.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    store.gate.release()
    closer.join(30)
    caller.join(30)
    assert not closer.is_alive()
    assert endings[0].error() is None
    assert "closed" in str(submit(writer, 2).error())
    assert stored(store) == [1]


def test_the_thread_tidies_after_commits_of_callers_too(short: GatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.store.writer.IDLE_S", 0.01)
    writer = Writer(short, here_and_now)
    assert short.tidied.acquire(timeout=30)  # then there is nothing left to do, and the thread waits
    while not submit(writer, 1).known:
        pass  # it was still at it
    assert short.tidied.acquire(timeout=30)
    writer.close()
