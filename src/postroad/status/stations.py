"""The managers that a message was at, in the order of its way, and what is known of it at each of them.

What is known comes from status/search.py. Nothing here reads a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from postroad.names import DirectName, FormatName, MulticastName, PrivateName
from postroad.queues.carriers import NextHop
from postroad.values.trace import TraceHop, TraceState
from postroad.wire.constants import MessageClass, class_name

# Of what a message can die of, what happens on its way. Any other reason is its destination's.
ON_THE_WAY = frozenset(
    {
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.NACK_DELETED,
        MessageClass.NACK_Q_DELETED,
        MessageClass.NACK_HOP_COUNT_EXCEEDED,
    }
)
# Where several things are known of a message at one manager, the later one of these counts.
_ORDER = (
    TraceState.UNKNOWN,
    TraceState.WAITING,
    TraceState.HANDED_OVER,
    TraceState.ARRIVED,
    TraceState.DIED,
    TraceState.RECEIVED,
)


class Place(Enum):
    HERE = "here"
    NEXT = "next"  # the manager that this one handed the message to
    DESTINATION = "destination"


class Evidence(NamedTuple):
    """What one finding proves: the message was at a manager, and this became of it there."""

    where: Place | UUID
    state: TraceState
    sentence: str
    at: str | None = None
    reason: int | None = None


@dataclass(slots=True, eq=False)
class _Station:
    manager: UUID | None = None
    address: str | None = None
    known: list[Evidence] = field(default_factory=list)

    @property
    def best(self) -> Evidence | None:
        return max(self.known, key=lambda each: _ORDER.index(each.state), default=None)

    def is_at(self, manager: UUID | None, address: str | None) -> bool:
        return (manager is not None and manager == self.manager) or (address is not None and address == self.address)


class Stations:
    """Of one message, the managers from its source to its destination."""

    def __init__(self, own: UUID, source: UUID, name_of: Callable[[UUID], str | None]) -> None:
        self._own = own
        self._name_of = name_of
        self._source = _Station(source)
        self._here = self._source if source == own else _Station(own)
        self._next: _Station | None = None
        self._others: list[_Station] = []
        self._destination: _Station | None = None
        self._direct = False

    def bound_for(self, name: FormatName, manager: UUID | None, *, here: bool) -> None:
        """The queue that the message is for, and its manager, where that is known."""
        if isinstance(name, MulticastName):
            return  # nobody knows how many there are
        if here:
            self._destination = self._here
            return
        self._direct = isinstance(name, DirectName)
        guid = name.guid if isinstance(name, PrivateName) else manager
        self._destination = _Station(guid, name.host if isinstance(name, DirectName) else None)

    def handed_to(self, hop: NextHop) -> None:
        """Who has taken it from this manager."""
        manager, address = hop
        there = self._destination
        if there is not None and there is not self._here and (self._direct or there.is_at(manager, address)):
            there.manager = there.manager or manager
            self._next = there
        elif manager is not None or address is not None:
            self._next = _Station(manager, address)

    def add(self, *evidence: Evidence) -> None:
        for each in evidence:
            if (station := self._station(each)) is not None:
                station.known.append(each)

    def _station(self, evidence: Evidence) -> _Station | None:
        where = evidence.where
        if where is Place.HERE or where == self._own:
            return self._here
        if where is Place.NEXT:
            return self._next
        if where is Place.DESTINATION:
            return self._destination
        assert isinstance(where, UUID)
        known = [self._source, self._next, self._destination, *self._others]
        if (found := next((each for each in known if each is not None and each.manager == where), None)) is not None:
            return found
        there = self._destination
        final = self._direct or evidence.state in (TraceState.ARRIVED, TraceState.RECEIVED)
        if there is not None and there.manager is None and final:
            there.manager = where
            return there
        self._others.append(_Station(where))
        return self._others[-1]

    def hops(self) -> tuple[TraceHop, ...]:
        way = [self._source, self._here if self._here.known else None, self._next, *self._others, self._destination]
        stations = list(dict.fromkeys(each for each in way if each is not None))
        last = max((place for place, each in enumerate(stations) if each.known), default=-1)
        return tuple(self._hop(each, passed=place < last) for place, each in enumerate(stations))

    def _hop(self, station: _Station, *, passed: bool) -> TraceHop:
        manager = station.manager
        name = None if manager is None else self._name_of(manager)
        best = station.best or Evidence(Place.HERE, TraceState.UNKNOWN, "nothing is known of it here: ask there")
        if best.state is TraceState.UNKNOWN and passed:
            best = best._replace(state=TraceState.HANDED_OVER, sentence="has passed it on")
        elif best.state is TraceState.WAITING:  # a later manager has it; or it is where it was to go
            if passed:
                best = best._replace(state=TraceState.HANDED_OVER)
            elif station is self._destination:
                best = best._replace(state=TraceState.ARRIVED)
        return TraceHop(
            name=name or station.address or str(manager),
            state=best.state.value,
            sentence=best.sentence,
            at=best.at,
            reason=None if best.reason is None else class_name(best.reason),
            manager=None if manager is None else str(manager),
            address=station.address,
        )


def furthest(hops: Sequence[TraceHop]) -> TraceHop | None:
    """What is known of the message as a whole: its state at the last manager where one is known."""
    return next((hop for hop in reversed(hops) if hop.state != TraceState.UNKNOWN.value), None)
