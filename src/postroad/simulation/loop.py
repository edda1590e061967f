"""Virtual time: callbacks in the order of their times, and of their making where the times agree. No real clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

STARTED = 1_700_000_000.0  # a moment that every time stamp in a packet can hold


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """`now` does not change while a callback runs."""

    def __init__(self, now: float = STARTED) -> None:
        self.now = now
        self.steps = 0  # callbacks that have run
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = count()

    def at(self, time: float, callback: Callable[[], None]) -> Timer:
        """A time that is over means now, behind what waits for now already."""
        timer = Timer(callback)
        heappush(self._heap, (max(time, self.now), next(self._count), timer))
        return timer

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.at(self.now + seconds, callback)

    def run(self, until: float) -> None:
        """Everything up to `until`, which is the time afterwards."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, timer = heappop(heap)
            if timer.callback is not None:
                self.steps += 1
                timer.callback()
        self.now = until
