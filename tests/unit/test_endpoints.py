"""Hosts and ports in words."""

from __future__ import annotations

import pytest

from postroad.endpoints import endpoint


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [("127.0.0.1", 8180, "127.0.0.1:8180"), ("alpha", 80, "alpha:80"), ("::1", 1801, "[::1]:1801")],
)
def test_an_ipv6_address_has_brackets_before_a_port(host: str, port: int, text: str) -> None:
    assert endpoint(host, port) == text
