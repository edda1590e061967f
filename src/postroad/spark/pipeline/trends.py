"""Gold: the last period compared with the one before it, for all messages and by queue, route and message type. And
unusual hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from math import sqrt
from statistics import median
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from postroad.spark.pipeline.fates import MOST_TYPES

NOW, BEFORE = "now", "before"
_MINUTE = 60_000_000
# The possible lengths of a period in microseconds. The first one that fits twice into the data is used.
PERIODS = tuple(minutes * _MINUTE for minutes in (7 * 1440, 1440, 360, 60, 10, 1))
_EVENTS = ("sent_at", "reached_at", "received_at", "dead_at")
_TOOK = {
    "reach_s": "reached_at",
    "reach_least_s": "reached_at",
    "receive_s": "received_at",
    "receive_least_s": "received_at",
}


def period_of(first: int, last: int) -> int | None:
    """The length of the period in microseconds. None if the data is too short for two periods."""
    return next((each for each in PERIODS if last - first >= 2 * each), None)


def trend(delivered: DataFrame, states: DataFrame) -> DataFrame:
    """For each period and group: how many messages were sent, received and died in it, and how long those took that
    reached their queue, or were received, in it. Each event counts in the period in which it happened.

    `by` is all, queue, route or type. Only the MOST_TYPES types with the most messages are there. A group without
    messages in the two periods has no row. The table is empty if the data is shorter than two periods. `until` is just
    after the period. `states` is the summary of all messages, which has the first and the last time of each event.
    """
    ends = [(f.min(f.unix_micros(f"first_{name}")), f.max(f.unix_micros(f"last_{name}"))) for name in _EVENTS]
    seen = states.agg(f.least(*(low for low, _ in ends)), f.greatest(*(high for _, high in ends))).collect()[0]
    length = None if seen[0] is None else period_of(seen[0], seen[1])
    until = (seen[1] or 0) + 1
    middle = until - (length or 0)
    periods = [(NOW, middle, until), (BEFORE, middle - (length or 0), middle)]
    since = f.timestamp_micros(f.lit(periods[-1][1]))
    # so that Spark skips the files of other days
    recent = reduce(Column.__or__, (f.col(name) >= since for name in _EVENTS))
    return _grouped(delivered.where(recent if length else f.lit(False)), periods)


def _grouped(delivered: DataFrame, periods: list[tuple[str, int, int]]) -> DataFrame:
    route = f.concat_ws(" -> ", f.coalesce("source", f.lit("?")), f.coalesce("destination", f.lit("?")))
    groups = {"all": f.lit("all"), "queue": f.col("queue"), "route": route, "type": f.col("message_type")}
    group = [f.struct(f.lit(by).alias("by"), what.alias("value")) for by, what in groups.items()]
    spans = [
        f.struct(
            f.lit(name).alias("period"),
            f.timestamp_micros(f.lit(since)).alias("since"),
            f.timestamp_micros(f.lit(until)).alias("until"),
        )
        for name, since, until in periods
    ]
    kept = ("source", "destination", "queue", "message_type", "state", *_EVENTS, *_TOOK)
    rows = delivered.select(f.explode(f.array(*spans)).alias("span"), *kept).select("span.*", *kept)
    took = {name: f.when(_inside(time), f.col(name)) for name, time in _TOOK.items()}
    # a message that was received has not died, whatever an acknowledgment says
    counted = {"sent": _inside("sent_at"), "received": _inside("received_at")}
    counted["died"] = _inside("dead_at") & (f.col("state") == "dead")
    # Many messages take equally long. Count these first, and then group the few counts.
    same = rows.groupBy(
        *("period", "since", "until", "source", "destination", "queue", "message_type"),
        *(each.alias(name) for name, each in took.items()),
    ).agg(
        f.count("*").alias("messages"),
        *(f.sum(inside.cast("bigint")).alias(name) for name, inside in counted.items()),
    )
    same = same.select(f.explode(f.array(*group)).alias("group"), "*").select("group.*", "*").where("value is not null")
    found = same.groupBy("period", "since", "until", "by", "value").agg(
        *(f.sum(name).alias(name) for name in counted),
        *(
            f.round(f.percentile(name, f.lit(share), f.col("messages")), 3).alias(
                f"{name.partition('_')[0]}_p{share * 100:.0f}_{name.partition('_')[2]}"
            )
            for name in took
            for share in (0.5, 0.9)
        ),
    )
    both = f.sum("sent").over(Window.partitionBy("by", "value"))
    place = f.dense_rank().over(Window.partitionBy("by").orderBy(f.desc("both"), "value"))
    found = found.withColumn("both", both).withColumn("place", place)
    return found.where((f.col("by") != "type") | (f.col("place") <= MOST_TYPES)).drop("both", "place")


def _inside(time: str) -> Column:
    return f.coalesce((f.col(time) >= f.col("since")) & (f.col(time) < f.col("until")), f.lit(False))


# Hours that differ from the others of their queue: in the number of messages, in latency, or in the messages that died.
#
# The method uses the median and the median absolute deviation (MAD), which a few odd hours do not change. An hour is
# unusual if it is more than LIMIT deviations away from the median of its queue. A deviation is 1.4826 MAD, which is the
# standard deviation of normally distributed values. It has two lower bounds: the square root of the median, because
# counts vary that much by chance; and a twentieth of the median, because a thousand more messages mean nothing to a
# queue with millions. A queue that is empty in most hours has no usual number of messages.


LIMIT = 6.0
FEWEST_HOURS = 8  # that a queue needs; fewer show no habit
NORMAL = 1.4826
SHARE = 0.05  # a deviation is at least this share of the median
LEAST = 1.0  # a deviation is at least one message, or one second
HOUR = timedelta(hours=1)
SILENT = timedelta(days=1)  # a queue that was silent for longer has a new habit


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An unusual hour of a queue.

    `kind` is volume, latency, or the reason that messages died of. `usual` is the median of all hours. `times` is how
    many deviations the hour is away from it. `messages` is how many the hour has.
    """

    hour: datetime
    queue: str
    kind: str
    value: float
    usual: float
    deviation: float
    messages: int

    @property
    def times(self) -> float:
        return (self.value - self.usual) / self.deviation


def anomalies(rows: Iterable[Mapping[str, Any]], as_of: datetime) -> list[Anomaly]:
    """The unusual hours in rows of gold/hours, the newest first.

    The hour of `as_of` is not over, so few messages in it are not unusual.
    """
    by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["queue"] is not None and row["hour"] is not None:
            by_queue.setdefault(row["queue"], []).append(row)
    found = [each for queue, some in by_queue.items() for each in _of_queue(queue, some, as_of)]
    return sorted(found, key=lambda each: (each.hour, abs(each.times)), reverse=True)


def _of_queue(queue: str, rows: list[Mapping[str, Any]], as_of: datetime) -> Iterator[Anomaly]:
    volume = {row["hour"]: row["messages"] for row in rows if row["reason"] is None}
    if not volume:
        return
    first, busy = min(volume), max(row["hour"] for row in rows)
    last = max(busy, min(as_of - HOUR, busy + SILENT))
    every = [first + number * HOUR for number in range((last - first) // HOUR + 1)]
    counts = {hour: float(volume.get(hour, 0)) for hour in every}
    for hour, usual, deviation in _unusual(counts):
        if usual and (counts[hour] > usual or hour + HOUR <= as_of):
            yield Anomaly(hour, queue, "volume", counts[hour], usual, deviation, int(counts[hour]))
    took = {row["hour"]: row["receive_p50_s"] for row in rows if row["receive_p50_s"] is not None}
    for hour, usual, deviation in _unusual(took, chance=False):
        if took[hour] > usual:
            yield Anomaly(hour, queue, "latency", took[hour], usual, deviation, volume.get(hour, 0))
    for reason in sorted({row["reason"] for row in rows if row["reason"] is not None}):
        died = dict.fromkeys(every, 0.0)
        for row in rows:  # one row for each day of the send
            if row["reason"] == reason:
                died[row["hour"]] = died.get(row["hour"], 0.0) + row["messages"]
        for hour, usual, deviation in _unusual(died):
            if died[hour] > usual:
                yield Anomaly(hour, queue, reason, died[hour], usual, deviation, int(died[hour]))


def _unusual(values: Mapping[datetime, float], *, chance: bool = True) -> Iterator[tuple[datetime, float, float]]:
    """The unusual hours, with the median and the deviation."""
    if len(values) < FEWEST_HOURS:
        return
    usual = median(values.values())
    spread = median(abs(value - usual) for value in values.values())
    deviation = max(NORMAL * spread, sqrt(usual) if chance else 0.0, SHARE * usual, LEAST)
    for hour, value in values.items():
        if abs(value - usual) > LIMIT * deviation:
            yield hour, usual, deviation
