"""`python -m postroad.simulation --seed N` runs one random network and judges it. `--log` prints every event."""

from __future__ import annotations

import argparse
import sys

from postroad.simulation.multicast import run_multicast_seed
from postroad.simulation.seeds import http_scenario, random_scenario
from postroad.simulation.verdict import judge
from postroad.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m postroad.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--log", action="store_true", help="print every event")
    parser.add_argument("--soap", action="store_true", help="most messages go by HTTP")
    parser.add_argument("--multicast", action="store_true", help="messages go by multicast, and nothing is logged")
    arguments = parser.parse_args()
    if arguments.multicast:
        outcome = run_multicast_seed(arguments.seed)
        print(f"{outcome.sent} sent, {outcome.received} received, {outcome.repaired} repaired, {outcome.lost} lost")
        for sentence in outcome.sentences:
            print(f"seed {arguments.seed}: {sentence}")
        return 1 if outcome.sentences else 0
    scenario = http_scenario(arguments.seed) if arguments.soap else random_scenario(arguments.seed)
    world = World(scenario, log=arguments.log)
    world.run()
    verdict = judge(world)
    for line in world.stage.log.lines:
        print(line)
    for sentence in verdict.sentences:
        print(f"seed {arguments.seed}: {sentence}")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
