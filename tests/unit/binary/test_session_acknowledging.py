"""Session acknowledgments, [MS-MQQB] 3.1.5.5, 3.1.5.8.7, 3.1.6.4 and 3.1.7.11: written, read and believed."""

from __future__ import annotations

from struct import unpack_from

import pytest

from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Acknowledged, Closed, Received
from postroad.wire import SessionAck, SessionHeader
from postroad.wire.patch import with_session_header
from postroad.wire.view import MessageView
from tests.frames import ORDER_ACK
from tests.unit.binary.link import (
    EXPRESS,
    FAST,
    RECOVERABLE,
    START,
    Link,
    accepted,
    ack,
    closed,
    headers,
    initiated,
    only_header,
    packets,
    tokens,
)
from tests.vectors import FRAME_8

WIDE = BinarySettings(window_size=1000)
EXPRESS_ACK_S = 10.0  # half of the AckTimeout that `accepted` negotiates
RECOVERABLE_ACK_S = 0.5


def timer(session: Session, seconds: float) -> bytes:
    """What a session sends when its timers fire after some time."""
    session.on_timer(START + seconds)
    return session.data_to_send()


def sent(recoverable: str, settings: BinarySettings = FAST) -> Session:
    """An initiator that has sent messages, with tokens from 1. `r` is a recoverable message, `e` an express one."""
    session = initiated(settings)
    for token, kind in enumerate(recoverable, 1):
        packet = RECOVERABLE if kind == "r" else EXPRESS
        session.send(packet, token, START, recoverable=kind == "r")
    session.data_to_send()
    return session


class TestWriting:
    """3.1.6.4: the SessionAck of the timer."""

    @pytest.mark.spec("QB-3.1.1.7.2-01", "QB-3.1.5.8.2-07")
    def test_several_express_messages_share_one_acknowledgment_after_a_delay(self) -> None:
        session = accepted(ack_ms=20_000)
        for seconds in (0.0, 1.0, 2.0):
            session.receive_data(EXPRESS, START + seconds)
        assert session.data_to_send() == b""
        assert timer(session, 9.9) == b""
        assert only_header(timer(session, 10.0)).ack_sequence_number == 3
        assert timer(session, 60.0) == b""

    @pytest.mark.spec("QB-3.1.6.4-02", "QB-3.1.1.3.1-06", "MQ-2.2.20.4-06")
    def test_all_its_fields(self) -> None:
        session = accepted(BinarySettings(window_size=50))
        session.send(EXPRESS, None, START, recoverable=False)
        session.send(RECOVERABLE, None, START, recoverable=True)
        session.receive_data(RECOVERABLE * 3 + EXPRESS, START)
        session.stored(3, START)
        session.data_to_send()
        packet = timer(session, RECOVERABLE_ACK_S)
        (flags,) = unpack_from("<H", packet, 2)
        assert flags & 0x0018 == 0x0018  # IN and SH
        assert unpack_from("<H", packet, 18) == (1,)  # PT
        assert unpack_from("<HHIHHH", packet, 20) == (4, 1, 0x7, 2, 1, 50)

    @pytest.mark.spec("QB-3.1.6.4-03", "QB-3.1.1.6.1-01", "MQ-2.2.20.4-05")
    def test_express_messages_alone_say_nothing_of_recoverable_ones(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS * 3, START)
        header = only_header(timer(session, EXPRESS_ACK_S))
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (0, 0)

    @pytest.mark.spec("QB-3.1.6.4-03", "QB-3.1.6.4-04", "QB-3.1.5.8.7-06")
    def test_the_next_one_starts_from_fresh_flags(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE * 3, START)
        session.stored(3, START)
        first = only_header(timer(session, 1))
        assert (first.recoverable_msg_ack_seq_number, first.recoverable_msg_ack_flags) == (1, 0x7)
        assert session.received.unacked == 0
        session.receive_data(RECOVERABLE, START + 1)
        session.stored(4, START + 1)
        second = only_header(timer(session, 2))
        assert (second.recoverable_msg_ack_seq_number, second.recoverable_msg_ack_flags) == (4, 0x1)
        session.receive_data(EXPRESS, START + 2)
        third = only_header(timer(session, 20))
        assert (third.recoverable_msg_ack_seq_number, third.recoverable_msg_ack_flags) == (0, 0)

    @pytest.mark.spec("QB-3.1.6.4-01", "QB-3.1.2.5-01")
    def test_an_idle_session_is_silent(self) -> None:
        session = accepted(BinarySettings(cleanup_ms=10**9))
        session.receive_data(EXPRESS, START)
        assert len(headers(timer(session, EXPRESS_ACK_S))) == 1
        for seconds in range(11, 500, 7):
            assert timer(session, seconds) == b""


class TestDurability:
    """A recoverable message is acknowledged after it is stored, never before."""

    @pytest.mark.spec("QB-3.1.5.8.7-04", "MQ-2.2.20.4-07")
    def test_a_message_that_is_not_stored_has_no_bit(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE * 3, START)
        session.stored(2, START)
        header = only_header(timer(session, RECOVERABLE_ACK_S))
        assert header.ack_sequence_number == 3
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (1, 0x3)
        assert session.received.unacked == 1

    @pytest.mark.spec("QB-3.1.2.5-01", "QB-3.1.6.4-05")
    def test_the_timer_runs_on_for_what_is_still_to_be_stored(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE, START)
        assert only_header(timer(session, 0.5)).recoverable_msg_ack_flags == 0
        session.stored(1, START + 0.7)
        assert session.data_to_send() == b""
        assert timer(session, 0.9) == b""
        header = only_header(timer(session, 1.0))
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (1, 0x1)
        assert timer(session, 60) == b""

    def test_it_is_never_acknowledged_twice(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE * 2, START)
        session.stored(2, START)
        session.stored(1, START)  # an earlier write that was reported late
        assert only_header(timer(session, 0.5)).recoverable_msg_ack_flags == 0x3
        session.stored(2, START + 0.6)
        assert timer(session, 30) == b""

    def test_nothing_is_acknowledged_after_the_end(self) -> None:
        session = accepted(WIDE)
        session.receive_data(RECOVERABLE * 40, START)
        session.disconnected()
        session.stored(40, START)
        assert timer(session, 60) == b""


class TestThirtyTwo:
    """3.1.5.8.7: there are no more bits."""

    @pytest.mark.spec("QB-3.1.5.8.7-01", "QB-3.1.5.8.7-02")
    def test_thirty_two_are_acknowledged_at_once(self) -> None:
        session = accepted(WIDE)
        session.send(EXPRESS, None, START, recoverable=False)
        session.send(RECOVERABLE, None, START, recoverable=True)
        session.data_to_send()
        session.receive_data(EXPRESS + RECOVERABLE * 31, START)
        session.stored(31, START)
        assert session.data_to_send() == b""
        session.receive_data(RECOVERABLE, START)
        session.stored(32, START)
        packet = session.data_to_send()
        assert unpack_from("<H", packet, 2)[0] & 0x0018 == 0x0018
        assert unpack_from("<H", packet, 18) == (1,)
        assert unpack_from("<HHIHHH", packet, 20) == (33, 1, 0xFFFFFFFF, 2, 1, 1000)
        assert session.received.unacked == 0

    @pytest.mark.spec("QB-3.1.5.8.7-03")
    def test_the_thirty_third_has_bit_zero_again(self) -> None:
        session = accepted(WIDE)
        session.receive_data(RECOVERABLE * 33, START)
        session.stored(33, START)
        assert only_header(session.data_to_send()).recoverable_msg_ack_flags == 0xFFFFFFFF
        header = only_header(timer(session, RECOVERABLE_ACK_S))
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (33, 0x1)

    def test_a_large_commit_takes_as_many_as_it_needs(self) -> None:
        session = accepted(WIDE)
        session.receive_data(RECOVERABLE * 100, START)
        session.stored(100, START)
        firsts = [header.recoverable_msg_ack_seq_number for header in headers(session.data_to_send())]
        assert firsts == [1, 33, 65]
        header = only_header(timer(session, RECOVERABLE_ACK_S))
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (97, 0xF)


class TestPiggyBack:
    """3.1.7.11: a message that leaves anyway carries the acknowledgment, if that is due soon."""

    @pytest.mark.spec("QB-3.1.7.11-01")
    @pytest.mark.parametrize(("seconds", "carries"), [(7.0, False), (7.5, False), (8.0, True)])
    def test_after_three_quarters_of_the_timer(self, seconds: float, carries: bool) -> None:
        session = accepted()
        session.receive_data(EXPRESS, START)
        session.send(EXPRESS, None, START + seconds, recoverable=False)
        assert len(headers(session.data_to_send())) == carries

    @pytest.mark.spec("QB-3.1.7.11-02", "QB-3.1.7.1.3-09", "QB-3.1.7.1.3-10", "QB-3.1.5.8.4-02")
    def test_its_fields_are_those_of_a_session_ack_and_count_the_message_itself(self) -> None:
        session = accepted(BinarySettings(window_size=50))
        session.send(EXPRESS, None, START, recoverable=False)
        session.receive_data(RECOVERABLE * 3 + EXPRESS, START)
        session.stored(3, START)
        session.data_to_send()
        session.send(RECOVERABLE, None, START + 0.45, recoverable=True)
        packet = session.data_to_send()
        assert len(packet) == len(RECOVERABLE) + 16
        assert unpack_from("<HHIHHH", packet, len(RECOVERABLE)) == (4, 1, 0x7, 2, 1, 50)
        (view,) = packets(packet)
        assert isinstance(view, MessageView)
        assert view.packet_size == len(RECOVERABLE)

    @pytest.mark.spec("QB-3.1.7.11-03", "QB-3.1.7.1.3-11")
    def test_no_session_ack_follows(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE + EXPRESS, START)
        session.stored(1, START)
        session.send(EXPRESS, None, START + 0.45, recoverable=False)
        assert only_header(session.data_to_send()).recoverable_msg_ack_flags == 1
        assert session.received.unacked == 0
        assert timer(session, 30) == b""

    @pytest.mark.spec("QB-3.1.7.1.3-12")
    def test_it_is_filled_in_once(self) -> None:
        """Of two messages in a row, the first carries every acknowledgment, and the second has nothing to say."""
        session = accepted()
        session.receive_data(RECOVERABLE * 3, START)
        session.stored(3, START)
        session.send(EXPRESS, None, START + 0.45, recoverable=False)
        session.send(EXPRESS, None, START + 0.45, recoverable=False)
        first, second = packets(session.data_to_send())
        assert isinstance(first, MessageView)
        assert isinstance(second, MessageView)
        assert first.session_header is not None
        assert first.session_header.recoverable_msg_ack_flags == 0x7
        assert second.session_header is None

    @pytest.mark.spec("QB-3.1.7.11-01")
    def test_with_nothing_to_acknowledge_it_carries_nothing(self) -> None:
        session = accepted()
        session.send(EXPRESS, None, START + 9, recoverable=False)
        assert session.data_to_send() == EXPRESS

    def test_ordering_acknowledgments_never_carry_one(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS, START)
        session.send(ORDER_ACK, None, START + 9.9, recoverable=False, plain=True)
        assert session.data_to_send() == ORDER_ACK

    @pytest.mark.spec("QB-3.1.5.8.4-01", "QB-3.1.5.8-04")
    def test_one_that_comes_is_read_like_a_session_ack(self) -> None:
        """After the count of the message that carries it, and its recoverable count."""
        session = sent("er")
        header = SessionHeader(2, 1, 0x1, 1, 1, 64)
        session.receive_data(with_session_header(RECOVERABLE, header), START)
        received, acknowledged = session.events()
        assert isinstance(received, Received)
        assert acknowledged == Acknowledged((1, 2))
        assert session.free == 64
        assert not session.closed


class TestReading:
    """3.1.5.5: what a SessionHeader releases."""

    @pytest.mark.spec("QB-3.1.5.5.1-01", "QB-3.1.5.5.1-03")
    def test_everything_up_to_the_number_is_marked_once(self) -> None:
        session = sent("eee")
        session.receive_data(ack(2), START)
        assert tokens(session) == [1, 2]
        assert (session.sent.unacknowledged, session.sent.in_flight) == (1, [3])
        session.receive_data(ack(2), START)
        assert tokens(session) == []
        assert session.sent.unacknowledged == 1

    @pytest.mark.spec("QB-3.1.5.5.1-02")
    def test_what_was_not_sent_yet_is_not_acknowledged(self) -> None:
        session = sent("ee")
        session.receive_data(ack(3, first=1, flags=0x7), START)
        assert tokens(session) == []
        session.send(EXPRESS, 3, START, recoverable=False)
        session.send(RECOVERABLE, 4, START, recoverable=True)
        assert session.sent.in_flight == [1, 2, 3, 4]
        session.receive_data(ack(2), START)
        assert tokens(session) == [1, 2]
        assert session.sent.in_flight == [3, 4]

    @pytest.mark.spec("QB-3.1.5.5.2-01")
    def test_the_number_alone_releases_express_messages_alone(self) -> None:
        session = sent("ere")
        session.receive_data(ack(3), START)
        assert tokens(session) == [1, 3]
        assert session.sent.in_flight == [2]
        assert session.free == 64

    @pytest.mark.spec("QB-3.1.5.5.3-01")
    def test_recoverable_messages_up_to_the_number_are_released(self) -> None:
        session = sent("rrrr")
        session.receive_data(ack(4, first=3), START)
        assert tokens(session) == [1, 2, 3]

    @pytest.mark.spec("QB-3.1.5.5.3-01")
    def test_zero_stands_for_no_recoverable_message(self) -> None:
        session = sent("rr")
        session.receive_data(ack(2), START)
        assert tokens(session) == []
        assert session.sent.in_flight == [1, 2]

    @pytest.mark.spec("QB-3.1.5.5.3-02")
    def test_a_bit_stands_for_a_message_above_the_number(self) -> None:
        session = sent("rrrrrrr")
        session.receive_data(ack(7, first=4, flags=0x5), START)
        assert tokens(session) == [1, 2, 3, 4, 6]
        assert session.sent.in_flight == [5, 7]
        session.receive_data(ack(7, first=7, flags=0x1), START)
        assert tokens(session) == [5, 7]

    @pytest.mark.spec("QB-3.1.5.5.3-02")
    def test_all_thirty_two_bits(self) -> None:
        session = sent("r" * 40, BinarySettings(window_size=40))
        session.receive_data(ack(40, first=1, flags=0xFFFFFFFF), START)
        assert tokens(session) == list(range(1, 33))
        session.receive_data(ack(40, first=33, flags=0x80), START)
        assert tokens(session) == [33, 40]

    def test_stored_is_more_than_read(self) -> None:
        """A peer has stored a message but does not say that it has read it. The message is released once, and still
        counted."""
        session = sent("rr")
        session.receive_data(ack(0, first=1, flags=0x3), START)
        assert tokens(session) == [1, 2]
        assert session.sent.in_flight == []
        assert session.sent.unacknowledged == 2
        session.receive_data(ack(2), START)
        assert tokens(session) == []
        assert session.sent.unacknowledged == 0

    def test_the_captured_acknowledgment(self) -> None:
        """[MS-MQQB] 4.1.8: one express message, received."""
        session = sent("e")
        session.receive_data(FRAME_8, START)
        assert tokens(session) == [1]


class TestChecking:
    """3.1.5.5.5: both ends must have the same counts."""

    @pytest.mark.spec("QB-3.1.5.5.5-01", "QB-3.1.5.5.5-02")
    @pytest.mark.parametrize(
        ("said", "named"),
        [((1, 1), "1 messages"), ((3, 1), "3 messages"), ((2, 0), "0 recoverable"), ((2, 2), "2 rec")],
    )
    def test_counts_that_differ_close_the_session(self, said: tuple[int, int], named: str) -> None:
        session = accepted()
        session.receive_data(EXPRESS + RECOVERABLE, START)
        session.receive_data(ack(sent=said[0], recoverable_sent=said[1]), START)
        assert named in closed(session).reason
        assert session.deadline is None

    @pytest.mark.spec("QB-3.1.5.5.5-01", "QB-3.1.5.5.5-02")
    def test_counts_that_agree_do_not(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS + RECOVERABLE, START)
        session.receive_data(ack(sent=2, recoverable_sent=1), START)
        assert not session.closed

    @pytest.mark.spec("QB-3.1.5.5-02")
    def test_what_was_acknowledged_is_released_before(self) -> None:
        session = sent("er")
        session.receive_data(ack(2, first=1, flags=1, sent=9), START)
        released, end = session.events()
        assert released == Acknowledged((1, 2))
        assert isinstance(end, Closed)
        assert session.sent.in_flight == []

    @pytest.mark.spec("MQ-2.2.20.4-09")
    def test_the_message_that_brings_a_wrong_count_is_still_delivered(self) -> None:
        session = accepted()
        session.receive_data(with_session_header(EXPRESS, SessionHeader(user_msg_sequence_number=7)), START)
        received, end = session.events()
        assert isinstance(received, Received)
        assert isinstance(end, Closed)

    def test_a_lost_message_is_noticed(self) -> None:
        """Bytes that vanish on the way are sent again in another session. This one cannot go on."""
        link = Link(FAST).open()
        link.left.send(link.now)
        link.drop(link.right)
        link.right.send(link.now)
        link.left.send(link.now)
        link.roundtrip()
        link.advance(10)
        link.roundtrip()
        assert link.right.closed == "the peer has sent 2 messages and 1 have come"

    def test_a_repeated_message_is_noticed(self) -> None:
        link = Link(FAST).open()
        link.left.send(link.now)
        link.duplicate(link.right)
        link.right.send(link.now)
        link.roundtrip()
        link.advance(10)
        link.roundtrip()
        assert link.right.closed == "the peer has sent 1 messages and 2 have come"


def test_a_session_ack_is_all_that_the_timer_sends() -> None:
    session = accepted()
    session.receive_data(EXPRESS, START)
    (packet,) = packets(timer(session, EXPRESS_ACK_S))
    assert isinstance(packet, SessionAck)
