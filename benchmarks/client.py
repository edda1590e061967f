"""The Python API over HTTP, with one manager process and a process for each client. `python -m benchmarks.client`.

Recoverable messages of 1 KiB. With `--peers DIR`, it measures pika with RabbitMQ on the same machine in the same
minutes, and gives the ratios; DIR has the scripts for that (`brokers.py`, `bench_rabbitmq.py`). The manager's CPU times
need Linux's /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import print_table

ROUNDS = 3
CONFIG = """
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.0.1"
api = 0
binary = false
ping = false
http = false
rpc = false
epm = false
[[queue]]
path = 'private$\\benchmark'
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the clients do at the same time, with one process for each role of client_process.py."""

    name: str
    roles: tuple[str, ...]
    share: float  # of the number of messages, because slow scenarios need fewer
    peer: tuple[str, ...] | None = None  # the options with which bench_rabbitmq.py does the same


SCENARIOS = (
    Scenario("one at a time: send", ("send_one",), 0.2),
    Scenario("one at a time: receive what is there", ("receive_one",), 0.2),
    Scenario("one at a time, with a consumer", ("consume", "send_one"), 0.2, ("--client", "pika", "--window", "1")),
    Scenario("1,000 concurrent sends, with a consumer", ("aio_consume", "aio_send"), 1.0, ("--client", "pika")),
    Scenario("batches of 100: send", ("send_batches",), 1.0),
    Scenario("batches of 100: receive what is there", ("receive_batches",), 1.0),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Messages per second, and microseconds of CPU for each message: for each client role, and for the server."""

    rate: float
    clients: tuple[float, ...]
    server: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peers", type=Path, help="a directory with brokers.py and bench_rabbitmq.py")
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has what these import")
    arguments = parser.parse_args()
    ours: dict[str, Figures] = {}
    peers: dict[str, Figures] = {}
    for _ in range(arguments.rounds):  # in turn, so that other load on the machine affects all of them
        with started() as (url, pid):
            for scenario in SCENARIOS:
                messages = int(arguments.messages * scenario.share)
                keep_best(ours, scenario.name, measure(scenario, url, pid, messages))
        if arguments.peers is not None:
            for scenario in SCENARIOS:
                if scenario.peer is not None:
                    messages = int(arguments.messages * scenario.share)
                    keep_best(peers, scenario.name, measure_peer(arguments, scenario.peer, messages))
    rows = []
    for name, figures in ours.items():
        ratio = f"{figures.rate / peers[name].rate:.2f}" if name in peers else ""
        rows.append((name, *columns(figures), ratio))
        if name in peers:
            rows.append(("    pika and RabbitMQ", *columns(peers[name]), ""))
    print_table(
        "Through the HTTP API, recoverable, 1 KiB",
        ("", "messages/s", "client CPU us", "manager CPU us", "of pika"),
        rows,
        f"best of {arguments.rounds} rounds; CPU per message, that of several clients in their order "
        "(consumer / sender)",
    )


def keep_best(found: dict[str, Figures], name: str, figures: Figures) -> None:
    if name not in found or figures.rate > found[name].rate:
        found[name] = figures


def columns(figures: Figures) -> tuple[str, str, str]:
    return (f"{figures.rate:,.0f}", " / ".join(f"{each:.0f}" for each in figures.clients), f"{figures.server:.0f}")


@contextmanager
def started() -> Iterator[tuple[str, int]]:
    """Starts a manager process. Returns the URL of its API, and its process id."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "alpha.toml")
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "postroad", "serve", "-c", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as manager:
            assert manager.stdout is not None
            try:
                yield f"http://{json.loads(manager.stdout.readline())['listen']['api']}", manager.pid
            finally:
                manager.terminate()


CLIENT = (sys.executable, "-m", "benchmarks.client_process")


def measure(scenario: Scenario, url: str, pid: int, messages: int, command: tuple[str, ...] = CLIENT) -> Figures:
    """Runs the clients. They say `ready` once connected, begin when they get a line, and print their times at the
    end."""
    clients = [
        subprocess.Popen(
            [*command, role, url, str(messages)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for role in scenario.roles
    ]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    used = cpu_of(pid)
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
    reports: list[dict[str, float]] = [json.loads(client.communicate()[0]) for client in clients]
    used = cpu_of(pid) - used
    duration = max(each["ended"] for each in reports) - reports[-1]["started"]
    return Figures(messages / duration, tuple(each["cpu"] / messages * 1e6 for each in reports), used / messages * 1e6)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used. 0 without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_peer(arguments: argparse.Namespace, options: tuple[str, ...], messages: int) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"BENCH_DIR": scratch}

        def run(script: str, *given: str) -> str:
            command = [arguments.peers_python, str(arguments.peers / script), *given]
            return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

        run("brokers.py", "start", "rabbitmq")
        try:
            modes = ("--mode", "durable", "--variant", "classic")
            lines = run("bench_rabbitmq.py", *options, *modes, "-n", str(messages)).splitlines()
        finally:
            run("brokers.py", "stop", "rabbitmq")
    reports: list[dict[str, Any]] = [each for each in map(json.loads, lines) if each["scenario"] == "e2e"]
    (report,) = reports
    return Figures(report["rate"], (report["sub_cpu_us"], report["pub_cpu_us"]), report["broker_cpu_us"])


if __name__ == "__main__":
    main()
