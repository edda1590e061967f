"""Every next hop of a whole enterprise on Spark, compared with one process that does the same. Part of `make
bench-spark`.

It also measures, for a few site gates, the tables that each gate makes for itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import print_table
from benchmarks.routing import LINKS, SITES, enterprise
from postroad.directory.snapshot import Directory
from postroad.directory.what_if import Change, changed
from postroad.routing import SiteGraph, build_table
from postroad.spark import session
from postroad.spark.pipeline.routes import Network, chunks, moved, routes

TABLES = 20  # tables that are made one by one; one for each site would take two minutes


def measure(spark: SparkSession) -> None:
    directory = enterprise()
    pairs = SITES * (SITES - 1)
    one, other = directory.link_sites(directory.links[0])
    after = changed(directory, [Change((one.name, other.name))])
    agree(spark, directory)
    with tempfile.TemporaryDirectory() as scratch:
        times = {
            f"gates' own tables, by {TABLES}": timed(lambda: by_gates(directory)) * SITES / TABLES,
            "one process, arrays": timed(lambda: by_arrays(directory)),
            "Spark, into nothing": timed(lambda: into_nothing(routes(spark, directory))),
            "Spark, to Parquet": timed(lambda: to_parquet(routes(spark, directory), Path(scratch))),
            "Spark, a lost link": timed(lambda: into_nothing(moved(spark, directory, after))),
        }
    alone_s = times["one process, arrays"]
    print_table(
        f"Routing a whole enterprise: {SITES:,} sites, {LINKS:,} links, {pairs:,} pairs of sites",
        ("how", "seconds", "pairs/s", "ratio"),
        [(how, f"{took_s:.1f}", f"{pairs / took_s:,.0f}", f"{alone_s / took_s:.2f}x") for how, took_s in times.items()],
        f"{spark.sparkContext.master}, {spark.sparkContext.defaultParallelism} cores; beside one process; second round",
    )


def by_gates(directory: Directory) -> None:
    graph = SiteGraph(directory)
    for gate in directory.managers[:TABLES]:
        assert len(build_table(graph, gate.identifier).rows) == SITES - 1


def by_arrays(directory: Directory) -> None:
    network = Network.of(directory)
    for some in chunks(range(SITES)):
        network.routes(some)


def into_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_parquet(frame: DataFrame, directory: Path) -> None:
    frame.write.mode("overwrite").parquet(str(directory / "routes"))


def agree(spark: SparkSession, directory: Directory) -> None:
    """Checks that the measured results are right: the gates of some sites give the same."""
    graph = SiteGraph(directory)
    gates = directory.managers[:3]
    names = [directory.site_collection(gate)[0].name for gate in gates]
    found = {
        tuple(row[:2]): tuple(row[2:])
        for row in routes(spark, directory).where(f"from_site in {tuple(names)}").collect()
    }
    for gate, name in zip(gates, names, strict=True):
        for row in build_table(graph, gate.identifier).rows:
            assert found[name, row.destination_site.name] == (row.next_hop_site.name, row.cost, row.link_cost)


def timed(work: Callable[[], object]) -> float:
    """Seconds of the second round. The first one starts workers and compiles."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    measure(session("routing benchmark", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"}))
