"""Managers of two processes in the simulation: whatever fails over, nothing is lost, doubled, reordered or stuck."""

from __future__ import annotations

import pytest

from postroad.simulation.database import Database
from postroad.simulation.seeds import failover_scenario
from postroad.simulation.verdict import judge
from postroad.simulation.world import World

SEEDS = 8
FULL_QUEUE_SEED = 292
FINDING = 40  # seeds, among which a fault is found


def sentences(seed: int, *, soap: bool) -> list[str]:
    world = World(failover_scenario(seed, soap=soap))
    world.run()
    return judge(world).sentences


@pytest.mark.parametrize("soap", [False, True])
def test_no_promise_is_broken_by_a_failover(soap: bool) -> None:
    assert {seed: found for seed in range(SEEDS) if (found := sentences(seed, soap=soap))} == {}


def test_a_deposed_process_that_does_not_know_it_refuses_no_message() -> None:
    """Its queue was full when it was last active; what it refused would be lost."""
    assert sentences(FULL_QUEUE_SEED, soap=True) == []


def test_the_seeds_find_a_store_that_lets_a_deposed_process_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "allows", lambda self, fence: True)
    for seed in range(FINDING):
        try:
            if sentences(seed, soap=False):
                return
        except Exception:  # two processes at once: what they read and what is stored no longer fit together
            return
    pytest.fail("nobody noticed")


def test_seeds_fail_over() -> None:
    worlds = [World(failover_scenario(seed)) for seed in range(3)]
    for world in worlds:
        world.run()
    assert sum(pair.database.row.epoch - 1 for world in worlds for pair in world.pairs.values()) >= 3
