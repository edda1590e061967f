"""The position of a stream in its queues, as Spark keeps it in a checkpoint. Only values: no Spark, no manager.

Spark compares offsets as text, forgets where the first batch began, and gives a source no name. So the end of a batch
says where the batch began in each queue, how it was divided and the name of its hold: a second run gives the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from postroad.errors import InvalidArgument
from postroad.reports.offsets import Mark, Plan

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
VERSION = 2  # of the text; version 1, of one queue, has no number
_OLD = frozenset({"arrival", "begin", "messages", "partitions", "added", "since", "hold"})


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The end of a batch in one queue; its messages are those with begin <= arrival number < arrival.

    `added` stored and `express` other messages are accounted for: they were there before the stream, or were handed
    out, or are lost. The manager counts the express ones anew in each `run`. `added` is None if that is unknown.
    `queue` is the manager's identifier of the queue. `more` has fields of a later version, which are kept.
    """

    arrival: int
    begin: int
    messages: int = 0
    partitions: int = 0
    added: int | None = None
    express: int = 0
    run: str = ""
    queue: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def first(cls, arrival: int) -> QueueOffset:
        """The start of a stream: the end of an empty batch."""
        return cls(arrival, arrival)

    def json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "more"} | dict(self.more)

    def resting(self) -> QueueOffset:
        """The same position, as the end of an empty batch."""
        return replace(self, begin=self.arrival, messages=0, partitions=0)

    def counted_from(self, mark: Mark, plan: Plan) -> QueueOffset:
        """With all accounted for that ever came, except the messages of the plan, which are those up to the mark."""
        stored, express = plan.messages - plan.express, plan.express
        return replace(self, added=mark.added - stored, express=mark.express - express, run=mark.run, queue=mark.queue)

    def pending(self, mark: Mark) -> int | None:
        """How many messages came that are not accounted for; None if that is unknown."""
        if self.added is None:
            return None
        express = self.express if self.run == mark.run else 0
        pending = mark.added + mark.express - self.added - express
        return None if pending < 0 else pending  # the manager has repaired its own counts

    def to(self, plan: Plan, mark: Mark) -> QueueOffset:
        """The end of the batch that begins here and takes the messages of a plan."""
        express = (self.express if self.run == mark.run else 0) + plan.express
        return replace(
            self,
            arrival=plan.end,
            begin=self.arrival,
            messages=plan.messages,
            added=None if self.added is None else self.added + plan.messages - plan.express,
            express=express,
            run=mark.run,
            queue=mark.queue,
        )

    def dropped(self, mark: Mark, seen: Mark | None) -> int:
        """How many express messages a restart of the manager has dropped, as far as an earlier mark counted them."""
        if self.added is None or seen is None or seen.run != self.run or mark.run == self.run:
            return 0
        return max(0, seen.express - self.express)

    def without_lost(self, mark: Mark) -> QueueOffset:
        """The same with all accounted for that ever came."""
        return replace(self, added=mark.added, express=mark.express, run=mark.run, queue=mark.queue)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a batch, in all queues of the stream. `lost` counts the messages that were gone unread."""

    queues: Mapping[str, QueueOffset]
    hold: str | None = None
    lost: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        queues = {name: self.queues[name].json() for name in sorted(self.queues)}
        return {"version": VERSION, "hold": self.hold, "lost": self.lost, "queues": queues} | dict(self.more)

    @classmethod
    def read(cls, value: Mapping[str, Any], only: str | None) -> StreamOffset:
        """`only` is the queue of a stream that has but one: offsets of version 1 do not name it."""
        try:
            if "version" not in value:
                return cls._read_old(value, only)
            check_version(value["version"])
            queues = {name: with_more(QueueOffset, each) for name, each in value["queues"].items()}
            given = {name: each for name, each in value.items() if name not in ("version", "queues")}
            return with_more(cls, {"queues": queues, **given})
        except (TypeError, LookupError, AttributeError):
            raise InvalidArgument(
                f"checkpoint: the offset {dict(value)} is of another version or of another source; "
                "start with a new checkpoint"
            ) from None

    @classmethod
    def _read_old(cls, value: Mapping[str, Any], only: str | None) -> StreamOffset:
        if value.keys() != _OLD:
            raise TypeError
        if only is None:
            raise InvalidArgument(
                "checkpoint: an earlier version wrote it for one queue; run the stream once with the option `queue` as "
                "it was then, or start with a new checkpoint"
            )
        given = {name: value[name] for name in ("arrival", "begin", "messages", "partitions")}
        return cls({only: QueueOffset(**given)}, value["hold"])


def with_more(kind: type[T], given: Mapping[str, Any]) -> T:
    """The object, with the values that it does not know in `more`."""
    names = {each.name for each in fields(kind)} - {"more"}
    more = {name: value for name, value in given.items() if name not in names}
    return kind(**{name: value for name, value in given.items() if name in names} | {"more": more})


def check_version(version: object) -> None:
    if version != VERSION:
        raise InvalidArgument(
            f"checkpoint: has offsets of version {version}, and this is version {VERSION}; use the version of Postroad "
            "that wrote it, or start with a new checkpoint"
        )


def shares(messages: int, most: int, least_each: int) -> int:
    """How many parts to divide a batch into: at most `most`, each large enough for a task."""
    return max(1, min(most, -(-messages // least_each)))


def parts_of(messages: Mapping[str, int], most: int, least_each: int) -> dict[str, int]:
    """The same for each of several queues: together `most`, or one for each queue if these are more."""
    total = sum(messages.values())
    wanted = shares(total, most, least_each)
    return {name: max(1, round(wanted * count / total)) if count else 0 for name, count in messages.items()}


def allotted(pending: Mapping[str, int], most: int) -> dict[str, int]:
    """How many messages each queue may give, of `most` in all: in proportion to what it has, but at least one of some.

    The queues with the most get what is left over by rounding.
    """
    total = sum(pending.values())
    if total <= most:
        return dict(pending)
    shared = {name: most * count // total for name, count in pending.items()}
    left = most - sum(shared.values())
    for name in sorted(pending, key=lambda name: (shared[name] > 0, -pending[name], name)):
        if left and pending[name] > shared[name]:
            shared[name] += 1
            left -= 1
    return shared


def in_proportion(pending: Mapping[str, int], most: int) -> dict[str, int]:
    """`most` bytes, shared by the numbers of messages that each queue has."""
    total = max(1, sum(pending.values()))
    return {name: max(1, most * count // total) for name, count in pending.items()}
