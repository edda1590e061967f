"""One heap of deadlines for all sources: who is called when, and what the event loop's one timer waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroad.runtime.deadlines import RETRY_S, Source, Timetable


class Call:
    def __init__(self, at: float, callback: Callable[..., object]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Virtual time, and what was said of work that fails."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Call] = []
        self.supervised: list[str] = []
        self.commits = 0

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Call:
        raise NotImplementedError

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Call:
        self.calls.append(Call(self.now + delay, callback))
        return self.calls[-1]

    @property
    def armed(self) -> list[float]:
        return [each.at for each in self.calls if not each.cancelled]

    def run(self, until: float) -> None:
        while due := [each for each in self.calls if not each.cancelled and each.at <= until]:
            call = min(due, key=lambda each: each.at)
            self.calls.remove(call)
            self.now = call.at
            call.callback()
        self.now = until

    def commit(self) -> None:
        self.commits += 1

    # Supervision

    def fails(self, name: str, error: BaseException) -> None:
        self.supervised.append(f"{name}: {error}")

    def runs(self, name: str) -> None:
        self.supervised.append(f"{name} runs")


class Work:
    """Notes what is due, and when."""

    def __init__(self, timetable: Timetable, name: str = "work") -> None:
        self.done: list[tuple[float, list[str]]] = []
        self.error: Exception | None = None
        self.source: Source[str] = timetable.source(name, self.run)

    def run(self, keys: list[str], now: float) -> None:
        if self.error is not None:
            raise self.error
        self.done.append((now, keys))


@pytest.fixture
def timetable() -> Timetable:
    return Timetable()


@pytest.fixture
def loop(timetable: Timetable) -> Loop:
    loop = Loop()
    timetable.drive(loop, lambda: loop.now, loop.commit, loop)
    return loop


def test_the_first_of_all_sources_is_the_next(timetable: Timetable) -> None:
    one, other = Work(timetable), Work(timetable)
    one.source.set("a", 3.0)
    other.source.set("b", 2.0)
    assert (timetable.first, one.source.get("a"), one.source.get("b")) == (2.0, 3.0, None)
    other.source.set("b", None)
    assert timetable.first == 3.0
    one.source.set("a", 5.0)
    assert timetable.first == 5.0
    one.source.set("a", None)
    assert timetable.first is None


def test_a_source_hears_at_once_of_all_its_keys_that_are_due(timetable: Timetable) -> None:
    one, other = Work(timetable), Work(timetable)
    for place, key in enumerate("abc"):
        one.source.set(key, float(place))
    other.source.set("d", 0.5)
    timetable.run(1.0)
    assert (one.done, other.done) == ([(1.0, ["a", "b"])], [(1.0, ["d"])])
    assert (one.source.get("a"), len(one.source), timetable.first) == (None, 1, 2.0)


def test_what_is_called_off_while_others_run_does_not_run(timetable: Timetable) -> None:
    last = Work(timetable)
    first: Source[str] = timetable.source("first", lambda keys, now: last.source.set("b", None))
    first.set("a", 1.0)
    last.source.set("b", 1.0)
    last.source.set("c", 1.0)
    timetable.run(1.0)
    assert last.done == [(1.0, ["c"])]


def test_what_is_due_again_at_once_has_its_next_turn_later(timetable: Timetable) -> None:
    runs: list[float] = []

    def again(keys: list[None], now: float) -> None:
        runs.append(now)
        source.set(None, now)

    source: Source[None] = timetable.source("again", again)
    source.set(None, 1.0)
    timetable.run(1.0)
    assert (runs, timetable.first) == ([1.0], 1.0)


def test_a_time_that_became_later_without_a_word_is_asked_for_again(timetable: Timetable) -> None:
    times: dict[str, float | None] = {"a": 1.0, "b": 1.0, "c": 1.0}
    done: list[list[str]] = []
    source: Source[str] = timetable.source("work", lambda keys, now: done.append(keys), times.get)
    for key in times:
        source.touch(key)
    times.update(b=3.0, c=None)
    timetable.run(2.0)
    assert (done, source.get("b"), source.get("c")) == ([["a"]], 3.0, None)


def test_one_timer_waits_for_the_first_and_is_set_anew_only_for_an_earlier_one(
    timetable: Timetable, loop: Loop
) -> None:
    work = Work(timetable)
    work.source.set("a", 5.0)
    assert loop.armed == [5.0]
    work.source.set("b", 7.0)
    work.source.set("a", 6.0)
    assert loop.armed == [5.0]
    work.source.set("c", 2.0)
    assert loop.armed == [2.0]
    loop.run(10.0)
    assert work.done == [(2.0, ["c"]), (6.0, ["a"]), (7.0, ["b"])]
    assert loop.commits >= 3  # behind each turn: what it has changed has to be durable some time
    assert loop.armed == []


def test_what_fails_is_due_again_and_keeps_nothing_else_from_running(timetable: Timetable, loop: Loop) -> None:
    broken, sound = Work(timetable, "broken"), Work(timetable, "sound")
    broken.error = ValueError("a bug")
    broken.source.set("a", 1.0)
    sound.source.set("b", 1.0)
    loop.run(1.0)
    assert (sound.done, loop.supervised) == ([(1.0, ["b"])], ["broken: a bug"])
    assert broken.source.get("a") == 1.0 + RETRY_S
    broken.error = None
    loop.run(1.0 + RETRY_S)
    assert broken.done == [(1.0 + RETRY_S, ["a"])]
    assert loop.supervised == ["broken: a bug", "broken runs"]


def test_a_time_that_cannot_be_asked_for_loses_no_deadline(timetable: Timetable, loop: Loop) -> None:
    times: dict[str, float] = {"a": 1.0, "b": 1.0}
    done: list[list[str]] = []
    source: Source[str] = timetable.source("work", lambda keys, now: done.append(keys), lambda key: times[key])
    for key in times:
        source.touch(key)
    del times["b"]
    loop.run(1.0)
    times["b"] = 1.0
    loop.run(1.0 + RETRY_S)
    assert [key for keys in done for key in keys] == ["a", "b"]


def test_work_is_down_as_long_as_one_of_its_sources_fails(timetable: Timetable, loop: Loop) -> None:
    one, other, sound = (Work(timetable) for _ in range(3))
    one.error = other.error = ValueError("a bug")
    for work in (one, other, sound):
        work.source.set("a", 1.0)
    loop.run(1.0)
    one.error = None
    loop.run(1.0 + RETRY_S)
    assert loop.supervised == ["work: a bug"] * 3
    other.error = None
    loop.run(1.0 + 2 * RETRY_S)
    assert loop.supervised[3:] == ["work runs"]


def test_without_supervision_a_fault_is_the_drivers(timetable: Timetable) -> None:
    work = Work(timetable)
    work.error = ValueError("a bug")
    work.source.set("a", 1.0)
    with pytest.raises(ValueError, match="a bug"):
        timetable.run(1.0)


def test_after_the_stop_nothing_runs_by_itself(timetable: Timetable, loop: Loop) -> None:
    work = Work(timetable)
    work.source.set("a", 1.0)
    timetable.stop()
    work.source.set("b", 2.0)
    loop.run(5.0)
    assert work.done == []
    timetable.drive(loop, lambda: loop.now, loop.commit, loop)
    loop.run(5.0)
    assert work.done == [(5.0, ["a", "b"])]


def test_putting_off_costs_no_entry_in_the_heap(timetable: Timetable) -> None:
    work = Work(timetable)
    for time in range(1, 1000):
        work.source.set("a", float(time))
    assert len(timetable._agenda) == 1
