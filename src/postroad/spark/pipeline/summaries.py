"""Summaries in gold: the fate of messages by queue and route, how fast they were, which died or are unexplained.

Each table is small for any number of messages, so reports can read it without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from postroad.spark.pipeline.frames import arrow_rows, arrow_schema, local
from postroad.spark.pipeline.passes import Summary, count, ones, typed, with_columns
from postroad.spark.pipeline.silver import QUEUED

if TYPE_CHECKING:
    from postroad.reports.info import QueueInfo
    from postroad.spark.pipeline.sources import Source


# Bounds of the seconds until a message was received: up to one second, up to two, and so on. The last bin is open.
BINS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86_400.0)
OLDEST = 100


_ENDS = ("day", "source", "destination", "source_site", "destination_site", "queue", "delivery", "state", "reason")
_TIMES = ("sent_at", "reached_at", "received_at", "dead_at")
_SPREADS = {name: tuple(f"{name}_{place}" for place in range(len(BINS_S) + 1)) for name in ("reach", "receive")}
_FLAGS = ("out_of_order", "contradicted", "unexplained", "in_queue")
_BETWEEN = "\x01"  # below every character of a name, so joined names have the order of lists
_STATES = (
    "day date, source string, destination string, source_site string, destination_site string, queue string, "
    "delivery string, state string, reason string, messages bigint, bytes bigint, duplicates bigint, "
    "out_of_order bigint, contradicted bigint, unexplained bigint, most_hops int, a_way array<string>, "
    + "".join(f"{end}_{name} timestamp, " for name in _TIMES for end in ("first", "last"))
    + "in_queue bigint, left_queue bigint, reach_spread array<bigint>, receive_spread array<bigint>"
)


def _state_rows(rows: pa.Table) -> pa.Table:
    found = rows.select([*_ENDS, "hops"]).rename_columns([*_ENDS, "most_hops"])
    found = with_columns(found, messages=ones(rows), a_way=pc.binary_join(rows["way"], _BETWEEN))
    found = with_columns(found, bytes=pc.fill_null(rows["size"].cast(pa.int64()), 0), duplicates=rows["duplicates"])
    found = with_columns(found, **{name: count(rows[name]) for name in _FLAGS})
    found = with_columns(found, left_queue=count(pc.invert(rows["in_queue"])))
    for end in ("first", "last"):
        found = with_columns(found, **{f"{end}_{name}": rows[name] for name in _TIMES})
    for name, places in _SPREADS.items():
        seconds = rows[f"{name}_s"].cast(pa.float64()).to_numpy()
        place = np.where(np.isnan(seconds), -1, np.searchsorted(BINS_S, seconds))
        counts = {column: pa.array((place == of).astype(np.int64)) for of, column in enumerate(places)}
        found = with_columns(found, **counts)
    return found


def _state_table(joined: pa.Table) -> pa.Table:
    """`reach_spread` and `receive_spread` count messages by BINS_S."""
    for name, places in _SPREADS.items():
        counts = np.stack([joined[each].to_numpy() for each in places], axis=1)
        spread = pa.FixedSizeListArray.from_arrays(pa.array(counts.reshape(-1)), len(places))
        joined = with_columns(joined, **{f"{name}_spread": spread.cast(pa.list_(pa.int64()))})
    ways = [each.split(_BETWEEN) if each else [] for each in joined["a_way"].to_pylist()]
    return typed(with_columns(joined, a_way=pa.array(ways, pa.list_(pa.string()))), arrow_schema(_STATES))


# Messages by ends, queue, kind, state and reason. `in_queue` counts the messages that are still in their queue,
# `left_queue` those that are known not to be.
states = Summary(
    columns=(*_ENDS, "hops", "way", "size", "duplicates", *_FLAGS, *_TIMES, "reach_s", "receive_s"),
    shape=_state_rows,
    keys=_ENDS,
    sums=("messages", "bytes", "duplicates", *_FLAGS, "left_queue", *_SPREADS["reach"], *_SPREADS["receive"]),
    least=tuple(f"first_{name}" for name in _TIMES),
    greatest=("most_hops", "a_way", *(f"last_{name}" for name in _TIMES)),
    finish=_state_table,
)


def _dead_rows(rows: pa.Table) -> pa.Table:
    dead = rows.filter(pc.equal(rows["state"], "dead"))
    minute = pc.floor_temporal(dead["dead_at"], unit="minute")
    found = dead.select(["day", "reason", "source", "queue", "dead_in"])
    counts = {"messages": ones(dead), "replayed": count(dead["replayed"])}
    return with_columns(found, minute=minute, **counts, first_at=dead["dead_at"], last_at=dead["dead_at"])


# Messages that died, by minute, reason, sender, queue, and the manager that keeps the dead letters. `replayed` counts
# those that were sent again.
dead_letters = Summary(
    columns=("state", "dead_at", "day", "reason", "source", "queue", "dead_in", "replayed"),
    shape=_dead_rows,
    keys=("day", "minute", "reason", "source", "queue", "dead_in"),
    sums=("messages", "replayed"),
    least=("first_at",),
    greatest=("last_at",),
)


_OLDEST = ("id", "label", "delivery", "sent_at", "left_at", "source", "destination", "queue", "way", "asked")


class _First(Summary):
    """The first rows, in an order, instead of groups."""

    def joined(self, parts: Sequence[pa.Table]) -> pa.Table:
        order = [(name, "ascending") for name in self.keys]
        return pa.concat_tables(parts).sort_by(order).slice(0, OLDEST)


# The unexplained messages, those sent first at the top.
oldest = _First(
    columns=("unexplained", "day", *_OLDEST),
    shape=lambda rows: rows.filter(rows["unexplained"]).select(["day", *_OLDEST]),
    keys=("day", "sent_at", "id"),
    finish=lambda rows: rows.select(list(_OLDEST)),
)


def days_of_oldest(unexplained: Mapping[str, int]) -> list[str]:
    """The days from which `oldest` takes its messages, given the number of unexplained messages of each day."""
    found: list[str] = []
    for day in sorted(day for day, messages in unexplained.items() if messages):
        if sum(unexplained[each] for each in found) >= OLDEST:
            break
        found.append(day)
    return found


def undecodable(found: pa.Table) -> pa.Table:
    """Packets that are not messages, by place and error, with one example of each."""
    ordered = found.sort_by("lookup_id")
    columns = ("manager", "queue", "error", "packets", "first_at", "last_at", "lookup_id", "head")
    sums = [*(("arrived_at", how) for how in ("count", "min", "max")), ("lookup_id", "min"), ("head", "first")]
    return ordered.group_by(["manager", "queue", "error"], use_threads=False).aggregate(sums).rename_columns(columns)


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
    on its messages. `arrived` and `departed` count the messages that have come and left since its manager started.
    `why` and `stuck` are for outgoing queues.
    """

    messages: int = 0
    bytes: int = 0
    readers: int = 0
    oldest_ms: int | None = None
    stuck: bool = False
    why: str | None = None
    departed: int = 0
    arrived: int = 0

    @classmethod
    def of(cls, queue: QueueInfo) -> Depth:
        known = (queue.messages, queue.bytes, queue.readers, queue.oldest_arrived_ms, queue.stuck, queue.why)
        return cls(*known, queue.messages_out, queue.messages_in)


NOT_LOOKED = Depth()


def depth_rows(found: Iterable[Source], look: int, now: datetime) -> pa.Table:
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
    return arrow_rows(rows, DEPTHS)


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


def backlog(depths: pa.Table) -> pa.Table:
    """Queues by hour: the first and the last look in the hour, and the most messages seen in it."""
    keys = ("manager", "queue", "called", "role", "hour")
    first, last = ("messages", "oldest_at"), ("messages", "bytes", "readers", "oldest_at", "stuck", "why")
    any_value = pc.ScalarAggregateOptions(skip_nulls=False)
    looks = with_columns(depths, hour=pc.floor_temporal(depths["looked_at"], unit="hour")).sort_by("look")
    sums = [("looked_at", "min", None), ("looked_at", "max", None)]
    sums += [*((name, "first", any_value) for name in first), *((name, "last", any_value) for name in last)]
    sums += [("messages", "max", None), ("looked_at", "count", None), ("departed", "last", any_value)]
    names = ["first_looked_at", "looked_at", *(f"first_{name}" for name in first), *last, "most", "looks", "departed"]
    return looks.group_by(list(keys), use_threads=False).aggregate(sums).rename_columns([*keys, *names])


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
