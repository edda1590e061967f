"""Offsets as Spark keeps them, and how ranges are shared out."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.spark.offsets import Offset, shares, split, split_evenly

ARRIVALS = st.lists(st.integers(100, 1000), min_size=1, max_size=60, unique=True).map(sorted)


def test_the_text_of_an_offset_is_stable() -> None:
    offset = Offset.first(7, 3, "spark-x").to(20, 5, 2)
    text = json.dumps(offset.json())
    assert json.dumps(Offset.read(json.loads(text)).json()) == text
    assert Offset.read(json.loads(text)) == offset


def test_the_end_of_a_batch_says_where_it_began() -> None:
    first = Offset.first(7, 3, None)
    second = first.to(20, 5, 2)
    assert (second.begin, second.arrival, second.messages, second.since) == (7, 20, 5, 5)
    third = second.to_mark(30, 4, 1, added=12, missing=0)
    assert (third.begin, third.arrival, third.added, third.since) == (20, 30, 12, 0)


def test_what_is_missing() -> None:
    start = Offset.first(7, 10, None)
    assert start.missing(5, 15) == 0
    assert start.missing(3, 15) == 2
    assert start.missing(9, 15) == 0, "express messages are not counted where they come"
    assert start.to(20, 4, 1).missing(1, 15) == 0
    assert start.to(20, 4, 1).missing(0, 15) == 1
    assert Offset.first(7, None, None).missing(0, 15) == 0, "nobody knows"


@given(ARRIVALS, st.integers(1, 8))
def test_shares_by_messages_are_the_whole_and_alike(arrivals: list[int], parts: int) -> None:
    made = split(100, 1001, np.array(arrivals, np.int64), parts)
    assert (made[0][0], made[-1][1]) == (100, 1001)
    assert all(left[1] == right[0] for left, right in pairwise(made))
    for begin, end, messages in made:
        assert sum(begin <= each < end for each in arrivals) == messages
    assert max(each[2] for each in made) - min(each[2] for each in made) <= 1


@given(st.integers(0, 100), st.integers(1, 50), st.integers(1, 80))
def test_shares_by_numbers_are_the_whole(begin: int, span: int, parts: int) -> None:
    made = split_evenly(begin, begin + span, parts)
    assert [number for low, high in made for number in range(low, high)] == list(range(begin, begin + span))


def test_no_task_for_a_handful() -> None:
    assert [shares(messages, 4, 1000) for messages in (0, 1, 1000, 1001, 3500, 10**6)] == [1, 1, 1, 2, 4, 4]
