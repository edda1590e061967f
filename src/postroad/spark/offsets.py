"""The position of a stream in a queue, as Spark keeps it in a checkpoint. Only values: no Spark, no manager.

Spark compares offsets as text, forgets where the first batch began, and gives a source no name. So the end of a batch
says where the batch began, how it was divided and the name of its hold: a second run gives the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from postroad.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch; its messages are those with begin <= arrival number < arrival.

    `added` is how many messages had ever come to the queue at some mark, None if unknown. `since` is how many of those
    that came later have been handed out.
    """

    arrival: int
    begin: int
    messages: int
    partitions: int
    added: int | None
    since: int
    hold: str | None

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Offset:
        try:
            return cls(**value)
        except TypeError:
            raise InvalidArgument(
                f"checkpoint: the offset {dict(value)} is of another version or of another source; "
                "start with a new checkpoint"
            ) from None

    @classmethod
    def first(cls, arrival: int, added: int | None, hold: str | None) -> Offset:
        """The start of a stream: the end of an empty batch."""
        return cls(arrival, arrival, 0, 0, added, 0, hold)

    def to(self, arrival: int, messages: int, partitions: int) -> Offset:
        """The end of the batch that begins here, if more messages have come than it takes."""
        return replace(
            self,
            arrival=arrival,
            begin=self.arrival,
            messages=messages,
            partitions=partitions,
            since=self.since + messages,
        )

    def to_mark(self, arrival: int, messages: int, partitions: int, added: int, missing: int) -> Offset:
        """The end of the batch that begins here and takes all that has come, except those that are missing."""
        # Of those ever added some may be after the mark; of those handed out some may be express.
        known = added if self.added is None else min(added, self.added + self.since + messages + missing)
        return replace(self.to(arrival, messages, partitions), added=known, since=0)

    def missing(self, messages: int, added: int) -> int:
        """How many messages came from here on and are gone, if `messages` are present and `added` ever came.

        Express messages are present but not counted in `added`: they can hide as many missing ones, and no more.
        """
        return 0 if self.added is None else max(0, added - self.added - self.since - messages)


def shares(messages: int, most: int, least_each: int) -> int:
    """How many parts to divide a batch into: at most `most`, each large enough for a task."""
    return max(1, min(most, -(-messages // least_each)))


def split(begin: int, end: int, arrivals: npt.NDArray[np.int64], parts: int) -> list[tuple[int, int, int]]:
    """(begin, end, messages) of each part; together they are the whole range, without overlap."""
    count = len(arrivals)
    parts = max(1, min(parts, count))
    firsts = [count * part // parts for part in range(parts)] + [count]
    bounds = [begin, *(int(arrivals[first]) for first in firsts[1:-1]), end]
    return [(bounds[part], bounds[part + 1], firsts[part + 1] - firsts[part]) for part in range(parts)]


def split_evenly(begin: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The same by arrival numbers, if the messages were not counted."""
    span = end - begin
    bounds = [begin + span * part // parts for part in range(parts + 1)]
    return [(low, high) for low, high in pairwise(bounds) if low < high]
