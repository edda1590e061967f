"""Postroad and other brokers in one run, each end to end: producer processes, a broker or two queue managers, and a
consumer process that acknowledges. `make bench-peers`.

Contenders take turns in every round, so that other load on the machine affects all of them. All figures are printed and
written as JSON lines; the tables show the best round of each. On a busy machine, CPU per message varies less than
rates.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from benchmarks.peers_brokers import Brokers, missing, prepare
from benchmarks.peers_figures import PERCENTILES, Figures, best, compared, rate, sides, table
from benchmarks.peers_managers import DEFAULT_WINDOW
from benchmarks.peers_more import latencies, steady, syncs
from benchmarks.peers_plan import MUST_SHOW, Contender, all_else, must_show

ROUNDS = 3
MESSAGES = 30_000
STEADY_MINUTES = 10.0
DIRECTORY = Path("../shared/bench-peers")
PYTHON = Path("build/peers-venv/bin/python")
RESULTS = Path("build/bench-peers.jsonl")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--peers", type=Path, default=DIRECTORY, metavar="DIR", help=f"default {DIRECTORY}")
    parser.add_argument("--peers-python", default=str(PYTHON), help=f"with psutil, pika and nats-py; default {PYTHON}")
    parser.add_argument("--no-peers", action="store_true", help="Postroad alone")
    parser.add_argument("--quick", action="store_true", help="only the table of ratios, in a few minutes")
    parser.add_argument("--steady", type=float, metavar="MINUTES", help=f"default {STEADY_MINUTES:.0f}; 0 with --quick")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"of the fastest contenders; default {MESSAGES}")
    parser.add_argument("--window", type=int, default=DEFAULT_WINDOW, help="of both managers; default: the product's")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", metavar="TEXT", help="contenders with this text in their name")
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"JSON lines; default {RESULTS}")
    arguments = parser.parse_args(words)
    if not arguments.no_peers and (why := unusable(arguments.peers, arguments.peers_python)):
        print(why, file=sys.stderr)
        return 2
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, arguments.out.open("a") as out:
        python = os.path.abspath(arguments.peers_python)  # a symbolic link into a virtual environment must stay one
        brokers = None if arguments.no_peers else prepare(arguments.peers, Path(scratch), python)
        run(arguments, brokers, Log(out))
    return 0


def unusable(directory: Path, python: str) -> str | None:
    """What somebody has to do before the peers can be measured, or None."""
    if not directory.is_dir():
        return (
            f"{directory} is no directory: give one with scripts that measure other brokers, as in "
            "`make bench-peers PEERS=DIR`, or measure Postroad alone with `make bench-peers OPTIONS=--no-peers`"
        )
    if not Path(python).exists():
        return f"{python} must be a Python with the packages of benchmarks/peers.txt; `make bench-peers` makes it"
    return missing(directory)


class Log:
    """Writes every figure as a JSON line, and prints a line for people."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, what: str, value: Any, text: str) -> None:
        facts = {"what": what, "at": round(time.time()), "load": round(os.getloadavg()[0], 2)}
        self._out.write(json.dumps(facts | asdict(value)) + "\n")
        self._out.flush()
        print(text, flush=True)


def run(arguments: argparse.Namespace, brokers: Brokers | None, log: Log) -> None:
    messages, window, quick = arguments.messages, arguments.window, arguments.quick
    minutes = arguments.steady if arguments.steady is not None else 0.0 if quick else STEADY_MINUTES
    contenders = must_show(brokers, messages, window) + ([] if quick else all_else(brokers, messages, window))
    if arguments.only:
        contenders = [each for each in contenders if arguments.only in each.name]
    with ExitStack() as stack:
        if brokers is not None:
            stack.enter_context(brokers.started(("rabbitmq", "nats") if quick else ("rabbitmq", "nats", "redis")))
        found = run_rounds(contenders, arguments.rounds, log)
        show_rates(arguments, found)
        if not quick:
            show_latencies(brokers, found, window, log)
        if minutes:
            show_steady(brokers, found, window, minutes * 60, log)
    if not quick:
        show_syncs(brokers, messages // 3, window, log)


def show_rates(arguments: argparse.Namespace, found: dict[str, Figures]) -> None:
    caption = (
        f"best of {arguments.rounds} rounds, up to {arguments.messages:,} messages of 1 KiB, window of "
        f"{arguments.window}, load of the machine {os.getloadavg()[0]:.1f}; CPU in us a message: producer + broker + "
        "consumer. Two managers are part of the producer and of the consumer."
    )
    rows = [(name, rate(one), sides(one)) for name, one in found.items()]
    print(table("All contenders, end to end", ("", "messages/s", "CPU us"), rows, caption))
    columns = ("", "ours", "peer", "ratio", "aim", "floor", "CPU us, ours", "CPU us, peer")
    print(table("Postroad beside its peers", columns, compared(MUST_SHOW, found), caption))


def run_rounds(contenders: Sequence[Contender], rounds: int, log: Log) -> dict[str, Figures]:
    """Returns the best round of each contender. A contender that fails is reported and left out of that round."""
    found: dict[str, list[Figures]] = {}
    for number in range(1, rounds + 1):
        for contender in contenders:
            try:
                figures = contender.run()
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                print(f"{number}  {contender.name}: failed: {error}", file=sys.stderr, flush=True)
                continue
            for one in figures:
                found.setdefault(one.name, []).append(one)
                log.write("rate", one, f"{number}  {one.name:<56}{one.rate:>10,.0f}/s  CPU us {sides(one)}")
    return {name: best(rounds_of) for name, rounds_of in found.items()}


def show_latencies(brokers: Brokers | None, found: dict[str, Figures], window: int, log: Log) -> None:
    rows = []
    for one in latencies(brokers, found, window):
        figures = [f"{each:.1f}" for each in one.percentiles_ms]
        log.write("latency", one, f"{one.name}: {' / '.join(figures)} ms at {one.per_second:,.0f}/s")
        rows.append((one.name, f"{one.per_second:,.0f}", *figures))
    columns = ("", "messages/s", *(f"{each} %, ms" for each in PERCENTILES))
    print(table("Latency at half of the best rate", columns, rows, "from the planned time of sending to the consumer"))


def show_steady(brokers: Brokers | None, found: dict[str, Figures], window: int, seconds: float, log: Log) -> None:
    rows = []
    for one in steady(brokers, found, window, seconds):
        memory = ", ".join(f"{who} {early:.0f} to {late:.0f}" for who, (early, late) in one.rss_mb.items())
        cells = (one.name, f"{one.seconds:.0f}", *(f"{each:,.0f}" for each in one.rates), memory)
        log.write("steady", one, "  ".join(cells))
        rows.append(cells)
    columns = ("", "seconds", "messages/s, first tenth", "last tenth", "memory, MB")
    print(table("Steady load, recoverable", columns, rows))


def show_syncs(brokers: Brokers | None, messages: int, window: int, log: Log) -> None:
    if shutil.which("strace") is None:
        print("\nDisk syncs are not counted: strace is not installed")
        return
    rows = []
    for one in syncs(brokers, messages, window):
        cells = (one.name, f"{one.messages:,}", f"{one.syncs:,}", ratio(one.messages, one.syncs))
        log.write("syncs", one, "  ".join(cells))
        rows.append(cells)
    columns = ("", "messages", "syncs", "messages a sync")
    print(
        table(
            "Disk syncs of all processes",
            columns,
            rows,
            "fsync, fdatasync, msync, sync_file_range and writes to files that O_DSYNC or O_SYNC opened, by strace",
        )
    )


def ratio(messages: int, syncs: int) -> str:
    return f"{messages / syncs:.1f}" if syncs else ""


if __name__ == "__main__":
    sys.exit(main())
