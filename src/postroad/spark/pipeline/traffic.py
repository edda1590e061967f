"""Gold: messages and bytes by minute, between managers and sites, by queue and by link."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from postroad.directory.snapshot import Directory
from postroad.errors import PipelineError
from postroad.spark.pipeline.lake import TRAFFIC, Lake
from postroad.spark.pipeline.passes import Summary, first_of, ones, with_columns
from postroad.spark.pipeline.routes import NONE, Network, chunks

PAIR_LINKS = ("source_site", "destination_site", "site_a", "site_b")
SUMS = ("messages", "bytes")
_ENDS = ("source", "destination", "source_site", "destination_site", "queue", "delivery", "priority")


def _rows(rows: pa.Table) -> pa.Table:
    minute = pc.floor_temporal(first_of(rows, "sent_at", "received_at", "reached_at", "dead_at"), unit="minute")
    size = pc.fill_null(rows["size"].cast(pa.int64()), 0)
    return with_columns(rows.select(["day", *_ENDS]), minute=minute, messages=ones(rows), bytes=size)


# Messages and bytes by the minute of the send. Messages that only acknowledgments mention count, but have no size.
traffic = Summary(
    columns=("day", *_ENDS, "sent_at", "received_at", "reached_at", "dead_at", "size"),
    shape=_rows,
    keys=("day", "minute", *_ENDS),
    sums=SUMS,
)


def link_traffic(rows: pa.Table, directory: Directory | None) -> pa.Table:
    """The load of each routing link by minute, if every message took the directory's route. Empty without a
    directory."""
    keys = ["day", "minute", "site_a", "site_b"]
    sites = ["source_site", "destination_site"]
    between = rows.filter(pc.not_equal(rows["source_site"], rows["destination_site"]))
    pairs = [tuple(row.values()) for row in between.select(sites).group_by(sites).aggregate([]).to_pylist()]
    found = [] if directory is None else pair_links(directory, pairs)
    columns = zip(*found, strict=True) if found else ((),) * len(PAIR_LINKS)
    links = pa.table([pa.array(column, pa.string()) for column in columns], names=PAIR_LINKS)
    sums = [(name, "sum") for name in SUMS]
    return between.join(links, sites, join_type="inner").group_by(keys).aggregate(sums).rename_columns([*keys, *SUMS])


def pair_links(directory: Directory, pairs: list[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """(from, to, site, site) for each link on the route of each pair. The sites of a link are in the order of their
    names.
    """
    network = Network.of(directory)
    numbers = {name: place for place, name in enumerate(network.sites)}
    origins: dict[int, list[int]] = {}
    for one, other in pairs:
        if one in numbers and other in numbers:
            origins.setdefault(numbers[other], []).append(numbers[one])
    found = []
    for some in chunks(sorted(origins)):
        arrays = network.routes(some)
        for row, destination in enumerate(some):
            for origin in origins[destination]:
                here = origin
                while (link := arrays.link[row, here]) != NONE:
                    there = int(network.next_site[link])
                    one, other = sorted((network.sites[here], network.sites[there]))
                    found.append((network.sites[origin], network.sites[destination], one, other))
                    here = there
    return found


# The traffic of a lake, added up for questions about the enterprise. A local lake needs no Spark for this.


def by_pair(lake: Lake, day: str | None = None) -> list[dict[str, Any]]:
    """`messages` and `bytes` for each `source` and `destination`, on one day or on all days."""
    return _summed(lake, ("source", "destination"), day)


def by_minute(lake: Lake, day: str) -> list[dict[str, Any]]:
    """`messages` and `bytes` of one day by minute, ends, queue and kind of delivery. `minute` counts from midnight
    UTC."""
    keys = ("minute", "source", "destination", "queue", "delivery")
    return [row | {"minute": _minute(row["minute"])} for row in _summed(lake, keys, day)]


def busiest_day(lake: Lake) -> str:
    """The day with the most messages. Raises PipelineError if the lake has no traffic."""
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
    found = table.rows(None if day is None else [day], [*keys, *SUMS])
    if found is None:
        return []
    sums = found.group_by(list(keys)).aggregate([(name, "sum") for name in SUMS])
    return list(sums.rename_columns([*keys, *SUMS]).to_pylist())


def _minute(moment: datetime) -> int:
    """The minute of the day in UTC. Times without a zone are in UTC too."""
    there = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return there.hour * 60 + there.minute
