"""Hosts and ports in words."""

from __future__ import annotations

import pytest

from postroad.net.endpoints import endpoint, is_loopback


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [("127.0.0.1", 8180, "127.0.0.1:8180"), ("alpha", 80, "alpha:80"), ("::1", 1801, "[::1]:1801")],
)
def test_an_ipv6_address_has_brackets_before_a_port(host: str, port: int, text: str) -> None:
    assert endpoint(host, port) == text


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::1%lo", "::ffff:127.0.0.1"])
def test_only_this_computer_reaches_a_loopback_address(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.5", "::ffff:10.0.0.5", "fe80::1%eth0", "::ffff:0.0.0.0"])
def test_others_reach_every_other_one(address: str) -> None:
    assert not is_loopback(address)
