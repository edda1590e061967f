"""Failed logins: an address that fails waits longer each time, and nobody else has to wait."""

from __future__ import annotations

from typing import Any

from postroad.security.attempts import FORGET_S, FREE_FAILURES, MAX_ADDRESSES, MAX_DELAY_S, FailedLogins

STRANGER = "10.0.0.66"


def failing(times: int, address: str = STRANGER, now: float = 0.0) -> FailedLogins:
    logins = FailedLogins()
    for _ in range(times):
        logins.failed(address, now, door="rpc", who="ann")
    return logins


def test_a_few_typing_errors_cost_nothing() -> None:
    assert failing(FREE_FAILURES).delay(STRANGER, 0) == 0


def test_the_wait_grows_with_each_failure_up_to_a_bound() -> None:
    logins = failing(FREE_FAILURES)
    waits = []
    for _ in range(2000):
        logins.failed(STRANGER, 0, door="rpc", who="ann")
        waits.append(logins.delay(STRANGER, 0))
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] == MAX_DELAY_S


def test_the_wait_passes_and_failures_are_forgotten() -> None:
    logins = failing(FREE_FAILURES + 20)
    assert logins.delay(STRANGER, MAX_DELAY_S - 1) == 1
    assert logins.delay(STRANGER, MAX_DELAY_S) == 0
    logins.failed(STRANGER, FORGET_S, door="rpc", who=None)
    assert logins.delay(STRANGER, FORGET_S) == 0


def test_another_address_does_not_wait() -> None:
    assert failing(1000).delay("10.0.0.67", 0) == 0


def test_addresses_of_one_ipv6_network_wait_together_and_mapped_ones_count_as_what_they_are() -> None:
    logins = failing(10, "2001:db8::1")
    assert logins.delay("2001:db8::ffff:2", 0) > 0
    assert logins.delay("2001:db8:0:1::1", 0) == 0
    assert failing(10, "::ffff:10.0.0.66").delay(STRANGER, 0) > 0


def test_the_table_is_bounded_and_forgets_nobody_who_has_to_wait() -> None:
    logins = failing(10)
    logins.failed("typist", 0.0, door="api", who=None)
    for n in range(MAX_ADDRESSES + 100):
        logins.failed(f"host-{n}", 1.0, door="api", who=None)
    assert MAX_ADDRESSES - 200 <= len(logins) <= MAX_ADDRESSES
    assert logins.delay(STRANGER, 0.1) > 0
    assert logins.delay("typist", 1.0) == 0


def test_each_refused_login_is_told_to_the_audit() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    logins = FailedLogins(lambda event, **facts: told.append((event, facts)))
    logins.failed(STRANGER, 0, door="api", who="x" * 1000)
    assert told == [("login refused", {"door": "api", "address": STRANGER, "who": "x" * 256})]
