"""A rig with two empty queues for every test."""

from __future__ import annotations

import pytest

from tests.unit.remote_read.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()
