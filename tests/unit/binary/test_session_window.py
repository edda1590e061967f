"""The window, [MS-MQQB] 3.1.1.3.1 and 3.1.7.1: how much may be unacknowledged, and what opens the window again."""

from __future__ import annotations

import pytest

from postroad.binary.session import MAX_UNWRITTEN, BinarySettings, Session
from postroad.errors import LocalProtocolError
from postroad.wire import ConnectionParameters, EstablishConnection
from tests.unit.binary.link import (
    EXPRESS,
    FAST,
    HERE,
    RECOVERABLE,
    START,
    THERE,
    Link,
    accepted,
    ack,
    headers,
    initiated,
    only_header,
)


def fill(session: Session) -> int:
    """Sends what the session accepts. Returns how much that was."""
    sent = 0
    while session.free:
        session.send(EXPRESS, sent, START, recoverable=False)
        sent += 1
    return sent


def opened_with(peer_window: int, own_window: int = 64) -> Session:
    return accepted(BinarySettings(window_size=own_window), window=peer_window)


class TestSending:
    @pytest.mark.spec("QB-3.1.7.1-02", "QB-3.1.1.3.1-21", "QB-3.1.7.1.3-08")
    def test_without_acknowledgments_exactly_64_messages_go(self) -> None:
        session = initiated()
        assert fill(session) == 64
        assert session.data_to_send() == EXPRESS * 64
        assert session.sent.unacknowledged == 64
        with pytest.raises(LocalProtocolError, match="window is full"):
            session.send(EXPRESS, None, START, recoverable=False)
        assert session.data_to_send() == b""
        assert (session.sent.count, len(session.sent.in_flight)) == (64, 64)

    @pytest.mark.spec("QB-3.1.7.1-02")
    def test_an_acknowledgment_opens_it_by_as_much_as_it_covers(self) -> None:
        session = initiated()
        fill(session)
        session.receive_data(ack(10), START)
        assert session.free == 10
        assert fill(session) == 10

    @pytest.mark.spec("QB-3.1.3.2-10")
    def test_a_backlog_greater_than_the_window_gets_through(self) -> None:
        link = Link().open()
        while link.left.sent < 1000:
            while link.left.session.free and link.left.sent < 1000:
                link.left.send(link.now)
            link.roundtrip()  # no timer fires
        assert len(link.right.received) == 1000

    def test_recoverable_messages_that_were_read_do_not_fill_it(self) -> None:
        """The peer has read them and has yet to store them, so it may accept more."""
        session = initiated()
        for _ in range(64):
            session.send(RECOVERABLE, None, START, recoverable=True)
        session.receive_data(ack(64), START)
        assert (session.free, len(session.sent.in_flight)) == (64, 64)


class TestWidth:
    @pytest.mark.spec("QB-3.1.1.3.1-22")
    @pytest.mark.parametrize(("own", "peer", "width"), [(64, 8, 8), (8, 64, 8), (64, 64, 64), (64, 1, 1)])
    def test_the_narrower_of_the_two_ends_counts(self, own: int, peer: int, width: int) -> None:
        assert fill(opened_with(peer, own)) == width

    @pytest.mark.spec("QB-3.1.1.3.1-22")
    @pytest.mark.parametrize(("opened", "said", "width"), [(64, 8, 8), (8, 64, 8), (64, 1, 1)])
    def test_so_does_the_window_of_the_last_session_header(self, opened: int, said: int, width: int) -> None:
        session = opened_with(opened)
        session.receive_data(ack(window=said), START)
        assert fill(session) == width

    def test_only_the_last_one(self) -> None:
        session = opened_with(64)
        session.receive_data(ack(window=1), START)
        session.receive_data(ack(window=32), START)
        assert session.window == 32

    def test_a_window_that_shrinks_below_what_is_in_flight_stops_everything(self) -> None:
        session = opened_with(64)
        fill(session)
        session.receive_data(ack(10, window=20), START)
        assert session.free == 0
        session.receive_data(ack(50, window=20), START)
        assert session.free == 6

    @pytest.mark.spec("QB-2.2.2.1-08")
    @pytest.mark.parametrize("window", [0, 1, 0xFFFF])
    def test_every_value_opens_a_session(self, window: int) -> None:
        assert opened_with(window).free == min(window or 64, 64)

    def test_zero_says_nothing(self) -> None:
        """Otherwise nothing could ever be sent, and no packet could change that."""
        assert opened_with(0).window == 64
        session = opened_with(8)
        session.receive_data(ack(window=0), START)
        assert session.window == 8

    def test_the_widest(self) -> None:
        session = opened_with(0xFFFF, 0xFFFF)
        assert fill(session) == 0xFFFF
        session.receive_data(ack(0, window=0xFFFF), START)
        assert session.free == 0
        session.receive_data(ack(0xFFFF, window=0xFFFF), START)
        assert session.free == 0xFFFF


class TestAcknowledgingInTime:
    """3.1.1.6.1: by the timer or by the window. Half a window is our choice."""

    @pytest.mark.spec("QB-3.1.1.6.1-02", "QB-3.1.1.3.1-21")
    def test_half_a_window_is_acknowledged_at_once(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS * 31, START)
        assert session.data_to_send() == b""
        session.receive_data(EXPRESS, START)
        assert only_header(session.data_to_send()).ack_sequence_number == 32

    @pytest.mark.spec("QB-3.1.1.6.1-02")
    def test_a_peer_with_a_narrow_window_does_not_stall(self) -> None:
        session = opened_with(8)
        session.receive_data(EXPRESS * 4, START)
        assert only_header(session.data_to_send()).ack_sequence_number == 4

    @pytest.mark.spec("QB-3.1.1.6.1-02")
    def test_with_a_window_of_one_every_message_is_acknowledged(self) -> None:
        link = Link(BinarySettings(window_size=1), BinarySettings(window_size=1)).open()
        for _ in range(5):
            link.left.send(link.now)
            link.roundtrip()
        assert link.left.acknowledged == [1, 2, 3, 4, 5]

    @pytest.mark.spec("QB-3.1.1.6.1-02")
    def test_recoverable_messages_count_when_they_are_stored(self) -> None:
        session = accepted(BinarySettings(window_size=16))
        session.receive_data(RECOVERABLE * 16, START)
        assert session.data_to_send() == b""
        session.stored(8, START)
        header = only_header(session.data_to_send())
        assert (header.ack_sequence_number, header.recoverable_msg_ack_flags) == (16, 0xFF)

    @pytest.mark.parametrize(("peer_window", "acknowledged_at"), [(64, 32), (1024, 512), (9, 4), (1, 1), (0, 512)])
    def test_half_of_the_smaller_window_is_acknowledged_at_once(self, peer_window: int, acknowledged_at: int) -> None:
        """Windows proposes 64, and waits after 64 whatever we propose."""
        session = accepted(BinarySettings(), window=peer_window)
        session.receive_data(EXPRESS * (acknowledged_at - 1), START)
        assert session.data_to_send() == b""
        session.receive_data(EXPRESS, START)
        assert only_header(session.data_to_send()).ack_sequence_number == acknowledged_at

    def test_in_a_wide_window_every_32_recoverable_messages_are_acknowledged(self) -> None:
        session = accepted(BinarySettings(), window=1024)
        session.receive_data(RECOVERABLE * 100, START)
        assert session.data_to_send() == b""
        session.stored(100, START)
        found = headers(session.data_to_send())
        assert [each.recoverable_msg_ack_seq_number for each in found] == [1, 33, 65]
        assert {each.recoverable_msg_ack_flags for each in found} == {0xFFFFFFFF}
        session.on_timer(START + 0.5)
        assert only_header(session.data_to_send()).recoverable_msg_ack_flags == 0xF

    def test_a_window_that_the_peer_has_narrowed_counts_at_once(self) -> None:
        session = accepted(BinarySettings(), window=1024)
        session.receive_data(EXPRESS * 5 + ack(sent=5, window=1), START)
        assert only_header(session.data_to_send()).ack_sequence_number == 5

    def test_one_read_of_many_messages_is_one_acknowledgment(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS * 64, START)
        assert len(headers(session.data_to_send())) == 1


class TestPause:
    """3.1.7.13"""

    @pytest.mark.spec("QB-3.1.7.13-01", "QB-3.1.7.13-02")
    def test_it_acknowledges_everything_and_asks_for_one_message_at_a_time(self) -> None:
        session = accepted()
        session.send(EXPRESS, None, START, recoverable=False)
        session.receive_data(EXPRESS + RECOVERABLE, START)
        session.stored(1, START)
        session.data_to_send()
        assert session.session_active
        session.announce_pause()
        header = only_header(session.data_to_send())
        assert (header.ack_sequence_number, header.user_msg_sequence_number, header.window_size) == (2, 1, 1)
        assert (header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags) == (1, 1)
        assert header.recoverable_msg_seq_number == 0
        assert session.received.unacked == 0
        assert not session.session_active
        assert session.deadline == START + 20  # when our own message is due to be acknowledged
        session.on_timer(START + 19)
        assert session.data_to_send() == b""

    def test_the_other_end_obeys(self) -> None:
        link = Link().open()
        link.right.session.announce_pause()
        link.roundtrip()
        assert link.left.session.free == 1

    def test_what_is_stored_later_is_acknowledged_all_the_same(self) -> None:
        session = accepted()
        session.receive_data(RECOVERABLE, START)
        session.announce_pause()
        session.data_to_send()
        session.stored(1, START + 0.1)
        session.on_timer(START + 0.5)
        assert only_header(session.data_to_send()).recoverable_msg_ack_flags == 1

    def test_a_session_that_is_not_open_has_nothing_to_announce(self) -> None:
        session = Session.initiate(HERE, THERE, FAST, START)
        session.data_to_send()
        session.announce_pause()
        assert session.data_to_send() == b""


def test_messages_do_not_go_before_the_session_is_open() -> None:
    session = Session.accept(HERE, FAST, START)
    assert session.free == 0
    session.receive_data(EstablishConnection(THERE, HERE, 0).encode(), START)
    assert session.free == 0
    session.receive_data(ConnectionParameters(500, 20_000, 64).encode(), START)
    assert session.free == 64


class TestBlocked:
    """A peer that does not read what is written to it."""

    def test_nothing_is_sent_and_acknowledgments_do_not_pile_up(self) -> None:
        session = accepted(ack_ms=20_000)
        session.blocked = True
        assert session.free == 0
        for number in range(1, 101):
            session.receive_data(RECOVERABLE, START)
            session.stored(number, START)
        session.on_timer(START + 10.0)
        assert session.data_to_send() == b""
        assert session.deadline is not None
        session.unblock(START + 11.0)
        assert session.free > 0
        assert len(headers(session.data_to_send())) == 3  # one for each 32; the rest waits for the timer

    def test_large_messages_wait_to_be_written_before_more_are_taken(self) -> None:
        session = opened_with(64, 64)
        assert session.room >= 0
        while session.room >= 0:
            session.send(bytes(1 << 20), None, START, recoverable=False)
        assert len(session.data_to_send()) == MAX_UNWRITTEN + (1 << 20)
        assert session.room >= 0
