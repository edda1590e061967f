"""What is due next among many things: a heap, so that neither the question nor the answer costs more with their number.

The times stay with the things themselves, where everybody reads and sets them; here is only the order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Agenda(Generic[Item]):
    """`when` tells the time of an item now, None where it has none. Whoever sets an earlier time says `add`."""

    def __init__(self, when: Callable[[Item], float | None]) -> None:
        self._when = when
        self._heap: list[tuple[float, int, Item]] = []
        self._noted: dict[Item, float] = {}  # the time that each stands under: never later than its own
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: Item) -> None:
        """The item has a time; a later one than before needs no word."""
        time = self._when(item)
        if time is None or self._noted.get(item, time + 1) <= time:
            return
        self._noted[item] = time
        heappush(self._heap, (time, next(self._order), item))

    @property
    def next(self) -> float | None:
        """The first time of all."""
        while self._heap:
            time, _, item = self._heap[0]
            if self._noted.get(item) != time:
                heappop(self._heap)  # it stands under an earlier time
            elif self._when(item) == time:
                return time
            else:  # it was put off, or has no time any more
                heappop(self._heap)
                del self._noted[item]
                self.add(item)
        return None

    def due(self, now: float) -> list[Item]:
        """Everything whose time has come, the first of it first; each is then to be added again, if it has a time."""
        found = []
        while (time := self.next) is not None and time <= now:
            _, _, item = heappop(self._heap)
            del self._noted[item]
            found.append(item)
        return found
