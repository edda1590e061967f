"""How changes become durable: one commit at a time, shared by all changes that have gathered, and no hurry without
need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from postroad.errors import InvalidArgument, StorageError
from postroad.queues.durability import ENOUGH, LOOK_S, UNHURRIED_S, Durability
from postroad.reports.operations import QueueAccess
from postroad.store.interface import Batch
from tests.unit.queues.harness import DISK_FULL, ORDERS, STARTED, Harness


class Wait:
    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


Written = Callable[[Exception | None], object]


class Bench:
    """Durability whose event loop and disk are a test's."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.waits: list[Wait] = []
        self.written: list[tuple[Batch, Written]] = []
        self.tidied = 0
        self.told: list[tuple[str, StorageError | None]] = []
        self.now = STARTED
        self.durability = Durability(harness.manager, lambda: self.now)
        self.durability.drive(self, self)

    # The event loop

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Wait:
        return self.call_later(0.0, callback, *arguments)

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Wait:
        self.waits.append(Wait(delay, partial(callback, *arguments)))
        return self.waits[-1]

    # The disk

    def submit(self, batch: Batch, done: Written) -> None:
        self.written.append((batch, done))

    def tidy(self) -> None:
        self.tidied += 1

    def close(self) -> None: ...

    def put(self, label: str) -> None:
        self.harness.promise(ORDERS, label)

    def wait_for(self, name: str) -> None:
        self.put(name)
        self.durability.when_durable(lambda error: self.told.append((name, error)))

    def turn(self) -> list[float]:
        """Lets time pass. Returns what was waited for."""
        waits, self.waits = self.waits, []
        ran = [wait for wait in waits if not wait.cancelled]
        for wait in ran:
            wait.callback()
        return [wait.seconds for wait in ran]

    def land(self, error: Exception | None = None) -> None:
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
    assert bench.durability.idle


def test_a_sender_is_answered_before_the_reader_that_its_message_serves(bench: Bench) -> None:
    reader = bench.harness.ask(bench.harness.open(ORDERS, QueueAccess.RECEIVE))
    heard: list[bool] = []
    bench.put("a")
    bench.durability.when_durable(lambda error: heard.append(reader.waits))
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
        def submit(self, batch: Batch, done: Written) -> None:
            super().submit(batch, done)
            self.land(DISK_FULL if self.fails else None)

        fails = False

    quick = Quick(bench.harness)
    quick.put("a")
    quick.durability.when_durable(lambda error: quick.wait_for("b"))
    assert quick.turn() == [0.0]
    assert (quick.told, quick.durability.writing) == ([], False)
    assert quick.turn() == [0.0]
    assert quick.told == [("b", None)]
    quick.fails = True
    quick.wait_for("c")
    quick.turn()
    assert [name for name, error in quick.told if error is not None] == ["c"]
    assert quick.durability.idle


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
    bench.durability.soon()
    bench.durability.soon()
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
    bench.durability.soon()  # it has a commit before it
    bench.land()
    assert (bench.turn(), bench.turn()) == ([UNHURRIED_S], [0.0])
    bench.land()
    assert bench.harness.labels(ORDERS) == ["a", "b"]


def test_all_who_waited_learn_of_a_failure_and_nobody_else(bench: Bench) -> None:
    bench.wait_for("a")
    bench.wait_for("b")
    bench.turn()
    bench.wait_for("c")
    bench.land(DISK_FULL)
    assert bench.told == [("a", DISK_FULL), ("b", DISK_FULL)]
    assert str(bench.durability.last_error) == str(DISK_FULL)
    bench.turn()
    bench.turn()
    bench.land()
    assert bench.told[2:] == [("c", None)]
    assert bench.durability.last_error is None
    assert bench.harness.labels(ORDERS) == ["c"]


def test_a_caller_that_waits_for_nothing_is_answered_at_once(bench: Bench) -> None:
    bench.durability.when_durable(lambda error: bench.told.append(("nothing", error)))
    assert bench.turn() == [0.0]
    assert (bench.told, bench.written) == ([("nothing", None)], [])


def test_a_dropped_duplicate_learns_of_the_failure_of_the_commit_under_way(bench: Bench) -> None:
    bench.wait_for("a")
    bench.turn()
    bench.durability.when_durable(lambda error: bench.told.append(("again", error)), repeats=True)
    bench.wait_for("b")
    bench.land(DISK_FULL)
    assert bench.told == [("a", DISK_FULL), ("again", DISK_FULL)]
    bench.turn()
    bench.land()
    assert bench.told[2:] == [("b", None)]


def test_the_answer_to_a_change_waits_and_that_to_a_look_does_not(bench: Bench) -> None:
    assert bench.durability.run(lambda: bench.put("a")) == (None, True)
    assert bench.durability.run(lambda: 7) == (7, False)


def test_what_a_refusal_has_left_is_committed(bench: Bench) -> None:
    def refuse() -> None:
        bench.put("told to an administration queue")
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument):
        bench.durability.run(refuse)
    assert bench.turn() == [0.0]


def test_a_commit_that_took_the_last_space_closes_the_door_before_anybody_is_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = bench.harness.manager.delivery
    heard: list[str | None] = []
    bench.put("a")
    bench.durability.when_durable(lambda error: heard.append(delivery.full))
    bench.turn()
    monkeypatch.setattr(bench.harness.store, "no_room", lambda: "the disk is full")
    bench.land()
    assert (heard, bench.tidied, bench.durability.error) == (["the disk is full"], 1, "the disk is full")
    monkeypatch.undo()
    assert bench.durability.look() is None
    assert delivery.full is None


def test_the_free_space_is_looked_at_now_and_then_and_after_every_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(bench.harness.store, "no_room", lambda: looks.append(bench.now))
    for wait_s, error in ((1.0, None), (LOOK_S / 2, None), (0.0, DISK_FULL), (2 * LOOK_S, None)):
        bench.now += wait_s
        bench.wait_for("a")
        bench.turn()
        bench.land(error)
    assert len(looks) == 3


def test_a_fault_of_the_store_is_a_storage_error_to_those_who_wait(bench: Bench) -> None:
    bench.wait_for("a")
    bench.turn()
    bench.land(RuntimeError("a bug"))
    ((name, error),) = bench.told
    assert isinstance(error, StorageError)
    assert (name, str(error)) == ("a", "the store failed: RuntimeError('a bug')")
    assert (bench.durability.failures, bench.durability.last_failure) == (1, error)


def test_an_answer_that_fails_keeps_nobody_from_theirs(bench: Bench) -> None:
    bench.harness.manager.delivery.watchers.clear()  # they raise

    def fail(error: StorageError | None) -> None:
        raise RuntimeError("a bug")

    bench.put("a")
    bench.durability.when_durable(fail)
    bench.wait_for("b")
    bench.turn()
    bench.land()
    assert bench.told == [("b", None)]
    assert bench.harness.manager.delivery.tally.follow_up_errors == 1


def test_the_answer_of_a_change_comes_at_once_or_with_the_commit(bench: Bench) -> None:
    told: list[tuple[int, StorageError | None]] = []

    def change() -> int:
        bench.put("a")
        return 1

    bench.durability.change_then(lambda: 7, lambda *answer: told.append(answer))
    bench.durability.change_then(change, lambda *answer: told.append(answer))
    assert told == [(7, None)]
    bench.turn()
    bench.land()
    assert told == [(7, None), (1, None)]
    bench.durability.change_then(lambda: 8, lambda *answer: told.append(answer), lambda result: True)
    assert len(told) == 2  # what it repeats may not be durable
    bench.turn()
    assert told[2:] == [(8, None)]


def test_nothing_is_answered_while_another_process_may_have_taken_over(bench: Bench) -> None:
    """A refusal changes nothing, but what it goes by may be long out of date."""
    holds = True
    bench.durability.drive(bench, bench, holds=lambda: holds)
    answers: list[StorageError | None] = []
    bench.durability.change_then(lambda: None, lambda result, error: answers.append(error))
    assert answers == [None]
    holds = False
    bench.durability.change_then(lambda: None, lambda result, error: answers.append(error))
    bench.durability.when_durable(answers.append)
    bench.turn()
    assert [type(error) for error in answers[1:]] == [StorageError, StorageError]
    holds = True
    bench.durability.change_then(lambda: None, lambda result, error: answers.append(error))
    assert (answers[3:], bench.written) == ([None], [])
