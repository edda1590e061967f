"""Places in sequences that move with the ticks that store their messages: durable together with them, or lost.

The carrier decides which place a message has, and whether it is the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from postroad.queues.tick import Tick
from postroad.store.interface import Pair


class Place(Protocol):
    """How far one sender's messages to one of our queues have come. An acknowledgment may name `durable`."""

    number: int
    durable: int

    @property
    def sequence_key(self) -> object:
        """The sequence that the place belongs to."""

    def saved(self) -> object:
        """What `restore` needs to return to the present place."""

    def restore(self, saved: object) -> None: ...

    def encode(self) -> bytes: ...


@dataclass(slots=True, eq=False)
class Step:
    """What one tick does to a place."""

    tick: Tick
    place: Place
    before: object
    number: int = 0
    sequence_key: object = None
    added: list[Pair] = field(default_factory=list)  # messages, and what follows from their arrival
    identifiers: list[bytes] = field(default_factory=list)  # the ids of these messages, if `forget` wants them


class Steps:
    """The step of the newest tick that moved a place, by the name of the state that keeps the place."""

    def __init__(self, forget: Callable[[bytes], None] = lambda identifier: None) -> None:
        """`forget` is called with the ids of messages that were lost."""
        self._forget = forget
        self._newest: dict[str, Step] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._newest

    def of(self, tick: Tick, name: str, place: Place) -> Step:
        """The step of this tick. Ask for it before the place moves, and call `moved` afterwards."""
        step = self._newest.get(name)
        if step is None or step.tick is not tick:
            step = self._newest[name] = Step(tick, place, place.saved())
            tick.on_seal.append(partial(self._write, name, step))
            tick.on_commit.append(partial(self._committed, name, step))
            tick.undo.append(partial(self._lost, name, step))
        tick.writes += 1  # written when the tick is sealed, but an answer must wait for it all the same
        return step

    @staticmethod
    def moved(step: Step) -> None:
        step.number, step.sequence_key = step.place.number, step.place.sequence_key

    @staticmethod
    def _write(name: str, step: Step) -> None:
        if step.number:
            step.tick.set_state(name, step.place.encode())

    def _committed(self, name: str, step: Step) -> None:
        if step.number and step.sequence_key == step.place.sequence_key:
            step.place.durable = step.number
        if self._newest.get(name) is step:
            del self._newest[name]

    def _lost(self, name: str, step: Step, gathering: Tick) -> None:
        """Returns to the earlier place. What came after the lost messages is undone too: it would stand before them."""
        if not step.number:
            return
        step.place.restore(step.before)
        step.place.durable = step.place.number  # ticks land one after the other: the earlier ones have landed
        later = self._newest.pop(name, None)
        if later is not None and later is not step:
            for key in later.added:
                gathering.take_back(key)
            for identifier in later.identifiers:
                self._forget(identifier)
            gathering.batch.state.pop(name, None)
            later.number = 0  # nothing follows from it any more
