"""The four timers of a session, [MS-MQQB] 3.1.2 and 3.1.6. Time is an argument: nobody waits here."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Closed, SessionState
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.wire import ConnectionParameters, EstablishConnection
from postroad.wire.octets import NULL_GUID
from tests.unit.binary.link import (
    DEFAULTS,
    EXPRESS,
    FAST,
    HERE,
    RECOVERABLE,
    START,
    THERE,
    Link,
    accepted,
    ack,
    closed,
    initiated,
    only_header,
    tokens,
)

ACK_WAIT_S = 20.0  # of FAST, where no direct name led


def alive(session: Session, seconds: float) -> bool:
    """Fires what is due after some time. Returns whether the session still exists."""
    session.on_timer(START + seconds)
    return not session.closed


class TestInitialization:
    @pytest.mark.spec("QB-3.1.6.6-01", "QB-3.1.2.1-01", "QB-3.1.5.2.3-01", "QB-6-19")
    @pytest.mark.parametrize("answered", [False, True], ids=["no answer", "no parameters"])
    def test_an_initiator_gives_up_a_minute_after_its_request(self, answered: bool) -> None:
        session = Session.initiate(HERE, THERE, DEFAULTS, START)
        if answered:
            session.receive_data(EstablishConnection(HERE, THERE, 0).encode(), START + 30)
        assert alive(session, 59.9)
        assert session.deadline == START + 60
        assert not alive(session, 60)
        assert closed(session).status is ConnectionStatus.NOT_READY

    @pytest.mark.spec("QB-3.1.6.6-01", "QB-3.1.2.1-02", "QB-3.1.5.10-02", "QB-6-19")
    @pytest.mark.parametrize("asked", [False, True], ids=["no request", "no parameters"])
    def test_an_acceptor_gives_up_a_minute_after_the_connection(self, asked: bool) -> None:
        session = Session.accept(HERE, DEFAULTS, START)
        if asked:
            session.receive_data(EstablishConnection(THERE, HERE, 0).encode(), START)
        assert alive(session, 59.9)
        assert not alive(session, 60)

    @pytest.mark.spec("QB-3.1.2.1-03")
    def test_its_length_is_a_setting(self) -> None:
        session = Session.accept(HERE, BinarySettings(initialization_ms=1500), START)
        assert alive(session, 1.4)
        assert not alive(session, 1.5)

    @pytest.mark.spec("QB-3.1.2.1-04")
    def test_each_session_has_its_own(self) -> None:
        first = Session.accept(HERE, DEFAULTS, START)
        second = Session.accept(HERE, DEFAULTS, START + 10)
        assert not alive(first, 60)
        assert alive(second, 60)
        assert not alive(second, 70)

    @pytest.mark.spec("QB-3.1.5.4.1-05", "QB-3.1.5.4.2-03")
    @pytest.mark.parametrize("opened", [initiated, accepted])
    def test_it_stops_when_the_session_is_open(self, opened: Callable[[], Session]) -> None:
        assert alive(opened(), 299)


class TestCleanup:
    @pytest.mark.spec("QB-3.1.6.2-01", "QB-3.1.3.2-04", "QB-3.1.3.2-12")
    def test_an_idle_session_is_closed(self) -> None:
        session = initiated()
        assert session.deadline == START + 300
        assert alive(session, 299)
        assert not alive(session, 300)
        assert closed(session).reason == "the session was idle"

    @pytest.mark.spec("QB-3.1.6.2-02", "QB-3.1.5.8.2-08")
    def test_a_message_received_in_each_period_keeps_it_open(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS, START + 299)
        assert alive(session, 300)
        session.receive_data(EXPRESS, START + 301)
        assert alive(session, 600)
        assert not alive(session, 900)

    @pytest.mark.spec("QB-3.1.6.2-02", "QB-3.1.7.1.3-13")
    def test_so_does_a_message_sent(self) -> None:
        session = initiated()
        assert not session.session_active
        session.send(EXPRESS, "it", START + 299, recoverable=False)
        assert session.session_active
        assert session.sent.in_flight == ["it"]
        session.receive_data(ack(1), START + 299)
        assert alive(session, 300)
        assert not session.session_active
        assert alive(session, 599)
        assert not alive(session, 600)

    @pytest.mark.spec("QB-3.1.6.2-01")
    def test_other_packets_do_not(self) -> None:
        session = accepted()
        for seconds in range(10, 300, 10):
            session.receive_data(ack(), START + seconds)
        assert not alive(session, 300)

    @pytest.mark.spec("QB-3.1.2.2-01")
    def test_its_length_is_a_setting(self) -> None:
        assert initiated(BinarySettings(cleanup_ms=120_000)).deadline == START + 120


class TestAckWait:
    """3.1.6.3: a peer that says nothing while a message waits for its acknowledgment."""

    def silent(self, session: Session) -> Session:
        """A session with one message in flight, and no packet since the timer's last event."""
        session.send(EXPRESS, "first", START, recoverable=False)
        session.received_ack = False
        return session

    @pytest.mark.spec("QB-3.1.6.3-02", "QB-2.2.2.1-05")
    def test_a_silent_peer_ends_the_session(self) -> None:
        session = self.silent(initiated(FAST))
        assert alive(session, 19.9)
        assert not alive(session, ACK_WAIT_S)
        assert closed(session).status is ConnectionStatus.SEND_FAILURE
        assert session.sent.in_flight == ["first"]

    @pytest.mark.spec("QB-3.1.2.4-01", "QB-6-22")
    @pytest.mark.parametrize(("peer", "wait_s"), [(THERE, 20), (NULL_GUID, 40)], ids=["named", "direct"])
    def test_a_direct_session_waits_twice_as_long(self, peer: UUID, wait_s: int) -> None:
        session = self.silent(initiated(FAST, peer=peer))
        assert alive(session, wait_s - 0.1)
        assert not alive(session, wait_s)

    @pytest.mark.spec("QB-3.1.2.4-01")
    def test_the_factor_is_a_setting(self) -> None:
        session = self.silent(initiated(BinarySettings(ack_timeout_ms=20_000, ack_wait_factor=5), peer=NULL_GUID))
        assert alive(session, 99)
        assert not alive(session, 100)

    @pytest.mark.spec("QB-3.1.5.4.1-03", "QB-3.1.5.4.1-02")
    def test_an_acceptor_waits_as_long_as_the_initiator_said(self) -> None:
        session = self.silent(accepted(DEFAULTS, ack_ms=30_000))
        assert alive(session, 29.9)
        assert not alive(session, 30)

    @pytest.mark.spec("QB-3.1.6.3-03", "QB-3.1.5.1-01")
    # A SessionAck restarts the timer, 3.1.5.5.5. The time that it gains counts from there.
    @pytest.mark.parametrize(("packet", "start_s"), [(EXPRESS, 0.0), (ack(), 1.0)], ids=["message", "session ack"])
    def test_any_packet_buys_exactly_one_more_period(self, packet: bytes, start_s: float) -> None:
        session = self.silent(initiated(FAST))
        session.receive_data(packet, START + 1)
        assert alive(session, start_s + ACK_WAIT_S)
        assert not session.received_ack
        assert alive(session, start_s + 2 * ACK_WAIT_S - 0.1)
        assert not alive(session, start_s + 2 * ACK_WAIT_S)

    @pytest.mark.spec("QB-3.1.5.1-01")
    def test_half_a_packet_buys_nothing(self) -> None:
        session = self.silent(initiated(FAST))
        session.receive_data(EXPRESS[:50], START + 1)
        assert not alive(session, ACK_WAIT_S)

    @pytest.mark.spec("QB-3.1.5.1-01")
    def test_the_handshake_is_packets_too(self) -> None:
        assert initiated().received_ack
        assert accepted().received_ack

    @pytest.mark.spec("QB-3.1.7.1.3-14")
    def test_it_runs_from_the_first_message_that_waits(self) -> None:
        session = initiated(FAST)
        assert session.deadline == START + 300
        session.send(EXPRESS, 1, START + 5, recoverable=False)
        session.send(EXPRESS, 2, START + 15, recoverable=False)
        assert session.deadline == START + 25

    @pytest.mark.spec("QB-3.1.5.5.5-03")
    def test_an_acknowledgment_in_part_starts_it_again(self) -> None:
        session = initiated(FAST)
        for token in (1, 2):
            session.send(EXPRESS, token, START, recoverable=False)
        session.receive_data(ack(1), START + 15)
        assert session.deadline == START + 35

    @pytest.mark.spec("QB-3.1.6.3-01")
    def test_with_everything_acknowledged_it_fires_once_and_stops(self) -> None:
        session = initiated(FAST)
        session.send(EXPRESS, 1, START, recoverable=False)
        session.receive_data(ack(1), START + 1)
        assert session.deadline == START + ACK_WAIT_S
        assert alive(session, ACK_WAIT_S)
        assert not session.received_ack
        assert session.deadline == START + 300  # the cleanup timer's

    @pytest.mark.spec("QB-2.2.2.1-05")
    def test_after_a_quiet_while_a_peer_has_one_period(self) -> None:
        session = initiated(FAST)
        session.send(EXPRESS, 1, START, recoverable=False)
        session.receive_data(ack(1), START + 1)
        session.on_timer(START + ACK_WAIT_S)
        session.send(EXPRESS, 2, START + 100, recoverable=False)
        assert alive(session, 119.9)
        assert not alive(session, 120)

    def test_a_recoverable_message_waits_until_it_is_stored(self) -> None:
        session = initiated(FAST)
        session.send(RECOVERABLE, 1, START, recoverable=True)
        session.receive_data(ack(1), START + 1)
        assert tokens(session) == []
        assert session.deadline == START + 21
        assert alive(session, 21)
        assert not alive(session, 41)
        assert session.sent.in_flight == [1]


class TestAckSend:
    @pytest.mark.spec("QB-3.1.5.8.2-07", "QB-3.1.5.4.1-02")
    def test_an_express_message_is_acknowledged_after_half_the_time_out(self) -> None:
        session = accepted(ack_ms=30_000)
        session.receive_data(EXPRESS, START)
        assert session.deadline == START + 15
        session.receive_data(EXPRESS, START + 10)
        assert session.deadline == START + 15

    @pytest.mark.spec("QB-3.1.5.8.7-05", "QB-2.2.2.1-03", "QB-3.1.5.4.1-02")
    @pytest.mark.parametrize("timeout_ms", [500, 2000])
    def test_a_recoverable_one_after_the_time_that_was_agreed(self, timeout_ms: int) -> None:
        session = accepted(recoverable_ms=timeout_ms)
        session.receive_data(RECOVERABLE, START)
        session.stored(1, START)
        assert session.deadline == START + timeout_ms / 1000
        session.on_timer(START + timeout_ms / 1000 - 0.01)
        assert session.data_to_send() == b""
        session.on_timer(START + timeout_ms / 1000)
        assert only_header(session.data_to_send()).recoverable_msg_ack_flags == 1

    @pytest.mark.spec("QB-3.1.5.8.7-05", "QB-2.2.2.1-03")
    @pytest.mark.parametrize("seconds", [1.0, 9.9])
    def test_the_first_recoverable_one_starts_a_running_timer_again(self, seconds: float) -> None:
        session = accepted(recoverable_ms=2000)
        session.receive_data(EXPRESS, START)
        session.receive_data(RECOVERABLE, START + seconds)
        assert session.deadline == START + seconds + 2
        session.receive_data(RECOVERABLE + EXPRESS, START + seconds + 1)
        assert session.deadline == START + seconds + 2

    def test_a_slow_link_does_not_make_the_peer_give_up(self) -> None:
        """Two minutes to acknowledge, twenty seconds to wait for it. The shorter time counts, or it would never end."""
        session = accepted(recoverable_ms=120_000, ack_ms=20_000)
        session.receive_data(RECOVERABLE, START)
        assert session.deadline == START + 10

    def test_the_initiators_own_round_trip_is_its_delay_too(self) -> None:
        session = Session.initiate(HERE, THERE, FAST, START)
        session.data_to_send()
        session.receive_data(EstablishConnection(HERE, THERE, int(START * 1000)).encode(), START + 0.25)
        session.receive_data(ConnectionParameters(2000, 20_000, 64).encode() + RECOVERABLE, START + 1)
        assert session.deadline == START + 3


class TestClosing:
    """3.1.5.9"""

    def busy(self) -> Session:
        """A session with every timer of an open session running."""
        session = accepted()
        session.receive_data(EXPRESS, START)
        session.send(RECOVERABLE, "mine", START, recoverable=True)
        session.data_to_send()
        session.events()
        return session

    @pytest.mark.spec("QB-3.1.5.9-01", "QB-3.1.5.9-03", "QB-3.1.5.9-04", "QB-3.1.1.3.1-24")
    def test_it_sends_nothing_and_stops_every_timer(self) -> None:
        session = self.busy()
        session.close("enough")
        assert session.state is SessionState.CLOSED
        assert session.events() == [Closed("enough", ConnectionStatus.UNKNOWN_FAILURE)]
        assert session.deadline is None
        session.on_timer(START + 10**6)
        session.receive_data(EXPRESS, START)
        session.stored(0, START)
        session.announce_pause()
        assert session.data_to_send() == b""
        assert session.events() == []
        assert session.free == 0

    @pytest.mark.spec("QB-3.1.7.3-01")
    def test_a_connection_that_is_gone_closes_it(self) -> None:
        session = self.busy()
        session.disconnected()
        assert closed(session).reason == "the connection was closed"
        assert session.sent.in_flight == ["mine"]

    def test_it_happens_once(self) -> None:
        session = self.busy()
        session.close("first")
        session.close("second")
        session.disconnected()
        assert [event.reason for event in session.events() if isinstance(event, Closed)] == ["first"]

    @pytest.mark.spec("QB-3.1.5.9-01")
    def test_a_cut_link_says_nothing_more(self) -> None:
        link = Link().open()
        link.left.send(link.now)
        link.cut()
        assert link.left.closed == link.right.closed == "the connection was closed"
        assert not link.left.transit
        assert not link.right.transit
        assert link.left.session.sent.in_flight == [1]


def test_calling_too_early_changes_nothing() -> None:
    session = accepted()
    session.receive_data(EXPRESS, START)
    before = session.deadline
    for seconds in (0, 1, 9.99):
        session.on_timer(START + seconds)
    assert session.deadline == before
    assert session.data_to_send() == b""
