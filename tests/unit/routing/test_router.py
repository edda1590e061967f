"""The routing of a running queue manager: the QueueManager Query Timer, cached answers, and queue names."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from postroad.directory.objects import Queue
from postroad.directory.snapshot import Directory
from postroad.errors import NoRoute
from postroad.names import parse_format_name
from postroad.routing import Router
from postroad.wire.records import UserSignCertificate, encode_user_certificates
from tests.enterprises import client, directory, gated, guid, link, next_sites, queue, server, site

CHAIN = gated("A B C", [("A", "B", 1), ("B", "C", 1)])
TRIANGLE = gated("A B C", [("A", "B", 5), ("B", "C", 1), ("A", "C", 1)])


@pytest.mark.spec("BR-3.1.2-01", "BR-3.1.3-01")
def test_the_timer_runs_an_hour_from_the_start() -> None:
    router = Router(guid("gate-A"), CHAIN, now=1000.0)
    assert router.due_at == 4600.0
    assert not router.run_timers(TRIANGLE, 4599.9)
    assert router.run_timers(TRIANGLE, 4600.0)


@pytest.mark.spec("BR-3.1.2.1-01", "BR-3.1.6.1-01")
def test_the_table_is_used_until_the_timer_fires_and_is_then_made_anew() -> None:
    router = Router(guid("gate-A"), CHAIN, now=0.0)
    assert next_sites(router.table) == {"B": "B", "C": "B"}
    router.run_timers(TRIANGLE, 3599.0)
    assert next_sites(router.table) == {"B": "B", "C": "B"}
    router.run_timers(TRIANGLE, 3600.0)
    assert next_sites(router.table) == {"B": "C", "C": "C"}
    router.run_timers(gated("A B C", [("A", "B", 5)]), 7200.0)
    assert next_sites(router.table) == {"B": "B"}


@pytest.mark.spec("BR-3.1.6.1-03")
def test_the_timer_fires_again_and_again() -> None:
    router = Router(guid("gate-A"), CHAIN, now=0.0)
    assert [now for now in range(0, 10801, 100) if router.run_timers(CHAIN, now)] == [3600, 7200, 10800]


def test_the_timer_can_be_set() -> None:
    router = Router(guid("gate-A"), CHAIN, now=0.0, query_s=10.0)
    assert [now for now in range(30) if router.run_timers(CHAIN, now)] == [10, 20]


@pytest.mark.spec("BR-3.1.6.1-02")
def test_the_role_of_a_gate_is_won_and_lost_when_the_timer_fires() -> None:
    def enterprise(gates: str) -> Directory:
        return directory(site("A", gates), site("B", "b"), link("A", "B"), server("a", "A"), server("b", "B"))

    router = Router(guid("a"), enterprise(""), now=0.0)
    assert router.table.rows == ()
    router.run_timers(enterprise("a"), 3600.0)
    assert next_sites(router.table) == {"B": "B"}
    router.run_timers(enterprise(""), 7200.0)
    assert router.table.rows == ()


def test_answers_are_kept_until_the_directory_changes() -> None:
    router = Router(guid("gate-A"), CHAIN, now=0.0)
    answer = router.next_hops(guid("gate-C"))
    assert router.next_hops(guid("gate-C")) is answer
    assert [each.computer_name for each in answer.hops] == ["gate-B"]
    router.initialize(TRIANGLE, now=1.0)
    assert [each.computer_name for each in router.next_hops(guid("gate-C")).hops] == ["gate-C"]
    assert router.due_at == 3601.0


def test_failures_are_told_every_time_until_the_directory_changes() -> None:
    router = Router(guid("gate-A"), gated("A B", []), now=0.0)
    for _ in range(2):
        with pytest.raises(NoRoute, match=r"^gate-A has no route to gate-B: no routing link leads to its site"):
            router.next_hops(guid("gate-B"))
    router.initialize(gated("A B", [("A", "B", 1)]), now=1.0)
    assert router.next_hops(guid("gate-B")).link_cost == 1


# Names

ORDERS = r"beta\orders"
NAMED = directory(site("A"), site("B"), client("alpha", "A"), server("router", "A"), client("beta", "B"), queue(ORDERS))


def router() -> Router:
    return Router(guid("alpha"), NAMED, now=0.0)


@pytest.mark.spec("BR-1.4-01", "QB-3.1.7.5-01")
def test_public_and_private_names_are_routed_and_direct_ones_are_not() -> None:
    names = [f"PUBLIC={guid(ORDERS)}", f"PRIVATE={guid('beta')}\\1f", f"MACHINE={guid('beta')};DEADLETTER"]
    for name in names:
        answer = router().next_hops_to(parse_format_name(name))
        assert answer is not None
        assert [each.computer_name for each in answer.hops] == ["router"]
    for name in (r"DIRECT=OS:beta\orders", r"DIRECT=TCP:10.0.0.1\private$\orders", "DIRECT=HTTP://beta/msmq/orders"):
        assert router().next_hops_to(parse_format_name(name)) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (f"PUBLIC={guid('other')}", "is not a queue of the directory"),
        (f"CONNECTOR={guid('other')}", "is not a queue of the directory"),
        (f"PRIVATE={guid('other')}\\1", "is not in the directory"),
        (f"DL={guid('other')}", "must be the name of one queue"),
        ("MULTICAST=234.1.1.1:8001", "must be the name of one queue"),
        (r"DIRECT=OS:a\b,DIRECT=OS:c\d", "must be the name of one queue"),
    ],
)
def test_names_that_lead_nowhere(name: str, fault: str) -> None:
    with pytest.raises(NoRoute, match=fault):
        router().next_hops_to(parse_format_name(name))


def test_a_manager_signs_with_what_the_directory_has_for_its_computer() -> None:
    held = encode_user_certificates([UserSignCertificate.of(guid("x"), each) for each in (b"one", b"two")])
    signing = replace(server("alpha", "A"), public_signing_key_list=held)
    broken = replace(server("beta", "A"), public_signing_key_list=held[:-1])
    router = Router(guid("alpha"), directory(site("A"), signing, broken, server("gamma", "A")), now=0.0)
    assert router.certificates(guid("alpha")) == (b"one", b"two")
    for name in ("beta", "gamma", "unknown"):
        assert router.certificates(guid(name)) == ()


class Silent(Directory):
    """A directory that must not be asked for queues."""

    def queue(self, identifier: UUID) -> Queue | None:
        raise AssertionError("the directory was asked for a queue")


@pytest.mark.spec("MQ-2.1.2-15")
def test_a_direct_name_needs_no_directory() -> None:
    router = Router(guid("alpha"), Silent(), 0.0)
    name = parse_format_name(r"DIRECT=OS:beta\orders")
    assert router.next_hops_to(name) is None
    assert router.base_priority(name) == 0


@pytest.mark.spec("MQ-2.1.4-03")
def test_a_private_name_asks_the_directory_for_its_manager_only() -> None:
    found = gated("A B", [("A", "B", 1)])
    router = Router(guid("gate-A"), Silent(sites=found.sites, links=found.links, managers=found.managers), 0.0)
    name = parse_format_name(f"PRIVATE={guid('gate-B')}\\7")
    assert router.destination(name) == guid("gate-B")
    hops = router.next_hops_to(name)
    assert hops is not None
    assert [hop.computer_name for hop in hops.hops] == ["gate-B"]
    assert router.base_priority(name) == 0
