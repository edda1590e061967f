"""A harness with two empty queues for every test."""

from __future__ import annotations

import pytest

from tests.unit.remote_read.harness import Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()
