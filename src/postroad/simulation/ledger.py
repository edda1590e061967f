"""The record of every message by its identifier, from its sender to its end: what was promised and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from postroad.security.signatures import LEVELS
from postroad.simulation.loop import Log, Loop
from postroad.simulation.scenario import Flow, Kind
from postroad.store.interface import Record
from postroad.wire.constants import MessageClass
from postroad.wire.view import MessageView


class Promise(Enum):
    """The result that the sending application got."""

    OPEN = auto()
    KEPT = auto()  # the message is stored, or in memory if it is express
    BROKEN = auto()  # the message never was
    WITHDRAWN = auto()  # the application aborted its transaction


@dataclass(frozen=True, slots=True)
class Arrival:
    """One copy in the destination queue. `consumed` means that a reader has removed it; `place` gives the order."""

    place: int
    at: float
    consumed: bool
    intact: bool  # the body is as sent, and the signature was checked


@dataclass(slots=True, eq=False)
class TrackedMessage:
    """One message, and everything that was seen of it."""

    number: int
    flow: Flow
    identifier: bytes
    sent_at: float
    perishable: bool
    promise: Promise = Promise.OPEN
    arrivals: list[Arrival] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)  # classes of administration acknowledgments
    ends: list[int] = field(default_factory=list)  # why it left a queue unread, or was refused
    dead: list[tuple[str, int]] = field(default_factory=list)  # managers with a dead letter of it, and the reasons
    journaled: int = 0
    waiting: list[str] = field(default_factory=list)  # outgoing queues that still have it

    @property
    def reliable(self) -> bool:
        return self.flow.kind is not Kind.EXPRESS

    def __str__(self) -> str:
        flow = self.flow
        return f"message {self.number} ({flow.kind.value}, {flow.source} to {flow.to})"


class Ledger:
    """Times are the simulation's own, not those of a manager's clock."""

    def __init__(self) -> None:
        self.messages: list[TrackedMessage] = []
        self._by_identifier: dict[bytes, TrackedMessage] = {}

    def __iter__(self) -> Iterator[TrackedMessage]:
        return iter(self.messages)

    def write(self, flow: Flow, identifier: bytes, now: float, *, perishable: bool) -> TrackedMessage:
        letter = TrackedMessage(len(self.messages) + 1, flow, identifier, now, perishable)
        self.messages.append(letter)
        self._by_identifier[identifier] = letter
        return letter

    def find(self, view: MessageView) -> TrackedMessage | None:
        return self._by_identifier.get(view.identifier)

    def arrived(self, record: Record, clock_error_s: float, *, consumed: bool) -> TrackedMessage | None:
        """Records a copy that a reader has taken, or that is in its queue at the end."""
        view = MessageView(record.packet)
        letter = self.find(view)
        if letter is not None:
            at = record.arrived_ms / 1000 - clock_error_s
            letter.arrivals.append(Arrival(record.lookup_id, at, consumed, _is_intact(view, letter.flow)))
        elif view.message_class != MessageClass.NORMAL:
            original = self._by_identifier.get(view.correlation_id)
            if original is not None:
                original.acknowledged.append(view.message_class)
        return letter

    def ended(self, packet: bytes, reason: int) -> None:
        """Records why a manager dropped or refused the message."""
        letter = self.find(MessageView(packet))
        if letter is not None and reason != MessageClass.ACK_RECEIVE:
            letter.ends.append(reason)


def _is_intact(view: MessageView, flow: Flow) -> bool:
    header = view.security_header if flow.signed else None
    level = 0 if header is None else header.flags >> 8 & 0xF
    return view.body == b"x" * flow.size and not view.encrypted and level == (LEVELS["2.0"] if flow.signed else 0)


@dataclass(frozen=True, slots=True)
class Stage:
    """What everything in a run shares: time, chance, log and ledger."""

    loop: Loop
    chance: Random
    log: Log
    ledger: Ledger
