"""What everything on the stage shares: one time, one source of chance, one log, one ledger."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from postroad.simulation.ledger import Ledger
from postroad.simulation.log import Log
from postroad.simulation.loop import Loop


@dataclass(frozen=True, slots=True)
class Stage:
    """Made anew for each run."""

    loop: Loop
    chance: Random
    log: Log
    ledger: Ledger

    @classmethod
    def of(cls, seed: int, *, log: bool) -> Stage:
        loop = Loop()
        return cls(loop, Random(seed), Log(loop, wanted=log), Ledger())
