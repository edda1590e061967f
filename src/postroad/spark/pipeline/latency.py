"""Gold: how many seconds messages took, counted by the day in narrow bins, and percentiles from these counts.

Counts of days can be added, so new messages cost a new count of their days only. A bin is two hundredths wide, and a
percentile is the largest value that was seen in its bin. So percentiles are real values, at most 2 % too high.
"""

from __future__ import annotations

from math import log

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

PERCENTILES = (0.5, 0.9, 0.99)
WIDTH = 1.02
_NO_TIME = -10_000  # the bin of 0 s, below all others


def spans(delivered: DataFrame) -> DataFrame:
    """Messages by day, ends, queue and priority, and by the bin of the seconds until they reached their queue and were
    received."""
    until = f.explode(
        f.array(
            f.struct(f.lit("reach").alias("until"), f.col("reach_s").alias("seconds")),
            f.struct(f.lit("receive").alias("until"), f.col("receive_s").alias("seconds")),
        )
    )
    ends = ("day", "source", "destination", "queue", "priority")
    rows = delivered.where("reach_s is not null or receive_s is not null").select(*ends, until.alias("span"))
    rows = rows.select(*ends, "span.*").where("seconds is not null")
    return rows.groupBy(*ends, "until", _bin(f.col("seconds")).alias("bin")).agg(
        f.count("*").alias("messages"), f.max("seconds").alias("max_s")
    )


def latency(counted: DataFrame) -> DataFrame:
    """Percentiles of the seconds until a message reached its queue and was received: of all, and by queue, route and
    priority."""
    route = f.concat_ws(" -> ", f.coalesce("source", f.lit("?")), f.coalesce("destination", f.lit("?")))
    groups = {
        "all": f.lit("all"),
        "queue": f.col("queue"),
        "route": route,
        "priority": f.col("priority").cast("string"),
    }
    group = f.explode(f.array(*(f.struct(f.lit(by).alias("by"), what.alias("value")) for by, what in groups.items())))
    rows = (
        counted.select(group.alias("group"), "until", "bin", "messages", "max_s").select("group.*", "*").drop("group")
    )
    bins = rows.where("value is not null").groupBy("by", "value", "until", "bin")
    added = bins.agg(f.sum("messages").alias("messages"), f.max("max_s").alias("max_s"))
    percentiles = f.percentile("max_s", f.array(*map(f.lit, PERCENTILES)), f.col("messages"))
    found = added.groupBy("by", "value", "until").agg(
        f.sum("messages").alias("messages"), percentiles.alias("percentiles"), f.max("max_s").alias("max_s")
    )
    named = [
        f.round(f.col("percentiles")[place], 3).alias(f"p{each * 100:.0f}_s") for place, each in enumerate(PERCENTILES)
    ]
    return found.select("by", "value", "until", "messages", *named, "max_s")


def _bin(seconds: Column) -> Column:
    return f.when(seconds <= 0, f.lit(_NO_TIME)).otherwise(f.ceil(f.ln(seconds) / log(WIDTH)).cast("int"))
