"""Gold: messages and bytes by minute, between managers and sites, by queue and by link."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.errors import PipelineError
from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.lake import TRAFFIC, Lake
from postroad.spark.pipeline.routes import NONE, Network, chunks

PAIR_LINKS = "source_site string, destination_site string, site_a string, site_b string"


def traffic(delivered: DataFrame) -> DataFrame:
    """Messages and bytes by the minute of the send. Messages that only acknowledgments mention count, but have no
    size."""
    minute = f.date_trunc("minute", f.coalesce("sent_at", "received_at", "reached_at", "dead_at")).alias("minute")
    ends = ("source", "destination", "source_site", "destination_site", "queue", "delivery", "priority")
    grouped = delivered.groupBy("day", minute, *ends)
    return grouped.agg(f.count("*").alias("messages"), f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"))


def demand(traffic: DataFrame) -> DataFrame:
    """The total demand from site to site, for `routes.link_loads`."""
    between = traffic.where("source_site is not null and destination_site is not null")
    return between.groupBy(f.col("source_site").alias("from_site"), f.col("destination_site").alias("to_site")).agg(
        f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes")
    )


def link_traffic(spark: SparkSession, traffic: DataFrame, directory: Directory | None) -> DataFrame:
    """The load of each routing link by minute, if every message took the directory's route. Empty without a
    directory."""
    pairs = traffic.where("source_site <> destination_site").select("source_site", "destination_site").distinct()
    wanted = [(row[0], row[1]) for row in pairs.collect()]
    found = [] if directory is None else pair_links(directory, wanted)
    links = local(spark, found, PAIR_LINKS)
    joined = traffic.join(f.broadcast(links), ["source_site", "destination_site"])
    grouped = joined.groupBy("day", "minute", "site_a", "site_b")
    return grouped.agg(f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes"))


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


SUMS = ("messages", "bytes")


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
    """The minute of the day in UTC. Times without a zone are in UTC too."""
    there = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return there.hour * 60 + there.minute
