"""Gold: the number of messages and bytes by the minute: from manager to manager, by queue, site and link."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.network import NONE, Network, chunks

PAIR_LINKS = "source_site string, destination_site string, site_a string, site_b string"


def traffic(delivered: DataFrame) -> DataFrame:
    """By the minute of the send. Messages that only acknowledgments mention have no size, but count too."""
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
    """The load of each routing link, by the minute, if every message took the directory's route; empty without a
    directory."""
    pairs = traffic.where("source_site <> destination_site").select("source_site", "destination_site").distinct()
    wanted = [(row[0], row[1]) for row in pairs.collect()]
    found = [] if directory is None else pair_links(directory, wanted)
    links = local(spark, found, PAIR_LINKS)
    joined = traffic.join(f.broadcast(links), ["source_site", "destination_site"])
    grouped = joined.groupBy("day", "minute", "site_a", "site_b")
    return grouped.agg(f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes"))


def pair_links(directory: Directory, pairs: list[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """(from, to, site, site) for each link on the route of each pair; a link's sites in the order of their names."""
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
