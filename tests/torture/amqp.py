"""Exactly once by AMQP: producers and consumers with Proton that accept, release, modify, reject and die at random,
beside a real server that is killed with kill -9. Ledgers tell what each side was told; the rest is in doubt, and may
have happened or not. Transactions are all or nothing."""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from proton.utils import BlockingConnection

import postroad
from postroad.errors import PostroadError
from tests.torture.amqp_client import DEAD, FIRST, GROUP, MOVED, ORDERS, SECOND
from tests.torture.kill import Server

PATIENCE_S = 900
SPACE = 10_000_000  # numbers of one producer
PRODUCERS, GROUP_PRODUCERS, CONSUMERS, MOVERS = 5, 3, 5, 3
IN_GROUPS = 0.2  # of all messages
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
amqp = AMQP
[[queue]]
path = 'private$\\orders'
[[queue]]
path = 'private$\\first'
transactional = true
[[queue]]
path = 'private$\\second'
transactional = true
[[queue]]
path = 'private$\\moved'
transactional = true
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Clients:
    """The processes. One that has died is started again."""

    def __init__(self, folder: Path, url: str, chance: random.Random) -> None:
        self.folder, self.url, self.chance = folder, url, chance
        self.running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.deaths = 0
        self._sent: dict[Path, tuple[int, int]] = {}  # by book: how far it is read, and the messages until there

    def start(self, role: str, name: str, first: int = 0, count: int = 0) -> None:
        given = [role, self.url, str(self.folder), name, str(self.chance.getrandbits(32)), str(first), str(count)]
        command = [sys.executable, "-m", "tests.torture.amqp_client", *given]
        self.running[role, name] = subprocess.Popen(command)

    def look(self) -> None:
        """Starts the dead again. Raises AssertionError if one has failed."""
        for (role, name), process in list(self.running.items()):
            code = process.poll()
            if code == DEAD:
                self.deaths += 1
                self.start(role, name)
            elif code is not None:
                assert code == 0, f"{role} {name} failed with {code}"
                del self.running[role, name]

    def producing(self) -> bool:
        return any(role in ("produce", "group") for role, _ in self.running)

    def sent(self) -> int:
        """Messages that producers know to be there."""
        for role, size in (("produce", 1), ("group", GROUP)):
            for book in self.folder.glob(f"{role}.*"):
                at, found = self._sent.get(book, (0, 0))
                with book.open("rb") as file:
                    file.seek(at)
                    text = file.read()
                self._sent[book] = at + len(text), found + size * text.count(b" sent ")
        return sum(found for _, found in self._sent.values())

    def end(self) -> None:
        (self.folder / "stop").touch()
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def read(folder: Path, role: str) -> Iterator[tuple[str, float, str, list[str]]]:
    for book in sorted(folder.glob(f"{role}.*")):
        for line in book.read_text().splitlines():
            at, event, *about = line.split()
            yield book.name, float(at), event, about


class Verdict:
    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.facts: Counter[str] = Counter()

    def fault(self, kind: str, example: object) -> None:
        self.faults[kind] += 1
        self.examples.setdefault(kind, str(example))


def judge_orders(folder: Path, kills: list[float], dead: list[int], left: list[int], verdict: Verdict) -> None:
    sent: set[int] = set()
    tried: set[int] = set()
    refused: set[int] = set()
    for _, _, event, about in read(folder, "produce"):
        if event != "lost":
            {"send": tried, "sent": sent, "refused": refused}[event].add(int(about[0]))
    got: dict[int, list[tuple[float, str, int]]] = defaultdict(list)
    said: dict[int, list[tuple[float, str, str]]] = defaultdict(list)
    lost: dict[str, list[float]] = defaultdict(list)
    for who, at, event, about in read(folder, "consume"):
        if event == "lost":
            lost[who].append(at)
        elif event == "got":
            got[int(about[0])].append((at, who, int(about[1])))
        else:
            said[int(about[0])].append((at, who, event))
    for ends in lost.values():
        ends += kills
        ends.sort()
    in_dead, remaining = Counter(dead), Counter(left)
    doubtful = tried - sent - refused
    facts = verdict.facts
    facts["sent"], facts["sends in doubt"], facts["refused"] = len(sent), len(doubtful), len(refused)
    facts["deliveries"] = sum(map(len, got.values()))
    facts["dead letters"], facts["left"] = len(dead), len(left)
    for number in sorted(tried | set(got) | set(in_dead)):
        events = Counter(event for _, _, event in said[number])
        accepted, rejected = events["accepted"], events["rejected"]
        removed = accepted + in_dead[number] + remaining[number]
        in_doubt = events["accept"] > accepted
        facts["accepted"] += accepted
        facts["accepts in doubt"] += in_doubt and not removed
        if number in sent and not removed and not in_doubt:
            verdict.fault("lost", number)
        if removed > 1:
            verdict.fault("ended twice", f"{number}: {dict(events)}, dead {in_dead[number]}")
        if number in refused and got[number]:
            verdict.fault("refused and delivered", number)
        if rejected and not in_dead[number]:
            verdict.fault("rejected, and no dead letter", number)
        if in_dead[number] and not events["reject"]:
            verdict.fault("a dead letter that nobody rejected", number)
        done = min((at for at, _, event in said[number] if event in ("accepted", "rejected")), default=None)
        # A client looks at a message later than the manager has sent it; but not before the manager's answer to it.
        again = [at for at, _, _ in got[number] if done is not None and at > done]
        if again:
            verdict.fault("delivered again after its end", number)
        judge_holds(number, sorted(got[number]), said[number], lost, verdict)


def judge_holds(
    number: int,
    got: list[tuple[float, str, int]],
    said: list[tuple[float, str, str]],
    lost: dict[str, list[float]],
    verdict: Verdict,
) -> None:
    """Nobody has a message while another holds it, and its count is the number of failures."""
    for (before, who, _), (after, _, count) in pairwise(got):
        given_back = any(one == who and before <= at <= after for at, one, _ in said)
        ends = lost[who]
        first = bisect_right(ends, before)
        if not given_back and not (first < len(ends) and ends[first] <= after):
            verdict.fault("held by two", f"{number}: {before} {who}, {after}")
        certain = sum(event == "failed" and at < after for at, _, event in said)
        possible = sum(event == "fail" and at < after for at, _, event in said)
        if not certain <= count <= possible:
            verdict.fault("a wrong count", f"{number}: {count}, not {certain} to {possible}")


def judge_groups(folder: Path, first: list[str], second: list[str], moved: list[str], verdict: Verdict) -> None:
    certain: set[str] = set()
    tried: set[str] = set()
    never: set[str] = set()
    for _, _, event, about in read(folder, "group"):
        if event != "lost":
            {"send": tried, "sent": certain, "abort": never, "refused": never}[event].add(about[0])
    found: dict[str, list[int]] = defaultdict(list)
    for label in (*first, *second, *moved):
        group, _, part = label.partition(".")
        found[group].append(int(part))
    facts = verdict.facts
    facts["groups committed"], facts["groups in doubt"] = len(certain), len(tried - certain - never)
    facts["groups aborted"], facts["moved"] = len(never), len(moved)
    for group in tried | never | set(found):
        parts = sorted(found[group])
        whole = parts == list(range(GROUP))
        if parts and not whole:
            verdict.fault("a part of a transaction, or twice", f"{group}: {parts}")
        if group in certain and not parts:
            verdict.fault("a transaction lost", group)
        if group in never and parts:
            verdict.fault("an aborted transaction delivered", group)
    if first:
        verdict.fault("not moved", first[0])


def drain(url: str, queue: str) -> list[str]:
    """The labels of everything in a queue, which it takes away."""
    connection = BlockingConnection(url, timeout=30, allowed_mechs="ANONYMOUS")
    receiver = connection.create_receiver(queue, credit=500)
    found = []
    while True:
        try:
            found.append(receiver.receive(timeout=2).subject)
        except Exception:  # Proton's time-out: there is no more
            break
        receiver.accept()
    connection.close()
    return found


def run(messages: int, kills: int, seed: int) -> Verdict:
    chance = random.Random(seed)
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as directory:
        folder, port = Path(directory, "books"), free_port()
        folder.mkdir()
        url = f"amqp://127.0.0.1:{port}"
        server = Server(Path(directory), CONFIGURATION.replace("AMQP", str(port)))
        clients = Clients(folder, url, chance)
        try:
            began = time.monotonic()
            grouped = int(messages * IN_GROUPS)
            for name in range(PRODUCERS):
                clients.start("produce", str(name), name * SPACE, (messages - grouped) // PRODUCERS)
            for name in range(GROUP_PRODUCERS):
                clients.start("group", str(name), name * SPACE, grouped // GROUP_PRODUCERS)
            for role, count in (("consume", CONSUMERS), ("move", MOVERS)):
                for name in range(count):
                    clients.start(role, str(name))
            killed: list[float] = []

            def work(until: Callable[[], bool]) -> None:
                deadline = time.monotonic() + PATIENCE_S
                while not until():
                    assert time.monotonic() < deadline, "in vain"
                    clients.look()
                    time.sleep(0.1)

            for number in range(kills):
                goal = messages * (number + chance.uniform(0.3, 0.9)) / kills
                work(lambda goal=goal: clients.sent() >= goal or not clients.producing())  # type: ignore[misc]
                killed.append(time.monotonic())
                server.kill()
                killed.append(time.monotonic())
                server.start()
            work(lambda: not clients.producing())
            with postroad.connect(server.url) as manager:

                def settled() -> bool:
                    try:
                        return all(manager.queue(path).info().messages == 0 for path in (ORDERS, FIRST))
                    except PostroadError:
                        return False

                work(settled)
            clients.end()
            verdict.facts["seconds"] = round(time.monotonic() - began)
            verdict.facts["deaths"] = clients.deaths
            verdict.facts["kills"] = kills
            dead, left = (list(map(int, drain(url, queue))) for queue in (";deadletter", ORDERS))
            judge_orders(folder, killed, dead, left, verdict)
            judge_groups(folder, drain(url, FIRST), drain(url, SECOND), drain(url, MOVED), verdict)
            server.stop()
        finally:
            for process in clients.running.values():
                process.kill()
            server.process.kill()
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    verdict = run(arguments.messages, arguments.kills, arguments.seed)
    print(", ".join(f"{count} {name}" for name, count in verdict.facts.items()))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for kind, count in verdict.faults.items():
        print(f"FAULT: {kind}: {count}, such as {verdict.examples[kind]}")
    few = verdict.facts["accepted"] < verdict.facts["sent"] / 2 or not verdict.facts["moved"]
    print("nothing lost, nothing twice" if not verdict.faults else "the ledgers disagree")
    return 1 if verdict.faults or few else 0


if __name__ == "__main__":
    sys.exit(main())
