"""Summaries in gold: the fate of messages by queue and route, how fast they were, which died or are unexplained.

Each table is small for any number of messages, so reports can read it without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.silver import QUEUED

if TYPE_CHECKING:
    from postroad.reports.info import QueueInfo
    from postroad.spark.pipeline.sources import Source


# Bounds of the seconds until a message was received: up to one second, up to two, and so on. The last bin is open.
BINS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86_400.0)
OLDEST = 100


def states(delivered: DataFrame) -> DataFrame:
    """Messages by ends, queue, kind, state and reason. `reach_spread` and `receive_spread` count them by BINS_S.

    `in_queue` counts the messages that are still in their queue, `left_queue` those that are known not to be.
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
    # Grouping by `way` first, which has few values, is cheaper: to find the maximum of a column of arrays or texts,
    # Spark sorts all messages.
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
    """Messages that died, by minute, reason, sender, queue, and the manager that keeps the dead letters.

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
    """The unexplained messages, those sent first at the top."""
    kept = ("id", "label", "delivery", "sent_at", "left_at", "source", "destination", "queue", "way", "asked")
    return delivered.where("unexplained").orderBy("day", "sent_at", "id").limit(OLDEST).select(*kept)


def days_of_oldest(unexplained: Mapping[str, int]) -> list[str]:
    """The days from which `oldest` takes its messages, given the number of unexplained messages of each day."""
    found: list[str] = []
    for day in sorted(day for day, count in unexplained.items() if count):
        if sum(unexplained[each] for each in found) >= OLDEST:
            break
        found.append(day)
    return found


def undecodable(found: DataFrame) -> DataFrame:
    """Packets that are not messages, by place and error, with one example of each."""
    return found.groupBy("manager", "queue", "error").agg(
        f.count("*").alias("packets"),
        f.min("arrived_at").alias("first_at"),
        f.max("arrived_at").alias("last_at"),
        f.min("lookup_id").alias("lookup_id"),
        f.min_by("head", "lookup_id").alias("head"),
    )


# What each run finds in the queues: how many messages wait, since when, and who reads the queue.
#
# A packet shows that a message was in a queue. Only the manager knows whether it still is, so every run asks.


DEPTHS = (
    "look bigint, looked_at timestamp, manager string, manager_id string, queue string, called string, role string, "
    "messages bigint, bytes bigint, readers bigint, oldest_at timestamp, stuck boolean, why string, day date, "
    "departed bigint"
)
FLOORS = "manager_id string, queue string, floor bigint"


@dataclass(frozen=True, slots=True)
class Depth:
    """The state of a queue when it was found.

    `oldest_ms` is when the next message to be received arrived. `readers` counts those that have the queue open or work
    on its messages. `departed` counts the messages that have left it since its manager started. `why` and `stuck` are
    for outgoing queues.
    """

    messages: int = 0
    bytes: int = 0
    readers: int = 0
    oldest_ms: int | None = None
    stuck: bool = False
    why: str | None = None
    departed: int = 0

    @classmethod
    def of(cls, queue: QueueInfo) -> Depth:
        known = (queue.messages, queue.bytes, queue.readers, queue.oldest_arrived_ms, queue.stuck, queue.why)
        return cls(*known, queue.messages_out)


NOT_LOOKED = Depth()


def depth_rows(spark: SparkSession, found: Iterable[Source], look: int, now: datetime) -> DataFrame:
    """One row for each queue, for the table of depths. Messages that this run consumes are not counted."""
    seen = [
        (each, Depth(readers=each.depth.readers, departed=each.depth.departed) if each.consume else each.depth)
        for each in found
    ]
    rows = [
        (
            *(look, now, each.manager.name, each.manager.id, each.queue, each.called, each.role),
            *(depth.messages, depth.bytes, depth.readers),
            None if depth.oldest_ms is None else datetime.fromtimestamp(depth.oldest_ms / 1000, UTC),
            *(depth.stuck, depth.why, now.date(), depth.departed),
        )
        for each, depth in seen
    ]
    return local(spark, rows, DEPTHS).coalesce(1)


def floors(found: Iterable[Source]) -> dict[str, int]:
    """For each queue of an application, the arrival number below which it holds no messages."""
    known = {}
    for source in found:
        if source.role == QUEUED:
            mark = source.ask(lambda api: api.mark())
            known[source.key] = mark.arrival if mark.oldest is None else mark.oldest
    return known


def floor_rows(spark: SparkSession, known: Mapping[str, int]) -> DataFrame:
    rows = [(*key.split("|", 1), floor) for key, floor in known.items()]
    return local(spark, rows, FLOORS)


def backlog(depths: DataFrame) -> DataFrame:
    """Queues by hour: the first and the last look in the hour, and the most messages seen in it."""
    last, first = ("messages", "bytes", "readers", "oldest_at", "stuck", "why"), ("messages", "oldest_at")
    if "departed" not in depths.columns:  # looks of an older version, without a look since
        depths = depths.withColumn("departed", f.lit(None).cast("bigint"))
    hour = f.date_trunc("hour", "looked_at").alias("hour")
    return depths.groupBy("manager", "queue", "called", "role", hour).agg(
        f.min("looked_at").alias("first_looked_at"),
        f.max("looked_at").alias("looked_at"),
        *(f.min_by(name, "look").alias(f"first_{name}") for name in first),
        *(f.max_by(name, "look").alias(name) for name in last),
        f.max("messages").alias("most"),
        f.count("*").alias("looks"),
        f.max_by("departed", "look").alias("departed"),
    )


def current(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The last look at each queue, from rows of `backlog`.

    `grown` is the change in messages since the first look of the preceding day, and `grown_s` the seconds since then.
    Both are None for a queue with one look.
    """
    by_queue: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_queue.setdefault((row["manager"], row["queue"]), []).append(row)
    found = []
    for looks in by_queue.values():
        last = max(looks, key=lambda row: row["looked_at"])
        end = last["looked_at"]
        day = [row for row in looks if (end - row["first_looked_at"]).total_seconds() <= 86_400] or [last]
        first = min(day, key=lambda row: row["first_looked_at"])
        span = (end - first["first_looked_at"]).total_seconds()
        grown = {"grown": last["messages"] - first["first_messages"], "grown_s": span}
        found.append(dict(last) | (grown if span > 0 else {"grown": None, "grown_s": None}))
    return found
