"""The base priority of public queues, [MS-MQMQ] 2.3.1.6: which outgoing queue to a next hop is served first."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.binary.session import BinarySettings
from postroad.names import PublicName
from tests.unit.binary.network import Network, Station

MANY = 12


def public(network: Network, owner: Station, path: str, base_priority: int) -> str:
    identifier: UUID = owner.create(path).properties.identifier
    network.public[identifier] = owner
    name = PublicName(identifier)
    network.base_priorities[name] = base_priority
    return str(name)


@pytest.mark.spec("DM-3.1.7.1.28-01", "DM-3.1.7.1.5-12")
def test_queues_of_a_higher_base_priority_are_served_first(network: Network, beta: Station) -> None:
    alpha = network.station("alpha", 1, BinarySettings(window_size=8))
    names = {label: public(network, beta, rf".\{label}", base) for label, base in (("c", -5), ("b", 0), ("a", 7))}
    network.refused.add(beta.address)
    for label, name in names.items():
        alpha.send(name, *[label] * MANY)
    network.refused.clear()
    network.wait(5)
    assert network.sent(alpha, beta) == ["a"] * MANY + ["b"] * MANY + ["c"] * MANY
    assert [alpha.queue(name).properties.base_priority for name in names.values()] == [-5, 0, 7]


def test_queues_of_one_base_priority_share_the_window(network: Network, beta: Station) -> None:
    alpha = network.station("alpha", 1, BinarySettings(window_size=8))
    names = {label: public(network, beta, rf".\{label}", 3) for label in "ab"}
    network.refused.add(beta.address)
    for label, name in names.items():
        alpha.send(name, *[label] * MANY)
    network.refused.clear()
    network.wait(5)
    assert set(network.sent(alpha, beta)[:4]) == {"a", "b"}


def test_a_direct_name_of_a_public_queue_has_none(network: Network, alpha: Station, beta: Station) -> None:
    public(network, beta, r".\a", 7)
    alpha.send(beta.direct("a"), "x")
    assert alpha.queue(beta.direct("a")).properties.base_priority == 0
