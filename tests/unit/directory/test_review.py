"""What the review says about an enterprise that cannot work as described, [MS-MQBR] 1.5."""

from __future__ import annotations

import pytest
from hypothesis import given

from postroad.directory.review import review
from postroad.directory.snapshot import Directory
from tests.enterprises import Graph, client, directory, enterprises, gated, guid, link, server, site


@given(enterprises())
def test_of_a_sound_enterprise_there_is_nothing_to_tell(made: tuple[Graph, Directory]) -> None:
    assert review(made[1]) == ()


def test_a_single_site_needs_no_gate() -> None:
    assert review(directory(site("A"), client("alpha", "A"))) == ()
    assert review(Directory()) == ()


@pytest.mark.spec("BR-1.5-01")
def test_each_of_several_sites_needs_a_gate() -> None:
    found = directory(site("A", "a"), site("B"), link("A", "B"), server("a", "A"), server("b", "B"))
    assert review(found) == ("the site B has no site gate, so it cannot exchange messages with other sites",)


@pytest.mark.spec("BR-1.5-02")
def test_a_gate_belongs_to_its_site_and_is_a_routing_server() -> None:
    found = directory(
        site("A", "a b client"),
        site("B", "b"),
        link("A", "B", 1, "a b c gone"),
        server("a", "A"),
        server("b", "B"),
        client("client", "A"),
        client("c", "C"),
    )
    assert review(found) == (
        "the gate b of the site A must belong to the site, but does not, so it is ignored",
        "the gate client of the site A must be a routing server, but is not, so it is ignored",
        "the gate c of the routing link of A and B must belong to the site, but does not, so it is ignored",
        "the gate c of the routing link of A and B must be a routing server, but is not, so it is ignored",
        f"the gate {guid('gone')} of the routing link of A and B is not in the directory, so it is ignored",
    )


def test_sites_that_nothing_joins_are_told() -> None:
    assert review(gated("A B C D", [("A", "B", 1), ("C", "D", 1)])) == (
        "no routing link, and no gate of two sites, joins the site C to A",
        "no routing link, and no gate of two sites, joins the site D to A",
    )
    assert review(directory(site("A", "both"), site("B", "both"), server("both", "A B"))) == ()


def test_in_and_out_routing_servers_are_routing_servers_nearby() -> None:
    found = directory(
        site("A", "a"),
        site("B", "b"),
        link("A", "B"),
        server("a", "A"),
        server("b", "B"),
        client("alpha", "A", inward="beta", outward="b a"),
        client("beta", "A", outward="beta"),
    )
    assert review(found) == (
        "beta must be a routing server, because it is an in-routing server of alpha",
        "b must be in a site of alpha, because it is its out-routing server",
        "the out-routing servers of beta must be other queue managers, got itself",
    )


def test_an_address_is_of_one_queue_manager() -> None:
    found = directory(site("A"), client("alpha", "A", address="10.0.0.1"), client("beta", "A", address="10.0.0.1"))
    assert review(found) == ("beta has the address 10.0.0.1 of alpha",)
