"""Strangers attack every listener at once, for a short while. `make torture` does it for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.hostile.verdict import run

SECONDS = 10


@pytest.mark.parametrize("seed", [1, 2], ids=["with a directory", "without a directory"])
def test_nothing_that_strangers_send_costs_anybody_a_message(tmp_path: Path, seed: int) -> None:
    verdict = run(tmp_path, seed, SECONDS)
    assert not verdict.faults, str(verdict)
