"""Two queue managers that can post to each other, and a third one on request."""

from __future__ import annotations

import pytest

from tests.unit.soap.network import Network, Station


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def alpha(network: Network) -> Station:
    return network.station("alpha", 1)


@pytest.fixture
def beta(network: Network) -> Station:
    return network.station("beta", 2)
