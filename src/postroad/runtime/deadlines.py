"""When something is due next, of several times that are there or not, or of many that change all the time.

Without clock or event loop: whoever drives a Timetable gives it both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

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


# All deadlines of one queue manager, and the one timer that waits for the first of them.


RETRY_S = 1.0  # after which what failed is due again


class Timer(Protocol):
    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """What runs callbacks later: asyncio's event loop, or virtual time."""

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Timer: ...

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Timer: ...


class _Entry(Generic[K]):
    """When one key of a source is due. Its identity is its place in the heap."""

    __slots__ = ("key", "source", "time")

    def __init__(self, source: Source[K], key: K) -> None:
        self.source = source
        self.key = key
        self.time: float | None = None


class Source(Generic[K]):
    """Deadlines of one kind, by key. `run` gets the keys that are due, and the time: they are due no more.

    With `when`, a time may become later, or none, without a word; an earlier one needs `touch`.
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
        """`when` says another time than before."""
        assert self._when is not None
        self.set(key, self._when(key))

    def get(self, key: K) -> float | None:
        """When `key` is due; None for never."""
        entry = self._entries.get(key)
        return None if entry is None else entry.time

    def run(self, entries: Sequence[_Entry[K]], now: float) -> None:
        """What of these is still due now. If that fails, it is due again after RETRY_S, even if some of it was done."""
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
            return False  # what was due before it has put it off
        if self._when is not None and ((time := self._when(entry.key)) is None or time > now):
            self.set(entry.key, time)
            return False
        return True


class Supervision(Protocol):
    """Who hears that work fails, by its name, and that it runs again."""

    def fails(self, name: str, error: BaseException) -> None: ...

    def runs(self, name: str) -> None: ...


class Timetable:
    """One heap for all sources of a queue manager: only what has a new deadline touches it."""

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
        """`name` is what people call the work, where it fails."""
        return Source(self, name, run, when)

    @property
    def first(self) -> float | None:
        """When something is due."""
        return self._agenda.next

    def run(self, now: float) -> None:
        """Everything that is due, each source once."""
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
        """Work is down as long as one source of its name fails."""
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
        """From now on `run` is called whenever something is due, and `after` behind it. Without `supervision`, what
        fails raises."""
        self._loop, self._clock, self._after, self._supervision = loop, clock, after, supervision
        self._rest()

    def stop(self) -> None:
        """Nothing more runs by itself."""
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
        """Deadlines are put off all the time: a timer that comes early finds nothing due and waits again."""
        self._timer, self._armed_at = None, -inf  # what is noted meanwhile is looked at below
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
