r"""Service levels: how long a message to a queue may take until it is received, as in `private$\orders=30s`.

They are measured on gold/delivery: file by file without Spark for a local lake, and by Spark's tasks for any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from math import log
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from postroad.errors import InvalidArgument
from postroad.spark.pipeline.fates import MOST_TYPES
from postroad.spark.pipeline.lake import DELIVERY, Lake

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.IGNORECASE)
_COUNTS = pa.schema({"level": pa.int32(), "queue": pa.string(), "name": pa.string(), "value": pa.float64()})
_COLUMNS = ["queue", "state", "sent_until", "receive_s", "receive_least_s", "in_queue", "unexplained"]

Counts = dict[tuple[int, str], dict[str, float]]  # the keys are the number of the level, and the queue


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Messages to queues that match `pattern` must be received within `limit_s` seconds."""

    pattern: str
    limit_s: float

    def covers(self, queue: str | None) -> bool:
        r"""Whether the level is for this queue.

        The pattern can name a queue of any manager (`private$\orders`) or of one (`rome: private$\orders`).
        """
        if queue is None:
            return False
        names = {queue.lower(), queue.partition(": ")[2].lower()}
        return any(fnmatchcase(name, self.pattern.lower()) for name in names)


@dataclass(frozen=True, slots=True)
class Attainment:
    """How well the messages to one queue met a service level.

    `late` messages were received too late, `overdue` ones have waited for longer than the limit, and `died` ones will
    not be received. For `unclear` messages, the limit is between the bounds of the time that they took. For `unknown`
    messages, neither a copy nor an acknowledgment says when they were received. `worst_s` is the longest time that a
    late or overdue message took at least.
    """

    queue: str
    limit_s: float
    in_time: int = 0
    late: int = 0
    overdue: int = 0
    died: int = 0
    waiting: int = 0
    unknown: int = 0
    worst_s: float = 0.0
    unclear: int = 0

    @property
    def broken(self) -> int:
        return self.late + self.overdue + self.died

    @property
    def shares(self) -> tuple[float, float] | None:
        """The least and the greatest possible share of messages received in time, of those in time, unclear, late,
        overdue and dead. None without any."""
        decided = self.in_time + self.unclear + self.broken
        return (self.in_time / decided, (self.in_time + self.unclear) / decided) if decided else None


def service_level(text: str) -> ServiceLevel:
    """Reads `QUEUE=TIME`. Raises InvalidArgument for any other text."""
    pattern, equals, limit = text.rpartition("=")
    found = _LIMIT.fullmatch(limit.strip())
    if not equals or not pattern.strip() or found is None:
        raise InvalidArgument(rf"--sla: must be QUEUE=TIME, as in 'private$\orders=30s', got {text!r}")
    return ServiceLevel(pattern.strip(), float(found[1]) * _UNITS_S[found[2].lower()])


def attained(lake: Lake, levels: Sequence[ServiceLevel], as_of: datetime) -> list[Attainment]:
    """One attainment for each level and each queue that it covers. A level without queues has one, named after the
    pattern.
    """
    counts = _count_all(lake, levels, as_of) if levels else {}
    found = []
    for number, level in enumerate(levels):
        queues = {queue: each for (of, queue), each in counts.items() if of == number}
        for queue, each in sorted(queues.items()) or [(level.pattern, {})]:
            whole = {name: int(value) for name, value in each.items() if name != "worst_s"}
            found.append(Attainment(queue, level.limit_s, **whole, worst_s=each.get("worst_s", 0.0)))
    return found


def _count_all(lake: Lake, levels: Sequence[ServiceLevel], as_of: datetime) -> Counts:
    counts: Counts = {}
    if lake.files.is_local:
        if files := [file.path for file in lake.table(DELIVERY).files()]:
            scanned = ds.dataset(files, format="parquet", partitioning=None).scanner(columns=_COLUMNS)
            for batch in scanned.to_batches():
                _count(batch, levels, as_of, counts)
        return counts

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        some: Counts = {}
        for batch in batches:
            _count(batch, levels, as_of, some)
        rows = [(*key, name, value) for key, each in some.items() for name, value in each.items()]
        yield pa.RecordBatch.from_pylist([dict(zip(_COUNTS.names, row, strict=True)) for row in rows], _COUNTS)

    for row in lake.read(DELIVERY).select(*_COLUMNS).mapInArrow(count, from_arrow_schema(_COUNTS)).collect():
        _add(counts.setdefault((row["level"], row["queue"]), {}), row["name"], row["value"])
    return counts


def _count(batch: Any, levels: Iterable[ServiceLevel], as_of: datetime, counts: Counts) -> None:
    queues = batch.column("queue").dictionary_encode()
    numbers = queues.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for number, queue in enumerate(queues.dictionary.to_pylist()):
        for of, level in enumerate(levels):
            if level.covers(queue):
                rows = np.flatnonzero(numbers == number)
                for name, value in _assess(batch.take(rows), level.limit_s, as_of).items():
                    _add(counts.setdefault((of, queue), {}), name, value)


def _add(counts: dict[str, float], name: str, value: float) -> None:
    known = counts.get(name, 0)
    counts[name] = max(known, value) if name == "worst_s" else known + value


def _assess(rows: Any, limit_s: float, as_of: datetime) -> dict[str, float]:
    def flags(column: str, *, absent: bool) -> Any:
        return rows.column(column).fill_null(absent).to_numpy(zero_copy_only=False)

    # NaN for messages that were not received
    most, least = (
        rows.column(name).cast("float64").to_numpy(zero_copy_only=False) for name in ("receive_s", "receive_least_s")
    )
    sent_us = rows.column("sent_until").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    waits = as_of.timestamp() - sent_us.cast("float64").to_numpy(zero_copy_only=False) / 1_000_000
    state = np.array(rows.column("state").to_pylist(), dtype=object)
    received, died = state == "received", state == "dead"
    known = (state == "outgoing") | ((state == "reached") & flags("in_queue", absent=True))
    known |= (state == "sent") & flags("unexplained", absent=False)
    known &= ~np.isnan(waits)
    late, overdue = received & (least > limit_s), known & (waits > limit_s)
    worst = max(least[late].max(initial=0.0), waits[overdue].max(initial=0.0))
    found = {"in_time": received & (most <= limit_s), "late": late, "overdue": overdue, "died": died}
    found["unclear"] = received & (most > limit_s) & (least <= limit_s)
    found["waiting"] = known & ~overdue
    decided = sum(each.astype(int) for each in found.values())
    return {name: int(each.sum()) for name, each in found.items()} | {
        "unknown": int(len(state) - decided.sum()),
        "worst_s": float(worst),
    }


# Gold: how many seconds messages took, counted by day in narrow bins, and percentiles from these counts.
#
# The counts of days can be added up, so new messages require new counts of their days only. A bin is two per cent wide.
# Both bounds of a time are counted. For the upper bounds, a percentile is the largest value seen in its bin, for the
# lower ones the smallest. So percentiles are real values, at most 2 % too wide, and never too narrow.


PERCENTILES = (0.5, 0.9, 0.99)
WIDTH = 1.02
MOST_S, LEAST_S = "most", "least"  # the bounds of a time
_NO_TIME = -10_000  # the bin for 0 s, below all other bins


def spans(delivered: DataFrame) -> DataFrame:
    """Messages by day, ends, queue, message type, priority, bound and bin: the seconds until they reached their queue,
    and until received."""
    until = f.explode(
        f.array(
            *(
                f.struct(f.lit(until).alias("until"), f.lit(bound).alias("bound"), f.col(column).alias("seconds"))
                for until in ("reach", "receive")
                for bound, column in ((MOST_S, f"{until}_s"), (LEAST_S, f"{until}_least_s"))
            )
        )
    )
    ends = ("day", "source", "destination", "queue", "message_type", "priority")
    rows = delivered.where("reach_s is not null or receive_s is not null").select(*ends, until.alias("span"))
    rows = rows.select(*ends, "span.*").where("seconds is not null")
    edge = f.when(f.col("bound") == MOST_S, f.max("seconds")).otherwise(f.min("seconds"))
    return rows.groupBy(*ends, "until", "bound", _bin(f.col("seconds")).alias("bin")).agg(
        f.count("*").alias("messages"), edge.alias("edge_s"), f.max("seconds").alias("max_s")
    )


def latency(counted: DataFrame) -> DataFrame:
    """Percentiles of the seconds until messages reached their queue and were received: of all messages, and by queue,
    route, priority and message type. Of the types, only the MOST_TYPES with the most messages.
    """
    route = f.concat_ws(" -> ", f.coalesce("source", f.lit("?")), f.coalesce("destination", f.lit("?")))
    groups = {
        "all": f.lit("all"),
        "queue": f.col("queue"),
        "route": route,
        "priority": f.col("priority").cast("string"),
        "type": f.col("message_type"),
    }
    group = f.explode(f.array(*(f.struct(f.lit(by).alias("by"), what.alias("value")) for by, what in groups.items())))
    kept = ("until", "bound", "bin", "messages", "edge_s", "max_s")
    rows = counted.select(group.alias("group"), *kept).select("group.*", *kept)
    bins = rows.where("value is not null").groupBy("by", "value", "until", "bound", "bin")
    is_most = f.col("bound") == MOST_S
    edge = f.when(is_most, f.max("edge_s")).otherwise(f.min("edge_s"))
    added = bins.agg(f.sum("messages").alias("messages"), edge.alias("edge_s"), f.max("max_s").alias("max_s"))
    found = added.groupBy("by", "value", "until").agg(
        f.sum(f.when(is_most, f.col("messages"))).alias("messages"),
        *(
            column.alias(f"{name}_{bound}")
            for bound in (MOST_S, LEAST_S)
            for name, column in _distribution(f.col("bound") == bound).items()
        ),
    )
    named = [
        f.round(f.col(f"percentiles_{bound}")[place], 3).alias(f"p{each * 100:.0f}{suffix}")
        for bound, suffix in ((MOST_S, "_s"), (LEAST_S, "_least_s"))
        for place, each in enumerate(PERCENTILES)
    ]
    place = f.row_number().over(Window.partitionBy("by", "until").orderBy(f.desc("messages"), "value"))
    found = found.withColumn("place", place).where((f.col("by") != "type") | (f.col("place") <= MOST_TYPES))
    most = [f.col(f"max_{MOST_S}").alias("max_s"), f.col(f"max_{LEAST_S}").alias("max_least_s")]
    return found.select("by", "value", "until", "messages", *named, *most)


def _distribution(of: Column) -> dict[str, Column]:
    percentiles = f.percentile(f.when(of, f.col("edge_s")), f.array(*map(f.lit, PERCENTILES)), f.col("messages"))
    return {"percentiles": percentiles, "max": f.max(f.when(of, f.col("max_s")))}


def _bin(seconds: Column) -> Column:
    return f.when(seconds <= 0, f.lit(_NO_TIME)).otherwise(f.ceil(f.ln(seconds) / log(WIDTH)).cast("int"))
