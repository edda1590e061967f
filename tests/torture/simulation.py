"""Networks of queue managers under seeds, by the thousand: lost, duplicated, reordered, and stuck for ever."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from postroad.simulation.multicast import run_multicast_seed
from postroad.simulation.seeds import failover_scenario, http_scenario, random_scenario
from postroad.simulation.verdict import judge
from postroad.simulation.world import World

CHUNK = 10
SHOWN = 3  # sentences of a seed that fails


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed. `broken` includes what is stuck."""

    seed: int
    messages: int
    lost: int
    duplicated: int
    reordered: int
    broken: int
    sentences: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.sentences


def run_seed(seed: int, *, soap: bool = False, failover: bool = False) -> Outcome:
    if failover:
        world = World(failover_scenario(seed, soap=soap))
    else:
        world = World(http_scenario(seed) if soap else random_scenario(seed))
    try:
        world.run()
    except Exception as error:  # a fault like any other: the seeds after it run too
        return Outcome(seed, len(world.stage.ledger.messages), 0, 0, 0, 1, (f"the world ended with {error!r}",))
    verdict = judge(world)
    return Outcome(
        seed,
        len(world.stage.ledger.messages),
        len(verdict.lost),
        len(verdict.duplicated),
        len(verdict.reordered),
        len(verdict.stuck) + len(verdict.broken),
        tuple(verdict.sentences[:SHOWN]),
    )


def run(seeds: range, workers: int, *, soap: bool = False, failover: bool = False) -> Iterator[Outcome]:
    """In the order of the seeds."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(partial(run_seed, soap=soap, failover=failover), seeds, chunksize=CHUNK)


def run_multicast(seeds: range, workers: int) -> int:
    """The same for multicast. Packets can be lost there, and then receivers have to report it."""
    sent = received = repaired = lost = contradictions = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for outcome in pool.map(run_multicast_seed, seeds, chunksize=CHUNK):
            sent += outcome.sent
            received += outcome.received
            repaired += outcome.repaired
            lost += outcome.lost
            contradictions += len(outcome.sentences)
            for sentence in outcome.sentences[:SHOWN]:
                print(f"seed {outcome.seed}: {sentence}", flush=True)
    print(
        f"{len(seeds)} seeds, {sent} messages sent, {received} received; packets repaired {repaired}, "
        f"lost and told {lost}; contradictions {contradictions}"
    )
    return 1 if contradictions else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--soap", action="store_true")
    parser.add_argument("--multicast", action="store_true")
    parser.add_argument("--failover", action="store_true", help="managers of two processes, which fail over")
    arguments = parser.parse_args()
    messages = lost = duplicated = reordered = broken = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.multicast:
        return run_multicast(seeds, arguments.workers)
    for outcome in run(seeds, arguments.workers, soap=arguments.soap, failover=arguments.failover):
        messages += outcome.messages
        lost += outcome.lost
        duplicated += outcome.duplicated
        reordered += outcome.reordered
        broken += outcome.broken
        for sentence in outcome.sentences:
            print(f"seed {outcome.seed}: {sentence}", flush=True)
    print(
        f"{arguments.seeds} seeds, {messages} messages: lost {lost}, duplicated {duplicated}, reordered {reordered}, "
        f"stuck or contradictory {broken}"
    )
    return 1 if lost or duplicated or reordered or broken else 0


if __name__ == "__main__":
    sys.exit(main())
