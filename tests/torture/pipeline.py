"""Spark jobs and a ledger, while drivers and the manager are killed: lost, doubled, altered."""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import postroad
from postroad.errors import PostroadError
from tests.commands import ServerProcess
from tests.spark.cluster import cluster, environment
from tests.torture.pipeline_job import REFUSED

HOST, RPC = "127.0.30.2", 12103
ORDERS, MOVES, QUICK, FAR = (rf"private$\{name}" for name in ("orders", "moves", "quick", "far"))
STAGES = ("batch", "peek", "write", "consume", "remote")
SHARES = {"peek": 0.25, "write": 0.2, "consume": 0.4, "remote": 0.15}  # of the driver's kills
PAGE = 500
PATIENCE_S = 900.0  # for one driver without a kill
PARTITIONS, OTHER_PARTITIONS = 4, 7
CONFIGURATION = r"""
[manager]
name = "victim"
data = "data"
[listen]
host = "127.0.30.2"
binary = false
ping = false
http = false
rpc = 12103
api = {port}
"""
QUEUE = "[[queue]]\npath = '{path}'\ntransactional = {transactional}\n"


def copies_of(stage: str) -> str:
    return rf"private$\c_{stage}"


def body_of(number: int) -> str:
    """The same text as `pipeline_job.write` makes."""
    return f"body {number} {'x' * (number % 50)}"


@dataclass
class Counts:
    """How a stage ended. `refusals` are sentences of jobs that were rightly refused."""

    messages: int = 0
    driver_kills: int = 0
    manager_kills: int = 0
    lost: int = 0
    doubled: int = 0
    altered: int = 0
    left: int = 0  # in queues that a stream has consumed
    seconds: float = 0.0
    refusals: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.messages} messages; killed {self.driver_kills} drivers, {self.manager_kills} managers; "
            f"lost {self.lost}, doubled {self.doubled}, altered {self.altered}, left {self.left}; {self.seconds:.0f} s"
        )

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.altered or self.left)


class Victim:
    """`postroad serve` on one address, however often it is killed."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "victim.toml"
        self._write(0)
        self._process = ServerProcess(self._file)
        self.api = self._process.api
        self._write(int(self.api.rpartition(":")[2]))

    def _write(self, port: int) -> None:
        queues = {ORDERS: "false", QUICK: "false", FAR: "false", MOVES: "true"}
        queues |= {copies_of(stage): "true" for stage in STAGES}
        tables = [QUEUE.format(path=path, transactional=kind) for path, kind in queues.items()]
        self._file.write_text(CONFIGURATION.format(port=port) + "".join(tables))

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)
        self._process = ServerProcess(self._file)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)

    def count(self, *queues: str) -> int:
        with postroad.connect(self.api) as manager:
            return sum(manager.queue(queue).info().messages for queue in queues)


class Driver:
    """One process of pipeline_job.py with its JVM, in a process group."""

    def __init__(self, master: str, victim: Victim, directory: Path, job: str, *options: str) -> None:
        command = [sys.executable, "-m", "tests.torture.pipeline_job", master, victim.api, str(directory), job]
        self._log = directory / "driver.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, copies_of(job), *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                start_new_session=True,
                text=True,
            )
        assert self._process.stdout is not None
        self._out = self._process.stdout

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait_started(self) -> None:
        if not self._out.readline():
            raise AssertionError(f"the driver did not start:\n{self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        self._signal()
        self._process.wait()
        self._out.close()

    def _signal(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def finish(self) -> str | None:
        """Waits until it ends by itself. Returns the sentence if it was refused."""
        patience = threading.Timer(PATIENCE_S, self._signal)
        patience.start()
        out = self._out.read()
        code = self._process.wait()
        patience.cancel()
        self._out.close()
        if code == REFUSED:
            return out.partition("refused:")[2].strip()
        assert code == 0, f"the driver ended with {code}:\n{self._log.read_text()[-4000:]}"
        return None


class Torture:
    def __init__(self, given: argparse.Namespace, master: str, victim: Victim, directory: Path) -> None:
        self._master = master
        self._victim = victim
        self._directory = directory
        self._chance = random.Random(given.seed)
        self._messages: int = given.messages
        self._driver_kills = {stage: round(given.driver_kills * share) for stage, share in SHARES.items()}
        self._manager_kills = {"consume": given.manager_kills - given.manager_kills // 3}
        self._manager_kills["remote"] = given.manager_kills - self._manager_kills["consume"]

    # The ledger

    def fill(self) -> None:
        """Recoverable messages of every priority, transactional ones and a few express ones; others for the remote
        read."""
        with postroad.connect(self._victim.api) as manager:
            for first in range(0, self._messages, PAGE):
                numbers = range(first, min(first + PAGE, self._messages))
                moves = [self._message(each) for each in numbers if each % 3 == 0]
                manager.send(ORDERS, [self._message(each, recoverable=True) for each in numbers if each % 3])
                manager.send(MOVES, moves, transactional=True)
                manager.send(QUICK, [self._message(-each - 1) for each in numbers if each % 10 == 0])
                manager.send(FAR, [self._message(each, recoverable=True) for each in numbers if each % 5 == 0])

    def _message(self, number: int, **given: bool) -> postroad.Message:
        priority = {"priority": self._chance.randrange(8)} if given else {}
        return postroad.Message(body_of(number), label=str(number), **given, **priority)  # type: ignore[arg-type]

    def _expected(self, stage: str) -> Counter[str]:
        numbers = list(range(self._messages))
        if stage in ("batch", "peek"):
            numbers += [-each - 1 for each in numbers if each % 10 == 0]
        if stage == "remote":
            numbers = [each for each in numbers if each % 5 == 0]
        return Counter(str(each) for each in numbers)

    def _compare(self, stage: str, counts: Counts) -> None:
        found: Counter[str] = Counter()
        with postroad.connect(self._victim.api) as manager:
            for message in manager.queue(copies_of(stage)).messages():
                found[message.label] += 1
                counts.altered += message.text != body_of(int(message.label))
        expected = self._expected(stage)
        counts.messages = sum(expected.values())
        counts.lost = sum((expected - found).values())
        counts.doubled = sum((found - expected).values())

    # The stages

    def run(self, stage: str) -> Counts:
        counts = Counts()
        began = time.monotonic()
        {"batch": self._batch, "write": self._write}.get(stage, self._stream)(stage, counts)
        self._compare(stage, counts)
        counts.seconds = time.monotonic() - began
        return counts

    def _batch(self, stage: str, counts: Counts) -> None:
        self._finish(stage, "--queue", f"{ORDERS},{MOVES},{QUICK}")

    def _write(self, stage: str, counts: Counts) -> None:
        """Kills a job while it writes. Runs it again with other partitions, which must be refused, and then as it
        was."""
        options = ("--rows", str(self._messages), "--partitions", str(PARTITIONS))
        for _ in range(self._driver_kills[stage]):
            counts.driver_kills += self._kill_driver(stage, options, self._messages)
        changed = self._start(stage, "--rows", str(self._messages), "--partitions", str(OTHER_PARTITIONS)).finish()
        if changed is not None:
            counts.refusals.append(changed)
            self._finish(stage, *options)

    def _stream(self, stage: str, counts: Counts) -> None:
        queues = {"peek": (ORDERS, MOVES, QUICK), "consume": (ORDERS, MOVES), "remote": (FAR,)}[stage]
        messages = sum(self._expected(stage).values())
        kills = self._driver_kills[stage] + self._manager_kills.get(stage, 0)
        each = max(50, messages // (2 * kills + 2))
        remote = ("--rpc", f"{HOST}:{RPC}") if stage == "remote" else ()
        options = ("--queue", ",".join(queues), "--each", str(each), *remote)
        plan = ["driver"] * self._driver_kills[stage] + ["manager"] * self._manager_kills.get(stage, 0)
        self._chance.shuffle(plan)
        for kind in plan:
            partitions = (
                "--partitions",
                str(self._chance.choice((1, 2, 4, 8))),
            )  # a batch that runs again keeps its own
            if kind == "driver":
                counts.driver_kills += self._kill_driver(stage, (*options, *partitions), messages)
            else:
                counts.manager_kills += self._kill_manager(stage, (*options, *partitions), messages)
        self._finish(stage, *options)
        if stage != "peek":
            counts.left = self._victim.count(*queues)

    def _start(self, stage: str, *options: str) -> Driver:
        driver = Driver(self._master, self._victim, self._directory, stage, *options)
        driver.wait_started()
        return driver

    def _finish(self, stage: str, *options: str) -> None:
        refused = self._start(stage, *options).finish()
        assert refused is None, refused

    def _kill_driver(self, stage: str, options: tuple[str, ...], messages: int) -> bool:
        driver = self._start(stage, *options)
        try:
            return self._reach_a_moment(stage, driver, messages)
        finally:
            driver.kill()

    def _kill_manager(self, stage: str, options: tuple[str, ...], messages: int) -> bool:
        """The driver waits for the manager, and then goes on until it is killed too."""
        driver = self._start(stage, *options)
        try:
            alive = self._reach_a_moment(stage, driver, messages)
            self._victim.kill()
            self._wait(self._chance.random(), lambda: driver.ended)
            return alive
        finally:
            driver.kill()

    def _reach_a_moment(self, stage: str, driver: Driver, messages: int) -> bool:
        """Waits for a random moment: soon after the start, or when there are more copies. False if the driver ended
        first."""
        if stage != "write" and self._chance.random() < 0.3:
            self._wait(5 * self._chance.random(), lambda: driver.ended)
        else:
            kills = self._driver_kills[stage] + self._manager_kills.get(stage, 0)
            goal = self._copies(stage) + self._chance.randrange(1, max(2, messages // kills))
            self._wait(PATIENCE_S, lambda: driver.ended or self._copies(stage) >= min(goal, messages))
            self._wait(self._chance.random() / 2, lambda: driver.ended)
        return not driver.ended

    def _copies(self, stage: str) -> int:
        with suppress(PostroadError):
            return self._victim.count(copies_of(stage))
        return 0

    @staticmethod
    def _wait(seconds: float, done: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not done():
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.pipeline", description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--driver-kills", type=int, default=4)
    parser.add_argument("--manager-kills", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="of a standalone cluster; 0 for none")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    results: dict[str, Counts] = {}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postroad-torture-")))
        hidden = root / "hidden"  # the driver's disk, with its checkpoints
        hidden.mkdir()
        master = "local[2,3]"
        if given.workers:
            (root / "cluster").mkdir()
            master = stack.enter_context(cluster(root / "cluster", given.workers, hidden=hidden))
        victim = Victim(root)
        stack.callback(victim.stop)
        torture = Torture(given, master, victim, hidden)
        torture.fill()
        for stage in given.stages.split(","):
            counts = results[stage] = torture.run(stage)
            print(f"{stage}: {counts}", *(f"\n  refused: {each}" for each in counts.refusals), flush=True)
    good = all(counts.good for counts in results.values())
    print("all good" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
