"""A harness with the queues that most tests use."""

from __future__ import annotations

import pytest

from tests.unit.queues.harness import ACKS, LEDGER, ORDERS, OTHER, Harness


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    for path in (ORDERS, OTHER, ACKS):
        harness.create(path)
    harness.create(LEDGER, transactional=True)
    return harness
