"""How a search reads a queue: at full speed from an idle manager, with pauses from a busy one."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from postroad.console import search
from postroad.console.history import COST
from postroad.console.manager_client import ManagerClient
from postroad.console.search import Reader
from postroad.describe.received import ReceivedMessage

ANSWER_S = 3.0


class SlowManager:
    """Needs ANSWER_S for every page, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pages: list[list[ReceivedMessage]] = [cast(list[ReceivedMessage], ["a message"]), []]

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def page(self, name: str, after: int, limit: int) -> list[ReceivedMessage]:
        self.now += ANSWER_S
        return self.pages.pop(0)


@pytest.mark.parametrize(("busy", "paused_s"), [(True, COST * ANSWER_S), (False, 0)])
def test_a_busy_manager_gets_long_pauses_and_none_after_the_last_page(
    monkeypatch: pytest.MonkeyPatch, busy: bool, paused_s: float
) -> None:
    manager = SlowManager()
    monkeypatch.setattr(search, "time", manager)
    monkeypatch.setattr("postroad.console.search.asyncio.sleep", manager.sleep)
    reader = Reader(cast(ManagerClient, manager), lambda: busy)

    async def run() -> None:
        while await reader.page("queue", -1, 10):
            pass

    asyncio.run(run())
    assert manager.now == 2 * ANSWER_S + paused_s
