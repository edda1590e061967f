"""A ledger of transactional messages through consumers on .NET, while the manager and they are killed.

Each consumer receives a message and forwards it in one transaction. In the end every message must have been forwarded
exactly once: lost 0, doubled 0.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import postroad
from scripts.dotnet_kit import BUILD, SOURCES, Kit, build, find
from tests.torture.kill import Server

BATCH = 1000
QUIET_S = 5.0  # how long a consumer waits for a message before it ends
SOURCE, TARGET = r"private$\ledger_in", r"private$\ledger_out"


class Consumers:
    """Processes on .NET. One that was killed is started again."""

    def __init__(self, kit: Kit, program: Path, url: str, count: int) -> None:
        self._command = [str(kit.dotnet), str(program), str(QUIET_S)]
        self._environment = {**kit.environment(), "POSTROAD_API": url}
        self._processes = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)

    def kill_one(self, chance: random.Random) -> None:
        index = chance.randrange(len(self._processes))
        self._processes[index].kill()
        self._processes[index].wait()
        self._processes[index] = self._start()

    def keep(self) -> None:
        """Starts those again that have ended, because the queue was empty or the manager was away for too long."""
        for index, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[index] = self._start()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def run(messages: int, consumers: int, manager_kills: int, consumer_kills: int, seed: int) -> tuple[int, int, float]:
    """How many messages were lost, how many doubled, and the seconds that it took."""
    chance = random.Random(seed)
    kit = find()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build()
        library = Path(shutil.copy(BUILD / "Postroad.Messaging.dll", folder))
        program = folder / "consumer.dll"
        kit.compile_program(program, [SOURCES / "tests" / "tools" / "LedgerConsumer.cs"], [library])
        server = Server(folder)
        try:
            with postroad.connect(server.url) as manager:
                source = manager.create_queue(SOURCE, transactional=True)
                manager.create_queue(TARGET, transactional=True)
                for first in range(0, messages, BATCH):
                    labels = range(first, min(first + BATCH, messages))
                    source.send([postroad.Message(b"x" * 200, label=str(each)) for each in labels], transactional=True)
            begun = time.monotonic()
            running = Consumers(kit, program, server.url, consumers)
            kills = ["manager"] * manager_kills + ["consumer"] * consumer_kills
            chance.shuffle(kills)
            left = messages
            for number, kill in enumerate(kills):
                # Kills are spread over the work, whatever its speed.
                while (left := _left(server.url, messages)) > messages * (1 - (number + 1) / (len(kills) + 1)):
                    running.keep()
                    time.sleep(0.2)
                if kill == "manager":
                    server.kill()
                    server.start()
                else:
                    running.kill_one(chance)
                print(f"{time.monotonic() - begun:6.1f} s: {left} left, killed the {kill}", file=sys.stderr, flush=True)
            while _left(server.url, messages) > 0:
                running.keep()
                time.sleep(0.5)
            running.end()
            time.sleep(0.5)
            taken = time.monotonic() - begun
            with postroad.connect(server.url) as manager:
                for each in manager.transactions():  # of consumers that are dead
                    manager.abort_transaction(each.id)
                found = Counter(message.label for message in manager.queue(TARGET).messages())
                remaining = {message.label for message in manager.queue(SOURCE).messages()}
            server.stop()
        finally:
            server.process.kill()
    lost = sum(str(each) not in found and str(each) not in remaining for each in range(messages))
    doubled = sum(count - 1 for count in found.values()) + sum(each in found for each in remaining)
    return lost, doubled, taken


def _left(url: str, messages: int) -> int:
    """How many messages are still to be forwarded."""
    with postroad.connect(url) as manager:
        return messages - manager.queue(TARGET).info().messages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--manager-kills", type=int, default=5)
    parser.add_argument("--consumer-kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    arguments = parser.parse_args()
    lost, doubled, taken = run(
        arguments.messages, arguments.consumers, arguments.manager_kills, arguments.consumer_kills, arguments.seed
    )
    print(
        f"{arguments.messages} messages through {arguments.consumers} consumers on .NET in {taken:.0f} s, "
        f"{arguments.manager_kills} kills of the manager, {arguments.consumer_kills} of consumers, "
        f"seed {arguments.seed}: lost {lost}, doubled {doubled}"
    )
    return 1 if lost or doubled else 0


if __name__ == "__main__":
    sys.exit(main())
