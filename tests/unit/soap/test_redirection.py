"""Redirections of URLs, [MC-MQSRM] 3.1.1.1.9 and 3.1.1.1.10: what matches, and what replaces it."""

from __future__ import annotations

import pytest

from postroad.soap.addresses import Redirection, Redirections, matches


@pytest.mark.spec("SRM-3.1.1.1.10-01", "SRM-3.1.1.1.9-01")
@pytest.mark.parametrize(
    ("url", "pattern", "matched"),
    [
        ("http://a/msmq/q", "http://a/msmq/q", True),
        ("http://a/msmq/q2", "http://a/msmq/q", False),
        ("http://a/msmq/q", "http://a/msmq/q2", False),
        ("http://a/msmq/queue", "http://a/msmq/q*", True),
        ("http://a/msmq/q", "http://a/msmq/q*", True),
        ("http://a/msmq/other", "http://a/msmq/q*", False),
        ("http://a/msmq/one/two", "http://a/*/two", False),
        ("http://a/*/two", "http://a/*/two", True),
        ("http://A/MSMQ/Private$/Q", "http://a/msmq/private$/q", True),
        ("http://a/msmq\\private$\\q", "http://a/msmq/private$/q", True),
        ("https://a/msmq/q", "http://a/msmq/q", False),
    ],
)
def test_only_a_trailing_asterisk_stands_for_anything(url: str, pattern: str, matched: bool) -> None:
    assert matches(url, pattern) is matched


def test_the_first_that_matches_counts() -> None:
    redirections = Redirections(
        inbound=(Redirection("http://a/x*", "http://a/first"), Redirection("http://a/*", "http://a/second"))
    )
    assert redirections.inbound_target("http://a/xy") == "http://a/first"
    assert redirections.inbound_target("http://a/y") == "http://a/second"
    assert redirections.inbound_target("http://b/y") is None


@pytest.mark.spec("SRM-3.1.1.1.7-01", "SRM-3.1.1.1.8-01")
def test_without_settings_nothing_is_redirected_or_passed_on() -> None:
    redirections = Redirections()
    assert redirections.store_and_forward is False
    assert redirections.default_receipts == ""
    assert redirections.outbound_target("http://a/q") is None
