"""Gold: the last period against the one before it, of all messages and by queue and route."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

NOW, BEFORE = "now", "before"
_MINUTE = 60_000_000
# The lengths of a period in microseconds, the longest first: the first that fits twice into the data.
PERIODS = tuple(minutes * _MINUTE for minutes in (7 * 1440, 1440, 360, 60, 10, 1))
_EVENTS = ("sent_at", "reached_at", "received_at", "dead_at")


def period_of(first: int, last: int) -> int | None:
    """The length of the period in microseconds; None if the data is too short for two."""
    return next((each for each in PERIODS if last - first >= 2 * each), None)


def trend(delivered: DataFrame, states: DataFrame) -> DataFrame:
    """For each period and group: how many messages were sent, received and died in it, and how long those took that
    reached their queue or were received in it. `until` is not part of the period.

    `by` is all, queue or route; those without a message in the two periods have no row. The table is empty if the data
    covers no two periods. `states` is the summary of all messages: it has the first and the last time of each event.
    """
    ends = [(f.min(f.unix_micros(f"first_{name}")), f.max(f.unix_micros(f"last_{name}"))) for name in _EVENTS]
    seen = states.agg(f.least(*(low for low, _ in ends)), f.greatest(*(high for _, high in ends))).collect()[0]
    length = None if seen[0] is None else period_of(seen[0], seen[1])
    until = (seen[1] or 0) + 1
    middle = until - (length or 0)
    periods = [(NOW, middle, until), (BEFORE, middle - (length or 0), middle)]
    since = f.timestamp_micros(f.lit(periods[-1][1]))
    recent = reduce(Column.__or__, (f.col(name) >= since for name in _EVENTS))  # Spark skips the files of other days
    return _grouped(delivered.where(recent if length else f.lit(False)), periods)


def _grouped(delivered: DataFrame, periods: list[tuple[str, int, int]]) -> DataFrame:
    route = f.concat_ws(" -> ", f.coalesce("source", f.lit("?")), f.coalesce("destination", f.lit("?")))
    groups = {"all": f.lit("all"), "queue": f.col("queue"), "route": route}
    group = [f.struct(f.lit(by).alias("by"), what.alias("value")) for by, what in groups.items()]
    spans = [
        f.struct(
            f.lit(name).alias("period"),
            f.timestamp_micros(f.lit(since)).alias("since"),
            f.timestamp_micros(f.lit(until)).alias("until"),
        )
        for name, since, until in periods
    ]
    kept = ("source", "destination", "queue", *_EVENTS, "reach_s", "receive_s")
    rows = delivered.select(f.explode(f.array(*spans)).alias("span"), *kept).select("span.*", *kept)
    took = {"reach": f.when(_inside("reached_at"), f.col("reach_s"))}
    took["receive"] = f.when(_inside("received_at"), f.col("receive_s"))
    counted = {"sent": "sent_at", "received": "received_at", "died": "dead_at"}
    # Many messages take as long as others: these are counted first, and then the few counts are grouped.
    same = rows.groupBy(
        *("period", "since", "until", "source", "destination", "queue"),
        *(each.alias(name) for name, each in took.items()),
    ).agg(
        f.count("*").alias("messages"),
        *(f.sum(_inside(time).cast("bigint")).alias(name) for name, time in counted.items()),
    )
    same = same.select(f.explode(f.array(*group)).alias("group"), "*").select("group.*", "*").where("value is not null")
    return same.groupBy("period", "since", "until", "by", "value").agg(
        *(f.sum(name).alias(name) for name in counted),
        *(
            f.round(f.percentile(name, f.lit(share), f.col("messages")), 3).alias(f"{name}_p{share * 100:.0f}_s")
            for name in took
            for share in (0.5, 0.9)
        ),
    )


def _inside(time: str) -> Column:
    return f.coalesce((f.col(time) >= f.col("since")) & (f.col(time) < f.col("until")), f.lit(False))
