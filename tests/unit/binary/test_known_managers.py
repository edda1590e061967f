"""What the directory says about hosts and managers, [MS-MQBR] 1.3: who is where, who routes, and for whom we
forward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.binary.neighbours import Hop
from postroad.binary.next_hops import KnownManagers, resolver
from postroad.directory.snapshot import Directory
from postroad.names import parse_format_name
from postroad.routing import Router
from tests.enterprises import client, directory, guid, link, queue, server, site

ORDERS = r"beta\orders"
OBJECTS = (
    site("london", gates="lon-gate"),
    site("paris", gates="par-gate"),
    site("island"),
    link("london", "paris"),
    server("lon-gate", "london", address="10.0.0.2"),
    server("par-gate", "paris"),
    client("alpha", "london", outward="lon-out", address="10.0.0.4"),
    client("beta", "paris", inward="par-in", address="10.0.0.9"),
    client("hermit", "island"),
    client("lon-out", "london"),
    client("par-in", "paris"),
    queue(ORDERS),
)
ENTERPRISE = directory(*OBJECTS)
STRANGER = guid("stranger")


def known(manager: str, enterprise: Directory = ENTERPRISE) -> KnownManagers:
    router = Router(guid(manager), enterprise, 0.0)
    return KnownManagers(lambda: router, guid(manager))


def nobody(host: str) -> bool:
    return False


def private(manager: str) -> str:
    return f"PRIVATE={guid(manager)}\\8"


def forwards(manager: str, source: str, name: str, *, trusted: bool = False) -> bool:
    return known(manager).forwards(guid(source), parse_format_name(name), nobody, trusted=trusted)


def test_a_manager_is_at_its_address_or_else_at_its_name() -> None:
    view = known("alpha")
    found = [view.hosts_of(manager) for manager in (guid("beta"), guid("hermit"), STRANGER)]
    assert found == [("10.0.0.9",), ("hermit",), ()]


def test_a_host_is_known_by_name_and_by_address() -> None:
    view = known("alpha")
    assert [view.knows(host) for host in ("beta", "10.0.0.9", "10.0.0.99", "stranger")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("host", "routes"),
    [
        ("lon-gate", True),
        ("10.0.0.2", True),
        ("lon-out", True),  # somebody's out-routing server
        ("par-in", True),  # somebody's in-routing server
        ("beta", False),
        ("stranger", False),
    ],
)
def test_routing_servers_and_those_that_serve_a_client_pass_messages_on(host: str, routes: bool) -> None:
    assert known("alpha").routes(host) is routes


def test_who_passes_messages_on_changes_with_the_directory() -> None:
    routers = [
        Router(guid("alpha"), ENTERPRISE, 0.0),
        Router(guid("alpha"), directory(*(each for each in OBJECTS if each.identifier != guid("beta"))), 0.0),
    ]
    view = KnownManagers(lambda: routers[0], guid("alpha"))
    assert view.routes("par-in")
    routers.pop(0)
    assert not view.routes("par-in")


def test_a_routing_server_forwards_where_it_has_a_route() -> None:
    assert forwards("lon-gate", "alpha", private("beta"))
    assert forwards("lon-gate", "stranger", f"PUBLIC={guid(ORDERS)}")
    assert not forwards("lon-gate", "alpha", private("hermit"))


def test_a_routing_server_forwards_to_the_unknown_for_trusted_senders_only() -> None:
    for name in (private("stranger"), f"PUBLIC={guid('no queue')}", r"DIRECT=OS:elsewhere\private$\orders"):
        assert not forwards("lon-gate", "alpha", name)
        assert forwards("lon-gate", "alpha", name, trusted=True)


def test_an_out_routing_server_forwards_for_the_client_that_it_serves() -> None:
    assert forwards("lon-out", "alpha", private("beta"))
    assert not forwards("lon-out", "beta", private("alpha"))
    assert not forwards("lon-out", "stranger", private("beta"), trusted=True)


def test_an_in_routing_server_forwards_to_the_client_that_it_serves() -> None:
    assert forwards("par-in", "alpha", private("beta"))
    assert not forwards("par-in", "beta", private("alpha"))


def test_a_client_and_a_manager_outside_the_directory_forward_nothing() -> None:
    assert not forwards("alpha", "beta", private("lon-gate"), trusted=True)
    assert not forwards("stranger", "beta", private("lon-gate"), trusted=True)


def test_a_destination_that_the_owner_allows_is_forwarded_to_by_any_manager() -> None:
    view, name = known("alpha"), parse_format_name(private("beta"))
    assert view.forwards(STRANGER, name, lambda host: host == "10.0.0.9", trusted=False)
    assert not view.forwards(STRANGER, name, lambda host: host == "10.0.0.4", trusted=False)


def test_acknowledgments_follow_a_manager_to_its_other_addresses() -> None:
    moving = replace(client("mover", "london", address="10.0.0.7"), other_addresses=("10.1.0.7",))
    router = Router(guid("alpha"), directory(*OBJECTS, moving), 0.0)
    resolve = resolver(lambda: router)

    def hops(name: str) -> list[Hop]:
        return resolve(parse_format_name(f"DIRECT={name}"))

    assert hops(r"TCP:10.0.0.7\private$\order_queue$") == [Hop("10.0.0.7", others=("10.1.0.7",))]
    assert hops(r"TCP:10.1.0.7\private$\order_queue$") == [Hop("10.1.0.7", others=("10.0.0.7",))]
    assert hops(r"OS:mover\private$\orders") == [Hop("10.0.0.7", others=("10.1.0.7",))]
    assert hops(r"TCP:10.0.0.7\private$\orders") == [Hop("10.0.0.7")]  # an address means itself
    assert hops(r"TCP:10.0.0.4\private$\order_queue$") == [Hop("10.0.0.4")]
    assert (router.directory.first_address("10.1.0.7"), router.directory.first_address("10.9.9.9")) == (
        "10.0.0.7",
        "10.9.9.9",
    )
