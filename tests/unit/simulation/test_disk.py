"""The simulated disk: commits take time, fail while it is full, and are in doubt after a power failure."""

from __future__ import annotations

from random import Random

from postroad.errors import StorageError
from postroad.simulation.disk import Disk, DiskSpeed
from postroad.simulation.loop import Loop
from postroad.store.interface import Batch


class Bench:
    def __init__(self, seed: int = 1) -> None:
        self.loop = Loop()
        self.disk = Disk(self.loop, Random(seed), DiskSpeed(least_s=1.0, most_s=2.0))
        self.heard: list[StorageError | None] = []

    def commit(self, name: str) -> None:
        self.disk.commit(Batch(state={name: b"value"}), self.heard.append)

    def wait(self, seconds: float) -> None:
        self.loop.run(self.loop.now + seconds)

    @property
    def stored(self) -> list[str]:
        return list(self.disk.store.state())


def test_a_commit_takes_its_time() -> None:
    bench = Bench()
    bench.commit("a")
    bench.wait(0.9)
    assert (bench.stored, bench.heard) == ([], [])
    bench.wait(10)
    assert (bench.stored, bench.heard) == (["a"], [None])


def test_a_full_disk_keeps_nothing_and_says_so() -> None:
    bench = Bench()
    bench.disk.failing = 1.0
    bench.commit("a")
    bench.wait(10)
    assert bench.stored == []
    assert isinstance(bench.heard[0], StorageError)
    bench.disk.failing = 0.0
    bench.commit("b")
    bench.wait(10)
    assert (bench.stored, bench.heard[1]) == (["b"], None)


def test_a_commit_that_a_crash_meets_is_there_or_not_and_the_disk_knows() -> None:
    outcomes = set()
    for seed in range(20):
        bench = Bench(seed)
        bench.commit("a")
        bench.wait(0.5)
        kept = bench.disk.crash()
        bench.wait(10)
        assert bench.stored == (["a"] if kept else [])
        assert bench.heard == []
        outcomes.add(kept)
    assert outcomes == {True, False}
