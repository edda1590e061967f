"""Routing of a whole enterprise on Spark: every next hop, the effect of changed links, and the load of links.

Each task gets some of the destinations and the whole network, which is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.directory.snapshot import Directory
from postroad.routing import SiteGraph
from postroad.routing.table import gates_in_turn
from postroad.spark.pipeline.frames import local
from postroad.spark.pipeline.network import CHUNK, NONE, Network, RouteArrays, chunks

ROUTES = "from_site string, to_site string, next_site string, cost bigint, link_cost bigint"
MOVED = "from_site string, to_site string, next_before string, cost_before bigint, next_after string, cost_after bigint"
LINKS = "from_site string, next_site string, link_cost bigint, gates array<string>"
LOADS = "site_a string, site_b string, messages bigint, bytes bigint"
LOST = "to_site string, from_site string, messages bigint, bytes bigint"

Batches = Iterable[Any]


def routes(spark: SparkSession, directory: Directory) -> DataFrame:
    """A row for each pair of sites with a route: the next site that a gate of `from_site` sends to.

    A gate in several sites is a separate origin, `gate NAME`: it starts from all of its sites.
    """
    shared = spark.sparkContext.broadcast(Network.of(directory))

    def work(batches: Batches) -> Iterator[Any]:
        network = shared.value
        for destinations in _destinations(batches):
            yield _routes_of(network, destinations)

    return _spread(spark, len(directory.sites)).mapInArrow(work, ROUTES)


def first_links(spark: SparkSession, directory: Directory) -> DataFrame:
    """A row for each pair of neighbours: the cost of the cheapest link, and the gates of the next site in order."""
    graph = SiteGraph(directory)
    rows = []
    for here in directory.sites:
        for place, link in graph.links_from([here.identifier]).items():
            there = directory.sites[place]
            gates = [gate.computer_name for gate in gates_in_turn(directory, there, link)]
            rows.append((here.name, there.name, link.actual_cost, gates))
    return local(spark, rows, LINKS)


def moved(spark: SparkSession, before: Directory, after: Directory) -> DataFrame:
    """The pairs of sites whose next hop or cost differs after a change. Null means that there is no route.

    Both directories must have the same sites in the same order. Only links differ.
    """
    shared = spark.sparkContext.broadcast((Network.of(before), Network.of(after)))

    def work(batches: Batches) -> Iterator[Any]:
        one, other = shared.value
        for destinations in _destinations(batches):
            yield _moved_of(one, other, destinations)

    return _spread(spark, len(before.sites)).mapInArrow(work, MOVED)


def link_loads(spark: SparkSession, directory: Directory, demand: DataFrame) -> DataFrame:
    """The load of each link, both directions together, if `demand` (from_site, to_site, messages, bytes) takes the
    routes of this directory. Sites are in the order of their names. `unserved` gives the demand without a route."""
    carried = _walk(spark, directory, demand, LOADS, _loads_of)
    return carried.groupBy("site_a", "site_b").agg(f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes"))


def unserved(spark: SparkSession, directory: Directory, demand: DataFrame) -> DataFrame:
    """The demand between sites without a route."""
    return _walk(spark, directory, demand, LOST, _lost_of).select("from_site", "to_site", "messages", "bytes")


# Distribution of destinations


def _spread(spark: SparkSession, sites: int) -> DataFrame:
    parts = max(1, min(spark.sparkContext.defaultParallelism * 2, -(-sites // CHUNK)))
    return spark.range(0, sites, 1, parts)


def _destinations(batches: Batches) -> Iterator[Sequence[int]]:
    for batch in batches:
        yield from chunks(batch.column(0).to_pylist())


def _walk(
    spark: SparkSession, directory: Directory, demand: DataFrame, schema: str, work_of: Callable[[Network, Any], Any]
) -> DataFrame:
    """`work_of` gets the whole demand of some destinations."""
    shared = spark.sparkContext.broadcast(Network.of(directory))

    def work(batches: Batches) -> Iterator[Any]:
        for batch in batches:
            yield work_of(shared.value, batch)

    wanted = demand.select("from_site", "to_site", "messages", "bytes").where("from_site <> to_site")
    parts = spark.sparkContext.defaultParallelism
    return wanted.repartition(parts, "to_site").sortWithinPartitions("to_site").mapInArrow(work, schema)


# Work of one task


def _routes_of(network: Network, destinations: Sequence[int]) -> Any:
    found = network.routes(destinations)
    row, origin = numpy.nonzero(found.link != NONE)
    link = found.link[row, origin]
    return _batch(
        ROUTES,
        _named(network.origins, origin),
        _named(network.sites, numpy.asarray(destinations)[row]),
        _named(network.sites, network.next_site[link]),
        found.cost[row, origin].astype(numpy.int64),
        network.link_cost[link].astype(numpy.int64),
    )


def _moved_of(before: Network, after: Network, destinations: Sequence[int]) -> Any:
    one, other = before.routes(destinations), after.routes(destinations)
    sites = slice(0, len(before.sites))  # a gate in several sites is known by its sites
    next_one, next_other = _next(before, one, sites), _next(after, other, sites)
    row, origin = numpy.nonzero((next_one != next_other) | (one.cost[:, sites] != other.cost[:, sites]))
    return _batch(
        MOVED,
        _named(before.sites, origin),
        _named(before.sites, numpy.asarray(destinations)[row]),
        _named(before.sites, next_one[row, origin]),
        _costs(one.cost[row, origin]),
        _named(before.sites, next_other[row, origin]),
        _costs(other.cost[row, origin]),
    )


def _loads_of(network: Network, batch: Any) -> Any:
    """Moves the whole demand along its routes, one step at a time."""
    a: list[Any] = []
    b: list[Any] = []
    weights: list[tuple[Any, Any]] = []
    for arrays, here, row, destination, messages, size in _demands(network, batch):
        while True:
            link = arrays.link[row, here]
            going = link != NONE
            if not going.any():
                break
            here, row, destination = here[going], row[going], destination[going]
            messages, size = messages[going], size[going]
            there = network.next_site[link[going]]
            a.append(here)
            b.append(there)
            weights.append((messages, size))
            here = there
    if not a:
        return _batch(LOADS, *(_named((), numpy.empty(0, int)),) * 2, *(numpy.empty(0, numpy.int64),) * 2)
    one, other = numpy.concatenate(a), numpy.concatenate(b)
    names = numpy.array(network.sites, object)
    order = numpy.empty(len(names), numpy.int64)
    order[numpy.argsort(names)] = numpy.arange(len(names))
    swapped = order[one] > order[other]
    return _batch(
        LOADS,
        _named(network.sites, numpy.where(swapped, other, one)),
        _named(network.sites, numpy.where(swapped, one, other)),
        numpy.concatenate([each for each, _ in weights]),
        numpy.concatenate([each for _, each in weights]),
    )


def _lost_of(network: Network, batch: Any) -> Any:
    lost: list[tuple[Any, Any, Any, Any]] = []
    for arrays, here, row, destination, messages, size in _demands(network, batch):
        gone = arrays.link[row, here] == NONE
        lost.append((destination[gone], here[gone], messages[gone], size[gone]))
    columns = [numpy.concatenate(each) for each in zip(*lost, strict=True)] or [numpy.empty(0, numpy.int64)] * 4
    return _batch(LOST, _named(network.sites, columns[0]), _named(network.sites, columns[1]), columns[2], columns[3])


def _demands(network: Network, batch: Any) -> Iterator[tuple[RouteArrays, Any, Any, Any, Any, Any]]:
    """The rows of a batch by chunks of destinations: (arrays, origin, row in the arrays, destination, ...)."""
    numbers = {name: place for place, name in enumerate(network.sites)}
    here, there = ([numbers.get(name, NONE) for name in batch.column(number).to_pylist()] for number in (0, 1))
    origin, target = numpy.array(here, numpy.int64), numpy.array(there, numpy.int64)
    known = (origin != NONE) & (target != NONE)
    messages, size = (batch.column(number).to_numpy(zero_copy_only=False).astype(numpy.int64) for number in (2, 3))
    destinations = numpy.unique(target[known])
    for some in chunks(destinations.tolist()):
        chosen = known & numpy.isin(target, some)
        row = numpy.searchsorted(numpy.asarray(some), target[chosen])
        yield network.routes(some), origin[chosen], row, target[chosen], messages[chosen], size[chosen]


def _next(network: Network, found: RouteArrays, origins: slice) -> Any:
    """The next site's number, NONE if there is none."""
    link = found.link[:, origins]
    if not len(network.next_site):
        return link
    return numpy.where(link == NONE, NONE, network.next_site[link])


def _named(names: tuple[str, ...], numbers: Any) -> Any:
    """Names by their numbers; NONE is null."""
    indices = pyarrow.array(numbers.astype("int32"), pyarrow.int32(), mask=numbers == NONE)
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(names, pyarrow.string())).cast(pyarrow.string())


def _costs(costs: Any) -> Any:
    """Whole numbers; infinite ones are null."""
    none = numpy.isinf(costs)
    return pyarrow.array(numpy.where(none, 0, costs).astype(numpy.int64), mask=none)


def _batch(schema: str, *columns: Any) -> Any:
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.array(each) for each in columns], names=[each.split()[0] for each in schema.split(", ")]
    )
