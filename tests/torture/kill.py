"""kill -9 on a real server under load, again and again, with a ledger on each side: lost, duplicated, reordered."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import postroad
from postroad.errors import NoMessage, PostroadError

RECOVERABLE, TRANSACTIONAL = r"private$\recoverable", r"private$\transactional"
BATCH = 5
START_TIMEOUT_S = 30
CONFIGURATION = """
[manager]
name = "victim"
data = "data"
[listen]
host = "127.0.0.1"
binary = false
ping = false
http = false
rpc = false
api = {port}
[[queue]]
path = 'private$\\recoverable'
[[queue]]
path = 'private$\\transactional'
transactional = true
"""


class Server:
    """One `postroad serve` process. Port and data stay the same from start to start."""

    def __init__(self, directory: Path, configuration: str = CONFIGURATION) -> None:
        self.file = directory / "postroad.toml"
        self.file.write_text(configuration.format(port=0))
        self.url = ""
        self.start()
        port = int(self.url.rpartition(":")[2])
        self.file.write_text(configuration.format(port=port))

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "postroad", "serve", "-c", str(self.file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.url = f"http://{ready['listen']['api']}"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()  # which waits, and closes the pipe

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=START_TIMEOUT_S)


@dataclass
class Ledger:
    """What each side was told. A number without an answer is doubtful: it may be there once, or not at all."""

    sent: list[int] = field(default_factory=list)
    doubtful_sends: set[int] = field(default_factory=set)
    received: list[int] = field(default_factory=list)
    doubtful_receives: set[int] = field(default_factory=set)

    def judge(self, remaining: list[int]) -> tuple[int, int, int]:
        """Counts what was lost, duplicated and reordered."""
        seen = set(self.received) | set(remaining)
        lost = [each for each in self.sent if each not in seen and each not in self.doubtful_receives]
        duplicated = (len(self.received) - len(set(self.received))) + len(set(self.received) & set(remaining))
        pairs = zip(self.received, self.received[1:], strict=False)
        reordered = sum(1 for before, after in pairs if after < before)
        return len(lost), duplicated, reordered


class Load:
    """One sender and one receiver on one queue, until told to stop. After a broken connection they go on."""

    def __init__(self, url: str, path: str) -> None:
        self.url = url
        self.path = path
        self.ledger = Ledger()
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.send), threading.Thread(target=self.receive)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def send(self) -> None:
        number = 0
        with postroad.connect(self.url) as manager:
            queue = manager.queue(self.path)
            while not self.stopping.is_set():
                numbers = list(range(number, number + BATCH))
                number += BATCH
                messages = [postroad.Message(b"x" * 512, label=str(each), recoverable=True) for each in numbers]
                try:
                    queue.send(messages, transactional=self.path == TRANSACTIONAL)
                    self.ledger.sent += numbers
                except PostroadError:
                    self.ledger.doubtful_sends |= set(numbers)
                    time.sleep(0.05)

    def receive(self) -> None:
        with postroad.connect(self.url) as manager:
            queue = manager.queue(self.path)
            while not self.stopping.is_set():
                numbers: list[int] = []
                try:
                    if self.path == TRANSACTIONAL:
                        tx = manager.begin()
                        numbers = [int(each.label) for each in queue.receive_many(BATCH, timeout=0.2, tx=tx)]
                        manager.commit(tx)
                    else:
                        locked = queue.lock(BATCH, timeout=0.2)
                        numbers = [int(each.label) for each in locked]
                        queue.settle(locked, delete=True)
                    self.ledger.received += numbers
                except NoMessage:
                    if self.path == TRANSACTIONAL:
                        with contextlib.suppress(PostroadError):
                            manager.abort(tx)
                except PostroadError:
                    self.ledger.doubtful_receives |= set(numbers)
                    time.sleep(0.05)


def run(kills: int, seed: int) -> list[tuple[str, Ledger, tuple[int, int, int]]]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        try:
            loads = [Load(server.url, path) for path in (RECOVERABLE, TRANSACTIONAL)]
            for _ in range(kills):
                time.sleep(chance.uniform(0.2, 1.0))
                server.kill()
                server.start()
            time.sleep(0.5)
            for load in loads:
                load.stop()
            verdicts = []
            with postroad.connect(server.url) as manager:
                for load in loads:
                    remaining = [int(each.label) for each in manager.queue(load.path).messages()]
                    verdicts.append((load.path, load.ledger, load.ledger.judge(remaining)))
            server.stop()
            return verdicts
        finally:
            server.process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = False
    for path, ledger, (lost, duplicated, reordered) in run(arguments.kills, arguments.seed):
        print(
            f"{path}: {arguments.kills} kills, {len(ledger.sent)} sent, {len(ledger.received)} received, "
            f"{len(ledger.doubtful_sends)} sends and {len(ledger.doubtful_receives)} receives in doubt: "
            f"lost {lost}, duplicated {duplicated}, reordered {reordered}"
        )
        failed = failed or any((lost, duplicated, reordered)) or not ledger.received
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
