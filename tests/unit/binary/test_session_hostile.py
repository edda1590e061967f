"""Peers that break the rules. The session accepts nothing of theirs and closes, and no exception leaves it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.binary.session import MAX_HANDSHAKE_PACKET, BinarySettings, Session
from postroad.binary.states import Closed, Event, Opened, PacketKind, Received, SessionState, singly
from postroad.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    MessagePropertiesHeader,
    UserHeader,
    UserMessage,
)
from tests.frames import FRAME_1, SESSION_PACKETS
from tests.messages import QUEUE
from tests.packets import patched, u16, u32
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
    tokens,
)

REQUEST = EstablishConnection(THERE, HERE, 0).encode()
RESPONSE = EstablishConnection(HERE, THERE, 0).encode()
PARAMETERS = ConnectionParameters(500, 20_000, 64).encode()
LARGE = UserMessage(BaseHeader(3), UserHeader(THERE, 1, QUEUE, HERE), MessagePropertiesHeader(bytes(100_000))).encode()
PACKETS = {
    PacketKind.ESTABLISH_CONNECTION: REQUEST,
    PacketKind.CONNECTION_PARAMETERS: PARAMETERS,
    PacketKind.SESSION_ACK: ack(),
    PacketKind.USER_MESSAGE: EXPRESS,
}
# From 3.1.5.3 to 3.1.5.8, not from the table under test.
IN_PLACE = {
    (SessionState.WAITING_EC_MSG, PacketKind.ESTABLISH_CONNECTION),
    (SessionState.WAITING_ECR_MSG, PacketKind.ESTABLISH_CONNECTION),
    (SessionState.WAITING_CP_MSG, PacketKind.CONNECTION_PARAMETERS),
    (SessionState.WAITING_CPR_MSG, PacketKind.CONNECTION_PARAMETERS),
    (SessionState.OPEN, PacketKind.SESSION_ACK),
    (SessionState.OPEN, PacketKind.USER_MESSAGE),
}
OUT_OF_PLACE = [
    (state, kind)
    for state, kind in product(SessionState, PacketKind)
    if (state, kind) not in IN_PLACE and state is not SessionState.CLOSED
]


def in_state(state: SessionState) -> Session:
    """A session in a state, with nothing left to send and no events left."""
    if state in (SessionState.WAITING_ECR_MSG, SessionState.WAITING_CPR_MSG):
        session = Session.initiate(HERE, THERE, DEFAULTS, START)
        steps = [RESPONSE]
    else:
        session = Session.accept(HERE, DEFAULTS, START)
        steps = [REQUEST, PARAMETERS]
    while session.state is not state:
        session.receive_data(steps.pop(0), START)
    session.data_to_send()
    session.events()
    return session


class TestPlace:
    @pytest.mark.spec(
        "QB-3.1.5.3-01",
        "QB-3.1.5.3.1-01",
        "QB-3.1.5.3.2-01",
        "QB-3.1.5.4-01",
        "QB-3.1.5.4.1-01",
        "QB-3.1.5.4.2-01",
        "QB-3.1.5.5-01",
        "QB-3.1.5.8-01",
        "QB-3.1.5.9-01",
    )
    @pytest.mark.parametrize(("state", "kind"), OUT_OF_PLACE, ids=lambda each: each.name.lower())
    def test_a_packet_out_of_place_closes_the_session(self, state: SessionState, kind: PacketKind) -> None:
        session = in_state(state)
        session.receive_data(PACKETS[kind], START)
        (event,) = session.events()
        assert isinstance(event, Closed)
        assert f"{kind.name.lower()} in state {state.name.lower()}" in event.reason
        assert session.data_to_send() == b""
        assert session.state is SessionState.CLOSED

    def test_every_packet_has_one_place_for_each_role(self) -> None:
        """The table itself: the four steps that open a session, and the two packets of an open one."""
        assert len(OUT_OF_PLACE) == 5 * 4 - 6

    @pytest.mark.parametrize("packet", PACKETS.values(), ids=lambda _: "")
    def test_a_closed_session_takes_nothing(self, packet: bytes) -> None:
        session = in_state(SessionState.OPEN)
        session.close("done")
        session.events()
        session.receive_data(packet, START)
        assert session.events() == []
        assert session.received.count == 0


class TestForm:
    @pytest.mark.spec("QB-3.1.5.1.2-01", "QB-3.1.5.1.2-02")
    @pytest.mark.parametrize(
        "bad",
        [patched(EXPRESS, 0, b"\x11"), patched(EXPRESS, 4, b"ROIL"), patched(EXPRESS, 4, b"LIOS")],
        ids=["version", "byte order", "signature"],
    )
    def test_a_wrong_signature_closes_the_session(self, bad: bytes) -> None:
        session = accepted()
        session.receive_data(bad, START)
        assert [type(event) for event in session.events()] == [Closed]
        assert session.received.count == 0

    @pytest.mark.spec("QB-2.2.1-06")
    @pytest.mark.parametrize("packet_type", [0x0, 0x4, 0xF])
    def test_an_internal_packet_of_an_unknown_type(self, packet_type: int) -> None:
        session = accepted()
        session.receive_data(patched(ack(), 18, u16(packet_type)), START)
        assert "not defined" in closed(session).reason

    @pytest.mark.spec("QB-2.2.1-08")
    def test_a_session_ack_that_refuses(self) -> None:
        session = accepted()
        session.receive_data(patched(ack(), 18, u16(0x0011)), START)
        assert session.closed

    @pytest.mark.spec("QB-3.1.5.1.3-01")
    @pytest.mark.parametrize(
        "bad",
        [
            patched(EXPRESS, 8, u32(0)),
            patched(EXPRESS, 8, u32(15)),
            patched(EXPRESS, 8, u32(0xFFFFFFFF)),
            patched(EXPRESS, 8, u32(len(EXPRESS) - 4)),
            patched(EXPRESS, 8, u32(len(EXPRESS) + 4)) + bytes(4),
            patched(EXPRESS, 60, u32(0)),
            patched(ack(), 8, u32(40)) + bytes(4),
            patched(PARAMETERS, 8, u32(28))[:28],
        ],
        ids=[
            "no size",
            "less than a header",
            "greater than any packet",
            "too short",
            "too long",
            "no properties",
            "long ack",
            "short parameters",
        ],
    )
    def test_sizes_and_flags_that_lie(self, bad: bytes) -> None:
        session = accepted()
        session.receive_data(bad, START)
        assert [type(event) for event in session.events()] == [Closed]

    @pytest.mark.spec("QB-3.1.5.1.3-01")
    @pytest.mark.parametrize(
        ("recoverable_ms", "ack_ms"), [(499, 20_000), (120_001, 20_000), (500, 19_999), (500, 120_001)]
    )
    def test_parameters_out_of_range(self, recoverable_ms: int, ack_ms: int) -> None:
        session = in_state(SessionState.WAITING_CP_MSG)
        session.receive_data(patched(PARAMETERS, 20, u32(recoverable_ms) + u32(ack_ms)), START)
        assert session.data_to_send() == b""
        assert session.closed

    def test_a_ping_is_not_a_packet_of_a_session(self) -> None:
        session = accepted()
        session.receive_data(FRAME_1, START)
        assert session.closed

    @pytest.mark.spec("QB-3.1.5.1.2-02")
    def test_what_came_before_is_taken_and_what_comes_after_is_not(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS + patched(EXPRESS, 0, b"\x11") + EXPRESS, START)
        assert [type(event) for event in session.events()] == [Received, Closed]
        session.receive_data(EXPRESS, START)
        assert session.events() == []
        assert session.received.count == 1

    @pytest.mark.spec("QB-3.1.5.9-01")
    def test_what_was_taken_is_not_acknowledged_on_the_way_out(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS * 40 + REQUEST + EXPRESS, START)
        assert session.received.count == 40
        session.receive_data(EXPRESS[:10], START)
        assert session.closed
        assert session.data_to_send() == b""

    def test_an_acknowledgment_on_its_way_out_still_goes(self) -> None:
        session = accepted()
        session.receive_data(EXPRESS * 32, START)
        session.receive_data(b"not a packet at all", START)
        assert session.closed
        assert session.data_to_send() != b""


class TestSlow:
    def test_one_byte_at_a_time(self) -> None:
        link = Link(FAST)
        while not (link.left.opened and link.right.opened):
            for end in link.ends:
                link.deliver(end, 1)
        for recoverable in (False, True):
            link.left.send(link.now, recoverable=recoverable)
        link.collect()
        while link.right.transit:
            link.deliver(link.right, 1)
        assert [event.number for event in link.right.received] == [0, 1]
        assert link.right.closed is None

    @given(st.lists(st.integers(1, 700), max_size=60))
    def test_the_cuts_between_reads_change_nothing(self, sizes: list[int]) -> None:
        stream = REQUEST + PARAMETERS + EXPRESS + RECOVERABLE + ack(sent=2, recoverable_sent=1) + EXPRESS
        at_once, in_pieces = Session.accept(HERE, FAST, START), Session.accept(HERE, FAST, START)
        at_once.receive_data(stream, START)
        position = 0
        for size in [*sizes, len(stream)]:
            in_pieces.receive_data(stream[position : position + size], START)
            position += size
        assert in_pieces.data_to_send() == at_once.data_to_send()
        assert shown(in_pieces) == shown(at_once)
        assert in_pieces.deadline == at_once.deadline

    def test_a_large_packet_before_the_handshake_is_not_waited_for(self) -> None:
        session = Session.accept(HERE, DEFAULTS, START)
        session.receive_data(LARGE[:MAX_HANDSHAKE_PACKET], START)
        assert "at most 4096 bytes" in closed(session).reason

    def test_a_large_message_right_behind_the_handshake_is_taken(self) -> None:
        session = Session.accept(HERE, DEFAULTS, START)
        stream = REQUEST + PARAMETERS + LARGE
        session.receive_data(stream[:5000], START)
        assert session.buffered == 5000 - len(REQUEST + PARAMETERS)
        session.receive_data(stream[5000:], START)
        assert [event.data for event in session.events() if isinstance(event, Received)] == [LARGE]
        assert session.buffered == 0

    def test_no_bytes_at_all(self) -> None:
        session = accepted()
        session.receive_data(b"", START)
        assert session.events() == []
        assert not session.closed

    def test_a_packet_that_never_ends_does_not_hold_a_session_open(self) -> None:
        session = Session.accept(HERE, DEFAULTS, START)
        for second in range(59):
            session.receive_data(REQUEST[second : second + 1], START + second)
            session.on_timer(START + second)
        assert not session.closed
        session.on_timer(START + 60)
        assert session.closed


class TestLies:
    @pytest.mark.parametrize("number", [4, 5, 0x7FFF, 0x8000])
    def test_an_acknowledgment_of_what_was_never_sent(self, number: int) -> None:
        """It releases nothing, so nothing is lost."""
        session = initiated(FAST)
        for token in (1, 2, 3):
            session.send(RECOVERABLE if token == 2 else EXPRESS, token, START, recoverable=token == 2)
        session.receive_data(ack(number, first=number, flags=0xFFFFFFFF), START)
        assert tokens(session) == []
        assert session.sent.in_flight == [1, 2, 3]
        assert session.sent.unacknowledged == 3

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_an_acknowledgment_that_goes_back(self, number: int) -> None:
        session = initiated(FAST)
        for token in (1, 2, 3):
            session.send(EXPRESS, token, START, recoverable=False)
        session.receive_data(ack(3), START)
        session.events()
        session.receive_data(ack(number), START)
        assert session.events() == []
        assert session.sent.unacknowledged == 0
        assert session.free == 64

    def test_every_bit_at_once(self) -> None:
        session = initiated(FAST)
        for token in (1, 2):
            session.send(RECOVERABLE, token, START, recoverable=True)
        session.receive_data(ack(2, first=1, flags=0xFFFFFFFF), START)
        assert tokens(session) == [1, 2]
        session.send(RECOVERABLE, 3, START, recoverable=True)
        assert session.sent.in_flight == [3]

    def test_acknowledgments_without_end(self) -> None:
        """A peer that only acknowledges is idle. It keeps neither the session open nor anything in memory."""
        session = accepted(BinarySettings(cleanup_ms=30_000))
        for seconds in range(30):
            session.receive_data(ack() * 100, START + seconds)
        assert session.data_to_send() == b""
        session.on_timer(START + 30)
        assert session.closed

    def test_a_time_stamp_of_tomorrow(self) -> None:
        session = Session.initiate(HERE, THERE, DEFAULTS, START)
        session.data_to_send()
        late = EstablishConnection(HERE, THERE, int(START * 1000) + 86_400_000).encode()
        session.receive_data(late, START)
        assert session.recoverable_ack_timeout_ms == 120_000
        assert not session.closed


def shown(session: Session) -> list[object]:
    """Events as values. A view of a packet equals only itself."""

    def value(event: Event) -> object:
        return (event.data, event.number) if isinstance(event, Received) else event

    return [value(event) for event in singly(session.events())]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Packets in any order, some with changed bytes, and some bytes that are no packets."""
    pieces = draw(
        st.lists(
            st.one_of(
                st.sampled_from([REQUEST, RESPONSE, PARAMETERS, EXPRESS, RECOVERABLE, ack(), *SESSION_PACKETS]),
                st.binary(max_size=40),
            ),
            max_size=8,
        )
    )
    data = bytearray(b"".join(pieces))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(streams(), st.sampled_from([SessionState.WAITING_EC_MSG, SessionState.WAITING_ECR_MSG, SessionState.OPEN]))
def test_whatever_comes_the_session_lives_or_closes(data: bytes, state: SessionState) -> None:
    """No exception, at most one end, nothing after it, and no timer left behind."""
    session = in_state(state)
    session.receive_data(data, START)
    events = singly(session.events())
    assert sum(isinstance(event, Closed) for event in events) == session.closed
    assert sum(isinstance(event, Opened) for event in events) <= 1
    if session.closed:
        assert isinstance(events[-1], Closed)
        assert session.deadline is None
    assert session.received.count == sum(isinstance(event, Received) for event in events)
