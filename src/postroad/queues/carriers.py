"""What queues need of a carrier, which takes messages of outgoing queues to other managers and brings theirs here.

A carrier attaches itself to the core. The queues know no carrier by name, and a carrier knows no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from postroad.names import FormatName
from postroad.store.interface import Record
from postroad.wire.view import MessageView

if TYPE_CHECKING:
    from postroad.queues.queue import Queue
    from postroad.values.info import SessionInfo


class NextHop(NamedTuple):
    """Who has taken a message: its GUID where it is known, and its address."""

    manager: UUID | None = None
    address: str | None = None


NOBODY_KNOWN = NextHop()


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierReport:
    """What a carrier tells of one outgoing queue: the fields of QueueInfo of these names."""

    why: str | None
    stuck: bool
    unsent: int = 0
    in_flight: int = 0
    unacknowledged: int = 0
    awaiting_final_ack: int = 0
    next_retry_s: float | None = None
    next_resend_s: float | None = None
    resend_interval_s: float | None = None


class Progress(NamedTuple):
    """How far a message has got that is still in its outgoing queue, in words, and who has it already."""

    words: str
    taken_by: NextHop | None = None


class Carrier(Protocol):
    """Each outgoing queue has one at the most: the first that was attached and carries its name."""

    hardened: bool  # whether a manager with hardened security sends by it, [MS-MQDMPR] 3.1.3

    def carries(self, name: FormatName) -> bool:
        """Whether messages to this name leave by this carrier."""

    def ready(self, queue: Queue, now: float) -> None:
        """There is something to send."""

    def pause(self, queue: Queue) -> None:
        """The queue is on hold from now on."""

    def resume(self, queue: Queue, now: float) -> None:
        """The queue is no longer on hold."""

    def forget(self, queue: Queue) -> None:
        """The outgoing queue is gone: nothing is to be remembered of it."""

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """Message Position Deleted, [MS-MQDMPR] 3.1.7.2.1: a message has left an outgoing queue, or another queue
        of the manager if it is transactional or came by HTTP: of no other does a protocol say what became of it."""

    # Messages that came from another manager

    def brought(self, view: MessageView) -> bool:
        """Whether the message came in by this carrier."""

    def origin(self, view: MessageView) -> str | None:
        """The address that the messages of its sender come from, where it is known."""

    def names(self, address: str) -> Iterable[str]:
        """What the manager at an address is called, as far as our own calls have shown it."""

    def admin_name(self, view: MessageView, message_class: int) -> FormatName | None:
        """Where an acknowledgment of this class goes; None where the message asks for none. May raise IllegalName."""

    def way_back(self, view: MessageView, name: FormatName) -> FormatName | None:
        """The outgoing queue by which an acknowledgment to `name` leaves; None where it may not leave."""

    # What people and rules ask

    def hosts(self, name: FormatName) -> Iterable[str]:
        """The hosts that a message to this name makes us call."""

    def may_answer(self, name: FormatName, address: str) -> bool:
        """Whether an acknowledgment of a message to this name may come from the address: that of its destination, or of
        a manager that we hand such messages to."""

    def report(self, queue: Queue, oldest_s: float | None, now: float) -> CarrierReport:
        """How far the messages of an outgoing queue have got; the oldest of them came `oldest_s` seconds ago."""

    def progress(self, queue: Queue, lookup_id: int, now: float) -> Progress | None:
        """How far one message of an outgoing queue has got; None for one that was not sent."""

    def seen(self, identifier: bytes) -> tuple[int, str] | None:
        """When a message of this id came in, in seconds, and how; None where that is not known."""

    def session_infos(self) -> list[SessionInfo]:
        """The connections that are open, of a carrier that has some."""

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages sent and received by sessions since the start."""


def _ignore(*arguments: object) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who only counts or logs. What one of them raises is a failure of what follows, never of the change."""

    follow_up_failed: Callable[[str | None, Exception], None] = _ignore  # with the message's id, if it is about one
    withheld: Callable[[FormatName, str | None], None] = _ignore  # to a name, for a stranger at an address
    removed: Callable[[Queue, Sequence[Record], int, float], None] = _ignore  # all that leave at once
    # In which queue (None: on its way), its packet, of what, where its dead letter goes (None: it asked for none), and
    # whether that had no room there
    died: Callable[[str | None, bytes, int, str | None, bool], None] = _ignore
