"""A desk with two empty queues for every test."""

from __future__ import annotations

import pytest

from tests.unit.remote_read.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()
