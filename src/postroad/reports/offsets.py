"""Descriptions of offsets: marks, holds and submissions, and the part of a queue that a reader wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroad.reports.plain import keyed, listed

if TYPE_CHECKING:
    from postroad.describe.received import ReceivedMessage


@dataclass(frozen=True, slots=True)
class Mark:
    """Below `arrival` no message can appear any more; below `arrived` no new one, but a locked message may go back.
    `added` counts the stored messages that ever came, `express` the others since the manager's start, which `run`
    identifies. `settled` says whether all that were counted are below `arrival`. `oldest` is the arrival number of the
    first message in the queue, `messages` how many there are. `queue` changes if the queue is deleted and made again.
    """

    arrival: int
    added: int
    oldest: int | None
    messages: int
    arrived: int
    express: int
    run: str
    settled: bool
    queue: str


@dataclass(frozen=True, slots=True)
class Part:
    """A range of arrival numbers, and how many messages are in it."""

    start: int = field(metadata=keyed("from"))
    end: int = field(metadata=keyed("to"))
    messages: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A range and its messages, `express` of them not stored, in parts with nearly equal numbers of messages.
    `next_arrived_ms` is when the first message behind the range arrived, None if there is none."""

    start: int = field(metadata=keyed("from"))
    end: int = field(metadata=keyed("to"))
    messages: int
    express: int
    parts: tuple[Part, ...] = field(metadata=listed(Part))
    next_arrived_ms: int | None


@dataclass(frozen=True, slots=True)
class HoldInfo:
    """The range that a reader holds, and how many messages are in it; when it was first made. `passed_over` were being
    received by others then: who wants those too releases the hold and makes it again."""

    name: str
    start: int = field(metadata=keyed("from"))
    end: int = field(metadata=keyed("to"))
    messages: int
    since_s: int
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a range, by order of arrival, and which columns of them; what is None does not select."""

    start: int = 0
    end: int | None = None
    hold: str | None = None
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    priority: int | None = None
    message_class: int | None = None
    label: str | None = None

    def passes(self, message: ReceivedMessage) -> bool:
        return (
            self.priority in (None, message.priority)
            and self.message_class in (None, message.message_class)
            and self.label in (None, message.label)
        )

    @property
    def equal(self) -> dict[str, object]:
        """The same by column: what a message's has to be."""
        wanted = {"priority": self.priority, "class": self.message_class, "label": self.label}
        return {name: value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Submission:
    """How many messages were sent now, and how many had been before."""

    sent: int
    dropped: int


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """What a manager knows of an epoch of a sender: whether it is complete, and the `rows` that were sent of each
    `partition`, with the `run` that sent them and their `digest`, if the sender gave them."""

    complete: bool
    parts: tuple[dict[str, object], ...]
