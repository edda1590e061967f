"""Two sessions and the wire between them, with a clock that stands still until a test moves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Acknowledged, Closed, Event, Opened, Received, SessionState, singly
from postroad.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    MessagePropertiesHeader,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
)
from postroad.wire.framer import Framer, Packet, decode_packet
from postroad.wire.octets import NULL_GUID
from postroad.wire.view import MessageView
from tests.messages import QUEUE
from tests.packets import ADDRESS, SOURCE

HERE, THERE, STRANGER = SOURCE, ADDRESS, UUID("5c5c5c5c-0000-4000-8000-00000000beef")
START = 5_000.0
DEFAULTS = BinarySettings(window_size=64)  # the window that Windows proposes
FAST = BinarySettings(window_size=64, ack_timeout_ms=20_000)  # the shortest time that the protocol allows


def message(*, recoverable: bool = False, transactional: bool = False) -> bytes:
    """A small UserMessage."""
    return UserMessage(
        BaseHeader(3),
        UserHeader(SOURCE, 1, QUEUE, ADDRESS, flags=0x20 if recoverable or transactional else 0),
        MessagePropertiesHeader(b"abc"),
        TransactionHeader(TxSequenceId(7, 9), 1) if transactional else None,
    ).encode()


EXPRESS, RECOVERABLE, TRANSACTIONAL = message(), message(recoverable=True), message(transactional=True)


def ack(
    received: int = 0, first: int = 0, flags: int = 0, *, sent: int = 0, recoverable_sent: int = 0, window: int = 64
) -> bytes:
    """Makes a SessionAck: what its writer has received and stored, what it has sent, and its window."""
    return SessionAck(SessionHeader(received, first, flags, sent, recoverable_sent, window)).encode()


def packets(data: bytes) -> list[Packet]:
    """The packets of a stream that contains nothing else."""
    framer = Framer()
    whole = framer.feed(data)
    assert framer.error is None
    assert framer.buffered == 0
    return [decode_packet(each) for each in whole]


def headers(data: bytes) -> list[SessionHeader]:
    """Every SessionHeader of a stream, alone or after a message."""
    found = []
    for packet in packets(data):
        if isinstance(packet, SessionAck):
            found.append(packet.session)
        elif isinstance(packet, MessageView) and packet.session_header is not None:
            found.append(packet.session_header)
    return found


def only_header(data: bytes) -> SessionHeader:
    (header,) = headers(data)
    return header


def initiated(settings: BinarySettings = DEFAULTS, *, peer: UUID = THERE, now: float = START) -> Session:
    """An open initiator whose peer is the test itself. The peer's window is 0xFFFF, and the round trip took no time."""
    session = Session.initiate(HERE, peer, settings, now)
    (request,) = packets(session.data_to_send())
    assert isinstance(request, EstablishConnection)
    session.receive_data(request.response(THERE).encode(), now)
    (parameters,) = packets(session.data_to_send())
    assert isinstance(parameters, ConnectionParameters)
    answer = ConnectionParameters(parameters.recoverable_ack_timeout_ms, parameters.ack_timeout_ms, 0xFFFF)
    session.receive_data(answer.encode(), now)
    return _opened(session)


def accepted(
    settings: BinarySettings = DEFAULTS,
    *,
    recoverable_ms: int = 500,
    ack_ms: int = 20_000,
    window: int = 0xFFFF,
    server: UUID = HERE,
    now: float = START,
) -> Session:
    """An open acceptor whose peer, with these parameters, is the test itself."""
    session = Session.accept(HERE, settings, now)
    session.receive_data(EstablishConnection(THERE, server, 0).encode(), now)
    session.receive_data(ConnectionParameters(recoverable_ms, ack_ms, window).encode(), now)
    return _opened(session)


def _opened(session: Session) -> Session:
    assert session.state is SessionState.OPEN
    session.data_to_send()
    session.events()
    return session


def closed(session: Session) -> Closed:
    """The last event, which must be the end of the session."""
    assert session.closed
    event = session.events()[-1]
    assert isinstance(event, Closed)
    return event


def tokens(session: Session) -> list[object]:
    """What the peer has acknowledged since events were last taken. Nothing else may have happened."""
    found: list[object] = []
    for event in session.events():
        assert isinstance(event, Acknowledged)
        found += event.tokens
    return found


@dataclass(eq=False)
class End:
    """One end of a link: its session, everything that happened there, and the bytes on their way to it."""

    session: Session
    transit: bytearray = field(default_factory=bytearray)
    events: list[Event] = field(default_factory=list)
    trace: bytearray = field(default_factory=bytearray)  # everything it has sent
    sent: int = 0

    def send(self, now: float, *, recoverable: bool = False) -> int:
        """Sends a message; its token is its place, from 1."""
        self.sent += 1
        self.session.send(message(recoverable=recoverable), self.sent, now, recoverable=recoverable)
        return self.sent

    @property
    def opened(self) -> bool:
        return any(isinstance(event, Opened) for event in self.events)

    @property
    def received(self) -> list[Received]:
        return [event for event in self.events if isinstance(event, Received)]

    @property
    def acknowledged(self) -> list[object]:
        return [token for event in self.events if isinstance(event, Acknowledged) for token in event.tokens]

    @property
    def closed(self) -> str | None:
        """Why the session is over. None while it is not."""
        return next((event.reason for event in self.events if isinstance(event, Closed)), None)

    @property
    def last_number(self) -> int:
        """The last number of the recoverable messages that came."""
        return max((event.number for event in self.received), default=0)


class Link:
    """`left` has called `right`. Nothing moves by itself."""

    def __init__(
        self, left: BinarySettings = DEFAULTS, right: BinarySettings = DEFAULTS, *, direct: bool = False
    ) -> None:
        self.now = START
        self.left = End(Session.initiate(HERE, NULL_GUID if direct else THERE, left, self.now))
        self.right = End(Session.accept(THERE, right, self.now))
        self.ends = (self.left, self.right)
        self.collect()

    def other(self, end: End) -> End:
        return self.right if end is self.left else self.left

    def collect(self) -> None:
        """Puts what both ends have to send on the wire, and notes what happened."""
        for end in self.ends:
            data = end.session.data_to_send()
            end.trace += data
            self.other(end).transit += data
            end.events += singly(end.session.events())

    def deliver(self, to: End, size: int | None = None) -> None:
        """Gives an end the next `size` bytes that are on their way to it, or all of them."""
        data = bytes(to.transit[:size])
        del to.transit[: len(data)]
        to.session.receive_data(data, self.now)
        self.collect()

    def roundtrip(self) -> None:
        """Delivers until nothing is on its way."""
        self.collect()
        while self.left.transit or self.right.transit:
            for end in self.ends:
                self.deliver(end)

    def open(self) -> Link:
        self.roundtrip()
        assert self.left.opened
        assert self.right.opened
        return self

    def drop(self, to: End) -> None:
        """Loses what is on its way to an end."""
        self.collect()
        to.transit.clear()

    def duplicate(self, to: End) -> None:
        """Repeats what is on its way to an end."""
        self.collect()
        to.transit *= 2

    def cut(self) -> None:
        """Both ends lose the connection, and everything on its way is lost."""
        for end in self.ends:
            self.drop(end)
            end.session.disconnected()
        self.collect()

    def store(self, end: End, number: int | None = None) -> None:
        """The recoverable messages that an end has received become durable there, up to a number or all."""
        end.session.stored(end.last_number if number is None else number, self.now)
        self.collect()

    def advance(self, seconds: float) -> None:
        """Moves the clock. Every timer of both ends fires at its time. Delivers nothing."""
        until = self.now + seconds
        while (end := self._next_due(until)) is not None:
            assert end.session.deadline is not None
            self.now = max(self.now, end.session.deadline)
            end.session.on_timer(self.now)
            self.collect()
        self.now = until

    def _next_due(self, until: float) -> End | None:
        due = [end for end in self.ends if end.session.deadline is not None and end.session.deadline <= until]
        return min(due, key=lambda end: end.session.deadline or until, default=None)
