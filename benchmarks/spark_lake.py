"""A lake of generated messages: seconds and memory of each stage of the pipeline, and the cost of a few new messages.
`make bench-lake` runs it.

The messages are of ten days, with real packets. Each step is a process of its own with the settings of `postroad
pipeline`. Its memory is the sum of the driver, Spark's Java process and the Python workers. The packets do not come
from a manager: `make bench-spark` measures that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import print_table
from postroad.cli.pipeline import SETTINGS, SMALL, quick_settings
from postroad.spark import session
from postroad.spark.pipeline import silver
from postroad.spark.pipeline.bronze import BRONZE as BRONZE_COLUMNS
from postroad.spark.pipeline.facts import gather
from postroad.spark.pipeline.lake import BRONZE, DELIVERY, DEPTHS, SILVER, STATES, Lake, kept_packets
from postroad.spark.pipeline.report import render
from postroad.spark.pipeline.run import run
from postroad.spark.pipeline.service_levels import service_level
from tests.spark.generated import NUMBERS, START_S, Sent, bronze_batch, bronze_facts, copies, history, look

SIZES = (100_000, 1_000_000)
HOURS = 240
END_S = START_S + HOURS * 3600
CHUNK = 20_000  # messages of one history; a worker has no more in memory
STRIDE = 2 * CHUNK  # between the numbers of two histories, because answers get numbers too
FLOOR = 1 << 40  # an arrival number above those of all messages that have left their queues
NEW = 1000
TASKS = 8  # tasks that write bronze, as in a run on two cores
SAMPLE_S = 0.2
REST = "gold, summaries"
WHOLE = ("generated", "first run")  # the steps in which every message counts


@dataclass(slots=True)
class Stage:
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0


Stages = dict[tuple[str, str], Stage]  # by step and stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, nargs="+", default=list(SIZES), help="the sizes of the lakes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the lakes and their reports there")
    parser.add_argument("--each", action="store_true", help="make the summaries one by one, and show each")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step(arguments.step, arguments.keep, arguments.messages[0], each=arguments.each)
        return
    with tempfile.TemporaryDirectory() as scratch:
        smaller = None
        for messages in sorted(arguments.messages):
            directory = (arguments.keep or Path(scratch)) / str(messages)
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            found = measure(directory, messages, each=arguments.each)
            show(messages, found, smaller)
            smaller = messages, found
            if arguments.keep is None:
                shutil.rmtree(directory)


def show(messages: int, stages: Stages, smaller: tuple[int, Stages] | None) -> None:
    rows = []
    for (name, stage), taken in stages.items():
        before = smaller[1].get((name, stage)) if smaller else None
        growth = f"x{taken.cpu_s / before.cpu_s:.1f}" if before and before.cpu_s >= 0.1 else ""
        each = f"{taken.seconds / messages * 1e6:.1f}" if name in WHOLE else ""
        figures = (f"{taken.seconds:.1f}", f"{taken.cpu_s:.1f}", each, f"{taken.peak_mb:,.0f}", growth)
        rows.append((f"{name}: {stage}", *figures))
    grown = f"; growth: that of the CPU time, for x{messages / smaller[0]:.0f} messages" if smaller else ""
    print_table(
        f"A lake of {messages:,} messages in {HOURS // 24} days",
        ("stage", "seconds", "CPU s", "us each", "peak MB", "growth"),
        rows,
        f"on {os.cpu_count()} cores{grown}",
    )


# Steps, each in a process of its own


def measure(directory: Path, messages: int, *, each: bool) -> Stages:
    found: Stages = {}
    for name in STEPS:
        command = [sys.executable, "-m", "benchmarks.spark_lake", "--step", name, "--keep", str(directory)]
        command += ["--messages", str(messages), *(["--each"] if each else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, Watch(process.pid) as watch:
            assert process.stdout is not None
            for line in process.stdout:
                record = json.loads(line)
                stage = found.setdefault((name, record["stage"]), Stage())
                stage.seconds += record["seconds"]
                stage.cpu_s += watch.cpu_s()
                stage.peak_mb = max(stage.peak_mb, watch.peak_mb())
                print(f"{messages:,} {name}: {record['stage']} {record['seconds']:.1f} s", file=sys.stderr, flush=True)
        if process.returncode:
            raise SystemExit(f"{name} has failed")
    return found


class Clock:
    """Tells the other process about each finished stage."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.prefix = ""

    def over(self, stage: str) -> None:
        now = time.perf_counter()
        print(json.dumps({"stage": self.prefix + stage, "seconds": now - self._began}), flush=True)
        self._began = now


def step(name: str, directory: Path, messages: int, *, each: bool) -> None:
    path = directory / "lake"
    if name == "report":
        clock = Clock()
        facts = replace(gather(Lake(None, path), [service_level(r"private$\orders=60s")]), lake="lake")
        clock.over("facts")
        (directory / "report.html").write_text(render(facts, datetime.fromtimestamp(END_S, UTC)), encoding="utf-8")
        clock.over("page")
        return
    settings = SETTINGS | {"spark.log.level": "ERROR", "spark.local.dir": str(directory / "local")}
    kept = kept_packets(Lake(None, path))
    unread = NEW if name.endswith("more") else messages
    if unread < SMALL:
        settings |= quick_settings(kept)
    clock = Clock()
    spark = session("benchmark", settings=settings)
    spark.range(1).count()
    clock.over("Spark's start")
    lake = Lake(spark, path)
    STEPS[name](lake, messages, clock, each)
    spark.stop()


def generate(lake: Lake, messages: int, clock: Clock, each: bool) -> None:
    lake.table(BRONZE).append(generated(lake.session, messages), 1, bronze_facts())
    clock.over("bronze")
    queued = lake.read(BRONZE).where(f"role = '{silver.QUEUED}' and arrival >= {FLOOR}")
    counts = queued.groupBy("queue").agg({"*": "count", "arrived_at": "min"}).collect()
    by_queue = {row["queue"]: (row["count(1)"], int(row["min(arrived_at)"].timestamp())) for row in counts}
    waiting = {queue: by_queue.get(rf"private$\{queue}", (0, None)) for queue in NUMBERS}
    look(lake, 1, END_S - 3600, {queue: (count * 9 // 10, first) for queue, (count, first) in waiting.items()}, FLOOR)
    look(lake, 2, END_S, waiting, FLOOR)
    clock.over("depths")


def first_run(lake: Lake, messages: int, clock: Clock, each: bool) -> None:
    timed_run(lake, clock, each=each)
    assert sum(row["messages"] for row in lake.rows(STATES)) == kept_packets(lake)


def new_messages(lake: Lake, messages: int, clock: Clock, each: bool) -> None:
    """Messages of the last hour that are new to the lake. Then as many again, as with `--every`."""
    for number, clock.prefix in enumerate(("", "again, "), 2):
        first = 1 + STRIDE * (messages // CHUNK + number)
        add(lake, history(NEW, number, first=first, start_s=END_S - 3600, hours=1, end_s=END_S)[:NEW], clock, each=each)


def received(lake: Lake, messages: int, clock: Clock, each: bool) -> None:
    """Messages of the last day that were waiting, now in the journal of their queue."""
    waited: list[Sent] = []
    for number in range(chunks(messages)):
        if len(waited) < NEW:
            some = chunk(number, messages)
            waited += [each for each in some if each.queue == "unread" and each.sent_s > END_S - 80_000]
    add(lake, [replace(each, fate="received", after_s=86_400) for each in waited[:NEW]], clock, each=each)


def add(lake: Lake, sent: Sequence[Sent], clock: Clock, *, each: bool) -> None:
    table, before = lake.table(BRONZE), kept_packets(lake)
    last = table.last()
    assert last is not None
    rows = numbered(list(copies(sent)), last.batch + 1, last.batch << 36, 0)
    new = lake.session.createDataFrame(pyarrow.Table.from_batches([bronze_batch(rows)])).coalesce(1)
    table.append(new, last.batch + 1, last.facts)
    clock.over("bronze")
    timed_run(lake, clock, each=each)
    assert kept_packets(lake) == before + len(sent)


def timed_run(lake: Lake, clock: Clock, *, each: bool) -> None:
    def progress(name: str, done: int, steps: int) -> None:
        stages = {BRONZE: "bronze", DEPTHS: "bronze", DELIVERY: DELIVERY, "compaction": "compaction"}
        stage = "silver" if name in SILVER else stages.get(name, REST)
        clock.over(name if each and stage == REST else stage)

    run(lake, [], progress=progress)


STEPS: dict[str, Any] = {
    "generated": generate,
    "first run": first_run,
    "report": None,
    f"{NEW:,} more": new_messages,
    f"{NEW:,} known, more": received,
}


# The messages


def chunks(messages: int) -> int:
    return -(-messages // CHUNK)


def chunk(number: int, messages: int) -> list[Sent]:
    count = min(CHUNK, messages - number * CHUNK)
    made = history(count, number, first=1 + number * STRIDE, hours=HOURS, end_s=END_S)
    return made[:count]  # a cut may separate an answer from its question


def generated(spark: SparkSession, messages: int) -> DataFrame:
    """Bronze, made by Spark's tasks."""

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        for some in batches:
            for number in some.column(0).to_pylist():
                made = chunk(number, messages)
                left = sum(each.fate == "left" for each in made)
                yield bronze_batch(numbered(list(copies(made)), 1, number * STRIDE, left))

    count = chunks(messages)
    return spark.range(0, count, 1, min(count, TASKS)).mapInArrow(work, BRONZE_COLUMNS)


def numbered(rows: Sequence[tuple[Any, ...]], batch: int, first: int, left: int) -> list[tuple[Any, ...]]:
    """Bronze rows with their arrival numbers in the whole lake. Numbers of messages that have left are below FLOOR."""
    found = []
    for row in rows:
        arrival = row[6] + first + (0 if row[6] <= left else FLOOR)
        found.append((batch, *row[1:5], arrival, arrival, *row[7:]))
    return found


# Memory and processor time


class Watch:
    """Measures a process and all its descendants several times a second: resident memory and processor time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._used_s = self._reported_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def peak_mb(self) -> float:
        """The highest memory since the last call."""
        peak, self._peak = self._peak, 0
        return peak / (1 << 20)

    def cpu_s(self) -> float:
        """The processor time since the last call."""
        used, self._reported_s = self._used_s - self._reported_s, self._used_s
        return used

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            resident, used_s = usage(self._pid)
            self._peak = max(self._peak, resident)
            self._used_s = max(self._used_s, used_s)


def usage(root: int) -> tuple[int, float]:
    """Bytes and seconds. Memory that forked workers share with their parent counts for each of them."""
    parents, pages, ticks = {}, {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):  # the process has ended
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                pid = int(place.name)
                pages[pid] = int((place / "statm").read_text().split()[1])
                parents[pid] = int(fields[1])
                ticks[pid] = sum(map(int, fields[11:15]))  # including children that have ended

    def belongs(pid: int) -> bool:
        while pid and pid != root:
            pid = parents.get(pid, 0)
        return pid == root

    def is_copy(pid: int) -> bool:
        """Whether it still shows the memory of its parent, which has just started it."""
        return abs(pages[pid] - pages.get(parents[pid], 0)) < pages[pid] / 100

    ours = [pid for pid in parents if belongs(pid)]
    resident = sum(pages[pid] for pid in ours if not is_copy(pid)) * os.sysconf("SC_PAGE_SIZE")
    return resident, sum(ticks[pid] for pid in ours) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
