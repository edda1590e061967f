"""Two managers on one network, and a third one for messages that go further."""

from __future__ import annotations

import pytest

from tests.unit.binary.network import Network, Station
from tests.unit.binary.stranger import Stranger


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def alpha(network: Network) -> Station:
    return network.station("alpha", 1)


@pytest.fixture
def beta(network: Network) -> Station:
    return network.station("beta", 2)


@pytest.fixture
def gamma(network: Network) -> Station:
    return network.station("gamma", 3)


@pytest.fixture
def stranger(network: Network) -> Stranger:
    return Stranger(network, "stranger", 9)
