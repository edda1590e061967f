"""A snapshot of the directory: what each name finds, and who belongs to whom, [MS-MQDMPR] 3.1.1."""

from __future__ import annotations

import pytest
from hypothesis import given

from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.errors import DirectoryError
from tests.enterprises import Graph, client, directory, enterprises, guid, link, queue, server, site

ENTERPRISE = directory(
    site("london"),
    site("paris"),
    link("london", "paris", 3, "gate alpha gone"),
    server("gate", "london", address="127.0.0.2"),
    client("alpha", "london gone", inward="gate gone", outward="gone gate", address="Alpha.example"),
    client("beta", "paris"),
    queue(r"alpha\orders"),
    queue(r"beta\orders"),
)


def test_everything_is_found_by_its_names() -> None:
    gate, alpha, _ = ENTERPRISE.managers
    assert ENTERPRISE.manager(guid("gate")) is gate
    assert ENTERPRISE.manager_named("GATE") is gate
    assert ENTERPRISE.manager_at("127.0.0.2") is gate
    assert ENTERPRISE.manager_at("alpha.EXAMPLE") is alpha
    assert ENTERPRISE.site(guid("paris")) is ENTERPRISE.sites[1]
    assert ENTERPRISE.site_named("Paris") is ENTERPRISE.sites[1]
    assert ENTERPRISE.site_number(guid("paris")) == 1
    orders = ENTERPRISE.queues[0]
    assert ENTERPRISE.queue(orders.identifier) is orders


def test_what_is_not_there_is_none() -> None:
    assert ENTERPRISE.manager(guid("london")) is None
    assert ENTERPRISE.manager_named("gamma") is None
    assert ENTERPRISE.manager_at("127.0.0.3") is None
    assert ENTERPRISE.site(guid("alpha")) is None
    assert ENTERPRISE.site_named("rome") is None
    assert ENTERPRISE.queue(guid("alpha")) is None


def test_a_host_is_an_address_or_else_the_name() -> None:
    assert [each.host for each in ENTERPRISE.managers] == ["127.0.0.2", "Alpha.example", "beta"]


@pytest.mark.spec("DM-3.1.1.1-09", "DM-3.1.1.1-10", "DM-3.1.1.8-02", "DM-3.1.1.8-03")
def test_collections_hold_what_the_identifier_lists_say() -> None:
    gate, alpha, _ = ENTERPRISE.managers
    london, paris = ENTERPRISE.sites
    (joined,) = ENTERPRISE.links
    assert ENTERPRISE.site_collection(alpha) == (london,)
    assert ENTERPRISE.in_routing_server_collection(alpha) == (gate,)
    assert ENTERPRISE.out_routing_server_collection(alpha) == (gate,)
    assert ENTERPRISE.link_sites(joined) == (london, paris)
    assert ENTERPRISE.link_gate_collection(joined) == (gate, alpha)


@pytest.mark.spec("DM-3.1.1.1-09", "DM-3.1.1.1-10", "DM-3.1.1.8-02", "DM-3.1.1.8-03")
@given(enterprises(sites_each=3))
def test_whatever_is_in_a_collection_is_in_its_identifier_list(made: tuple[Graph, Directory]) -> None:
    _, found = made
    for manager in found.managers:
        sites = [each.identifier for each in found.site_collection(manager)]
        inward = [each.identifier for each in found.in_routing_server_collection(manager)]
        outward = [each.identifier for each in found.out_routing_server_collection(manager)]
        assert sites == list(manager.site_identifier_list)
        assert inward == list(manager.in_routing_server_identifier_list)
        assert outward == list(manager.out_routing_server_identifier_list)
    for each in found.links:
        assert [site.identifier for site in found.link_sites(each)] == [each.site1_identifier, each.site2_identifier]
        gates = [gate.identifier for gate in found.link_gate_collection(each)]
        assert gates == list(each.site_gate_identifier_list)


@pytest.mark.spec("DM-3.1.1.7-01")
def test_two_sites_cannot_have_one_name() -> None:
    with pytest.raises(DirectoryError, match="two sites of the directory have the same name"):
        directory(site("A"), site("a"))


@pytest.mark.spec("DM-3.1.1.8-02")
def test_a_link_must_lead_to_sites_that_are_there() -> None:
    with pytest.raises(DirectoryError, match=f"{guid('B')} is not a site of the directory"):
        directory(site("A"), link("A", "B"))


@pytest.mark.spec("DM-3.1.1.8-01", "BR-3.1.1.1-01")
@pytest.mark.parametrize("cost", [-1, 0, 1_000_000])
def test_the_cost_of_a_link_is_from_1_to_999999(cost: int) -> None:
    assert [link("A", "B", good).actual_cost for good in (1, 999_999)] == [1, 999_999]
    with pytest.raises(DirectoryError, match=f"must be from 1 to 999999, got {cost}"):
        link("A", "B", cost)


# Site gates


def gate_names(found: Directory, name: str) -> list[str]:
    return [each.computer_name for each in found.site_gate_collection(guid(name))]


@pytest.mark.spec("BR-3.1.1.1-02")
def test_gates_are_what_links_name_in_their_order_then_the_sites_own_list() -> None:
    found = directory(
        site("A", "own a2"),
        site("B"),
        site("C"),
        link("A", "B", 1, "b a2"),
        link("C", "A", 1, "a1 a2"),
        *(server(name, "A") for name in ("own", "a1", "a2", "unnamed")),
        server("b", "B"),
    )
    assert gate_names(found, "A") == ["a2", "a1", "own"]
    assert gate_names(found, "B") == ["b"]
    assert gate_names(found, "C") == []
    assert gate_names(found, "nowhere") == []


def test_only_routing_servers_that_belong_to_a_site_are_its_gates() -> None:
    found = directory(site("A", "stranger client both gone"), site("B"), server("stranger", "B"), client("client", "A"))
    assert gate_names(found, "A") == []
    found = directory(site("A", "both"), site("B", "both"), server("both", "B A"))
    assert gate_names(found, "A") == gate_names(found, "B") == ["both"]


def test_a_directory_cannot_be_changed() -> None:
    manager: QueueManager = ENTERPRISE.managers[0]
    with pytest.raises(AttributeError):
        manager.routing_server = False  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ENTERPRISE.anything = 1  # type: ignore[attr-defined]
