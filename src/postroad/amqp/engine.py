"""One connection of [AMQP] parts 2 and 5, without I/O: bytes and the time come in, bytes and calls of nodes go out.

Both ends may send anything at any time. A frame that the standard forbids ends the connection, the session or the link,
with its error. All that a peer can make us keep has a bound: frames, sessions, links, and messages by credit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from postroad.amqp.codec import (
    NULL,
    Described,
    MalformedValue,
    boolean,
    described,
    listed,
    mapped,
    symbol,
    symbols,
    text,
    ubyte,
    uint,
    ulong,
    ushort,
)
from postroad.amqp.links import Arrived, Link, Node, Session, Settled
from postroad.amqp.performatives import (
    AMQP_FRAME,
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    ERRANT_LINK,
    FLOW,
    FRAME,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    HEADER,
    HEARTBEAT,
    ILLEGAL_STATE,
    INIT,
    LEAST_FRAME,
    MECHANISMS,
    MESSAGE_SIZE,
    NOT_ALLOWED,
    OPEN,
    OUTCOME,
    OUTCOMES,
    RECEIVED,
    RESOURCE_LIMIT,
    SASL_FRAME,
    SASL_HEADER,
    SERIAL,
    SOURCE,
    STOLEN,
    TARGET,
    TRANSACTIONAL,
    TRANSFER,
    TRANSFER_LIMIT,
    UNATTACHED_HANDLE,
    ConnectionFault,
    Fault,
    SessionFault,
    code_of,
    condition_of,
    described_fields,
    disposition,
    error_value,
    fields_of,
    frame,
    read_body,
    state_rejected,
)
from postroad.errors import PostroadError
from postroad.runtime.version import __version__
from postroad.wire.constants import MAX_PACKET_SIZE

_TRANSACTIONS: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
MOST_PAYLOAD: Final = MAX_PACKET_SIZE + (1 << 20)  # bytes of one message; its encoding may be longer than its packet
MOST_IN_VAIN: Final = 1_000_000  # ids of dispositions of one read that name no message: each costs a look
MOST_OUTPUT: Final = 512 << 10  # bytes of output that wait before nodes send more
WINDOW: Final = 0x7FFFFFFF  # frames that a session takes: credit bounds the messages, so it never closes
LINGER_S: Final = 2.0  # for the peer's close after ours: what it has sent meanwhile must not cut ours off
OPENING_S: Final = 30.0  # within which a peer must have opened the connection
_HEADER_SIZE = len(HEADER)


class State(Enum):
    """Where a connection is. What may come in each is in `Engine._expected`."""

    HEADER = auto()
    LOGIN = auto()  # the mechanisms are offered
    CHECKING = auto()  # somebody checks the login
    LOGGED_IN = auto()  # the header of AMQP must follow
    OPENING = auto()
    OPENED = auto()
    CLOSING = auto()  # we have sent close: what the peer still sends is dropped
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`frame_size` is that of frames which we take. Times are in seconds."""

    container: str
    frame_size: int = 128 << 10
    sessions: int = 256
    links: int = 1024  # of all sessions
    idle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Terminus:
    """One end of a link that a peer attaches. `fields` are those of its source, target or coordinator."""

    code: int
    fields: list[Any]

    @property
    def address(self) -> str | None:
        return self.fields[0] if self.code != COORDINATOR else None

    @property
    def dynamic(self) -> bool:
        return self.code != COORDINATOR and bool(self.fields[4])

    @property
    def copies(self) -> bool:
        return self.code == SOURCE and self.fields[6] == "copy"


class Broker(Protocol):
    """What the connection's links work on."""

    def check(self, mechanism: str, response: bytes) -> None:
        """A peer wants to log in. `Engine.logged_in` or `Engine.refused` follows, at once or later."""

    def opened(self, container: str) -> None: ...

    def attach(self, link: Link, terminus: Terminus) -> Node:
        """The node of a new link; sets its address. Raises PostroadError to refuse the link."""

    def output(self) -> None:
        """There are bytes to send."""


class Engine:
    """Call `receive` with bytes and `data_to_send` for what is to be sent; the latter also after calls of nodes.

    `mechanisms` are those of SASL that the peer may use. `finished` is whether the connection is to be closed.
    """

    def __init__(self, broker: Broker, settings: EngineSettings, mechanisms: tuple[str, ...], now: float) -> None:
        self.broker = broker
        self.settings = settings
        self.state = State.HEADER
        self.container = ""
        self.sessions: dict[int, Session] = {}  # by the peer's channel
        self.blocked = False  # the peer does not read
        self.received_messages = 0
        self.sent_messages = 0
        self.fault: Fault | None = None  # why we closed the connection
        self._mechanisms = mechanisms
        self._buffer = b""
        self._channels: set[int] = set()
        self._names: dict[tuple[str, bool], Link] = {}
        self._links = 0
        self._out: list[bytes] = []
        self._out_size = 0
        self._frame_size = LEAST_FRAME  # of frames that the peer takes
        self._channel_max = 0
        self._peer_idle_s: float | None = None
        self._touched: dict[Link, None] = {}  # links with messages or outcomes that no node has seen
        self._answered: dict[Session, None] = {}
        self._credited: dict[Link, None] = {}  # links and sessions with new credit
        self._credited_sessions: dict[Session, None] = {}
        self._held = 0  # bytes of messages of several frames that are not whole
        self._closed_at = now
        self._consuming = False
        self._in_vain = 0  # ids of dispositions of one read that name no message
        self._without_login = False  # the peer began with the header of AMQP
        self._started_opening = False  # the peer has sent its header of AMQP
        self._started_at = now
        self._received_at = now
        self._sent_at = now
        self._handlers: dict[int, Callable[[int, list[Any], float], None]] = {
            BEGIN: self._begin,
            ATTACH: self._attach,
            FLOW: self._flow,
            DISPOSITION: self._disposition,
            DETACH: self._detach,
            END: self._end,
        }

    # For the shell

    @property
    def finished(self) -> bool:
        return self.state is State.CLOSED

    @property
    def held(self) -> int:
        """Bytes of input that are no whole frame or message yet."""
        return len(self._buffer) + self._held

    @property
    def links(self) -> list[Link]:
        return [link for session in self.sessions.values() for link in session.links.values()]

    def receive(self, data: bytes, now: float) -> None:
        """Takes bytes from the peer. Never raises for what these say."""
        if self.state in (State.CLOSING, State.CLOSED) and not self._closes(data):
            return
        self._buffer = self._buffer + data if self._buffer else data
        self._advance(now)

    def _feed(self, now: float) -> None:
        """Uses the credit that has come, after all outcomes that came with it: what these give back is first again."""
        links, self._credited = self._credited, {}
        sessions, self._credited_sessions = self._credited_sessions, {}
        for session in sessions:
            self._send_waiting(session)
        for link in links:
            if link.node is not None:
                link.node.feed(now)
        for session in sessions:
            if not session.ended:
                self._feed_session(session, now)

    def _closes(self, data: bytes) -> bool:
        """While we wait for the peer's close, only that is of interest."""
        if self.state is State.CLOSING and b"\0\x53\x18" in data:
            self.state = State.CLOSED
        return False

    def _advance(self, now: float) -> None:
        self._consuming = True
        self._in_vain = 0
        found: Fault | None = None
        try:
            self._consume(now)
        except MalformedValue as fault:
            found = ConnectionFault(condition_of(fault), str(fault))
        except Fault as fault:
            found = fault
        finally:
            self._consuming = False
        self._hand_over(now)
        if found is not None:
            self.close(found, now)
        self._feed(now)

    def data_to_send(self, now: float) -> bytes:
        for session in self._answered:
            self._write_answers(session)
        self._answered.clear()
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        self._out_size = 0
        self._sent_at = now
        return data

    @property
    def full(self) -> bool:
        """Whether nodes must wait before they send more."""
        return self.blocked or self._out_size >= MOST_OUTPUT

    def block(self) -> None:
        """The peer does not read what it is sent."""
        self.blocked = True

    def unblock(self, now: float) -> None:
        self.blocked = False
        self.resume(now)

    def resume(self, now: float) -> None:
        """There is room for output again."""
        if self.state is not State.OPENED or self.full:
            return
        for session in list(self.sessions.values()):
            self._feed_session(session, now)

    def run_timers(self, now: float) -> None:
        """Call it about twice a second."""
        if self.state in (State.CLOSING, State.CLOSED):
            if now - self._closed_at > LINGER_S:
                self.state = State.CLOSED
        elif self.state is not State.OPENED:
            if now - self._started_at > OPENING_S:
                self.close(ConnectionFault(RESOURCE_LIMIT, f"the connection was not opened in {OPENING_S:.0f} s"), now)
        elif now - self._received_at > self.settings.idle_s:
            fault = f"nothing has come for {self.settings.idle_s:g} s: send a frame within half of that"
            self.close(ConnectionFault(RESOURCE_LIMIT, fault), now)
        elif self._peer_idle_s is not None and now - self._sent_at >= self._peer_idle_s / 2 - 0.5:
            self._write(HEARTBEAT)

    def lost(self, now: float) -> None:
        """The connection is gone."""
        self.state = State.CLOSED
        self._end_sessions(now)

    def close(self, fault: Fault | None, now: float) -> None:
        """Ends the connection. All that its links hold goes back."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        opened, self.fault = self.state is State.OPENED, fault
        self._buffer, self._held = b"", 0
        self._touched.clear()
        self.state, self._closed_at = State.CLOSING, now
        self._end_sessions(now)
        error = NULL if fault is None else error_value(fault.condition, str(fault))
        if opened:
            self._write(frame(0, described(CLOSE, listed(error))))
        else:
            if fault is not None and self._started_opening:  # 2.4.1: the close follows an open
                self._write(frame(0, self._open_body()) + frame(0, described(CLOSE, listed(error))))
            self.state = State.CLOSED
        self.broker.output()

    # Headers and login

    def _consume(self, now: float) -> None:
        """Reads what is whole."""
        while self._awaits_header():
            if len(self._buffer) < _HEADER_SIZE:
                if self._buffer[:4] != HEADER[: len(self._buffer[:4])]:
                    self._header(self._buffer, now)  # no header begins like this
                return
            header, self._buffer = self._buffer[:_HEADER_SIZE], self._buffer[_HEADER_SIZE:]
            self._header(header, now)
        data = self._buffer
        at, size = 0, len(data)
        most = self.settings.frame_size
        unpack = FRAME.unpack_from
        while size - at >= 8 and self._takes_frames():
            length, offset, kind, channel = unpack(data, at)
            if length < 8 or length > most:
                raise ConnectionFault(FRAMING_ERROR, f"a frame must have 8 to {most} bytes, got {length}")
            if offset < 2 or 4 * offset > length:
                raise ConnectionFault(FRAMING_ERROR, f"the data of a frame must begin within it, got {offset}")
            end = at + length
            if end > size:
                break
            self._received_at = now
            if length > 4 * offset:
                self._frame(data, at + 4 * offset, end, kind, channel, now)
            elif kind != AMQP_FRAME or self.state is not State.OPENED:
                raise ConnectionFault(FRAMING_ERROR, "an empty frame must not come before the open")
            at = end
        if self.state not in (State.CLOSING, State.CLOSED):
            self._buffer = data[at:] if at else data
            if self._awaits_header() and self._buffer:
                self._consume(now)

    def _awaits_header(self) -> bool:
        return self.state in (State.HEADER, State.LOGGED_IN)

    def _takes_frames(self) -> bool:
        return self.state in (State.LOGIN, State.OPENING, State.OPENED)

    def _header(self, header: bytes, now: float) -> None:
        """2.2 and 5.2: after any other header, the peer gets the one to use, and the connection ends."""
        if self.state is State.HEADER and header == SASL_HEADER:
            mechanisms = symbols(self._mechanisms)
            self._write(SASL_HEADER + frame(0, described(MECHANISMS, listed(mechanisms)), SASL_FRAME))
            self.state = State.LOGIN
        elif self.state is State.LOGGED_IN and header == HEADER:
            self._write(HEADER)
            self.state, self._started_opening = State.OPENING, True
        elif self.state is State.HEADER and header == HEADER and "ANONYMOUS" in self._mechanisms:
            self._write(HEADER)
            self.state, self._started_opening, self._without_login = State.CHECKING, True, True
            self.broker.check("ANONYMOUS", b"")
        else:
            self._write(HEADER if self.state is State.LOGGED_IN else SASL_HEADER)
            self._buffer = b""
            self.state = State.CLOSED
            self.broker.output()

    def logged_in(self, now: float) -> None:
        """The login is right."""
        if self.state is not State.CHECKING:
            return
        if self._without_login:
            self.state = State.OPENING
        else:
            self._write(frame(0, described(OUTCOME, listed(ubyte(0))), SASL_FRAME))
            self.state = State.LOGGED_IN
        if not self._consuming:
            self._advance(now)
            self.broker.output()

    def refused(self) -> None:
        """The login is wrong, or the mechanism is not offered, 5.3.3.6."""
        if self.state is State.CHECKING:
            self._write(frame(0, described(OUTCOME, listed(ubyte(1))), SASL_FRAME))
            self.state = State.CLOSED
            self.broker.output()

    # Frames

    def _frame(self, data: bytes, at: int, end: int, kind: int, channel: int, now: float) -> None:
        code, values, at = read_body(data, at, end)
        if code == TRANSFER and kind == AMQP_FRAME and self.state is State.OPENED:
            self._transfer(channel, values, data, at, end, now)
            return
        if at != end:
            raise MalformedValue("the frame must end after its body", at)
        if self.state is State.LOGIN:
            if kind != SASL_FRAME or code != INIT:
                raise ConnectionFault(FRAMING_ERROR, "a login must begin with sasl-init")
            mechanism, response, _ = fields_of(INIT, values)
            self.state = State.CHECKING
            if mechanism in self._mechanisms:
                self.broker.check(mechanism, response)
            else:
                self.refused()
            return
        if kind != AMQP_FRAME:
            raise ConnectionFault(FRAMING_ERROR, f"the frame type {kind} is not expected here")
        if self.state is State.OPENING:
            if code != OPEN:
                raise ConnectionFault(ILLEGAL_STATE, "the first frame must be an open")
            self._open(values)
            return
        if code == CLOSE:
            self._closed(now)
            return
        if code == OPEN or code not in self._handlers:
            raise ConnectionFault(ILLEGAL_STATE, f"the frame {code:#04x} is not expected here")
        session = self.sessions.get(channel)
        if code != BEGIN and session is None:
            raise ConnectionFault(ILLEGAL_STATE, f"there is no session on channel {channel}")
        if session is not None and session.ended and code != END:
            return
        if code in (DETACH, END, ATTACH):
            self._hand_over(now)  # in order: what came before
        try:
            self._handlers[code](channel, values, now)
        except SessionFault as fault:
            self._hand_over(now)
            self.end_session(self.sessions[channel], fault, now)

    def _open(self, values: list[Any]) -> None:
        container, _, frame_size, channel_max, idle_ms, *_ = fields_of(OPEN, values)
        if frame_size < LEAST_FRAME:
            raise ConnectionFault(NOT_ALLOWED, f"max-frame-size must be at least {LEAST_FRAME}, got {frame_size}")
        self.container = container[:256]
        self._frame_size = min(frame_size, 1 << 20)
        self._channel_max = min(channel_max, self.settings.sessions - 1)
        self._peer_idle_s = idle_ms / 1000 if idle_ms else None
        self._write(frame(0, self._open_body()))
        self.state = State.OPENED
        self.broker.opened(self.container)

    def _open_body(self) -> bytes:
        settings = self.settings
        properties = mapped((symbol("product"), text("Postroad"), symbol("version"), text(__version__)))
        return described(
            OPEN,
            listed(
                text(settings.container),
                NULL,
                uint(settings.frame_size),
                ushort(settings.sessions - 1),
                uint(int(settings.idle_s * 1000 / 2)),  # 2.4.5: half of the time after which we close
                NULL,
                NULL,
                symbols(("ANONYMOUS-RELAY",)),
                NULL,
                properties,
            ),
        )

    def _closed(self, now: float) -> None:
        self._hand_over(now)
        self._end_sessions(now)
        self._write(frame(0, described(CLOSE, b"\x45")))
        self.state = State.CLOSED

    # Sessions

    def _begin(self, channel: int, values: list[Any], now: float) -> None:
        _, next_outgoing_id, incoming_window, _, handle_max, *_ = fields_of(BEGIN, values)
        if channel in self.sessions:
            raise ConnectionFault(ILLEGAL_STATE, f"channel {channel} has a session already")
        if channel > self.settings.sessions - 1:
            most = self.settings.sessions
            raise ConnectionFault(FRAMING_ERROR, f"channels must be below {most}, see channel-max, got {channel}")
        own = next((each for each in range(self._channel_max + 1) if each not in self._channels), None)
        if own is None:
            raise ConnectionFault(RESOURCE_LIMIT, f"the peer's channel-max allows {self._channel_max + 1} sessions")
        self._channels.add(own)
        session = Session(own, channel, handle_max, next_outgoing_id, incoming_window)
        self.sessions[channel] = session
        handles = uint(self.settings.links - 1)
        fields = listed(ushort(channel), uint(0), uint(WINDOW), uint(WINDOW), handles)
        self._write(frame(own, described(BEGIN, fields)))

    def _end(self, channel: int, values: list[Any], now: float) -> None:
        session = self.sessions[channel]
        fields_of(END, values)
        if not session.ended:
            self._detach_all(session, now)
            self._write_answers(session)
            self._write(frame(session.channel, described(END, b"\x45")))
        self._forget(session)

    def end_session(self, session: Session, fault: Fault, now: float) -> None:
        """Ends a session with an error. The peer's end is still to come."""
        if session.ended:
            return
        self._detach_all(session, now)
        session.ended = True
        error = error_value(fault.condition, str(fault))
        self._write(frame(session.channel, described(END, listed(error))))

    def _forget(self, session: Session) -> None:
        self._channels.discard(session.channel)
        self._answered.pop(session, None)
        if self.sessions.get(session.remote_channel) is session:
            del self.sessions[session.remote_channel]

    def _end_sessions(self, now: float) -> None:
        for session in list(self.sessions.values()):
            self._detach_all(session, now)
            self._forget(session)

    def _detach_all(self, session: Session, now: float) -> None:
        for link in list(session.links.values()):
            self._drop(link, now)
        session.answers.clear()
        session.waiting.clear()

    # Links

    def _attach(self, channel: int, values: list[Any], now: float) -> None:
        session = self.sessions[channel]
        name, handle, role, send_mode, receive_mode, source, target, unsettled, _, count, *_ = fields_of(ATTACH, values)
        del unsettled, receive_mode  # nothing is resumed: what was not settled is back in its queue
        if handle in session.links:
            raise SessionFault(HANDLE_IN_USE, f"the handle {handle} is in use")
        if handle > self.settings.links - 1:
            most = self.settings.links
            raise ConnectionFault(FRAMING_ERROR, f"handles must be below {most}, see handle-max, got {handle}")
        if (own := session.free_handle()) is None:
            raise SessionFault(RESOURCE_LIMIT, f"the peer's handle-max is {session.handle_max}")
        receives = not role
        if (older := self._names.get((name, receives))) is not None:
            self.detach(older, Fault(STOLEN, "another link with this name was attached"), now)
        link = Link(session, name, receives, own, handle)
        if receives and count is None:
            raise SessionFault("amqp:invalid-field", "initial-delivery-count must be set by the sender of a link")
        link.delivery_count = count or 0 if receives else 0
        link.presettled = not receives and send_mode == 1
        terminus = described_fields(target, TARGET, COORDINATOR) if receives else described_fields(source, SOURCE)
        refusal: PostroadError | None = None
        try:
            if self._links >= self.settings.links:
                raise Fault(RESOURCE_LIMIT, f"a connection must not have more than {self.settings.links} links")
            if terminus is None:
                raise Fault(NOT_ALLOWED, f"a link must have a {'target' if receives else 'source'} with an address")
            link.node = self.broker.attach(link, Terminus(*terminus))
        except PostroadError as error:
            refusal = error
        session.ours_detached.discard(handle)
        session.links[handle] = session.own_handles[own] = link
        self._links += 1
        self._names[name, receives] = link
        self._write(frame(session.channel, self._attach_body(link, send_mode, source, target, terminus, refusal)))
        if refusal is not None:
            self.detach(link, refusal, now)
        elif link.node is not None:
            link.node.feed(now)

    def _attach_body(
        self,
        link: Link,
        send_mode: int,
        source: Described | None,
        target: Described | None,
        terminus: tuple[int, list[Any]] | None,
        refusal: PostroadError | None,
    ) -> bytes:
        """2.6.3: a refused link has no terminus, and its detach follows."""
        own_source = own_target = NULL
        if refusal is None and terminus is not None:
            found = described_fields(source, SOURCE)
            if found is not None:
                own_source = _source(found[1], link.address if not link.receives else None)
            if link.receives and terminus[0] == COORDINATOR:
                own_target = described(COORDINATOR, listed(symbols(_TRANSACTIONS)))
            elif (target_fields := described_fields(target, TARGET)) is not None:
                own_target = _target(target_fields[1])
        return described(
            ATTACH,
            listed(
                text(link.name),
                uint(link.handle),
                boolean(link.receives),
                ubyte(send_mode if send_mode < 3 else 2),
                ubyte(0),
                own_source,
                own_target,
                NULL,
                NULL,
                NULL if link.receives else uint(0),
                ulong(MAX_PACKET_SIZE) if link.receives else NULL,
            ),
        )

    def _detach(self, channel: int, values: list[Any], now: float) -> None:
        session = self.sessions[channel]
        handle, closed, _ = fields_of(DETACH, values)
        link = session.links.get(handle)
        if link is None:
            if handle in session.ours_detached:
                session.ours_detached.discard(handle)
                return
            raise SessionFault(UNATTACHED_HANDLE, f"no link is attached with the handle {handle}")
        self._drop(link, now)
        self._write_answers(session)
        fields = listed(uint(link.handle), boolean(closed))
        self._write(frame(session.channel, described(DETACH, fields)))

    def detach(self, link: Link, error: PostroadError, now: float) -> None:
        """Ends a link with an error."""
        session = link.session
        if session.links.get(link.remote_handle) is not link or session.ended:
            return
        self._drop(link, now)
        self._write_answers(session)
        session.ours_detached.add(link.remote_handle)
        fields = listed(uint(link.handle), boolean(True), error_value(condition_of(error), str(error)))
        self._write(frame(session.channel, described(DETACH, fields)))
        self.broker.output()

    def _drop(self, link: Link, now: float) -> None:
        session = link.session
        session.links.pop(link.remote_handle, None)
        session.own_handles.pop(link.handle, None)
        if self._names.get((link.name, link.receives)) is link:
            del self._names[link.name, link.receives]
        self._links -= 1
        self._held -= link.size
        self._touched.pop(link, None)
        for number in link.sent:
            del session.sent[number]
        items = [*link.sent.values(), *(each.item for each in link.outcomes)]
        link.sent.clear()
        link.outcomes.clear()
        node, link.node = link.node, None
        if node is not None:
            node.detached(items, now)

    # Flow

    def _flow(self, channel: int, values: list[Any], now: float) -> None:
        session = self.sessions[channel]
        next_incoming, window, _, _, handle, count, credit, _, drain, echo, _ = fields_of(FLOW, values)
        session.remote_window = ((next_incoming or 0) + window - session.next_outgoing_id) & SERIAL
        if session.remote_window > WINDOW:  # the peer counts less than it has got: it takes nothing more
            session.remote_window = 0
        if handle is None:
            self._credited_sessions[session] = None
            if echo:
                self._write(self._flow_frame(session))
            return
        link = session.links.get(handle)
        if link is None:
            if handle in session.ours_detached:
                return
            raise SessionFault(UNATTACHED_HANDLE, f"no link is attached with the handle {handle}")
        if link.receives:
            if count is not None and not link.gathered and link.delivery is None:
                behind = count - link.delivery_count & SERIAL
                if 0 < behind <= link.credit:  # a sender that drains gives credit back
                    link.credit -= behind
                    link.delivery_count = count
        else:
            if credit is None:
                credit = 0
            begun = link.delivery_count if count is None else count
            left = begun + credit - link.delivery_count & SERIAL
            link.credit = left if left <= WINDOW else 0
            link.drain = drain
        if echo and not (link.drain and not link.receives):
            self._write(self._flow_frame(session, link))
        self._credited[link] = None
        self._credited_sessions[session] = None

    def _flow_frame(self, session: Session, link: Link | None = None) -> bytes:
        fields = [uint(session.next_incoming_id), uint(WINDOW), uint(session.next_outgoing_id), uint(WINDOW)]
        if link is not None:
            fields += [uint(link.handle), uint(link.delivery_count), uint(link.credit), NULL, boolean(link.drain)]
        return frame(session.channel, described(FLOW, listed(*fields)))

    def grant(self, link: Link, credit: int) -> None:
        """The peer may send so many messages from now on."""
        link.credit = credit
        self._write(self._flow_frame(link.session, link))

    def drained(self, link: Link) -> None:
        """2.6.7: there is nothing to send, so the credit is used up."""
        link.delivery_count = link.delivery_count + link.credit & SERIAL
        link.credit = 0
        self._write(self._flow_frame(link.session, link))
        link.drain = False

    # Messages from the peer

    def _transfer(self, channel: int, values: list[Any], data: bytes, at: int, end: int, now: float) -> None:
        session = self.sessions.get(channel)
        if session is None:
            raise ConnectionFault(ILLEGAL_STATE, f"there is no session on channel {channel}")
        if session.ended:
            return
        session.next_incoming_id = session.next_incoming_id + 1 & SERIAL
        if len(values) < 11:
            values += [None] * (11 - len(values))
        handle, delivery_id, tag, _, settled, more, _, state, _, aborted, _ = values[:11]
        link = session.links.get(handle) if type(handle) is int else None
        try:
            if link is None:
                fields_of(TRANSFER, values)
                if handle in session.ours_detached:
                    return
                raise SessionFault(UNATTACHED_HANDLE, f"no link is attached with the handle {handle}")
            if not link.receives:
                raise SessionFault(ERRANT_LINK, "a receiver must not send messages on its link")
            if link.delivery is None:
                if type(delivery_id) is not int or type(tag) is not bytes or delivery_id > SERIAL:
                    raise SessionFault("amqp:invalid-field", "a message must have a delivery id and a tag")
                if link.credit <= 0:
                    self._hand_over(now)
                    self.detach(link, Fault(TRANSFER_LIMIT, "there is no credit for this message"), now)
                    return
                link.use_credit()
                transaction = None if state is None else _transaction_of(state)
                if not more and aborted is not True:
                    arrived = Arrived(delivery_id, settled is True, data[at:end], transaction)
                    if end - at > MOST_PAYLOAD:
                        self._refuse_size(link, delivery_id, settled=settled is True)
                    else:
                        self._arrive(link, arrived, now)
                    return
                link.delivery = (delivery_id, settled is True, transaction)
            self._continue(link, values, data[at:end], now)
        except SessionFault as fault:
            self._hand_over(now)
            self.end_session(session, fault, now)

    def _continue(self, link: Link, values: list[Any], payload: bytes, now: float) -> None:
        """One of several frames of a message."""
        assert link.delivery is not None
        _, _, _, _, settled, more, _, state, _, aborted, _ = fields_of(TRANSFER, values[:11])
        delivery_id, was_settled, transaction = link.delivery
        was_settled = was_settled or settled is True
        transaction = transaction if state is None else _transaction_of(state)
        link.delivery = (delivery_id, was_settled, transaction)
        if not aborted and not link.oversized:
            link.parts.append(payload)
            link.size += len(payload)
            self._held += len(payload)
            if link.size > MOST_PAYLOAD or len(link.parts) > MOST_PAYLOAD >> 6:
                link.oversized = True
                self._release_parts(link)
        if more and not aborted:
            return
        whole, oversized = b"".join(link.parts), link.oversized
        self._release_parts(link)
        link.delivery, link.oversized = None, False
        if aborted:
            return  # 2.7.5: as if it was never sent
        if oversized:
            self._refuse_size(link, delivery_id, settled=was_settled)
        else:
            self._arrive(link, Arrived(delivery_id, was_settled, whole, transaction), now)

    def _release_parts(self, link: Link) -> None:
        self._held -= link.size
        link.parts, link.size = [], 0

    def _refuse_size(self, link: Link, delivery_id: int, *, settled: bool) -> None:
        fault = Fault(MESSAGE_SIZE, f"a message must have at most {MAX_PACKET_SIZE} bytes (4 MiB) with its headers")
        if not settled:
            self.answer(link.session, delivery_id, state_rejected(fault))

    def _arrive(self, link: Link, arrived: Arrived, now: float) -> None:
        self.received_messages += 1
        if link.immediate:
            self._hand_over(now)
            if link.node is not None:
                link.node.arrived((arrived,), now)
            return
        link.gathered.append(arrived)
        if link not in self._touched:
            self._touched[link] = None

    def _hand_over(self, now: float) -> None:
        """Gives the nodes what has come, in the order of the links' first frames."""
        while self._touched:
            touched, self._touched = self._touched, {}
            for link in touched:
                gathered, link.gathered = link.gathered, []
                outcomes, link.outcomes = link.outcomes, []
                if link.node is None:
                    continue
                if gathered:
                    link.node.arrived(gathered, now)
                elif outcomes:
                    link.node.settled(outcomes, now)

    def answer(self, session: Session, delivery_id: int, state: bytes) -> None:
        """Settles a message of the peer with a state. Those that are alike leave together."""
        if not session.ended:
            session.answers.append((delivery_id, state))
            if session not in self._answered:
                self._answered[session] = None

    def _write_answers(self, session: Session) -> None:
        """A disposition for each range of ids with the same state, 2.7.6."""
        answers, session.answers = session.answers, []
        if not answers:
            return
        first, state = answers[0]
        last = first
        for number, each in answers[1:]:
            if each == state and number == last + 1:
                last = number
                continue
            self._write(disposition(session.channel, receiver=True, first=first, last=last, state=state))
            first = last = number
            state = each
        self._write(disposition(session.channel, receiver=True, first=first, last=last, state=state))

    # Messages to the peer

    def may_send(self, link: Link) -> bool:
        session = link.session
        return link.credit > 0 and session.remote_window > 0 and not session.waiting and not self.full

    def send(self, link: Link, payload: bytes, item: Any, *, settled: bool = False) -> None:
        """Sends a message for which there is credit."""
        session = link.session
        number = session.next_delivery
        session.next_delivery = number + 1 & SERIAL
        link.use_credit()
        self.sent_messages += 1
        if not settled:
            session.sent[number] = link
            link.sent[number] = item
        size = len(payload)
        body = link.transfer(number, settled=settled)
        if 8 + len(body) + size <= self._frame_size and session.remote_window > 0:
            session.remote_window -= 1
            session.next_outgoing_id = session.next_outgoing_id + 1 & SERIAL
            length = 8 + len(body) + size
            self._out.append(FRAME.pack(length, 2, AMQP_FRAME, session.channel))
            self._out.append(body)
            self._out.append(payload)
            self._out_size += length
            return
        room = self._frame_size - 8
        body = link.first_transfer(number, settled=settled)
        at = room - len(body)
        session.waiting.append(frame(session.channel, body + payload[:at]))
        while at < size:
            step = room - len(link.more_transfer(more=True))
            more = at + step < size
            session.waiting.append(frame(session.channel, link.more_transfer(more=more) + payload[at : at + step]))
            at += step
        self._send_waiting(session)

    def _send_waiting(self, session: Session) -> None:
        while session.waiting and session.remote_window > 0:
            session.remote_window -= 1
            session.next_outgoing_id = session.next_outgoing_id + 1 & SERIAL
            self._write(session.waiting.popleft())

    def _feed_session(self, session: Session, now: float) -> None:
        self._send_waiting(session)
        for link in list(session.links.values()):
            if not link.receives and link.node is not None and self.may_send(link):
                link.node.feed(now)

    def settle(self, link: Link, delivery_ids: list[int], state: bytes) -> None:
        """Answers outcomes that the peer has not settled."""
        if link.session.links.get(link.remote_handle) is not link:
            return
        for number in delivery_ids:
            self._write(
                disposition(link.session.channel, receiver=False, first=number, last=number, state=state, settled=True)
            )

    def _disposition(self, channel: int, values: list[Any], now: float) -> None:
        session = self.sessions[channel]
        role, first, last, settled, state, _ = fields_of(DISPOSITION, values)
        if not role:
            return  # the peer settles what it has sent: we have forgotten it already
        last = first if last is None else last
        span = last - first & SERIAL
        sent = session.sent
        if span > WINDOW:
            raise SessionFault("amqp:invalid-field", "the last id of a disposition must not be before its first")
        if not settled and (state is None or code_of(state.descriptor) == RECEIVED):
            return  # no outcome yet
        if span < len(sent):
            numbers = [number for number in (first + step & SERIAL for step in range(span + 1)) if number in sent]
        else:
            numbers = [number for number in sent if (number - first & SERIAL) <= span]
        self._in_vain += min(span, len(sent)) - len(numbers)
        if self._in_vain > MOST_IN_VAIN:
            raise SessionFault(RESOURCE_LIMIT, "too many dispositions of messages that are settled already")
        for number in numbers:
            link = sent.pop(number)
            link.outcomes.append(Settled(number, link.sent.pop(number), state, settled))
            if link not in self._touched:
                self._touched[link] = None

    # Output

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        self._out_size += len(data)


def _transaction_of(state: object) -> bytes | None:
    """The transaction that a message belongs to, 4.4.1."""
    found = described_fields(state, TRANSACTIONAL) if isinstance(state, Described) else None
    return None if found is None else bytes(found[1][0])


def _source(fields: list[Any], address: str | None) -> bytes:
    """The source as it is in force: its address, without filters, which nobody applies."""
    asked, _, _, _, dynamic, _, mode, _, _, _, _ = fields
    named: str | None = address if dynamic or asked is None else asked
    return described(
        SOURCE,
        listed(
            NULL if named is None else text(named),
            NULL,
            NULL,
            NULL,
            boolean(dynamic),
            NULL,
            NULL if mode is None else symbol(mode),
            NULL,
            NULL,
            symbols(OUTCOMES),
        ),
    )


def _target(fields: list[Any]) -> bytes:
    address = fields[0]
    return described(TARGET, listed(NULL if address is None else text(address)))
