"""One session, [MS-MQQB] 3.1: bytes and time go in; bytes, events and the next deadline come out. No I/O and no clock.

It opens a connection as initiator or acceptor, counts messages both ways, keeps the window, and acknowledges. sender.py
and receiver.py know what messages mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from uuid import UUID

from postroad.binary.states import (
    TRANSITIONS,
    Acknowledged,
    Action,
    Closed,
    Event,
    Opened,
    PacketKind,
    Received,
    ReceivedRun,
    SessionState,
)
from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.net.endpoints import SILENT_S
from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.wire.constants import RESEND_TABLE_S, OperatingSystemFlags
from postroad.wire.framer import Framer, Packet, decode_packet
from postroad.wire.internal import (
    ACK_TIMEOUT_RANGE_MS,
    PLAIN_ACK,
    RECOVERABLE_ACK_TIMEOUT_RANGE_MS,
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    SessionHeader,
)
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.patch import is_recoverable, with_session_header
from postroad.wire.runs import is_plain, plain_run
from postroad.wire.view import MessageView

# The settings, with the specification's defaults, [MS-MQQB] 3.1.2, 3.1.3.2 and its notes.


# [MS-MQQB] note 44: how long an idle session stays open, and on a routing server.
CLEANUP_MS = 300_000
ROUTING_CLEANUP_MS = 120_000
TIMERS = "binary timers"  # their name in logs, if they fail


@dataclass(frozen=True, slots=True)
class BinarySettings:
    """The settings of all sessions of one queue manager. Names of times end in their unit."""

    window_size: int = 1024  # what we propose: the smaller one of both ends applies; notes 36 and 50 say 64
    ack_timeout_ms: int = 120_000  # AckWaitTimeout
    initialization_ms: int = 60_000
    cleanup_ms: int = CLEANUP_MS
    retry_connect_s: float = 1.0
    order_ack_ms: int = 500  # OrderAckTimeout
    max_order_ack_delay_s: float = 10.0
    # Messages, after which it is not delayed further, because the sender keeps them until it comes.
    order_ack_messages: int = 1024
    resend_s: tuple[float, ...] = RESEND_TABLE_S
    duplicates: int = 10_000  # entries of MessageIDHistoryTable
    duplicates_s: int = 1800
    ack_wait_factor: int = 2  # for a session to a direct name; otherwise 1
    max_sessions: int = 10_000
    remote_managers: int = 10_000  # sources whose sequences and addresses are remembered


# What a session has received, [MS-MQQB] 3.1.1.3.1: counts of messages, and how many are acknowledged. No packets here.


MAX_RECOVERABLE_ACKS = 32  # bits of RecoverableMsgAckFlags


@dataclass(slots=True)
class ReceivedMessages:
    """MessageReceivedCount, RecoverableMessageReceivedCount, and what is still to be acknowledged.

    Recoverable messages are stored in the order they came, so three numbers are enough.
    """

    count: int = 0
    recoverable_count: int = 0
    _stored: int = 0
    _last_acked: int = 0  # LastAckedRecoverableMsgSeqNumber
    _express_unacked: int = 0

    def add(self, count: int = 1, *, recoverable: bool) -> int:
        """3.1.5.8.2. Counts messages. Returns the number of the last one among the recoverable ones, or 0."""
        self.count += count
        if not recoverable:
            self._express_unacked += count
            return 0
        self.recoverable_count += count
        return self.recoverable_count

    def store(self, number: int) -> None:
        """Notes that recoverable messages up to `number` may be acknowledged."""
        if number > self.recoverable_count:
            raise LocalProtocolError(f"recoverable message {number} has not come")
        self._stored = max(self._stored, number)

    @property
    def unacked(self) -> int:
        """UnackedReceivedMsgCount: messages that no SessionHeader of ours covers, stored or not."""
        return self._express_unacked + self.recoverable_unacked

    @property
    def recoverable_unacked(self) -> int:
        return self.recoverable_count - self._last_acked

    @property
    def stored_unacked(self) -> int:
        """How many bits would be set in RecoverableMsgAckFlags."""
        return self._stored - self._last_acked

    @property
    def ready(self) -> int:
        """How many messages a SessionHeader can acknowledge completely now."""
        return self._express_unacked + self.stored_unacked

    def header(self, sent: SentMessages, window: int) -> SessionHeader:
        """3.1.6.4: the SessionHeader to write now. What it acknowledges counts as acknowledged from then on."""
        covered = min(self.stored_unacked, MAX_RECOVERABLE_ACKS)
        base = (self._last_acked + 1) & WRAP if covered else 0
        self._last_acked += covered
        self._express_unacked = 0
        return SessionHeader(
            ack_sequence_number=self.count & WRAP,
            recoverable_msg_ack_seq_number=base,
            recoverable_msg_ack_flags=(1 << covered) - 1,
            user_msg_sequence_number=sent.count & WRAP,
            recoverable_msg_seq_number=sent.recoverable_count & WRAP,
            window_size=window,
        )

    def disagreement(self, header: SessionHeader) -> str | None:
        """3.1.5.5.5: how the peer's counts of sent messages differ from our counts of received ones; None if they
        agree."""
        for what, sent, received in (
            ("messages", header.user_msg_sequence_number, self.count & WRAP),
            ("recoverable messages", header.recoverable_msg_seq_number, self.recoverable_count & WRAP),
        ):
            if sent != received:
                return f"the peer has sent {sent} {what} and {received} have come"
        return None


# The messages that a session has sent and the peer has not acknowledged, [MS-MQQB] 3.1.5.5.


WRAP = 0xFFFF  # the fields of a SessionHeader have 16 bits; the counts here do not wrap


def unwrapped(value: int, newest: int) -> int:
    """The count that a 16-bit field stands for: the latest one that is not above `newest`."""
    return newest - ((newest - value) & WRAP)


# SequenceNumber and RecoverableSequenceNumber of a message (3.1.1.3.1.2), and its token.
_Sent = tuple[int, int, object]


@dataclass(slots=True)
class SentMessages:
    """MessageSentCount, RecoverableMessageSentCount and the messages that the peer has not acknowledged."""

    count: int = 0
    recoverable_count: int = 0
    _acked: int = 0
    _express: deque[_Sent] = field(default_factory=deque)
    _recoverable: deque[_Sent] = field(default_factory=deque)

    def add(self, tokens: Sequence[object], *, recoverable: bool) -> None:
        """3.1.7.1.3"""
        numbers = range(self.count + 1, self.count + len(tokens) + 1)
        self.count += len(tokens)
        if recoverable:
            places = range(self.recoverable_count + 1, self.recoverable_count + len(tokens) + 1)
            self.recoverable_count += len(tokens)
            self._recoverable.extend(zip(numbers, places, tokens, strict=True))
        else:
            self._express.extend(zip(numbers, repeat(0), tokens, strict=False))

    @property
    def unacknowledged(self) -> int:
        """UnAckedMessageCount: messages sent that the peer has not read. It leaves out messages not sent yet."""
        return self.count - self._acked

    @property
    def awaiting_ack(self) -> bool:
        """Whether the peer still owes an acknowledgment, of reading a message or of storing a recoverable one."""
        return bool(self.unacknowledged or self._recoverable)

    @property
    def recoverable_waiting(self) -> int:
        """Recoverable messages that the peer has not acknowledged."""
        return len(self._recoverable)

    @property
    def in_flight(self) -> list[object]:
        """The tokens of unacknowledged messages, in the order sent."""
        sent = sorted((*self._express, *self._recoverable), key=itemgetter(0))
        return [token for _, _, token in sent]

    def acknowledge(self, header: SessionHeader) -> list[object]:
        """The tokens of messages that a SessionHeader of the peer acknowledges. Each is returned once."""
        return [*self._acknowledge_all(header), *self._acknowledge_recoverable(header)]

    def _acknowledge_all(self, header: SessionHeader) -> list[object]:
        """3.1.5.5.1 and 3.1.5.5.2. A number that was never sent counts as long past and acknowledges nothing."""
        self._acked = acked = max(self._acked, unwrapped(header.ack_sequence_number, self.count))
        done: list[object] = []
        express = self._express
        while express and express[0][0] <= acked:
            done.append(express.popleft()[2])
        return done

    def _acknowledge_recoverable(self, header: SessionHeader) -> list[object]:
        """3.1.5.5.3: acknowledges everything up to the number, and above it what the bits say."""
        flags = header.recoverable_msg_ack_flags
        if not (header.recoverable_msg_ack_seq_number or flags):
            return []
        base = unwrapped(header.recoverable_msg_ack_seq_number, self.recoverable_count)
        done: list[object] = []
        waiting = self._recoverable
        bits = flags.bit_length()
        covered = base if flags != (1 << bits) - 1 else base + max(bits - 1, 0)  # most peers leave no gaps
        while waiting and waiting[0][1] <= covered:
            done.append(waiting.popleft()[2])
        kept: list[_Sent] = []
        while waiting and (place := waiting[0][1] - base) < bits:
            sent = waiting.popleft()
            if flags >> place & 1:
                done.append(sent[2])
            else:
                kept.append(sent)
        waiting.extendleft(reversed(kept))
        return done


PIGGY_BACK_AFTER = 0.75  # of the ack timer, 3.1.7.11
RECOVERABLE_TIMEOUT_FACTOR = 8  # round trips, 3.1.5.3.2
NOT_NEGOTIATED_MS = 0xFFFFFFFF  # RecoverableAckSendTimeout before the session is open, 3.1.3.2
PAUSED_WINDOW = 1  # 3.1.7.13
MAX_HANDSHAKE_PACKET = 4096  # bytes of an incomplete packet before the session is open; the largest has 572
MAX_UNWRITTEN = 4 << 20  # bytes of messages that may wait to be written; above that, `send` accepts no more


class Session:
    """One session, made by `initiate` or `accept`. After every call, take `events()` and `data_to_send()`, and read
    `deadline`."""

    def __init__(self, identifier: UUID, settings: BinarySettings, state: SessionState, now: float) -> None:
        """3.1.3.2"""
        self.identifier = identifier
        self.settings = settings
        self.state = state
        self.peer = NULL_GUID
        self.answered_by: UUID | None = None  # who answered our request, even with a refusal
        self.initiator = state is SessionState.WAITING_ECR_MSG
        self.direct = False
        self.made_at = now
        self.opened_at = 0.0
        self.last_received_at = 0.0
        self.sent = SentMessages()
        self.received = ReceivedMessages()
        self.session_active = False
        self.received_ack = False
        self.ack_wait_timeout_ms = _nearest(settings.ack_timeout_ms, ACK_TIMEOUT_RANGE_MS)
        self.recoverable_ack_timeout_ms = NOT_NEGOTIATED_MS
        self.refusing = False  # whether it is refused for lack of room
        self.blocked = False  # the peer does not read: messages and acknowledgments wait
        self._framer = Framer(MAX_HANDSHAKE_PACKET)
        self.output: list[bytes] = []  # packets that `data_to_send` joins
        self.buffered = 0  # bytes of an incomplete packet
        self._unwritten = 0  # bytes of messages in `output`
        self._events: list[Event] = []
        self._negotiated_window = 0
        self._last_window = 0
        self._ack_started = 0.0
        self._owed_since = 0.0  # since when the peer owes an acknowledgment, while it does
        self._initialization_at: float | None = now + settings.initialization_ms / 1000
        self._cleanup_at: float | None = now + settings.cleanup_ms / 1000
        self._ack_wait_at: float | None = None
        self._ack_send_at: float | None = None  # set while any received message is not acknowledged

    @classmethod
    def initiate(
        cls, identifier: UUID, peer: UUID, settings: BinarySettings, now: float, *, pinged: bool = False
    ) -> Session:
        """3.1.5.2.3. `peer` is the null GUID if a direct name leads there. `pinged` means that a ping was answered
        before."""
        session = cls(identifier, settings, SessionState.WAITING_ECR_MSG, now)
        session.peer = peer
        session.direct = peer == NULL_GUID
        flags = OperatingSystemFlags.CONSTANT | OperatingSystemFlags.SERVER
        if not pinged:
            flags |= OperatingSystemFlags.NO_PING
        session.output.append(EstablishConnection(identifier, peer, _milliseconds(now), flags.value).encode())
        return session

    @classmethod
    def accept(cls, identifier: UUID, settings: BinarySettings, now: float, *, refuse: bool = False) -> Session:
        """3.1.5.10. With `refuse`, there is no room: the caller is told so, and the session closes (2.2.1)."""
        session = cls(identifier, settings, SessionState.WAITING_EC_MSG, now)
        session.refusing = refuse
        return session

    def silent(self, now: float) -> bool:
        """Whether the peer owes an acknowledgment, should have sent it by now, and has sent nothing at all."""
        if not self.sent.awaiting_ack:
            return False
        owed_s = SILENT_S if self.sent.recoverable_waiting else SILENT_S + self._express_ack_s
        return now - max(self._owed_since, self.last_received_at) >= owed_s

    @property
    def closed(self) -> bool:
        return self.state is SessionState.CLOSED

    # Output

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> bytes:
        data = b"".join(self.output)
        self.output.clear()
        self._unwritten = 0
        return data

    @property
    def deadline(self) -> float | None:
        """When `on_timer` is due next."""
        first = self._cleanup_at  # which is set as long as the session lives
        for time in (self._initialization_at, self._ack_wait_at, self._ack_send_at):
            if time is not None and first is not None and time < first:
                first = time
        return first

    @property
    def window(self) -> int:
        """How many messages may be unacknowledged: the smallest of our window, the peer's window at opening, and the
        window in its last SessionHeader. A peer's window of 0 does not count, because nothing could ever be sent."""
        own = self.settings.window_size
        return min(own, self._negotiated_window or own, self._last_window or own)

    @property
    def free(self) -> int:
        """How many messages `send` accepts now."""
        if self.state is not SessionState.OPEN or self.blocked:
            return 0
        return max(0, self.window - self.sent.unacknowledged)

    @property
    def half_window(self) -> int:
        """How many messages to send at a time: the peer stores one half while the other is on its way."""
        return min(self.free, (self.window + 1) // 2)

    @property
    def room(self) -> int:
        """Bytes of messages that may still be added to the output. If 0, write the output before calling `send`
        again."""
        return MAX_UNWRITTEN - self._unwritten

    # Input

    def receive_data(self, data: bytes, now: float) -> None:
        """3.1.5.1. A packet that breaks a rule closes the session, but the packets before it have been handled."""
        if self.closed:
            return
        self.last_received_at = now
        opening = not self.opened_at
        self._take_all(self._framer.feed(data), now)
        if opening and self.opened_at:
            self._take_all(self._framer.lift_limit(), now)
        self.buffered = self._framer.buffered
        if self._framer.error is not None:
            self._break(self._framer.error)
        elif not self.closed:
            self._acknowledge_if_due(now)

    def _take_all(self, packets: list[bytes], now: float) -> None:
        place = 0
        while place < len(packets) and not self.closed:
            self.received_ack = True
            try:
                packet = decode_packet(packets[place])
                if self.state is SessionState.OPEN and type(packet) is MessageView and place + 1 < len(packets):
                    taken = self._take_run(packet, packets, place, now)
                    place += taken
                    if taken:
                        continue
                self._take(packets[place], packet, now)
            except RemoteProtocolError as fault:
                self._break(fault)
            place += 1

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

    def _break(self, fault: RemoteProtocolError) -> None:
        self.close(f"the peer broke the protocol: {fault}", broken=True)

    def close(
        self, reason: str, status: ConnectionStatus = ConnectionStatus.UNKNOWN_FAILURE, *, broken: bool = False
    ) -> None:
        """3.1.5.9: closes the session. No packet says so; the transport just closes."""
        if self.closed:
            return
        self.state = SessionState.CLOSED
        self._framer = Framer()  # frees an incomplete packet of up to 4 MiB
        self.buffered = 0
        self._initialization_at = self._cleanup_at = self._ack_wait_at = self._ack_send_at = None
        self._events.append(Closed(reason, status, broken))

    # Opening

    def _answer_establish(self, request: EstablishConnection) -> None:
        """3.1.5.3.1. A zero ServerGuid comes from a direct name. It is accepted, although 2.2.1 says otherwise."""
        self.peer = request.client_guid
        self.direct = request.server_guid == NULL_GUID
        foreign = request.server_guid not in (NULL_GUID, self.identifier)
        self.output.append(request.response(self.identifier, refused=foreign or self.refusing).encode())
        if foreign:
            self.close(f"the peer asked for the queue manager {request.server_guid}, which is not here")
        elif self.refusing:
            self.close("there are too many sessions", ConnectionStatus.CONNECTION_LIMIT_REACHED)

    def _send_parameters(self, response: EstablishConnection, now: float) -> None:
        """3.1.5.3.2. With a direct name, we meant whoever answers."""
        self.answered_by = response.server_guid
        self._check_accepted(response)
        if self.closed:
            return
        if response.client_guid != self.identifier:
            raise RemoteProtocolError(f"the answer is for the queue manager {response.client_guid}")
        if self.peer not in (NULL_GUID, response.server_guid):
            raise RemoteProtocolError(f"the answer is from {response.server_guid}, not from {self.peer}")
        self.peer = response.server_guid
        round_trip_ms = (_milliseconds(now) - response.time_stamp) & 0xFFFFFFFF
        self.recoverable_ack_timeout_ms = _nearest(
            RECOVERABLE_TIMEOUT_FACTOR * round_trip_ms, RECOVERABLE_ACK_TIMEOUT_RANGE_MS
        )
        self.output.append(self._parameters())

    def _answer_parameters(self, request: ConnectionParameters, now: float) -> None:
        """3.1.5.4.1: the time-outs are the initiator's, the window is ours."""
        self._enter_open(request, now)
        if not self.closed:
            self.ack_wait_timeout_ms = request.ack_timeout_ms
            self.recoverable_ack_timeout_ms = request.recoverable_ack_timeout_ms
            self.output.append(self._parameters())

    def _enter_open(self, parameters: ConnectionParameters, now: float) -> None:
        """3.1.5.4.2"""
        self._check_accepted(parameters)
        if self.closed:
            return
        self._negotiated_window = parameters.window_size
        self._initialization_at = None
        self.opened_at = now
        self._events.append(Opened(self.peer))

    def _check_accepted(self, packet: EstablishConnection | ConnectionParameters) -> None:
        if packet.refused:
            self.close("the peer refused the session", ConnectionStatus.CONNECTION_REFUSED)

    def _parameters(self) -> bytes:
        return ConnectionParameters(
            self.recoverable_ack_timeout_ms, self.ack_wait_timeout_ms, self.settings.window_size
        ).encode()

    # Messages from the peer

    def _take_message(self, data: bytes, packet: MessageView | OrderAck | FinalAck, now: float) -> None:
        """3.1.5.8.2 and 3.1.5.8.7: counts a message before its SessionHeader, whatever becomes of it, even a
        duplicate."""
        number = self._count(1, is_recoverable(data), now)
        self._events.append(Received(data, packet, number))
        if isinstance(packet, MessageView) and (header := packet.session_header) is not None:
            self._take_session_header(header, now)

    def _take_run(self, view: MessageView, packets: list[bytes], place: int, now: float) -> int:
        """Takes the plain messages from `place` on together, if there are several. Returns how many it took."""
        if not is_plain(view):
            return 0
        run = plain_run(view, packets, place)
        count = len(run.packets)
        if count == 1:
            return 0
        self._events.append(ReceivedRun(run, self._count(count, view.recoverable, now)))
        return count

    def _count(self, count: int, recoverable: bool, now: float) -> int:
        """Counts messages and starts the ack timer. Returns the number of the last one among the recoverable ones, or
        0."""
        self.session_active = True
        if recoverable and not self.received.recoverable_unacked:
            self._start_ack_timer(self._recoverable_ack_s, now)
        elif self._ack_send_at is None:
            self._start_ack_timer(self._express_ack_s, now)
        return self.received.add(count, recoverable=recoverable)

    def stored(self, number: int, now: float) -> None:
        """Recoverable messages up to `number` are durable or finally dropped, so they may be acknowledged."""
        if self.state is SessionState.OPEN:
            self.received.store(number)
            self._acknowledge_if_due(now)

    def unblock(self, now: float) -> None:
        """The peer reads again."""
        self.blocked = False
        if self.state is SessionState.OPEN:
            self._acknowledge_if_due(now)

    def _acknowledge_if_due(self, now: float) -> None:
        """Acknowledges at once if 32 recoverable messages wait for it (3.1.5.8.7), or half a window, so that the peer
        does not stall."""
        if self.blocked:
            return
        while self.received.stored_unacked >= MAX_RECOVERABLE_ACKS:
            self._send_ack(now)
        if self.received.ready >= max(1, self.window // 2):
            self._send_ack(now)

    def _send_ack(self, now: float) -> None:
        self.output.append(PLAIN_ACK + self.received.header(self.sent, self.settings.window_size).encode())
        self._restart_ack_timer(now)

    def announce_pause(self) -> None:
        """3.1.7.13: acknowledges what it can, and asks the peer for one message at a time."""
        if self.state is SessionState.OPEN:
            self.output.append(PLAIN_ACK + self.received.header(self.sent, PAUSED_WINDOW).encode())
            self.session_active = False
            if not self.received.unacked:  # messages still to be stored need the timer
                self._ack_send_at = None

    # Acknowledgments from the peer

    def _take_session_header(self, header: SessionHeader, now: float) -> None:
        """3.1.5.5: marks and deletes messages, and checks that both ends have counted alike."""
        self._last_window = header.window_size
        tokens = self.sent.acknowledge(header)
        if tokens and self._events and type(last := self._events[-1]) is Acknowledged:
            self._events[-1] = Acknowledged((*last.tokens, *tokens))
        elif tokens:
            self._events.append(Acknowledged(tuple(tokens)))
        disagreement = self.received.disagreement(header)
        if disagreement is not None:
            self.close(disagreement)
        elif self.sent.awaiting_ack:
            self._ack_wait_at = now + self._ack_wait_s

    # Sending

    def send(self, packet: bytes, token: object, now: float, *, recoverable: bool, plain: bool = False) -> None:
        """3.1.7.1.3. `token` comes back once the peer has the message. A `plain` message never carries a
        SessionHeader."""
        self._check_free(1, now)
        self.sent.add((token,), recoverable=recoverable)
        if not plain and self._should_piggy_back(now):
            packet = with_session_header(packet, self.received.header(self.sent, self.settings.window_size))
            self._restart_ack_timer(now)
        self._write((packet,), now)

    def send_all(self, packets: Sequence[bytes], tokens: Sequence[object], now: float, *, recoverable: bool) -> None:
        """The same for several messages, all recoverable or all express, and none of them plain."""
        self._check_free(len(packets), now)
        if packets and self._should_piggy_back(now):  # only once, because the timer starts again
            self.send(packets[0], tokens[0], now, recoverable=recoverable)
            packets, tokens = packets[1:], tokens[1:]
        self.sent.add(tokens, recoverable=recoverable)
        self._write(packets, now)

    def _check_free(self, count: int, now: float) -> None:
        if not self.sent.awaiting_ack:
            self._owed_since = now
        if count > self.free:
            fault = "the window is full" if self.state is SessionState.OPEN else "the session is not open"
            raise LocalProtocolError(fault)

    def _write(self, packets: Sequence[bytes], now: float) -> None:
        self.output += packets
        self._unwritten += sum(map(len, packets))
        self.session_active = True
        if self._ack_wait_at is None:
            self._ack_wait_at = now + self._ack_wait_s

    def _should_piggy_back(self, now: float) -> bool:
        """3.1.7.11"""
        if self._ack_send_at is None:
            return False
        return now - self._ack_started > PIGGY_BACK_AFTER * (self._ack_send_at - self._ack_started)

    # Time

    def on_timer(self, now: float) -> None:
        """Does everything that is due. Calling it early does nothing."""
        if _due(self._initialization_at, now):  # 3.1.6.6
            self.close("the session was not opened in time", ConnectionStatus.NOT_READY)
        if _due(self._cleanup_at, now):  # 3.1.6.2
            if not self.session_active:
                self.close("the session was idle")
            else:
                self.session_active = False
                self._cleanup_at = now + self.settings.cleanup_ms / 1000
        if _due(self._ack_wait_at, now):  # 3.1.6.3
            if not self.sent.awaiting_ack:
                self._ack_wait_at = None
            elif not self.received_ack:
                self.close("the peer did not acknowledge in time", ConnectionStatus.SEND_FAILURE)
            else:
                self._ack_wait_at = now + self._ack_wait_s
            self.received_ack = False
        if _due(self._ack_send_at, now):  # 3.1.6.4
            if self.blocked:
                self._start_ack_timer(self._recoverable_ack_s, now)
            else:
                self._send_ack(now)

    def _restart_ack_timer(self, now: float) -> None:
        """Called after a SessionHeader. 3.1.2.5: runs only for messages still to be stored, so that an idle session is
        silent."""
        self._ack_send_at = None
        if self.received.unacked:
            self._start_ack_timer(self._recoverable_ack_s, now)

    def _start_ack_timer(self, seconds: float, now: float) -> None:
        self._ack_started = now
        self._ack_send_at = now + seconds

    @property
    def _express_ack_s(self) -> float:
        return self.ack_wait_timeout_ms / 2 / 1000

    @property
    def _recoverable_ack_s(self) -> float:
        """Never longer than for express messages, so that the peer does not give up on a slow link."""
        return min(self.recoverable_ack_timeout_ms / 1000, self._express_ack_s)

    @property
    def _ack_wait_s(self) -> float:
        """3.1.2.4: longer for a direct name."""
        return (self.settings.ack_wait_factor if self.direct else 1) * self.ack_wait_timeout_ms / 1000


_KINDS = {
    EstablishConnection: PacketKind.ESTABLISH_CONNECTION,
    ConnectionParameters: PacketKind.CONNECTION_PARAMETERS,
    SessionAck: PacketKind.SESSION_ACK,
}


def _due(deadline: float | None, now: float) -> bool:
    return deadline is not None and deadline <= now


def _nearest(value: int, allowed: range) -> int:
    return min(max(value, allowed.start), allowed.stop - 1)


def _milliseconds(now: float) -> int:
    return int(now * 1000) & 0xFFFFFFFF
