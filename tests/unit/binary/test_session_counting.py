"""What both ends count, [MS-MQQB] 3.1.1.4: all messages and the recoverable ones, each direction by itself."""

from __future__ import annotations

import pytest

from postroad.binary.session import BinarySettings, ReceivedMessages, SentMessages, Session
from postroad.binary.states import Received
from postroad.errors import LocalProtocolError
from postroad.wire.internal import SessionHeader
from postroad.wire.ordering import FinalAck, OrderAck
from tests.frames import FINAL_ACK, ORDER_ACK
from tests.packets import with_bits
from tests.unit.binary.link import (
    DEFAULTS,
    EXPRESS,
    FAST,
    RECOVERABLE,
    START,
    TRANSACTIONAL,
    Link,
    accepted,
    ack,
    initiated,
    message,
    only_header,
    tokens,
)

ACK_SEND_S = 10.0  # half of the shortest AckTimeout
USER_FLAGS_AT = 60


def counts(session: Session) -> tuple[int, int, int, int]:
    sent, received = session.sent, session.received
    return sent.count, sent.recoverable_count, received.count, received.recoverable_count


def acknowledgment(session: Session) -> SessionHeader:
    """The acknowledgment that the session sends when its timer fires, after everything is stored."""
    session.stored(session.received.recoverable_count, START)
    session.data_to_send()
    session.on_timer(START + ACK_SEND_S)
    return only_header(session.data_to_send())


class TestSent:
    @pytest.mark.spec(
        "QB-3.1.1.3.1-02",
        "QB-3.1.1.3.1-03",
        "QB-3.1.1.4-02",
        "QB-3.1.7.1.3-06",
        "QB-3.1.7.1.3-07",
        "MQ-2.2.20.4-03",
        "MQ-2.2.20.4-08",
    )
    def test_every_message_counts_and_the_recoverable_ones_a_second_time(self) -> None:
        session = accepted()
        session.send(EXPRESS, "express", START, recoverable=False)
        session.send(RECOVERABLE, "recoverable", START, recoverable=True)
        session.send(TRANSACTIONAL, "transactional", START, recoverable=True)
        session.receive_data(EXPRESS, START)
        header = acknowledgment(session)
        assert header.user_msg_sequence_number == 3
        assert header.recoverable_msg_seq_number == 2

    @pytest.mark.spec("QB-3.1.1.3.1.2-01", "QB-3.1.1.4-02")
    def test_the_numbers_of_the_recoverable_ones_leave_out_the_express(self) -> None:
        session = initiated()
        for number, packet in enumerate((EXPRESS, RECOVERABLE, EXPRESS, TRANSACTIONAL), 1):
            session.send(packet, number, START, recoverable=packet is not EXPRESS)
        session.receive_data(ack(0, first=2, flags=1), START)
        assert tokens(session) == [2, 4]  # the first and the second recoverable message
        assert session.sent.in_flight == [1, 3]

    @pytest.mark.spec("MQ-2.2.20.4-10")
    def test_without_recoverable_messages_their_count_is_zero(self) -> None:
        session = accepted()
        session.send(EXPRESS, None, START, recoverable=False)
        session.receive_data(EXPRESS, START)
        assert acknowledgment(session).recoverable_msg_seq_number == 0

    @pytest.mark.spec("QB-3.1.1.4-03")
    def test_a_message_carries_no_number(self) -> None:
        session = initiated()
        for _ in range(3):
            session.send(EXPRESS, None, START, recoverable=False)
        assert session.data_to_send() == EXPRESS * 3


class TestReceived:
    @pytest.mark.spec(
        "QB-3.1.1.3.1-04",
        "QB-3.1.1.4-01",
        "QB-3.1.5.8.2-02",
        "MQ-2.2.20.4-02",
        "MQ-2.2.20.4-04",
    )
    @pytest.mark.parametrize("messages", [1, 3])
    def test_the_first_message_is_number_one(self, messages: int) -> None:
        session = accepted()
        session.receive_data(EXPRESS * messages, START)
        assert session.received.unacked == messages
        assert acknowledgment(session).ack_sequence_number == messages

    @pytest.mark.spec("QB-3.1.1.3.1-04")
    def test_recoverable_messages_are_numbered_for_the_store(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS + RECOVERABLE + EXPRESS + TRANSACTIONAL, START)
        numbers = [event.number for event in session.events() if isinstance(event, Received)]
        assert numbers == [0, 1, 0, 2]
        assert counts(session) == (0, 0, 4, 2)

    @pytest.mark.spec("QB-3.1.1.3.1-07")
    def test_an_acknowledgment_leaves_nothing_unacknowledged(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS + RECOVERABLE, START)
        assert session.received.unacked == 2
        acknowledgment(session)
        assert session.received.unacked == 0

    @pytest.mark.spec("QB-3.1.5.8.1-05")
    def test_a_message_that_comes_twice_counts_twice(self) -> None:
        link = Link(FAST).open()
        packet = message(recoverable=True)
        for token in ("once", "again"):
            link.left.session.send(packet, token, link.now, recoverable=True)
        link.roundtrip()
        link.store(link.right)
        link.advance(1)
        link.roundtrip()
        assert link.left.acknowledged == ["once", "again"]
        link.right.send(link.now)
        link.advance(ACK_SEND_S)
        link.roundtrip()  # the counts in the answer agree
        assert not link.left.session.closed

    def test_nothing_is_stored_before_it_came(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE, START)
        with pytest.raises(LocalProtocolError, match="recoverable message 2 has not come"):
            session.stored(2, START)


class TestOrderingAcknowledgments:
    @pytest.mark.spec("QB-3.1.1.7.3-02")
    def test_they_count_as_messages(self) -> None:
        session = accepted()
        session.receive_data(ORDER_ACK + FINAL_ACK + FINAL_ACK, START)
        kinds = [type(event.packet) for event in session.events() if isinstance(event, Received)]
        assert kinds == [OrderAck, FinalAck, FinalAck]
        header = acknowledgment(session)
        assert header.ack_sequence_number == 3
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (1, 0b11)

    @pytest.mark.spec("QB-3.1.1.7.3-02")
    def test_they_are_acknowledged_like_messages(self) -> None:
        session = initiated()
        session.send(ORDER_ACK, "order", START, recoverable=False, plain=True)
        session.send(FINAL_ACK, "final", START, recoverable=True, plain=True)
        assert session.sent.unacknowledged == 2
        session.receive_data(ack(2, first=1, flags=1), START)
        assert tokens(session) == ["order", "final"]

    def test_the_delivery_mode_counts_and_not_the_kind(self) -> None:
        """A peer that sends a recoverable OrderAck counts it as recoverable, so we must too."""
        session = accepted()
        session.receive_data(with_bits(ORDER_ACK, USER_FLAGS_AT, 0x20), START)
        session.receive_data(ack(sent=1, recoverable_sent=1), START)
        assert not session.closed
        assert counts(session) == (0, 0, 1, 1)


@pytest.mark.spec("QB-3.1.1.3.1-01")
def test_sessions_do_not_share_counts() -> None:
    first, second = Link().open(), Link().open()
    first.left.send(first.now, recoverable=True)
    first.roundtrip()
    assert counts(first.left.session) == (1, 1, 0, 0)
    assert counts(first.right.session) == (0, 0, 1, 1)
    assert counts(second.left.session) == counts(second.right.session) == (0, 0, 0, 0)


@pytest.mark.spec("QB-3.1.1.3.1-01")
def test_a_manager_has_one_set_of_counts_for_each_session() -> None:
    """Both directions and both kinds, and none of them disturbs another."""
    link = Link().open()
    for recoverable in (False, True, True):
        link.left.send(link.now, recoverable=recoverable)
    link.right.send(link.now)
    link.roundtrip()
    assert counts(link.left.session) == (3, 2, 1, 0)
    assert counts(link.right.session) == (1, 0, 3, 2)


@pytest.mark.spec("QB-3.1.1.3.1-05", "MQ-2.2.20.4-14")
@pytest.mark.parametrize("recoverable", [False, True])
def test_counters_wrap(recoverable: bool) -> None:
    """70,000 messages in one direction and some in the other. Each is acknowledged once, and the counts always
    agree."""
    link = Link(BinarySettings(cleanup_ms=10**9), BinarySettings(cleanup_ms=10**9)).open()
    left, right = link.left, link.right
    packet = message(recoverable=recoverable)
    total, acknowledged, replies = 70_000, 0, 0
    while left.sent < total:
        for _ in range(min(left.session.free, total - left.sent)):
            left.sent += 1
            left.session.send(packet, left.sent, link.now, recoverable=recoverable)
        if right.session.free and left.sent % 11 == 0:
            right.session.send(EXPRESS, None, link.now, recoverable=False)
            replies += 1
        link.roundtrip()
        right.session.stored(right.session.received.recoverable_count, link.now)
        link.roundtrip()
        for token in left.acknowledged:
            acknowledged += 1
            assert token == acknowledged
        for end in link.ends:
            end.events.clear()
            end.trace.clear()
    link.advance(DEFAULTS.ack_timeout_ms / 1000)
    link.roundtrip()
    assert acknowledged + len(left.acknowledged) == total
    assert counts(left.session)[0] == counts(right.session)[2] == total
    assert counts(right.session)[0] == counts(left.session)[2] == replies
    assert left.session.sent.in_flight == right.session.sent.in_flight == []
    assert not left.session.closed
    assert not right.session.closed


@pytest.mark.spec("QB-3.1.1.3.1-05")
def test_the_acknowledgment_of_number_zero() -> None:
    """The 65,536th recoverable message has the number that otherwise means that nothing is acknowledged."""
    received, sent = ReceivedMessages(), SentMessages()
    for number in range(1, 0x10001):
        sent.add((number,), recoverable=True)
        received.store(received.add(recoverable=True))
        if number % 32 == 31:
            assert sent.acknowledge(received.header(sent, 64))[-1] == number
    header = received.header(sent, 64)
    assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (0, 1)
    assert sent.acknowledge(header) == [0x10000]
    assert sent.in_flight == []


@pytest.mark.spec("QB-3.1.1.3.1-05")
def test_no_acknowledgment_after_the_wrap() -> None:
    """Number 0 without a bit says nothing, although a message with that number was sent."""
    sent = SentMessages()
    for number in range(1, 0x10004):
        sent.add((number,), recoverable=True)
    assert sent.acknowledge(SessionHeader(0xFFFF)) == []
    assert len(sent.in_flight) == 0x10003
