"""Unusual hours of a queue, by the median and the median absolute deviation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroad.spark.pipeline.trends import FEWEST_HOURS, HOUR, Anomaly, anomalies

START = datetime(2024, 5, 17, tzinfo=UTC)


def hour(number: int, messages: int, *, reason: str | None = None, took_s: float | None = None) -> dict[str, Any]:
    at = START + timedelta(hours=number)
    return {"hour": at, "queue": "q", "reason": reason, "messages": messages, "receive_p50_s": took_s}


def found(rows: list[dict[str, Any]], hours: int) -> list[Anomaly]:
    return anomalies(rows, START + timedelta(hours=hours))


def test_an_hour_far_from_the_median_is_unusual_and_the_others_are_not() -> None:
    counts = [95, 100, 105, 100, 98, 102, 500, 100, 100, 97]
    (odd,) = found([hour(number, count) for number, count in enumerate(counts)], len(counts))
    # The deviation is that of chance, the square root of 100, because the hours differ by less.
    assert odd == Anomaly(START + 6 * HOUR, "q", "volume", 500.0, 100.0, 10.0, 500)
    assert odd.times == 40.0


@pytest.mark.parametrize(("messages", "expected"), [(130_000, 0), (130_001, 1)])
def test_a_busy_queue_needs_a_difference_of_more_than_three_tenths(messages: int, expected: int) -> None:
    rows = [hour(number, 100_000) for number in range(30)]
    assert len(found([*rows, hour(30, messages)], 31)) == expected


def test_an_hour_without_messages_is_unusual_once_it_is_over() -> None:
    rows = [hour(number, 100) for number in range(10)]
    assert found(rows, 10) == []
    assert [each.hour for each in found(rows, 12)] == [START + 11 * HOUR, START + 10 * HOUR]
    assert found([*rows, hour(10, 1)], 10) == []  # it has only begun


def test_a_queue_that_is_empty_in_most_hours_has_no_usual_number() -> None:
    nightly = [hour(24 * day, 500) for day in range(7)]
    assert found(nightly, 150) == []


def test_a_queue_that_is_no_longer_used_is_unusual_for_a_day() -> None:
    rows = [hour(number, 100) for number in range(40)]
    assert len(found(rows, 1000)) == 24


def test_few_hours_are_no_habit() -> None:
    rows = [hour(number, 10) for number in range(FEWEST_HOURS - 2)]
    assert found([*rows, hour(FEWEST_HOURS - 2, 1000)], FEWEST_HOURS - 1) == []
    assert len(found([*rows, hour(FEWEST_HOURS - 2, 1000), hour(FEWEST_HOURS - 1, 10)], FEWEST_HOURS)) == 1


def test_slow_hours_are_unusual_and_fast_ones_are_not() -> None:
    rows = [hour(number, 10, took_s=took) for number, took in enumerate([20, 21, 19, 20, 20, 1, 20, 90, 20, 21])]
    (odd,) = found(rows, 10)
    assert (odd.kind, odd.hour, odd.value, odd.usual) == ("latency", START + 7 * HOUR, 90, 20)


@pytest.mark.parametrize(("died", "expected"), [(6, []), (7, ["nack-q-purged"])])
def test_a_reason_that_did_not_occur_before(died: int, expected: list[str]) -> None:
    rows = [hour(number, 10) for number in range(10)]
    assert [each.kind for each in found([*rows, hour(8, died, reason="nack-q-purged")], 10)] == expected


def test_rows_without_a_queue_or_an_hour_are_left_out() -> None:
    assert (
        found([hour(0, 5) | {"queue": None}, hour(0, 5) | {"hour": None}, hour(3, 2, reason="nack-q-purged")], 9) == []
    )
