"""When something is due next, of several times that are there or not, or of many that change all the time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def earliest(times: Iterable[float | None]) -> float | None:
    """The first of them; None where there is none. A loop, since services are asked after every event."""
    found = None
    for time in times:
        if time is not None and (found is None or time < found):
            found = time
    return found


class Deadlines(Generic[K]):
    """The times of many things, of which the first is known at any moment, however many there are.

    A heap whose entries may be too early, never too late: to put something off costs one entry in a dictionary.
    """

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._queued: dict[K, float] = {}  # the time of the entry in the heap that counts
        self._made = 0  # so that keys are never compared

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: K, time: float | None) -> None:
        """When `key` is due from now on; None for never."""
        if time is None:
            self._times.pop(key, None)
            return
        self._times[key] = time
        queued = self._queued.get(key)
        if queued is None or time < queued:
            self._queued[key] = time
            self._made += 1
            heappush(self._heap, (time, self._made, key))

    @property
    def first(self) -> float | None:
        """When the first of them is due."""
        while self._heap:
            queued, made, key = self._heap[0]
            if self._queued.get(key) != queued:  # another entry counts
                heappop(self._heap)
                continue
            time = self._times.get(key)
            if time is None:
                heappop(self._heap)
                del self._queued[key]
            elif time > queued:
                self._queued[key] = time
                heapreplace(self._heap, (time, made, key))
            else:
                return queued
        return None

    def take_due(self, now: float) -> list[K]:
        """Those whose time has come, in the order of their times; they are due no more."""
        due = []
        while (first := self.first) is not None and first <= now:
            _, _, key = heappop(self._heap)
            del self._queued[key], self._times[key]
            due.append(key)
        return due
