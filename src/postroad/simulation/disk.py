"""A disk under a store in memory. Commits take time and sometimes fail; a power failure leaves one in doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from postroad.errors import StorageError
from postroad.simulation.loop import Loop, Timer
from postroad.store.interface import Batch
from postroad.store.memory import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpeed:
    """A commit takes a random time between the first two values, and sometimes `slow_s`."""

    least_s: float = 0.0005
    most_s: float = 0.005
    slow_s: float = 0.5
    slow_share: float = 0.01


@dataclass(eq=False)
class Disk:
    """`store` survives a crash. Only one commit is under way at a time."""

    _loop: Loop
    _chance: Random
    _speed: DiskSpeed
    store: MemoryStore = field(default_factory=MemoryStore)
    failing: float = 0.0  # the share of commits that fail; 1 means that the disk is full
    valid: bool = True
    _writing: Batch | None = None
    _written: bool = True  # whether the last write succeeded
    _timer: Timer | None = None

    def holds(self) -> bool:
        return True

    def put(self, batch: Batch) -> None:
        self.store.commit([batch])

    def commit(self, batch: Batch, done: Callable[[StorageError | None], None]) -> None:
        """Commits. Calls `done` shortly after the bytes are safe, as if from another thread."""
        self._writing = batch
        chance, speed = self._chance, self._speed
        seconds = chance.uniform(speed.least_s, speed.most_s)
        if chance.random() < speed.slow_share:
            seconds += speed.slow_s

        def write() -> None:
            error = StorageError("the disk is full") if chance.random() < self.failing else None
            if error is None:
                self.store.commit([batch])
            self._writing, self._written = None, error is None
            self._timer = self._loop.after(seconds * chance.random() / 2, lambda: done(error))

        self._timer = self._loop.after(seconds, write)

    def crash(self) -> bool:
        """The power fails. A commit under way may or may not have reached the disk."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._writing = self._writing, None
        if batch is None:
            return self._written
        if self._chance.random() < max(self.failing, 0.5):
            return False
        self.store.commit([batch])
        return True
