"""Receipts that go back, [MC-MQSRM] 3.1.1.3, 3.1.5.1.6.2 and 3.1.7.3: for delivery, commitment and streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroad.message import Message
from postroad.soap.elements import (
    Attachments,
    CommitmentReceiptRequest,
    Decision,
    DeliveryReceiptRequest,
    Envelope,
    Services,
)
from postroad.wire.constants import MessageClass
from tests.unit.soap.network import ACKS, LEDGER, ORDERS, STRANGER, Exchange, Network, Station, stranger_message
from tests.unit.soap.network import stream_message as stream

URL = "http://10.0.0.2/msmq/private$/orders"
TX_URL = "http://10.0.0.2/msmq/private$/ledger"
ARRIVALS = "http://stranger/msmq/private$/arrivals"
DECISIONS = "http://stranger/msmq/private$/decisions"


@pytest.fixture
def network(network: Network) -> Network:
    """The stranger of these tests is in [peers]: tests of others are in test_trust.py."""
    network.peers |= {"stranger", "10.0.0.99"}
    return network


@pytest.fixture(autouse=True)
def _stranger(network: Network, beta: Station) -> None:
    network.answers["stranger"] = 200


def asking(
    envelope: Envelope, *, delivery: bool = False, positive: bool = False, negative: bool = False, both: bool = True
) -> Envelope:
    services = Services(
        durable=True,
        delivery_receipt_request=DeliveryReceiptRequest(ARRIVALS) if delivery else None,
        commitment_receipt_request=CommitmentReceiptRequest(DECISIONS, positive, negative) if both else None,
    )
    return replace(envelope, services=services)


def decisions(network: Network) -> list[Decision]:
    found = [each.envelope.commitment_receipt for each in network.receipts("beta")]
    return [each.decision for each in found if each is not None]


def expire(beta: Station) -> None:
    for record in beta.records(ORDERS):
        beta.core.delivery.expire(beta.queue(ORDERS), record, beta.network.now)
    beta.network.run()


def delete(beta: Station) -> None:
    beta.core.delete_queue(beta.queue(ORDERS), beta.network.now)
    beta.network.run()


REMOVALS: dict[str, tuple[Callable[[Station], object], Decision]] = {
    "received": (lambda beta: beta.receive(ORDERS), Decision.POSITIVE),
    "purged": (lambda beta: beta.purge(ORDERS), Decision.NEGATIVE),
    "expired": (expire, Decision.NEGATIVE),
    "queue deleted": (delete, Decision.NEGATIVE),
}


@pytest.mark.spec(
    "SRM-2.2.5.2.2-04",
    "SRM-2.2.5.2.2-05",
    "SRM-2.2.5.4-01",
    "SRM-2.2.5.4-02",
    "SRM-2.2.5.4-04",
    "SRM-3.1.5.1.6.2-02",
    "SRM-3.1.5.1.6.2-03",
    "SRM-2.2.4.1-04",
)
def test_a_delivery_receipt_says_when_the_message_came_into_its_queue(network: Network, beta: Station) -> None:
    network.now += 7
    envelope = asking(stranger_message(URL, 5, label="a label"), delivery=True, both=False)
    assert beta.ask(envelope) == 200
    (receipt,) = network.exchanges
    assert receipt.envelope.delivery_receipt is not None
    assert receipt.envelope.delivery_receipt.received_at == int(network.now)
    assert receipt.envelope.delivery_receipt.id == f"uuid:5@{STRANGER}"
    assert receipt.envelope.path.to == ARRIVALS
    assert (receipt.address.host, receipt.target) == ("stranger", "/msmq/private$/arrivals")
    assert receipt.label == "a label"
    assert receipt.envelope.msmq is not None
    assert receipt.envelope.msmq.message_class == MessageClass.ACK_REACH_QUEUE
    assert receipt.envelope.msmq.correlation == STRANGER.bytes_le + (5).to_bytes(4, "little")
    assert receipt.envelope.path.via == URL
    assert receipt.attachments == Attachments()


@pytest.mark.spec("SRM-3.1.5.1.6.2-04", "SRM-6-12")
def test_a_message_without_an_msmq_element_is_called_1_of_nobody(network: Network, beta: Station) -> None:
    envelope = asking(replace(stranger_message(URL, 5), msmq=None), delivery=True, both=False)
    beta.ask(replace(envelope, path=replace(envelope.path, action="Generic label")))
    (receipt,) = network.exchanges
    assert receipt.envelope.delivery_receipt is not None
    assert receipt.envelope.delivery_receipt.id == "uuid:1@00000000-0000-0000-0000-000000000000"
    assert receipt.envelope.path.action == "MSMQ:"


@pytest.mark.spec("SRM-3.1.1.3.1-01", "SRM-3.1.1.3.4-01")
def test_no_receipt_is_sent_unasked(network: Network, beta: Station) -> None:
    beta.ask(stranger_message(URL, 1))
    beta.ask(stranger_message(URL, 2))
    beta.receive(ORDERS)
    beta.purge(ORDERS)
    assert network.exchanges == []


@pytest.mark.spec("SRM-2.2.5.2.2-04")
def test_what_is_not_put_into_a_queue_has_no_delivery_receipt(network: Network, beta: Station) -> None:
    beta.create(r"private$\full", quota_kb=0)
    beta.ask(asking(stranger_message("http://beta/msmq/private$/full"), delivery=True, both=False))
    beta.ask(asking(stranger_message("http://beta/msmq/private$/nothing", 2), delivery=True, both=False))
    assert network.exchanges == []


@pytest.mark.spec("SRM-2.2.5.2.1-05", "SRM-2.2.5.2.1-04")
def test_a_delivery_receipt_leaves_when_the_message_is_durable(network: Network, alpha: Station, beta: Station) -> None:
    beta.commits = False
    ask = Message(label="one", recoverable=True, ack="reach-queue", admin_queue=alpha.direct(ACKS))
    alpha.send(beta.direct(ORDERS), ask)
    assert network.posts("beta") == []
    beta.commits = True
    network.run()
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE]


@pytest.mark.spec(
    "SRM-2.2.5.2.3-04",
    "SRM-2.2.5.2.3-05",
    "SRM-2.2.5.2.3-06",
    "SRM-2.2.5.2.3-07",
    "SRM-3.1.1.3.4-01",
    "SRM-3.1.1.3.4-02",
    "SRM-3.1.7.3.1-01",
    "SRM-3.1.7.3.1-04",
    "SRM-3.1.7.3-02",
)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_commitment_receipt_says_how_a_message_left_its_queue(
    network: Network, beta: Station, positive: bool, negative: bool, removal: str, restarted: bool
) -> None:
    beta.ask(asking(stranger_message(URL), positive=positive, negative=negative))
    if restarted:
        beta.restart()
    remove, outcome = REMOVALS[removal]
    remove(beta)
    wanted = positive if outcome is Decision.POSITIVE else negative
    assert decisions(network) == ([outcome] if wanted else [])


@pytest.mark.spec(
    "SRM-3.1.7.3.1-02",
    "SRM-3.1.7.3.1-03",
    "SRM-3.1.7.3.1-07",
    "SRM-2.2.5.5-01",
    "SRM-2.2.5.5-05",
    "SRM-3.1.1.4.1-02",
    "SRM-2.2.4.1-04",
)
def test_each_receipt_goes_to_its_own_place_and_in_its_own_time(network: Network, beta: Station) -> None:
    beta.ask(asking(stranger_message(URL, 5, label="a label"), delivery=True, positive=True, negative=True))
    network.wait(100)
    beta.receive(ORDERS)
    arrival, outcome = network.exchanges
    assert (arrival.envelope.path.to, outcome.envelope.path.to) == (ARRIVALS, DECISIONS)
    receipt = outcome.envelope.commitment_receipt
    assert receipt is not None
    assert (receipt.id, receipt.decided_at) == (f"uuid:5@{STRANGER}", int(network.now))
    assert outcome.label == "a label"
    assert outcome.envelope.msmq is not None
    assert outcome.envelope.msmq.message_class == MessageClass.ACK_RECEIVE
    assert arrival.envelope.delivery_receipt is not None
    assert arrival.envelope.delivery_receipt.received_at == int(network.now) - 100


@pytest.mark.spec("SRM-3.1.7.3.1-05")
@pytest.mark.parametrize(
    "reason",
    [
        MessageClass.NACK_DELETED,
        MessageClass.NACK_Q_DELETED,
        MessageClass.NACK_Q_PURGED,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_RECEIVE_REJECTED,
    ],
)
def test_each_reason_for_a_negative_commitment(network: Network, beta: Station, reason: MessageClass) -> None:
    beta.ask(asking(stranger_message(URL), positive=True, negative=True))
    beta.core.delivery.take(beta.queue(ORDERS), beta.records(ORDERS)[0], reason, network.now)
    network.run()
    assert decisions(network) == [Decision.NEGATIVE]


@pytest.mark.spec("SRM-3.1.7.3.1-06", "SRM-3.1.7.3.3-04")
def test_a_message_that_is_moved_has_not_been_decided_on(network: Network, beta: Station) -> None:
    beta.create(r"private$\second", transactional=True)
    beta.ask(asking(stranger_message(URL), positive=True, negative=True))
    beta.ask(stream(TX_URL, 1, dead_letter=True))
    beta.core.move(beta.queue(ORDERS), beta.queue(ACKS), beta.records(ORDERS), network.now)
    beta.core.move(beta.queue(LEDGER), beta.queue(r"private$\second"), beta.records(LEDGER), network.now)
    network.wait(5)
    assert decisions(network) == []
    assert network.final_receipts("beta") == []


@pytest.mark.spec("SRM-3.1.7.3-01")
def test_the_binary_protocols_messages_have_no_receipts_by_soap(network: Network, alpha: Station) -> None:
    alpha.send_transactional(LEDGER, Message(label="local", dead_letter=True))
    alpha.receive(LEDGER)
    alpha.send("DIRECT=HTTP://10.0.0.9/msmq/private$/q", Message(label="out", recoverable=True, dead_letter=True))
    network.exchanges.clear()
    alpha.purge("DIRECT=HTTP://10.0.0.9/msmq/private$/q")
    network.wait(5)
    assert network.exchanges == []


# Final stream receipts


@pytest.mark.spec(
    "SRM-3.1.1.3.3-01",
    "SRM-3.1.1.3.3-02",
    "SRM-3.1.7.3.3-01",
    "SRM-3.1.7.3.3-02",
    "SRM-3.1.7.3.3-05",
    "SRM-3.1.7.3.3-06",
    "SRM-2.2.5.5-01",
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_message_that_asks_for_dead_letters_has_a_final_receipt(
    network: Network, beta: Station, restarted: bool
) -> None:
    second = stream(TX_URL, 2, dead_letter=True)
    request = Services(durable=True, commitment_receipt_request=CommitmentReceiptRequest(DECISIONS))
    for envelope in (stream(TX_URL, 1), replace(second, services=request), stream(TX_URL, 3)):
        beta.ask(envelope)
    network.wait(60)
    if restarted:
        beta.restart()
    beta.receive(LEDGER, 3)
    (receipt,) = network.final_receipts("beta")
    assert receipt.envelope.path.to == "http://stranger/msmq/private$/order_queue$"
    assert receipt.envelope.path.action == "MSMQ:QM Ordering Ack"
    assert receipt.envelope.stream_receipt is not None
    assert second.stream is not None
    assert receipt.envelope.stream_receipt.stream_id == second.stream.stream_id
    assert receipt.envelope.stream_receipt.last_ordinal == 2
    assert receipt.envelope.commitment_receipt is not None
    assert receipt.envelope.commitment_receipt.id == second.path.id
    assert receipt.envelope.commitment_receipt.decided_at == int(network.now)
    assert receipt.content_type == "text/xml"


@pytest.mark.spec("SRM-3.1.7.3.3-03")
@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (MessageClass.ACK_RECEIVE, Decision.POSITIVE),
        (MessageClass.NACK_DELETED, Decision.NEGATIVE),
        (MessageClass.NACK_Q_DELETED, Decision.NEGATIVE),
        (MessageClass.NACK_Q_PURGED, Decision.NEGATIVE),
        (MessageClass.NACK_RECEIVE_TIMEOUT, Decision.NEGATIVE),
        (MessageClass.NACK_RECEIVE_REJECTED, Decision.NEGATIVE),
    ],
)
def test_what_a_final_receipt_says(network: Network, beta: Station, reason: MessageClass, outcome: Decision) -> None:
    beta.ask(stream(TX_URL, 1, dead_letter=True))
    (record,) = beta.records(LEDGER)
    beta.core.delivery.take(beta.queue(LEDGER), record, reason, network.now)
    network.run()
    (receipt,) = network.final_receipts("beta")
    assert receipt.envelope.commitment_receipt is not None
    assert receipt.envelope.commitment_receipt.decision is outcome
    assert receipt.envelope.msmq is not None
    known = reason is not MessageClass.NACK_RECEIVE_REJECTED  # which no receiver would know, 3.1.5.1.5
    assert receipt.envelope.msmq.message_class == (reason if known else MessageClass.NACK_DELETED)


@pytest.mark.spec("SRM-3.1.1.3.3-03")
def test_a_final_receipt_is_of_one_message_alone(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, *(Message(label=each, dead_letter=True) for each in "ab"))
    network.wait(1)
    beta.core.delivery.receive(beta.queue(LEDGER), beta.records(LEDGER)[1:2], network.now)
    network.run()
    assert alpha.waiting(there) == ["a"]


def test_a_final_receipt_survives_a_crash_and_a_peer_that_is_away(network: Network, beta: Station) -> None:
    """Nobody asks for it again."""
    network.answers["stranger"] = 503
    beta.ask(stream(TX_URL, 1, dead_letter=True))
    beta.receive(LEDGER)
    beta.restart()
    network.answers["stranger"] = 200
    network.exchanges.clear()
    network.wait(60)
    assert [each.status for each in network.final_receipts("beta")] == [200]


@pytest.mark.spec("SRM-3.1.1.4.3-01")
def test_a_stream_message_may_have_three_receipts_none_for_another(network: Network, beta: Station) -> None:
    message = stream(TX_URL, 1)
    beta.ask(asking(message, delivery=True, positive=True))
    network.wait(1)
    beta.receive(LEDGER)
    kinds = [_kind(each) for each in network.exchanges]
    assert kinds == ["delivery", "stream", "commitment"]


def _kind(post: Exchange) -> str:
    envelope = post.envelope
    if envelope.stream_receipt is not None:
        return "stream" if envelope.commitment_receipt is None else "final"
    return "delivery" if envelope.delivery_receipt is not None else "commitment"


@pytest.mark.spec("SRM-2.2.4.1-05", "SRM-2.2.5.6-04")
def test_a_stream_receipt_has_its_own_label_whatever_the_messages_had(
    network: Network, alpha: Station, beta: Station
) -> None:
    alpha.send_transactional(beta.direct(LEDGER), "a", "b", "c")
    network.wait(1)
    (receipt,) = network.stream_receipts("beta")
    assert receipt.envelope.path.action == "MSMQ:QM Ordering Ack"
    assert alpha.waiting(beta.direct(LEDGER)) == []


def test_receipts_to_ones_own_manager_are_not_sent(network: Network, beta: Station) -> None:
    """A stream that wants its receipts here would put them into somebody else's queue."""
    beta.ask(stream(TX_URL, 1, start=URL))
    network.wait(5)
    assert network.exchanges == []
    assert beta.labels(ORDERS) == []


@pytest.mark.parametrize("admin", [ACKS, "direct"])
@pytest.mark.parametrize("port", [None, 8080])
def test_an_administration_queue_here_is_told_as_a_url_that_leads_here(
    network: Network, alpha: Station, beta: Station, admin: str, port: int | None
) -> None:
    if port is not None:
        alpha.service.outgoing.ports = {"http": port}
    name = ACKS if admin == ACKS else "DIRECT=OS:alpha\\private$\\acks"
    alpha.send(beta.direct(ORDERS), Message(label="one", recoverable=True, ack="full", admin_queue=name))
    services = network.posts("alpha")[0].envelope.services
    shown = "" if port is None else f":{port}"
    assert services is not None
    assert services.delivery_receipt_request is not None
    assert services.delivery_receipt_request.send_to == f"http://alpha{shown}/msmq/private$/acks"
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE]


@pytest.mark.spec("SRM-2.2.5.1.2-03", "SRM-2.2.5.2.1-02", "SRM-2.2.5.2.1-03")
def test_sent_at_is_the_same_each_time(network: Network, alpha: Station, beta: Station) -> None:
    network.answers[beta.address] = 500
    alpha.commits = False
    alpha.send_transactional(beta.direct(LEDGER), "one")
    assert network.exchanges == []
    alpha.commits = True
    network.wait(50)
    assert len(network.exchanges) == 3
    assert len({each.envelope.properties for each in network.exchanges}) == 1
    assert all(each.envelope.services == Services(durable=True) for each in network.exchanges)
