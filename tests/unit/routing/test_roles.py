"""Who is a routing server or a site gate for whom, [MS-MQBR] 3.1.5.4 to 3.1.5.8."""

from __future__ import annotations

import pytest

from postroad.directory.objects import (
    AttributeFilter,
    Comparison,
    ObjectSource,
    QueueManager,
    get_directory_data,
)
from postroad.directory.snapshot import Directory
from postroad.routing.table import (
    get_queue_manager,
    get_routing_server,
    get_site_gates,
    get_site_gates_for_site,
    is_site_gate,
)
from tests.enterprises import client, directory, guid, link, server, site

NOBODY = guid("nobody")


def names(managers: tuple[QueueManager, ...]) -> list[str]:
    return [each.computer_name for each in managers]


def server_name(enterprise: Directory, machine: str) -> str | None:
    found = get_routing_server(enterprise, guid(machine))
    return None if found is None else found.computer_name


# GetQueueManager


@pytest.mark.spec("BR-3.1.5.4-01", "BR-3.1.5.4-02")
def test_a_queue_manager_is_what_a_read_by_its_identifier_gives_first() -> None:
    alpha, beta = client("alpha", "A"), client("beta", "A")
    again = QueueManager(identifier=alpha.identifier, computer_name="again")
    source = ObjectSource([alpha, beta, again])
    for identifier in (alpha.identifier, beta.identifier):
        filters = [AttributeFilter("Identifier", Comparison.EQUALS, str(identifier))]
        read = get_directory_data(source, QueueManager, filters)
        assert get_queue_manager(Directory.read(source), identifier) is read[0]
    assert len(get_directory_data(source, QueueManager)) == 3
    assert get_queue_manager(Directory.read(source), NOBODY) is None


# GetRoutingServer


@pytest.mark.spec("BR-3.1.5.5-01")
def test_nobody_has_no_routing_server_and_an_empty_directory_none_for_anybody() -> None:
    assert get_routing_server(directory(site("A"), server("r", "A")), NOBODY) is None
    assert get_routing_server(Directory(), NOBODY) is None


@pytest.mark.spec("BR-3.1.5.5-02")
def test_the_first_routing_server_with_a_common_site_is_chosen() -> None:
    enterprise = directory(
        site("A"),
        site("B"),
        client("no-router", "A"),
        server("far", "B"),
        server("first", "A"),
        server("second", "A"),
        client("alpha", "A"),
        client("both", "A B"),
    )
    assert server_name(enterprise, "alpha") == "first"
    assert server_name(enterprise, "both") == "far"


@pytest.mark.spec("BR-3.1.5.5-03")
def test_routing_servers_of_other_sites_are_never_chosen() -> None:
    enterprise = directory(site("A"), site("B"), server("far", "B"), client("near", "A"), client("alpha", "A"))
    assert server_name(enterprise, "alpha") is None


# GetSiteGate


@pytest.mark.spec("BR-3.1.5.6-01")
def test_nobody_has_no_site_gate() -> None:
    enterprise = directory(site("A", "g"), server("g", "A"))
    assert get_site_gates(enterprise, NOBODY) == ()
    assert get_site_gates(Directory(), guid("g")) == ()
    assert get_site_gates(directory(server("g", "A")), guid("g")) == ()


@pytest.mark.spec("BR-3.1.5.6-02")
def test_the_gates_are_those_of_the_machines_first_site_in_the_directorys_order() -> None:
    enterprise = directory(
        site("B", "g3"),
        site("A", "g1 g2"),
        *(server(name, "A") for name in ("g1", "g2")),
        server("g3", "B"),
        client("alpha", "A"),
        client("both", "A B"),
    )
    assert names(get_site_gates(enterprise, guid("alpha"))) == ["g1", "g2"]
    assert names(get_site_gates(enterprise, guid("both"))) == ["g3"]


@pytest.mark.spec("BR-3.1.5.6-03")
def test_the_search_ends_at_the_first_site_though_it_has_no_gate() -> None:
    enterprise = directory(site("A"), site("B", "g"), server("g", "B"), client("both", "B A"))
    assert get_site_gates(enterprise, guid("both")) == ()


# GetSiteGateForSite


@pytest.mark.spec("BR-3.1.5.7-01", "BR-3.1.5.7-02")
def test_the_gates_of_a_site() -> None:
    enterprise = directory(site("A", "g1 g2"), site("B"), server("g1", "A"), server("g2", "A"))
    assert names(get_site_gates_for_site(enterprise, guid("A"))) == ["g1", "g2"]
    assert get_site_gates_for_site(enterprise, guid("B")) == ()
    assert get_site_gates_for_site(enterprise, guid("nowhere")) == ()


# IsSiteGate


@pytest.mark.spec("BR-3.1.5.8-01", "BR-3.1.5.8-03")
def test_who_is_not_in_the_directory_is_no_gate_and_without_sites_nobody_is() -> None:
    assert not is_site_gate(directory(site("A", "nobody")), NOBODY)
    assert not is_site_gate(directory(server("g", "A")), guid("g"))


@pytest.mark.spec("BR-3.1.5.8-02")
def test_a_gate_must_be_a_routing_server() -> None:
    assert not is_site_gate(directory(site("A", "g"), client("g", "A")), guid("g"))
    assert is_site_gate(directory(site("A", "g"), server("g", "A")), guid("g"))


@pytest.mark.spec("BR-3.1.5.8-04")
def test_a_gate_of_any_of_its_sites_is_one() -> None:
    assert is_site_gate(directory(site("A"), site("B", "g"), server("g", "A B")), guid("g"))


@pytest.mark.spec("BR-1.5-02", "BR-3.1.5.8-05")
def test_a_gate_must_belong_to_the_site_it_is_gate_of() -> None:
    enterprise = directory(site("A", "other"), site("B", "g"), server("g", "A"), server("other", "A"))
    assert not is_site_gate(enterprise, guid("g"))
    assert get_site_gates_for_site(enterprise, guid("B")) == ()


@pytest.mark.spec("BR-3.1.1.1-02")
def test_the_gates_of_links_are_gates_of_the_sites_they_belong_to() -> None:
    enterprise = directory(
        site("A"), site("B"), link("A", "B", 1, "a b"), server("a", "A"), server("b", "B"), server("c", "B")
    )
    assert [name for name in ("a", "b", "c") if is_site_gate(enterprise, guid(name))] == ["a", "b"]
    assert names(get_site_gates(enterprise, guid("c"))) == ["b"]
    assert names(get_site_gates_for_site(enterprise, guid("A"))) == ["a"]
