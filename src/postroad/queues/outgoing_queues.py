"""Outgoing queues, [MS-MQDMPR] 3.1.1.3: messages on their way to another manager, and what is known about that way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from postroad.names import FormatName, MulticastName
from postroad.names.format import leads_to_internal
from postroad.store.interface import Record
from postroad.wire.view import MessageView

if TYPE_CHECKING:
    from postroad.queues.owners import Held
    from postroad.queues.queue import Queue
    from postroad.reports.info import SessionInfo


HISTORY_LENGTH = 64  # connection attempts that are kept for people to look at


class OutgoingState(Enum):
    """OutgoingQueue.State, with the texts of [MS-MQMQ] 2.3.12.11 if it has one."""

    CONNECTED = "CONNECTED"
    DISCONNECTED = "DISCONNECTED"
    DISCONNECTING = "DISCONNECTING"
    INACTIVE = "INACTIVE"
    LOCKED = "LOCKED"
    NEED_VALIDATION = "NEED VALIDATION"
    WAITING = "WAITING"
    ON_HOLD = "ONHOLD"


class OutgoingEvent(Enum):
    """Events of an outgoing queue, or of the connection that its carrier has for it."""

    CONNECT = auto()  # the carrier tries to connect
    NO_ROUTE = auto()
    CONNECTED = auto()
    CLOSING = auto()
    CLOSED = auto()
    FAILED = auto()  # the carrier will try again later
    PAUSE = auto()
    RESUME = auto()
    LOCK = auto()  # hardened security forbids the carrier
    UNLOCK = auto()


SILENT = (OutgoingState.ON_HOLD, OutgoingState.LOCKED)
_CONNECTIONS = {
    OutgoingEvent.CONNECT: OutgoingState.WAITING,
    OutgoingEvent.NO_ROUTE: OutgoingState.NEED_VALIDATION,
    OutgoingEvent.CONNECTED: OutgoingState.CONNECTED,
    OutgoingEvent.CLOSING: OutgoingState.DISCONNECTING,
    OutgoingEvent.CLOSED: OutgoingState.DISCONNECTED,
    OutgoingEvent.FAILED: OutgoingState.INACTIVE,
    OutgoingEvent.LOCK: OutgoingState.LOCKED,
}
# The next state. A pair that is not listed leaves the state as it is. Connections come and go at any time, and do not
# change a queue that is paused or locked.
TRANSITIONS: dict[tuple[OutgoingState, OutgoingEvent], OutgoingState] = {
    **{
        (state, event): after for state in OutgoingState if state not in SILENT for event, after in _CONNECTIONS.items()
    },
    **{(state, OutgoingEvent.PAUSE): OutgoingState.ON_HOLD for state in OutgoingState},  # 3.1.7.2.3
    (OutgoingState.ON_HOLD, OutgoingEvent.RESUME): OutgoingState.INACTIVE,  # 3.1.7.2.4: whatever the state was before
    (OutgoingState.LOCKED, OutgoingEvent.UNLOCK): OutgoingState.INACTIVE,
}


class ConnectionStatus(IntEnum):
    """ConnectionHistory.Status, [MS-MQMQ] 2.3.12.25"""

    IN_PROCESS = 0
    ESTABLISH_PACKET_RECEIVED = 1
    ESTABLISHED = 2
    UNKNOWN_FAILURE = 0x80000000
    PING_FAILURE = 0x80000001
    CREATE_SOCKET_FAILURE = 0x80000002
    BIND_SOCKET_FAILURE = 0x80000003
    CONNECT_SOCKET_FAILURE = 0x80000004
    TCP_NOT_ENABLED = 0x80000005
    SEND_FAILURE = 0x80000006
    NOT_READY = 0x80000007
    NAME_RESOLUTION_FAILURE = 0x80000008
    INVALID_SERVER_CERTIFICATE = 0x80000009
    CONNECTION_LIMIT_REACHED = 0x8000000A
    CONNECTION_REFUSED = 0x8000000B
    ROUTING_DATA_UNAVAILABLE = 0x8000000C
    LOW_RESOURCE = 0x8000000D


# What to do about a failure. The attempt's reason says what happened.
HINTS: Mapping[ConnectionStatus, str] = {
    ConnectionStatus.PING_FAILURE: "check with `postroad ping` that the host is up",
    ConnectionStatus.CONNECT_SOCKET_FAILURE: (
        "start the queue manager there; check its address, its port (1801, or [peers] here) and firewalls"
    ),
    ConnectionStatus.SEND_FAILURE: "see the log of the other queue manager: it closed the connection",
    ConnectionStatus.NOT_READY: "the other queue manager is starting or stopping: wait",
    ConnectionStatus.NAME_RESOLUTION_FAILURE: "check the name and DNS, or send to DIRECT=TCP: and the address",
    ConnectionStatus.INVALID_SERVER_CERTIFICATE: "publish the other manager's keys in the directory, or do not encrypt",
    ConnectionStatus.CONNECTION_LIMIT_REACHED: "the other queue manager has too many sessions: raise its limit",
    ConnectionStatus.CONNECTION_REFUSED: "check the id and the address of the other queue manager in the directory",
    ConnectionStatus.ROUTING_DATA_UNAVAILABLE: "check the directory with `postroad route`",
    ConnectionStatus.LOW_RESOURCE: "check the memory and the disk of this computer",
}


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """One entry of ConnectionHistory. `error` is an HRESULT, 0 for none; `reason` says the same in words. Attempts in a
    row that end alike share one entry: `time_s` is the last of `count`, `first_s` the first."""

    status: ConnectionStatus
    time_s: int
    error: int = 0
    addresses: tuple[str, ...] = ()
    reason: str | None = None
    count: int = 1
    first_s: int | None = None

    @property
    def failed(self) -> bool:
        return self.status >= ConnectionStatus.UNKNOWN_FAILURE

    def repeats(self, other: ConnectionAttempt) -> bool:
        return self.failed and (self.status, self.error, self.addresses, self.reason) == (
            other.status,
            other.error,
            other.addresses,
            other.reason,
        )


@dataclass(slots=True)
class OutgoingInfo:
    """What does not survive a restart: state, next hops, history. The destination is in the definition."""

    destination: FormatName
    state: OutgoingState = OutgoingState.INACTIVE
    next_hops: tuple[str, ...] = ()
    named: bool = False  # an application here has sent to it since the start
    last_error: str | None = None
    failures: int = 0  # attempts that failed, since the start
    history: deque[ConnectionAttempt] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    ordering: bool = field(init=False)  # it leads to a queue that managers use among themselves

    def __post_init__(self) -> None:
        self.ordering = leads_to_internal(self.destination)

    @property
    def multicast(self) -> bool:
        return isinstance(self.destination, MulticastName)

    def note(self, attempt: ConnectionAttempt, error: str | None = None) -> None:
        """Notes how an attempt to connect went. The error in words is for those who ask why a message is stuck."""
        self._remember(replace(attempt, reason=error))
        self.last_error = error
        self.failures += attempt.failed

    def _remember(self, attempt: ConnectionAttempt) -> None:
        """A retry that ends like the one before it adds to its count, so it does not push out older entries."""
        history = self.history
        begun = bool(history) and history[-1].status is ConnectionStatus.IN_PROCESS
        before = len(history) - 1 - begun
        if before >= 0 and attempt.repeats(last := history[before]):
            if begun:
                history.pop()
            first_s = last.time_s if last.first_s is None else last.first_s
            history[-1] = replace(attempt, first_s=first_s, count=last.count + 1)
        else:
            history.append(attempt)

    def on(self, event: OutgoingEvent) -> None:
        """Applies an event. An event that has no meaning in the current state changes nothing."""
        self.state = TRANSITIONS.get((self.state, event), self.state)


# What queues need from a carrier, which takes messages of outgoing queues to other managers and brings theirs here. A
# carrier attaches itself to the core. The queues know no carrier by name, and a carrier knows no other.


class NextHop(NamedTuple):
    """Who has accepted a message: its GUID if known, and its address."""

    manager: UUID | None = None
    address: str | None = None


NOBODY_KNOWN = NextHop()


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierReport:
    """What a carrier reports about one outgoing queue: the fields of QueueInfo with these names."""

    why: str | None
    stuck: bool
    unsent: int = 0
    in_flight: int = 0
    unacknowledged: int = 0
    awaiting_final_ack: int = 0
    next_retry_s: float | None = None
    next_resend_s: float | None = None
    resend_interval_s: float | None = None


class SequenceInfo(NamedTuple):
    """SEQUENCE_INFO, [MS-MQMQ] 2.2.5: a message's place in a sequence."""

    sequence_id: int
    number: int
    previous: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingTransferInfo:
    """OutgoingTransferInfo, [MS-MQDMPR] 3.1.1.4: transactional messages of an outgoing queue that have arrived or not.
    Times are seconds since 1970, 0 for none."""

    last_ack: SequenceInfo | None = None  # EodLastAck
    last_ack_time: int = 0
    last_ack_count: int = 0
    first_non_ack: SequenceInfo | None = None
    last_non_ack: SequenceInfo | None = None
    no_ack_count: int = 0
    resend_time: int = 0
    resend_interval: int = 0
    resend_count: int = 0


@dataclass(frozen=True, slots=True)
class IncomingTransferInfo:
    """IncomingTransactionalTransferInfo, [MS-MQDMPR] 3.1.1.5: a sequence of one sender to one of our queues."""

    format_name: str
    sender: UUID
    sequence_id: int
    number: int
    last_access_s: int
    rejects: int


class Progress(NamedTuple):
    """In words, how far a message in an outgoing queue has got, and who has it already."""

    words: str
    taken_by: NextHop | None = None


class Carrier(Protocol):
    """Each outgoing queue has at most one: the first attached carrier that carries its name."""

    hardened: bool  # whether a manager with hardened security sends by it, [MS-MQDMPR] 3.1.3

    def carries(self, name: FormatName) -> bool:
        """Whether messages to this name leave by this carrier."""

    def ready(self, queue: Queue, now: float) -> None:
        """The queue has something to send."""

    def pause(self, queue: Queue) -> None:
        """The queue is on hold from now on."""

    def resume(self, queue: Queue, now: float) -> None:
        """The queue is no longer on hold."""

    def forget(self, queue: Queue) -> None:
        """The outgoing queue is gone. Drops everything about it."""

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """Message Position Deleted, [MS-MQDMPR] 3.1.7.2.1: a message has left an outgoing queue. Also called for a
        message in any other queue that is transactional or came by HTTP; for no others does a protocol report what
        became of them."""

    # Messages that came from another manager

    def brought(self, view: MessageView) -> bool:
        """Whether this carrier brought the message."""

    def origin(self, view: MessageView) -> str | None:
        """The address from which the sender's messages come, if known."""

    def names(self, address: str) -> Iterable[str]:
        """The names of the manager at an address, as far as our own calls have shown them."""

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        """Where an acknowledgment of this class goes. None if the message asks for none. May raise IllegalName."""

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        """The outgoing queue by which an acknowledgment to `name` leaves. None if it must not leave."""

    # What people and rules ask

    def hosts(self, name: FormatName) -> Iterable[str]:
        """The hosts that a message to this name makes us call."""

    def may_answer(self, name: FormatName, address: str) -> bool:
        """Whether an acknowledgment of a message to this name may come from the address: the address of its
        destination, or of a manager to which we hand such messages."""

    def report(self, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
        """How far the messages of an outgoing queue have got. The oldest of them came `oldest_s` seconds ago."""

    def progress(self, queue: Queue, lookup_id: int, now: float) -> Progress | None:
        """How far one message of an outgoing queue has got. None if it was not sent."""

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        """When a message with this id came in, in seconds, and how. None if that is not known."""

    def session_infos(self) -> list[SessionInfo]:
        """The open connections of a carrier, if it has connections."""

    # What administrators ask and do

    def transfer(self, queue: Queue) -> OutgoingTransferInfo:
        """What is known of the transactional messages of an outgoing queue."""

    def incoming(self) -> Iterable[IncomingTransferInfo]:
        """The sequences of others that this carrier has brought."""

    def resend(self, queue: Queue, now: float) -> None:
        """Resend Transactional Sequence, [MS-MQDMPR] 3.1.7.2.5: what has arrived nowhere is sent again now."""

    def take_offline(self, now: float) -> None:
        """Take Offline, [MS-MQDMPR] 3.1.4.12: ends what is open. `core.connection_active` is already
        False."""

    def bring_online(self, now: float) -> None:
        """Bring Online, 3.1.4.13: nothing waits for a time-out of the time before."""

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages sent and received by sessions since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Somebody who only counts or logs: what to call, None for what it need not know. If a watcher raises, only what
    follows from a change has failed."""

    # with the message's id, if it is about one
    follow_up_failed: Callable[[str | None, Exception], None] | None = None
    # an answer to a name, for a stranger at an address
    withheld: Callable[[FormatName, str | None], None] | None = None
    # messages that left together
    removed: Callable[[Queue, Sequence[Record], int, float], None] | None = None
    # In which queue (None: on its way), its packet, of what, where its dead letter goes (None: it asked for none), and
    # whether there was no room for that
    died: Callable[[str | None, bytes, int, str | None, bool], None] | None = None
    # by an owner
    limit_reached: Callable[[Held, str], None] | None = None
