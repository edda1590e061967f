"""Which hosts messages of strangers can make a manager call."""

from __future__ import annotations

import pytest

from postroad.security.relay import ANY_HOST, Relay, RelayRule


@pytest.mark.parametrize(
    ("rule", "host", "covered"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "fe80::1%eth0", False),
        ("*.corp.local", "a.corp.local", True),
        ("*.corp.local", "corp.local", False),
        ("*.corp.local", "a.corp.local.evil", False),
        ("*.Corp.Local", "a.corp.local", True),
        ("10.0.0.0/8", "ten.corp.local", False),
        ("*", "anything", True),
    ],
)
def test_a_rule_is_a_network_or_a_pattern_of_names(rule: str, host: str, covered: bool) -> None:
    assert RelayRule.parse(rule).covers(host) is covered


@pytest.mark.parametrize("rule", ["10.0.0.0/33", "10.0.0", "10.0.0.1/8", "::/129", "http://a", "a b", "[a-z]"])
def test_what_is_neither_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="must be a network"):
        RelayRule.parse(rule)


def test_allowed_is_what_a_rule_covers_and_what_is_known() -> None:
    relay = Relay([RelayRule.parse("10.0.0.0/8")], known={"gate"}.__contains__)
    assert relay.allows("10.1.1.1")
    assert relay.allows("GATE")
    assert not relay.allows("192.0.2.1")


def test_the_address_that_a_message_came_from_may_be_called() -> None:
    relay = Relay()
    assert relay.allows("192.0.2.1", "192.0.2.1")
    assert relay.allows("fe80::1", "fe80::1%eth0")
    assert not relay.allows("192.0.2.2", "192.0.2.1")


def test_hosts_that_a_local_application_names_may_be_called() -> None:
    relay = Relay()
    assert not relay.allows("far")
    relay.name("FAR")
    assert relay.allows("far")
    assert relay.allows("Far")


def test_a_manager_that_no_stranger_reaches_calls_everybody() -> None:
    assert Relay([ANY_HOST]).allows("anything")
