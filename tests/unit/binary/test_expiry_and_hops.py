"""How long a message may travel, [MS-MQQB] 3.1.7.1.2, and over how many managers, 3.1.5.8.2."""

from __future__ import annotations

import pytest

from postroad.message import Message
from postroad.wire.constants import INFINITE, MessageClass
from postroad.wire.headers import TxSequenceId
from tests.unit.binary.network import ACKS, DEADLETTER, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

SEQUENCE = TxSequenceId(3, 7)
MOST_HOPS = 0x1D


def mortal(seconds: int, *, recoverable: bool = True, **attributes: object) -> Message:
    message = Message(b"body", label="a", recoverable=recoverable, time_to_reach_queue=seconds)
    for name, value in attributes.items():
        setattr(message, name, value)
    return message


# Time to reach the queue


@pytest.mark.spec("QB-3.1.7.1.2-01", "QB-3.1.7.1.2-03", "QB-3.1.7.1.2-04")
@pytest.mark.parametrize(("seconds", "sent"), [(10, True), (11, False)])
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_expires_when_more_seconds_are_over_than_it_has(
    network: Network, alpha: Station, beta: Station, seconds: int, sent: bool, recoverable: bool
) -> None:
    there = beta.direct(ORDERS)
    network.refused.add(beta.address)
    alpha.send(there, mortal(10, recoverable=recoverable))
    network.now += seconds
    network.refused.clear()
    network.wait(0)
    assert network.sent(alpha, beta) == (["a"] if sent else [])
    assert beta.labels(ORDERS) == (["a"] if sent else [])
    if not sent:
        assert alpha.waiting(there) == []


@pytest.mark.spec("QB-3.1.7.1.2-01", "QB-3.1.7.1.2-04")
def test_it_is_looked_at_before_a_message_is_sent_again(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), "opens the session")
    network.hold(alpha, beta)
    alpha.send(beta.direct(ORDERS), mortal(10))
    network.now += 11
    network.cut(alpha, beta)
    network.release()
    network.wait(alpha.settings.retry_connect_s)
    assert network.sent(alpha, beta) == ["opens the session", "a", "opens the session"]


@pytest.mark.spec("QB-3.1.7.1.2-02")
def test_a_message_without_a_limit_never_expires(network: Network, alpha: Station, beta: Station) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), mortal(INFINITE))
    network.now += 10 * 365 * 86400
    network.refused.clear()
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(ORDERS) == ["a"]


@pytest.mark.spec("QB-3.1.7.1.2-05")
@pytest.mark.parametrize(("ack", "told"), [("nack-reach-queue", True), ("full", True), ("nack-receive", False)])
def test_whoever_asked_is_told_that_it_has_expired(
    network: Network, alpha: Station, beta: Station, ack: str, told: bool
) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), mortal(10, ack=ack, admin_queue=ACKS))
    network.wait(11)
    assert alpha.classes(ACKS) == ([MessageClass.NACK_REACH_QUEUE_TIMEOUT] if told else [])


@pytest.mark.spec("QB-3.1.7.1-05", "QB-3.1.7.1.2-05", "QB-3.1.7.1.2-04")
def test_a_message_on_its_way_expires_where_it_is(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    there = gamma.private(ORDERS)
    network.routes[alpha, gamma.identifier] = [beta]
    network.refused.add(gamma.address)
    alpha.send(there, mortal(10, ack="full", admin_queue=ACKS, dead_letter=True))
    network.wait(5)
    assert (alpha.waiting(there), beta.waiting(there)) == ([], ["a"])
    network.wait(6)
    assert beta.waiting(there) == []
    assert alpha.classes(ACKS) == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]
    assert (alpha.labels(DEADLETTER), beta.labels(DEADLETTER)) == ([], ["a"])  # where it was given up
    network.refused.clear()
    network.wait(5)
    assert network.sent(beta, gamma) == []


@pytest.mark.spec("QB-3.1.7.1.2-08")
def test_a_sender_whose_clock_is_ahead_loses_nothing(
    network: Network, beta: Station, gamma: Station, stranger: Stranger
) -> None:
    network.now += 3600
    packets = [stranger.compose(there.private(ORDERS), mortal(10)) for there in (beta, gamma)]
    network.now -= 3600
    stranger.send(stranger.call(beta), *packets)
    assert (beta.labels(ORDERS), gamma.labels(ORDERS)) == (["a"], ["a"])


@pytest.mark.spec("QB-3.1.5.8-03")
@pytest.mark.parametrize(("seconds", "delivered"), [(10, True), (11, False)])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("forwarded", [False, True])
def test_a_message_that_has_expired_when_it_comes_is_not_delivered(
    network: Network,
    beta: Station,
    gamma: Station,
    stranger: Stranger,
    seconds: int,
    delivered: bool,
    transactional: bool,
    forwarded: bool,
) -> None:
    target = gamma if forwarded else beta
    path = LEDGER if transactional else ORDERS
    message = mortal(10, ack="nack-reach-queue", admin_queue=stranger.direct(ACKS))
    packet = stranger.compose(target.private(path), message, (SEQUENCE, 1, 0) if transactional else None)
    session = stranger.call(beta)
    network.now += seconds
    stranger.send(session, packet)
    assert target.labels(path) == (["a"] if delivered else [])
    assert [view.message_class for view in stranger.messages] == (
        [] if delivered else [MessageClass.NACK_REACH_QUEUE_TIMEOUT]
    )
    finals = [MessageClass.NACK_REACH_QUEUE_TIMEOUT] if transactional and not delivered else []
    assert [ack.final_class for ack in stranger.final_acks] == finals
    network.wait(1)
    assert stranger.acknowledged == [packet]  # counted on the session, whatever became of it
    assert not session.closed


# Hops


@pytest.mark.spec("QB-3.1.5.8.2-12")
def test_every_manager_on_the_way_counts_a_hop(
    network: Network, alpha: Station, beta: Station, gamma: Station, stranger: Stranger
) -> None:
    delta = network.station("delta", 4)
    network.routes[alpha, delta.identifier] = [beta]
    network.routes[beta, delta.identifier] = [gamma]
    alpha.send(delta.private(ORDERS), "a")
    hops = [network.user_messages(*pair)[0].hop_count for pair in ((alpha, beta), (beta, gamma), (gamma, delta))]
    assert hops == [0, 1, 2]
    assert [view.hop_count for view in delta.messages(ORDERS)] == [2]


@pytest.mark.spec("QB-3.1.5.8.2-13", "QB-3.1.7.15-03", "QB-3.1.7.17-02", "MQ-2.2.19.2-11")
@pytest.mark.parametrize(("hops", "forwarded"), [(MOST_HOPS - 1, True), (MOST_HOPS, False)])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_does_not_travel_for_ever(
    network: Network,
    beta: Station,
    gamma: Station,
    stranger: Stranger,
    hops: int,
    forwarded: bool,
    transactional: bool,
) -> None:
    path = LEDGER if transactional else ORDERS
    message = Message(label="a", ack="nack-reach-queue", admin_queue=stranger.direct(ACKS))
    place = (SEQUENCE, 1, 0) if transactional else None
    stranger.send(stranger.call(beta), stranger.compose(gamma.private(path), message, place, hops=hops))
    assert gamma.labels(path) == (["a"] if forwarded else [])
    if forwarded:
        assert [view.hop_count for view in gamma.messages(path)] == [MOST_HOPS]
    refused = [] if forwarded else [MessageClass.NACK_HOP_COUNT_EXCEEDED]
    assert [view.message_class for view in stranger.messages] == refused
    assert [ack.final_class for ack in stranger.final_acks] == (refused if transactional else [])


@pytest.mark.spec("QB-3.1.5.8.2-14")
@pytest.mark.parametrize("by", ["direct", "private"])
def test_at_its_destination_no_hop_is_counted(beta: Station, stranger: Stranger, by: str) -> None:
    there = beta.direct(ORDERS) if by == "direct" else beta.private(ORDERS)
    stranger.send(stranger.call(beta), stranger.compose(there, "a", hops=MOST_HOPS))
    assert [(view.label, view.hop_count) for view in beta.messages(ORDERS)] == [("a", MOST_HOPS)]


def test_two_managers_that_take_each_other_for_the_way_give_up(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    network.routes[beta, gamma.identifier] = [alpha]
    alpha.send_transactional(gamma.private(LEDGER), Message(label="a", ack="full", admin_queue=ACKS, dead_letter=True))
    network.wait(1)
    assert alpha.classes(ACKS) == [MessageClass.NACK_HOP_COUNT_EXCEEDED]
    assert network.sent(alpha, beta).count("a") == 15
