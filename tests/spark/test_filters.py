"""Which of Spark's filters a manager applies itself."""

from __future__ import annotations

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from postroad.spark.filters import push


def test_a_range_of_arrival_numbers() -> None:
    pushed, left = push([GreaterThan(("arrival",), 4), LessThanOrEqual(("arrival",), 9), LessThan(("arrival",), 100)])
    assert (pushed.begin, pushed.end, left) == (5, 10, [])
    pushed, _ = push([GreaterThanOrEqual(("arrival",), 4), EqualTo(("arrival",), 7)])
    assert (pushed.begin, pushed.end) == (7, 8)


def test_equal_values() -> None:
    pushed, left = push([EqualTo(("priority",), 7), EqualTo(("class",), 0), EqualTo(("label",), "x")])
    assert (pushed.query, left) == ({"priority": 7, "class": 0, "label": "x"}, [])


def test_the_rest_is_left_to_spark() -> None:
    others: list[Filter] = [
        IsNotNull(("label",)),
        Not(EqualTo(("label",), "x")),
        EqualTo(("priority",), 70),
        EqualTo(("app_tag",), 1),
        GreaterThan(("priority",), 3),
    ]
    pushed, left = push(others)
    assert (pushed.query, left) == ({}, others)
    twice: list[Filter] = [EqualTo(("label",), "x"), EqualTo(("label",), "y")]
    assert push(twice)[1] == twice[1:]
