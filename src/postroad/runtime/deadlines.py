"""When something is due next, of several times that are there or not, or of many that change all the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SPARE = 64  # entries of things that are gone, besides as many as there are of others: then they are thrown out


def earliest(times: Iterable[float | None]) -> float | None:
    """The first of them; None if there is none. A loop, because services are asked after every event."""
    found = None
    for time in times:
        if time is not None and (found is None or time < found):
            found = time
    return found


class Agenda(Generic[K]):
    """Items that each have a time or none, and the first of them at any moment, for any number of items.

    `when` gives the current time of an item, None if it has none. A caller that sets an earlier time calls `add`.
    """

    def __init__(self, when: Callable[[K], float | None]) -> None:
        self._when = when
        self._heap: list[tuple[float, int, K]] = []
        self._noted: dict[K, float] = {}  # the time of each in the heap: never later than its own
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: K) -> None:
        """The item has a time; a later one than before needs no word."""
        time = self._when(item)
        if time is None or self._noted.get(item, time + 1) <= time:
            return
        self._noted[item] = time
        heappush(self._heap, (time, next(self._order), item))
        if len(self._heap) > SPARE + 2 * len(self._noted):
            self._heap = [entry for entry in self._heap if self._noted.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def discard(self, item: K) -> None:
        """The item is gone; nothing here keeps it alive for long."""
        self._noted.pop(item, None)

    @property
    def next(self) -> float | None:
        """The first time of all."""
        while self._heap:
            time, _, item = self._heap[0]
            if self._noted.get(item) != time:
                heappop(self._heap)  # it is in the heap under an earlier time
            elif self._when(item) == time:
                return time
            else:  # it was put off, or has no time any more
                heappop(self._heap)
                del self._noted[item]
                self.add(item)
        return None

    def due(self, now: float) -> list[K]:
        """Everything whose time has come, the first of it first; each is then to be added again, if it has a time."""
        found = []
        while (time := self.next) is not None and time <= now:
            _, _, item = heappop(self._heap)
            del self._noted[item]
            found.append(item)
        return found


class Deadlines(Generic[K]):
    """An agenda that keeps the times by itself: to put something off costs one entry in a dictionary."""

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._agenda: Agenda[K] = Agenda(self._times.get)

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: K, time: float | None) -> None:
        """When `key` is due from now on; None for never."""
        if time is None:
            self._times.pop(key, None)
            self._agenda.discard(key)
        else:
            self._times[key] = time
            self._agenda.add(key)

    @property
    def first(self) -> float | None:
        """When the first of them is due."""
        return self._agenda.next

    def take_due(self, now: float) -> list[K]:
        """Those whose time has come, in the order of their times; they are due no more."""
        due = self._agenda.due(now)
        for key in due:
            del self._times[key]
        return due
