"""How changes become durable: one commit at a time, shared by all that have gathered, and no hurry without need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroad.errors import InvalidArgument, StorageError
from postroad.queues.commits import ENOUGH, UNHURRIED_S, Commits, Done
from postroad.reports.operations import QueueAccess
from postroad.store.interface import Batch
from tests.unit.queues.harness import DISK_FULL, ORDERS, STARTED, Harness


class Wait:
    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    """Commits whose time and disk are a test's."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.waits: list[Wait] = []
        self.written: list[tuple[Batch, Done]] = []
        self.told: list[tuple[str, StorageError | None]] = []
        self.commits = Commits(harness.manager, lambda: STARTED, self._after, self._write)

    def _after(self, seconds: float, callback: Callable[[], None]) -> Wait:
        self.waits.append(Wait(seconds, callback))
        return self.waits[-1]

    def _write(self, batch: Batch, done: Done) -> None:
        self.written.append((batch, done))

    def put(self, label: str) -> None:
        self.harness.promise(ORDERS, label)

    def wait_for(self, name: str) -> None:
        self.put(name)
        self.commits.when_durable(lambda error: self.told.append((name, error)))

    def turn(self) -> list[float]:
        """Lets the time pass; what was waited for."""
        waits, self.waits = self.waits, []
        ran = [wait for wait in waits if not wait.cancelled]
        for wait in ran:
            wait.callback()
        return [wait.seconds for wait in ran]

    def land(self, error: StorageError | None = None) -> None:
        batch, done = self.written.pop()
        if error is None:
            self.harness.store.commit([batch])
        done(error)


@pytest.fixture
def bench(harness: Harness) -> Bench:
    return Bench(harness)


def test_what_gathers_is_one_commit_and_the_next_waits_for_it(bench: Bench) -> None:
    bench.wait_for("a")
    bench.wait_for("b")
    assert bench.turn() == [0.0]
    bench.wait_for("c")
    assert (bench.turn(), len(bench.written), bench.told) == ([], 1, [])
    bench.land()
    assert bench.told == [("a", None), ("b", None)]
    bench.turn()
    assert (bench.turn(), len(bench.written)) == ([0.0], 1)
    bench.land()
    assert bench.told[2:] == [("c", None)]
    assert bench.commits.idle


def test_a_sender_is_answered_before_the_reader_that_its_message_serves(bench: Bench) -> None:
    reader = bench.harness.ask(bench.harness.open(ORDERS, QueueAccess.RECEIVE))
    heard: list[bool] = []
    bench.put("a")
    bench.commits.when_durable(lambda error: heard.append(reader.waits))
    bench.turn()
    bench.land()
    assert (heard, reader.labels) == ([True], ["a"])


def test_after_a_shared_commit_the_next_one_gathers_as_long_as_more_come(bench: Bench) -> None:
    bench.wait_for("a")
    bench.wait_for("b")
    assert bench.turn() == [0.0]
    bench.wait_for("c")
    bench.land()
    for name in "de":
        assert (bench.turn(), bench.written) == ([0.0], [])
        bench.wait_for(name)
    assert (bench.turn(), bench.written) == ([0.0], [])
    assert (bench.turn(), len(bench.written)) == ([0.0], 1)
    bench.land()
    assert bench.told[2:] == [("c", None), ("d", None), ("e", None)]


def test_a_caller_that_is_alone_waits_for_no_other(bench: Bench) -> None:
    for name in "ab":
        bench.wait_for(name)
        assert (bench.turn(), len(bench.written)) == ([0.0], 1)
        bench.land()
    assert bench.told == [("a", None), ("b", None)]


def test_a_disk_that_ends_a_commit_at_once_is_asked_for_the_next_in_its_own_turn(bench: Bench) -> None:
    class Quick(Bench):
        def _write(self, batch: Batch, done: Done) -> None:
            super()._write(batch, done)
            self.land(DISK_FULL if self.fails else None)

        fails = False

    quick = Quick(bench.harness)
    quick.put("a")
    quick.commits.when_durable(lambda error: quick.wait_for("b"))
    assert quick.turn() == [0.0]
    assert (quick.told, quick.commits.writing) == ([], False)
    assert quick.turn() == [0.0]
    assert quick.told == [("b", None)]
    quick.fails = True
    quick.wait_for("c")
    quick.turn()
    assert [name for name, error in quick.told if error is not None] == ["c"]
    assert quick.commits.idle


def test_a_commit_that_enough_wait_for_starts_though_more_come(bench: Bench) -> None:
    bench.wait_for("a")
    bench.wait_for("b")
    bench.turn()
    bench.land()
    for number in range(ENOUGH):
        bench.wait_for(str(number))
    assert (bench.turn(), len(bench.written)) == ([0.0], 1)


def test_what_nobody_waits_for_takes_its_time_and_goes_with_what_comes(bench: Bench) -> None:
    bench.put("a")
    bench.commits.soon()
    bench.commits.soon()
    assert [wait.seconds for wait in bench.waits] == [UNHURRIED_S]
    bench.wait_for("b")
    assert bench.turn() == [0.0]
    bench.land()
    assert bench.harness.labels(ORDERS) == ["a", "b"]
    assert bench.turn() == []


def test_what_nobody_waits_for_is_committed_all_the_same(bench: Bench) -> None:
    bench.wait_for("a")
    bench.turn()
    bench.put("b")
    bench.commits.soon()  # it has a commit before it
    bench.land()
    assert (bench.turn(), bench.turn()) == ([UNHURRIED_S], [0.0])
    bench.land()
    assert bench.harness.labels(ORDERS) == ["a", "b"]


def test_all_who_waited_hear_of_a_failure_and_nobody_else(bench: Bench) -> None:
    bench.wait_for("a")
    bench.wait_for("b")
    bench.turn()
    bench.wait_for("c")
    bench.land(DISK_FULL)
    assert bench.told == [("a", DISK_FULL), ("b", DISK_FULL)]
    assert str(bench.commits.last_error) == str(DISK_FULL)
    bench.turn()
    bench.turn()
    bench.land()
    assert bench.told[2:] == [("c", None)]
    assert bench.commits.last_error is None
    assert bench.harness.labels(ORDERS) == ["c"]


def test_who_waits_for_nothing_hears_at_once(bench: Bench) -> None:
    bench.commits.when_durable(lambda error: bench.told.append(("nothing", error)))
    assert bench.turn() == [0.0]
    assert (bench.told, bench.written) == ([("nothing", None)], [])


def test_who_dropped_a_duplicate_hears_of_the_failure_of_the_commit_under_way(bench: Bench) -> None:
    bench.wait_for("a")
    bench.turn()
    bench.commits.when_durable(lambda error: bench.told.append(("again", error)), repeats=True)
    bench.wait_for("b")
    bench.land(DISK_FULL)
    assert bench.told == [("a", DISK_FULL), ("again", DISK_FULL)]
    bench.turn()
    bench.land()
    assert bench.told[2:] == [("b", None)]


def test_the_answer_to_a_change_waits_and_that_to_a_look_does_not(bench: Bench) -> None:
    assert bench.commits.run(lambda: bench.put("a")) == (None, True)
    assert bench.commits.run(lambda: 7) == (7, False)


def test_what_a_refusal_has_left_is_committed(bench: Bench) -> None:
    def refuse() -> None:
        bench.put("told to an administration queue")
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument):
        bench.commits.run(refuse)
    assert bench.turn() == [0.0]
