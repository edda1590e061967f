"""FinalAcks and the journals at the source, [MS-MQQB] 3.1.5.7 and 3.1.7.2.2: how a message ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroad.message import Message
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.queues.queue import Queue
from postroad.wire.constants import MessageClass, QueueCode, TransactionFlags
from postroad.wire.headers import TxSequenceId
from postroad.wire.patch import transaction_header_at
from tests.packets import with_bits
from tests.unit.binary.network import DEADLETTER, DEADXACT, JOURNAL, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

DEAD = r"private$\dead"
SEQUENCE = TxSequenceId(3, 7)
JOURNALED = Message(b"body", label="a", journal=True)
GUARDED = Message(b"body", label="a", dead_letter=True)
BOTH = Message(b"body", label="a", journal=True, dead_letter=True)


def awaiting(station: Station) -> list[str]:
    """AwaitingFinalACKTable"""
    return station.waiting(AWAITING_FINAL_ACK)


def purge(station: Station, queue: Queue) -> None:
    station.core.purge(queue, station.network.now)


def delete(station: Station, queue: Queue) -> None:
    station.core.delete_queue(queue, station.network.now)


def expire(station: Station, queue: Queue) -> None:
    station.network.wait(31)


REMOVALS: list[tuple[Callable[[Station, Queue], None], int]] = [
    (purge, MessageClass.NACK_Q_PURGED),
    (delete, MessageClass.NACK_Q_DELETED),
    (expire, MessageClass.NACK_RECEIVE_TIMEOUT),
]


# When one is sent


@pytest.mark.spec("QB-3.1.7.2.2-01", "QB-3.1.7.2-01")
@pytest.mark.parametrize("message", [JOURNALED, GUARDED])
def test_a_reader_makes_one_for_whoever_wants_to_know(
    network: Network, alpha: Station, beta: Station, message: Message
) -> None:
    alpha.send_transactional(beta.direct(LEDGER), message)
    network.wait(1)
    assert network.final_acks(beta, alpha) == []
    beta.receive(LEDGER)
    assert [ack.final_class for ack in network.final_acks(beta, alpha)] == [MessageClass.ACK_RECEIVE]


@pytest.mark.spec("QB-3.1.7.2.2-01", "DM-3.1.1.12-34")
def test_the_flag_of_the_transaction_header_asks_for_one(network: Network, beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    packets = [stranger.compose(beta.direct(LEDGER), str(each), (SEQUENCE, each, each - 1)) for each in (1, 2)]
    at = transaction_header_at(packets[1])
    packets[1] = with_bits(packets[1], at, TransactionFlags.FINAL_ACK.value)
    stranger.send(session, *packets)
    beta.receive(LEDGER, 2)
    network.wait(1)
    assert [ack.sequence_number for ack in stranger.final_acks] == [2]


@pytest.mark.spec("QB-3.1.7.2.2-02")
@pytest.mark.parametrize("recoverable", [False, True])
def test_only_a_transactional_message_has_one(
    network: Network, alpha: Station, beta: Station, recoverable: bool
) -> None:
    alpha.send(beta.direct(ORDERS), Message(label="a", journal=True, dead_letter=True, recoverable=recoverable))
    beta.receive(ORDERS)
    network.wait(100)
    assert network.final_acks(beta, alpha) == []


@pytest.mark.spec("QB-3.1.7.2-01", "QB-3.1.7.2.2-01")
@pytest.mark.parametrize(("remove", "reason"), REMOVALS)
def test_its_class_says_how_the_message_left(
    network: Network, alpha: Station, beta: Station, remove: Callable[[Station, Queue], None], reason: int
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, Message(label="a", dead_letter=True, time_to_be_received=30))
    network.wait(1)
    remove(beta, beta.queue(LEDGER))
    network.run()
    assert [ack.final_class for ack in network.final_acks(beta, alpha)] == [reason]
    assert alpha.classes(DEADXACT) == [reason]


def test_a_message_that_was_set_aside_is_still_answered(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), JOURNALED)
    network.wait(1)
    owner = beta.queue(LEDGER)
    aside = beta.core.queues.subqueue(beta.core.tick, owner, "aside", int(network.now))
    beta.core.move(owner, aside, owner.available(1), network.now)
    network.run()
    assert network.final_acks(beta, alpha) == []
    beta.receive(f"{LEDGER};aside")
    assert [ack.final_class for ack in network.final_acks(beta, alpha)] == [MessageClass.ACK_RECEIVE]


# What one says


@pytest.mark.spec("QB-2.2.5-09", "QB-2.2.5.1-02", "QB-2.2.5.1-03", "QB-2.2.5.1-07", "QB-2.2.5.1-08")
@pytest.mark.spec("QB-3.1.7.17-05")
def test_it_names_the_message_and_goes_to_the_address_of_its_sender(
    network: Network, alpha: Station, beta: Station
) -> None:
    _, second = alpha.send_transactional(beta.direct(LEDGER), "a", Message(label="b", journal=True))
    network.wait(1)
    beta.receive(LEDGER, 2)
    (ack,) = network.final_acks(beta, alpha)
    header = network.user_messages(alpha, beta)[1].transaction_header
    assert header is not None
    assert (ack.sequence_id, ack.sequence_number) == (header.sequence_id, 2)
    assert (ack.source_guid, ack.acknowledged_message_id) == (alpha.identifier, second)
    assert ack.destination_queue.direct_name == f"TCP:{alpha.address}\\PRIVATE$\\order_queue$"
    assert ack.source_queue_manager == beta.identifier


@pytest.mark.spec("QB-3.1.7.17-08")
def test_by_a_guid_it_goes_to_the_guid_of_the_sender(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.private(LEDGER), JOURNALED)
    network.wait(1)
    beta.receive(LEDGER)
    (ack,) = network.final_acks(beta, alpha)
    assert (ack.destination_queue.code, ack.destination_queue.number) == (QueueCode.PRIVATE_ON_DESTINATION, 4)
    assert ack.queue_manager_address == alpha.identifier
    assert alpha.labels(JOURNAL) == ["a"]


@pytest.mark.spec("QB-2.2.5.1-05")
def test_its_previous_number_is_that_of_the_message(network: Network, beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 3, 0)))
    stranger.send(session, stranger.compose(beta.direct(LEDGER), JOURNALED, (SEQUENCE, 5, 3)))
    beta.receive(LEDGER, 2)
    network.wait(1)
    (ack,) = stranger.final_acks
    assert (ack.sequence_id, ack.sequence_number, ack.previous_sequence_number) == (SEQUENCE, 5, 3)


@pytest.mark.spec("QB-2.2.5-01", "QB-3.1.7.17-06", "QB-3.1.7.17-02")
def test_a_message_that_is_refused_has_one_at_once_though_nobody_asked(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(r"private$\missing"), "a", (SEQUENCE, 5, 0), message_id=77))
    (ack,) = stranger.final_acks
    assert ack.final_class == MessageClass.NACK_BAD_DST_Q
    assert (ack.sequence_id, ack.sequence_number, ack.previous_sequence_number) == (SEQUENCE, 5, 0)
    assert (ack.source_guid, ack.acknowledged_message_id) == (stranger.identifier, 77)


def test_the_address_of_a_sender_survives_a_restart(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), JOURNALED)
    network.wait(1)
    beta.restart()
    beta.receive(LEDGER)
    assert alpha.labels(JOURNAL) == ["a"]


# What one does


@pytest.mark.spec("QB-3.1.5.6-11", "QB-3.1.1.6.2-09", "QB-3.1.1.3.1-36", "QB-3.1.1.1.1.7-01", "QB-3.1.5.5.4-02")
@pytest.mark.parametrize(("message", "waits"), [(JOURNALED, True), (GUARDED, True), (Message(label="a"), False)])
def test_once_in_order_a_message_waits_for_it_if_a_copy_may_be_due(
    network: Network, alpha: Station, beta: Station, message: Message, waits: bool
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, message)
    assert awaiting(alpha) == []
    network.wait(1)
    assert alpha.waiting(there) == []
    assert awaiting(alpha) == (["a"] if waits else [])
    assert (alpha.labels(JOURNAL), alpha.labels(DEADXACT)) == ([], [])


@pytest.mark.spec("QB-3.1.5.7-03", "QB-3.1.1.1.1.7-01", "QB-3.1.1.7.3-01")
def test_a_received_message_is_journaled_at_its_source(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), BOTH)
    network.wait(1)
    beta.receive(LEDGER)
    assert (alpha.labels(JOURNAL), alpha.labels(DEADXACT), awaiting(alpha)) == (["a"], [], [])
    (copy,) = alpha.messages(JOURNAL)
    assert copy.data == network.user_messages(alpha, beta)[0].data


@pytest.mark.spec("QB-3.1.5.7-04", "QB-1.3.4.2-01")
def test_a_message_that_nobody_received_is_dead(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), BOTH)
    network.wait(1)
    purge(beta, beta.queue(LEDGER))
    network.run()
    assert (alpha.labels(JOURNAL), alpha.labels(DEADXACT), awaiting(alpha)) == ([], ["a"], [])
    assert alpha.classes(DEADXACT) == [MessageClass.NACK_Q_PURGED]
    assert alpha.labels(DEADLETTER) == []


@pytest.mark.spec("QB-3.1.5.7-04", "DM-3.1.1.12-05")
@pytest.mark.parametrize("restart", [False, True])
def test_the_dead_message_goes_to_the_queue_that_it_names(
    network: Network, alpha: Station, beta: Station, restart: bool
) -> None:
    """The sender's manager alone knows the queue's name, because only the packet is sent."""
    alpha.create(DEAD, transactional=True)
    alpha.send_transactional(beta.direct(LEDGER), Message(b"body", label="a", dead_letter_queue=DEAD))
    network.wait(1)
    if restart:
        alpha.restart()
    (sent,) = network.user_messages(alpha, beta)
    assert (sent.negative_journaling, sent.dead_letter_queue, len(sent.data)) == (True, None, sent.packet_size)
    purge(beta, beta.queue(LEDGER))
    network.run()
    network.wait(1)
    assert (alpha.labels(DEAD), alpha.labels(DEADXACT), awaiting(alpha)) == (["a"], [], [])
    assert alpha.classes(DEAD) == [MessageClass.NACK_Q_PURGED]


@pytest.mark.spec("QB-3.1.7.1.2-07", "DM-3.1.1.12-05")
def test_an_expired_message_goes_to_the_queue_that_it_names(network: Network, alpha: Station, beta: Station) -> None:
    network.refused.add(beta.address)
    alpha.create(DEAD, transactional=True)
    alpha.send_transactional(beta.direct(LEDGER), Message(label="a", dead_letter_queue=DEAD, time_to_reach_queue=5))
    network.wait(6)
    assert (alpha.labels(DEAD), alpha.labels(DEADXACT)) == (["a"], [])


@pytest.mark.spec("QB-3.1.5.7-05")
@pytest.mark.parametrize(
    ("message", "final_class"),
    [(JOURNALED, MessageClass.NACK_Q_PURGED), (GUARDED, MessageClass.ACK_RECEIVE)],
)
def test_a_copy_that_was_not_asked_for_is_not_kept(
    network: Network, alpha: Station, beta: Station, message: Message, final_class: int
) -> None:
    alpha.send_transactional(beta.direct(LEDGER), message)
    network.wait(1)
    if final_class == MessageClass.ACK_RECEIVE:
        beta.receive(LEDGER)
    else:
        purge(beta, beta.queue(LEDGER))
        network.run()
    assert [ack.final_class for ack in network.final_acks(beta, alpha)] == [final_class]
    assert (alpha.labels(JOURNAL), alpha.labels(DEADXACT), awaiting(alpha)) == ([], [], [])


@pytest.mark.spec("QB-3.1.5.7-02")
def test_it_may_come_before_every_other_acknowledgment(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, JOURNALED)
    beta.receive(LEDGER)
    assert (alpha.waiting(there), awaiting(alpha), alpha.labels(JOURNAL)) == ([], [], ["a"])
    network.wait(100)
    assert network.sent(alpha, beta) == ["a"]
    assert (alpha.waiting(there), awaiting(alpha), alpha.labels(JOURNAL)) == ([], [], ["a"])


@pytest.mark.spec("QB-3.1.5.7-02", "QB-3.1.5.5.4-02")
def test_it_may_come_between_the_two_others(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = stranger.direct(LEDGER)
    stranger.stores = False
    alpha.send_transactional(there, JOURNALED)
    (view,) = stranger.messages
    session = stranger.sessions[0]
    stranger.send(session, stranger.order_ack(alpha, 1))
    stranger.send(session, stranger.final_ack(alpha, view, MessageClass.ACK_RECEIVE))
    assert (alpha.waiting(there), alpha.labels(JOURNAL)) == ([], ["a"])
    session.stored(1, network.now)
    network.wait(100)
    assert (awaiting(alpha), alpha.labels(JOURNAL)) == ([], ["a"])


@pytest.mark.spec("QB-3.1.5.7-02")
@pytest.mark.parametrize("restarted", [False, True])
def test_it_may_come_while_the_message_waits_to_be_sent_again(
    network: Network, alpha: Station, stranger: Stranger, restarted: bool
) -> None:
    there = stranger.direct(LEDGER)
    stranger.stores = False
    alpha.send_transactional(there, "first", JOURNALED)
    _, view = stranger.messages
    network.refused.add(stranger.address)
    network.cut(alpha, stranger)
    if restarted:
        alpha.restart()
    alpha.core.pause(alpha.queue(there))
    session = stranger.call(alpha)
    stranger.send(session, stranger.final_ack(alpha, view, MessageClass.ACK_RECEIVE))
    assert (alpha.waiting(there), awaiting(alpha), alpha.labels(JOURNAL)) == (["first"], [], ["a"])


@pytest.mark.spec("QB-3.1.5.7-06")
def test_one_for_another_managers_message_is_ignored(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, BOTH)
    (view,) = stranger.messages
    session = stranger.sessions[0]
    stranger.send(session, stranger.final_ack(alpha, view, MessageClass.ACK_RECEIVE, stranger.identifier))
    assert (alpha.waiting(there), alpha.labels(JOURNAL)) == (["a"], [])
    network.wait(1)
    stranger.send(session, stranger.order_ack(alpha, 1))
    stranger.send(session, stranger.final_ack(alpha, view, MessageClass.NACK_DELETED, stranger.identifier))
    assert (awaiting(alpha), alpha.labels(DEADXACT)) == (["a"], [])


def test_one_that_comes_twice_makes_one_copy(network: Network, alpha: Station, stranger: Stranger) -> None:
    alpha.send_transactional(stranger.direct(LEDGER), JOURNALED)
    network.wait(1)
    (view,) = stranger.messages
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    for _ in range(2):
        stranger.send(stranger.sessions[0], stranger.final_ack(alpha, view, MessageClass.ACK_RECEIVE))
    assert alpha.labels(JOURNAL) == ["a"]


@pytest.mark.spec("QB-3.1.1.3.1-34")
def test_a_new_manager_awaits_none(alpha: Station) -> None:
    assert awaiting(alpha) == []


@pytest.mark.spec("QB-3.1.1.3.1-35")
def test_a_restart_in_between_changes_nothing(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), JOURNALED)
    network.wait(1)
    alpha.restart()
    assert awaiting(alpha) == ["a"]
    beta.receive(LEDGER)
    network.wait(1)
    assert (awaiting(alpha), alpha.labels(JOURNAL)) == ([], ["a"])


# Messages that never got there


@pytest.mark.spec("QB-1.3.4.2-01", "QB-3.1.7.1.2-06", "QB-3.1.7.1.2-07")
def test_an_expired_message_is_dead_at_its_source(network: Network, alpha: Station, beta: Station) -> None:
    network.refused.add(beta.address)
    dying = Message(label="a", dead_letter=True, time_to_reach_queue=5)
    alpha.send(beta.direct(ORDERS), dying, Message(label="b", time_to_reach_queue=5))
    alpha.send_transactional(beta.direct(LEDGER), dying, Message(label="b", time_to_reach_queue=5))
    network.wait(6)
    assert (alpha.labels(DEADLETTER), alpha.labels(DEADXACT)) == (["a"], ["a"])
    assert alpha.classes(DEADLETTER) == alpha.classes(DEADXACT) == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]
    network.refused.clear()
    network.wait(5)
    assert network.sent(alpha, beta) == []
