"""The scenarios of `python -m tests.torture.multicast` in short: real processes in network namespaces, raw sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.namespaces import unavailable
from tests.torture.multicast import Result, coming_and_going, flow, forged

RATE_KB_S = 2000
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def namespaces() -> None:
    why = unavailable()
    if why is not None:
        pytest.skip(why)


def check(result: Result) -> None:
    assert result.contradictions == []
    assert result.lines


def test_one_sender_and_three_receivers(tmp_path: Path) -> None:
    check(flow(200, 10, 0.05, RATE_KB_S, tmp_path))


def test_members_come_and_go(tmp_path: Path) -> None:
    check(coming_and_going(400, 0.01, RATE_KB_S, tmp_path))


def test_forged_packets(tmp_path: Path) -> None:
    check(forged(400, 20_000, 0.01, RATE_KB_S, tmp_path))
