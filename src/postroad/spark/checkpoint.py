"""The position of a stream in its queues, as Spark keeps it in a checkpoint. Values only: no Spark, no manager.

Spark compares offsets as text, does not keep the start of the first batch, and gives a source no name. So the end of a
batch records its beginning in each queue, its division and the name of its hold. A second run then gives the same
batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from postroad.errors import InvalidArgument
from postroad.reports.offsets import Mark, Plan

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
K = TypeVar("K", bound=Hashable)
VERSION = 2  # of the text; version 1 had one queue and no version number
_OLD = frozenset({"arrival", "begin", "messages", "partitions", "added", "since", "hold"})


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The end of a batch in one queue. Its messages have begin <= arrival number < arrival.

    `added` and `express` count the stored and the express messages that are accounted for: they were there before the
    stream, were handed out, or are lost. `added` is None if unknown. The manager restarts its count of express messages
    in each `run`. `queue` is the manager's identifier of the queue. `more` keeps the fields of a later version.
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
        """The same position as the end of an empty batch."""
        return replace(self, begin=self.arrival, messages=0, partitions=0)

    def counted_from(self, mark: Mark, plan: Plan) -> QueueOffset:
        """Counts every message that ever arrived as accounted for, except those of the plan, which must end at the
        mark.
        """
        stored, express = plan.messages - plan.express, plan.express
        return replace(self, added=mark.added - stored, express=mark.express - express, run=mark.run, queue=mark.queue)

    def pending(self, mark: Mark) -> int | None:
        """How many messages have arrived that are not accounted for. None if unknown."""
        if self.added is None:
            return None
        express = self.express if self.run == mark.run else 0
        pending = mark.added + mark.express - self.added - express
        return None if pending < 0 else pending  # negative after the manager has repaired its counts

    def to(self, plan: Plan, mark: Mark) -> QueueOffset:
        """The end of the batch that starts here and takes the messages of a plan."""
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
        """Counts every message that ever arrived as accounted for."""
        return replace(self, added=mark.added, express=mark.express, run=mark.run, queue=mark.queue)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a batch in all queues of the stream. `lost` counts the messages that were gone before they were read.

    `tasks` is how many tasks share the parts of the batch. 0 in offsets of an earlier version: each part is a task.
    """

    queues: Mapping[str, QueueOffset]
    hold: str | None = None
    lost: int = 0
    tasks: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        queues = {name: self.queues[name].json() for name in sorted(self.queues)}
        plain = {"version": VERSION, "hold": self.hold, "lost": self.lost, "tasks": self.tasks, "queues": queues}
        return plain | dict(self.more)

    def groups(self) -> list[list[tuple[str, int]]]:
        """The tasks of the batch. Each has parts of queues: the queue, and the number of the part in it.

        It depends on this offset alone, so a batch that runs again has the same rows in each task.
        """
        parts = {
            (queue, number): each.messages / max(1, each.partitions)
            for queue, each in sorted(self.queues.items())
            if each.messages
            for number in range(max(1, each.partitions))
        }
        return grouped(parts, self.tasks or len(parts))

    @classmethod
    def read(cls, value: Mapping[str, Any], only: str | None) -> StreamOffset:
        """Reads an offset from a checkpoint.

        `only` is the queue of a stream that has a single queue, because offsets of version 1 do not name it.
        """
        try:
            if "version" not in value:
                return cls._read_old(value, only)
            check_version(value["version"])
            queues = {name: with_more(QueueOffset, each) for name, each in value["queues"].items()}
            given = {name: each for name, each in value.items() if name not in ("version", "queues")}
            return with_more(cls, {"queues": queues, **given})
        except (TypeError, LookupError, AttributeError):
            raise InvalidArgument(
                f"checkpoint: the offset {dict(value)} is from another version or another source; "
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
    """Makes the object and puts fields that its class does not have into `more`."""
    names = {each.name for each in fields(kind)} - {"more"}
    more = {name: value for name, value in given.items() if name not in names}
    return kind(**{name: value for name, value in given.items() if name in names} | {"more": more})


def check_version(version: object) -> None:
    if version != VERSION:
        raise InvalidArgument(
            f"checkpoint: has offsets of version {version}, but this is version {VERSION}; use the version of Postroad "
            "that wrote it, or start with a new checkpoint"
        )


def shares(messages: int, most: int, least_each: int) -> int:
    """How many parts to divide a batch into: at most `most`, each large enough to be worth a task."""
    return max(1, min(most, -(-messages // least_each)))


def parts_of(messages: Mapping[str, int], most: int, least_each: int) -> dict[str, int]:
    """Divides one batch over several queues: about `most` parts in all, at least one for each queue with messages."""
    total = sum(messages.values())
    wanted = shares(total, most, least_each)
    return {name: max(1, round(wanted * count / total)) if count else 0 for name, count in messages.items()}


def grouped(sizes: Mapping[K, float], most: int) -> list[list[K]]:
    """Divides things into at most `most` groups of nearly the same size, in the order of their first things."""
    order = {each: place for place, each in enumerate(sizes)}
    groups: list[list[K]] = [[] for _ in range(min(most, len(sizes)))]
    filled = [(0.0, 0, place) for place in range(len(groups))]
    for each in sorted(sizes, key=lambda each: (-sizes[each], order[each])):
        size, count, place = heappop(filled)
        groups[place].append(each)
        heappush(filled, (size + sizes[each], count + 1, place))
    return sorted((sorted(group, key=order.__getitem__) for group in groups), key=lambda group: order[group[0]])


def allotted(pending: Mapping[str, int], most: int) -> dict[str, int]:
    """How many of `most` messages each queue may give: in proportion to its messages, but at least one where possible.

    What rounding leaves over goes to the queues with the most messages.
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
    """Divides `most` bytes among the queues in proportion to their messages."""
    total = max(1, sum(pending.values()))
    return {name: max(1, most * count // total) for name, count in pending.items()}
