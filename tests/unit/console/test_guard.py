"""The rules that keep other web pages out, and the policy for our own."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from postroad.console.sessions import HEADERS, Guard, client_address
from postroad.console.visit import local_path

OWN = {b"host": "127.0.0.1:8181"}


@pytest.mark.parametrize("host", ["127.0.0.1:8181", "[::1]:8181", "localhost", "a.localhost:1", "alpha:8181"])
def test_our_own_names(host: str) -> None:
    assert Guard(frozenset({"alpha"})).refusal("GET", {b"host": host}) is None


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:8181", "127.0.0.1.evil.example"])
def test_a_foreign_name_is_refused_even_to_read(host: str) -> None:
    assert "Host" in (Guard(frozenset()).refusal("GET", {b"host": host}) or "")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({b"origin": "http://127.0.0.1:8181", b"sec-fetch-site": "same-origin"}, False),
        ({b"origin": "http://evil.example"}, True),
        ({b"origin": "http://127.0.0.1:8182"}, True),
        ({b"origin": "null"}, True),
        ({b"sec-fetch-site": "cross-site"}, True),
        ({b"sec-fetch-site": "same-site"}, True),
    ],
)
def test_only_our_own_pages_may_change_something(headers: dict[bytes, str], refused: bool) -> None:
    guard = Guard(frozenset())
    assert (guard.refusal("POST", OWN | headers) is not None) is refused
    assert guard.refusal("GET", OWN | headers) is None


def test_the_policy_allows_no_inline_script_or_style() -> None:
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    ("given", "goes_to"),
    [("/0/queues?a=1", "/0/queues?a=1"), ("//evil.example", "/"), ("https://evil.example", "/"), ("/\\evil", "/")],
)
def test_a_form_leads_to_our_own_pages_only(given: str, goes_to: str) -> None:
    assert local_path(given) == goes_to


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.5", "198.51.100.1", "203.0.113.5"),  # not a proxy
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "127.0.0.1, 198.51.100.1", "198.51.100.1"),  # what the browser itself has claimed
        ("10.0.0.1", "127.0.0.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"),  # two proxies
        ("10.0.0.1", "198.51.100.1, nonsense", "10.0.0.1"),
    ],
)
def test_a_proxy_says_whom_it_calls_for(peer: str, forwarded: str, address: str) -> None:
    assert client_address(peer, forwarded, [ip_network("10.0.0.0/24")]) == address
