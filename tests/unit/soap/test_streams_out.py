"""Stream messages on their way, [MC-MQSRM] 3.1.7.2.3, 3.1.5.1.8 and 3.1.5.1.9: numbered, kept, repeated."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from postroad.message import Message
from postroad.queues.transactions import MOST_APART
from postroad.soap.addresses import Redirection, Redirections
from postroad.soap.elements import Attachments, CommitmentReceipt, Decision, Envelope, StreamId, StreamReceipt
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.receiver import Incoming
from postroad.wire.constants import MessageClass
from postroad.wire.headers import TxSequenceId
from tests.unit.soap.network import (
    DEADXACT,
    JOURNAL,
    LEDGER,
    ORDERS,
    Exchange,
    Network,
    Station,
    stranger_message,
)

ORDER_QUEUE = r"private$\order_queue$"
DEAD = r"private$\dead"
RESEND_S = 30


@pytest.fixture
def network(network: Network) -> Network:
    """The stranger of these tests is in [peers]: tests of others are in test_trust.py."""
    network.peers |= {"stranger", "10.0.0.99"}
    return network


def numbers(posts: list[Exchange]) -> list[tuple[int, int | None]]:
    return [(each.stream.current, each.stream.previous) for each in posts]


def currents(posts: list[Exchange]) -> list[int]:
    return [each.stream.current for each in posts]


def receipt(station: Station, stream_id: StreamId, last_ordinal: int, number: int = 1) -> Envelope:
    """A stream receipt of a stranger."""
    envelope = stranger_message(
        station.url(ORDER_QUEUE), number, label="QM Ordering Ack", message_class=MessageClass.ORDER_ACK
    )
    return replace(envelope, stream_receipt=StreamReceipt(stream_id, last_ordinal))


def final(station: Station, stream_id: StreamId, ordinal: int, decision: Decision, number: int = 1) -> Envelope:
    positive = decision is Decision.POSITIVE
    message_class = MessageClass.ACK_RECEIVE if positive else MessageClass.NACK_Q_PURGED
    envelope = stranger_message(station.url(ORDER_QUEUE), number, label="QM Ordering Ack", message_class=message_class)
    return replace(
        envelope,
        stream_receipt=StreamReceipt(stream_id, ordinal),
        commitment_receipt=CommitmentReceipt(1_700_000_000, decision, f"uuid:1@{station.identifier}"),
    )


@pytest.fixture
def deaf(network: Network, beta: Station) -> str:
    """A host that answers every request with 200 and sends no receipts."""
    network.answers[beta.address] = 200
    return beta.direct(LEDGER)


@pytest.mark.spec(
    "SRM-3.1.7.2.3-02",
    "SRM-3.1.7.2.3-03",
    "SRM-3.1.7.2.3-05",
    "SRM-3.1.1.2-01",
    "SRM-3.1.7.2.4-15",
    "SRM-2.2.5.3.1-04",
    "SRM-2.2.5.3.2-02",
    "SRM-2.2.5.3.4-03",
    "SRM-2.2.5.3.4-04",
    "SRM-3.1.3.1-03",
)
def test_messages_of_one_queue_are_numbered_in_one_stream(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a", "b")
    alpha.send_transactional(deaf, "c")
    posts = network.user_posts("alpha")
    assert numbers(posts) == [(1, None), (2, 1), (3, 2)]
    assert [each.label for each in posts] == ["a", "b", "c"]
    assert len({each.stream.stream_id for each in posts}) == 1
    assert posts[0].stream.stream_id.guid == alpha.identifier
    assert 1 <= posts[0].stream.stream_id.sequence.ordinal <= MOST_APART
    urls = [each.stream.send_receipts_to for each in posts]
    assert urls == ["http://alpha/MSMQ/PRIVATE$/order_queue$", None, None]


@pytest.mark.spec("SRM-3.1.7.2.3-01")
def test_each_queue_of_a_host_has_a_stream_of_its_own(network: Network, alpha: Station, beta: Station) -> None:
    network.answers[beta.address] = 200
    for path in (LEDGER, r"private$\books", LEDGER):
        alpha.send_transactional(beta.direct(path), "a")
    ids = [each.stream.stream_id for each in network.user_posts("alpha")]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.spec("SRM-3.1.7.2.5-03", "SRM-3.1.1.1.3-02", "SRM-3.1.1.1.4-01", "SRM-3.1.7.7-03")
def test_a_200_does_not_release_a_stream_message(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a")
    assert network.exchanges[0].status == 200
    assert alpha.waiting(deaf) == ["a"]
    (flight,) = alpha.transfer(deaf).unacked
    assert (flight.answered, flight.ordered) == (True, False)


@pytest.mark.spec("SRM-1.3.5.3-01")
def test_nothing_is_sent_before_the_commit_and_nothing_of_an_abort(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    open_one = alpha.core.begin()
    alpha.core.send(there, [Message(label="a")], network.now, open_one)
    network.wait(30)
    assert network.exchanges == []
    alpha.core.abort(open_one, network.now)
    network.wait(30)
    assert network.exchanges == []
    alpha.send_transactional(there, "b")
    assert [each.label for each in network.user_posts("alpha")] == ["b"]


@pytest.mark.spec("SRM-3.1.5.1.8.1-02", "SRM-3.1.5.1.8.3-01", "SRM-3.1.1.3.2-07", "SRM-3.1.1.3-01", "SRM-2.2.5.6-01")
def test_a_stream_receipt_releases_everything_up_to_its_number(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a", "b", "c")
    stream_id = network.exchanges[0].stream.stream_id
    assert alpha.ask(receipt(alpha, stream_id, 2)) == 200
    assert alpha.waiting(deaf) == ["c"]
    network.wait(RESEND_S)
    assert currents(network.user_posts("alpha")) == [1, 2, 3, 3]
    alpha.ask(receipt(alpha, stream_id, 3, 2))
    assert alpha.waiting(deaf) == []
    network.wait(10 * RESEND_S)
    assert len(network.user_posts("alpha")) == 4


@pytest.mark.spec("SRM-3.1.5.1.8.1-01", "SRM-3.1.1.3.2-02")
def test_a_receipt_of_another_stream_releases_nothing(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a")
    own = network.exchanges[0].stream.stream_id
    later = TxSequenceId(own.sequence.ordinal + 1, own.sequence.time_stamp)
    for number, wrong in enumerate(
        (StreamId(own.guid, later), StreamId(alpha.network.stations["beta"].identifier, own.sequence))
    ):
        assert alpha.ask(receipt(alpha, wrong, 1, number)) == 200
    assert alpha.waiting(deaf) == ["a"]


@pytest.mark.spec("SRM-3.1.5.1.8.2-01", "SRM-3.1.5.1.8.2-02", "SRM-3.1.5.1.8.2-03")
def test_a_receipt_that_says_less_than_the_last_takes_nothing_back(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a", "b", "c")
    stream_id = network.exchanges[0].stream.stream_id
    alpha.ask(receipt(alpha, stream_id, 2))
    network.wait(1)
    alpha.ask(receipt(alpha, stream_id, 1, 2))
    transfer = alpha.transfer(deaf)
    assert transfer.stream is not None
    assert (transfer.stream.acknowledged, len(transfer.unacked)) == (2, 1)
    assert (transfer.last_ack_count, transfer.last_ack_time) == (2, network.now)


@pytest.mark.spec(
    "SRM-3.1.6.2-01",
    "SRM-3.1.6.2-02",
    "SRM-3.1.2.2-01",
    "SRM-3.1.7.2.4-14",
    "SRM-3.1.7.2.3-12",
    "SRM-3.1.3.2-02",
)
def test_what_has_no_receipt_is_sent_again_with_the_same_ids_and_numbers(
    network: Network, alpha: Station, deaf: str
) -> None:
    network.wait(5 * RESEND_S)
    assert network.exchanges == []
    alpha.send_transactional(deaf, "a", "b")
    network.wait(RESEND_S - 1)
    assert len(network.exchanges) == 2
    network.wait(1)
    first, again = network.exchanges[:2], network.exchanges[2:]
    assert [each.envelope.path.id for each in again] == [each.envelope.path.id for each in first]
    assert [each.stream for each in again] == [each.stream for each in first]
    assert again[0].stream.send_receipts_to is not None


@pytest.mark.spec("SRM-3.1.3.1-04", "SRM-6-20", "SRM-3.1.5.1.8.2-07")
def test_the_resend_interval_grows_with_each_time_out(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a")
    network.wait(3 * 30 + 3 * 300 + 3 * 1800 + 2 * 21600 + 1)
    times = [each.at for each in network.exchanges]
    intervals = [round(later - before) for before, later in pairwise(times)]
    assert intervals == [30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600, 21600]


@pytest.mark.spec("SRM-3.1.2.2-02", "SRM-6-21")
def test_the_resend_table_is_a_setting_and_progress_begins_it_anew(network: Network, beta: Station) -> None:
    alpha = network.station("alpha", 1, resend_s=(2.0, 5.0))
    network.answers[beta.address] = 200
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    network.wait(8)
    assert [each.at - network.exchanges[0].at for each in network.exchanges] == [0, 0, 2, 2, 7, 7]
    alpha.ask(receipt(alpha, network.exchanges[0].stream.stream_id, 1))
    network.wait(2.5)
    assert currents(network.exchanges) == [1, 2] * 3 + [2]


@pytest.mark.spec("SRM-3.1.7.2.3-04", "SRM-3.1.1.2-03")
def test_a_message_that_expires_is_bridged(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a", Message(label="b", time_to_reach_queue=10), "c")
    network.exchanges.clear()
    network.wait(RESEND_S)
    assert numbers(network.exchanges) == [(1, None), (3, 1)]


def test_a_gap_is_announced_when_it_is_durable_and_not_before(network: Network, alpha: Station, deaf: str) -> None:
    """A crash could bring back what has expired. A receiver that was told to skip it would never accept it."""
    alpha.send_transactional(deaf, "a", Message(label="b", time_to_reach_queue=10), "c")
    network.exchanges.clear()
    alpha.commits = False
    network.wait(RESEND_S)
    assert numbers(network.exchanges) == [(1, None)]
    alpha.commits = True
    network.run()
    assert numbers(network.exchanges) == [(1, None), (3, 1)]


@pytest.mark.spec("SRM-3.1.1.2-04", "SRM-3.1.1.2-05", "SRM-3.1.7.6-01", "SRM-3.1.5.1.8.3-02", "SRM-3.1.1.1.5-03")
def test_when_everything_is_acknowledged_the_next_message_begins_a_new_stream(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a", "b")
    network.wait(1)
    assert alpha.waiting(there) == []
    alpha.send_transactional(there, "c")
    posts = network.user_posts("alpha")
    assert numbers(posts) == [(1, None), (2, 1), (1, None)]
    first, second = posts[0].stream.stream_id, posts[2].stream.stream_id
    assert 1 <= second.sequence.value - first.sequence.value <= MOST_APART
    assert posts[2].stream.send_receipts_to is not None
    network.wait(100)
    assert beta.labels(LEDGER) == ["a", "b", "c"]
    after = network.user_posts("alpha")[2:]
    assert {each.stream.stream_id for each in after} == {second}


@pytest.mark.spec("SRM-3.1.7.2.1-04")
def test_a_stream_whose_only_message_expires_is_gone(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, Message(label="a", time_to_reach_queue=5))
    first = network.exchanges[0].stream.stream_id
    network.wait(RESEND_S)
    assert alpha.waiting(deaf) == []
    alpha.send_transactional(deaf, "b")
    assert network.exchanges[-1].stream.stream_id.sequence.value > first.sequence.value
    assert numbers(network.exchanges[-1:]) == [(1, None)]


@pytest.mark.spec("SRM-3.1.1.1.5-07", "SRM-3.1.1.1.6-01")
def test_two_queues_of_one_host_have_streams_of_their_own(network: Network, alpha: Station, beta: Station) -> None:
    beta.create(r"private$\second", transactional=True)
    alpha.send_transactional(beta.direct(LEDGER), "a")
    alpha.send_transactional(beta.direct(r"private$\second"), "b")
    one, other = network.user_posts("alpha")
    assert one.stream.stream_id != other.stream.stream_id
    assert numbers([one, other]) == [(1, None), (1, None)]
    network.wait(1)
    assert {each.envelope.stream_receipt for each in network.stream_receipts("beta")} == {
        StreamReceipt(one.stream.stream_id, 1),
        StreamReceipt(other.stream.stream_id, 1),
    }


@pytest.mark.spec("SRM-3.1.1.1.6-02", "SRM-3.1.1.1.6-03", "SRM-3.1.1.1.6-04", "SRM-3.1.3.2-01")
def test_a_stream_goes_on_after_a_restart(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a", "b")
    stream_id = network.exchanges[0].stream.stream_id
    network.exchanges.clear()
    alpha.restart()
    alpha.send_transactional(deaf, "c")
    assert numbers(network.exchanges) == [(1, None), (2, 1), (3, 2)]
    assert {each.stream.stream_id for each in network.exchanges} == {stream_id}
    alpha.ask(receipt(alpha, stream_id, 3))
    assert alpha.waiting(deaf) == []
    alpha.restart()
    alpha.send_transactional(deaf, "d")
    assert network.exchanges[-1].stream.stream_id.sequence.value > stream_id.sequence.value


def test_after_a_restart_a_stream_whose_start_was_acknowledged_does_not_begin_anew(
    network: Network, alpha: Station, deaf: str
) -> None:
    alpha.send_transactional(deaf, "a", "b")
    stream_id = network.exchanges[0].stream.stream_id
    alpha.ask(receipt(alpha, stream_id, 1))
    network.exchanges.clear()
    alpha.restart()
    assert numbers(network.exchanges) == [(2, 1)]
    assert network.exchanges[0].stream.stream_id == stream_id


def test_only_the_first_message_is_sent_until_it_is_answered_and_then_one_at_a_time(
    network: Network, alpha: Station, beta: Station
) -> None:
    """In parallel they would arrive out of order, and a receiver that ignores them waits for the resend timer."""
    beta.commits = False
    alpha.send_transactional(beta.direct(LEDGER), "a", "b", "c")
    assert [each.label for each in network.exchanges] == ["a"]
    beta.seal()
    beta.land()
    network.run()
    assert [each.label for each in network.exchanges] == ["a", "b"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_whose_first_messages_expired_unsent_begins_with_the_next(
    network: Network, alpha: Station, beta: Station, restarted: bool
) -> None:
    """Nobody would accept a stream that begins with its second message."""
    there = beta.direct(LEDGER)
    network.down.add("beta")
    alpha.send_transactional(there, Message(label="a", time_to_reach_queue=5), "b", "c")
    network.wait(10)
    network.down.clear()
    if restarted:
        alpha.restart()
    network.wait(30)
    assert beta.labels(LEDGER) == ["b", "c"]
    assert alpha.waiting(there) == []
    sent = [each for each in network.user_posts("alpha") if each.status == 200]
    assert numbers(sent) == [(1, None), (2, 1)]


def test_a_stream_whose_start_was_lost_on_the_way_begins_with_the_next(
    network: Network, alpha: Station, beta: Station, deaf: str
) -> None:
    """A manager on the way has answered 200 and let it expire. Those after it were sent."""
    alpha.send_transactional(deaf, Message(label="a", time_to_reach_queue=5), "b", "c")
    network.wait(10)
    assert [(each.label, each.stream.current) for each in network.exchanges] == [("a", 1), ("b", 2), ("c", 3)]
    network.answers.clear()
    network.exchanges.clear()
    network.wait(60)
    assert beta.labels(LEDGER) == ["b", "c"]
    assert alpha.waiting(deaf) == []
    assert numbers(network.user_posts("alpha")) == [(1, None), (2, 1)]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("sent_again", [False, True])
def test_what_arrived_under_the_name_before_has_its_final_receipt_by_that(
    network: Network, alpha: Station, deaf: str, sent_again: bool, restarted: bool
) -> None:
    """The first message had arrived after all, and the next one with it."""
    alpha.send_transactional(deaf, Message(label="a", time_to_reach_queue=5), Message(label="b", dead_letter=True), "c")
    first = network.exchanges[0].stream.stream_id
    network.wait(40)
    last = network.exchanges[-1].stream
    assert (last.stream_id != first, last.current) == (True, 2)
    if sent_again:
        alpha.ask(receipt(alpha, last.stream_id, 2))
    if restarted:
        alpha.restart()
    alpha.ask(final(alpha, first, 2, Decision.NEGATIVE))
    assert alpha.labels(DEADXACT) == ["b"]
    assert alpha.waiting(deaf) == ([] if sent_again else ["c"])


def test_the_name_of_a_stream_that_begins_anew_is_durable_before_it_is_used(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    network.down.add("beta")
    alpha.send_transactional(there, Message(label="a", time_to_reach_queue=5), "b")
    network.wait(10)
    network.down.clear()
    network.exchanges.clear()
    alpha.commits = False
    network.wait(30)
    assert network.exchanges == []
    alpha.seal()
    alpha.lose()
    network.wait(30)
    assert network.exchanges == []
    alpha.commits = True
    network.run()
    assert numbers(network.user_posts("alpha")) == [(1, None)]
    assert beta.labels(LEDGER) == ["b"]


@pytest.mark.spec("SRM-3.1.7.2.5-06", "SRM-3.1.7.2.5-07")
def test_a_refused_stream_message_is_a_dead_letter_and_the_stream_goes_on(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.answers[beta.address] = 400
    alpha.send_transactional(there, Message(label="b", dead_letter=True), "c")
    del network.answers[beta.address]
    network.wait(1)
    alpha.send_transactional(there, "d")
    network.wait(60)
    assert alpha.labels(DEADXACT) == ["b"]
    assert beta.labels(LEDGER) == ["a", "d"]
    assert alpha.waiting(there) == []


@pytest.mark.spec("SRM-3.1.5.1.8.4-01", "SRM-3.1.5.2.2-01")
def test_a_stream_message_is_journaled_on_its_receipt(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, Message(label="a", journal=True), "b")
    assert network.exchanges[0].status == 200
    assert alpha.labels(JOURNAL) == []
    alpha.ask(receipt(alpha, network.exchanges[0].stream.stream_id, 2))
    assert alpha.labels(JOURNAL) == ["a"]


@pytest.mark.spec("SRM-3.1.7.2.3-06", "SRM-3.1.5.1.8.3-01", "SRM-3.1.7.6-02", "SRM-3.1.1.1.4-01")
def test_a_message_that_asks_for_dead_letters_waits_for_the_final_receipt_and_keeps_its_stream(
    network: Network, alpha: Station, beta: Station
) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, Message(label="a", dead_letter=True), "b")
    network.wait(1)
    assert alpha.waiting(there) == ["a"]
    alpha.send_transactional(there, "c")
    posts = network.user_posts("alpha")
    assert numbers(posts) == [(1, None), (2, 1), (3, 2)]
    assert len({each.stream.stream_id for each in posts}) == 1
    network.wait(100)
    assert len(network.user_posts("alpha")) == 3  # it has arrived, and is not sent again
    beta.receive(LEDGER)
    assert alpha.waiting(there) == []
    network.wait(1)
    alpha.send_transactional(there, "d")
    assert numbers(network.user_posts("alpha")[3:]) == [(1, None)]


@pytest.mark.spec("SRM-3.1.5.1.9-01", "SRM-3.1.5.1.9.1-02", "SRM-3.1.5.1.9.3-01", "SRM-3.1.5.2.1.2-01")
@pytest.mark.parametrize("decision", list(Decision))
def test_a_final_receipt_ends_one_message_by_what_it_says(
    network: Network, alpha: Station, deaf: str, decision: Decision
) -> None:
    alpha.send_transactional(deaf, *(Message(label=each, dead_letter=True, journal=True) for each in "ab"))
    stream_id = network.exchanges[0].stream.stream_id
    alpha.ask(receipt(alpha, stream_id, 2))
    assert alpha.ask(final(alpha, stream_id, 2, decision)) == 200
    assert alpha.waiting(deaf) == ["a"]
    dead = decision is Decision.NEGATIVE
    assert alpha.labels(DEADXACT) == (["b"] if dead else [])
    assert alpha.classes(DEADXACT) == ([MessageClass.NACK_Q_PURGED] if dead else [])
    assert alpha.labels(JOURNAL) == ([] if dead else ["b"])
    assert alpha.queue(ORDER_QUEUE).count == 0


@pytest.mark.spec("SRM-3.1.5.2.1.2-02", "SRM-1.3.7.2-01")
@pytest.mark.parametrize(
    ("attributes", "used"), [({"transactional": True}, True), ({"transactional": False}, False), (None, False)]
)
def test_a_dead_stream_message_goes_to_the_transactional_queue_that_it_names(
    network: Network, alpha: Station, deaf: str, attributes: dict[str, object] | None, used: bool
) -> None:
    if attributes is not None:
        alpha.create(DEAD, **attributes)
    alpha.send_transactional(deaf, Message(label="a", dead_letter_queue=DEAD))
    post = network.exchanges[0]
    assert b"dead_letter_queue" not in post.body
    alpha.ask(receipt(alpha, post.stream.stream_id, 1))
    assert alpha.ask(final(alpha, post.stream.stream_id, 1, Decision.NEGATIVE)) == 200
    assert alpha.labels(DEADXACT) == ([] if used else ["a"])
    if attributes is not None:
        assert alpha.labels(DEAD) == (["a"] if used else [])


@pytest.mark.spec("SRM-1.3.7.2-01")
def test_a_stream_message_that_was_received_is_no_dead_letter(network: Network, alpha: Station, beta: Station) -> None:
    """A message that nobody received is one: in the system queue, if it names no other."""
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, Message(label="a", dead_letter=True), Message(label="b", dead_letter=True))
    beta.receive(LEDGER)
    network.wait(10)
    assert alpha.labels(DEADXACT) == []
    beta.purge(LEDGER)
    network.wait(10)
    assert alpha.labels(DEADXACT) == ["b"]


def test_a_final_receipt_may_come_before_the_stream_receipt(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, Message(label="a", dead_letter=True), "b")
    stream_id = network.exchanges[0].stream.stream_id
    alpha.ask(final(alpha, stream_id, 1, Decision.POSITIVE))
    assert alpha.waiting(deaf) == ["b"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_final_receipt_is_answered_when_what_the_one_before_it_changed_is_durable(
    network: Network, alpha: Station, deaf: str, kept: bool
) -> None:
    """Its sender has forgotten that it sent one, because its disk failed. It sends no third."""
    alpha.send_transactional(deaf, Message(label="a", dead_letter=True))
    stream_id = network.exchanges[0].stream.stream_id
    alpha.ask(receipt(alpha, stream_id, 1))
    alpha.commits = False
    kind, pieces = join_entity(
        write_envelope(final(alpha, stream_id, 1, Decision.NEGATIVE)), Attachments(), alpha.identifier, 1
    )
    statuses: list[int] = []
    request = Incoming(kind, b"".join(pieces), "10.0.0.99")
    alpha.take(request, statuses.append)
    alpha.seal()
    alpha.take(request, statuses.append)
    assert statuses == []
    if kept:
        alpha.land()
    else:
        alpha.lose()
    alpha.commits = True
    network.run()
    assert statuses == ([200, 200] if kept else [500, 500])
    assert alpha.labels(DEADXACT) == (["a"] if kept else [])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_final_receipt_finds_its_message_after_a_restart(
    network: Network, alpha: Station, deaf: str, ordered: bool
) -> None:
    alpha.send_transactional(deaf, Message(label="a", dead_letter=True))
    stream_id = network.exchanges[0].stream.stream_id
    if ordered:
        alpha.ask(receipt(alpha, stream_id, 1))
    network.exchanges.clear()
    alpha.restart()
    assert len(network.exchanges) == (0 if ordered else 1)
    alpha.ask(final(alpha, stream_id, 1, Decision.NEGATIVE))
    assert (alpha.waiting(deaf), alpha.labels(DEADXACT)) == ([], ["a"])


def test_a_final_receipt_may_come_before_anything_was_sent_after_a_restart(network: Network, beta: Station) -> None:
    """The host's only request may be for another queue: nobody sends a final receipt twice."""
    alpha = network.station("alpha", 1, posts_per_host=1)
    network.answers[beta.address] = 200
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, Message(label="a", dead_letter=True))
    stream_id = network.exchanges[0].stream.stream_id
    network.answers[beta.address] = None
    alpha.send(beta.direct(ORDERS), "other")
    alpha.restart()
    alpha.ask(final(alpha, stream_id, 1, Decision.NEGATIVE))
    assert (alpha.waiting(there), alpha.labels(DEADXACT)) == ([], ["a"])


def test_a_message_that_has_arrived_does_not_expire_while_it_waits_for_its_final_receipt(
    network: Network, alpha: Station, deaf: str
) -> None:
    alpha.send_transactional(deaf, Message(label="a", dead_letter=True, time_to_reach_queue=60))
    stream_id = network.exchanges[0].stream.stream_id
    alpha.ask(receipt(alpha, stream_id, 1))
    alpha.restart()
    network.wait(600)
    assert alpha.waiting(deaf) == ["a"]
    assert alpha.labels(DEADXACT) == []


@pytest.mark.spec("SRM-3.1.5.1.9.1-01", "SRM-3.1.5.1.9.1-02")
def test_a_final_receipt_of_another_stream_or_number_is_dropped(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, Message(label="a", dead_letter=True))
    own = network.exchanges[0].stream.stream_id
    other = StreamId(own.guid, TxSequenceId(own.sequence.ordinal + 1, own.sequence.time_stamp))
    alpha.ask(receipt(alpha, own, 1))
    assert alpha.ask(final(alpha, other, 1, Decision.POSITIVE, 2)) == 200
    assert alpha.ask(final(alpha, own, 2, Decision.POSITIVE, 3)) == 200
    assert alpha.waiting(deaf) == ["a"]


@pytest.mark.spec("SRM-3.1.5.2.1-01", "SRM-3.1.7.2.1-03")
def test_an_expired_stream_message_is_a_dead_letter_only_if_asked(network: Network, alpha: Station) -> None:
    for label, dead_letter in (("a", True), ("b", False)):
        message = Message(label=label, dead_letter=dead_letter, time_to_reach_queue=5)
        alpha.send_transactional("DIRECT=HTTP://10.0.0.77/msmq/private$/q", message)
    network.wait(30)
    assert alpha.labels(DEADXACT) == ["a"]
    assert alpha.classes(DEADXACT) == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]


@pytest.mark.spec(
    "SRM-3.1.7.2.4-16",
    "SRM-3.1.7.2.4-17",
    "SRM-3.1.1.1.8-01",
    "SRM-3.1.1.1.8-02",
    "SRM-3.1.1.1.10.3-01",
)
def test_where_receipts_go_is_configured_by_destination_or_for_all(network: Network) -> None:
    default, special = "http://gate/msmq/private$/order_queue$", "https://gate:8443/MSMQ/private$/receipts"
    redirections = Redirections(receipts=(Redirection("http://10.0.0.5/*", special),), default_receipts=default)
    alpha = network.station("alpha", 1, redirections=redirections)
    alpha.restart()
    for host in ("10.0.0.5", "10.0.0.6"):
        network.answers[host] = 200
        alpha.send_transactional(f"DIRECT=HTTP://{host}/msmq/private$/q", "a")
    assert [each.stream.send_receipts_to for each in network.exchanges] == [special, default]


@pytest.mark.spec("SRM-3.1.7.2.4-15")
@pytest.mark.parametrize(
    ("scheme", "ports", "url"),
    [
        ("http", {}, "http://alpha/MSMQ/PRIVATE$/order_queue$"),
        ("https", {}, "https://alpha/MSMQ/PRIVATE$/order_queue$"),
        ("http", {"http": 8080}, "http://alpha:8080/MSMQ/PRIVATE$/order_queue$"),
        ("https", {"http": 8080, "https": 443}, "https://alpha/MSMQ/PRIVATE$/order_queue$"),
    ],
)
def test_receipts_come_back_by_the_scheme_that_messages_leave_by(
    network: Network, alpha: Station, scheme: str, ports: dict[str, int], url: str
) -> None:
    network.answers["10.0.0.5"] = 200
    alpha.service.outgoing.ports = ports
    alpha.send_transactional(f"DIRECT={scheme.upper()}://10.0.0.5/msmq/private$/q", "a")
    assert network.exchanges[0].stream.send_receipts_to == url


@pytest.mark.spec("SRM-1.5-01", "SRM-2.1.1-02")
def test_a_sender_that_receipts_do_not_reach_keeps_its_messages(
    network: Network, alpha: Station, beta: Station
) -> None:
    network.down.add("alpha")
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, "a")
    network.wait(10)
    assert (beta.labels(LEDGER), alpha.waiting(there)) == (["a"], ["a"])
    network.down.clear()
    network.wait(20)
    assert alpha.waiting(there) == []
    assert network.stream_receipts("beta")[-1].status == 200


def test_no_more_messages_wait_for_receipts_than_allowed(network: Network, beta: Station) -> None:
    alpha = network.station("alpha", 1, unacknowledged=3)
    network.answers[beta.address] = 200
    alpha.send_transactional(beta.direct(LEDGER), *"abcdef")
    assert currents(network.exchanges) == [1, 2, 3]
    alpha.ask(receipt(alpha, network.exchanges[0].stream.stream_id, 2))
    assert currents(network.exchanges) == [1, 2, 3, 4, 5]


def test_a_purge_of_the_outgoing_queue_ends_the_stream_in_peace(network: Network, alpha: Station, deaf: str) -> None:
    alpha.send_transactional(deaf, "a", "b")
    alpha.purge(deaf)
    network.wait(100)
    alpha.purge(deaf)
    network.wait(100)
    assert alpha.waiting(deaf) == []


def test_both_kinds_go_to_one_host_at_once(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), *"abc")
    alpha.send(beta.direct(ORDERS), *"xyz")
    assert (beta.labels(LEDGER), beta.labels(ORDERS)) == (["a", "b", "c"], ["x", "y", "z"])
