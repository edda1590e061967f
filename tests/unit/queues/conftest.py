"""An office with the queues that most tests use."""

from __future__ import annotations

import pytest

from tests.unit.queues.office import ACKS, LEDGER, ORDERS, OTHER, Office


@pytest.fixture
def office() -> Office:
    office = Office()
    for path in (ORDERS, OTHER, ACKS):
        office.create(path)
    office.create(LEDGER, transactional=True)
    return office
