"""Gold in short: the fate of messages by queue and route, how fast, which died, and which are unexplained.

Each table is small for any number of messages: reports read these without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

# Seconds until a message was received: up to one second, up to two, and so on; the last bin has the rest.
BINS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86_400.0)
OLDEST = 100


def states(delivered: DataFrame) -> DataFrame:
    """Messages by their ends, queue, kind, state and reason. `reach_spread` and `receive_spread` count them by BINS_S.

    `in_queue` counts those that are still in their queue, `left_queue` those that are known not to be.
    """
    ends = ("day", "source", "destination", "source_site", "destination_site", "queue", "delivery", "state", "reason")
    spreads = {
        f"{name}_{place}": inside
        for name in ("reach", "receive")
        for place, inside in enumerate(_bins(f.col(f"{name}_s")))
    }
    flags = {name: f.col(name) for name in ("out_of_order", "contradicted", "unexplained", "in_queue")}
    flags |= {"left_queue": ~f.col("in_queue"), **spreads}
    sums = {name: f.sum(flag.cast("bigint")) for name, flag in flags.items()}
    sums |= {"messages": f.count("*"), "bytes": f.sum("size"), "duplicates": f.sum("duplicates")}
    times = ("sent_at", "reached_at", "received_at", "dead_at")
    lows = {f"first_{name}": f.min(name) for name in times}
    highs = {"most_hops": f.max("hops"), **{f"last_{name}": f.max(name) for name in times}}
    # By the way too, of which there are few: for the greatest of a column of any size, Spark sorts all messages.
    by_way = delivered.groupBy(*ends, "way").agg(
        *(column.alias(name) for name, column in (sums | lows | highs).items()),
    )
    found = by_way.groupBy(*ends).agg(
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in sums),
        *(f.min(name).alias(name) for name in lows),
        *(f.max(name).alias(name) for name in highs),
        f.max("way").alias("a_way"),
    )
    arrays = [
        f.array(*(f.col(each) for each in spreads if each.startswith(f"{name}_"))).alias(f"{name}_spread")
        for name in ("reach", "receive")
    ]
    return found.select(
        *ends,
        *("messages", "bytes", "duplicates", "out_of_order", "contradicted", "unexplained", "most_hops", "a_way"),
        *(f"{end}_{name}" for name in times for end in ("first", "last")),
        *("in_queue", "left_queue"),
        *arrays,
    )


def _bins(seconds: Column) -> list[Column]:
    known = seconds.isNotNull()
    lows, highs = (None, *BINS_S), (*BINS_S, None)
    found = []
    for low, high in zip(lows, highs, strict=True):
        inside = known if low is None else known & (seconds > low)
        found.append(f.coalesce(inside if high is None else inside & (seconds <= high), f.lit(False)))
    return found


def dead_letters(delivered: DataFrame) -> DataFrame:
    """Messages that died, by the minute, reason, sender, queue, and the manager that keeps the dead letters.

    `replayed` counts those that were sent again.
    """
    dead = delivered.where("state = 'dead'")
    minute = f.date_trunc("minute", "dead_at").alias("minute")
    return dead.groupBy("day", minute, "reason", "source", "queue", "dead_in").agg(
        f.count("*").alias("messages"),
        f.sum(f.col("replayed").cast("bigint")).alias("replayed"),
        f.min("dead_at").alias("first_at"),
        f.max("dead_at").alias("last_at"),
    )


def oldest(delivered: DataFrame) -> DataFrame:
    """The unexplained messages, the first sent at the top."""
    kept = ("id", "label", "delivery", "sent_at", "left_at", "source", "destination", "queue", "way", "asked")
    return delivered.where("unexplained").orderBy("day", "sent_at", "id").limit(OLDEST).select(*kept)


def days_of_oldest(unexplained: Mapping[str, int]) -> list[str]:
    """The days that `oldest` takes its messages from; given is how many each day has."""
    found: list[str] = []
    for day in sorted(day for day, count in unexplained.items() if count):
        if sum(unexplained[each] for each in found) >= OLDEST:
            break
        found.append(day)
    return found


def undecodable(found: DataFrame) -> DataFrame:
    """Packets that are no messages, by place and fault, with one example of each."""
    return found.groupBy("manager", "queue", "error").agg(
        f.count("*").alias("packets"),
        f.min("arrived_at").alias("first_at"),
        f.max("arrived_at").alias("last_at"),
        f.min("lookup_id").alias("lookup_id"),
        f.min_by("head", "lookup_id").alias("head"),
    )
