"""Opening a session, [MS-MQQB] 3.1.5.2.3 to 3.1.5.4: two EstablishConnection packets, two ConnectionParameters."""

from __future__ import annotations

from struct import unpack_from
from uuid import UUID

import pytest

from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Closed, Opened, SessionState
from postroad.errors import LocalProtocolError
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.wire import ConnectionParameters, EstablishConnection
from postroad.wire.framer import Packet
from postroad.wire.octets import NULL_GUID
from postroad.wire.view import MessageView
from tests.frames import FRAME_3, FRAME_5, FRAME_6
from tests.packets import patched, u16
from tests.unit.binary.link import (
    DEFAULTS,
    EXPRESS,
    HERE,
    START,
    STRANGER,
    THERE,
    Link,
    accepted,
    ack,
    closed,
    initiated,
    packets,
    tokens,
)

INTERNAL = 0x0008  # BaseHeader.Flags.IN
SE, OS = 0x0100, 0x0200
TIME_STAMP_AT, OPERATING_SYSTEM_AT, PADDING_AT = 52, 56, 60


def base_flags(packet: bytes) -> int:
    return int(unpack_from("<H", packet, 2)[0])


def internal_flags(packet: bytes) -> int:
    return int(unpack_from("<H", packet, 18)[0])


def client_guid(packet: bytes) -> UUID:
    return UUID(bytes_le=packet[20:36])


def server_guid(packet: bytes) -> UUID:
    return UUID(bytes_le=packet[36:52])


def time_stamp(packet: bytes) -> int:
    return int(unpack_from("<I", packet, TIME_STAMP_AT)[0])


def operating_system(packet: bytes) -> int:
    return int(unpack_from("<H", packet, OPERATING_SYSTEM_AT)[0])


def request(peer: UUID = THERE, *, now: float = START, pinged: bool = False) -> bytes:
    return Session.initiate(HERE, peer, DEFAULTS, now, pinged=pinged).data_to_send()


def answer(to: bytes, settings: BinarySettings = DEFAULTS) -> tuple[Session, bytes]:
    """An acceptor that got a request, and what it answered."""
    session = Session.accept(THERE, settings, START)
    session.receive_data(to, START)
    return session, session.data_to_send()


def answered(round_trip_s: float = 0.0, *, now: float = START, settings: BinarySettings = DEFAULTS) -> Session:
    """An initiator whose request was accepted after some time."""
    session = Session.initiate(HERE, THERE, settings, now)
    (sent,) = packets(session.data_to_send())
    assert isinstance(sent, EstablishConnection)
    session.receive_data(sent.response(THERE).encode(), now + round_trip_s)
    return session


def parameters(session: Session) -> ConnectionParameters:
    (packet,) = packets(session.data_to_send())
    assert isinstance(packet, ConnectionParameters)
    return packet


class TestRequest:
    @pytest.mark.spec("QB-2.1.1-05", "QB-3.1.5.2.3-02", "QB-2.2.3.1-02")
    def test_the_first_bytes_are_the_packet(self) -> None:
        packet = request()
        assert len(packet) == 572
        assert packet[0] == 0x10
        assert base_flags(packet) & INTERNAL
        assert internal_flags(packet) == 0x0002  # PT, and no CS
        assert client_guid(packet) == HERE

    def test_it_names_the_manager_that_is_meant(self) -> None:
        assert server_guid(request(THERE)) == THERE

    @pytest.mark.spec("QB-2.2.3.1-05")
    def test_a_direct_name_does_not_say_who_is_meant(self) -> None:
        assert request(NULL_GUID)[36:52] == bytes(16)

    @pytest.mark.spec("QB-2.2.3.1-07")
    def test_the_time_stamp_counts_milliseconds_and_wraps(self) -> None:
        assert time_stamp(request(now=2000.1)) - time_stamp(request(now=2000.0)) == 100
        assert time_stamp(request(now=2**32 / 1000 + 2)) == 2000

    @pytest.mark.spec("QB-2.2.3.1-10", "QB-6-03")
    def test_it_says_whether_a_ping_went_before(self) -> None:
        assert operating_system(request(pinged=True)) & SE == 0
        assert operating_system(request(pinged=False)) & SE
        assert operating_system(Session.initiate(HERE, THERE, DEFAULTS, START).data_to_send()) & SE

    @pytest.mark.spec("QB-2.2.3.1-12")
    def test_the_caller_is_a_server(self) -> None:
        assert operating_system(request()) == 0x10 | SE | OS

    @pytest.mark.spec("QB-3.1.5.2.3-03", "QB-3.1.1.3.1-28")
    def test_then_it_waits_for_the_response(self) -> None:
        assert Session.initiate(HERE, THERE, DEFAULTS, START).state is SessionState.WAITING_ECR_MSG


class TestResponse:
    @pytest.mark.spec("QB-3.1.5.10-01", "QB-3.1.3.2-22", "QB-3.1.1.3.1-27")
    def test_an_accepted_connection_waits_for_the_request(self) -> None:
        session = Session.accept(THERE, DEFAULTS, START)
        assert session.state is SessionState.WAITING_EC_MSG
        assert session.data_to_send() == b""

    @pytest.mark.spec("QB-3.1.5.3.1-01", "QB-3.1.5.3.1-06", "QB-3.1.1.3.1-25")
    def test_the_request_says_who_calls(self) -> None:
        session, _ = answer(request())
        assert session.peer == HERE
        assert session.state is SessionState.WAITING_CP_MSG

    @pytest.mark.spec("QB-3.1.5.3.1-03", "QB-2.2.3.1-03", "QB-2.2.3.1-08", "QB-2.2.3.1-19")
    def test_it_repeats_the_caller_and_the_time(self) -> None:
        asked = request(now=77.0)
        _, response = answer(asked)
        assert len(response) == 572
        assert base_flags(response) & INTERNAL
        assert internal_flags(response) == 0x0002
        assert client_guid(response) == client_guid(asked)
        assert time_stamp(response) == time_stamp(asked)
        assert response[PADDING_AT:] == b"\x5a" * 512

    @pytest.mark.spec("QB-2.2.3.1-11")
    @pytest.mark.parametrize("pinged", [True, False])
    def test_it_repeats_whether_there_was_a_ping(self, pinged: bool) -> None:
        asked = request(pinged=pinged)
        _, response = answer(asked)
        assert operating_system(response) & SE == operating_system(asked) & SE

    @pytest.mark.spec("QB-2.2.1-09", "QB-2.2.3.1-06", "QB-3.1.5.3.1-04", "QB-3.1.5.3.1-05")
    @pytest.mark.parametrize("wanted", [THERE, NULL_GUID], ids=["own", "zero"])
    def test_our_own_guid_and_none_are_welcome(self, wanted: UUID) -> None:
        session, response = answer(request(wanted))
        assert internal_flags(response) == 0x0002
        assert server_guid(response) == THERE
        assert not session.closed

    @pytest.mark.spec("QB-2.2.1-09", "QB-3.1.5.3.1-04", "QB-3.1.5.3.1-05", "QB-3.1.5.3.1-06")
    def test_a_foreign_guid_is_refused_in_a_packet_and_the_session_closes(self) -> None:
        session, response = answer(request(STRANGER))
        assert internal_flags(response) == 0x0012
        assert server_guid(response) == THERE
        assert str(STRANGER) in closed(session).reason
        session.receive_data(ConnectionParameters(500, 20_000, 64).encode(), START)
        assert session.data_to_send() == b""

    @pytest.mark.spec("QB-3.1.5.3.1-02")
    def test_a_full_acceptor_refuses_in_a_packet_too(self) -> None:
        session = Session.accept(THERE, DEFAULTS, START, refuse=True)
        asked = request()
        assert operating_system(asked) & SE
        session.receive_data(asked, START)
        assert internal_flags(session.data_to_send()) == 0x0012
        assert closed(session).status is ConnectionStatus.CONNECTION_LIMIT_REACHED

    @pytest.mark.spec("QB-2.2.3.1-13", "QB-2.2.3.1-20")
    def test_the_callers_system_and_padding_make_no_difference(self) -> None:
        workstation = patched(request(), OPERATING_SYSTEM_AT, u16(0x10 | SE))
        for asked in (workstation, patched(request(), PADDING_AT, bytes(range(256)) * 2)):
            session, response = answer(asked)
            assert internal_flags(response) == 0x0002
            assert session.state is SessionState.WAITING_CP_MSG

    @pytest.mark.spec("QB-2.2.1-03", "QB-2.2.1-12", "QB-2.2.3.1-16", "QB-2.2.3.1-18")
    def test_reserved_bits_of_a_request_are_ignored(self) -> None:
        strange = patched(request(), 16, u16(0xFFFF) + u16(0xFFE2))
        strange = patched(strange, OPERATING_SYSTEM_AT, u16(0xFB10) + u16(0xABCD))
        session, response = answer(strange)
        assert internal_flags(response) == 0x0002
        assert session.state is SessionState.WAITING_CP_MSG


class TestAnswered:
    """The initiator has got a response."""

    @pytest.mark.spec("QB-3.1.5.3.2-05", "QB-3.1.3.2-11", "QB-3.1.3.2-13")
    def test_it_sends_its_parameters(self) -> None:
        session = answered()
        packet = session.data_to_send()
        assert base_flags(packet) & INTERNAL
        assert internal_flags(packet) == 0x0003
        assert unpack_from("<IIHH", packet, 20) == (500, 120_000, 0, 64)
        assert unpack_from("<IIHH", answered(settings=BinarySettings()).data_to_send(), 20) == (500, 120_000, 0, 1024)
        other = BinarySettings(ack_timeout_ms=20_000, window_size=9)
        assert unpack_from("<IIHH", answered(settings=other).data_to_send(), 20) == (500, 20_000, 0, 9)

    @pytest.mark.spec("QB-3.1.5.3.2-06", "QB-3.1.1.3.1-26")
    def test_then_it_waits_for_the_other_parameters(self) -> None:
        assert answered().state is SessionState.WAITING_CPR_MSG

    @pytest.mark.spec("QB-3.1.5.3.2-04")
    @pytest.mark.parametrize(
        ("round_trip_s", "timeout_ms"), [(0.187, 1496), (0.001, 500), (15.0, 120_000), (20.0, 120_000)]
    )
    def test_eight_round_trips_within_limits(self, round_trip_s: float, timeout_ms: int) -> None:
        assert parameters(answered(round_trip_s)).recoverable_ack_timeout_ms == timeout_ms

    @pytest.mark.spec("QB-3.1.5.3.2-04")
    def test_a_round_trip_over_the_wrap_of_the_clock(self) -> None:
        before_wrap = 2**32 / 1000 - 0.1
        assert parameters(answered(0.2, now=before_wrap)).recoverable_ack_timeout_ms == 1600

    @pytest.mark.parametrize(("configured", "sent"), [(1, 20_000), (20_000, 20_000), (10**9, 120_000)])
    def test_a_time_out_that_the_packet_cannot_say_becomes_the_nearest(self, configured: int, sent: int) -> None:
        settings = BinarySettings(ack_timeout_ms=configured)
        session = answered(settings=settings)
        assert parameters(session).ack_timeout_ms == sent
        assert session.ack_wait_timeout_ms == sent

    @pytest.mark.spec("QB-3.1.5.3.2-02")
    @pytest.mark.parametrize(
        ("client", "server", "refused"),
        [(STRANGER, THERE, False), (HERE, STRANGER, False), (HERE, NULL_GUID, False), (HERE, THERE, True)],
        ids=["client", "server", "no server", "refused"],
    )
    def test_an_answer_that_does_not_fit_closes_the_session(self, client: UUID, server: UUID, refused: bool) -> None:
        session = Session.initiate(HERE, THERE, DEFAULTS, START)
        session.data_to_send()
        session.receive_data(EstablishConnection(client, server, 0, refused=refused).encode(), START)
        assert session.data_to_send() == b""
        status = closed(session).status
        assert status is (ConnectionStatus.CONNECTION_REFUSED if refused else ConnectionStatus.UNKNOWN_FAILURE)

    @pytest.mark.spec("QB-3.1.5.3.2-03")
    def test_after_a_direct_name_it_learns_who_answered(self) -> None:
        link = Link(direct=True).open()
        assert link.left.session.peer == THERE
        assert link.left.events == [Opened(THERE)]


class TestOpening:
    @pytest.mark.spec("QB-3.1.5.4.1-02", "QB-3.1.5.4.1-04")
    def test_the_acceptor_takes_the_times_and_keeps_its_own_window(self) -> None:
        session = Session.accept(HERE, BinarySettings(window_size=16, ack_timeout_ms=60_000), START)
        session.receive_data(EstablishConnection(THERE, HERE, 0).encode(), START)
        session.data_to_send()
        session.receive_data(ConnectionParameters(1496, 30_000, 8).encode(), START)
        packet = session.data_to_send()
        assert base_flags(packet) & INTERNAL
        assert internal_flags(packet) == 0x0003
        assert unpack_from("<IIHH", packet, 20) == (1496, 30_000, 0, 16)
        assert session.window == 8
        assert session.ack_wait_timeout_ms == 30_000
        assert session.recoverable_ack_timeout_ms == 1496

    @pytest.mark.spec("QB-3.1.5.4.2-01", "QB-3.1.5.4.2-03", "QB-3.1.1.3.1-23")
    def test_the_initiator_takes_the_window_alone(self) -> None:
        session = answered(0.187)
        session.data_to_send()
        session.receive_data(ConnectionParameters(700, 30_000, 8).encode(), START)
        assert session.state is SessionState.OPEN
        assert session.window == 8
        assert (session.recoverable_ack_timeout_ms, session.ack_wait_timeout_ms) == (1496, 120_000)
        assert session.data_to_send() == b""

    @pytest.mark.spec("QB-3.1.5.4.1-05", "QB-3.1.1.3.1-23")
    def test_messages_may_follow_the_parameters_at_once(self) -> None:
        session = Session.accept(HERE, DEFAULTS, START)
        session.receive_data(EstablishConnection(THERE, HERE, 0).encode(), START)
        session.receive_data(ConnectionParameters(500, 20_000, 64).encode() + EXPRESS, START)
        assert session.state is SessionState.OPEN
        assert session.received.count == 1

    @pytest.mark.parametrize("role", ["initiator", "acceptor"])
    def test_refused_parameters_close_the_session(self, role: str) -> None:
        if role == "initiator":
            session = answered()
        else:
            session, _ = answer(request())
        session.data_to_send()
        session.events()
        session.receive_data(ConnectionParameters(500, 20_000, 64, refused=True).encode(), START)
        assert session.events() == [Closed("the peer refused the session", ConnectionStatus.CONNECTION_REFUSED)]
        assert session.data_to_send() == b""

    @pytest.mark.spec("QB-2.1.1-03", "QB-3.1.1.1.1.1-01", "QB-3.1.1.1.1.2-01")
    def test_the_whole_opening_step_by_step(self) -> None:
        link = Link()
        left, right = link.left.session, link.right.session
        seen = [(left.state, right.state)]
        for end in (link.right, link.left, link.right, link.left):
            with pytest.raises(LocalProtocolError, match="not open"):
                left.send(EXPRESS, None, link.now, recoverable=False)
            link.deliver(end)
            seen.append((left.state, right.state))
        assert seen == [
            (SessionState.WAITING_ECR_MSG, SessionState.WAITING_EC_MSG),
            (SessionState.WAITING_ECR_MSG, SessionState.WAITING_CP_MSG),
            (SessionState.WAITING_CPR_MSG, SessionState.WAITING_CP_MSG),
            (SessionState.WAITING_CPR_MSG, SessionState.OPEN),
            (SessionState.OPEN, SessionState.OPEN),
        ]
        link.left.send(link.now)
        link.roundtrip()
        kinds: list[type[Packet]] = [type(packet) for packet in packets(bytes(link.left.trace))]
        assert kinds == [EstablishConnection, ConnectionParameters, MessageView]

    @pytest.mark.spec("QB-2.1.1-04")
    def test_messages_flow_both_ways_on_one_session(self) -> None:
        link = Link().open()
        link.left.send(link.now)
        link.left.send(link.now)
        link.right.send(link.now)
        link.roundtrip()
        assert (len(link.right.received), len(link.left.received)) == (2, 1)
        link.advance(DEFAULTS.ack_timeout_ms / 2 / 1000)
        link.roundtrip()
        assert link.left.acknowledged == [1, 2]
        assert link.right.acknowledged == [1]

    def test_the_captured_bytes_open_a_session(self) -> None:
        """[MS-MQQB] 4.1.3 and 4.1.5, sent to the manager that they were meant for. It answers as captured."""
        session = Session.accept(server_guid(FRAME_3), DEFAULTS, START)
        session.receive_data(FRAME_3, START)
        response = session.data_to_send()
        assert response[20:] == FRAME_3[20:]
        session.receive_data(FRAME_5, START)
        parameters = session.data_to_send()
        assert parameters[16:] == FRAME_6[16:]
        assert session.state is SessionState.OPEN

    def test_both_ends_know_each_other(self) -> None:
        link = Link().open()
        assert link.left.events == [Opened(THERE)]
        assert link.right.events == [Opened(HERE)]
        assert link.left.session.initiator
        assert not link.right.session.initiator


class TestFresh:
    """[MS-MQQB] 3.1.3.2: how every session begins."""

    @pytest.mark.spec("QB-3.1.3.2-01", "QB-3.1.3.2-02", "QB-3.1.3.2-12", "QB-3.1.3.2-15", "QB-3.1.3.2-18")
    def test_nothing_is_counted_and_nothing_has_happened(self) -> None:
        for session in (Session.accept(HERE, DEFAULTS, START), Session.initiate(HERE, THERE, DEFAULTS, START)):
            assert (session.sent.count, session.sent.recoverable_count) == (0, 0)
            assert (session.received.count, session.received.recoverable_count) == (0, 0)
            assert (session.received.unacked, session.received.stored_unacked) == (0, 0)
            assert not session.received.recoverable_unacked
            assert not session.session_active
            assert not session.received_ack
            assert not session.direct
            assert session.recoverable_ack_timeout_ms == 0xFFFFFFFF

    @pytest.mark.spec("QB-3.1.1.4-04", "QB-3.1.3.2-01", "QB-3.1.3.2-08", "QB-3.1.3.2-10")
    def test_a_new_session_counts_from_one_again(self) -> None:
        """Whatever the last session left in flight counts for nothing here, and nothing of it can be acknowledged."""
        old = initiated()
        for number in range(64):
            old.send(EXPRESS, number, START, recoverable=False)
        old.disconnected()
        new = initiated()
        assert (new.sent.unacknowledged, new.free) == (0, 64)
        new.send(EXPRESS, "again", START, recoverable=False)
        new.receive_data(ack(1), START)
        assert tokens(new) == ["again"]
        assert len(old.sent.in_flight) == 64

    def test_a_direct_session_is_known_at_both_ends(self) -> None:
        assert initiated(peer=NULL_GUID).direct
        assert accepted(server=NULL_GUID).direct
        assert not initiated().direct
        assert not accepted().direct
