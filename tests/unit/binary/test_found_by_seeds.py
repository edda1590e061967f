"""What random networks have found, each case in its smallest form. The name of a test says what must always hold."""

from __future__ import annotations

import pytest

from postroad.binary.session import BinarySettings
from postroad.carriers import flights
from postroad.message import Message
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.wire.constants import MessageClass
from postroad.wire.internal import SessionAck
from postroad.wire.ordering import FinalAck, OrderAck, order_queue
from postroad.wire.view import MessageView
from tests.unit.binary.network import DEADLETTER, JOURNAL, LEDGER, ORDERS, Network, Station

JOURNALED = Message(b"body", label="a", journal=True)
NARROW = BinarySettings(window_size=1)


# A FinalAck, and a message on its way to those that await one


class Ordered:
    """A message that alpha has sent. A tick that is not sealed yet has the acknowledgment of its order."""

    def __init__(self, network: Network, alpha: Station, beta: Station) -> None:
        self.network = network
        self.alpha = alpha
        self.beta = beta
        alpha.send_transactional(beta.direct(LEDGER), JOURNALED)
        network.hold(alpha, beta)  # so that beta's words can be given to alpha one by one
        (packet,) = (record.packet for record in alpha.queue(beta.direct(LEDGER)).everything())
        self.view = MessageView(packet)
        alpha.commits = False
        network.wait(0.6)
        network.release()
        assert not alpha.commits

    def take_final_ack(self) -> None:
        header = self.view.transaction_header
        assert header is not None
        ack = FinalAck(
            source_queue_manager=self.beta.identifier,
            message_id=7,
            sent_time=int(self.network.now),
            destination_queue=order_queue(self.alpha.address),
            sequence_id=header.sequence_id,
            sequence_number=header.sequence_number,
            previous_sequence_number=0,
            final_class=MessageClass.ACK_RECEIVE,
            source_guid=self.alpha.identifier,
            acknowledged_message_id=self.view.message_id,
        )
        (session,) = self.alpha.service.sessions
        self.alpha.service.sender.take_final_ack(ack, session, self.network.now)

    def places(self) -> tuple[list[str], list[str], list[str]]:
        """The labels in the journal, in the table, and in the outgoing queue."""
        there = self.beta.direct(LEDGER)
        return self.alpha.labels(JOURNAL), self.alpha.waiting(AWAITING_FINAL_ACK), self.alpha.waiting(there)


@pytest.fixture
def ordered(network: Network, alpha: Station, beta: Station) -> Ordered:
    return Ordered(network, alpha, beta)


def test_a_final_ack_in_the_same_tick_as_the_order_ack_is_durable_with_it(ordered: Ordered) -> None:
    ordered.take_final_ack()
    ordered.alpha.seal()
    ordered.alpha.land()
    assert ordered.places() == (["a"], [], [])
    assert ordered.alpha.core.ticks.seal() is None


def test_a_final_ack_while_the_tick_is_on_its_way_waits_for_it(ordered: Ordered) -> None:
    ordered.alpha.seal()
    ordered.take_final_ack()
    ordered.alpha.land()
    ordered.alpha.seal()
    ordered.alpha.land()
    assert ordered.places() == (["a"], [], [])


def test_a_final_ack_of_a_message_whose_move_is_lost_finds_it_where_it_was(ordered: Ordered) -> None:
    ordered.alpha.seal()
    ordered.take_final_ack()
    ordered.alpha.lose()
    ordered.alpha.seal()
    ordered.alpha.land()
    assert ordered.places() == (["a"], [], [])
    assert ordered.alpha.queue(AWAITING_FINAL_ACK).count == 0


def test_a_final_ack_whose_tick_is_lost_can_come_again(ordered: Ordered) -> None:
    alpha = ordered.alpha
    alpha.seal()
    alpha.land()
    ordered.take_final_ack()
    alpha.seal()
    alpha.lose()
    assert ordered.places() == ([], ["a"], [])
    ordered.take_final_ack()
    alpha.seal()
    alpha.land()
    assert ordered.places() == (["a"], [], [])


# Ticks


def test_a_duplicate_of_a_message_that_is_then_lost_is_not_acknowledged(
    network: Network, alpha: Station, beta: Station
) -> None:
    beta.commits = False
    alpha.send(beta.direct(ORDERS), "a")
    beta.seal()
    network.cut(alpha, beta)
    network.wait(2)  # alpha has connected and sent it again: beta takes it for a duplicate
    assert network.sent(alpha, beta) == ["a", "a"]
    beta.lose()
    beta.commits = True
    network.wait(10)
    assert beta.labels(ORDERS) == ["a"]
    assert alpha.waiting(beta.direct(ORDERS)) == []


def test_an_acknowledgment_that_followed_from_a_lost_message_is_not_sent(
    network: Network, alpha: Station, beta: Station
) -> None:
    """The second message is accepted after the first, whose tick is lost. Both come again, and each is acknowledged
    once."""
    beta.commits = False
    asking = Message(b"body", label="b", ack="reach-queue", admin_queue=f"DIRECT=TCP:{alpha.address}\\private$\\acks")
    alpha.send_transactional(beta.direct(LEDGER), "a")
    beta.seal()
    alpha.send_transactional(beta.direct(LEDGER), asking)
    beta.lose()
    beta.commits = True
    network.wait(60)
    assert beta.labels(LEDGER) == ["a", "b"]
    assert alpha.labels(r"private$\acks") == ["b"]


# Other managers' messages


def test_another_managers_message_of_the_same_id_is_another_one(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    """Beta passes alpha's message on, and it expires there. Beta's own message with the same id still needs its
    answer."""
    network.routes[alpha, gamma.identifier] = [beta]
    beta.send(gamma.direct(ORDERS), "opens the session")
    network.hold(beta, gamma)
    (own,) = beta.send_transactional(gamma.direct(LEDGER), "own")
    passing = Message(b"body", label="passing", time_to_reach_queue=5)
    alpha.core.counters.take_message_ids(own - alpha.core.counters.next_message_id() - 1)
    (passed,) = alpha.send_transactional(gamma.private(LEDGER), passing)
    assert passed == own
    network.wait(10)
    network.release()
    network.wait(60)
    assert gamma.labels(LEDGER) == ["own"]
    assert beta.waiting(gamma.direct(LEDGER)) == []


def test_the_manager_where_a_message_dies_keeps_the_dead_letter(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.routes[alpha, gamma.identifier] = [beta]
    network.refused.add(gamma.address)
    alpha.send(
        gamma.private(ORDERS), Message(b"", label="a", recoverable=True, dead_letter=True, time_to_reach_queue=5)
    )
    network.wait(10)
    assert (beta.labels(DEADLETTER), alpha.labels(DEADLETTER)) == (["a"], [])


def test_a_message_that_comes_too_late_leaves_its_dead_letter_there(
    network: Network, alpha: Station, beta: Station
) -> None:
    alpha.send(beta.direct(ORDERS), "opens the session")
    network.hold(alpha, beta)
    alpha.send(beta.direct(ORDERS), Message(b"", label="a", recoverable=True, dead_letter=True, time_to_reach_queue=5))
    network.now += 10
    network.release()
    assert (beta.labels(ORDERS), beta.labels(DEADLETTER)) == (["opens the session"], ["a"])
    assert beta.classes(DEADLETTER) == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]


# Sharing a session


def test_a_backlog_does_not_keep_other_queues_from_sending(network: Network) -> None:
    alpha, beta = network.station("alpha", 1, NARROW), network.station("beta", 2, NARROW)
    network.refused.add(beta.address)
    for path in (ORDERS, r"private$\acks"):
        alpha.send(beta.direct(path), *[path] * 20)
    network.refused.clear()
    network.wait(60)
    assert network.sent(alpha, beta)[:10].count(ORDERS) == 5


def test_order_acks_overtake_a_backlog(network: Network) -> None:
    """Without them the other side sends its messages again and again, in a window that its own backlog may fill."""
    alpha, beta = network.station("alpha", 1, NARROW), network.station("beta", 2, NARROW)
    beta.send_transactional(alpha.direct(LEDGER), "to be put in order")
    network.hold(beta, alpha)  # so that the window is full
    for path in (ORDERS, r"private$\acks", r"private$\more"):
        alpha.send(beta.direct(path), "backlog", "backlog")
    network.wait(1)
    before = len(network.packets(alpha, beta))
    network.release()
    network.wait(1)
    following = [each for each in network.packets(alpha, beta)[before:] if not isinstance(each, SessionAck)]
    assert isinstance(following[0], OrderAck)


def test_two_backlogs_on_one_session_of_one_message_a_time_get_through(network: Network) -> None:
    alpha, beta = network.station("alpha", 1, NARROW), network.station("beta", 2, NARROW)
    for one, other in ((alpha, beta), (beta, alpha)):
        one.send_transactional(other.direct(LEDGER), *map(str, range(30)))
    network.wait(100)
    for one, other in ((alpha, beta), (beta, alpha)):
        assert other.labels(LEDGER) == [*map(str, range(30))]
        assert one.waiting(other.direct(LEDGER)) == []


def test_an_order_ack_that_has_not_left_gives_way_to_the_next(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.wait(1)
    acks = beta.queue(f"DIRECT=TCP:{alpha.address}\\PRIVATE$\\order_queue$")
    beta.core.pause(acks)
    for number in range(5):
        alpha.send_transactional(there, str(number))
        network.wait(1)
    assert acks.count == 1
    beta.core.resume(acks, network.now)
    network.wait(1)
    assert alpha.waiting(there) == []


def test_who_calls_gets_what_waits_for_him_though_we_have_just_failed_to_call(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.refused.add(alpha.address)
    beta.send(alpha.direct(ORDERS), "waits")
    alpha.send(beta.direct(ORDERS), "calls")
    assert alpha.labels(ORDERS) == ["waits"]


def test_messages_that_a_lost_tick_brings_back_do_not_make_the_next_one_skip_those_between(
    network: Network, alpha: Station, beta: Station
) -> None:
    """Beta has put the first message in order. Alpha cannot store that, so it sends the message again, and then new
    ones."""
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.hold(alpha, beta)
    alpha.send_transactional(there, "b", "c")
    alpha.commits = False
    network.wait(0.6)
    network.release()  # the OrderAck up to the first, or to all of them
    alpha.seal()
    alpha.lose()
    alpha.commits = True
    alpha.send_transactional(there, "d")
    numbers = [
        (fields[3], fields[4])
        for packet in network.packets(alpha, beta)
        if isinstance(packet, MessageView) and (fields := packet.transaction_fields) is not None
    ]
    assert all(number == previous + 1 for number, previous in numbers)
    network.wait(60)
    assert beta.labels(LEDGER) == ["a", "b", "c", "d"]
    assert alpha.waiting(there) == []


def test_a_gap_is_announced_when_it_is_durable_and_not_before(network: Network, alpha: Station, beta: Station) -> None:
    """A crash could bring back what has expired. Beta, told that it will not come, would then never accept it."""
    network.refused.add(beta.address)
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", Message(b"", label="b", time_to_reach_queue=5), "c")
    network.refused.clear()
    alpha.commits = False
    network.now += 10
    network.wait(2)
    assert network.sent(alpha, beta) == ["a"]
    alpha.commits = True
    network.wait(10)
    assert beta.labels(LEDGER) == ["a", "c"]


def test_a_message_that_one_session_has_sent_twice_leaves_its_queue_once(
    network: Network, alpha: Station, beta: Station
) -> None:
    """After a lost tick it is sent again, and one acknowledgment covers both copies."""
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    network.hold(beta, alpha)
    network.wait(0)
    queue = alpha.queue(there)
    first, second = queue.everything()
    alpha.commits = False
    flights.leave_all(alpha.core, queue, [first, first, second], network.now)
    change = alpha.core.tick.changes[queue]
    assert (change.removed, change.removed_bytes) == (2, len(first.packet) + len(second.packet))


# A clock, and what has come already


@pytest.mark.parametrize("minutes", [0, 31, 24 * 60])
def test_a_clock_that_moves_while_a_manager_is_down_brings_nothing_twice(
    network: Network, alpha: Station, beta: Station, minutes: int
) -> None:
    there = beta.direct(ORDERS)
    alpha.send(there, Message(label="a", recoverable=True))
    network.wait(1)
    network.hold(beta, alpha)  # alpha does not hear that beta has the next one
    alpha.send(there, Message(label="b", recoverable=True))
    beta.stop()
    network.held.clear()
    network.now += 60 * minutes
    beta.restart()
    network.wait(alpha.settings.retry_connect_s)
    assert network.sent(alpha, beta) == ["a", "b", "b"]
    assert beta.labels(ORDERS) == ["a", "b"]


def test_a_sequence_that_began_in_a_lost_commit_is_followed_by_a_later_one_whatever_the_clock_says(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    alpha.commits = False
    alpha.send_transactional(there, "never sent")
    alpha.seal()
    alpha.lose()
    alpha.commits = True
    alpha.send_transactional(there, "a")
    network.wait(1)
    assert alpha.waiting(there) == []
    alpha.stop()
    network.now -= 3600
    alpha.restart()
    alpha.send_transactional(there, "b")
    network.wait(alpha.settings.retry_connect_s)
    assert beta.labels(LEDGER) == ["a", "b"]
    network.wait(1)
    assert alpha.waiting(there) == []
