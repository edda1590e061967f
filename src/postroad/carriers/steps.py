"""Places in sequences that move with the ticks that store their messages: durable together with them, or lost.

Which place a message has, and whether it is the next one, is the carrier's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from postroad.queues.tick import Tick
from postroad.store.interface import Pair


class Place(Protocol):
    """How far one sender's messages to one of our queues have come. `durable` is what an acknowledgment may name."""

    number: int
    durable: int

    @property
    def sequence_key(self) -> object:
        """Which sequence it is in."""

    def saved(self) -> object:
        """What `restore` needs to bring it back to where it is."""

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
    identifiers: list[bytes] = field(default_factory=list)  # of those messages, where `forget` wants them


class Steps:
    """By the name of the state that keeps a place: the step of the newest tick that has moved it."""

    def __init__(self, forget: Callable[[bytes], None] = lambda identifier: None) -> None:
        """`forget` is told the ids of messages that have not come after all."""
        self._forget = forget
        self._newest: dict[str, Step] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._newest

    def of(self, tick: Tick, name: str, place: Place) -> Step:
        """The step that the tick makes; ask before the place moves, and call `moved` after."""
        step = self._newest.get(name)
        if step is None or step.tick is not tick:
            step = self._newest[name] = Step(tick, place, place.saved())
            tick.on_seal.append(partial(self._write, name, step))
            tick.on_commit.append(partial(self._committed, name, step))
            tick.undo.append(partial(self._lost, name, step))
        tick.writes += 1  # it is written when the tick is sealed; an answer has to wait for that all the same
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
        """Back to where it was. What came on top of the lost messages goes too: it would stand before them."""
        if not step.number:
            return
        step.place.restore(step.before)
        step.place.durable = step.place.number  # ticks land one after the other: those before this one have
        later = self._newest.pop(name, None)
        if later is not None and later is not step:
            for key in later.added:
                gathering.take_back(key)
            for identifier in later.identifiers:
                self._forget(identifier)
            gathering.batch.state.pop(name, None)
            later.number = 0  # nothing follows from it any more
