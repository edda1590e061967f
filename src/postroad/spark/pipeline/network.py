"""Routing of a whole enterprise as arrays, [MS-MQBR] 3.1.3.1: every origin's next site for a set of destinations.

The rules are those of `postroad.routing`: the least cost, and among equal costs the next site with the lowest GUID.
Numpy and scipy only: routes.py distributes the destinations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy

from postroad.directory.snapshot import Directory
from postroad.routing import SiteGraph
from postroad.routing.roles import is_site_gate

CHUNK = 64  # destinations at a time: about ten megabytes with 20,000 links
NONE = -1


@dataclass(frozen=True, slots=True)
class RouteArrays:
    """The routes to some destinations: arrays with a row for each destination and a column for each origin.

    `link` is the number of the route's first link in the network, NONE if there is no route or the origin is at the
    destination. `cost` is the cost of the whole route, infinite if there is no link.
    """

    link: Any
    cost: Any


@dataclass(frozen=True, slots=True)
class Network:
    """Sites by number, in the directory's order. The origins are the sites, then the gates that belong to several
    sites, because each of these has its own routing table.

    The links of origin `o` are those from `starts[o]` to `starts[o + 1]`, ordered by the GUID of the next site.
    """

    sites: tuple[str, ...]
    origins: tuple[str, ...]
    starts: Any
    next_site: Any
    link_cost: Any
    at_site: dict[int, list[int]]  # the origins that belong to a site

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
        """Links have two directions, so one search from a destination finds the costs from all sites. The route of an
        origin starts with the first of its links that has the least total cost."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        shape = (len(destinations), len(self.origins))
        link = numpy.full(shape, NONE, numpy.int32)
        cost = numpy.full(shape, numpy.inf)
        degrees = numpy.diff(self.starts)
        joined = numpy.flatnonzero(degrees)  # origins that have a link at all
        if not len(destinations) or not len(joined):
            return RouteArrays(link, cost)
        sites = len(self.sites)
        end = self.starts[sites]
        graph = csr_matrix((self.link_cost[:end], self.next_site[:end], self.starts[: sites + 1]), shape=(sites, sites))
        rest = dijkstra(graph, indices=numpy.asarray(destinations, numpy.int64))
        whole = rest[:, self.next_site] + self.link_cost  # the cost of the route that starts with this link
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
    """All sites, and all site gates that belong to several sites: their tables start from all of these."""
    for site in directory.sites:
        yield site.name, [site.identifier]
    for manager in directory.managers:
        sites = [site.identifier for site in directory.site_collection(manager)]
        if len(sites) > 1 and is_site_gate(directory, manager.identifier):
            yield gate_origin(manager.computer_name), sites


def gate_origin(computer_name: str) -> str:
    """The name of a gate in several sites, as an origin."""
    return f"gate {computer_name}"
