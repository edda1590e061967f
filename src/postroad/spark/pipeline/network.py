"""Routing of a whole enterprise as arrays, [MS-MQBR] 3.1.3.1: every origin's next site for a set of destinations.

The rules are those of `postroad.routing`: least cost, and of equal ways the one whose next site has the lowest GUID.
Numpy and scipy only; who shares the destinations out is in routes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from postroad.directory.snapshot import Directory
from postroad.routing import SiteGraph
from postroad.routing.roles import is_site_gate

CHUNK = 64  # destinations at a time: with 20,000 ways out of sites, some ten megabytes
NONE = -1


@dataclass(frozen=True, slots=True)
class Ways:
    """Of some destinations: arrays with a row for each of them and a column for each origin.

    `link` is the place of the way's first link in the network, NONE where no way leads there or the origin is there
    already; `cost` is that of the whole way, infinite where there is no link.
    """

    link: Any
    cost: Any


@dataclass(frozen=True, slots=True)
class Network:
    """Sites by number, in the directory's order. The first origins are the sites themselves; gates in several sites
    follow, for they have a table of their own.

    The links out of origin `o` are those from `starts[o]` to `starts[o + 1]`, the next site of the lowest GUID first.
    """

    sites: tuple[str, ...]
    origins: tuple[str, ...]
    starts: Any
    next_site: Any
    link_cost: Any
    at_site: dict[int, list[int]]  # the origins that belong to a site

    @classmethod
    def of(cls, directory: Directory) -> Network:
        import numpy

        graph = SiteGraph(directory)
        guids = [site.identifier for site in directory.sites]
        origins = list(_origins(directory))
        links = [sorted(graph.links_from(roots).items(), key=lambda each: guids[each[0]]) for _, roots in origins]
        starts = numpy.zeros(len(origins) + 1, numpy.int64)
        starts[1:] = numpy.cumsum([len(each) for each in links])
        at_site: dict[int, list[int]] = {}
        for number, (_, roots) in enumerate(origins):
            for root in roots:
                at_site.setdefault(directory.site_place(root), []).append(number)
        return cls(
            sites=tuple(site.name for site in directory.sites),
            origins=tuple(name for name, _ in origins),
            starts=starts,
            next_site=numpy.array([there for each in links for there, _ in each], numpy.int32),
            link_cost=numpy.array([link.actual_cost for each in links for _, link in each], numpy.float64),
            at_site=at_site,
        )

    def ways(self, destinations: Sequence[int]) -> Ways:
        """Links go both ways: one search from a destination says what it costs from everywhere. The way of an origin
        begins with the first of its links by which nothing is lost."""
        import numpy
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        shape = (len(destinations), len(self.origins))
        link = numpy.full(shape, NONE, numpy.int32)
        cost = numpy.full(shape, numpy.inf)
        degrees = numpy.diff(self.starts)
        joined = numpy.flatnonzero(degrees)  # origins that have a link at all
        if not len(destinations) or not len(joined):
            return Ways(link, cost)
        sites = len(self.sites)
        end = self.starts[sites]
        graph = csr_matrix((self.link_cost[:end], self.next_site[:end], self.starts[: sites + 1]), shape=(sites, sites))
        rest = dijkstra(graph, indices=numpy.asarray(destinations, numpy.int64))
        whole = rest[:, self.next_site] + self.link_cost  # of every link, as the first of a way
        firsts = self.starts[:-1][joined]
        least = numpy.minimum.reduceat(whole, firsts, axis=1)
        numbers = numpy.arange(len(self.next_site), dtype=numpy.int32)
        candidates = numpy.where(whole == numpy.repeat(least, degrees[joined], axis=1), numbers, len(numbers))
        cost[:, joined] = least
        link[:, joined] = numpy.minimum.reduceat(candidates, firsts, axis=1)
        for row, destination in enumerate(destinations):
            cost[row, self.at_site[destination]] = numpy.inf
        link[numpy.isinf(cost)] = NONE
        return Ways(link, cost)


def chunks(destinations: Sequence[int], size: int = CHUNK) -> Iterator[Sequence[int]]:
    for first in range(0, len(destinations), size):
        yield destinations[first : first + size]


def _origins(directory: Directory) -> Iterator[tuple[str, list[UUID]]]:
    """Every site, and every site gate that belongs to several: its table starts from all of them."""
    for site in directory.sites:
        yield site.name, [site.identifier]
    for manager in directory.managers:
        sites = [site.identifier for site in directory.site_collection(manager)]
        if len(sites) > 1 and is_site_gate(directory, manager.identifier):
            yield gate_origin(manager.computer_name), sites


def gate_origin(computer_name: str) -> str:
    """What a gate in several sites is called among origins; sites have their own names."""
    return f"gate {computer_name}"
