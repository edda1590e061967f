"""The client for .NET beside the Python client, in one run, through the HTTP API. `python -m benchmarks.dotnet`.

Recoverable messages of 1 KiB. Both clients do each thing in turn with the same manager, so that other load on the
machine affects both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from benchmarks.client import Figures, Scenario, columns, keep_best, measure, started
from benchmarks.harness import print_table
from scripts.dotnet_kit import BUILD, SOURCES, build, find

ROUNDS = 3
# What both do, by the roles of the Python client and of ours.
SCENARIOS = (
    (Scenario("one at a time: send", ("send_one",), 0.2), ("send_one",)),
    (Scenario("one at a time: receive what is there", ("receive_one",), 0.2), ("receive_one",)),
    (Scenario("concurrent sends", ("aio_send",), 1.0), ("aio_send",)),
    (Scenario("a loop: receive what is there", ("consume",), 1.0), ("consume",)),
)
OWN = (
    (Scenario("one at a time: send", ("send_one",), 0.2), ("send_one",)),
    (Scenario("events: receive what is there", ("receive_one",), 0.2), ("events",)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    kit = find()
    python: dict[str, Figures] = {}
    dotnet: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        build()
        library = Path(shutil.copy(BUILD / "Postroad.Messaging.dll", folder))
        program = Path(folder, "bench.dll")
        kit.compile_program(program, [SOURCES / "tests" / "tools" / "Bench.cs"], [library])
        os.environ.update(kit.environment())
        ours = (str(kit.dotnet), str(program))
        for _ in range(arguments.rounds):
            with started() as (url, pid):
                for scenario, _ in SCENARIOS:
                    messages = int(arguments.messages * scenario.share)
                    keep_best(python, scenario.name, measure(scenario, url, pid, messages))
                for scenario, roles in (*SCENARIOS, *OWN):
                    messages = int(arguments.messages * scenario.share)
                    own = Scenario(scenario.name, roles, scenario.share)
                    keep_best(dotnet, scenario.name, measure(own, url, pid, messages, ours))
    rows = []
    for name, figures in dotnet.items():
        if name in python:
            rows.append((f"{name}, Python", *columns(python[name]), ""))
        rows.append(
            (f"{name}, .NET", *columns(figures), f"{figures.rate / python[name].rate:.2f}" if name in python else "")
        )
    print_table(
        "The client for .NET beside the Python client, recoverable, 1 KiB",
        ("", "messages/s", "client CPU us", "manager CPU us", "of Python"),
        rows,
        f"best of {arguments.rounds} rounds; CPU per message",
    )


if __name__ == "__main__":
    main()
