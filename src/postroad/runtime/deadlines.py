"""Deadlines: the earliest of many times that keep changing, and the one timer that waits for it.

No clock and no event loop here: whoever drives a Timetable passes in both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

SPARE = 64  # outdated entries that may stay, besides as many as there are items; above that all are removed


def earliest(times: Iterable[float | None]) -> float | None:
    """The earliest time; None if there is none. A plain loop, because it runs after every event."""
    found = None
    for time in times:
        if time is not None and (found is None or time < found):
            found = time
    return found


class Agenda(Generic[K]):
    """Finds the next due of any number of items, each of which has a time or none.

    `when` returns the current time of an item, or None. A caller that makes the time of an item earlier must call
    `add`.
    """

    def __init__(self, when: Callable[[K], float | None]) -> None:
        self._when = when
        self._heap: list[tuple[float, int, K]] = []
        self._noted: dict[K, float] = {}  # each item's time in the heap: never later than its real time
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: K) -> None:
        """Call this when an item gets a time, or an earlier one. A later time needs no call."""
        time = self._when(item)
        if time is None or self._noted.get(item, time + 1) <= time:
            return
        self._noted[item] = time
        heappush(self._heap, (time, next(self._order), item))
        if len(self._heap) > SPARE + 2 * len(self._noted):
            self._heap = [entry for entry in self._heap if self._noted.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def discard(self, item: K) -> None:
        """Removes an item. Nothing here keeps it alive for long."""
        self._noted.pop(item, None)

    @property
    def next(self) -> float | None:
        """The earliest time of all."""
        while self._heap:
            time, _, item = self._heap[0]
            if self._noted.get(item) != time:
                heappop(self._heap)  # outdated
            elif self._when(item) == time:
                return time
            else:  # the item is due later now, or no longer
                heappop(self._heap)
                del self._noted[item]
                self.add(item)
        return None

    def due(self, now: float) -> list[K]:
        """Takes out every item that is due, the earliest first. The caller adds again those that have a new time."""
        found = []
        while (time := self.next) is not None and time <= now:
            _, _, item = heappop(self._heap)
            del self._noted[item]
            found.append(item)
        return found


class Deadlines(Generic[K]):
    """An agenda that keeps the times itself. To postpone an item costs one entry in a dictionary."""

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
        """The earliest time."""
        return self._agenda.next

    def take_due(self, now: float) -> list[K]:
        """Takes out the keys that are due, in the order of their times."""
        due = self._agenda.due(now)
        for key in due:
            del self._times[key]
        return due


# All deadlines of one queue manager, and the one timer that waits for the earliest.


RETRY_S = 1.0  # after which failed work is due again


class Timer(Protocol):
    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """Runs callbacks later: asyncio's event loop, or virtual time."""

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Timer: ...

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer: ...


class _Entry(Generic[K]):
    """The deadline of one key of a source. The heap tells entries apart by identity."""

    __slots__ = ("key", "source", "time")

    def __init__(self, source: Source[K], key: K) -> None:
        self.source = source
        self.key = key
        self.time: float | None = None


class Source(Generic[K]):
    """Deadlines of one kind, by key. `run` gets the keys that are due and the time. Those keys then have no deadline.

    With `when`, a deadline may move later or disappear without a call. If it moves earlier, call `touch`.
    """

    def __init__(
        self,
        timetable: Timetable,
        name: str,
        run: Callable[[list[K], float], object],
        when: Callable[[K], float | None] | None,
    ) -> None:
        self.name = name
        self._timetable = timetable
        self._run = run
        self._when = when
        self._entries: dict[K, _Entry[K]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: K, time: float | None) -> None:
        """When `key` is due from now on; None for never."""
        entry = self._entries.get(key)
        if time is None:
            if entry is not None:
                del self._entries[key]
                self._timetable.drop(entry)
            return
        if entry is None:
            entry = self._entries[key] = _Entry(self, key)
        entry.time = time
        self._timetable.note(entry)

    def touch(self, key: K) -> None:
        """Call this when `when` may return an earlier time than before."""
        assert self._when is not None
        self.set(key, self._when(key))

    def get(self, key: K) -> float | None:
        """When `key` is due; None for never."""
        entry = self._entries.get(key)
        return None if entry is None else entry.time

    def run(self, entries: Sequence[_Entry[K]], now: float) -> None:
        """Runs those of the entries that are still due. If that fails, all of them are due again after RETRY_S, even
        those that were done."""
        keys: list[K] = []
        try:
            for entry in entries:
                if self._is_due(entry, now):
                    self.set(entry.key, None)
                    keys.append(entry.key)
            if keys:
                self._run(keys, now)
                self._timetable.went_well(self)
        except Exception as error:
            for key in (*keys, *(each.key for each in entries if self._entries.get(each.key) is each)):
                if (time := self.get(key)) is None or time <= now:
                    self.set(key, now + RETRY_S)
            self._timetable.failed(self, error)

    def _is_due(self, entry: _Entry[K], now: float) -> bool:
        if self._entries.get(entry.key) is not entry or entry.time is None or entry.time > now:
            return False  # work that ran before has postponed it
        if self._when is not None and ((time := self._when(entry.key)) is None or time > now):
            self.set(entry.key, time)
            return False
        return True


class Supervision(Protocol):
    """Gets word when work fails, and when it runs again, by the name of the work."""

    def fails(self, name: str, error: BaseException) -> None: ...

    def runs(self, name: str) -> None: ...


class Timetable:
    """One heap for all sources of a queue manager. Only a new deadline costs anything."""

    def __init__(self) -> None:
        self._supervision: Supervision | None = None
        self._failing: set[Source[Any]] = set()
        self._agenda: Agenda[_Entry[Any]] = Agenda(attrgetter("time"))
        self._loop: EventLoop | None = None
        self._clock: Callable[[], float]
        self._after: Callable[[], object]
        self._timer: Timer | None = None
        self._armed_at = inf

    def source(
        self,
        name: str,
        run: Callable[[list[K], float], object],
        when: Callable[[K], float | None] | None = None,
    ) -> Source[K]:
        """Adds a source. `name` names the work in logs if it fails."""
        return Source(self, name, run, when)

    @property
    def first(self) -> float | None:
        """The earliest deadline of all sources."""
        return self._agenda.next

    def run(self, now: float) -> None:
        """Runs everything that is due, each source at most once."""
        due: dict[Source[Any], list[_Entry[Any]]] = {}
        for entry in self._agenda.due(now):
            due.setdefault(entry.source, []).append(entry)
        for source, entries in due.items():
            source.run(entries, now)

    def note(self, entry: _Entry[Any]) -> None:
        self._agenda.add(entry)
        if self._loop is not None and entry.time is not None and entry.time < self._armed_at:
            self._arm(entry.time)

    def drop(self, entry: _Entry[Any]) -> None:
        entry.time = None
        self._agenda.discard(entry)

    def failed(self, source: Source[Any], error: Exception) -> None:
        if self._supervision is None:
            raise error
        self._failing.add(source)
        self._supervision.fails(source.name, error)

    def went_well(self, source: Source[Any]) -> None:
        """Reports that the work runs, unless another source of the same name still fails."""
        if source in self._failing and self._supervision is not None:
            self._failing.discard(source)
            if source.name not in {each.name for each in self._failing}:
                self._supervision.runs(source.name)

    # On an event loop

    def drive(
        self,
        loop: EventLoop,
        clock: Callable[[], float],
        after: Callable[[], object],
        supervision: Supervision | None = None,
    ) -> None:
        """From now on, calls `run` and then `after` whenever something is due. Without `supervision`, errors are
        raised."""
        self._loop, self._clock, self._after, self._supervision = loop, clock, after, supervision
        self._rest()

    def stop(self) -> None:
        """Cancels the timer: nothing more runs by itself."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._timer, self._armed_at = None, None, inf

    def _arm(self, time: float) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = time
        self._timer = self._loop.call_later(max(0.0, time - self._clock()), self._fire)

    def _fire(self) -> None:
        """Runs what is due. Postponing a deadline does not move the timer, so it may fire early and find nothing."""
        self._timer, self._armed_at = None, -inf  # deadlines set by the work are read below
        try:
            self.run(self._clock())
            self._after()
        finally:
            if self._loop is not None:
                self._rest()

    def _rest(self) -> None:
        self._armed_at = inf
        if (first := self.first) is not None:
            self._arm(first)
