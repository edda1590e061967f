"""Recoverable messages, [MS-MQQB] 3.1.1.1.1.5 and 3.1.1.1.1.6: on disk at one end until they are at the other."""

from __future__ import annotations

import pytest

from postroad.message import Message
from tests.unit.binary.network import JOURNAL, LEDGER, ORDERS, Network, Station

ACK_S = 0.5  # RecoverableAckTimeout of a link without delay


@pytest.mark.spec("QB-3.1.1.1.1.5-01", "QB-6-18")
def test_a_message_stays_until_a_session_header_covers_it(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a", Message(b"body", label="b", recoverable=True, journal=True))
    assert beta.labels(ORDERS) == ["a", "b"]
    assert alpha.waiting(there) == ["a", "b"]
    network.wait(ACK_S)
    (ack,) = network.session_acks(beta, alpha)
    assert (ack.session.recoverable_msg_ack_seq_number, ack.session.recoverable_msg_ack_flags) == (1, 0b11)
    assert (alpha.waiting(there), alpha.labels(JOURNAL)) == ([], ["b"])


@pytest.mark.spec("QB-3.1.1.1.1.5-01", "QB-3.1.1.3.1-33", "QB-3.1.4.1-02", "QB-3.1.3.2-05", "QB-3.1.1.3.1-19")
def test_a_restart_of_the_sender_sends_it_again(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.hold(beta, alpha)
    alpha.send(there, "a", Message(b"body", label="express"), "b")
    alpha.send_transactional(beta.direct(LEDGER), "c", "d")
    alpha.restart()
    network.release()
    assert (beta.labels(ORDERS), beta.labels(LEDGER)) == (["a", "b"], ["c", "d"])
    network.wait(ACK_S)
    assert (alpha.waiting(there), alpha.waiting(beta.direct(LEDGER))) == ([], [])
    assert network.sent(alpha, beta) == ["a", "b", "c", "d"]


@pytest.mark.spec("QB-3.1.1.1.1.6-01", "QB-3.1.1.3.2-01", "QB-3.1.5.8.7-04")
def test_nothing_is_acknowledged_before_it_is_durable(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    beta.commits = False
    alpha.send(there, "a")
    network.wait(5)
    assert beta.labels(ORDERS) == []
    assert all(not ack.session.recoverable_msg_ack_flags for ack in network.session_acks(beta, alpha))
    assert alpha.waiting(there) == ["a"]
    beta.commits = True
    network.wait(5)
    assert beta.labels(ORDERS) == ["a"]
    assert network.session_acks(beta, alpha)[-1].session.recoverable_msg_ack_flags == 0b1
    assert alpha.waiting(there) == []


@pytest.mark.spec("QB-3.1.1.1.1.6-01", "QB-3.1.1.3.2-01")
def test_a_message_that_could_not_be_stored_comes_again(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    beta.commits = False
    alpha.send(there, "a", "b")
    beta.seal()
    beta.lose()
    network.run()
    assert (beta.labels(ORDERS), alpha.waiting(there)) == ([], ["a", "b"])
    assert all(not ack.session.recoverable_msg_ack_flags for ack in network.session_acks(beta, alpha))
    beta.commits = True
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(ORDERS) == ["a", "b"]


def test_the_sender_sees_the_connection_end(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    beta.commits = False
    alpha.send(there, "a")
    (session,) = beta.service.sessions
    beta.seal()
    beta.lose()
    assert session.closed
    network.run()
    assert alpha.outgoing(there).last_error == "the connection was closed"


@pytest.mark.spec("QB-3.1.5.8.2-01")
def test_a_router_that_cannot_store_a_message_does_not_acknowledge_it(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    there = gamma.private(ORDERS)
    network.routes[alpha, gamma.identifier] = [beta]
    beta.commits = False
    alpha.send(there, "a")
    beta.seal()
    beta.lose()
    network.run()
    assert (alpha.waiting(there), gamma.labels(ORDERS)) == (["a"], [])
    assert network.session_acks(beta, alpha) == []
    beta.commits = True
    network.wait(alpha.settings.retry_connect_s)
    assert gamma.labels(ORDERS) == ["a"]


def test_a_message_that_the_sender_could_not_store_was_never_sent(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.commits = False
    alpha.send(there, "a")
    alpha.seal()
    alpha.lose()
    alpha.commits = True
    network.wait(5)
    assert network.sent(alpha, beta) == []
    assert beta.labels(ORDERS) == []


def test_an_acknowledgment_that_cannot_be_noted_makes_the_message_go_again(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    alpha.commits = False
    network.wait(ACK_S)
    alpha.seal()
    alpha.lose()
    alpha.commits = True
    assert alpha.waiting(there) == ["a"]
    alpha.send(there, "b")
    network.wait(ACK_S)
    assert network.sent(alpha, beta) == ["a", "a", "b"]
    assert beta.labels(ORDERS) == ["a", "b"]
    assert alpha.waiting(there) == []


@pytest.mark.spec("QB-3.1.1.3.1-32")
def test_a_new_manager_has_nothing_to_send(alpha: Station, network: Network) -> None:
    assert alpha.core.queues.outgoing == {}
    network.wait(100)
    assert network.connections == []
