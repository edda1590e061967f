"""Messages that a manager refuses, [MS-MQQB] 3.1.5.8.2 and 3.1.5.8.8, and the administration acknowledgments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroad.message import Message
from postroad.names import parse_format_name
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.queues.queue import Queue
from postroad.wire.constants import INFINITE, MessageClass
from postroad.wire.headers import TxSequenceId
from postroad.wire.queue_names import destination_name, response_name
from tests.unit.binary.network import ACKS, DEADLETTER, DEADXACT, JOURNAL, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

SEQUENCE = TxSequenceId(3, 7)
MISSING = r"private$\missing"
SIGNED_ONLY, SECRET_ONLY = r"private$\signed", r"private$\secret"
INSECURE = {
    MessageClass.NACK_BAD_DST_Q,
    MessageClass.NACK_ACCESS_DENIED,
    MessageClass.NACK_BAD_SIGNATURE,
    MessageClass.NACK_BAD_ENCRYPTION,
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
}


@pytest.fixture
def beta(network: Network) -> Station:
    return furnished(network)


def furnished(network: Network, *, insecure_nacks: bool = True) -> Station:
    """A manager with a queue for every reason to refuse."""
    beta = network.station("beta", 2, insecure_nacks=insecure_nacks)
    beta.create(SIGNED_ONLY, authenticate=True)
    beta.create(SECRET_ONLY, privacy="body")
    return beta


def asking(**attributes: object) -> Message:
    message = Message(b"body", label="a", ack="full", admin_queue=ACKS)
    for name, value in attributes.items():
        setattr(message, name, value)
    return message


def fill(station: Station, path: str) -> None:
    queue = station.queue(path)
    station.core.queues.change(station.core.tick, queue, 0, quota_kb=0)


# What is refused, and who is told

EXPRESS = [
    (MISSING, MessageClass.NACK_BAD_DST_Q),
    (LEDGER, MessageClass.NACK_NOT_TRANSACTIONAL_MSG),
    (SIGNED_ONLY, MessageClass.NACK_BAD_SIGNATURE),
    (SECRET_ONLY, MessageClass.NACK_BAD_ENCRYPTION),
]


@pytest.mark.spec("QB-3.1.5.8.2-09", "QB-3.1.5.8.2-11", "QB-3.1.7.15-03")
@pytest.mark.parametrize(("path", "reason"), EXPRESS)
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_message_is_refused(
    network: Network, alpha: Station, beta: Station, path: str, reason: MessageClass, recoverable: bool
) -> None:
    alpha.send(beta.direct(path), asking(recoverable=recoverable, dead_letter=True))
    assert alpha.classes(ACKS) == [reason]
    assert (beta.classes(DEADLETTER), beta.service.receiver.refusals) == ([reason], 1)
    assert network.final_acks(beta, alpha) == []
    network.wait(100)
    assert alpha.waiting(beta.direct(path)) == []
    assert beta.core.queues.find(path) is None or beta.labels(path) == []


@pytest.mark.spec("QB-3.1.5.8.2-09", "QB-3.1.5.8.2-10", "QB-2.2.5-01", "QB-3.1.7.17-02")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (MISSING, MessageClass.NACK_BAD_DST_Q),
        (ORDERS, MessageClass.NACK_NOT_TRANSACTIONAL_Q),
        (LEDGER, MessageClass.NACK_Q_EXCEED_QUOTA),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
def test_a_transactional_message_is_refused(
    network: Network, alpha: Station, beta: Station, path: str, reason: MessageClass, asks: bool
) -> None:
    fill(beta, LEDGER)
    alpha.send_transactional(beta.direct(path), asking(dead_letter=True) if asks else Message(label="a"))
    assert alpha.classes(ACKS) == ([reason] if asks else [])
    assert [ack.final_class for ack in network.final_acks(beta, alpha)] == [reason]
    assert alpha.classes(DEADXACT) == ([reason] if asks else [])
    network.wait(100)
    assert alpha.waiting(beta.direct(path)) == []
    assert network.sent(alpha, beta).count("a") == 1


@pytest.mark.spec("QB-3.1.5.8-02")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (MISSING, MessageClass.NACK_BAD_DST_Q),
        (LEDGER, MessageClass.NACK_NOT_TRANSACTIONAL_MSG),
        (SIGNED_ONLY, MessageClass.NACK_BAD_SIGNATURE),
        (ORDERS, MessageClass.NACK_REACH_QUEUE_TIMEOUT),
    ],
)
def test_of_several_reasons_the_earliest_check_names_its_own(
    network: Network, beta: Station, stranger: Stranger, path: str, reason: MessageClass
) -> None:
    """Every message here has also expired, and comes to a full queue."""
    for each in (LEDGER, SIGNED_ONLY, ORDERS):
        fill(beta, each)
    session = stranger.call(beta)
    late = asking(time_to_reach_queue=5, admin_queue=stranger.direct(ACKS))
    packet = stranger.compose(beta.direct(path), late)
    network.now += 10
    stranger.send(session, packet)
    assert [view.message_class for view in stranger.messages] == [reason]


@pytest.mark.spec("QB-5.1-03", "QB-3.1.1.3-14", "QB-6-15", "QB-3.1.7.15-02")
@pytest.mark.parametrize("permitted", [False, True])
@pytest.mark.parametrize(("path", "reason"), EXPRESS)
def test_acknowledgments_that_reveal_too_much_are_withheld_unless_permitted(
    network: Network, alpha: Station, path: str, reason: MessageClass, permitted: bool
) -> None:
    beta = furnished(network, insecure_nacks=permitted)
    alpha.send(beta.direct(path), asking())
    kept_back = reason in INSECURE and not permitted
    assert alpha.classes(ACKS) == ([] if kept_back else [reason])


def test_by_default_it_is_not_permitted(network: Network, alpha: Station) -> None:
    beta = network.station("beta", 2)
    alpha.send(beta.direct(MISSING), asking())
    assert alpha.classes(ACKS) == []


# Quotas


@pytest.mark.spec("QB-3.1.5.8.8-02", "QB-3.1.5.8.8-03")
@pytest.mark.parametrize("guarded", [True, False])
def test_a_full_queue_refuses_and_keeps_a_dead_letter_of_its_own(
    network: Network, alpha: Station, beta: Station, guarded: bool
) -> None:
    fill(beta, ORDERS)
    alpha.send(beta.direct(ORDERS), asking(dead_letter=guarded))
    assert alpha.classes(ACKS) == [MessageClass.NACK_Q_EXCEED_QUOTA]
    assert beta.classes(DEADLETTER) == ([MessageClass.NACK_Q_EXCEED_QUOTA] if guarded else [])
    network.wait(100)
    assert alpha.waiting(beta.direct(ORDERS)) == []


@pytest.mark.spec("QB-3.1.5.8.8-02", "QB-3.1.5.8.8-03")
def test_of_a_transactional_message_the_sender_keeps_the_dead_letter(
    network: Network, alpha: Station, beta: Station
) -> None:
    fill(beta, LEDGER)
    alpha.send_transactional(beta.direct(LEDGER), asking(dead_letter=True))
    assert (beta.classes(DEADLETTER), beta.classes(DEADXACT)) == ([], [])
    assert alpha.classes(DEADXACT) == [MessageClass.NACK_Q_EXCEED_QUOTA]


@pytest.mark.spec("QB-3.1.5.8.8-04")
@pytest.mark.parametrize("forwarded", [False, True])
def test_a_full_manager_closes_the_session_and_says_nothing(
    network: Network, alpha: Station, beta: Station, gamma: Station, forwarded: bool
) -> None:
    there = gamma.private(ORDERS) if forwarded else beta.private(ORDERS)
    network.routes[alpha, gamma.identifier] = [beta]
    beta.use(quota_kb=0)
    alpha.send(there, asking(dead_letter=True, recoverable=True))
    assert network.links == []
    assert (alpha.classes(ACKS), alpha.labels(DEADLETTER), beta.labels(DEADLETTER)) == ([], [], [])
    assert alpha.waiting(there) == ["a"]
    assert alpha.outgoing(there).history[-1].status is ConnectionStatus.UNKNOWN_FAILURE
    beta.use(quota_kb=None)
    network.wait(alpha.settings.retry_connect_s)
    assert (gamma if forwarded else beta).labels(ORDERS) == ["a"]


# What is delivered, and who is told


@pytest.mark.spec("QB-3.1.5.8.10-01", "QB-3.1.5.8.8-01", "QB-3.1.5.8.5-01")
@pytest.mark.parametrize("by", ["direct", "private"])
def test_a_message_that_reached_its_queue_is_answered(network: Network, alpha: Station, beta: Station, by: str) -> None:
    there = beta.direct(ORDERS) if by == "direct" else beta.private(ORDERS)
    (sent,) = alpha.send(there, asking(priority=6))
    (view,) = beta.messages(ORDERS)
    assert (view.message_id, view.label, view.body, view.priority) == (sent, "a", b"body", 6)
    assert view.data == network.user_messages(alpha, beta)[0].data
    (ack,) = alpha.messages(ACKS)
    assert ack.message_class == MessageClass.ACK_REACH_QUEUE
    assert ack.correlation_id == view.identifier
    assert response_name(ack) == parse_format_name(there)
    assert (ack.time_to_reach_queue, ack.ack_flags) == (INFINITE, 0)


@pytest.mark.spec("QB-3.1.5.8.5-01")
def test_a_direct_name_leads_here_whatever_it_calls_this_computer(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(r"DIRECT=OS:an-alias.example\private$\orders", "a"))
    assert beta.labels(ORDERS) == ["a"]


@pytest.mark.spec("QB-3.1.7.2.1-02", "QB-3.1.7.2-01")
@pytest.mark.parametrize(("ack", "told"), [("receive", True), ("full", True), ("reach-queue", False)])
def test_a_message_that_was_received_is_answered(
    network: Network, alpha: Station, beta: Station, ack: str, told: bool
) -> None:
    alpha.send(beta.direct(ORDERS), asking(ack=ack))
    beta.receive(ORDERS)
    assert (MessageClass.ACK_RECEIVE in alpha.classes(ACKS)) is told


def purge(station: Station, queue: Queue) -> None:
    station.core.purge(queue, station.network.now)


def delete(station: Station, queue: Queue) -> None:
    station.core.delete_queue(queue, station.network.now)


def expire(station: Station, queue: Queue) -> None:
    station.network.wait(31)


@pytest.mark.spec("QB-3.1.7.2.1-03", "QB-3.1.7.2.1-05", "QB-3.1.7.2-01")
@pytest.mark.parametrize(
    ("remove", "reason"),
    [
        (purge, MessageClass.NACK_Q_PURGED),
        (delete, MessageClass.NACK_Q_DELETED),
        (expire, MessageClass.NACK_RECEIVE_TIMEOUT),
    ],
)
@pytest.mark.parametrize(("ack", "told"), [("nack-receive", True), ("full", True), ("nack-reach-queue", False)])
def test_a_message_that_was_never_received_is_answered(
    network: Network,
    alpha: Station,
    beta: Station,
    remove: Callable[[Station, Queue], None],
    reason: MessageClass,
    ack: str,
    told: bool,
) -> None:
    alpha.send(beta.direct(ORDERS), asking(ack=ack, time_to_be_received=30))
    remove(beta, beta.queue(ORDERS))
    network.run()
    assert (reason in alpha.classes(ACKS)) is told


def receive(station: Station, queue: Queue) -> None:
    station.receive(queue.name)


def reject(station: Station, queue: Queue) -> None:
    """No verb does this. It is the event itself, Message Position Deleted, with this reason."""
    (record,) = queue.available(1)
    station.core.delivery.take(queue, record, MessageClass.NACK_RECEIVE_REJECTED, station.network.now)


@pytest.mark.spec("QB-3.1.7.2.1-04")
@pytest.mark.parametrize(
    ("remove", "code"),
    [(receive, 0x4000), (delete, 0xC000), (purge, 0xC001), (expire, 0xC002), (reject, 0xC004)],
)
def test_the_class_of_an_answer_says_how_the_message_left(
    network: Network, alpha: Station, beta: Station, remove: Callable[[Station, Queue], None], code: int
) -> None:
    alpha.send(beta.direct(ORDERS), asking(time_to_be_received=30))
    remove(beta, beta.queue(ORDERS))
    network.run()
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE, code]


@pytest.mark.spec("QB-3.1.7.2.1-01", "QB-3.1.7.15-11")
@pytest.mark.parametrize("recoverable", [False, True])
def test_an_answer_is_as_durable_as_the_message(
    network: Network, alpha: Station, beta: Station, recoverable: bool
) -> None:
    alpha.send(beta.direct(ORDERS), asking(recoverable=recoverable))
    beta.receive(ORDERS)
    assert [view.recoverable for view in alpha.messages(ACKS)] == [recoverable, recoverable]


@pytest.mark.spec("QB-3.1.5.11-01", "QB-3.1.5.11-02", "QB-3.1.5.1.1-05")
def test_an_answer_is_a_message_like_any_other(network: Network, alpha: Station, stranger: Stranger) -> None:
    answer = Message(label="ack", message_class=MessageClass.ACK_REACH_QUEUE, recoverable=True)
    packet = stranger.compose(alpha.direct(ACKS), answer)
    session = stranger.call(alpha)
    stranger.send(session, packet, packet)
    assert alpha.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE]
    network.wait(1)
    assert stranger.acknowledged == [packet, packet]


@pytest.mark.spec("QB-1.3.5.2-01")
def test_an_answer_goes_the_way_that_the_administration_queue_names(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    alpha.send(beta.direct(ORDERS), asking(ack="reach-queue", admin_queue=gamma.direct(ACKS)))
    assert network.connections == [("alpha", beta.address), ("beta", gamma.address)]
    assert gamma.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE]
    network.public[gamma.queue(ACKS).properties.identifier] = gamma
    public = f"PUBLIC={gamma.queue(ACKS).properties.identifier}"
    alpha.send(beta.direct(ORDERS), asking(ack="reach-queue", admin_queue=public))
    assert gamma.classes(ACKS) == [MessageClass.ACK_REACH_QUEUE] * 2


def test_without_a_directory_an_answer_goes_back_by_the_session_it_answers(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    network.routes[beta, stranger.identifier] = []
    session = stranger.call(beta)
    packet = stranger.compose(beta.direct(ORDERS), asking(admin_queue=f"PRIVATE={stranger.identifier}\\9"))
    stranger.send(session, packet)
    assert [view.message_class for view in stranger.messages] == [MessageClass.ACK_REACH_QUEUE]
    assert network.connections == []


# The manager's own queues


@pytest.mark.spec("QB-6-30", "QB-6-02")
@pytest.mark.parametrize("path", [r"private$\admin_queue$", r"private$\notify_queue$", r"private$\order_queue$"])
@pytest.mark.parametrize("by", ["direct", "private"])
def test_messages_to_a_managers_own_queues_are_neither_answered_nor_journaled(
    network: Network, alpha: Station, beta: Station, path: str, by: str
) -> None:
    there = beta.direct(path) if by == "direct" else beta.private(path)
    alpha.send(there, asking(recoverable=True, journal=True, dead_letter=True))
    network.wait(1)
    assert alpha.waiting(there) == []
    assert network.sent(alpha, beta) == ["a"]
    assert alpha.classes(ACKS) == []
    assert [alpha.labels(name) for name in (JOURNAL, DEADLETTER)] == [[], []]
    assert beta.labels(path) == []


@pytest.mark.parametrize(
    "tail", [r"private$\orders;journal", "system$;deadletter", "system$;journal", r"private$\orders;aside"]
)
def test_nobody_sends_into_a_journal(network: Network, beta: Station, stranger: Stranger, tail: str) -> None:
    owner = beta.queue(ORDERS)
    beta.core.queues.subqueue(beta.core.tick, owner, "aside", int(network.now))
    packet = stranger.compose(beta.direct(tail), asking(admin_queue=stranger.direct(ACKS)))
    stranger.send(stranger.call(beta), packet)
    assert [view.message_class for view in stranger.messages] == [MessageClass.NACK_BAD_DST_Q]
    assert destination_name(stranger.messages[0]) == parse_format_name(stranger.direct(ACKS))
    assert all(queue.count == 0 for queue in beta.core.queues if not queue.is_outgoing)
