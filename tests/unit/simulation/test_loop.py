"""Virtual time: order, ties, cancelling."""

from __future__ import annotations

from postroad.simulation.loop import STARTED, Loop


def test_callbacks_run_in_the_order_of_their_times_and_of_their_making() -> None:
    loop, heard = Loop(), []
    loop.after(2.0, lambda: heard.append(("c", loop.now)))
    loop.after(1.0, lambda: heard.append(("a", loop.now)))
    loop.after(1.0, lambda: heard.append(("b", loop.now)))
    loop.run(STARTED + 5.0)
    assert heard == [("a", STARTED + 1), ("b", STARTED + 1), ("c", STARTED + 2)]
    assert (loop.now, loop.steps) == (STARTED + 5, 3)


def test_nothing_behind_the_end_runs() -> None:
    loop, heard = Loop(), []
    loop.after(1.0, lambda: heard.append("in time"))
    loop.after(1.1, lambda: heard.append("late"))
    loop.run(STARTED + 1.0)
    assert heard == ["in time"]


def test_a_time_that_is_over_means_now() -> None:
    loop, heard = Loop(), []
    loop.run(STARTED + 1.0)
    loop.at(STARTED, lambda: heard.append(loop.now))
    loop.run(STARTED + 2.0)
    assert heard == [STARTED + 1]


def test_a_cancelled_timer_does_nothing() -> None:
    loop, heard = Loop(), []
    timer = loop.after(1.0, lambda: heard.append("no"))
    loop.after(0.5, timer.cancel)
    loop.run(STARTED + 2.0)
    assert heard == []
    assert loop.steps == 1
