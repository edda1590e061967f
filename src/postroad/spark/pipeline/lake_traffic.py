"""The traffic of a lake, summed for questions about the enterprise. A local lake needs no Spark for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.errors import PipelineError
from postroad.spark.pipeline.lake import TRAFFIC, Lake

SUMS = ("messages", "bytes")


def by_pair(lake: Lake, day: str | None = None) -> list[dict[str, Any]]:
    """`messages` and `bytes` for each `source` and `destination`, of one day or of all."""
    return _summed(lake, ("source", "destination"), day)


def by_minute(lake: Lake, day: str) -> list[dict[str, Any]]:
    """The same for each minute of a day, queue and kind of delivery; `minute` counts from midnight in UTC."""
    keys = ("minute", "source", "destination", "queue", "delivery")
    return [row | {"minute": _minute(row["minute"])} for row in _summed(lake, keys, day)]


def busiest_day(lake: Lake) -> str:
    """The day with the most messages. PipelineError if the lake has no traffic."""
    totals = {day: sum(row["messages"] for row in by_pair(lake, day)) for day in lake.table(TRAFFIC).days()}
    if not totals:
        raise PipelineError(f"{lake.path} has no traffic yet; run `postroad pipeline run`")
    return max(totals, key=lambda day: (totals[day], day))


def _summed(lake: Lake, keys: Sequence[str], day: str | None) -> list[dict[str, Any]]:
    table = lake.table(TRAFFIC)
    days = table.days()
    if day is not None and day not in days:
        span = f"from {days[0]} to {days[-1]}" if days else "of no day"
        raise PipelineError(f"{lake.path} has no traffic of {day}; it has traffic {span}")
    if not lake.files.is_local:
        frame = table.read(None if day is None else [day])
        assert frame is not None
        return list(frame.groupBy(*keys).sum(*SUMS).toDF(*keys, *SUMS).toArrow().to_pylist())
    columns = [*keys, *SUMS]
    found = [
        pq.read_table(file.path, columns=columns, partitioning=None)
        for file in table.files()
        if day is None or file.day == day
    ]
    if not found:
        return []
    grouped = pa.concat_tables(found).group_by(list(keys)).aggregate([(name, "sum") for name in SUMS])
    return [
        {**{name: row[name] for name in keys}, **{name: row[f"{name}_sum"] for name in SUMS}}
        for row in grouped.to_pylist()
    ]


def _minute(moment: datetime) -> int:
    """Files have times in UTC, with or without saying so."""
    there = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return there.hour * 60 + there.minute
