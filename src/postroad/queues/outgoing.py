"""Outgoing queues, [MS-MQDMPR] 3.1.1.3: messages on their way to another manager, and what is known of that way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from postroad.names import DirectName, FormatName, MulticastName, Protocol

HISTORY_LENGTH = 64  # connection attempts that are remembered for people to look at


class OutgoingState(Enum):
    """OutgoingQueue.State, with the texts of [MS-MQMQ] 2.3.12.11 where it has one."""

    CONNECTED = "CONNECTED"
    DISCONNECTED = "DISCONNECTED"
    DISCONNECTING = "DISCONNECTING"
    INACTIVE = "INACTIVE"
    LOCKED = "LOCKED"
    NEED_VALIDATION = "NEED VALIDATION"
    WAITING = "WAITING"
    ON_HOLD = "ONHOLD"


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


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """One entry of ConnectionHistory; `error` is an HRESULT, 0 for none."""

    status: ConnectionStatus
    time_s: int
    error: int = 0
    addresses: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.status >= ConnectionStatus.UNKNOWN_FAILURE


@dataclass(slots=True)
class OutgoingInfo:
    """What does not survive a restart: the state, the next hops, the history. Where it leads is in the definition."""

    destination: FormatName
    state: OutgoingState = OutgoingState.INACTIVE
    next_hops: tuple[str, ...] = ()
    last_error: str | None = None
    failures: int = 0  # attempts that did not work out, since the start
    history: deque[ConnectionAttempt] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))

    @classmethod
    def initial(cls, destination: FormatName, hardened_security: bool) -> OutgoingInfo:
        """Of a queue that is new here, or after a start: a hardened manager sends by HTTP alone (3.1.3, 3.1.7.1.5)."""
        locked = hardened_security and not is_http(destination)
        return cls(destination, OutgoingState.LOCKED if locked else OutgoingState.INACTIVE)

    @property
    def multicast(self) -> bool:
        return isinstance(self.destination, MulticastName)

    def note(self, attempt: ConnectionAttempt, error: str | None = None) -> None:
        """Remembers how an attempt to connect went; the error in words, for whoever asks why a message is stuck."""
        self.history.append(attempt)
        self.last_error = error
        self.failures += attempt.failed

    def pause(self) -> None:
        """3.1.7.2.3: nothing is sent until somebody resumes."""
        self.state = OutgoingState.ON_HOLD

    def resume(self) -> None:
        """3.1.7.2.4: Inactive, whatever it was before the pause."""
        self.state = OutgoingState.INACTIVE


def is_http(name: object) -> bool:
    return isinstance(name, DirectName) and name.protocol in (Protocol.HTTP, Protocol.HTTPS)
