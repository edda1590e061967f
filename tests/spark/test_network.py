"""Whole enterprises as arrays: the same next hops as every site gate's own table, [MS-MQBR] 3.1.3.1."""

from __future__ import annotations

import pytest
from hypothesis import given

from postroad.directory.snapshot import Directory
from postroad.routing import SiteGraph, build_table
from postroad.routing.table import is_site_gate
from postroad.spark.pipeline.routes import NONE, Network, chunks, gate_origin
from tests.enterprises import Graph, enterprises, gated, graphs

Routes = dict[tuple[str, str], tuple[str, int, int]]  # (from, to): (next site, cost, cost of the first link)


def routes_of(directory: Directory) -> Routes:
    """The routes in the arrays, for three destinations at a time."""
    network = Network.of(directory)
    found: Routes = {}
    for some in chunks(range(len(network.sites)), 3):
        routes = network.routes(some)
        for row, destination in enumerate(some):
            for origin, name in enumerate(network.origins):
                if (link := routes.link[row, origin]) != NONE:
                    next_site = network.sites[network.next_site[link]]
                    way = (next_site, int(routes.cost[row, origin]), int(network.link_cost[link]))
                    found[name, network.sites[destination]] = way
    return found


def by_tables(directory: Directory) -> Routes:
    """The routes by the site gates' own tables."""
    graph = SiteGraph(directory)
    found: Routes = {}
    for manager in directory.managers:
        if not is_site_gate(directory, manager.identifier):
            continue
        sites = directory.site_collection(manager)
        origin = sites[0].name if len(sites) == 1 else gate_origin(manager.computer_name)
        for row in build_table(graph, manager.identifier).rows:
            found[origin, row.destination_site.name] = (row.next_hop_site.name, row.cost, row.link_cost)
    return found


@given(graphs())
def test_every_pair_of_sites_has_the_next_hop_of_the_gates_own_table(graph: Graph) -> None:
    directory = graph.directory()
    assert routes_of(directory) == by_tables(directory)


@given(enterprises(sites_each=3))
def test_a_gate_in_several_sites_starts_from_all_of_them(made: tuple[Graph, Directory]) -> None:
    _, directory = made
    found, expected = routes_of(directory), by_tables(directory)
    assert {pair: found.get(pair) for pair in expected} == expected
    assert {origin for origin, _ in found} >= {origin for origin, _ in expected}


def test_of_equal_routes_the_lowest_guid_wins() -> None:
    directory = gated("a b c d", [("a", "b", 1), ("a", "c", 1), ("b", "d", 1), ("c", "d", 1)])
    lowest = min((site for site in directory.sites if site.name in "bc"), key=lambda site: site.identifier)
    assert routes_of(directory)["a", "d"] == (lowest.name, 2, 1)


def test_of_parallel_links_the_cheapest_counts() -> None:
    assert routes_of(gated("a b", [("a", "b", 5), ("a", "b", 2), ("b", "a", 9)]))["a", "b"] == ("b", 2, 2)


@pytest.mark.parametrize("names", ["", "a", "a b c"])
def test_sites_without_links_have_no_routes(names: str) -> None:
    assert routes_of(gated(names, [])) == {}
