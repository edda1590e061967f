"""Every gold table against an independent computation, on generated traffic with every edge.

`SEEDS=100` in the environment is the torture run; without it, a few seeds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from postroad.spark.pipeline import lake as tables
from postroad.spark.pipeline.lake import Lake
from tests.spark import oracle
from tests.spark.edges import Traffic, generated, made_lake
from tests.spark.oracle import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(int(os.environ.get("SEEDS", "2")))
EPOCH = date(1970, 1, 1)
ROUNDED = 0.0011  # percentiles are rounded to a millisecond
WIDTH = 1.02  # of a bin of gold/spans, as documented

# What identifies a row.
KEYS: dict[str, tuple[str, ...]] = {
    tables.DELIVERY: ("id",),
    tables.STATES: ("day", "source", "destination", "queue", "delivery", "state", "reason"),
    tables.TRAFFIC: ("day", "minute", "source", "destination", "queue", "delivery", "priority"),
    tables.LINKS: ("day", "minute", "site_a", "site_b"),
    tables.DEAD_LETTERS: ("day", "minute", "reason", "source", "queue", "dead_in"),
    tables.OLDEST: ("id",),
    tables.FAULTS: ("manager", "queue"),
    tables.BACKLOG: ("manager", "queue", "hour"),
    tables.TREND: ("period", "by", "value"),
    tables.EXCHANGES: ("id",),
    tables.CONVERSATIONS: ("id",),
    tables.PAIRS: ("source", "queue"),
    tables.CHAINS: ("id",),
    tables.COUNTS: ("day", "kind", "value"),
    tables.TOP: ("kind", "value"),
    tables.HOURS: ("day", "hour", "queue", "reason"),
}
BINNED = (tables.TREND, tables.HOURS)  # with percentiles of values in bins
SPEED = (tables.SPANS, tables.LATENCY)  # these have a test of their own


@dataclass(frozen=True, slots=True)
class Told:
    lake: Lake
    expected: dict[str, list[Row]]


@pytest.fixture(scope="module", params=SEEDS)
def told(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Told]:
    place = tmp_path_factory.mktemp("numbers")
    traffic = generated(request.param)
    yield Told(made_lake(spark, place / "lake", traffic), expectation(traffic))
    shutil.rmtree(place)


def expectation(traffic: Traffic) -> dict[str, list[Row]]:
    rows = oracle.delivery(traffic)
    asked = oracle.conversations(rows, traffic.journals)
    return {
        tables.DELIVERY: rows,
        tables.STATES: oracle.states(rows),
        tables.TRAFFIC: oracle.traffic_rows(rows),
        tables.LINKS: oracle.links(rows),
        tables.DEAD_LETTERS: oracle.dead_letters(rows),
        tables.OLDEST: oracle.oldest(rows),
        tables.FAULTS: oracle.undecodable(traffic),
        tables.BACKLOG: oracle.backlog(traffic),
        tables.TREND: oracle.trend(rows),
        tables.EXCHANGES: oracle.exchanges(rows),
        tables.CONVERSATIONS: asked,
        tables.PAIRS: oracle.pairs(asked),
        tables.CHAINS: oracle.chains(rows),
        tables.COUNTS: oracle.counts(rows),
        tables.TOP: oracle.counts(rows, by_day=False),
        tables.HOURS: oracle.hours(rows),
    }


def plain(value: Any) -> Any:
    """Times as milliseconds, and days as their number, as the expectation has them."""
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    return (value - EPOCH).days if isinstance(value, date) else value


def rows_of(lake: Lake, name: str) -> list[Row]:
    return [{column: plain(value) for column, value in row.items()} for row in lake.rows(name)]


def by_key(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Row]:
    found = {repr([row[name] for name in names]): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_all_tables_are_compared() -> None:
    assert {*KEYS, *SPEED} == set(tables.GOLD)


@pytest.mark.parametrize("name", KEYS)
def test_a_table_says_what_the_messages_say(told: Told, name: str) -> None:
    ours, theirs = (by_key(rows, KEYS[name]) for rows in (rows_of(told.lake, name), told.expected[name]))
    assert ours.keys() == theirs.keys()
    for key, row in theirs.items():
        assert row.keys() - ours[key].keys() <= {"minute"}  # which the expectation adds to delivery
        for column, value in ours[key].items():
            if (name, column) != (tables.FAULTS, "error"):  # its words are the decoder's
                assert_says(value, row[column], f"{key} {column}", binned=name in BINNED and "_p" in column)


def assert_says(value: Any, expected: Any, where: str, *, binned: bool) -> None:
    if binned and expected is not None:
        low, high = (expected / WIDTH, expected) if "least" in where else (expected, expected * WIDTH)
        assert low - ROUNDED <= value <= high + ROUNDED, where
    else:
        assert value == (pytest.approx(expected, abs=ROUNDED) if isinstance(expected, float) else expected), where


def test_percentiles_hold_the_true_ones_and_are_two_per_cent_wider_at_most(told: Told) -> None:
    found = by_key(rows_of(told.lake, tables.LATENCY), ("by", "value", "until"))
    expected = oracle.latency(told.expected[tables.DELIVERY])
    assert found.keys() == {repr(list(key)) for key in expected}
    for key, times in expected.items():
        row = found[repr(list(key))]
        assert row["messages"] == len(times["most"])
        assert (row["max_s"], row["max_least_s"]) == (max(times["most"]), max(times["least"]))
        for share in (50, 90, 99):
            most, least = (oracle.percentile(times[bound], share) or 0.0 for bound in ("most", "least"))
            assert most - ROUNDED <= row[f"p{share}_s"] <= WIDTH * most + ROUNDED, key
            assert least / WIDTH - ROUNDED <= row[f"p{share}_least_s"] <= least + ROUNDED, key


def test_no_time_is_lost_between_a_message_and_its_percentiles(told: Told) -> None:
    rows = rows_of(told.lake, tables.SPANS)
    for until in ("reach", "receive"):
        known = sum(row[f"{until}_s"] is not None for row in told.expected[tables.DELIVERY])
        for bound in ("most", "least"):
            assert sum(row["messages"] for row in rows if (row["until"], row["bound"]) == (until, bound)) == known
