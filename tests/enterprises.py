"""Small enterprises for tests: sites and queue managers by name, with GUIDs made from the names, and a strategy for
many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID, uuid5

from hypothesis import strategies as st

from postroad.directory.objects import Queue, QueueManager, RoutingLink, Site
from postroad.directory.snapshot import Directory
from postroad.names import PathName
from postroad.routing import NextHops, RoutingTable, SiteGraph, build_table, get_next_hops

SPACE = UUID("00000000-0000-4000-8000-000000000001")

Link = tuple[str, str, int]


def guid(name: str) -> UUID:
    """The GUID of a site, a queue manager or a queue."""
    return uuid5(SPACE, name)


def guids(names: str) -> tuple[UUID, ...]:
    return tuple(guid(name) for name in names.split())


def site(name: str, gates: str = "", identifier: UUID | None = None) -> Site:
    return Site(identifier=identifier or guid(name), name=name, site_gate_identifier_list=guids(gates))


def link(one: str, other: str, cost: int = 1, gates: str = "", number: int = 0) -> RoutingLink:
    return RoutingLink(
        identifier=guid(f"{one}-{other} {number}"),
        site1_identifier=guid(one),
        site2_identifier=guid(other),
        actual_cost=cost,
        site_gate_identifier_list=guids(gates),
    )


def client(name: str, sites: str, *, inward: str = "", outward: str = "", address: str | None = None) -> QueueManager:
    """A queue manager that is not a routing server. `inward` and `outward` are its in- and out-routing servers."""
    return _manager(name, sites, False, inward, outward, address)


def server(name: str, sites: str, *, inward: str = "", outward: str = "", address: str | None = None) -> QueueManager:
    """A routing server."""
    return _manager(name, sites, True, inward, outward, address)


def _manager(
    name: str, sites: str, routing_server: bool, inward: str, outward: str, address: str | None
) -> QueueManager:
    return QueueManager(
        identifier=guid(name),
        computer_name=name,
        address=address,
        site_identifier_list=guids(sites),
        routing_server=routing_server,
        in_routing_server_identifier_list=guids(inward),
        out_routing_server_identifier_list=guids(outward),
    )


def queue(path: str) -> Queue:
    pathname = PathName.parse(path)
    return Queue(identifier=guid(path), pathname=pathname, queue_manager_identifier=guid(pathname.computer))


def directory(*objects: Site | RoutingLink | QueueManager | Queue) -> Directory:
    return Directory(
        sites=[each for each in objects if isinstance(each, Site)],
        links=[each for each in objects if isinstance(each, RoutingLink)],
        managers=[each for each in objects if isinstance(each, QueueManager)],
        queues=[each for each in objects if isinstance(each, Queue)],
    )


def gated(names: str, links: Iterable[Link]) -> Directory:
    """Sites with one gate each, called gate-NAME, in the order of the names."""
    return directory(
        *(site(name, f"gate-{name}") for name in names.split()),
        *(link(one, other, cost, number=number) for number, (one, other, cost) in enumerate(links)),
        *(server(f"gate-{name}", name) for name in names.split()),
    )


def table_of(enterprise: Directory, manager: str) -> RoutingTable:
    return build_table(SiteGraph(enterprise), guid(manager))


def next_sites(table: RoutingTable) -> dict[str, str]:
    """The routing table as destination and next site, by name."""
    return {row.destination_site.name: row.next_hop_site.name for row in table.rows}


def hops(enterprise: Directory, source: str, destination: str) -> NextHops:
    """The next hops as `source` itself would decide."""
    return get_next_hops(enterprise, table_of(enterprise, source), guid(source), guid(destination))


def hop_names(enterprise: Directory, source: str, destination: str) -> list[str]:
    return [each.computer_name for each in hops(enterprise, source, destination).hops]


# Random enterprises


@dataclass(frozen=True, slots=True)
class Graph:
    """Sites by number, and the links between them. Several links may join the same two sites."""

    sites: int
    links: tuple[tuple[int, int, int], ...]

    def directory(self) -> Directory:
        names = [f"site-{number}" for number in range(self.sites)]
        return gated(" ".join(names), [(names[one], names[other], cost) for one, other, cost in self.links])

    def least_costs(self) -> list[list[float]]:
        """Floyd and Warshall's algorithm, which is simple enough to be trusted."""
        costs = [[0.0 if one == other else float("inf") for other in range(self.sites)] for one in range(self.sites)]
        for one, other, cost in self.links:
            costs[one][other] = costs[other][one] = min(costs[one][other], cost)
        for middle in range(self.sites):
            for one in range(self.sites):
                for other in range(self.sites):
                    costs[one][other] = min(costs[one][other], costs[one][middle] + costs[middle][other])
        return costs


@st.composite
def graphs(draw: st.DrawFn, *, connected: bool = False, most: int = 7) -> Graph:
    """Graphs with few different costs, so that many routes have equal costs."""
    sites = draw(st.integers(2, most))
    numbers = st.integers(0, sites - 1)
    pairs = draw(st.lists(st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1]), max_size=12))
    if connected:
        pairs += list(pairwise(draw(st.permutations(range(sites)))))
    costs = draw(st.lists(st.integers(1, 4), min_size=len(pairs), max_size=len(pairs)))
    return Graph(sites, tuple((one, other, cost) for (one, other), cost in zip(pairs, costs, strict=True)))


@st.composite
def enterprises(draw: st.DrawFn, *, sites_each: int = 1) -> tuple[Graph, Directory]:
    """Enterprises without faults: every site can be reached and has gates, and in- and out-routing servers are routing
    servers of the same site. A queue manager is in up to `sites_each` sites."""
    graph = draw(graphs(connected=True, most=5))
    names = [f"site-{number}" for number in range(graph.sites)]
    memberships = st.lists(st.sampled_from(names), min_size=1, max_size=sites_each, unique=True)
    gates = [
        server(f"gate-{name}-{number}", " ".join(dict.fromkeys([name, *draw(memberships)][:sites_each])))
        for name in names
        for number in range(draw(st.integers(1, 2)))
    ]
    routers = [server(f"router-{number}", " ".join(draw(memberships))) for number in range(draw(st.integers(0, 3)))]
    servers = [*gates, *routers]
    clients = []
    for number in range(draw(st.integers(2, 4))):
        sites = draw(memberships)
        near = [each.computer_name for each in servers if set(each.site_identifier_list) & set(map(guid, sites))]
        lists = st.lists(st.sampled_from(near), max_size=2, unique=True)
        inward, outward = " ".join(draw(lists)), " ".join(draw(lists))
        clients.append(client(f"client-{number}", " ".join(sites), inward=inward, outward=outward))
    named = [draw(st.booleans()) for _ in graph.links]
    return graph, directory(
        *(site(name, _gates_of(gates, [name])) for name in names),
        *(
            link(names[one], names[other], cost, _gates_of(gates, [names[one], names[other]]) if by_name else "", place)
            for place, ((one, other, cost), by_name) in enumerate(zip(graph.links, named, strict=True))
        ),
        *draw(st.permutations([*servers, *clients])),
    )


def _gates_of(gates: Sequence[QueueManager], names: Iterable[str]) -> str:
    return " ".join(
        gate.computer_name for name in names for gate in gates if gate.computer_name.startswith(f"gate-{name}-")
    )
