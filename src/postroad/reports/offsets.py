"""Marks, holds and submissions, and the part of a queue that a reader wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroad.reports.plain import keyed, listed

if TYPE_CHECKING:
    from postroad.describe.received import ReceivedMessage


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a queue can be read.

    No message can appear below `arrival` any more. Below `arrived` no new message can appear, but a locked one may
    return. `added` counts the stored messages that have ever arrived. `express` counts the others since the start of
    the manager, which `run` identifies. `settled` says whether all counted messages are below `arrival`. `oldest` is
    the arrival number of the first message in the queue, and `messages` how many there are. `queue` changes if the
    queue is deleted and created again.
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
    """A range of messages in parts with nearly equal numbers of messages. `express` of the messages are not stored.

    `next_arrived_ms` is when the first message after the range arrived. None if there is none.
    """

    start: int = field(metadata=keyed("from"))
    end: int = field(metadata=keyed("to"))
    messages: int
    express: int
    parts: tuple[Part, ...] = field(metadata=listed(Part))
    next_arrived_ms: int | None


@dataclass(frozen=True, slots=True)
class HoldInfo:
    """A range that a reader holds, how many messages are in it, and when the hold was made.

    `passed_over` counts messages that others were receiving then. A reader that wants these too must release the hold
    and make it again.
    """

    name: str
    start: int = field(metadata=keyed("from"))
    end: int = field(metadata=keyed("to"))
    messages: int
    since_s: int
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages of a range to read, by order of arrival, and the columns to read. None selects everything."""

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
        """The wanted values by column."""
        wanted = {"priority": self.priority, "class": self.message_class, "label": self.label}
        return {name: value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Submission:
    """The result of a submission: how many messages were sent now, and how many had been sent before."""

    sent: int
    dropped: int


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """What a manager knows about an epoch of a sender.

    It has whether the epoch is complete, and the `rows` that were sent of each `partition`, with the `run` that sent
    them and their `digest`, if the sender gave them.
    """

    complete: bool
    parts: tuple[dict[str, object], ...]
