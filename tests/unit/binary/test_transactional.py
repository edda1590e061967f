"""Transactional sequences, [MS-MQQB] 3.1.1.5 and 3.1.5.8.6: every message exactly once, and in its order."""

from __future__ import annotations

import pytest

from postroad.binary.sequences import IncomingSequence
from postroad.message import Message
from postroad.queues.transactions import MOST_APART
from postroad.wire.headers import TransactionHeader, TxSequenceId
from tests.unit.binary.network import DEADXACT, LEDGER, ORDERS, Network, Party, Station
from tests.unit.binary.stranger import Stranger

ORDER_ACK_S = 0.5
OLDER, CURRENT, NEWER = TxSequenceId(4, 100), TxSequenceId(5, 100), TxSequenceId(6, 100)
# Ordinal is first on the wire, and TimeStamp decides.
OLDER_STAMP, NEWER_STAMP = TxSequenceId(9, 99), TxSequenceId(1, 101)


def places(network: Network, sender: Station, receiver: Party) -> list[TransactionHeader]:
    headers = [view.transaction_header for view in network.user_messages(sender, receiver)]
    return [header for header in headers if header is not None]


def numbers(network: Network, sender: Station, receiver: Party) -> list[tuple[int, int]]:
    """Number and previous number of each transactional message that was sent."""
    return [(each.sequence_number, each.previous_sequence_number) for each in places(network, sender, receiver)]


def incoming(station: Station) -> IncomingSequence:
    (sequence,) = station.service.receiver.incoming
    return sequence


# The sender


@pytest.mark.spec("QB-3.1.1.5-01", "QB-3.1.1.5-03", "QB-3.1.7.1.3-01", "QB-3.1.7.1.3-02")
@pytest.mark.spec("QB-3.1.1.3.1-09", "QB-3.1.1.3.1-13", "QB-3.1.1.3.1.1-02")
def test_messages_are_numbered_from_1_in_one_sequence(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    alpha.send_transactional(there, "b", "c")
    assert numbers(network, alpha, beta) == [(1, 0), (2, 1), (3, 2)]
    (sequence_id,) = {each.sequence_id for each in places(network, alpha, beta)}
    assert 1 <= sequence_id.ordinal <= MOST_APART
    unacked = alpha.service.sender.sequences[alpha.queue(there)].unacked
    assert [(each.sequence, each.number) for each in unacked] == [(sequence_id, each) for each in (1, 2, 3)]
    assert alpha.core.transacting.next_place(there) == (sequence_id, 4)


@pytest.mark.spec("QB-3.1.1.1.1.7-01", "QB-3.1.5.6-08", "QB-3.1.1.6.2-07", "QB-3.1.1.6.2-08", "QB-6-18")
@pytest.mark.spec("QB-3.1.1.3.1.2-03", "QB-3.1.7.1.6-02")
def test_a_message_leaves_with_its_second_acknowledgment_the_order_ack(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a")
    (flight,) = alpha.service.sender.sequences[alpha.queue(there)].unacked
    assert (flight.sent_at, flight.session_acked, flight.order_acked) == (network.now, False, False)
    network.wait(1)  # the stranger acknowledges what it has stored, and no order
    assert (flight.session_acked, flight.order_acked) == (True, False)
    assert alpha.waiting(there) == ["a"]
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    assert (flight.session_acked, flight.order_acked) == (True, True)
    assert alpha.waiting(there) == []


@pytest.mark.spec("QB-3.1.1.1.1.7-01", "QB-3.1.5.6-09", "QB-3.1.5.5.3-03")
def test_a_message_leaves_with_its_second_acknowledgment_the_session_ack(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = stranger.direct(LEDGER)
    stranger.stores = False
    alpha.send_transactional(there, "a")
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    assert alpha.waiting(there) == ["a"]
    stranger.sessions[0].stored(1, network.now)
    network.wait(1)
    assert alpha.waiting(there) == []
    network.wait(100)
    assert network.sent(alpha, stranger) == ["a"]


def test_a_message_that_was_put_in_order_is_not_sent_again_if_the_session_is_lost(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    stranger.stores = False
    alpha.send_transactional(stranger.direct(LEDGER), "a")
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    network.cut(alpha, stranger)
    network.wait(100)
    assert alpha.waiting(stranger.direct(LEDGER)) == []
    assert network.sent(alpha, stranger) == ["a"]


@pytest.mark.spec("QB-3.1.7.1.3-15", "QB-3.1.5.8.1-01", "QB-3.1.5.8.6-02")
def test_a_message_sent_again_after_a_lost_session_keeps_its_number(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    network.cut(alpha, beta)
    assert (beta.labels(LEDGER), alpha.waiting(there)) == (["a", "b"], ["a", "b"])
    network.wait(alpha.settings.retry_connect_s)
    assert numbers(network, alpha, beta) == [(1, 0), (2, 1), (1, 0), (2, 1)]
    assert beta.labels(LEDGER) == ["a", "b"]
    network.wait(1)
    assert alpha.waiting(there) == []


@pytest.mark.spec("QB-3.1.3.2-07")
def test_what_the_destination_has_and_has_not_put_in_order_is_sent_again_on_a_new_session(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.wait(20)  # the stranger acknowledges what it has stored, and no order
    network.cut(alpha, stranger)
    alpha.send_transactional(there, "b")
    network.wait(5)
    assert numbers(network, alpha, stranger) == [(1, 0), (1, 0), (2, 1)]
    network.wait(20)  # the timer starts with the new session
    assert numbers(network, alpha, stranger) == [(1, 0), (1, 0), (2, 1)]
    network.wait(10)
    assert numbers(network, alpha, stranger) == [(1, 0), (1, 0), (2, 1), (1, 0), (2, 1)]


def test_what_a_routing_server_has_waits_for_its_own_timer_through_lost_sessions(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    """A routing server that cannot send on would otherwise get everything again with each new session."""
    network.routes[alpha, gamma.identifier] = [beta]
    there = gamma.private(LEDGER)
    network.refused.add(gamma.address)
    alpha.send_transactional(there, "a")
    network.wait(20)
    assert beta.waiting(there) == ["a"]
    network.cut(alpha, beta)
    alpha.send_transactional(there, "b")
    network.wait(5)
    assert numbers(network, alpha, beta) == [(1, 0), (2, 1)]
    network.wait(10)
    assert numbers(network, alpha, beta) == [(1, 0), (2, 1), (1, 0), (2, 1)]


@pytest.mark.spec("QB-3.1.1.3.1.2-02", "QB-3.1.1.3.1-14")
def test_numbers_survive_a_restart_of_the_sender(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    before = places(network, alpha, beta)
    alpha.restart()
    alpha.send_transactional(there, "c")
    assert places(network, alpha, beta)[2:4] == before
    assert numbers(network, alpha, beta)[4:] == [(3, 2)]
    assert len({each.sequence_id for each in places(network, alpha, beta)}) == 1
    assert beta.labels(LEDGER) == ["a", "b", "c"]


@pytest.mark.spec("QB-3.1.7.1.3-04", "MQ-2.2.20.5-15")
def test_a_message_sent_again_bridges_one_that_has_expired(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(ORDERS), "opens the session")
    network.hold(alpha, beta)
    alpha.send_transactional(beta.direct(LEDGER), "a", Message(label="b", time_to_reach_queue=5), "c")
    assert numbers(network, alpha, beta)[1:] == [(1, 0), (2, 1), (3, 2)]
    network.wait(6)
    network.cut(alpha, beta)
    network.release()
    network.wait(alpha.settings.retry_connect_s)
    assert numbers(network, alpha, beta)[-2:] == [(1, 0), (3, 1)]
    assert beta.labels(LEDGER) == ["a", "c"]


@pytest.mark.spec("QB-3.1.7.1.3-05")
def test_the_first_of_a_sequence_bridges_to_its_beginning(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    network.refused.add(beta.address)
    alpha.send_transactional(there, Message(label="a", time_to_reach_queue=5), "b")
    network.wait(6)
    network.refused.clear()
    network.wait(alpha.settings.retry_connect_s)
    assert numbers(network, alpha, beta) == [(2, 0)]
    assert beta.labels(LEDGER) == ["b"]


@pytest.mark.spec("QB-3.1.7.1.3-05")
def test_behind_an_acknowledged_message_it_bridges_to_that(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 2))
    network.hold(alpha, stranger)
    alpha.send_transactional(there, Message(label="c", time_to_reach_queue=5), "d")
    network.wait(6)
    network.cut(alpha, stranger)
    network.release()
    network.wait(alpha.settings.retry_connect_s)
    assert numbers(network, alpha, stranger) == [(1, 0), (2, 1), (3, 2), (4, 3), (4, 2)]


@pytest.mark.spec("QB-3.1.5.6-12", "QB-3.1.1.5-04", "QB-3.1.1.3.1-08", "MQ-2.2.20.5-12")
def test_when_everything_has_been_acknowledged_a_new_sequence_begins(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    network.wait(ORDER_ACK_S)
    assert alpha.waiting(there) == []
    alpha.send_transactional(there, "c", "d")
    assert numbers(network, alpha, beta) == [(1, 0), (2, 1), (1, 0), (2, 1)]
    first, _, third, fourth = (each.sequence_id for each in places(network, alpha, beta))
    assert third == fourth
    assert third.time_stamp == first.time_stamp
    assert 1 <= third.ordinal - first.ordinal <= MOST_APART
    assert beta.labels(LEDGER) == ["a", "b", "c", "d"]


@pytest.mark.spec("QB-3.1.5.6-12")
def test_a_sequence_goes_on_while_a_message_of_it_is_not_acknowledged(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    network.wait(1)
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    alpha.send_transactional(there, "c")
    assert numbers(network, alpha, stranger) == [(1, 0), (2, 1), (3, 2)]
    assert len({each.sequence_id for each in places(network, alpha, stranger)}) == 1


def test_a_sequence_does_not_end_before_it_is_durable_that_it_has(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = stranger.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.wait(1)
    alpha.commits = False
    stranger.send(stranger.sessions[0], stranger.order_ack(alpha, 1))
    alpha.seal()
    alpha.lose()  # that it has left: it is there again
    alpha.commits = True
    alpha.send_transactional(there, "b")
    assert numbers(network, alpha, stranger) == [(1, 0), (1, 0), (2, 1)]
    assert len({each.sequence_id for each in places(network, alpha, stranger)}) == 1


def test_every_destination_has_a_sequence_of_its_own(network: Network, alpha: Station, beta: Station) -> None:
    beta.create(r"private$\other", transactional=True)
    alpha.send_transactional(beta.direct(LEDGER), "a", "b")
    alpha.send_transactional(beta.direct(r"private$\other"), "c", "d")
    assert numbers(network, alpha, beta) == [(1, 0), (2, 1), (1, 0), (2, 1)]
    assert len({each.sequence_id for each in places(network, alpha, beta)}) == 2
    network.wait(ORDER_ACK_S)
    assert alpha.waiting(beta.direct(LEDGER)) == alpha.waiting(beta.direct(r"private$\other")) == []


# The receiver


@pytest.mark.spec("QB-3.1.5.8.6-01", "QB-3.1.5.8.6-03", "QB-3.1.5.8.6-04", "QB-3.1.1.5-02", "QB-3.1.1.5-07")
@pytest.mark.spec("QB-3.1.5.8.6-08")
@pytest.mark.parametrize(
    ("place", "accepted"),
    [
        ((CURRENT, 3, 2), True),
        ((CURRENT, 5, 2), True),
        ((CURRENT, 3, 0), True),
        ((CURRENT, 5, 4), False),
        ((CURRENT, 2, 1), False),
        ((CURRENT, 1, 0), False),
        ((NEWER, 1, 0), True),
        ((NEWER, 7, 0), True),
        ((NEWER, 2, 1), False),
        ((OLDER, 1, 0), False),
        ((OLDER, 3, 2), False),
        ((NEWER_STAMP, 1, 0), True),
        ((OLDER_STAMP, 1, 0), False),
    ],
)
@pytest.mark.parametrize("by", ["direct", "private"])
def test_a_message_is_accepted_where_it_is_the_next(
    network: Network, beta: Station, stranger: Stranger, place: tuple[TxSequenceId, int, int], accepted: bool, by: str
) -> None:
    there = beta.direct(LEDGER) if by == "direct" else beta.private(LEDGER)
    session = stranger.call(beta)
    stranger.send(session, *(stranger.compose(there, str(each), (CURRENT, each, each - 1)) for each in (1, 2)))
    stranger.send(session, stranger.compose(there, "new", place))
    assert beta.labels(LEDGER) == ["1", "2", *(["new"] if accepted else [])]
    after = (place[0], place[1]) if accepted else (CURRENT, 2)
    assert (incoming(beta).sequence_id, incoming(beta).number) == after


@pytest.mark.spec("QB-3.1.1.3.1-15", "QB-3.1.1.3.1-17")
@pytest.mark.parametrize(("place", "accepted"), [((OLDER, 1, 0), True), ((OLDER, 7, 0), True), ((OLDER, 2, 1), False)])
def test_of_an_unknown_sender_any_beginning_is_accepted(
    beta: Station, stranger: Stranger, place: tuple[TxSequenceId, int, int], accepted: bool
) -> None:
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "a", place))
    assert (beta.labels(LEDGER) == ["a"]) is accepted
    if not accepted:
        assert (incoming(beta).sequence_id, incoming(beta).number) == (TxSequenceId(0, 0), 0)


@pytest.mark.spec("QB-3.1.1.1.1.8-01", "QB-3.1.5.8.6-02", "QB-3.1.5.8.6-08")
def test_what_is_out_of_order_or_repeated_is_dropped_and_answered(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    there = beta.direct(LEDGER)
    session = stranger.call(beta)
    for number in (1, 3, 2, 2):
        stranger.send(session, stranger.compose(there, str(number), (CURRENT, number, number - 1)))
        network.wait(ORDER_ACK_S)
    assert beta.labels(LEDGER) == ["1", "2"]
    assert [ack.sequence_number for ack in stranger.order_acks] == [1, 1, 2, 2]


@pytest.mark.spec("QB-3.1.1.3.1-16", "QB-3.1.1.3.1-18", "QB-3.1.5.8.1-01")
def test_a_restarted_receiver_knows_what_it_has(network: Network, beta: Station, stranger: Stranger) -> None:
    there = beta.direct(LEDGER)
    packets = [stranger.compose(there, str(each), (CURRENT, each, each - 1)) for each in (1, 2, 3)]
    stranger.send(stranger.call(beta), *packets[:2])
    assert len(beta.service.receiver.history) == 0
    beta.restart()
    assert (incoming(beta).sequence_id, incoming(beta).number) == (CURRENT, 2)
    stranger.send(stranger.call(beta), *packets)
    assert beta.labels(LEDGER) == ["1", "2", "3"]


@pytest.mark.spec("QB-3.1.5.8.6-05", "QB-3.1.5.8.6-06", "QB-3.1.5.8.6-07", "QB-3.1.1.3.1-12")
def test_rejections_are_counted_until_a_message_is_accepted(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    there = beta.direct(LEDGER)
    session = stranger.call(beta)
    stranger.send(session, stranger.compose(there, "1", (CURRENT, 1, 0)))
    assert (incoming(beta).rejects, incoming(beta).last_access_s) == (0, int(network.now))
    network.wait(7)
    stranger.send(session, *(stranger.compose(there, "1", (CURRENT, 1, 0)) for _ in range(3)))
    assert (incoming(beta).rejects, incoming(beta).last_access_s) == (3, int(network.now))
    beta.restart()
    assert (incoming(beta).rejects, incoming(beta).last_access_s) == (3, int(network.now))
    network.wait(7)
    stranger.send(stranger.call(beta), stranger.compose(there, "2", (CURRENT, 2, 1)))
    assert (incoming(beta).rejects, incoming(beta).last_access_s) == (0, int(network.now))


@pytest.mark.spec("QB-3.1.5.8.6-09")
def test_a_message_that_was_refused_for_good_does_not_hold_up_the_next(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    beta.core.queues.change(beta.core.tick, beta.queue(LEDGER), 0, quota_kb=2)
    there = beta.direct(LEDGER)
    session = stranger.call(beta)
    bodies = (b"", bytes(4000), b"")
    stranger.send(
        session,
        *(
            stranger.compose(there, Message(body, label=str(number)), (CURRENT, number, number - 1))
            for number, body in enumerate(bodies, 1)
        ),
    )
    assert beta.labels(LEDGER) == ["1", "3"]
    network.wait(ORDER_ACK_S)
    assert [ack.sequence_number for ack in stranger.order_acks] == [3]


def test_senders_and_names_have_sequences_of_their_own(network: Network, beta: Station, stranger: Stranger) -> None:
    other = Stranger(network, "other", 8)
    for sender in (stranger, other):
        session = sender.call(beta)
        for there in (beta.direct(LEDGER), beta.private(LEDGER)):
            sender.send(session, sender.compose(there, sender.name, (CURRENT, 1, 0)))
    assert beta.labels(LEDGER) == ["stranger", "stranger", "other", "other"]


@pytest.mark.spec("QB-3.1.1.3.2-01")
def test_a_place_is_not_taken_before_the_message_is_durable(
    network: Network, beta: Station, stranger: Stranger
) -> None:
    session = stranger.call(beta)
    beta.commits = False
    stranger.send(session, stranger.compose(beta.direct(LEDGER), "1", (CURRENT, 1, 0)))
    network.wait(3)
    assert stranger.order_acks == []
    beta.restart()
    assert list(beta.service.receiver.incoming) == []
    beta.commits = True
    stranger.send(stranger.call(beta), stranger.compose(beta.direct(LEDGER), "1", (CURRENT, 1, 0)))
    network.wait(ORDER_ACK_S)
    assert beta.labels(LEDGER) == ["1"]
    assert [ack.sequence_number for ack in stranger.order_acks] == [1]


def test_what_came_on_top_of_a_lost_tick_is_lost_with_it(network: Network, beta: Station, stranger: Stranger) -> None:
    there = beta.direct(LEDGER)
    packets = [stranger.compose(there, str(each), (CURRENT, each, each - 1)) for each in range(1, 6)]
    session = stranger.call(beta)
    stranger.send(session, packets[0])
    beta.commits = False
    stranger.send(session, *packets[1:3])
    beta.seal()
    stranger.send(session, *packets[3:])
    beta.lose()
    beta.commits = True
    network.run()
    assert (beta.labels(LEDGER), incoming(beta).number) == (["1"], 1)
    assert beta.queue(LEDGER).used_bytes == beta.queue(LEDGER).stored_bytes
    stranger.send(stranger.call(beta), *packets)
    network.wait(ORDER_ACK_S)
    assert beta.labels(LEDGER) == ["1", "2", "3", "4", "5"]
    assert [ack.sequence_number for ack in stranger.order_acks] == [5]
    beta.restart()
    assert (beta.labels(LEDGER), incoming(beta).number) == (["1", "2", "3", "4", "5"], 5)


def test_a_full_manager_takes_no_place_of_a_sequence(network: Network, alpha: Station, beta: Station) -> None:
    beta.core.throttle(on=True)
    alpha.send_transactional(beta.direct(LEDGER), "a", "b")
    assert beta.labels(LEDGER) == []
    beta.core.throttle(on=False)
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(LEDGER) == ["a", "b"]
    assert alpha.labels(DEADXACT) == []


@pytest.mark.spec("QB-3.1.1.5-01")
def test_a_new_sequence_waits_until_the_last_one_is_in_order(network: Network, alpha: Station, beta: Station) -> None:
    """A restarted sender begins a new sequence. If the receiver saw it first, the old one would wait for ever."""
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "1", "2", "3")
    network.hold(beta, alpha)  # they arrive, and nobody hears of it
    network.wait(5)
    alpha.restart()
    alpha.send_transactional(there, "4")
    network.release()
    network.wait(120)
    assert beta.labels(LEDGER) == ["1", "2", "3", "4"]
    assert alpha.waiting(there) == []
    assert alpha.queue(there).count == 0
