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
    ends = ("source", "destination", "source_site", "destination_site", "queue", "delivery", "state", "reason")
    reach, receive = (
        [f.sum(inside.cast("bigint")) for inside in _bins(f.col(name))] for name in ("reach_s", "receive_s")
    )
    return delivered.groupBy("day", *ends).agg(
        f.count("*").alias("messages"),
        f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
        f.sum("duplicates").alias("duplicates"),
        f.sum(f.col("out_of_order").cast("bigint")).alias("out_of_order"),
        f.sum(f.col("contradicted").cast("bigint")).alias("contradicted"),
        f.sum(f.col("unexplained").cast("bigint")).alias("unexplained"),
        f.max("hops").alias("most_hops"),
        f.max("way").alias("a_way"),
        f.min("sent_at").alias("first_sent_at"),
        f.max("sent_at").alias("last_sent_at"),
        f.min("reached_at").alias("first_reached_at"),
        f.max("reached_at").alias("last_reached_at"),
        f.min("received_at").alias("first_received_at"),
        f.max("received_at").alias("last_received_at"),
        f.min("dead_at").alias("first_dead_at"),
        f.max("dead_at").alias("last_dead_at"),
        f.coalesce(f.sum(f.col("in_queue").cast("bigint")), f.lit(0)).alias("in_queue"),
        f.coalesce(f.sum((~f.col("in_queue")).cast("bigint")), f.lit(0)).alias("left_queue"),
        f.array(*reach).alias("reach_spread"),
        f.array(*receive).alias("receive_spread"),
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
