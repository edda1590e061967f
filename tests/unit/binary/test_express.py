"""Express messages between two managers, [MS-MQQB] 3.1.1.1.1.3 and 3.1.1.1.1.4: fast, and as safe as memory is."""

from __future__ import annotations

import pytest

from postroad.binary.session import BinarySettings
from postroad.message import Message
from postroad.queues.outgoing_queues import OutgoingState
from postroad.wire.constants import MessageClass, UserFlags
from postroad.wire.framer import Framer
from postroad.wire.view import MessageView
from tests.packets import marked_as_http
from tests.unit.binary.link import ack
from tests.unit.binary.network import ACKS, DEADLETTER, DEADXACT, JOURNAL, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

EXPRESS_ACK_S = 60.0  # half of AckWaitTimeout


def express(*labels: str) -> list[Message]:
    return [Message(b"body", label=label) for label in labels]


@pytest.mark.spec("QB-3.1.1.1.1.3-01", "QB-3.1.5.5.2-01", "QB-6-18")
def test_a_message_stays_until_the_peer_has_acknowledged_it(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, *express("a"))
    assert beta.labels(ORDERS) == ["a"]
    network.wait(EXPRESS_ACK_S - 1)
    assert alpha.waiting(there) == ["a"]
    network.wait(1)
    assert alpha.waiting(there) == []
    assert network.sent(alpha, beta) == ["a"]


@pytest.mark.spec("QB-3.1.1.1.1.3-01", "QB-3.1.5.5.4-01")
def test_a_copy_is_journaled_at_the_source_once_it_is_acknowledged(
    network: Network, alpha: Station, beta: Station
) -> None:
    alpha.send(beta.direct(ORDERS), Message(b"body", label="a", journal=True), *express("b"))
    assert alpha.labels(JOURNAL) == []
    network.wait(EXPRESS_ACK_S)
    assert alpha.labels(JOURNAL) == ["a"]
    assert (beta.labels(ORDERS), beta.labels(JOURNAL)) == (["a", "b"], [])


@pytest.mark.spec("QB-3.1.1.1.1.3-01", "QB-3.1.6.1-04")
def test_what_a_lost_session_had_not_acknowledged_is_sent_again(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, *express("first"))
    network.wait(EXPRESS_ACK_S)
    network.hold(alpha, beta)
    alpha.send(there, *express("a", "b"))
    network.cut(alpha, beta)
    assert (beta.labels(ORDERS), alpha.waiting(there)) == (["first"], ["a", "b"])
    network.release()
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(ORDERS) == ["first", "a", "b"]
    assert network.sent(alpha, beta) == ["first", "a", "b", "a", "b"]
    assert len(network.history) == 2


@pytest.mark.spec("QB-3.1.1.1.1.4-01")
def test_nothing_of_it_is_written(network: Network, alpha: Station, beta: Station) -> None:
    beta.commits = False
    alpha.send(beta.direct(ORDERS), *express("a", "b"))
    assert beta.labels(ORDERS) == ["a", "b"]
    assert not beta.core.tick
    network.wait(EXPRESS_ACK_S)
    (ack,) = network.session_acks(beta, alpha)
    assert ack.session.ack_sequence_number == 2
    assert alpha.waiting(beta.direct(ORDERS)) == []


@pytest.mark.spec("QB-3.1.1.1.1.4-01")
def test_a_restart_of_the_receiver_forgets_it(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), *express("a"))
    network.wait(EXPRESS_ACK_S)
    beta.restart()
    assert beta.labels(ORDERS) == []
    alpha.send(beta.direct(ORDERS), *express("b"))
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(ORDERS) == ["b"]


@pytest.mark.spec("QB-1.3.4-01")
def test_nothing_is_journaled_that_did_not_ask_for_it(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), Message(b"body"), "recoverable")
    (first, second) = network.user_messages(alpha, beta)
    asked = UserFlags.NEGATIVE_JOURNALING | UserFlags.POSITIVE_JOURNALING
    assert (first.user_flags & asked, second.user_flags & asked) == (0, 0)
    network.wait(EXPRESS_ACK_S)
    beta.receive(ORDERS, 2)
    copies = [station.labels(name) for station in (alpha, beta) for name in (JOURNAL, DEADLETTER, DEADXACT)]
    assert copies == [[]] * 6


@pytest.mark.spec("QB-3.1.1.3.1-31")
def test_messages_travel_and_are_sent_again_in_their_order(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.refused.add(beta.address)
    alpha.send(there, *express("a"), "b", *express("c"))
    network.refused.clear()
    network.hold(beta, alpha)
    network.wait(alpha.settings.retry_connect_s)
    network.release()
    network.cut(alpha, beta)
    network.wait(alpha.settings.retry_connect_s)
    assert network.sent(alpha, beta) == ["a", "b", "c", "a", "b", "c"]
    assert beta.labels(ORDERS) == ["a", "b", "c"]


@pytest.mark.spec("QB-3.1.7.1-02")
def test_no_more_is_sent_than_the_window_allows(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), *express("first"))
    network.wait(EXPRESS_ACK_S)
    network.hold(beta, alpha)
    alpha.send(beta.direct(ORDERS), *express(*map(str, range(100))))
    assert network.sent(alpha, beta)[1:] == [str(each) for each in range(64)]
    network.release()
    assert network.sent(alpha, beta)[1:] == [str(each) for each in range(100)]


@pytest.mark.spec("QB-3.1.5.5.1-04", "QB-3.1.5.5.1-05", "QB-3.1.5.5.1-06")
def test_an_acknowledgment_of_some_lets_as_many_follow_in_their_order_and_none_again(
    network: Network, stranger: Stranger
) -> None:
    alpha = network.station("alpha", 1, BinarySettings(window_size=8))
    there = stranger.direct(ORDERS)
    wanted = [str(each) for each in range(20)]
    alpha.send(there, *express(wanted[0]))
    network.hold(stranger, alpha)  # from now on the test acknowledges in its place
    alpha.send(there, *express(*wanted[1:]))
    assert network.sent(alpha, stranger) == wanted[:8]
    (session,) = alpha.service.sessions
    for acknowledged in (3, 3, 4, 11):
        alpha.received(session, ack(acknowledged))
        network.run()
        assert network.sent(alpha, stranger) == wanted[: acknowledged + 8]
        assert alpha.waiting(there) == wanted[acknowledged:]


def test_a_window_leaves_in_two_halves(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), *express("first"))
    network.wait(EXPRESS_ACK_S)
    network.hold(alpha, beta)
    alpha.send(beta.direct(ORDERS), *express(*map(str, range(100))))
    (link,) = network.linksof(alpha, beta)
    (written,) = (pieces for session, pieces in link.transit.items() if link.ends[session] is alpha)
    assert [sum(1 for _ in Framer().feed(piece)) for piece in written] == [32, 32]


@pytest.mark.spec("QB-3.1.3.2-10", "QB-3.1.5.4.2-06")
def test_a_backlog_above_the_window_leaves_when_the_session_opens(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.refused.add(beta.address)
    alpha.send(beta.direct(ORDERS), *express(*map(str, range(100))))
    network.refused.clear()
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(ORDERS) == [str(each) for each in range(100)]


@pytest.mark.spec("QB-3.1.7.1-01")
def test_nothing_is_sent_before_the_session_is_open(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(ORDERS)
    network.hold(beta, alpha)
    alpha.send(there, *express("a"))
    assert alpha.outgoing(there).state is OutgoingState.WAITING
    alpha.send(there, *express("b"))
    assert network.sent(alpha, beta) == []
    network.release()
    assert alpha.outgoing(there).state is OutgoingState.CONNECTED
    assert network.sent(alpha, beta) == ["a", "b"]


@pytest.mark.spec("QB-3.1.7.1-03", "QB-3.1.7.1-06", "QB-2.1.1-04", "QB-3-01")
def test_the_called_manager_answers_on_the_same_connection(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), *express("there"))
    beta.send(alpha.direct(ORDERS), *express("back"))
    assert alpha.labels(ORDERS) == ["back"]
    assert network.connections == [("alpha", beta.address)]
    assert beta.outgoing(alpha.direct(ORDERS)).state is OutgoingState.CONNECTED
    network.wait(EXPRESS_ACK_S)
    assert (alpha.waiting(beta.direct(ORDERS)), beta.waiting(alpha.direct(ORDERS))) == ([], [])


@pytest.mark.spec("QB-3.1.5.2.1-01")
def test_two_queues_of_one_manager_share_a_session_and_nothing_else(
    network: Network, alpha: Station, beta: Station
) -> None:
    orders, acks = beta.direct(ORDERS), beta.direct(ACKS)
    alpha.send(orders, *express("a"))
    alpha.send(acks, *express("b"))
    assert (beta.labels(ORDERS), beta.labels(ACKS)) == (["a"], ["b"])
    assert len(network.history) == 1
    assert alpha.outgoing(acks).state is OutgoingState.CONNECTED
    alpha.core.pause(alpha.queue(orders))
    alpha.send(orders, *express("c"))
    alpha.send(acks, *express("d"))
    assert (beta.labels(ORDERS), beta.labels(ACKS)) == (["a"], ["b", "d"])


@pytest.mark.spec("QB-1.3.5.1-02", "QB-3.1.1.3.1-01")
def test_a_session_acknowledges_its_own_messages_alone(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    alpha.send(gamma.direct(ORDERS), *express("a", "b", "c"))
    beta.send(gamma.direct(ORDERS), *express("d"))
    network.hold(gamma, beta)
    network.wait(EXPRESS_ACK_S)
    (to_alpha,) = network.session_acks(gamma, alpha)
    (to_beta,) = network.session_acks(gamma, beta)
    assert to_alpha.session.ack_sequence_number == 3
    assert to_beta.session.ack_sequence_number == 1
    assert alpha.waiting(gamma.direct(ORDERS)) == []
    assert beta.waiting(gamma.direct(ORDERS)) == ["d"]


@pytest.mark.spec("QB-3.1.1.3-09", "QB-3.1.1.3-12")
def test_message_ids_count_on_over_all_queues_and_restarts(network: Network, alpha: Station, beta: Station) -> None:
    (first,) = alpha.send(beta.direct(ORDERS), *express("a"))
    (second,) = alpha.send(beta.direct(ACKS), *express("b"))
    assert second == first + 1
    assert [view.message_id for view in network.user_messages(alpha, beta)] == [first, second]
    alpha.restart()
    (third,) = alpha.send(beta.direct(ORDERS), *express("c"))
    assert third > second


@pytest.mark.spec("QB-3.1.1.3-10")
def test_message_ids_start_again_after_the_last(network: Network, alpha: Station, beta: Station) -> None:
    alpha.core.counters.take_message_ids(0xFFFFFFFF - alpha.core.counters.next_message_id() - 1)
    ids = alpha.send(beta.direct(ORDERS), *express("a", "b", "c"))
    assert ids == [0xFFFFFFFF, 0, 1]
    assert beta.labels(ORDERS) == ["a", "b", "c"]


@pytest.mark.spec("QB-3.1.7.1.1-01", "QB-3.1.7.1.1-02")
def test_a_packet_is_the_message_and_keeps_its_id_when_it_is_sent_again(
    network: Network, alpha: Station, beta: Station
) -> None:
    whole = Message(b"\x00body", label="a", priority=5, app_tag=7, body_type=4, extension=b"ext", recoverable=True)
    before = alpha.core.counters.next_message_id()
    (message_id,) = alpha.send(beta.direct(ORDERS), whole)
    network.cut(alpha, beta)
    network.wait(alpha.settings.retry_connect_s)
    first, again = network.user_messages(alpha, beta)
    assert first.data == again.data
    assert (message_id, alpha.core.counters.next_message_id()) == (before + 1, before + 2)
    assert (first.message_id, first.body, first.label, first.priority) == (message_id, b"\x00body", "a", 5)
    assert (first.application_tag, first.body_type, first.extension) == (7, 4, b"ext")
    assert first.source_queue_manager == alpha.identifier


def test_messages_in_flight_that_were_purged_leave_when_they_are_acknowledged(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    alpha.core.purge(alpha.queue(there), network.now)
    network.wait(1)
    assert (alpha.waiting(there), alpha.queue(there).positions) == ([], {})


def test_messages_in_flight_that_were_purged_are_not_sent_again(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, "a")
    network.wait(1)
    network.hold(alpha, beta)
    alpha.send(there, "b")
    alpha.core.purge(alpha.queue(there), network.now)
    network.cut(alpha, beta)
    network.release()
    network.wait(5)
    assert (alpha.waiting(there), alpha.queue(there).positions) == ([], {})
    assert network.sent(alpha, beta) == ["a", "b"]


@pytest.mark.spec("QB-3.1.7.1.6-01", "QB-3.1.7.1.6-03")
def test_a_connection_that_breaks_while_sending_costs_nothing(
    network: Network, alpha: Station, stranger: Stranger
) -> None:
    there = f"DIRECT=TCP:{stranger.address}\\{ORDERS}"
    alpha.send(there, *express("a"))
    network.hold(alpha, stranger)
    alpha.send(there, *express("b", "c"))
    network.cut(alpha, stranger)
    assert alpha.waiting(there) == ["a", "b", "c"]
    assert alpha.outgoing(there).state is OutgoingState.DISCONNECTED
    network.release()
    network.wait(alpha.settings.retry_connect_s)
    assert network.sent(alpha, stranger) == ["a", "b", "c", "a", "b", "c"]


def test_an_answer_by_the_same_session_does_not_overrun_its_window(network: Network, beta: Station) -> None:
    """The acknowledgment makes room for one message. The first in the queue has expired, and the peer is informed."""
    alpha = network.station("alpha", 1, BinarySettings(window_size=1))
    there = beta.direct(ORDERS)
    alpha.send(beta.direct(ACKS), "opens")
    network.wait(1)
    network.hold(beta, alpha)
    alpha.send(there, "a")
    alpha.send(there, Message(label="b", time_to_reach_queue=5, ack="full", admin_queue=beta.direct(ACKS)), "c")
    network.now += 10
    network.release()
    network.wait(100)
    assert beta.labels(ORDERS) == ["a", "c"]
    assert beta.classes(ACKS) == [MessageClass.NORMAL, MessageClass.NACK_REACH_QUEUE_TIMEOUT]


def test_no_peer_can_say_that_its_message_came_by_http(beta: Station, stranger: Stranger) -> None:
    packet = marked_as_http(stranger.compose(beta.direct(ORDERS), "disguised"))
    assert MessageView(packet).arrived_by_http
    stranger.send(stranger.call(beta), packet)
    (view,) = beta.messages(ORDERS)
    assert view.label == "disguised"
    assert not view.arrived_by_http
