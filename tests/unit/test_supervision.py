"""Background tasks that end are started again, and `down` lists them meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from postroad.runtime import supervision
from postroad.runtime.supervision import Running, Supervisor

PATIENCE_S = 20


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RETRY_S", 0.0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # what is waited for is plain state
            await asyncio.sleep(0)


class Work:
    """Fails as often as it is told to, then runs."""

    def __init__(self, *endings: Exception | None) -> None:
        self.endings = list(endings)
        self.starts = 0
        self.may_run = asyncio.Event()

    async def __call__(self, running: Running) -> None:
        self.starts += 1
        if self.endings:
            ending = self.endings.pop(0)
            if ending is not None:
                raise ending
            return
        await self.may_run.wait()
        running()
        await asyncio.Event().wait()


@pytest.mark.parametrize("ending", [ValueError("a bug"), None], ids=["raises", "returns"])
def test_a_task_that_ends_is_down_until_it_runs_again(
    ending: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        supervisor, work = Supervisor(), Work(ending)
        supervisor.keep("timers", work)
        await until(lambda: work.starts == 2)
        assert list(supervisor.down) == ["timers"]  # it was started, and has not run yet
        work.may_run.set()
        await until(lambda: not supervisor.down)
        await supervisor.stop()
        assert work.starts == 2

    caplog.set_level(logging.INFO)
    asyncio.run(main())
    error, again = caplog.records
    assert error.levelno == logging.ERROR
    assert error.__dict__["task"] == "timers"
    assert error.exc_info is not None
    assert (error.exc_info[2] is not None) == (ending is not None)  # the traceback, where there is one
    assert again.getMessage() == "background task runs again"


def test_a_task_that_somebody_cancels_is_started_again() -> None:
    async def main() -> None:
        supervisor, work = Supervisor(), Work()
        work.may_run.set()
        supervisor.keep("timers", work)
        await until(lambda: work.starts == 1)
        next(task for task in asyncio.all_tasks() if task.get_name() == "postroad-timers").cancel()
        await until(lambda: bool(supervisor.down))
        await until(lambda: work.starts == 2 and not supervisor.down)
        await supervisor.stop()

    asyncio.run(main())


def test_a_task_that_fails_at_every_try_is_not_in_the_log_every_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        supervisor, work = Supervisor(), Work(*(ValueError(str(number)) for number in range(100)))
        supervisor.keep("timers", work)
        await until(lambda: work.starts == 101)
        assert supervisor.failures == 100
        assert supervisor.down == {"timers": "ValueError: 99"}
        await supervisor.stop()
        assert supervisor.down == {}

    asyncio.run(main())
    assert len(caplog.records) == 1


def test_what_was_stopped_stays_so() -> None:
    async def main() -> None:
        supervisor, work, other = Supervisor(), Work(), Work(ValueError())
        supervisor.keep("timers", work)
        supervisor.keep("other", other)
        await until(lambda: other.starts == 2)
        await supervisor.stop("timers", "other")
        for _ in range(10):
            await asyncio.sleep(0)
        assert (work.starts, other.starts, supervisor.down) == (1, 2, {})

    asyncio.run(main())


def test_a_step_that_fails_is_down_until_one_works() -> None:
    supervisor = Supervisor()
    assert not supervisor.step("binary timers", lambda: 1 // 0)
    assert list(supervisor.down) == ["binary timers"]
    assert supervisor.step("binary timers", lambda: None)
    assert supervisor.down == {}
