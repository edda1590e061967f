"""One run: two managers, an honest workload, strangers, and the result at the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import postroad
from tests.torture.hostile.honest import ROUTES, Flow, Visitor
from tests.torture.hostile.stage import (
    CLOSED,
    LEFT,
    MANAGERS,
    PATIENCE_S,
    QUOTA_MB,
    SLACK_MB,
    TOKEN,
    UNFINISHED_MB,
    Process,
    Target,
)

PEAK_MB = UNFINISHED_MB + QUOTA_MB + SLACK_MB
LOG_KB, LOG_KB_MINUTE = 256, 128  # what a log may have at once, and for each minute more
SHOWN = 20
_TRACEBACK = re.compile("traceback|Traceback")


@dataclass(slots=True)
class Verdict:
    """Figures, and a sentence for everything that must not be."""

    seed: int
    seconds: float
    sent: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    unanswered: int = 0
    attacks: dict[str, int] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    log_kb: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        figures = (
            f"seed {self.seed}: {self.seconds:.0f} s, {sum(self.attacks.values())} attacks of {len(self.attacks)} "
            f"kinds, {self.sent} honest messages: lost {self.lost}, doubled {self.doubled}, "
            f"reordered {self.reordered}, calls not answered {self.unanswered}"
        )
        readings = [
            f"{name}: peak {peak:.0f} MB of {PEAK_MB} MB, log {self.log_kb.get(name, 0):.0f} KB"
            for name, peak in self.peak_mb.items()
        ]
        return "\n".join([figures, *readings, *self.faults[:SHOWN]])


def run(directory: Path, seed: int, seconds: float) -> Verdict:
    """With an odd seed, a directory knows both managers; with an even seed, there is none."""
    verdict = Verdict(seed, seconds)
    known = directory / "known"
    known.mkdir()
    processes = [Process(directory, each, with_directory=bool(seed % 2)) for each in MANAGERS]
    try:
        flows = [Flow(route, seed, known / f"{route.source.name}.json") for route in ROUTES]
        visitors = [Visitor(each) for each in MANAGERS]
        findings = _attack(seed, seconds, known)
        for flow in flows:
            flow.stop_sending()
        _wait_until_there(flows)
        for flow in flows:
            flow.stop()
        for visitor in visitors:
            visitor.stop()
        _judge_flows(verdict, flows)
        _judge_visitors(verdict, visitors)
        _judge_findings(verdict, findings)
        for process in processes:
            _judge_process(verdict, process)
            _check_untouched(verdict, process.target)
            _check_left(verdict, process.target)
            _check_ready(verdict, process.target)
    finally:
        codes = [process.stop() for process in processes]
    verdict.faults += [
        f"{each.target.name} ended with {code}" for each, code in zip(processes, codes, strict=True) if code
    ]
    return verdict


def _attack(seed: int, seconds: float, known: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.torture.hostile.attack"]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--seconds", str(seconds), "--known", str(known)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + PATIENCE_S,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _wait_until_there(flows: list[Flow]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(flow.ledger.lost for flow in flows) and time.monotonic() < deadline:
        time.sleep(0.2)


def _judge_flows(verdict: Verdict, flows: list[Flow]) -> None:
    for flow in flows:
        ledger, name = flow.ledger, flow.route.name
        reordered = ledger.reordered if flow.route.ordered else 0
        verdict.sent += len(ledger.sent)
        verdict.lost += len(ledger.lost)
        verdict.doubled += ledger.doubled
        verdict.reordered += reordered
        verdict.unanswered += len(ledger.faults)
        verdict.faults += ledger.faults[:3]
        if ledger.lost or ledger.doubled or reordered:
            lost = sorted(ledger.lost)[:5]
            verdict.faults.append(
                f"{name}: {len(ledger.sent)} sent, lost {len(ledger.lost)} {lost}, doubled {ledger.doubled}, "
                f"reordered {reordered}"
            )
        if not ledger.sent or not ledger.received:
            verdict.faults.append(f"{name}: nothing went this way")


def _judge_visitors(verdict: Verdict, visitors: list[Visitor]) -> None:
    for visitor in visitors:
        verdict.unanswered += len(visitor.faults)
        verdict.faults += visitor.faults[:3]
        if not visitor.pages:
            verdict.faults.append("nobody could look at a page of the console")


def _judge_findings(verdict: Verdict, findings: dict[str, Any]) -> None:
    verdict.attacks = findings["attacks"]
    verdict.faults += [f"a stranger got an honest message by {each}" for each in findings["leaks"][:5]]
    if findings["calls_to_canary"]:
        verdict.faults.append(f"a host that has no part in this was called {findings['calls_to_canary']} times")


def _judge_process(verdict: Verdict, process: Process) -> None:
    name = process.target.name
    if not process.alive:
        verdict.faults.append(f"{name} has died:\n{process.log[-2000:]}")
        return
    log = process.log
    peaks = process.peak_mb
    verdict.peak_mb |= peaks
    size = verdict.log_kb[name] = len(log) / 1024
    for which, peak in peaks.items():
        if peak > PEAK_MB:
            verdict.faults.append(f"{which} took {peak:.0f} MB of memory; its budget is {PEAK_MB} MB")
    if size > LOG_KB + LOG_KB_MINUTE * verdict.seconds / 60:
        verdict.faults.append(f"{name} wrote {size:.0f} KB of log")
    verdict.faults += [f"{name}: {line[:600]}" for line in log.splitlines() if _TRACEBACK.search(line)][:3]


def _check_untouched(verdict: Verdict, target: Target) -> None:
    """Nobody has written where nobody may, in any way."""
    with postroad.connect(target.url, token=TOKEN) as manager:
        found = manager.queue(CLOSED).info().messages
        if found:
            verdict.faults.append(f"{target.name}: {found} messages got into a queue that is closed to everybody")


def _check_left(verdict: Verdict, target: Target) -> None:
    """Nobody who has left still reads: what is sent now stays."""
    with postroad.connect(target.url, token=TOKEN) as manager:
        queue = manager.queue(LEFT)
        bodies = [b"%d" % number for number in range(100)]
        queue.send([postroad.Message(body) for body in bodies])
        found = queue.receive_many(len(bodies) + 1, timeout=PATIENCE_S)
        if [message.body for message in found] != bodies:
            verdict.faults.append(f"{target.name}: readers who had left took {len(bodies) - len(found)} messages")


def _check_ready(verdict: Verdict, target: Target) -> None:
    """The manager works as on the first day: its queue accepts a message and gives it back."""
    with postroad.connect(target.url, token=TOKEN) as manager:
        queue = manager.create_queue(r"private$\after", exist_ok=True)
        queue.send(b"still here")
        if queue.receive(timeout=PATIENCE_S).body != b"still here":
            verdict.faults.append(f"{target.name} gave back something else")
