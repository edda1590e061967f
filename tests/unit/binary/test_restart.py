"""What a crash of either end costs, [MS-MQQB] 3.1.1.3 and 3.1.4.1: nothing that was promised."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.names.format import AWAITING_FINAL_ACK
from tests.unit.binary.network import ACKS, JOURNAL, LEDGER, ORDERS, Network, Station


@pytest.mark.spec("QB-3.1.4.1-01", "QB-3.1.4.1-02", "QB-3.1.3.2-05", "QB-3.1.5.2-01")
def test_a_start_opens_a_session_for_every_queue_with_messages(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.refused |= {beta.address, gamma.address}
    alpha.send(beta.direct(ORDERS), "a")
    alpha.send(gamma.direct(ORDERS), Message(label="express"))
    network.connections.clear()
    network.refused.clear()
    alpha.restart()
    assert network.connections == [("alpha", beta.address)]
    assert beta.labels(ORDERS) == ["a"]
    beta.send(alpha.direct(ORDERS), "b")
    assert alpha.labels(ORDERS) == ["b"]


@pytest.mark.spec("QB-3.1.1.3.1-33")
def test_what_was_to_be_sent_is_sent_in_its_order_but_for_express_messages(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), "a", Message(label="gone"), "b")
    alpha.send(beta.direct(ORDERS), Message(label="urgent", priority=7, recoverable=True))
    alpha.send_transactional(beta.direct(LEDGER), "c", "d")
    network.refused.clear()
    alpha.restart()
    assert network.sent(alpha, beta) == ["urgent", "a", "b", "c", "d"]


@pytest.mark.spec("QB-3.1.1.3.1-35", "QB-3.1.1.3.2-01")
@pytest.mark.parametrize("moment", range(12))
def test_a_crash_of_the_sender_at_any_moment_loses_and_doubles_nothing(
    network: Network, alpha: Station, beta: Station, moment: int
) -> None:
    crash_somewhere(network, alpha, beta, alpha, moment)


@pytest.mark.spec("QB-3.1.1.3.2-01")
@pytest.mark.parametrize("moment", range(12))
def test_a_crash_of_the_receiver_at_any_moment_loses_and_doubles_nothing(
    network: Network, alpha: Station, beta: Station, moment: int
) -> None:
    crash_somewhere(network, alpha, beta, beta, moment)


def crash_somewhere(network: Network, alpha: Station, beta: Station, victim: Station, moment: int) -> None:
    """The moments are an eighth of a second apart. Acknowledgments of every kind are then on their way."""
    wanted = [str(each) for each in range(12)]
    orders, ledger = beta.direct(ORDERS), beta.direct(LEDGER)
    received: dict[str, list[str]] = {ORDERS: [], LEDGER: []}
    for step, label in enumerate(wanted):
        alpha.send_transactional(ledger, Message(label=label, journal=True))
        alpha.send(orders, Message(label=label, recoverable=True, journal=True, ack="full", admin_queue=ACKS))
        if step == moment:
            victim.restart()
        if step == 6:
            read_everything(beta, received)
        network.wait(0.125)
    network.wait(5)
    read_everything(beta, received)
    network.wait(100)
    assert received == {ORDERS: wanted, LEDGER: wanted}
    assert sorted(alpha.labels(JOURNAL)) == sorted(wanted + wanted)
    assert [alpha.waiting(name) for name in (orders, ledger, AWAITING_FINAL_ACK)] == [[], [], []]
    assert len(alpha.labels(ACKS)) == 2 * len(wanted)


def read_everything(station: Station, received: dict[str, list[str]]) -> None:
    for path, labels in received.items():
        if count := len(station.labels(path)):
            labels += station.receive(path, count)
