"""What a changed enterprise does to routes and links: whole routes of pairs of sites, before and after.

Numpy only, and no Spark: the pairs that have traffic are few, and all pairs of a thousand sites take seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from postroad.directory.snapshot import Directory
from postroad.spark.pipeline.network import NONE, Network, chunks

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Load:
    messages: int = 0
    bytes: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.messages + other.messages, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Route:
    """The sites on the way, both ends included, and the cost of its links."""

    sites: tuple[str, ...]
    cost: int

    @property
    def hops(self) -> int:
        return len(self.sites) - 1


@dataclass(frozen=True, slots=True)
class ChangedPair:
    """A demand whose route differs; None where there is no route. A manager that has moved to another site has other
    ends afterwards."""

    source: str
    destination: str
    load: Load
    before: Route | None
    after: Route | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`links` has (before, after) for each pair of sites that has a link on a route. `unknown` is the traffic between
    managers or sites that one of the two directories does not have."""

    pairs: int
    changed: tuple[ChangedPair, ...]
    links: Mapping[Pair, tuple[Load, Load]]
    unknown: Load

    def count(self, kind: str) -> tuple[int, Load]:
        """How many pairs, and their load: `rerouted`, `cut_off`, `joined`, `dearer`, `cheaper`, `longer`, `shorter`."""
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
    """Loads between two names, of managers or of sites."""

    loads: dict[Pair, Load] = field(default_factory=dict)

    @classmethod
    def of_traffic(cls, rows: Iterable[Mapping[str, Any]]) -> Demand:
        """From rows of gold/traffic: between managers. Messages without a known end count under the name ''."""
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
    """The site of each name, in lower case: of a site, or of a manager with a site. A manager's name wins."""
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
    """The sites behind each origin on its way, by numbers; all of them take one step at a time."""
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
