"""One session, [MS-MQQB] 3.1: bytes and time go in; bytes, events and the next deadline come out. No I/O and no clock.

It opens a connection as initiator or acceptor, counts messages both ways, keeps the window, and acknowledges. What a
message means is not its business: see sender.py and receiver.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from uuid import UUID

from postroad.binary.settings import BinarySettings
from postroad.binary.states import TRANSITIONS, Action, PacketKind, SessionState
from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.queues.outgoing import ConnectionStatus
from postroad.wire.constants import OperatingSystemFlags
from postroad.wire.framer import Framer
from postroad.wire.internal import ConnectionParameters, EstablishConnection, SessionAck
from postroad.wire.layout import NULL_GUID
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.packets import Packet, decode_packet
from postroad.wire.patch import with_session_header
from postroad.wire.session_header import SessionHeader
from postroad.wire.view import MessageView

MAX_RECOVERABLE_ACKS = 32  # bits of RecoverableMsgAckFlags
PIGGY_BACK_AFTER = 0.75  # of the ack timer, 3.1.7.11
RECOVERABLE_TIMEOUT_FACTOR = 8  # round trips, 3.1.5.3.2
MIN_RECOVERABLE_TIMEOUT_MS, MAX_RECOVERABLE_TIMEOUT_MS = 500, 120_000
_WRAP = 0xFFFF


@dataclass(frozen=True, slots=True)
class Opened:
    """Messages may flow. `peer` is who answered, which a direct name did not say."""

    peer: UUID


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over; `reason` in words, `status` as the connection history has it."""

    reason: str
    status: ConnectionStatus


@dataclass(frozen=True, slots=True)
class Received:
    """A message; `number` is its place among the recoverable ones, 0 if it is express: `stored` wants it back."""

    data: bytes
    packet: MessageView | OrderAck | FinalAck
    number: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The peer has these messages: it has read an express one, and stored a recoverable one."""

    tokens: tuple[object, ...]


Event = Opened | Closed | Received | Acknowledged


@dataclass(slots=True)
class _Sent:
    """An OutgoingMessagePosition in flight, 3.1.1.3.1.2."""

    number: int
    recoverable_number: int
    token: object


class Session:
    """`initiate` or `accept` makes one. After every call take `events()` and `data_to_send()`, and mind `deadline`."""

    def __init__(self, identifier: UUID, settings: BinarySettings, state: SessionState, now: float) -> None:
        self.identifier = identifier
        self.settings = settings
        self.state = state
        self.peer = NULL_GUID
        self.initiator = state is SessionState.WAITING_ECR_MSG
        self.direct = False
        self.opened_at = 0.0
        self.received_count = 0
        self.sent_count = 0
        self.unacknowledged = 0
        self._framer = Framer()
        self._out: list[bytes] = []
        self._events: list[Event] = []
        self._in_flight: deque[_Sent] = deque()
        self._recoverable_in_flight: deque[_Sent] = deque()
        self._recoverable_sent = 0
        self._recoverable_received = 0
        self._recoverable_stored = 0
        self._recoverable_acked = 0
        self._unacked_received = 0
        self._peer_window = settings.window_size
        self._ack_wait_s = settings.ack_timeout_ms / 1000
        self._recoverable_ack_s = MAX_RECOVERABLE_TIMEOUT_MS / 1000
        self._received_ack = False
        self._active = False
        self._ack_started = 0.0
        self._initialization_at: float | None = now + settings.initialization_ms / 1000
        self._cleanup_at: float | None = now + settings.cleanup_ms / 1000
        self._ack_wait_at: float | None = None
        self._ack_send_at: float | None = None

    @classmethod
    def initiate(cls, identifier: UUID, peer: UUID, settings: BinarySettings, now: float) -> Session:
        """3.1.5.2.3. `peer` is the null GUID where a direct name leads there."""
        session = cls(identifier, settings, SessionState.WAITING_ECR_MSG, now)
        session.peer = peer
        session.direct = peer == NULL_GUID
        flags = OperatingSystemFlags.CONSTANT | OperatingSystemFlags.SERVER
        if not settings.ping:
            flags |= OperatingSystemFlags.NO_PING
        session._out.append(EstablishConnection(identifier, peer, _milliseconds(now), flags.value).encode())
        return session

    @classmethod
    def accept(cls, identifier: UUID, settings: BinarySettings, now: float) -> Session:
        """3.1.5.10"""
        return cls(identifier, settings, SessionState.WAITING_EC_MSG, now)

    @property
    def closed(self) -> bool:
        return self.state is SessionState.CLOSED

    # What comes out

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    @property
    def deadline(self) -> float | None:
        """When `on_timer` is due."""
        times = (self._initialization_at, self._cleanup_at, self._ack_wait_at, self._ack_send_at)
        return min((time for time in times if time is not None), default=None)

    @property
    def window(self) -> int:
        """How many messages may be unacknowledged: the narrower of the two ends' windows."""
        return min(self.settings.window_size, self._peer_window)

    @property
    def free(self) -> int:
        """How many messages `send` takes now."""
        if self.state is not SessionState.OPEN:
            return 0
        return max(0, self.window - self.unacknowledged)

    # What goes in

    def receive_data(self, data: bytes, now: float) -> None:
        """3.1.5.1. A packet that breaks a rule closes the session; those before it have been taken."""
        if self.closed:
            return
        self._received_ack = True
        for packet in self._framer.feed(data):
            try:
                self._take(packet, decode_packet(packet), now)
            except RemoteProtocolError as fault:
                self.close(f"the peer broke the protocol: {fault}")
            if self.closed:
                return
        if self._framer.error is not None:
            self.close(f"the peer broke the protocol: {self._framer.error}")
        elif self._unacked_received:
            self._acknowledge_if_due(now)

    def _take(self, data: bytes, packet: Packet, now: float) -> None:
        kind = _KINDS.get(type(packet), PacketKind.USER_MESSAGE)
        try:
            action, state = TRANSITIONS[self.state, kind]
        except KeyError:
            raise RemoteProtocolError(f"{kind.name.lower()} in state {self.state.name.lower()}") from None
        match action, packet:
            case Action.TAKE_MESSAGE, (MessageView() | OrderAck() | FinalAck()):
                self._take_message(data, packet, now)
            case Action.TAKE_SESSION_ACK, SessionAck():
                self._take_session_header(packet.session, now)
            case Action.ANSWER_ESTABLISH, EstablishConnection():
                self._answer_establish(packet)
            case Action.SEND_PARAMETERS, EstablishConnection():
                self._send_parameters(packet, now)
            case Action.ANSWER_PARAMETERS, ConnectionParameters():
                self._answer_parameters(packet, now)
            case Action.ENTER_OPEN, ConnectionParameters():
                self._enter_open(packet, now)
        if not self.closed:
            self.state = state

    def disconnected(self) -> None:
        """3.1.7.3: the transport is gone."""
        self.close("the connection was closed", ConnectionStatus.UNKNOWN_FAILURE)

    def close(self, reason: str, status: ConnectionStatus = ConnectionStatus.UNKNOWN_FAILURE) -> None:
        """3.1.5.9: no packet says so, the transport is simply closed."""
        if self.closed:
            return
        self.state = SessionState.CLOSED
        self._initialization_at = self._cleanup_at = self._ack_wait_at = self._ack_send_at = None
        self._events.append(Closed(reason, status))

    # Opening

    def _answer_establish(self, request: EstablishConnection) -> None:
        self.peer = request.client_guid
        refused = request.server_guid not in (NULL_GUID, self.identifier)
        self._out.append(request.response(self.identifier, refused=refused).encode())
        if refused:
            self.close(f"the peer asked for the queue manager {request.server_guid}, which is not here")

    def _send_parameters(self, response: EstablishConnection, now: float) -> None:
        if response.refused:
            self.close("the peer refused the session", ConnectionStatus.CONNECTION_REFUSED)
            return
        if response.client_guid != self.identifier:
            raise RemoteProtocolError(f"the answer is for the queue manager {response.client_guid}")
        if self.peer not in (NULL_GUID, response.server_guid):
            raise RemoteProtocolError(f"the answer is from {response.server_guid}, not from {self.peer}")
        self.peer = response.server_guid
        round_trip_ms = _milliseconds(now) - response.time_stamp & 0xFFFFFFFF
        timeout = RECOVERABLE_TIMEOUT_FACTOR * round_trip_ms
        timeout = min(max(timeout, MIN_RECOVERABLE_TIMEOUT_MS), MAX_RECOVERABLE_TIMEOUT_MS)
        self._recoverable_ack_s = timeout / 1000
        self._out.append(
            ConnectionParameters(timeout, self.settings.ack_timeout_ms, self.settings.window_size).encode()
        )

    def _answer_parameters(self, request: ConnectionParameters, now: float) -> None:
        self._ack_wait_s = request.ack_timeout_ms / 1000
        self._recoverable_ack_s = request.recoverable_ack_timeout_ms / 1000
        answer = ConnectionParameters(
            request.recoverable_ack_timeout_ms, request.ack_timeout_ms, self.settings.window_size
        )
        self._out.append(answer.encode())
        self._enter_open(request, now)

    def _enter_open(self, parameters: ConnectionParameters, now: float) -> None:
        if parameters.refused:
            self.close("the peer refused the session", ConnectionStatus.CONNECTION_REFUSED)
            return
        self._take_window(parameters.window_size)
        self._initialization_at = None
        self.opened_at = now
        self._events.append(Opened(self.peer))

    def _take_window(self, window: int) -> None:
        if window:  # 0 is what a packet without a word on it holds
            self._peer_window = window

    # Receiving

    def _take_message(self, data: bytes, packet: MessageView | OrderAck | FinalAck, now: float) -> None:
        """3.1.5.8.2 and 3.1.5.8.7: counted whatever becomes of it, duplicates too."""
        self.received_count += 1
        self._unacked_received += 1
        self._active = True
        if self._ack_send_at is None:
            self._start_ack_timer(self._ack_wait_s / 2, now)
        number = 0
        if isinstance(packet, FinalAck) or (isinstance(packet, MessageView) and packet.recoverable):
            if self._recoverable_received == self._recoverable_acked:
                self._start_ack_timer(min(self._recoverable_ack_s, self._ack_wait_s / 2), now)
            self._recoverable_received += 1
            number = self._recoverable_received
        self._events.append(Received(data, packet, number))
        if isinstance(packet, MessageView) and (header := packet.session_header) is not None:
            self._take_session_header(header, now)

    def stored(self, number: int, now: float) -> None:
        """Recoverable messages up to `number` are durable, or finally disregarded: they may be acknowledged."""
        if number > self._recoverable_stored and self.state is SessionState.OPEN:
            self._recoverable_stored = number
            self._acknowledge_if_due(now)

    def _acknowledge_if_due(self, now: float) -> None:
        """At once when 32 recoverable messages or half of our window wait for it (3.1.5.8.7, and our own rule)."""
        while self._recoverable_stored - self._recoverable_acked >= MAX_RECOVERABLE_ACKS:
            self._send_ack(now)
        waiting_for_store = self._recoverable_received - self._recoverable_stored
        if self._unacked_received - waiting_for_store >= max(1, self.settings.window_size // 2):
            self._send_ack(now)

    def _send_ack(self, now: float) -> None:
        self._out.append(SessionAck(self._session_header()).encode())
        self._ack_send_at = None
        if self._recoverable_received > self._recoverable_acked:
            self._start_ack_timer(min(self._recoverable_ack_s, self._ack_wait_s / 2), now)

    def _session_header(self) -> SessionHeader:
        """Filled in once, as it is written; what it acknowledges is acknowledged from then on."""
        covered = min(self._recoverable_stored - self._recoverable_acked, MAX_RECOVERABLE_ACKS)
        base = (self._recoverable_acked + 1) & _WRAP if covered else 0
        self._recoverable_acked += covered
        self._unacked_received = self._recoverable_received - self._recoverable_acked
        return SessionHeader(
            ack_sequence_number=self.received_count & _WRAP,
            recoverable_msg_ack_seq_number=base,
            recoverable_msg_ack_flags=(1 << covered) - 1,
            user_msg_sequence_number=self.sent_count & _WRAP,
            recoverable_msg_seq_number=self._recoverable_sent & _WRAP,
            window_size=self.settings.window_size,
        )

    def _start_ack_timer(self, seconds: float, now: float) -> None:
        if self._ack_send_at is None or now + seconds < self._ack_send_at:
            self._ack_started = now
            self._ack_send_at = now + seconds

    # Acknowledgments from the peer

    def _take_session_header(self, header: SessionHeader, now: float) -> None:
        """3.1.5.5: mark, delete, and check that both ends have counted alike."""
        self._take_window(header.window_size)
        done: list[object] = []
        acked = _unwrapped(header.ack_sequence_number, self.sent_count)
        while self._in_flight and self._in_flight[0].number <= acked:
            sent = self._in_flight.popleft()
            self.unacknowledged -= 1
            if not sent.recoverable_number:
                done.append(sent.token)
        if header.recoverable_msg_ack_seq_number or header.recoverable_msg_ack_flags:
            base = _unwrapped(header.recoverable_msg_ack_seq_number, self._recoverable_sent)
            last = base + max(0, header.recoverable_msg_ack_flags.bit_length() - 1)
            flags = header.recoverable_msg_ack_flags
            kept: deque[_Sent] = deque()
            while self._recoverable_in_flight and self._recoverable_in_flight[0].recoverable_number <= last:
                sent = self._recoverable_in_flight.popleft()
                place = sent.recoverable_number - base
                # Everything up to the base is stored; above it, what the bits say.
                if place <= 0 or flags >> place & 1:
                    done.append(sent.token)
                else:
                    kept.append(sent)
            self._recoverable_in_flight.extendleft(reversed(kept))
        if done:
            self._events.append(Acknowledged(tuple(done)))
        if header.user_msg_sequence_number != self.received_count & _WRAP:
            self.close(
                f"the peer has sent {header.user_msg_sequence_number} messages and "
                f"{self.received_count & _WRAP} have come"
            )
        elif header.recoverable_msg_seq_number != self._recoverable_received & _WRAP:
            self.close(
                f"the peer has sent {header.recoverable_msg_seq_number} recoverable messages and "
                f"{self._recoverable_received & _WRAP} have come"
            )
        else:
            waiting = self._in_flight or self._recoverable_in_flight
            self._ack_wait_at = now + self._ack_wait_factor * self._ack_wait_s if waiting else None

    @property
    def _ack_wait_factor(self) -> int:
        return self.settings.ack_wait_factor if self.direct else 1

    # Sending

    def send(self, packet: bytes, token: object, now: float, *, recoverable: bool, plain: bool = False) -> None:
        """Sends one message; `token` comes back when the peer has it. A `plain` one never carries a SessionHeader."""
        if not self.free:
            raise LocalProtocolError("the window is full")
        self.sent_count += 1
        self.unacknowledged += 1
        number = 0
        if recoverable:
            self._recoverable_sent += 1
            number = self._recoverable_sent
        sent = _Sent(self.sent_count, number, token)
        self._in_flight.append(sent)
        if recoverable:
            self._recoverable_in_flight.append(sent)
        if not plain and self._should_piggy_back(now):
            packet = with_session_header(packet, self._session_header())
            self._ack_send_at = None
            if self._recoverable_received > self._recoverable_acked:
                self._start_ack_timer(min(self._recoverable_ack_s, self._ack_wait_s / 2), now)
        self._out.append(packet)
        self._active = True
        if self._ack_wait_at is None:
            self._ack_wait_at = now + self._ack_wait_factor * self._ack_wait_s

    def _should_piggy_back(self, now: float) -> bool:
        if self._ack_send_at is None or not self._unacked_received:
            return False
        return now - self._ack_started > PIGGY_BACK_AFTER * (self._ack_send_at - self._ack_started)

    def announce_pause(self) -> None:
        """3.1.7.13: acknowledges everything and asks the peer for one message at a time."""
        if self.state is SessionState.OPEN:
            header = self._session_header()
            fields = {name: getattr(header, name) for name in header.__slots__} | {"window_size": 1}
            self._out.append(SessionAck(SessionHeader(**fields)).encode())
            self._ack_send_at = None
            self._active = False

    # Time

    def on_timer(self, now: float) -> None:
        """Everything that is due. Calling it early does nothing."""
        if _due(self._initialization_at, now):
            self.close("the session was not opened in time", ConnectionStatus.NOT_READY)
            return
        if _due(self._cleanup_at, now):  # 3.1.6.2
            if not self._active:
                self.close("the session was idle")
                return
            self._active = False
            self._cleanup_at = now + self.settings.cleanup_ms / 1000
        if _due(self._ack_wait_at, now):  # 3.1.6.3
            if not (self._in_flight or self._recoverable_in_flight):
                self._ack_wait_at = None
            elif not self._received_ack:
                self.close("the peer did not acknowledge in time", ConnectionStatus.SEND_FAILURE)
                return
            else:
                self._ack_wait_at = now + self._ack_wait_factor * self._ack_wait_s
            self._received_ack = False
        if _due(self._ack_send_at, now):  # 3.1.6.4
            self._ack_send_at = None
            if self._unacked_received:
                self._send_ack(now)

    @property
    def in_flight(self) -> list[object]:
        """The tokens of messages that the peer has not acknowledged, in the order they were sent."""
        sent = {each.number: each for each in (*self._in_flight, *self._recoverable_in_flight)}
        return [sent[number].token for number in sorted(sent)]


_KINDS = {
    EstablishConnection: PacketKind.ESTABLISH_CONNECTION,
    ConnectionParameters: PacketKind.CONNECTION_PARAMETERS,
    SessionAck: PacketKind.SESSION_ACK,
}


def _due(deadline: float | None, now: float) -> bool:
    return deadline is not None and deadline <= now


def _milliseconds(now: float) -> int:
    return int(now * 1000) & 0xFFFFFFFF


def _unwrapped(value: int, newest: int) -> int:
    """The count that a 16-bit field stands for: the latest one that is not above `newest`."""
    return newest - (newest - value & _WRAP)
