"""Routes of a whole enterprise: every next hop, and what a change does to routes and to the load of links.

One process does all of it, without Spark: a network is small, and even all pairs of a thousand sites take seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy

from postroad.directory.snapshot import Directory
from postroad.routing import SiteGraph
from postroad.routing.table import is_site_gate

# Routing as arrays, [MS-MQBR] 3.1.3.1: the next site of every origin for a set of destinations. The rules are those of
# `postroad.routing`: the least cost wins, and among equal costs the next site with the lowest GUID.


CHUNK = 64  # destinations at a time, which take about ten megabytes with 20,000 links
NONE = -1


@dataclass(frozen=True, slots=True)
class RouteArrays:
    """The routes to some destinations, as arrays with a row for each destination and a column for each origin.

    `link` is the number of the route's first link in the network. It is NONE if there is no route, or if the origin is
    at the destination. `cost` is the cost of the whole route, infinite where `link` is NONE.
    """

    link: Any
    cost: Any


@dataclass(frozen=True, slots=True)
class Network:
    """Sites and links by number; sites are in the directory's order.

    The origins are the sites, followed by the gates that belong to several sites: each of these has its own routing
    table. The links of origin `o` are those from `starts[o]` to `starts[o + 1]`, ordered by the GUID of the next site.
    """

    sites: tuple[str, ...]
    origins: tuple[str, ...]
    starts: Any
    next_site: Any
    link_cost: Any
    at_site: dict[int, list[int]]  # the origins that belong to each site

    @classmethod
    def of(cls, directory: Directory) -> Network:
        graph = SiteGraph(directory)
        guids = [site.identifier for site in directory.sites]
        origins = list(_origins(directory))
        links = [sorted(graph.links_from(roots).items(), key=lambda each: guids[each[0]]) for _, roots in origins]
        starts = numpy.zeros(len(origins) + 1, numpy.int64)
        starts[1:] = numpy.cumsum([len(each) for each in links])
        at_site: dict[int, list[int]] = {}
        for number, (_, roots) in enumerate(origins):
            for root in roots:
                at_site.setdefault(directory.site_number(root), []).append(number)
        return cls(
            sites=tuple(site.name for site in directory.sites),
            origins=tuple(name for name, _ in origins),
            starts=starts,
            next_site=numpy.array([there for each in links for there, _ in each], numpy.int32),
            link_cost=numpy.array([link.actual_cost for each in links for _, link in each], numpy.float64),
            at_site=at_site,
        )

    def routes(self, destinations: Sequence[int]) -> RouteArrays:
        """Finds the routes from all origins to some destinations.

        Links have two directions, so one search from a destination finds the costs from all sites. The route of an
        origin starts with the first of its links that has the least total cost.
        """
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        shape = (len(destinations), len(self.origins))
        link = numpy.full(shape, NONE, numpy.int32)
        cost = numpy.full(shape, numpy.inf)
        degrees = numpy.diff(self.starts)
        joined = numpy.flatnonzero(degrees)  # the origins that have links
        if not len(destinations) or not len(joined):
            return RouteArrays(link, cost)
        sites = len(self.sites)
        end = self.starts[sites]
        graph = csr_matrix((self.link_cost[:end], self.next_site[:end], self.starts[: sites + 1]), shape=(sites, sites))
        rest = dijkstra(graph, indices=numpy.asarray(destinations, numpy.int64))
        whole = rest[:, self.next_site] + self.link_cost  # the cost of the route that starts with each link
        firsts = self.starts[:-1][joined]
        least = numpy.minimum.reduceat(whole, firsts, axis=1)
        numbers = numpy.arange(len(self.next_site), dtype=numpy.int32)
        candidates = numpy.where(whole == numpy.repeat(least, degrees[joined], axis=1), numbers, len(numbers))
        cost[:, joined] = least
        link[:, joined] = numpy.minimum.reduceat(candidates, firsts, axis=1)
        for row, destination in enumerate(destinations):
            cost[row, self.at_site[destination]] = numpy.inf
        link[numpy.isinf(cost)] = NONE
        return RouteArrays(link, cost)


def chunks(destinations: Sequence[int], size: int = CHUNK) -> Iterator[Sequence[int]]:
    for first in range(0, len(destinations), size):
        yield destinations[first : first + size]


def _origins(directory: Directory) -> Iterator[tuple[str, list[UUID]]]:
    """All sites, and all site gates that belong to several sites. The routing table of a gate starts from all its
    sites.
    """
    for site in directory.sites:
        yield site.name, [site.identifier]
    for manager in directory.managers:
        sites = [site.identifier for site in directory.site_collection(manager)]
        if len(sites) > 1 and is_site_gate(directory, manager.identifier):
            yield gate_origin(manager.computer_name), sites


def gate_origin(computer_name: str) -> str:
    """The name of a gate in several sites, as an origin."""
    return f"gate {computer_name}"


# What a changed enterprise does to routes and links: whole routes of pairs of sites, before and after.
#


Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Load:
    messages: int = 0
    bytes: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.messages + other.messages, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Route:
    """The sites along a route, both ends included, and the cost of its links."""

    sites: tuple[str, ...]
    cost: int

    @property
    def hops(self) -> int:
        return len(self.sites) - 1


@dataclass(frozen=True, slots=True)
class ChangedPair:
    """A pair with demand whose route changes. None stands for no route.

    If a manager moves to another site, the ends of its routes change too.
    """

    source: str
    destination: str
    load: Load
    before: Route | None
    after: Route | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changes between two directories.

    `links` has (before, after) for each pair of sites with a link on a route. `unknown` is the traffic of managers or
    sites that one of the directories lacks.
    """

    pairs: int
    changed: tuple[ChangedPair, ...]
    links: Mapping[Pair, tuple[Load, Load]]
    unknown: Load

    def count(self, kind: str) -> tuple[int, Load]:
        """The number of changed pairs and their load. The kind is `rerouted`, `cut_off`, `joined`, `dearer`, `cheaper`,
        `longer` or `shorter`.
        """
        found = [each for each in self.changed if kind in _kinds(each)]
        return len(found), sum((each.load for each in found), Load())


def _kinds(pair: ChangedPair) -> Iterator[str]:
    before, after = pair.before, pair.after
    if before is None or after is None:
        yield "joined" if before is None else "cut_off"
        return
    if before.sites != after.sites:
        yield "rerouted"
    if before.cost != after.cost:
        yield "dearer" if after.cost > before.cost else "cheaper"
    if before.hops != after.hops:
        yield "longer" if after.hops > before.hops else "shorter"


@dataclass(slots=True)
class Demand:
    """Loads between two names of managers or of sites."""

    loads: dict[Pair, Load] = field(default_factory=dict)

    @classmethod
    def of_traffic(cls, rows: Iterable[Mapping[str, Any]]) -> Demand:
        """The demand between managers, from rows of gold/traffic. An unknown end has the name ''."""
        found: dict[Pair, Load] = defaultdict(Load)
        for row in rows:
            found[row["source"] or "", row["destination"] or ""] += Load(row["messages"], row["bytes"])
        return cls(dict(found))

    @classmethod
    def of_all_sites(cls, directory: Directory) -> Demand:
        """One message between any two sites."""
        names = [site.name for site in directory.sites]
        return cls({(one, other): Load(1, 0) for one in names for other in names if one != other})


def compare(before: Directory, after: Directory, demand: Demand) -> Comparison:
    sites = [_sites(directory) for directory in (before, after)]
    known = {
        pair: load
        for pair, load in demand.loads.items()
        if all(name.lower() in found for name in pair for found in sites)
    }
    routes = []
    for directory, site_of in zip((before, after), sites, strict=True):
        wanted = {(site_of[one.lower()], site_of[other.lower()]) for one, other in known}
        found = dict(_routes(Network.of(directory), wanted))
        routes.append({pair: found[site_of[pair[0].lower()], site_of[pair[1].lower()]] for pair in known})
    changed = [
        ChangedPair(*pair, load, routes[0][pair], routes[1][pair])
        for pair, load in known.items()
        if routes[0][pair] != routes[1][pair]
    ]
    changed.sort(key=lambda each: (-each.load.messages, each.source, each.destination))
    loads = [_links(found, known) for found in routes]
    unknown = sum((load for pair, load in demand.loads.items() if pair not in known), Load())
    return Comparison(
        pairs=len(known),
        changed=tuple(changed),
        links={link: (loads[0].get(link, Load()), loads[1].get(link, Load())) for link in {*loads[0], *loads[1]}},
        unknown=unknown,
    )


def _sites(directory: Directory) -> dict[str, str]:
    """The site of each name, in lower case, which is the name of a site or of a manager. A manager's name wins."""
    found = {site.name.lower(): site.name for site in directory.sites}
    for manager in directory.managers:
        if own := directory.site_collection(manager):
            found[manager.computer_name.lower()] = own[0].name
    return found


def _routes(network: Network, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, Route | None]]:
    """The route of each pair. Traffic inside a site takes no link."""
    numbers = {name: number for number, name in enumerate(network.sites)}
    origins: dict[int, list[int]] = defaultdict(list)
    for one, other in pairs:
        origins[numbers[other]].append(numbers[one])
    for some in chunks(sorted(origins)):
        found = network.routes(some)
        for row, destination in enumerate(some):
            here = numpy.array(origins[destination], numpy.int64)
            for origin, path in zip(here.tolist(), _paths(network, found.link[row], here), strict=True):
                pair = network.sites[origin], network.sites[destination]
                if origin == destination:
                    yield pair, Route((pair[0],), 0)
                elif path[-1] != destination:
                    yield pair, None
                else:
                    names = tuple(network.sites[site] for site in (origin, *path))
                    yield pair, Route(names, int(found.cost[row, origin]))


def _paths(network: Network, first_links: Any, origins: Any) -> list[list[int]]:
    """The sites that follow each origin on its route, by number. All routes advance one step at a time."""
    paths: list[list[int]] = [[] for _ in range(len(origins))]
    moving, here = numpy.arange(len(origins)), origins
    while len(moving):
        link = first_links[here]
        going = link != NONE
        moving, here = moving[going], network.next_site[link[going]].astype(numpy.int64)
        for path, site in zip(moving.tolist(), here.tolist(), strict=True):
            paths[path].append(site)
    return [path or [NONE] for path in paths]


def _links(routes: Mapping[Pair, Route | None], demand: Mapping[Pair, Load]) -> dict[Pair, Load]:
    found: dict[Pair, Load] = defaultdict(Load)
    for pair, route in routes.items():
        if route is not None:
            for one, other in zip(route.sites, route.sites[1:], strict=False):
                found[min(one, other), max(one, other)] += demand[pair]
    return dict(found)
