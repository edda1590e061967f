"""The routing table of a site gate, [MS-MQBR] 3.1.3.1: the cheapest route to every site, by Dijkstra's algorithm.

hops.py uses the table, and router.py decides when to make a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from uuid import UUID

from postroad.directory.objects import QueueManager, RoutingLink, Site
from postroad.directory.snapshot import Directory

# The roles in routing, [MS-MQBR] 3.1.5.4 to 3.1.5.8: questions to a snapshot of the directory.
#
# Where the specification returns one gate of several, these functions return all of them, in the order to try.


def get_queue_manager(directory: Directory, machine_id: UUID) -> QueueManager | None:
    """3.1.5.4"""
    return directory.manager(machine_id)


def get_routing_server(directory: Directory, machine_id: UUID) -> QueueManager | None:
    """3.1.5.5: the first routing server that has a site in common with the machine."""
    machine = get_queue_manager(directory, machine_id)
    return None if machine is None else directory.routing_server_of(machine.site_identifier_list)


def get_site_gates(directory: Directory, machine_id: UUID) -> tuple[QueueManager, ...]:
    """GetSiteGate, 3.1.5.6: the gates of the machine's first site, in the directory's order of sites.

    The search ends there, even if that site has no gate and another site of the machine has one.
    """
    machine = get_queue_manager(directory, machine_id)
    sites = () if machine is None else directory.site_collection(machine)
    if not sites:
        return ()
    first = min(sites, key=lambda site: directory.site_number(site.identifier))
    return get_site_gates_for_site(directory, first.identifier)


def get_site_gates_for_site(directory: Directory, site_id: UUID) -> tuple[QueueManager, ...]:
    """GetSiteGateForSite, 3.1.5.7"""
    return directory.site_gate_collection(site_id)


def is_site_gate(directory: Directory, machine_id: UUID) -> bool:
    """3.1.5.8: whether this is a routing server that is a gate of one of its sites."""
    machine = get_queue_manager(directory, machine_id)
    if machine is None or not machine.routing_server:
        return False
    return any(machine in directory.site_gate_collection(site) for site in machine.site_identifier_list)


@dataclass(frozen=True, slots=True)
class Row:
    """The next hop of messages to a site. `cost` is the cost of the whole route, `link_cost` that of its first link.

    `gates` are the gates of the next site in the order to try: first those that the link names, then the others.
    """

    destination_site: Site
    next_hop_site: Site
    gates: tuple[QueueManager, ...]
    cost: int
    link_cost: int


class RoutingTable:
    """A row for each reachable site except the queue manager's own, in the directory's order of sites."""

    __slots__ = ("_indices", "rows")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = tuple(rows)
        self._indices = {row.destination_site.identifier: place for place, row in enumerate(self.rows)}

    def row_to(self, sites: Iterable[UUID]) -> Row | None:
        """The row for a destination in these sites. If several fit, this is the last one in the table, not the
        cheapest: the scan of [MS-MQBR] 3.1.5.3 does not stop at a match."""
        place = max((self._indices[site] for site in sites if site in self._indices), default=None)
        return None if place is None else self.rows[place]


@dataclass(frozen=True, slots=True)
class _Edge:
    """One direction of the cheapest link between two sites."""

    to: int
    link: RoutingLink


class SiteGraph:
    """The enterprise as a graph, [MS-MQBR] 3.1.3.1: sites in the directory's order, links in both directions.

    It is made once for a directory, and each table is a search in it.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        cheapest: list[dict[int, RoutingLink]] = [{} for _ in directory.sites]
        for link in directory.links:
            site1 = directory.site_number(link.site1_identifier)
            site2 = directory.site_number(link.site2_identifier)
            for here, there in ((site1, site2), (site2, site1)):
                known = cheapest[here].get(there)
                if known is None or link.actual_cost < known.actual_cost:  # of parallel links, the cheapest counts
                    cheapest[here][there] = link
        self._edges = [[_Edge(there, link) for there, link in each.items()] for each in cheapest]
        # Between equal costs, the next site's GUID decides, so that every queue manager decides alike.
        by_guid = sorted(range(len(directory.sites)), key=lambda place: directory.sites[place].identifier)
        self._ranks = [0] * len(by_guid)
        for rank, place in enumerate(by_guid):
            self._ranks[place] = rank

    def links_from(self, roots: Iterable[UUID]) -> dict[int, RoutingLink]:
        """The cheapest link to each neighbour of the roots."""
        own = {self.directory.site_number(root) for root in roots}
        found: dict[int, RoutingLink] = {}
        for root in sorted(own):
            for edge in self._edges[root]:
                known = found.get(edge.to)
                if edge.to not in own and (known is None or edge.link.actual_cost < known.actual_cost):
                    found[edge.to] = edge.link
        return found

    def least_costs(self, first_links: Mapping[int, RoutingLink], roots: Iterable[UUID]) -> dict[int, tuple[int, int]]:
        """(cost, next site) for each site that the roots can reach. The roots themselves cost nothing.

        The heap orders routes by cost, and then by the GUID of their first site. Because no link is free, all routes to
        a site are in the heap when the first of them is taken out. So that first one is the right one.
        """
        settled: dict[int, tuple[int, int]] = {self.directory.site_number(root): (0, -1) for root in roots}
        own = frozenset(settled)
        best: dict[int, tuple[int, int]] = {}
        heap: list[tuple[int, int, int, int]] = []
        for neighbour, link in first_links.items():
            best[neighbour] = (link.actual_cost, self._ranks[neighbour])
            heappush(heap, (link.actual_cost, self._ranks[neighbour], neighbour, neighbour))
        while heap:
            cost, rank, place, first = heappop(heap)
            if place in settled:
                continue
            settled[place] = (cost, first)
            for edge in self._edges[place]:
                there = edge.to
                route = (cost + edge.link.actual_cost, rank)
                if there not in settled and (there not in best or route < best[there]):
                    best[there] = route
                    heappush(heap, (*route, there, first))
        for place in own:
            del settled[place]
        return settled


def build_table(graph: SiteGraph, machine_id: UUID) -> RoutingTable:
    """The routing table of one queue manager. Empty unless it is a site gate."""
    directory = graph.directory
    machine = get_queue_manager(directory, machine_id)
    if machine is None or not is_site_gate(directory, machine_id):
        return RoutingTable()
    roots = [site.identifier for site in directory.site_collection(machine)]  # the gate's sites
    first_links = graph.links_from(roots)
    gates = {place: gates_in_turn(directory, directory.sites[place], link) for place, link in first_links.items()}
    routes = graph.least_costs(first_links, roots)
    return RoutingTable(
        Row(site, directory.sites[route[1]], gates[route[1]], route[0], first_links[route[1]].actual_cost)
        for place, site in enumerate(directory.sites)
        if (route := routes.get(place)) is not None
    )


def gates_in_turn(directory: Directory, site: Site, link: RoutingLink) -> tuple[QueueManager, ...]:
    """The gates at a link's far site in the order to try: first those that the link names, then the others."""
    gates = get_site_gates_for_site(directory, site.identifier)
    named = frozenset(link.site_gate_identifier_list)
    return (
        *(gate for gate in gates if gate.identifier in named),
        *(gate for gate in gates if gate.identifier not in named),
    )
