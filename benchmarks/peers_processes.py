"""Processes of the comparison with other brokers. Each says when it is ready, begins when the parent says so, and
reports what it did. CPU and memory of processes that cannot report come from Linux's /proc."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers_figures import SYNC_CALLS, Sample

PATIENCE_S = 900.0  # a process without output for so long is stuck
STOP_S = 30.0
SETTLE_S = 0.2  # time for the last acknowledgments
Report = dict[str, Any]
ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6

# What a child does


class Meter:
    """A child's own figures, from the moment it begins."""

    def __init__(self) -> None:
        self.began = time.monotonic()  # all processes share this clock
        self._cpu = time.process_time()
        self.samples: list[Sample] = []

    def sample(self, messages: int) -> None:
        self.samples.append(Sample(time.monotonic() - self.began, messages, rss_mb([os.getpid()])))

    def report(self, **more: object) -> None:
        samples = [(each.elapsed_s, each.messages, each.rss_mb) for each in self.samples]
        report = {"began": self.began, "ended": time.monotonic(), "cpu_s": time.process_time() - self._cpu}
        print(json.dumps(report | {"samples": samples} | more), flush=True)


async def next_order() -> None:
    """Waits for the parent's next line. Ends if the parent has gone."""
    await asyncio.to_thread(sys.stdin.readline)


def say_ready(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


# What the parent does


class Child:
    """A process that follows the order: ready, go, report, end of input. A producer gets two lines: go, all arrived."""

    def __init__(self, command: Sequence[str], trace: Path | None) -> None:
        self._process = subprocess.Popen(
            [*traced(trace), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.command = command
        self.pid = self._process.pid

    def read(self, others: Sequence[Child] = ()) -> Report:
        """Reads the next line that the child prints; in the order above no two processes wait for each other. It
        watches the `others` too: if one of them ends, there is nothing to wait for."""
        output = self._process.stdout
        assert output is not None
        deadline = time.monotonic() + PATIENCE_S
        while not select.select([output], [], [], 0.5)[0]:
            ended = next((each for each in others if each._process.poll() is not None), None)
            if ended is not None:
                raise RuntimeError(f"ended early: {' '.join(ended.command)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"printed nothing for {PATIENCE_S:.0f} s: {' '.join(self.command)}")
        line = output.readline()
        if not line:
            raise RuntimeError(f"ended early: {' '.join(self.command)}")
        found: Report = json.loads(line)
        return found

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def started(module: str, *arguments: str, trace: Path | None = None) -> Iterator[Child]:
    """Starts a child that runs a module with our Python. It is not ready yet."""
    child = Child([sys.executable, "-m", module, *arguments], trace)
    try:
        yield child
    finally:
        child.end()


def wait_ready(children: Iterable[Child]) -> None:
    for child in children:
        child.read()


def run_together(consumers: Sequence[Child], producers: Sequence[Child]) -> tuple[list[Report], list[Report]]:
    """Runs all, and returns the reports of consumers and of producers. Consumers begin first, so that no message waits
    for them. Producers report when the last message has arrived."""
    for child in (*consumers, *producers):
        child.go()
    received = [child.read(producers) for child in consumers]
    time.sleep(SETTLE_S)
    for child in producers:
        child.go()
    return received, [child.read() for child in producers]


def traced(trace: Path | None) -> list[str]:
    """The words before a command that make strace write its syncs into a file. The filter slows no other call."""
    if trace is None:
        return []
    return [
        "strace",
        "-f",
        "-y",
        "-s",
        "0",
        "--seccomp-bpf",
        "-ttt",
        "-e",
        f"trace={','.join(SYNC_CALLS)}",
        "-o",
        str(trace),
    ]


def family(pids: Iterable[int]) -> list[int]:
    """The processes and all their living descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(path.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = list(pids)
    for pid in found:  # grows meanwhile
        found += children.get(pid, ())
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU that the processes have used, in steps of a clock tick."""
    fields = (_stat(pid) for pid in pids)
    return sum((int(each[11]) + int(each[12])) / TICKS for each in fields if each)


def rss_mb(pids: Iterable[int]) -> float:
    fields = (_stat(pid) for pid in pids)
    return sum(int(each[21]) * PAGE_MB for each in fields if each)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, from the state on. Empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
