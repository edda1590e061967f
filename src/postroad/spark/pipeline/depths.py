"""What each run finds in the queues: how many messages wait, since when, and who reads the queue.

A packet says that a message was in a queue. Only the manager can say that it still is, so every run asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.silver import QUEUED

if TYPE_CHECKING:
    from postroad.spark.pipeline.sources import Source
    from postroad.values.info import QueueInfo

DEPTHS = (
    "look bigint, looked_at timestamp, manager string, manager_id string, queue string, called string, role string, "
    "messages bigint, bytes bigint, readers bigint, oldest_at timestamp, stuck boolean, why string, day date"
)
FLOORS = "manager_id string, queue string, floor bigint"


@dataclass(frozen=True, slots=True)
class Depth:
    """A queue when it was found. `oldest_ms` is when the first message to receive arrived; `readers` counts who has
    the queue open or works on its messages. `why` and `stuck` are about outgoing queues."""

    messages: int = 0
    bytes: int = 0
    readers: int = 0
    oldest_ms: int | None = None
    stuck: bool = False
    why: str | None = None

    @classmethod
    def of(cls, queue: QueueInfo) -> Depth:
        return cls(queue.messages, queue.bytes, queue.readers, queue.oldest_arrived_ms, queue.stuck, queue.why)


NOT_LOOKED = Depth()


def looked(spark: SparkSession, found: Iterable[Source], look: int, now: datetime) -> DataFrame:
    """One row for each queue, for the table of depths. What this run removes is no backlog."""
    seen = [(each, Depth(readers=each.depth.readers) if each.consume else each.depth) for each in found]
    rows = [
        (
            *(look, now, each.manager.name, each.manager.id, each.queue, each.called, each.role),
            *(depth.messages, depth.bytes, depth.readers),
            None if depth.oldest_ms is None else datetime.fromtimestamp(depth.oldest_ms / 1000, UTC),
            *(depth.stuck, depth.why, now.date()),
        )
        for each, depth in seen
    ]
    return local(spark, rows, DEPTHS).coalesce(1)


def floors(found: Iterable[Source]) -> dict[str, int]:
    """For each queue with an owner, the arrival number below which no message is in it any more."""
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
    """Queues by the hour: the first and the last look of the hour, and the most messages in between."""
    last, first = ("messages", "bytes", "readers", "oldest_at", "stuck", "why"), ("messages", "oldest_at")
    hour = f.date_trunc("hour", "looked_at").alias("hour")
    return depths.groupBy("manager", "queue", "called", "role", hour).agg(
        f.min("looked_at").alias("first_looked_at"),
        f.max("looked_at").alias("looked_at"),
        *(f.min_by(name, "look").alias(f"first_{name}") for name in first),
        *(f.max_by(name, "look").alias(name) for name in last),
        f.max("messages").alias("most"),
        f.count("*").alias("looks"),
    )


def current(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The last look at each queue, from rows of `backlog`, with `grown`: how many messages more than at the first look
    in the day before, and `grown_s`: the seconds in between. Both are None for a queue with one look."""
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
