"""Get Destination Info and Get Next Hops, [MS-MQQB] 3.1.7.4 and 3.1.7.5: which host to call, and who must answer."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from postroad.binary.next_hops import resolver
from postroad.binary.service import Hop
from postroad.errors import NoRoute
from postroad.names import parse_format_name
from postroad.routing import Router
from postroad.wire.octets import NULL_GUID
from tests.enterprises import client, directory, guid, link, queue, server, site

ENTERPRISE = directory(
    site("london", gates="lon-gate"),
    site("paris", gates="par-gate"),
    link("london", "paris"),
    client("alpha", "london"),
    server("lon-gate", "london", address="10.0.0.2"),
    server("par-gate", "paris"),
    client("beta", "paris", address="10.0.0.9"),
    client("neighbour", "london", address="10.0.0.4"),
    queue(r"neighbour\orders"),
)


def ways(name: str) -> list[Hop]:
    return resolver(lambda: Router(guid("alpha"), ENTERPRISE, 0.0))(parse_format_name(name))


@pytest.mark.spec("QB-3.1.7.4-01")
@pytest.mark.parametrize(
    ("name", "host"),
    [
        (r"DIRECT=TCP:10.9.9.9\private$\orders", "10.9.9.9"),
        (r"DIRECT=TCP:fe80::1\private$\orders", "fe80::1"),
        (r"DIRECT=OS:nobody.example\private$\orders", "nobody.example"),
        (r"DIRECT=OS:beta\private$\orders", "10.0.0.9"),  # the directory says where
    ],
)
def test_a_direct_name_is_its_own_way_and_anybody_may_answer(name: str, host: str) -> None:
    assert ways(name) == [Hop(host, NULL_GUID)]


@pytest.mark.spec("QB-3.1.7.4-03", "QB-2.2.3.1-04")
def test_a_private_name_holds_the_guid_of_its_manager() -> None:
    first, *_ = ways(f"PRIVATE={guid('neighbour')}\\8")
    assert first == Hop("10.0.0.4", guid("neighbour"))


@pytest.mark.spec("QB-3.1.7.4-02")
def test_a_public_queue_is_where_the_directory_has_it() -> None:
    public = guid(r"neighbour\orders")
    first, *_ = ways(f"PUBLIC={public}")
    assert first == Hop("10.0.0.4", guid("neighbour"))
    with pytest.raises(NoRoute):
        ways(f"PUBLIC={guid('no queue')}")


@pytest.mark.spec("QB-3.1.7.5-01")
def test_a_manager_of_another_site_is_reached_over_a_routing_server() -> None:
    first, *_ = ways(f"PRIVATE={guid('beta')}\\8")
    assert first == Hop("10.0.0.2", guid("lon-gate"))


@pytest.mark.spec("QB-3.1.7.5-03")
def test_a_manager_that_nobody_knows_cannot_be_reached() -> None:
    with pytest.raises(NoRoute):
        ways(f"PRIVATE={guid('nobody')}\\8")


@pytest.mark.spec("QB-3.1.1.3.1.3-02")
def test_a_hop_has_the_full_name_and_the_guid_of_its_manager() -> None:
    members = [
        replace(each, qualified_computer_name=f"{each.computer_name}.corp.example", address=None)
        for each in (client("alpha", "london"), client("neighbour", "london"), server("lon-gate", "london"))
    ]
    domain = directory(site("london"), site("paris"), client("beta", "paris"), *members)
    resolve = resolver(lambda: Router(guid("alpha"), domain, 0.0))
    for destination, hop in (("neighbour", "neighbour"), ("beta", "lon-gate")):
        first, *_ = resolve(parse_format_name(f"PRIVATE={guid(destination)}\\8"))
        assert first == Hop(f"{hop}.corp.example", guid(hop))


@pytest.mark.spec("QB-3.1.1.3.1.3-01", "QB-3.1.5.2.1-07", "QB-3.1.5.2.1-08")
def test_a_hop_is_a_manager_whose_addresses_are_looked_up_by_who_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)  # not here
    gates = directory(
        site("london"),
        site("paris", gates="one two"),
        link("london", "paris", gates="gate"),
        server("gate", "london"),
        server("one", "paris", address="10.0.0.7"),
        server("two", "paris"),
    )
    hops = resolver(lambda: Router(guid("gate"), gates, 0.0))(parse_format_name(f"PRIVATE={guid('two')}\\8"))
    assert hops == [Hop("10.0.0.7", guid("one")), Hop("two", guid("two"))]


def test_the_router_of_the_moment_is_asked() -> None:
    routers = [Router(guid("alpha"), directory(), 0.0), Router(guid("alpha"), ENTERPRISE, 0.0)]
    resolve = resolver(lambda: routers[0])
    name = parse_format_name(f"PRIVATE={guid('neighbour')}\\8")
    with pytest.raises(NoRoute):
        resolve(name)
    routers.pop(0)
    assert resolve(name)[0] == Hop("10.0.0.4", guid("neighbour"))
