"""A real cluster and a real manager. Everything is killed once, and every row arrives exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import postroad as client
from tests.commands import ServerProcess
from tests.spark.cluster import PATIENCE_S, cluster, environment

MESSAGES = 10_000
PAGE = 1000
CONFIGURATION = r"""
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.30.2"
binary = false
ping = false
http = false
rpc = false
api = {port}
[[queue]]
path = 'private$\orders'
[[queue]]
path = 'private$\copies'
transactional = true
"""


class Driver:
    """The program of tests/spark/jobs.py, in a process group with its JVM."""

    def __init__(self, master: str, api: str, directory: Path, *options: str) -> None:
        command = [sys.executable, "-m", "tests.spark.jobs", master, api, str(directory), *options]
        self._log = (directory / "driver.log").open("ab")
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(carried=True),
            start_new_session=True,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines: Iterator[str] = self._process.stdout

    def wait_for_batch(self) -> None:
        for line in self._lines:
            words = line.split()
            if words[:1] == ["batch"] and int(words[2]):
                return
        raise AssertionError(Path(self._log.name).read_text())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self._close()

    def finish(self) -> None:
        """Waits until the process ends."""
        for _ in self._lines:
            pass
        assert self._process.wait(PATIENCE_S) == 0, Path(self._log.name).read_text()
        self._close()

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Manager:
    """`postroad serve` on one address, which can be started several times."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "alpha.toml"
        self._file.write_text(CONFIGURATION.format(port=0))
        self._process = ServerProcess(self._file)
        self.api = self._process.api
        self._file.write_text(CONFIGURATION.format(port=self.api.rpartition(":")[2]))

    def kill_and_start(self) -> None:
        self._process.end(signal.SIGKILL)
        self._process = ServerProcess(self._file)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)


def send(api: str, first: int, count: int) -> None:
    with client.connect(api) as manager:
        orders = manager.queue(r"private$\orders")
        for start in range(first, first + count, PAGE):
            numbers = range(start, start + PAGE)
            orders.send([client.Message(str(each), label=f"order {each}", recoverable=True) for each in numbers])


@pytest.mark.timeout(600)
def test_everything_is_killed_once(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    driver: Driver | None = None
    try:
        with cluster(tmp_path, workers=2) as master:
            send(manager.api, 0, MESSAGES // 2)
            driver = Driver(master, manager.api, tmp_path)
            driver.wait_for_batch()
            manager.kill_and_start()
            driver.wait_for_batch()
            driver.kill()
            send(manager.api, MESSAGES // 2, MESSAGES // 2)
            driver = Driver(master, manager.api, tmp_path, "--drain")
            driver.finish()
        assert (tmp_path / "failed").exists(), "a task has failed and was tried again"
        with client.connect(manager.api) as connected:
            copies = Counter(message.text or "" for message in connected.queue(r"private$\copies").messages())
            orders = connected.queue(r"private$\orders").info()
        expected = Counter(str(number) for number in range(MESSAGES))
        assert expected - copies == Counter(), "lost"
        assert copies - expected == Counter(), "doubled"
        assert (orders.messages, orders.holds) == (0, ())
    finally:
        if driver is not None:
            driver.kill()
        manager.stop()
