"""The strangers, in a process of their own: `python -m tests.torture.hostile.attack` prints what they got as JSON."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.torture.hostile import binary_attacks, http_attacks, rpc_attacks, user_attacks
from tests.torture.hostile.stage import BINARY, HTTP
from tests.torture.hostile.stranger import CANARY, Findings, Refused, Stranger

STRANGERS = 12  # attacks at a time
LONGEST_S = 20.0
PAUSE_S = 0.05
FAMILIES: tuple[tuple[Callable[[Stranger], Awaitable[None]], ...], ...] = (
    binary_attacks.ATTACKS,
    http_attacks.ATTACKS,
    rpc_attacks.ATTACKS,
    user_attacks.ATTACKS,
)


async def attack(stranger: Stranger, until: float) -> None:
    while time.monotonic() < until:
        what = stranger.chance.choice(stranger.chance.choice(FAMILIES))
        stranger.doing = what.__name__
        with contextlib.suppress(Refused, TimeoutError, OSError):
            async with asyncio.timeout(LONGEST_S):
                await what(stranger)
        counts = stranger.findings.attacks
        counts[what.__name__] = counts.get(what.__name__, 0) + 1
        await asyncio.sleep(PAUSE_S)


async def run(seed: int, seconds: float, known: Path) -> Findings:
    findings = Findings()

    def called(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        findings.calls_to_canary += 1
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        for port in (1801, BINARY, 8080, HTTP):  # where a manager that was made to call the canary would
            server = await asyncio.start_server(called, CANARY, port)
            await stack.enter_async_context(server)
        until = time.monotonic() + seconds
        strangers = [Stranger(random.Random(f"{seed} {number}"), findings, known) for number in range(STRANGERS)]
        await asyncio.gather(*(attack(each, until) for each in strangers))
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--known", type=Path, required=True)
    arguments = parser.parse_args()
    findings = asyncio.run(run(arguments.seed, arguments.seconds, arguments.known))
    print(json.dumps(dataclasses.asdict(findings)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
