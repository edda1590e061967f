"""Metrics of a limited number of queues: which queues get one, and that no counter ever falls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache

from postroad.api.monitoring import OTHERS, QueueSeries
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.reports.info import QueueInfo
from postroad.store import MemoryStore


@cache
def sample() -> QueueInfo:
    async def main() -> QueueInfo:
        manager = build_manager(default_configuration("alpha"), MemoryStore())
        await manager.start()
        try:
            return await manager.create_queue(r"private$\orders")
        finally:
            await manager.stop()

    return asyncio.run(main())


def queue(name: str, messages_in: int = 0, kind: str = "private") -> QueueInfo:
    return replace(sample(), path=name, id=name, type=kind, messages=1, messages_in=messages_in, quota_kb=2)


def names(queues: list[QueueInfo]) -> list[str]:
    return [each.path for each in queues]


def test_queues_of_applications_come_first_and_the_rest_is_summed() -> None:
    queues = [queue("journal", 1, "journal"), queue("a", 2), queue("b", 3), queue("c", 4)]
    shown = QueueSeries(2).of(queues)
    assert names(shown) == ["a", "b", OTHERS]
    assert (shown[-1].messages, shown[-1].messages_in, shown[-1].quota_kb, shown[-1].type) == (2, 5, 4, OTHERS)
    assert names(QueueSeries(4).of(queues)) == ["journal", "a", "b", "c"]
    assert names(QueueSeries(0).of(queues)) == [OTHERS]
    assert QueueSeries(0).of([]) == []
    assert names(QueueSeries(1).of([queue(r"private$\admin_queue$"), queue("a")])) == ["a", OTHERS]


def test_one_without_a_quota_makes_the_sum_one_without() -> None:
    assert QueueSeries(0).of([queue("a"), replace(queue("b"), quota_kb=None)])[0].quota_kb is None


def test_no_counter_falls_when_queues_come_and_go() -> None:
    series = QueueSeries(1)
    assert [each.messages_in for each in series.of([queue("a", 5), queue("b", 7), queue("c", 1)])] == [5, 8]
    # The queue with its own series goes. The others stay together, and the next new queue takes the place.
    after = series.of([queue("b", 8), queue("c", 1), queue("new", 2)])
    assert [(each.path, each.messages_in) for each in after] == [("new", 2), (OTHERS, 9)]
    # One of the others goes, and what it counted stays counted.
    after = series.of([queue("c", 3), queue("new", 2)])
    assert [(each.path, each.messages_in) for each in after] == [("new", 2), (OTHERS, 11)]
