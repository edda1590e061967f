"""Coroutines without a task: when they go on, and how they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from postroad.runtime.steps import Promise, Steps


class Story:
    """A coroutine that awaits one future, and what happened in which order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def wait(self, future: asyncio.Future[str]) -> None:
        self.events.append("begun")
        try:
            self.events.append(await future)
        except ValueError as error:
            self.events.append(f"failed: {error}")
        except asyncio.CancelledError:
            self.events.append("cancelled")
            await asyncio.sleep(0)
            self.events.append("ended")


def promised() -> Promise[str]:
    return Promise(loop=asyncio.get_running_loop())


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


def test_a_kept_promise_goes_on_at_once() -> None:
    async def test() -> None:
        story, promise = Story(), promised()
        Steps(story.wait(promise)).go_on()
        assert story.events == ["begun"]
        promise.set_result("kept")
        assert story.events == ["begun", "kept"]

    run(test)


def test_a_broken_promise_raises_at_once() -> None:
    async def test() -> None:
        story, promise = Story(), promised()
        Steps(story.wait(promise)).go_on()
        promise.set_exception(ValueError("the disk"))
        assert story.events == ["begun", "failed: the disk"]

    run(test)


def test_what_has_ended_before_is_not_waited_for() -> None:
    async def test() -> None:
        story, promise = Story(), promised()
        promise.set_result("kept")
        Steps(story.wait(promise)).go_on()
        assert story.events == ["begun", "kept"]

    run(test)


def test_any_other_future_goes_on_in_the_next_turn() -> None:
    async def test() -> None:
        story, future = Story(), asyncio.get_running_loop().create_future()
        Steps(story.wait(future)).go_on()
        future.set_result("came")
        assert story.events == ["begun"]
        await asyncio.sleep(0)
        assert story.events == ["begun", "came"]

    run(test)


@pytest.mark.parametrize("make", [promised, lambda: asyncio.get_running_loop().create_future()])
def test_cancelling_raises_where_it_waits_and_after_other_callbacks(
    make: Callable[[], asyncio.Future[str]],
) -> None:
    async def test() -> None:
        story, future = Story(), make()
        future.add_done_callback(lambda ended: story.events.append("told"))
        steps = Steps(story.wait(future))
        steps.go_on()
        steps.cancel()
        assert story.events == ["begun"]
        await asyncio.sleep(0)
        assert story.events == ["begun", "told", "cancelled"]
        await asyncio.sleep(0)
        assert story.events[3:] == ["ended"]
        assert future.cancelled()

    run(test)


def test_cancelling_counts_though_the_result_is_on_its_way() -> None:
    async def test() -> None:
        story, future = Story(), asyncio.get_running_loop().create_future()
        steps = Steps(story.wait(future))
        steps.go_on()
        future.set_result("came")
        steps.cancel()
        await asyncio.sleep(0)
        assert story.events == ["begun", "cancelled"]
        await asyncio.sleep(0)  # it ends

    run(test)


def test_a_task_waits_for_a_promise_as_for_any_future() -> None:
    async def test() -> None:
        story, promise = Story(), promised()
        task = asyncio.create_task(story.wait(promise))
        await asyncio.sleep(0)
        promise.set_result("kept")
        await task
        assert story.events == ["begun", "kept"]
        left = asyncio.create_task(story.wait(promised()))
        await asyncio.sleep(0)
        left.cancel()
        await left
        assert story.events[2:] == ["begun", "cancelled", "ended"]

    run(test)
