"""Messages that pass through a third manager, [MS-MQQB] 3.1.5.8.5: it passes them on and does not touch them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.message import Message
from postroad.wire.constants import MessageClass
from postroad.wire.headers import SecurityHeader, TxSequenceId
from postroad.wire.patch import with_hop_count
from postroad.wire.user_message import UserMessage
from tests.unit.binary.network import ACKS, DEADXACT, JOURNAL, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

SEQUENCE = TxSequenceId(3, 7)


@pytest.fixture(autouse=True)
def line(network: Network, alpha: Station, beta: Station, gamma: Station) -> None:
    """Alpha and gamma know each other only through beta."""
    network.routes[alpha, gamma.identifier] = [beta]
    network.routes[gamma, alpha.identifier] = [beta]


@pytest.mark.spec("QB-3.1.5.8.5-02", "QB-3.1.7.1.1-01")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_goes_on_by_the_outgoing_queue_of_its_destination(
    network: Network, alpha: Station, beta: Station, gamma: Station, recoverable: bool
) -> None:
    there = gamma.private(ORDERS)
    network.refused.add(gamma.address)
    (sent,) = alpha.send(there, Message(b"body", label="a", recoverable=recoverable))
    assert beta.waiting(there) == ["a"]
    network.wait(60)
    assert alpha.waiting(there) == []
    network.refused.clear()
    network.wait(1)
    (view,) = gamma.messages(ORDERS)
    assert (view.message_id, view.source_queue_manager, view.body) == (sent, alpha.identifier, b"body")
    assert with_hop_count(view.data, 0) == network.user_messages(alpha, beta)[0].data
    network.wait(60)
    assert beta.waiting(there) == []
    assert ("alpha", gamma.address) not in network.connections


@pytest.mark.spec(
    "QB-3.1.1.5-05", "QB-3.1.1.5-06", "QB-3.1.1.3.1-37", "QB-3.1.1.6.2-01", "QB-3.1.1.6.2-08", "MQ-2.2.18.1.6-21"
)
def test_a_sequence_is_between_its_two_ends(network: Network, alpha: Station, beta: Station, gamma: Station) -> None:
    there = gamma.private(LEDGER)
    alpha.send_transactional(there, "a", "b")
    before = [view.transaction_header for view in network.user_messages(alpha, beta)]
    after = [view.transaction_header for view in network.user_messages(beta, gamma)]
    assert before == after
    assert None not in before
    assert gamma.labels(LEDGER) == ["a", "b"]
    assert list(beta.service.receiver.incoming) == []
    assert beta.service.sender.sequences == {}
    assert alpha.waiting(there) == ["a", "b"]
    network.wait(0.5)
    assert [ack.source_queue_manager for ack in network.order_acks(beta, alpha)] == [gamma.identifier]
    network.wait(0.5)
    assert (alpha.waiting(there), beta.waiting(there)) == ([], [])


@pytest.mark.spec("QB-2.2.4-15", "QB-3.1.7.17-08", "QB-3.1.1.3.1-37")
def test_an_order_ack_finds_its_way_back_unchanged(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    alpha.send_transactional(gamma.private(LEDGER), "a")
    network.wait(0.5)
    (said,) = network.order_acks(gamma, beta)
    (heard,) = network.order_acks(beta, alpha)
    assert (heard, heard.reserved) == (said, said.reserved)
    assert heard.queue_manager_address == alpha.identifier
    assert network.order_acks(beta, gamma) == []


@pytest.mark.spec("QB-2.2.5-18", "QB-3.1.7.17-08")
@pytest.mark.parametrize("received", [True, False])
def test_a_final_ack_finds_its_way_back_unchanged(
    network: Network, alpha: Station, beta: Station, gamma: Station, received: bool
) -> None:
    alpha.send_transactional(gamma.private(LEDGER), Message(label="a", journal=True, dead_letter=True))
    network.wait(1)
    if received:
        gamma.receive(LEDGER)
    else:
        gamma.core.purge(gamma.queue(LEDGER), network.now)
        network.run()
    (said,) = network.final_acks(gamma, beta)
    (heard,) = network.final_acks(beta, alpha)
    assert heard == said
    assert (alpha.labels(JOURNAL), alpha.labels(DEADXACT)) == ((["a"], []) if received else ([], ["a"]))


def test_administration_acknowledgments_find_their_way_back(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    alpha.send(gamma.private(ORDERS), Message(label="a", ack="full", admin_queue=ACKS))
    gamma.receive(ORDERS)
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE]


@pytest.mark.spec("QB-3.1.5.8.5-02")
def test_a_public_queue_of_another_manager_is_passed_on(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    queue = gamma.create(r".\public")
    network.public[queue.properties.identifier] = gamma
    alpha.send(f"PUBLIC={queue.properties.identifier}", "a")
    assert gamma.labels(r".\public") == ["a"]
    assert network.sent(beta, gamma) == ["a"]


@pytest.mark.spec("QB-3.1.5.8.3-01")
def test_a_signature_is_the_destinations_to_check(
    network: Network, beta: Station, gamma: Station, stranger: Stranger
) -> None:
    plain = UserMessage.decode(stranger.compose(gamma.private(ORDERS), "a"))
    signed = replace(plain, security=SecurityHeader(signature=b"not a signature at all")).encode()
    stranger.send(stranger.call(beta), signed)
    (view,) = network.user_messages(beta, gamma)
    assert view.signed
    assert with_hop_count(view.data, 0) == signed


def test_what_waits_at_a_manager_on_the_way_survives_its_restart(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.refused.add(gamma.address)
    alpha.send(gamma.private(ORDERS), "a")
    alpha.send_transactional(gamma.private(LEDGER), "b", "c")
    network.wait(1)
    network.refused.clear()
    beta.restart()
    network.wait(2)
    assert (gamma.labels(ORDERS), gamma.labels(LEDGER)) == (["a"], ["b", "c"])
    assert alpha.waiting(gamma.private(LEDGER)) == []


def test_a_direct_name_with_another_managers_guid_leads_nowhere(
    network: Network, beta: Station, gamma: Station, stranger: Stranger
) -> None:
    plain = UserMessage.decode(stranger.compose(gamma.direct(LEDGER), "a", (SEQUENCE, 1, 0)))
    odd = replace(plain, user=replace(plain.user, queue_manager_address=gamma.identifier)).encode()
    session = stranger.call(beta)
    stranger.send(session, odd)
    assert [ack.final_class for ack in stranger.final_acks] == [MessageClass.NACK_BAD_DST_Q]
    assert (gamma.labels(LEDGER), session.closed) == ([], False)
