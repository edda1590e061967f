"""Offsets as Spark keeps them, what they say about lost messages, and how a batch is divided."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import InvalidArgument
from postroad.reports.offsets import Mark, Plan
from postroad.spark.checkpoint import QueueOffset, StreamOffset, allotted, grouped, in_proportion, parts_of, shares

Q = r"private$\q"
MARK = Mark(arrival=50, added=10, oldest=None, messages=0, arrived=50, express=6, run="one", settled=True, queue="guid")
OLD: dict[str, Any] = {
    "arrival": 20,
    "begin": 7,
    "messages": 5,
    "partitions": 2,
    "added": -16714,
    "since": 5,
    "hold": "spark-x",
}
PENDING = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 1000), max_size=8)


def plan(end: int, messages: int, express: int = 0) -> Plan:
    return Plan(0, end, messages, express, (), None)


def test_the_text_of_an_offset_is_stable() -> None:
    offset = StreamOffset({Q: QueueOffset.first(7).to(plan(20, 5), MARK), r"private$\a": QueueOffset.first(1)}, "x", 3)
    text = json.dumps(offset.json())
    assert json.dumps(StreamOffset.read(json.loads(text), None).json()) == text
    assert StreamOffset.read(json.loads(text), None) == offset
    assert json.loads(text)["version"] == 2
    assert list(json.loads(text)["queues"]) == [r"private$\a", Q]


def test_fields_of_a_later_version_are_kept() -> None:
    value = StreamOffset({Q: QueueOffset.first(7)}).json() | {"colour": "blue"}
    value["queues"][Q]["depth"] = {"a": 1}
    read = StreamOffset.read(value, None)
    assert read.json() == value
    later = replace(read, queues={Q: read.queues[Q].to(plan(20, 5), MARK)}).json()
    assert (later["colour"], later["queues"][Q]["depth"]) == ("blue", {"a": 1})


def test_an_offset_without_a_version_is_of_one_queue() -> None:
    read = StreamOffset.read(OLD, Q)
    assert read == StreamOffset({Q: QueueOffset(20, 7, 5, 2)}, "spark-x")
    assert read.queues[Q].pending(MARK) is None, "its counts mean something else"
    with pytest.raises(InvalidArgument, match=r"^checkpoint: an earlier version wrote it for one queue"):
        StreamOffset.read(OLD, None)


@pytest.mark.parametrize(
    "value", [{}, {"partition": 1}, OLD | {"other": 1}, {"version": 2}, {"version": 2, "queues": {Q: 5}}]
)
def test_an_offset_of_something_else_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"^checkpoint: the offset .* start with a new checkpoint"):
        StreamOffset.read(value, Q)


def test_an_offset_of_a_later_version_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^checkpoint: has offsets of version 3, but this is version 2"):
        StreamOffset.read({"version": 3, "queues": {}}, Q)


def test_the_end_of_a_batch_says_where_it_began() -> None:
    second = QueueOffset.first(7).to(plan(20, 5), MARK)
    assert (second.begin, second.arrival, second.messages) == (7, 20, 5)
    assert second.resting() == replace(second, begin=20, messages=0, partitions=0)


def test_messages_not_handed_out_are_pending() -> None:
    start = QueueOffset.first(7).counted_from(MARK, plan(50, 5, express=2))
    assert start.pending(MARK) == 5
    assert start.to(plan(20, 3, express=1), MARK).pending(MARK) == 2
    assert start.to(plan(50, 5, express=2), MARK).pending(MARK) == 0
    more = replace(MARK, added=12, express=9)
    assert start.pending(more) == 10
    assert start.without_lost(more).pending(more) == 0


def test_a_restart_of_the_manager_counts_express_messages_anew() -> None:
    start = QueueOffset.first(7).counted_from(MARK, plan(50, 0))
    seen = replace(MARK, added=11, express=9)
    after = replace(MARK, run="two", added=12, express=4)
    assert start.pending(after) == 6, "two stored ones, and those of the new run"
    assert start.dropped(after, seen) == 3
    assert start.dropped(after, None) == 0, "no mark has counted them"
    assert start.dropped(seen, MARK) == 0
    assert start.to(plan(60, 6, express=4), after).pending(after) == 0


@given(PENDING, st.integers(1, 500))
def test_a_limit_is_shared_in_proportion(pending: dict[str, int], most: int) -> None:
    made = allotted(pending, most)
    assert sum(made.values()) == min(most, sum(pending.values()))
    assert all(made[name] <= count for name, count in pending.items())
    if sum(pending.values()) > most:
        for name, count in pending.items():
            assert abs(made[name] - most * count / sum(pending.values())) <= 1


def test_a_small_queue_beside_a_large_one_has_its_turn() -> None:
    assert allotted({"large": 1_000_000, "small": 1}, 10) == {"large": 9, "small": 1}


def test_bytes_are_shared_by_numbers_of_messages() -> None:
    assert in_proportion({"a": 30, "b": 10, "c": 0}, 4000) == {"a": 3000, "b": 1000, "c": 1}


def test_tasks_are_shared_by_numbers_of_messages() -> None:
    assert parts_of({"a": 30_000, "b": 10_000, "c": 0}, 4, 1000) == {"a": 3, "b": 1, "c": 0}
    assert parts_of({"a": 10, "b": 10}, 4, 1000) == {"a": 1, "b": 1}
    assert parts_of({}, 4, 1000) == {}


def test_no_task_for_a_handful() -> None:
    assert [shares(messages, 4, 1000) for messages in (0, 1, 1000, 1001, 3500, 10**6)] == [1, 1, 1, 2, 4, 4]


@given(PENDING, st.integers(1, 8))
def test_small_queues_share_tasks(sizes: dict[str, int], most: int) -> None:
    made = grouped(sizes, most)
    assert sorted(each for group in made for each in group) == sorted(sizes)
    assert len(made) == min(most, len(sizes))
    totals = [sum(sizes[each] for each in group) for group in made]
    assert max(totals, default=0) - min(totals, default=0) <= max(sizes.values(), default=0)
    place = list(sizes).index
    assert made == sorted((sorted(group, key=place) for group in made), key=lambda group: place(group[0]))


def test_the_tasks_of_a_batch_are_those_of_its_offset() -> None:
    large = QueueOffset(20, 0, messages=90, partitions=3)
    small = QueueOffset(30, 0, messages=2, partitions=1)
    batch = StreamOffset({"b": small, "a": large, "c": small, "d": QueueOffset.first(7)}, tasks=3)
    again = StreamOffset.read(json.loads(json.dumps(batch.json())), None)
    assert batch.groups() == again.groups() == [[("a", 0), ("b", 0)], [("a", 1), ("c", 0)], [("a", 2)]]
    assert len(replace(batch, tasks=0).groups()) == 5, "each part is a task, as an earlier version had it"
