"""MessageIDHistoryTable, [MS-MQQB] 3.1.1.3 and 3.1.5.8.1: a message that comes again is recognized and counted."""

from __future__ import annotations

import pytest

from postroad.binary.session import BinarySettings
from postroad.message import Message
from postroad.wire.constants import MessageClass
from tests.unit.binary.network import ACKS, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

LIFETIME_S = 1800
MOST_IDS = 1 << 32  # where MessageIdOrdinal starts again


@pytest.mark.spec("QB-3.1.5.8.1-02")
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_that_comes_twice_is_delivered_and_answered_once(
    network: Network, beta: Station, stranger: Stranger, recoverable: bool
) -> None:
    message = Message(label="a", recoverable=recoverable, ack="reach-queue", admin_queue=stranger.direct(ACKS))
    packet = stranger.compose(beta.direct(ORDERS), message)
    stranger.send(stranger.call(beta), packet, packet)
    assert beta.labels(ORDERS) == ["a"]
    assert [view.message_class for view in stranger.messages] == [MessageClass.ACK_REACH_QUEUE]


@pytest.mark.spec("QB-3.1.5.8.1-05")
def test_a_duplicate_is_counted_and_acknowledged(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a", Message(label="b"))
    network.cut(alpha, beta)
    network.wait(alpha.settings.retry_connect_s)
    assert network.sent(alpha, beta) == ["a", "b", "a", "b"]
    network.wait(1)
    ack = network.session_acks(beta, alpha)[-1].session
    assert (ack.ack_sequence_number, ack.recoverable_msg_ack_flags) == (2, 0b1)
    assert alpha.waiting(there) == []
    network.wait(100)
    assert len(network.history) == 2  # the second session stays
    assert beta.labels(ORDERS) == ["a", "b"]


@pytest.mark.spec("QB-3.1.5.8.1-04", "QB-3.1.1.3-08", "QB-3.1.5.8.2-04")
def test_the_source_is_part_of_the_id(network: Network, beta: Station, stranger: Stranger) -> None:
    other = Stranger(network, "other", 8)
    for sender in (stranger, other):
        sender.send(sender.call(beta), sender.compose(beta.direct(ORDERS), sender.name, message_id=5))
    assert beta.labels(ORDERS) == ["stranger", "other"]
    history = beta.service.receiver.history
    for sender in (stranger, other):
        assert sender.identifier.bytes_le + (5).to_bytes(4, "little") in history
    assert history.deadline == network.now + LIFETIME_S + 1  # when the time that it has noted is too long ago


@pytest.mark.spec("QB-3.1.5.8.1-01")
def test_a_transactional_message_is_not_in_it(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), "a", "b")
    assert beta.labels(LEDGER) == ["a", "b"]
    assert len(beta.service.receiver.history) == 0


@pytest.mark.spec("QB-3.1.1.3-06", "QB-3.1.3.1-02", "QB-3.1.2.8-01")
def test_a_new_manager_knows_none_and_has_nothing_to_forget(beta: Station) -> None:
    assert len(beta.service.receiver.history) == 0
    assert beta.service.receiver.history.deadline is None
    assert beta.core.deadlines.first is None


@pytest.mark.spec("QB-3.1.1.3-07", "QB-6-12", "QB-3.1.3.1-02", "QB-3.1.2.8-01")
def test_it_survives_a_restart(network: Network, beta: Station, stranger: Stranger) -> None:
    packets = [stranger.compose(beta.direct(ORDERS), label) for label in "abc"]
    stranger.send(stranger.call(beta), *packets[:1])
    stranger.send(stranger.call(beta), *packets[1:])
    beta.restart()
    assert len(beta.service.receiver.history) == 3
    assert beta.service.receiver.history.deadline == network.now + LIFETIME_S + 1
    stranger.send(stranger.call(beta), *packets)
    assert beta.labels(ORDERS) == ["a", "b", "c"]


def test_an_id_is_not_noted_before_its_message_is_durable(network: Network, beta: Station, stranger: Stranger) -> None:
    packet = stranger.compose(beta.direct(ORDERS), "a")
    beta.commits = False
    stranger.send(stranger.call(beta), packet)
    beta.restart()
    beta.commits = True
    stranger.send(stranger.call(beta), packet)
    assert beta.labels(ORDERS) == ["a"]


def test_an_id_whose_message_could_not_be_stored_is_forgotten(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    packet = stranger.compose(beta.direct(ORDERS), "a")
    beta.commits = False
    stranger.send(stranger.call(beta), packet)
    beta.seal()
    beta.lose()
    beta.commits = True
    network.run()
    stranger.send(stranger.call(beta), packet)
    assert beta.labels(ORDERS) == ["a"]


def test_a_message_that_found_no_room_is_not_a_duplicate(network: Network, alpha: Station, beta: Station) -> None:
    beta.core.throttle(on=True)
    alpha.send(beta.direct(ORDERS), "a", Message(label="b"))
    beta.core.throttle(on=False)
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(ORDERS) == ["a", "b"]


@pytest.mark.spec("QB-3.1.5.8.2-05", "QB-6-12")
def test_when_it_is_full_the_oldest_is_forgotten(network: Network, stranger: Stranger) -> None:
    assert BinarySettings().duplicates == 10_000
    beta = network.station("beta", 2, BinarySettings(duplicates=3))
    session = stranger.call(beta)
    packets = [stranger.compose(beta.direct(ORDERS), label) for label in "abcd"]
    for packet in packets[:3]:
        stranger.send(session, packet)
        network.wait(1)
    stranger.send(session, packets[0])  # a duplicate, and so the newest
    stranger.send(session, packets[3])
    assert beta.labels(ORDERS) == ["a", "b", "c", "d"]
    assert len(beta.service.receiver.history) == 3
    stranger.send(session, packets[0])
    stranger.send(session, packets[1])
    assert beta.labels(ORDERS) == ["a", "b", "c", "d", "b"]


@pytest.mark.spec("QB-3.1.1.3-05")
def test_it_never_holds_more_ids_than_there_are(network: Network) -> None:
    assert BinarySettings().duplicates <= MOST_IDS
    beta = network.station("beta", 2, BinarySettings(duplicates=2))
    session = (stranger := Stranger(network, "stranger", 9)).call(beta)
    for label in "abcdef":
        stranger.send(session, stranger.compose(beta.direct(ORDERS), Message(label=label)))
        assert len(beta.service.receiver.history) <= 2


def test_the_store_keeps_no_more_than_memory_needs(network: Network, stranger: Stranger) -> None:
    beta = network.station("beta", 2, BinarySettings(duplicates=3))
    session = stranger.call(beta)
    for each in range(20):
        stranger.send(session, stranger.compose(beta.direct(ORDERS), str(each)))
    assert len(beta.store.state("history/")) <= 3 + 4  # what is forgotten leaves the store later


@pytest.mark.spec("QB-3.1.6.7-01", "QB-3.1.6.7-02", "QB-6-13", "QB-3.1.2.8-01", "QB-3.1.5.8.2-06")
def test_an_id_is_forgotten_after_half_an_hour(network: Network, beta: Station, stranger: Stranger) -> None:
    history = beta.service.receiver.history
    packets = [stranger.compose(beta.direct(ORDERS), label) for label in "ab"]
    stranger.send(stranger.call(beta), packets[0])
    assert history.deadline == network.now + LIFETIME_S + 1
    network.wait(1000)
    stranger.send(stranger.call(beta), packets[1])
    network.wait(800)
    assert len(history) == 2
    network.wait(1)
    assert len(history) == 1
    assert history.deadline == network.now + 1000
    stranger.send(stranger.call(beta), *packets)
    assert beta.labels(ORDERS) == ["a", "b", "a"]
    network.wait(LIFETIME_S + 1)
    assert len(history) == 0
    assert beta.service.receiver.history.deadline is None


@pytest.mark.spec("QB-3.1.5.8.1-03")
def test_a_duplicate_keeps_its_id_alive(network: Network, beta: Station, stranger: Stranger) -> None:
    packet = stranger.compose(beta.direct(ORDERS), Message(label="a"))
    for _ in range(4):
        stranger.send(stranger.call(beta), packet)
        network.wait(LIFETIME_S - 10)
    assert beta.labels(ORDERS) == ["a"]


@pytest.mark.spec("QB-3.1.2.8-02")
def test_the_time_can_be_configured(network: Network, stranger: Stranger) -> None:
    beta = network.station("beta", 2, BinarySettings(duplicates_s=60))
    packet = stranger.compose(beta.direct(ORDERS), "a")
    session = stranger.call(beta)
    stranger.send(session, packet)
    network.wait(61)
    stranger.send(session, packet)
    assert beta.labels(ORDERS) == ["a", "a"]


def test_a_message_on_its_way_to_another_manager_goes_on_once(
    network: Network, beta: Station, gamma: Station, stranger: Stranger
) -> None:
    packet = stranger.compose(gamma.private(ORDERS), "a")
    stranger.send(stranger.call(beta), packet, packet)
    assert network.sent(beta, gamma) == ["a"]
