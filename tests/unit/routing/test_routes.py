"""Whole routes, decided hop by hop as each queue manager does: the examples of section 4, faults, and sound
enterprises."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given

from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.errors import ManagerNotFound, NoRoute
from postroad.reports.plain import to_json
from postroad.routing import Routes
from postroad.routing.table import is_site_gate
from tests.enterprises import Graph, client, directory, enterprises, gated, guid, link, server, site


def path(enterprise: Directory, source: str, destination: str) -> tuple[list[str], int]:
    route = Routes(enterprise).route(source, destination)
    return list(route.path), route.cost


@pytest.mark.spec("BR-4-01")
def test_the_first_example() -> None:
    enterprise = gated("A B C D", [("A", "B", 3), ("B", "C", 1), ("B", "D", 1), ("C", "D", 1)])
    assert path(enterprise, "gate-A", "gate-C") == (["gate-A", "gate-B", "gate-C"], 4)


@pytest.mark.spec("BR-4-02")
def test_the_second_example() -> None:
    enterprise = gated("A B C D", [("A", "B", 3), ("B", "C", 3), ("C", "D", 1), ("B", "D", 1)])
    assert path(enterprise, "gate-A", "gate-C") == (["gate-A", "gate-B", "gate-D", "gate-C"], 5)


def test_a_way_with_every_part() -> None:
    """Figure 3: a client, its out-routing server, two gates, an in-routing server, a client."""
    enterprise = directory(
        site("A", "gate-a"),
        site("B", "gate-b1 gate-b2"),
        link("A", "B", 7),
        client("alpha", "A", outward="out"),
        server("out", "A"),
        server("gate-a", "A"),
        server("gate-b1", "B"),
        server("gate-b2", "B"),
        server("in", "B"),
        client("beta", "B", inward="in"),
    )
    route = Routes(enterprise).route("ALPHA", "Beta")
    assert json.loads(json.dumps(to_json(route))) == {
        "from": "alpha",
        "to": "beta",
        "next_hops": ["out"],
        "fallback": [],
        "path": ["alpha", "out", "gate-a", "gate-b1", "in", "beta"],
        "cost": 7,
        "why": "alpha sends everything through its out-routing servers ([MS-MQBR] 3.1.5.1)",
    }
    assert Routes(enterprise).route("gate-a", "beta").next_hops == ("gate-b1", "gate-b2")


def test_within_a_site_the_way_costs_nothing() -> None:
    enterprise = directory(site("A"), client("alpha", "A"), client("beta", "A"), server("router", "A"))
    route = Routes(enterprise).route("alpha", "beta")
    assert (route.path, route.cost, route.fallback) == (("alpha", "beta"), 0, ("router",))
    assert path(enterprise, "alpha", "alpha") == (["alpha"], 0)


@pytest.mark.parametrize(
    ("source", "destination", "sentence"),
    [
        ("alpha", "betta", "there is no queue manager betta in the directory; did you mean beta?"),
        ("omega-9", "beta", "there is no queue manager omega-9 in the directory"),
    ],
)
def test_an_unknown_name(source: str, destination: str, sentence: str) -> None:
    with pytest.raises(ManagerNotFound) as caught:
        Routes(directory(site("A"), client("alpha", "A"), client("beta", "A"))).route(source, destination)
    assert str(caught.value) == sentence


def test_an_empty_directory_says_so() -> None:
    with pytest.raises(ManagerNotFound, match=r"the directory is empty: set directory\.file"):
        Routes(Directory()).route("alpha", "beta")


def test_a_way_that_ends_says_where() -> None:
    enterprise = directory(
        site("A"), site("B"), client("alpha", "A"), server("router", "A"), client("beta", "B"), server("b", "B")
    )
    with pytest.raises(NoRoute) as caught:
        Routes(enterprise).route("alpha", "beta")
    assert str(caught.value) == (
        "the route alpha -> router ends there: router has no route to beta: the site A has no site gate "
        "([MS-MQBR] 3.1.5.2, 3.1.5.6)"
    )


def test_a_way_that_goes_round_says_so() -> None:
    enterprise = directory(
        site("A"), client("alpha", "A", outward="beta"), client("beta", "A", outward="alpha"), client("gamma", "A")
    )
    with pytest.raises(NoRoute, match=r"^the route alpha -> beta -> alpha is a loop and never reaches gamma$"):
        Routes(enterprise).route("alpha", "gamma")


def all_ways(enterprise: Directory, source: QueueManager, destination: QueueManager) -> list[list[QueueManager]]:
    """Every route that a message can take: at each queue manager, each hop of its list."""
    routes = Routes(enterprise)
    complete, waiting = [], [[source]]
    while waiting:
        way = waiting.pop()
        if way[-1] is destination:
            complete.append(way)
            continue
        answer = routes.next_hops(way[-1], destination)
        assert answer.hops
        for hop in (*answer.hops, *answer.fallback):
            assert hop not in way, "a message goes round"
            waiting.append([*way, hop])
    return complete


@pytest.mark.spec("BR-3.1-01", "BR-3.1.5.1-01")
@given(enterprises())
def test_every_way_leads_there_and_crosses_borders_from_gate_to_gate(made: tuple[Graph, Directory]) -> None:
    graph, enterprise = made
    model = graph.least_costs()
    places = {guid(f"site-{number}"): number for number in range(graph.sites)}
    routes = Routes(enterprise)
    for source in enterprise.managers:
        for destination in enterprise.managers[:3]:
            for way in all_ways(enterprise, source, destination):
                crossings = 0.0
                for here, there in pairwise(way):
                    (one,), (other,) = here.site_identifier_list, there.site_identifier_list
                    if one != other:
                        assert is_site_gate(enterprise, here.identifier)
                        assert is_site_gate(enterprise, there.identifier)
                        crossings += model[places[one]][places[other]]
                (start,), (end,) = source.site_identifier_list, destination.site_identifier_list
                assert crossings == model[places[start]][places[end]]
            route = routes.route(source.computer_name, destination.computer_name)
            assert (
                route.cost == model[places[source.site_identifier_list[0]]][places[destination.site_identifier_list[0]]]
            )


@given(enterprises(sites_each=3))
def test_in_several_sites_too_every_way_leads_there(made: tuple[Graph, Directory]) -> None:
    _, enterprise = made
    for source in enterprise.managers:
        for destination in enterprise.managers[:3]:
            assert all_ways(enterprise, source, destination)
