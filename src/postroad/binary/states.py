"""The states of a session and what each packet does in them, [MS-MQQB] 3.1.1.3.1, 3.1.5.3 to 3.1.5.8: one table.

A pair that is not in the table is a protocol error and closes the session. The documentation's diagram is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from postroad.queues.outgoing_queues import ConnectionStatus
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.runs import Run
from postroad.wire.view import MessageView


class SessionState(Enum):
    """3.1.1.3.1, without WAITING_RECONNECT, which belongs to a peer, not to one connection."""

    WAITING_EC_MSG = auto()  # an acceptor, before the EstablishConnection request
    WAITING_ECR_MSG = auto()  # an initiator, before the EstablishConnection response
    WAITING_CP_MSG = auto()  # an acceptor, before the ConnectionParameters request
    WAITING_CPR_MSG = auto()  # an initiator, before the ConnectionParameters response
    OPEN = auto()
    CLOSED = auto()


class PacketKind(Enum):
    """The kinds that the classifier of 3.1.5.1.1 distinguishes. Ordering acknowledgments travel and count as user
    messages."""

    ESTABLISH_CONNECTION = auto()
    CONNECTION_PARAMETERS = auto()
    SESSION_ACK = auto()
    USER_MESSAGE = auto()


class Action(Enum):
    """What a session does with a packet. Each is a method of the session, with the same name in lower case."""

    ANSWER_ESTABLISH = auto()
    SEND_PARAMETERS = auto()
    ANSWER_PARAMETERS = auto()
    ENTER_OPEN = auto()
    TAKE_SESSION_ACK = auto()
    TAKE_MESSAGE = auto()


TRANSITIONS: dict[tuple[SessionState, PacketKind], tuple[Action, SessionState]] = {
    (SessionState.WAITING_EC_MSG, PacketKind.ESTABLISH_CONNECTION): (
        Action.ANSWER_ESTABLISH,
        SessionState.WAITING_CP_MSG,
    ),
    (SessionState.WAITING_ECR_MSG, PacketKind.ESTABLISH_CONNECTION): (
        Action.SEND_PARAMETERS,
        SessionState.WAITING_CPR_MSG,
    ),
    (SessionState.WAITING_CP_MSG, PacketKind.CONNECTION_PARAMETERS): (Action.ANSWER_PARAMETERS, SessionState.OPEN),
    (SessionState.WAITING_CPR_MSG, PacketKind.CONNECTION_PARAMETERS): (Action.ENTER_OPEN, SessionState.OPEN),
    (SessionState.OPEN, PacketKind.SESSION_ACK): (Action.TAKE_SESSION_ACK, SessionState.OPEN),
    (SessionState.OPEN, PacketKind.USER_MESSAGE): (Action.TAKE_MESSAGE, SessionState.OPEN),
}


# Events of a session


@dataclass(frozen=True, slots=True)
class Opened:
    """Messages may flow. `peer` is who answered, which a direct name does not tell."""

    peer: UUID


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over. `reason` is in words, and `status` is for the connection history. `broken` means that the
    peer broke the protocol."""

    reason: str
    status: ConnectionStatus
    broken: bool = False


class Received(NamedTuple):
    """A message. `number` is its place among the recoverable ones, to be passed to `stored`; 0 if it is express."""

    data: bytes
    packet: MessageView | OrderAck | FinalAck
    number: int


@dataclass(frozen=True, slots=True)
class ReceivedRun:
    """Plain messages that came together, equal to a Received for each. `number` is that of the last one."""

    run: Run
    number: int

    def each(self) -> Iterator[Received]:
        first = self.number - len(self.run.packets) + 1 if self.number else 0
        for place, data in enumerate(self.run.packets):
            yield Received(data, MessageView(data), first and first + place)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The peer has these messages: it has read the express ones and stored the recoverable ones."""

    tokens: tuple[object, ...]


Event = Opened | Closed | Received | ReceivedRun | Acknowledged


def singly(events: Iterable[Event]) -> list[Event]:
    """The same events, with a Received for each message of every run."""
    found: list[Event] = []
    for event in events:
        found += event.each() if isinstance(event, ReceivedRun) else (event,)
    return found
