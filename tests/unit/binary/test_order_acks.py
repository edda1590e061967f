"""OrderAcks, [MS-MQQB] 3.1.1.6.2, 3.1.5.6 and 3.1.6.9: how far a sequence has come, and when messages are sent
again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from postroad.binary import sequences
from postroad.binary.sender import OutgoingSequence
from postroad.binary.session import BinarySettings, Session
from postroad.message import Message
from postroad.wire.constants import MessageClass, QueueCode
from postroad.wire.headers import TxSequenceId
from postroad.wire.ordering import LABEL
from postroad.wire.view import MessageView
from tests.unit.binary.network import LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

TIMEOUT_S = 0.5  # OrderAckTimeout
SEQUENCE = TxSequenceId(3, 7)


def sequence(station: Station, name: str) -> OutgoingSequence:
    return station.service.sender.sequences[station.queue(name)]


def unacked(station: Station, name: str) -> list[int]:
    return [each.number for each in sequence(station, name).unacked]


# When one is sent


@pytest.mark.spec("QB-3.1.1.6.2-04", "QB-3.1.2.7-01", "QB-3.1.3.2-14", "QB-3.1.6.9-01")
def test_it_comes_half_a_second_after_the_message(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), "a")
    network.wait(TIMEOUT_S - 0.01)
    assert network.order_acks(beta, alpha) == []
    network.wait(0.01)
    assert len(network.order_acks(beta, alpha)) == 1
    network.wait(60)
    assert len(network.order_acks(beta, alpha)) == 1


@pytest.mark.spec("QB-3.1.1.6.2-03", "QB-3.1.1.6.2-06")
def test_more_messages_put_it_off_and_it_covers_them_all(network: Network, alpha: Station, beta: Station) -> None:
    for label in "abcd":
        alpha.send_transactional(beta.direct(LEDGER), label)
        network.wait(TIMEOUT_S - 0.1)
    assert network.order_acks(beta, alpha) == []
    network.wait(0.1)
    assert [ack.sequence_number for ack in network.order_acks(beta, alpha)] == [4]


@pytest.mark.spec("QB-3.1.1.6.2-03", "QB-3.1.1.6.2-05", "QB-3.1.3.2-16", "QB-6-24")
@pytest.mark.parametrize("longest_s", [10, 3])
def test_it_is_not_put_off_for_ever(network: Network, alpha: Station, longest_s: float) -> None:
    settings = BinarySettings() if longest_s == 10 else BinarySettings(max_order_ack_delay_s=longest_s)
    beta = network.station("beta", 2, settings)
    started = network.now
    while not network.order_acks(beta, alpha):
        alpha.send_transactional(beta.direct(LEDGER), "a")
        network.wait(0.1)
    assert longest_s <= network.now - started <= longest_s + 0.6


def test_many_messages_do_not_put_it_off(network: Network, alpha: Station) -> None:
    """The sender keeps all of the messages until the OrderAck comes, and then has to remove them all at once."""
    beta = network.station("beta", 2, BinarySettings(order_ack_messages=5))
    for count in range(20):
        alpha.send_transactional(beta.direct(LEDGER), str(count))
        network.wait(0.1)
    assert [ack.sequence_number for ack in network.order_acks(beta, alpha)] == [10, 20]


@pytest.mark.spec("QB-3.1.1.6.2-02")
def test_it_never_names_a_message_whose_predecessor_is_missing(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    there = beta.direct(LEDGER)
    session = stranger.call(beta)
    for number in (1, 2, 4):
        stranger.send(session, stranger.compose(there, str(number), (SEQUENCE, number, number - 1)))
    network.wait(TIMEOUT_S)
    stranger.send(session, stranger.compose(there, "3", (SEQUENCE, 3, 2)))
    network.wait(TIMEOUT_S)
    stranger.send(session, stranger.compose(there, "4", (SEQUENCE, 4, 3)))
    network.wait(TIMEOUT_S)
    assert [ack.sequence_number for ack in stranger.order_acks] == [2, 3, 4]


@pytest.mark.spec("QB-3.1.1.6.2-02")
def test_it_never_names_a_message_that_is_not_durable(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), "a")
    beta.commits = False
    alpha.send_transactional(beta.direct(LEDGER), "b")
    beta.seal()
    alpha.send_transactional(beta.direct(LEDGER), "c")
    network.wait(5)
    assert [ack.sequence_number for ack in network.order_acks(beta, alpha)] == [1]
    beta.land()
    network.wait(5)
    assert [ack.sequence_number for ack in network.order_acks(beta, alpha)] == [1, 2]
    beta.commits = True
    network.wait(5)
    assert [ack.sequence_number for ack in network.order_acks(beta, alpha)] == [1, 2, 3]


@pytest.mark.spec("QB-3.1.1.6.2-02")
def test_the_first_of_a_new_sequence_is_not_durable_because_the_first_of_the_last_was(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    there, newer = beta.direct(LEDGER), TxSequenceId(SEQUENCE.ordinal + 1, SEQUENCE.time_stamp)
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(there, "a", (SEQUENCE, 1, 0)))
    network.wait(TIMEOUT_S)
    beta.commits = False
    stranger.send(session, stranger.compose(there, "b", (newer, 1, 0)))
    network.wait(5)
    assert [ack.sequence_id for ack in stranger.order_acks] == [SEQUENCE]
    beta.commits = True
    network.wait(TIMEOUT_S)
    assert [ack.sequence_id for ack in stranger.order_acks] == [SEQUENCE, newer]


@pytest.mark.spec("QB-3.1.1.6.2-02", "QB-3.1.1.6.2-06")
def test_a_disk_that_is_always_behind_does_not_hold_it_up(network: Network, beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    beta.commits = False
    for number in range(1, 31):
        stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, number, number - 1)))
        if number > 1:
            beta.land()
        beta.seal()
        network.wait(0.4)
    acked = [ack.sequence_number for ack in stranger.order_acks]
    assert acked
    assert acked == sorted(set(acked))
    assert acked[-1] < 30


@pytest.mark.spec("QB-3.1.6.9-02", "QB-3.1.1.6.2-05")
def test_the_longest_wait_counts_from_the_last_one(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.wait(TIMEOUT_S)
    assert len(network.order_acks(beta, alpha)) == 1
    network.wait(60)  # more than the longest wait: the next one is put off no further
    started = network.now
    while len(network.order_acks(beta, alpha)) == 1:
        alpha.send_transactional(there, "a")
        network.wait(0.1)
    assert network.now - started == pytest.approx(TIMEOUT_S, abs=0.11)
    started = network.now
    while len(network.order_acks(beta, alpha)) == 2:
        alpha.send_transactional(there, "a")
        network.wait(0.1)
    assert 9.5 < network.now - started < 10.6


@pytest.mark.spec("QB-3.1.6.9-01")
def test_none_is_sent_for_a_session_that_has_closed(network: Network, beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 1, 0)))
    network.cut(stranger, beta)
    network.wait(60)
    assert (stranger.order_acks, network.connections) == ([], [])
    stranger.send(stranger.call(beta), stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 1, 0)))
    network.wait(TIMEOUT_S)
    assert [ack.sequence_number for ack in stranger.order_acks] == [1]


# What one says


@pytest.mark.spec("QB-2.2.4-08", "QB-3.1.7.17-07", "QB-3.1.5.8.2-03", "QB-2.2.4.1-02", "QB-2.2.4.1-03")
@pytest.mark.spec("QB-3.1.7.17-02", "QB-3.1.7.17-04")
def test_by_a_direct_name_it_goes_to_the_address_of_the_sender(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), "a", "b", "c")
    network.wait(TIMEOUT_S)
    (ack,) = network.order_acks(beta, alpha)
    *_, header = (view.transaction_header for view in network.user_messages(alpha, beta))
    assert header is not None
    assert ack.destination_queue.code is QueueCode.DIRECT
    assert ack.destination_queue.direct_name == f"TCP:{alpha.address}\\PRIVATE$\\order_queue$"
    assert ack.queue_manager_address.int == 0
    assert (ack.sequence_id, ack.sequence_number) == (header.sequence_id, 3)
    assert ack.message_class == MessageClass.ORDER_ACK
    assert ack.source_queue_manager == beta.identifier


@pytest.mark.spec("QB-3.1.7.17-08")
def test_by_a_guid_it_goes_to_the_guid_of_the_sender(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.private(LEDGER), "a")
    network.wait(TIMEOUT_S)
    (ack,) = network.order_acks(beta, alpha)
    assert (ack.destination_queue.code, ack.destination_queue.number) == (QueueCode.PRIVATE_ON_DESTINATION, 4)
    assert ack.queue_manager_address == alpha.identifier
    assert alpha.waiting(beta.private(LEDGER)) == []


@pytest.mark.spec("QB-2.2.4.1-05", "QB-3.1.7.17-04")
def test_its_previous_number_is_one_less_whatever_gaps_there_are(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 2, 0)))
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "b", (SEQUENCE, 5, 2)))
    network.wait(TIMEOUT_S)
    (ack,) = stranger.order_acks
    assert (ack.sequence_id, ack.sequence_number, ack.previous_sequence_number) == (SEQUENCE, 5, 4)


@pytest.mark.spec("QB-3.1.7.17-03")
@pytest.mark.parametrize("kind", ["order", "final"])
def test_ordering_acks_are_plain_messages(network: Network, alpha: Station, beta: Station, kind: str) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, Message(label="a", journal=True, priority=5, admin_queue=alpha.direct(ORDERS)))
    network.hold(beta, alpha)
    if kind == "final":
        beta.receive(LEDGER)
    network.wait(TIMEOUT_S)
    queue = beta.queue(f"DIRECT=TCP:{alpha.address}\\PRIVATE$\\order_queue$")
    view = MessageView(next(iter(queue.everything())).packet)
    assert (view.priority, view.tracing, view.label, view.body_type) == (0, False, LABEL, 0)
    assert view.recoverable is (kind == "final")  # an OrderAck is express, as 2.2.4 says
    assert (view.positive_journaling, view.negative_journaling, view.ack_flags) == (False, False, 0)
    assert (view.admin_queue.code, view.response_queue.code) == (QueueCode.NONE, QueueCode.NONE)
    assert (view.encrypted, view.signed, view.privacy_level) == (False, False, 0)


@pytest.mark.spec("QB-1.3.5.1-01", "QB-3.1.1.7.3-02")
def test_it_takes_a_session_that_is_there(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), "a")
    network.wait(TIMEOUT_S)
    assert len(network.order_acks(beta, alpha)) == 1
    assert network.connections == [("alpha", beta.address)]
    network.wait(60)
    assert network.session_acks(alpha, beta)[-1].session.ack_sequence_number == 1


@pytest.mark.spec("QB-1.3.5.1-01")
def test_a_final_ack_opens_a_session_where_there_is_none(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), Message(label="a", journal=True))
    network.wait(1)
    network.cut(alpha, beta)
    beta.receive(LEDGER)
    network.wait(beta.settings.retry_connect_s)
    assert network.connections == [("alpha", beta.address), ("beta", alpha.address)]
    assert len(network.final_acks(beta, alpha)) == 1


@pytest.mark.spec("QB-3.1.7.17-09")
def test_one_to_an_address_that_no_name_can_hold_is_dropped(network: Network, beta: Station) -> None:
    stranger = Stranger(network, "stranger", 9, address="a pipe")
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 1, 0)))
    stranger.send(session, stranger.compose(beta.direct(r"private$\missing"), "b", (SEQUENCE, 1, 0)))
    network.wait(1)
    assert (stranger.order_acks, stranger.final_acks) == ([], [])
    assert (beta.labels(LEDGER), session.closed) == (["a"], False)


def test_it_goes_back_to_a_link_local_address(network: Network, beta: Station) -> None:
    stranger = Stranger(network, "stranger", 9, address="fe80::9%eth0")
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", (SEQUENCE, 1, 0)))
    network.wait(TIMEOUT_S)
    (ack,) = stranger.order_acks
    assert ack.destination_queue.direct_name == "TCP:fe80::9\\PRIVATE$\\order_queue$"
    assert network.connections == []


# What one does


@pytest.fixture
def there(network: Network, alpha: Station, stranger: Stranger) -> str:
    """Four messages that the stranger has received, but not yet put in order."""
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a", "b", "c", "d")
    network.wait(1)
    return there


@pytest.mark.spec("QB-3.1.5.6-02", "QB-3.1.5.6-05", "QB-3.1.5.6-07", "QB-3.1.5.6-08")
def test_everything_up_to_its_number_leaves(network: Network, alpha: Station, stranger: Stranger, there: str) -> None:
    network.wait(3)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 2))
    assert (alpha.waiting(there), unacked(alpha, there)) == (["c", "d"], [3, 4])
    assert (sequence(alpha, there).last_ack_time, sequence(alpha, there).last_ack_count) == (network.now, 1)
    network.wait(3)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 3))
    assert (alpha.waiting(there), unacked(alpha, there)) == (["d"], [4])
    assert (sequence(alpha, there).last_ack_time, sequence(alpha, there).last_ack_count) == (network.now, 2)


@pytest.mark.spec("QB-3.1.5.6-04")
def test_an_older_one_takes_nothing_back(network: Network, alpha: Station, stranger: Stranger, there: str) -> None:
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 3))
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    assert (alpha.waiting(there), unacked(alpha, there)) == (["d"], [4])
    assert sequence(alpha, there).last_ack == (stranger.place.sequence_id, 3)
    network.cut(alpha, stranger)
    network.wait(31)
    assert (stranger.place.sequence_number, stranger.place.previous_sequence_number) == (4, 3)


@pytest.mark.spec("QB-3.1.5.6-10")
@pytest.mark.parametrize("other", [-1, +1])
def test_one_of_another_sequence_is_ignored(alpha: Station, stranger: Stranger, there: str, other: int) -> None:
    current = stranger.place.sequence_id
    foreign = TxSequenceId(current.ordinal + other, current.time_stamp)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 4, foreign))
    assert (alpha.waiting(there), unacked(alpha, there)) == (["a", "b", "c", "d"], [1, 2, 3, 4])


@pytest.mark.spec("QB-3.1.5.6-10")
def test_one_of_the_sequence_before_is_ignored(
    network: Network, alpha: Station, stranger: Stranger, there: str
) -> None:
    before = stranger.place.sequence_id
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 4))
    alpha.send_transactional(there, "e")
    network.wait(1)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 4, before))
    assert alpha.waiting(there) == ["e"]
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    assert alpha.waiting(there) == []


@pytest.mark.spec("QB-3.1.5.6-01", "QB-3.1.5.7-01")
@pytest.mark.parametrize("kind", ["order", "final"])
def test_one_before_the_session_is_open_closes_it(
    network: Network, alpha: Station, stranger: Stranger, there: str, kind: str
) -> None:
    view = stranger.messages[-1]
    packet = {
        "order": stranger.order_ack(alpha, 4),
        "final": stranger.final_ack(alpha, view, MessageClass.ACK_RECEIVE),
    }[kind]
    session = Session.initiate(stranger.identifier, alpha.identifier, stranger.settings, network.now)
    network.join(stranger, session, alpha)
    link = network.links[-1]
    opening = next(each for each, party in link.ends.items() if party is alpha)
    link.transit[session].append(packet)  # right behind the EstablishConnection
    network.run()
    assert opening.closed
    assert link not in network.links
    assert alpha.waiting(there) == ["a", "b", "c", "d"]


# When nobody answers


@pytest.mark.spec("QB-3.1.2.6-01", "QB-3.1.6.5-01", "QB-3.1.6.5-02", "QB-3.1.7.1.3-03", "QB-3.1.1.6-01")
def test_everything_is_sent_again_in_order_after_thirty_seconds(
    network: Network, alpha: Station, stranger: Stranger, there: str
) -> None:
    network.wait(28)
    assert network.sent(alpha, stranger) == ["a", "b", "c", "d"]
    (before, *_) = sequence(alpha, there).unacked
    assert before.session_acked
    network.wait(1)
    assert network.sent(alpha, stranger) == ["a", "b", "c", "d"] * 2
    assert not any(each.session_acked for each in sequence(alpha, there).unacked)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 4))
    network.wait(1)
    assert alpha.waiting(there) == []


@pytest.mark.spec("QB-6-10", "QB-3.1.6.5-03", "QB-3.1.1.3.1.1-01", "QB-3.1.3.1-01", "QB-3.1.1.3-16", "QB-3.1.5.6-03")
def test_the_time_between_two_tries_grows_with_every_one(network: Network, stranger: Stranger) -> None:
    alpha = network.station("alpha", 1, BinarySettings(cleanup_ms=10**9, retry_connect_s=3600))
    stranger.settings = alpha.settings
    alpha.send_transactional(stranger.direct(LEDGER), "a")
    sent_at = [network.now]
    for tries in range(2, 14):
        while len(network.sent(alpha, stranger)) < tries:
            deadline = alpha.service.sender._resends.get(alpha.queue(stranger.direct(LEDGER)))
            assert deadline is not None
            network.wait(deadline - network.now)
        sent_at.append(network.now)
    waits = [round(later - earlier) for earlier, later in pairwise(sent_at)]
    assert waits == [30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600, 21600, 21600]


@pytest.mark.spec("QB-6-11", "QB-3.1.3.1-01")
def test_the_table_can_be_configured(network: Network, stranger: Stranger) -> None:
    alpha = network.station("alpha", 1, BinarySettings(resend_s=(1, 2)))
    alpha.send_transactional(stranger.direct(LEDGER), "a")
    network.wait(5)
    assert len(network.sent(alpha, stranger)) == 4  # now, and after 1, 3 and 5 seconds


@pytest.mark.spec("QB-3.1.5.6-06", "QB-3.1.5.6-03")
@pytest.mark.parametrize("number", [4, 2])
def test_progress_brings_back_the_first_interval(
    network: Network, alpha: Station, stranger: Stranger, there: str, number: int
) -> None:
    network.wait(29 + 30 + 30)
    assert sequence(alpha, there).resend_index == 3
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, number))
    assert sequence(alpha, there).resend_index == 0
    resent = len(network.sent(alpha, stranger))
    alpha.send_transactional(there, "e")
    network.wait(29)
    assert len(network.sent(alpha, stranger)) == resent + 1
    network.wait(1)
    assert len(network.sent(alpha, stranger)) > resent + 1


@pytest.mark.spec("QB-3.1.1.3.1.1-03", "QB-3.1.2.6-02")
def test_the_time_of_the_next_try_is_known(network: Network, alpha: Station, stranger: Stranger) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a")
    assert sequence(alpha, there).resend_at == network.now + 30
    network.wait(30)
    assert sequence(alpha, there).resend_at == network.now + 30
    network.wait(60)
    assert sequence(alpha, there).resend_at == network.now + 300
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    assert sequence(alpha, there).resend_at is None


def test_while_there_is_no_session_nothing_is_lost(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.refused |= {alpha.address, beta.address}
    network.cut(alpha, beta)
    alpha.send_transactional(there, "b")
    network.wait(400)
    assert alpha.waiting(there) == ["a", "b"]
    network.refused.clear()
    network.wait(2)
    assert (alpha.waiting(there), beta.labels(LEDGER)) == ([], ["a", "b"])


# Sequences of one sender to several queues


@pytest.mark.parametrize("by_number", [True, False])
def test_sequences_to_names_that_differ_in_one_bit_stay_apart(
    network: Network, alpha: Station, beta: Station, by_number: bool
) -> None:
    """As octets, the characters U+4100 and U+6100, and the numbers 0x41 and 0x61, differ as A and a do."""
    if by_number:
        paths = [f"private$\\q{number:x}" for number in range(0x70)]
        created = {beta.create(path, transactional=True).properties.private_queue_number: path for path in paths}
        paths = [created[0x41], created[0x61]]
    else:
        paths = ["private$\\\u4100", "private$\\\u6100"]
        for path in paths:
            beta.create(path, transactional=True)
    for label in "abc":
        for path in paths:
            alpha.send_transactional(beta.private(path) if by_number else beta.direct(path), label)
            network.run()
    for path in paths:
        assert beta.labels(path) == ["a", "b", "c"]
    assert [each.rejects for each in beta.service.receiver.incoming] == [0, 0]


def test_a_sequence_of_an_older_version_goes_on(
    network: Network, alpha: Station, beta: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(0x50):
        last = beta.create(f"private$\\q{number}", transactional=True)
    path = last.properties.path
    with monkeypatch.context() as old:
        digests = sequences._digests
        old.setattr(sequences, "_digests", lambda destination: (digests(destination)[1],) * 2)
        alpha.send_transactional(beta.private(path), "a", "b")
        network.run()
    beta.restart()
    alpha.send_transactional(beta.private(path), "c")
    network.wait(60)
    assert beta.labels(path) == ["a", "b", "c"]
    assert len(list(beta.service.receiver.incoming)) == 1


def test_an_administrator_has_a_sequence_sent_again(network: Network, alpha: Station, beta: Station) -> None:
    name = beta.direct(LEDGER)
    network.hold(beta, alpha)  # no acknowledgment comes back
    alpha.send_transactional(name, "a", "b")
    network.run()
    sent = network.user_messages(alpha, beta)
    alpha.core.resend(alpha.queue(name), network.now)
    network.run()
    assert len(network.user_messages(alpha, beta)) == 2 * len(sent)
    network.release()
    network.wait(60)
    assert beta.labels(LEDGER) == ["a", "b"]
    assert alpha.core.queues.get(name).count == 0
