"""Who is let in, who makes room for whom, and whose unfinished input goes first."""

from __future__ import annotations

import logging

import pytest

from postroad.net.limits import Admission, Limits


class Door:
    """A listener without sockets: `gone` has the connections that were told to close."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.gone: list[Admission] = []

    def admit(self, address: str = "10.0.0.1") -> Admission:
        admission = self.limits.admit(address, lambda: None)
        assert admission is not None
        admission.attach(lambda: self.gone.append(admission))
        return admission


def test_the_oldest_without_a_handshake_makes_room() -> None:
    door = Door(Limits(connections=3))
    established, oldest, newer = door.admit("10.0.0.1"), door.admit("10.0.0.2"), door.admit("10.0.0.3")
    established.busy()
    door.admit("10.0.0.4")
    assert door.gone == [oldest]
    door.admit("10.0.0.5")
    assert door.gone == [oldest, newer]
    assert door.limits.connections.current == 3
    assert door.limits.connections.reached == 2


def test_one_that_waits_between_two_requests_goes_after_those_that_asked_nothing() -> None:
    door = Door(Limits(connections=2))
    served, fresh = door.admit("10.0.0.1"), door.admit("10.0.0.2")
    served.busy()
    served.idle()
    third = door.admit("10.0.0.3")
    assert door.gone == [fresh]
    third.busy()
    door.admit("10.0.0.4")
    assert door.gone == [fresh, served]


def test_where_none_can_make_room_the_newcomer_is_refused() -> None:
    door = Door(Limits(connections=2))
    door.admit("10.0.0.1").busy()
    second = door.admit("10.0.0.2")
    second.busy()
    assert door.limits.admit("10.0.0.3", lambda: None) is None
    second.close()
    second.close()
    assert door.limits.connections.current == 1
    door.admit("10.0.0.3")
    assert door.gone == []


def test_an_address_with_too_many_makes_room_by_itself() -> None:
    door = Door(Limits(connections=100, connections_per_address=2))
    bystander = door.admit("10.0.0.9")
    first, second = door.admit(), door.admit()
    door.admit()
    assert door.gone == [first]
    second.busy()
    door.admit()
    assert bystander not in door.gone
    assert door.limits.connections_per_address.reached == 2
    assert {each.name: each.current for each in door.limits.all}["connections_per_address"] == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),  # a subnet is one neighbour
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("::1", "::2", False),
    ],
)
def test_an_ipv6_subnet_counts_as_one_address(one: str, other: str, same: bool) -> None:
    door = Door(Limits(connections_per_address=1))
    first = door.admit(one)
    door.admit(other)
    assert door.gone == ([first] if same else [])


def test_of_unfinished_input_the_largest_of_whoever_holds_most_goes() -> None:
    door = Door(Limits(unfinished_input_mb=8))
    honest = door.admit("10.0.0.2")
    small, large = door.admit(), door.admit()
    honest.hold(3 << 20)
    small.hold(2 << 20)
    large.hold(5 << 19)
    door.admit().hold(1 << 20)
    assert door.gone == [large]
    assert door.limits.unfinished_input.current == 6 << 20
    assert door.limits.unfinished_input.reached == 1
    honest.hold(0)
    small.close()
    assert door.limits.unfinished_input.current == 1 << 20
    large.hold(1 << 20)  # what still comes of one that was closed is nobody's
    assert door.limits.unfinished_input.current == 1 << 20


def test_a_single_stranger_over_the_budget_is_the_one_that_goes() -> None:
    door = Door(Limits(unfinished_input_mb=8))
    greedy = door.admit()
    greedy.hold(9 << 20)
    assert door.gone == [greedy]
    assert door.limits.unfinished_input.current == 0


def test_connections_to_others_have_a_share_of_the_descriptors() -> None:
    limits = Limits(connections=4096, descriptors=960)
    assert (limits.connections.maximum, limits.outgoing_connections.maximum) == (840, 120)
    limits = Limits(connections=100, descriptors=16)
    dialed = [limits.dial("10.0.0.1"), limits.dial("10.0.0.1")]
    assert limits.dial("10.0.0.1") is None
    assert dialed[0] is not None
    dialed[0].close()
    assert limits.dial("10.0.0.1") is not None
    assert limits.connections.current == 0


def test_one_dropped_before_it_has_a_transport_is_closed_when_it_gets_one() -> None:
    limits = Limits(connections=1)
    told: list[str] = []
    first = limits.admit("10.0.0.1", lambda: told.append("socket"))
    assert first is not None
    limits.admit("10.0.0.2", lambda: None)
    assert (told, limits.closing) == (["socket"], 1)
    first.attach(lambda: told.append("transport"))
    assert told == ["socket", "transport"]
    first.close()
    assert limits.closing == 0


def test_a_limit_that_is_reached_again_and_again_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    door = Door(Limits(connections=1))
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            door.admit()
    assert len(caplog.records) == 1
    assert "suppressed for 30 s" in caplog.records[0].getMessage()
    assert door.limits.connections.reached == 99
