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
_COLUMNS = ["queue", "state", "sent_at", "receive_s", "in_queue", "unexplained"]

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
    not be received. For `unknown` messages, neither a copy nor an acknowledgment says when they were received.
    `worst_s` is the longest time of a late or overdue message.
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

    @property
    def broken(self) -> int:
        return self.late + self.overdue + self.died

    @property
    def share(self) -> float | None:
        """The share of messages received in time, of those in time, late, overdue and dead. None without any."""
        decided = self.in_time + self.broken
        return self.in_time / decided if decided else None


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
    took = rows.column("receive_s").cast("float64").to_numpy(zero_copy_only=False)
    sent_us = rows.column("sent_at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    waits = as_of.timestamp() - sent_us.cast("float64").to_numpy(zero_copy_only=False) / 1_000_000
    state = np.array(rows.column("state").to_pylist(), dtype=object)
    received, died = state == "received", state == "dead"
    known = (state == "outgoing") | ((state == "reached") & flags("in_queue", absent=True))
    known |= (state == "sent") & flags("unexplained", absent=False)
    known &= ~np.isnan(waits)
    late, overdue = received & (took > limit_s), known & (waits > limit_s)
    worst = max(took[late].max(initial=0.0), waits[overdue].max(initial=0.0))
    found = {"in_time": received & (took <= limit_s), "late": late, "overdue": overdue, "died": died}
    found["waiting"] = known & ~overdue
    decided = sum(each.astype(int) for each in found.values())
    return {name: int(each.sum()) for name, each in found.items()} | {
        "unknown": int(len(state) - decided.sum()),
        "worst_s": float(worst),
    }


# Gold: how many seconds messages took, counted by day in narrow bins, and percentiles from these counts.
#
# The counts of days can be added up, so new messages require new counts of their days only. A bin is two per cent wide,
# and a percentile is the largest value seen in its bin. So percentiles are real values, and at most 2 % too high.


PERCENTILES = (0.5, 0.9, 0.99)
WIDTH = 1.02
_NO_TIME = -10_000  # the bin for 0 s, below all other bins


def spans(delivered: DataFrame) -> DataFrame:
    """Messages by day, ends, queue, message type, priority and bin: the seconds until they reached their queue, and
    until received."""
    until = f.explode(
        f.array(
            f.struct(f.lit("reach").alias("until"), f.col("reach_s").alias("seconds")),
            f.struct(f.lit("receive").alias("until"), f.col("receive_s").alias("seconds")),
        )
    )
    ends = ("day", "source", "destination", "queue", "message_type", "priority")
    rows = delivered.where("reach_s is not null or receive_s is not null").select(*ends, until.alias("span"))
    rows = rows.select(*ends, "span.*").where("seconds is not null")
    return rows.groupBy(*ends, "until", _bin(f.col("seconds")).alias("bin")).agg(
        f.count("*").alias("messages"), f.max("seconds").alias("max_s")
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
    place = f.row_number().over(Window.partitionBy("by", "until").orderBy(f.desc("messages"), "value"))
    found = found.withColumn("place", place).where((f.col("by") != "type") | (f.col("place") <= MOST_TYPES))
    return found.select("by", "value", "until", "messages", *named, "max_s")


def _bin(seconds: Column) -> Column:
    return f.when(seconds <= 0, f.lit(_NO_TIME)).otherwise(f.ceil(f.ln(seconds) / log(WIDTH)).cast("int"))
