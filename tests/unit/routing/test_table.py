"""The routing table, [MS-MQBR] 3.1.1.2 and 3.1.3.1: which sites have a row, and where it leads."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given

from postroad.directory.objects import RoutingLink
from postroad.directory.snapshot import Directory
from postroad.routing import RoutingTable, SiteGraph, build_table
from tests.enterprises import (
    Graph,
    client,
    directory,
    gated,
    graphs,
    guid,
    guids,
    link,
    next_sites,
    server,
    site,
    table_of,
)

DIAMOND = [("A", "B", 1), ("A", "C", 1), ("B", "D", 1), ("C", "D", 1)]


def costs(table: RoutingTable) -> dict[str, int]:
    return {row.destination_site.name: row.cost for row in table.rows}


# Section 4


@pytest.mark.spec("BR-4-01", "BR-3.1.1.2-01")
def test_the_first_example() -> None:
    enterprise = gated("A B C D", [("A", "B", 3), ("B", "C", 1), ("B", "D", 1), ("C", "D", 1)])
    table = table_of(enterprise, "gate-A")
    assert next_sites(table)["C"] == "B"
    assert costs(table)["C"] == 4
    assert next_sites(table_of(enterprise, "gate-B"))["C"] == "C"
    row = table.rows[1]
    assert (row.destination_site.identifier, row.next_hop_site.identifier) == (guid("C"), guid("B"))


@pytest.mark.spec("BR-4-02")
def test_the_second_example() -> None:
    enterprise = gated("A B C D", [("A", "B", 3), ("B", "C", 3), ("C", "D", 1), ("B", "D", 1)])
    assert next_sites(table_of(enterprise, "gate-A"))["C"] == "B"
    assert costs(table_of(enterprise, "gate-A"))["C"] == 5
    assert next_sites(table_of(enterprise, "gate-B"))["C"] == "D"
    assert next_sites(table_of(enterprise, "gate-D"))["C"] == "C"


# Who has a table at all


@pytest.mark.spec("BR-3.1.3.1-01")
@pytest.mark.parametrize("name", ["router", "client", "nobody"])
def test_only_a_site_gate_has_rows(name: str) -> None:
    enterprise = directory(
        site("A", "gate-A"),
        site("B", "gate-B"),
        link("A", "B"),
        server("gate-A", "A"),
        server("gate-B", "B"),
        server("router", "A"),
        client("client", "A"),
    )
    assert next_sites(table_of(enterprise, "gate-A")) == {"B": "B"}
    assert table_of(enterprise, name).rows == ()


@pytest.mark.spec("BR-3.1.3.1-04")
def test_without_sites_there_are_no_rows() -> None:
    assert table_of(directory(server("gate-A", "A")), "gate-A").rows == ()
    assert table_of(Directory(), "gate-A").rows == ()


@pytest.mark.spec("BR-3.1.3.1-05")
def test_without_links_there_are_no_rows() -> None:
    assert table_of(gated("A B", []), "gate-A").rows == ()


# The graph


@pytest.mark.spec("BR-3.1.3.1-06")
def test_a_link_goes_both_ways_whichever_site_it_names_first() -> None:
    links = [("A", "B", 2), ("C", "B", 5), ("A", "C", 9)]
    swapped = [(other, one, cost) for one, other, cost in links]
    for name in ("gate-A", "gate-B", "gate-C"):
        here, there = table_of(gated("A B C", links), name), table_of(gated("A B C", swapped), name)
        assert (next_sites(here), costs(here)) == (next_sites(there), costs(there))
    assert next_sites(table_of(gated("A B C", links), "gate-C")) == {"A": "B", "B": "B"}


@pytest.mark.spec("BR-3.1.3.1-07")
def test_a_link_costs_the_same_both_ways() -> None:
    enterprise = gated("A B C", [("A", "B", 17), ("B", "C", 4)])
    assert costs(table_of(enterprise, "gate-A")) == {"B": 17, "C": 21}
    assert costs(table_of(enterprise, "gate-C")) == {"B": 4, "A": 21}


@pytest.mark.spec("BR-3.1.3.1-08")
def test_the_cheapest_way_wins_however_long_it_is() -> None:
    links = [("A", "D", 10), ("A", "B", 3), ("B", "C", 3), ("C", "D", 3)]
    table = table_of(gated("A B C D", links), "gate-A")
    assert (next_sites(table)["D"], costs(table)["D"]) == ("B", 9)
    assert next_sites(table_of(gated("A B C D", [("A", "D", 8), *links[1:]]), "gate-A"))["D"] == "D"


@pytest.mark.spec("BR-3.1.3.1-14")
@pytest.mark.parametrize("pair", [(5, 2), (2, 5)])
def test_of_parallel_links_the_cheapest_counts(pair: tuple[int, int]) -> None:
    enterprise = gated("A B", [("A", "B", pair[0]), ("B", "A", pair[1])])
    assert costs(table_of(enterprise, "gate-A")) == {"B": 2} == {"B": costs(table_of(enterprise, "gate-B"))["A"]}


@pytest.mark.spec("BR-3.1.3.1-11", "BR-3.1.3.1-12")
def test_a_row_holds_the_first_site_of_the_way() -> None:
    table = table_of(gated("A B C D", [("A", "B", 1), ("B", "C", 1), ("C", "D", 1)]), "gate-A")
    assert next_sites(table) == {"B": "B", "C": "B", "D": "B"}


@pytest.mark.spec("BR-3.1.3.1-13")
def test_the_own_site_has_no_row() -> None:
    assert "B" not in next_sites(table_of(gated("A B C", [("A", "B", 1), ("B", "C", 1)]), "gate-B"))


@pytest.mark.spec("BR-3.1.3.1-10")
def test_a_site_that_cannot_be_reached_has_no_row() -> None:
    assert next_sites(table_of(gated("A B C D", [("A", "B", 1), ("C", "D", 1)]), "gate-A")) == {"B": "B"}


def test_rows_stand_in_the_order_of_the_sites() -> None:
    links = [("A", "B", 9), ("A", "C", 1), ("A", "D", 5)]
    assert list(next_sites(table_of(gated("D A C B", links), "gate-A"))) == ["D", "C", "B"]


# Choices


@pytest.mark.spec("BR-3.1.3.1-16")
@pytest.mark.parametrize("order", ["A B C D", "D C B A"])
def test_of_ways_that_cost_the_same_the_smallest_guid_wins(order: str) -> None:
    smallest = min(["B", "C"], key=guid)
    for links in (DIAMOND, DIAMOND[::-1]):
        assert next_sites(table_of(gated(order, links), "gate-A"))["D"] == smallest


def test_guids_are_compared_as_they_are_written() -> None:
    low, high = UUID("01000000-0000-4000-8000-0000000000ff"), UUID("02000000-0000-4000-8000-000000000000")
    for first, second, winner in ((low, high, "B"), (high, low, "C")):
        b, c = site("B", identifier=first), site("C", identifier=second)
        ends = [(guid("A"), first), (guid("A"), second), (first, guid("D")), (second, guid("D"))]
        enterprise = Directory(
            sites=[site("A", "gate-A"), b, c, site("D")],
            links=[
                RoutingLink(identifier=guid(str(number)), site1_identifier=one, site2_identifier=other, actual_cost=1)
                for number, (one, other) in enumerate(ends)
            ],
            managers=[server("gate-A", "A")],
        )
        assert next_sites(table_of(enterprise, "gate-A"))["D"] == winner


@pytest.mark.spec("BR-3.1.3.1-15")
def test_every_site_of_a_gate_is_a_root() -> None:
    enterprise = directory(
        *(site(name) for name in ("A", "B", "C", "D")),
        link("A", "C", 5, "both"),
        link("B", "C", 2),
        link("A", "D", 1),
        server("both", "A B"),
    )
    table = table_of(enterprise, "both")
    assert next_sites(table) == {"C": "C", "D": "D"}
    assert costs(table) == {"C": 2, "D": 1}


def test_the_way_of_a_gate_in_several_sites_does_not_go_through_its_own() -> None:
    """From B it would be B, A, C. But the gate belongs to A itself."""
    enterprise = directory(
        *(site(name) for name in ("A", "B", "C")), link("A", "B", 1, "both"), link("A", "C", 3), server("both", "A B")
    )
    table = table_of(enterprise, "both")
    assert (next_sites(table), costs(table)) == ({"C": "C"}, {"C": 3})


# Gates of the next site


def gate_names(enterprise: Directory, manager: str, destination: str) -> list[str]:
    row = table_of(enterprise, manager).row_to(guids(destination))
    assert row is not None
    return [gate.computer_name for gate in row.gates]


def test_all_gates_of_the_next_site_are_there_those_of_the_link_first() -> None:
    enterprise = directory(
        site("A", "a"),
        site("B", "b1"),
        site("C"),
        link("B", "C", 1, "b2 c"),
        link("A", "B", 1, "b3 a"),
        server("a", "A"),
        *(server(name, "B") for name in ("b1", "b2", "b3")),
        server("c", "C"),
    )
    assert gate_names(enterprise, "a", "B") == ["b3", "b2", "b1"]
    assert gate_names(enterprise, "a", "C") == ["b3", "b2", "b1"]
    assert gate_names(enterprise, "c", "A") == ["b2", "b3", "b1"]


def test_of_parallel_links_the_gates_of_the_cheapest_are_first() -> None:
    enterprise = directory(
        site("A", "a"),
        site("B"),
        link("A", "B", 5, "b1"),
        link("A", "B", 2, "b2", 1),
        server("a", "A"),
        server("b1", "B"),
        server("b2", "B"),
    )
    assert gate_names(enterprise, "a", "B") == ["b2", "b1"]


# A table that is looked into


@pytest.mark.spec("BR-3.1.5.3-05")
def test_of_several_rows_the_last_one_wins_not_the_cheapest() -> None:
    links = [("A", "C", 1), ("A", "D", 9)]
    table = table_of(gated("A C D", links), "gate-A")
    for sites in ("C D", "D C"):
        row = table.row_to(guids(sites))
        assert row is not None
        assert row.next_hop_site.name == "D"
    assert table.row_to(guids("A nowhere")) is None


# Against a model


@pytest.mark.spec("BR-3.1.3.1-09", "BR-3.1.3.1-11", "BR-3.1.3.1-12", "BR-3.1.3.1-16")
@given(graphs())
def test_every_table_is_what_a_simpler_algorithm_says(graph: Graph) -> None:
    enterprise = graph.directory()
    model = graph.least_costs()
    sites = enterprise.sites
    sites_graph = SiteGraph(enterprise)
    for here in range(graph.sites):
        table = build_table(sites_graph, guid(f"gate-site-{here}"))
        reached = [there for there in range(graph.sites) if there != here and model[here][there] != float("inf")]
        assert [row.destination_site for row in table.rows] == [sites[there] for there in reached]
        for row, there in zip(table.rows, reached, strict=True):
            assert row.cost == model[here][there]
            edges = {
                end: min(cost for one, other, cost in graph.links if {one, other} == {here, end})
                for link_ends in graph.links
                if here in link_ends[:2]
                for end in {*link_ends[:2]} - {here}
            }
            firsts = [end for end, cost in edges.items() if cost + model[end][there] == model[here][there]]
            assert row.next_hop_site is min((sites[end] for end in firsts), key=lambda site: site.identifier)
            assert row.link_cost == edges[sites.index(row.next_hop_site)]
