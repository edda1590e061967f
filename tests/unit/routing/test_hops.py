"""GetNextHops and its two helpers, [MS-MQBR] 3.1.5.1 to 3.1.5.3, branch by branch."""

from __future__ import annotations

import ast
from inspect import signature
from pathlib import Path

import pytest

import postroad.routing
from postroad.directory.objects import QueueManager, RoutingLink, Site
from postroad.directory.snapshot import Directory
from postroad.errors import NoRoute
from postroad.routing import Router, RoutingTable, get_next_hops
from tests.enterprises import client, directory, gated, guid, hop_names, hops, link, server, site

TWO_SITES: tuple[Site | RoutingLink | QueueManager, ...] = (site("A", "gate-a"), site("B", "gate-b"), link("A", "B", 7))
TWO_GATES = (server("gate-a", "A"), server("gate-b", "B"))


def enterprise(*managers: QueueManager) -> Directory:
    """Sites A and B with a gate each, and these managers, which come first in the directory."""
    return directory(*TWO_SITES, *managers, *TWO_GATES)


# 3.1.5.1


@pytest.mark.spec("BR-3.1.5.1-01")
def test_the_answer_is_a_list_of_queue_managers_for_one_hop() -> None:
    found = enterprise(client("alpha", "A"), client("beta", "B"))
    assert hop_names(found, "alpha", "beta") == ["gate-a"]
    assert hop_names(found, "gate-a", "beta") == ["gate-b"]
    assert hop_names(found, "gate-b", "beta") == ["beta"]
    assert [each.identifier for each in hops(found, "gate-b", "beta").hops] == [guid("beta")]


@pytest.mark.spec("BR-3.1.5.1-02")
@pytest.mark.parametrize(("source", "destination"), [("alpha", "nobody"), ("nobody", "alpha"), ("nobody", "nobody")])
def test_who_is_not_in_the_directory_cannot_be_routed(source: str, destination: str) -> None:
    found = enterprise(client("alpha", "A"))
    with pytest.raises(NoRoute, match=f"{guid('nobody')} is not in the directory"):
        get_next_hops(found, RoutingTable(), guid(source), guid(destination))


@pytest.mark.spec("BR-3.1.5.1-03")
def test_a_routing_server_ignores_its_own_out_routing_servers() -> None:
    found = enterprise(server("router", "A", outward="gate-b"), client("alpha", "A"), client("beta", "B"))
    assert hop_names(found, "router", "alpha") == ["alpha"]
    assert hop_names(found, "router", "beta") == ["gate-a"]


@pytest.mark.spec("BR-3.1.5.1-04", "BR-1.3-01")
@pytest.mark.parametrize("destination", ["near", "served", "far"])
def test_a_client_sends_everything_through_its_out_routing_servers(destination: str) -> None:
    found = enterprise(
        client("alpha", "A", outward="r1 r2"),
        server("r1", "A"),
        server("r2", "A"),
        client("near", "A"),
        client("served", "A", inward="gate-a"),
        client("far", "B"),
    )
    assert hop_names(found, "alpha", destination) == ["r1", "r2"]


@pytest.mark.spec("BR-3.1.5.1-05", "BR-1.3-01")
def test_within_a_site_a_client_sends_to_the_in_routing_servers() -> None:
    found = enterprise(client("alpha", "A"), client("beta", "A", inward="i1 i2"), server("i1", "A"), server("i2", "A"))
    assert hop_names(found, "alpha", "beta") == ["i1", "i2"]


@pytest.mark.spec("BR-3.1.5.1-06", "BR-1.3.1-01", "BR-1.3-01")
def test_within_a_site_a_client_sends_straight_to_the_destination() -> None:
    assert hop_names(enterprise(client("alpha", "A"), client("beta", "A")), "alpha", "beta") == ["beta"]


@pytest.mark.spec("BR-3.1.5.1-07")
def test_to_another_site_a_client_sends_to_the_first_routing_server_of_its_own() -> None:
    found = enterprise(
        client("alpha", "A"),
        server("far", "B"),
        server("r1", "A"),
        server("r2", "A"),
        client("beta", "B", inward="far"),
    )
    assert hop_names(found, "alpha", "beta") == ["r1"]


@pytest.mark.spec("BR-3.1.5.1-08", "BR-3.1.5.1-10")
def test_without_a_routing_server_a_client_has_no_route_to_another_site() -> None:
    found = directory(site("A"), site("B", "gate-b"), client("alpha", "A"), client("beta", "B"), server("gate-b", "B"))
    with pytest.raises(NoRoute, match=r"^alpha has no route to beta: .* A has no routing server \(\[MS-MQBR\] 3.1.5.1"):
        hops(found, "alpha", "beta")


@pytest.mark.spec("BR-3.1.5.1-09")
def test_one_common_site_is_enough() -> None:
    found = directory(
        *(site(name) for name in ("A", "B", "C")),
        client("alpha", "A B"),
        client("beta", "C B"),
        client("gamma", "C"),
        server("router", "A"),
    )
    assert hop_names(found, "alpha", "beta") == ["beta"]
    assert hop_names(found, "alpha", "gamma") == ["router"]


@pytest.mark.spec("QB-3.1.7.5-02", "QB-3.1.7.5-03")
def test_servers_that_are_not_in_the_directory_are_left_out() -> None:
    found = enterprise(
        client("alpha", "A", outward="gone gate-a"),
        client("beta", "A", outward="gone"),
        client("gamma", "A", inward="gone"),
        client("delta", "A"),
    )
    assert hop_names(found, "alpha", "beta") == ["gate-a"]
    with pytest.raises(NoRoute, match="out-routing servers, but none of these is in the directory"):
        hops(found, "beta", "alpha")
    with pytest.raises(NoRoute, match="in-routing servers, but none of these is in the directory"):
        hops(found, "delta", "gamma")


def test_nobody_is_its_own_out_routing_server() -> None:
    found = enterprise(client("alpha", "A", outward="alpha gate-a"), client("beta", "A"))
    assert hop_names(found, "alpha", "beta") == ["gate-a"]


def test_to_itself_nothing_is_routed() -> None:
    found = enterprise(client("alpha", "A", outward="gate-a"))
    assert hop_names(found, "alpha", "alpha") == ["alpha"]


# 3.1.5.2


@pytest.mark.spec("BR-3.1.5.2-01")
def test_a_gate_decides_as_a_gate() -> None:
    found = enterprise(server("router", "A"), client("beta", "B"))
    assert hop_names(found, "gate-a", "beta") == ["gate-b"]
    assert hop_names(found, "router", "beta") == ["gate-a"]


@pytest.mark.spec("BR-3.1.5.2-02")
@pytest.mark.parametrize("where", ["A", "B"])
def test_a_routing_server_delivers_to_whom_it_serves_wherever_it_is(where: str) -> None:
    found = enterprise(server("router", where), server("other", "B"), client("beta", "B", inward="other router"))
    assert hop_names(found, "router", "beta") == ["beta"]


@pytest.mark.spec("BR-3.1.5.2-03")
def test_within_a_site_a_routing_server_sends_to_the_in_routing_servers() -> None:
    found = enterprise(server("router", "A"), client("beta", "A", inward="i1 i2"), server("i1", "A"), server("i2", "A"))
    assert hop_names(found, "router", "beta") == ["i1", "i2"]


@pytest.mark.spec("BR-3.1.5.2-04")
def test_within_a_site_a_routing_server_sends_straight_to_the_destination() -> None:
    assert hop_names(enterprise(server("router", "A"), client("beta", "A")), "router", "beta") == ["beta"]


@pytest.mark.spec("BR-3.1.5.2-05")
def test_to_another_site_a_routing_server_sends_to_the_gates_of_its_own() -> None:
    found = directory(
        site("A", "g1 g2"),
        site("B", "gate-b"),
        *(server(name, "A") for name in ("router", "g1", "g2")),
        client("beta", "B", inward="gate-b"),
        server("gate-b", "B"),
    )
    assert hop_names(found, "router", "beta") == ["g1", "g2"]


@pytest.mark.spec("BR-3.1.5.2-06", "BR-3.1.5.1-10")
def test_without_a_gate_a_routing_server_has_no_route_to_another_site() -> None:
    found = directory(site("A"), site("B"), link("A", "B"), server("router", "A"), client("beta", "B"))
    with pytest.raises(NoRoute, match=r"the site A has no site gate \(\[MS-MQBR\] 3.1.5.2, 3.1.5.6\)"):
        hops(found, "router", "beta")


# 3.1.5.3


@pytest.mark.spec("BR-3.1.5.3-01")
def test_a_gate_delivers_to_whom_it_serves_wherever_it_is() -> None:
    found = enterprise(client("beta", "B", inward="gate-b gate-a"))
    assert hop_names(found, "gate-b", "beta") == ["beta"]
    assert hop_names(found, "gate-a", "beta") == ["beta"]


@pytest.mark.spec("BR-3.1.5.3-02")
def test_within_a_site_a_gate_sends_to_the_in_routing_servers() -> None:
    found = enterprise(client("beta", "B", inward="i1 i2"), server("i1", "B"), server("i2", "B"))
    assert hop_names(found, "gate-b", "beta") == ["i1", "i2"]


@pytest.mark.spec("BR-3.1.5.3-03")
def test_within_a_site_a_gate_sends_straight_to_the_destination() -> None:
    assert hop_names(enterprise(client("beta", "B")), "gate-b", "beta") == ["beta"]


@pytest.mark.spec("BR-3.1.5.3-04", "BR-3.1.5.3-06")
def test_to_another_site_a_gate_sends_to_the_gates_of_the_next() -> None:
    found = gated("A B C", [("A", "B", 2), ("B", "C", 3)])
    answer = hops(found, "gate-A", "gate-C")
    assert [each.computer_name for each in answer.hops] == ["gate-B"]
    assert answer.link_cost == 2
    assert answer.why == "the cheapest route to the site C costs 5 and goes through the gates of B ([MS-MQBR] 3.1.5.3)"


@pytest.mark.spec("BR-3.1.5.3-05")
def test_for_a_destination_in_several_sites_the_last_row_wins() -> None:
    links = [("A", "C", 1), ("A", "D", 9)]
    for order, winner in (("A C D", "gate-D"), ("A D C", "gate-C")):
        base = gated(order, links)
        found = Directory(sites=base.sites, links=base.links, managers=[*base.managers, client("both", "C D")])
        assert hop_names(found, "gate-A", "both") == [winner]


@pytest.mark.spec("BR-3.1.5.3-07")
def test_without_a_row_a_gate_has_no_route() -> None:
    found = enterprise(client("beta", "B"))
    with pytest.raises(NoRoute, match=r"^gate-a has no route to beta: no routing link leads to its site, B"):
        get_next_hops(found, RoutingTable(), guid("gate-a"), guid("beta"))
    with pytest.raises(NoRoute, match="leads to its site, B"):
        hops(gated("A B", []), "gate-A", "gate-B")


@pytest.mark.spec("BR-3.1.5.1-10")
def test_a_next_site_without_a_gate_is_no_route() -> None:
    found = directory(
        site("A", "gate-a"), site("B"), site("C", "gate-c"), link("A", "B"), link("B", "C"), *TWO_GATES[:1]
    )
    found = Directory(sites=found.sites, links=found.links, managers=[*found.managers, server("gate-c", "C")])
    with pytest.raises(NoRoute, match="goes through the site B, which has no site gate"):
        hops(found, "gate-a", "gate-c")


@pytest.mark.spec("BR-3.1.5.3-08")
def test_in_routing_servers_of_another_site_are_not_asked_from_here() -> None:
    found = enterprise(client("beta", "B", inward="i1"), server("i1", "B"))
    assert hop_names(found, "gate-a", "beta") == ["gate-b"]
    assert hop_names(found, "gate-b", "beta") == ["i1"]


# What the specification leaves open, or says in other sections


@pytest.mark.spec("BR-1.3.1-01")
@pytest.mark.parametrize(
    ("outward", "inward", "expected"),
    [("", "", "beta"), ("gate-a", "", "gate-a"), ("", "gate-a", "gate-a"), ("gate-a", "router", "gate-a")],
)
def test_a_connection_is_direct_only_without_out_and_in_routing_servers(
    outward: str, inward: str, expected: str
) -> None:
    found = enterprise(client("alpha", "A", outward=outward), client("beta", "A", inward=inward), server("router", "A"))
    assert hop_names(found, "alpha", "beta") == [expected]


@pytest.mark.spec("BR-1.3.2-01")
def test_where_a_direct_connection_fails_a_routing_server_of_the_site_helps() -> None:
    found = enterprise(client("alpha", "A"), client("beta", "A"), server("router", "A"), client("gamma", "B"))
    assert [each.computer_name for each in hops(found, "alpha", "beta").fallback] == ["router"]
    assert hops(found, "alpha", "router").fallback == ()
    assert hops(found, "router", "beta").fallback == ()
    assert hops(found, "alpha", "gamma").fallback == ()


def test_an_in_routing_server_delivers_even_if_it_is_no_routing_server() -> None:
    found = enterprise(client("i1", "A"), client("i2", "A"), client("beta", "A", inward="i1 i2"))
    assert hop_names(found, "i1", "beta") == ["beta"]
    assert hop_names(found, "i2", "beta") == ["beta"]


@pytest.mark.spec("BR-3.1-02")
def test_nobody_is_asked_for_a_priority() -> None:
    assert list(signature(Router.next_hops).parameters) == ["self", "destination_id"]
    assert list(signature(get_next_hops).parameters) == ["directory", "table", "source_id", "destination_id"]


@pytest.mark.spec("BR-2.2-01")
def test_routing_knows_names_and_the_directory_and_makes_no_packets() -> None:
    known = set()
    for file in Path(postroad.routing.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("postroad."):
                known.add(node.module.removeprefix("postroad."))
    rooms = {module.split(".")[0] for module in known}
    assert rooms == {"routing", "directory", "names", "errors", "reports"}
    assert {module for module in known if module.startswith("reports")} == {
        "reports.enterprise"
    }  # which knows no packet


@pytest.mark.parametrize(
    ("source", "destination", "why"),
    [
        ("out", "near", "out sends everything through its out-routing servers ([MS-MQBR] 3.1.5.1)"),
        ("alpha", "near", "near is in the same site (A), so it is the next hop ([MS-MQBR] 3.1.5.1)"),
        (
            "alpha",
            "served",
            "served is in the same site (A) and receives through its in-routing servers ([MS-MQBR] 3.1.5.1)",
        ),
        (
            "alpha",
            "far",
            "far is in another site, and this is the first routing server of this site ([MS-MQBR] 3.1.5.1, 3.1.5.5)",
        ),
        ("router", "near", "near is in the same site (A), so it is the next hop ([MS-MQBR] 3.1.5.2)"),
        ("router", "served", "router is an in-routing server of served, so it delivers ([MS-MQBR] 3.1.5.2)"),
        (
            "router",
            "far",
            "far is in another site, and routing servers send there through site gates ([MS-MQBR] 3.1.5.2, 3.1.5.6)",
        ),
        ("gate-a", "near", "near is in the same site (A), so it is the next hop ([MS-MQBR] 3.1.5.3)"),
        (
            "gate-a",
            "far",
            "the cheapest route to the site B costs 7 and goes directly to the gates of B ([MS-MQBR] 3.1.5.3)",
        ),
        ("near", "near", "near is the destination itself"),
    ],
)
def test_an_answer_says_which_rule_it_follows(source: str, destination: str, why: str) -> None:
    found = enterprise(
        client("alpha", "A"),
        client("out", "A", outward="router"),
        client("near", "A"),
        client("served", "A", inward="router"),
        client("far", "B"),
        server("router", "A"),
    )
    assert hops(found, source, destination).why == why
