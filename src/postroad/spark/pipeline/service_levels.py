r"""Service levels: how long a message to a queue may take until it is received, as in `private$\orders=30s`.

They are measured on gold/delivery: file by file without Spark for a local lake, and by Spark's tasks for any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import from_arrow_schema

from postroad.errors import InvalidArgument
from postroad.spark.pipeline.fates import MOST_TYPES
from postroad.spark.pipeline.lake import DELIVERY, Lake
from postroad.spark.pipeline.passes import (
    LEAST_S,
    MOST_S,
    Summary,
    bins,
    nullable,
    numbered,
    ones,
    percentiles,
    with_columns,
)

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
_ENDS = ("day", "source", "destination", "queue", "message_type", "priority")


def _span_rows(rows: pa.Table) -> pa.Table:
    found = []
    for until in ("reach", "receive"):
        for bound, column in ((MOST_S, f"{until}_s"), (LEAST_S, f"{until}_least_s")):
            timed = rows.filter(pc.is_valid(rows[column]))
            seconds = timed[column].cast(pa.float64())
            more = {"bin": bins(seconds), "min_s": seconds, "max_s": seconds, "messages": ones(timed)}
            found.append(with_columns(timed.select(list(_ENDS)), until=until, bound=bound, **more))
    return pa.concat_tables(found)


def _span_table(joined: pa.Table) -> pa.Table:
    edge = pc.if_else(pc.equal(joined["bound"], MOST_S), joined["max_s"], joined["min_s"])
    return with_columns(joined, edge_s=edge).select([*_ENDS, "until", "bound", "bin", "messages", "edge_s", "max_s"])


# Messages by day, ends, queue, message type, priority, bound and bin: the seconds until they reached their queue, and
# until received.
spans = Summary(
    columns=(*_ENDS, *(f"{until}_{bound}s" for until in ("reach", "receive") for bound in ("", "least_"))),
    shape=_span_rows,
    keys=(*_ENDS, "until", "bound", "bin"),
    sums=("messages",),
    least=("min_s",),
    greatest=("max_s",),
    finish=_span_table,
)


def latency(counted: pa.Table) -> pa.Table:
    """Percentiles of the seconds until messages reached their queue and were received: of all messages, and by queue,
    route, priority and message type. Of the types, only the MOST_TYPES with the most messages.
    """
    groups = {
        "all": pa.repeat("all", counted.num_rows),
        "queue": counted["queue"],
        "route": route(counted),
        "priority": counted["priority"].cast(pa.string()),
        "type": counted["message_type"],
    }
    kept = ("until", "bound", "bin", "messages", "edge_s", "max_s")
    parts = [with_columns(counted.select(list(kept)), by=by, value=value) for by, value in groups.items()]
    rows = pa.concat_tables(part.filter(pc.is_valid(part["value"])) for part in parts)
    names = [f"p{share * 100:.0f}{suffix}_s" for suffix in ("", "_least") for share in PERCENTILES]
    found = few_types(_percentiles(rows, ["by", "value", "until"]), "until")
    return found.select(["by", "value", "until", "messages", *names, "max_s", "max_least_s"])


def latency_by(counted: pa.Table, column: str) -> list[dict[str, Any]]:
    """The same percentiles for each value of a column of gold/spans."""
    return list(_percentiles(counted, [column, "until"]).to_pylist())


def _percentiles(rows: pa.Table, keys: list[str]) -> pa.Table:
    sums = [("messages", "sum"), ("edge_s", "min"), ("edge_s", "max"), ("max_s", "max")]
    binned = rows.group_by([*keys, "bound", "bin"], use_threads=False).aggregate(sums)
    found, numbers = numbered(binned, keys)
    messages = np.zeros(len(found), np.int64)
    more: dict[str, Any] = {}
    for bound, suffix, edge in ((MOST_S, "", "edge_s_max"), (LEAST_S, "_least", "edge_s_min")):
        of = pc.equal(binned["bound"], bound).to_numpy()
        values, weights, most = (binned[name].to_numpy()[of] for name in (edge, "messages_sum", "max_s_max"))
        if bound == MOST_S:
            messages = np.bincount(numbers[of], weights, len(found)).astype(np.int64)
        shares = percentiles(numbers[of], values, weights, len(found), PERCENTILES)
        for place, share in enumerate(PERCENTILES):
            more[f"p{share * 100:.0f}{suffix}_s"] = nullable(shares[:, place])
        longest = np.full(len(found), -np.inf)
        np.maximum.at(longest, numbers[of], most)
        more[f"max{suffix}_s"] = nullable(longest)
    return with_columns(found, messages=pa.array(messages), **more)


def route(rows: pa.Table) -> Any:
    source, destination = (pc.fill_null(rows[name], "?") for name in ("source", "destination"))
    return pc.binary_join_element_wise(source, destination, " -> ")


def few_types(rows: pa.Table, within: str, weight: str = "messages") -> pa.Table:
    """Only the MOST_TYPES message types with the most messages, in each group."""
    is_type = pc.equal(rows["by"], "type")
    found = [rows.filter(pc.invert(is_type))]
    types = rows.filter(is_type).sort_by([(weight, "descending"), ("value", "ascending")])
    found += [types.filter(pc.equal(types[within], each)).slice(0, MOST_TYPES) for each in pc.unique(types[within])]
    return pa.concat_tables(found)
