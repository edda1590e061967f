"""Multicast between real processes in network namespaces of their own, on a segment that loses packets."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import shake_128
from itertools import pairwise
from pathlib import Path
from signal import SIGKILL
from typing import Any

import postroad
from tests.commands import ServerProcess
from tests.commands import postroad as command
from tests.namespaces import Segment, unavailable

GROUP, PORT = "239.50.1.1", 8001
NAME = f"MULTICAST={GROUP}:{PORT}"
NEWS = r"private$\news"
SMALL, LARGE = 1024, 60_000
BATCH_BYTES = 600_000
PATIENCE_S = 120  # without any progress
FORGED_AT_ONCE = 1000  # packets, which the receivers' buffers hold
MEMORY_MB = 200  # that forged packets may cost a receiver: 64 MiB are the bound, Python's allocator takes more
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "127.0.0.1"
binary = false
ping = false
http = false
rpc = false
api = 0
[multicast]
enabled = true
interfaces = ["eth0"]
rate_kb_s = {rate}
"""


class Member:
    """A queue manager in a namespace of its own."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        self.namespace, self.address = stage.segment.join()
        self._file = stage.directory / f"{name}.toml"
        self._file.write_text(CONFIGURATION.format(name=name, rate=stage.rate_kb_s))
        self._stack = stage.stack
        self.start()

    def start(self) -> None:
        self.server = self.namespace.run(ServerProcess, self._file)
        self._stack.callback(self.server.close)

    def kill(self) -> None:
        self.server.end(SIGKILL)

    def listen(self) -> None:
        done = self.namespace.run(
            command, "queue", "create", NEWS, "--multicast-address", f"{GROUP}:{PORT}", api=self.server.api
        )
        assert done.code == 0, done.errors

    def send(self, messages: Sequence[postroad.Message]) -> None:
        with postroad.connect(self.server.api) as manager:
            queue, batch, size = manager.queue(NAME), list[postroad.Message](), 0
            for message in messages:
                batch.append(message)
                size += len(message.body)
                if size >= BATCH_BYTES or len(batch) >= 200:
                    queue.send(batch)
                    batch, size = [], 0
            if batch:
                queue.send(batch)

    def received(self) -> int:
        def count() -> int:
            with postroad.connect(self.server.api) as manager:
                return manager.queue(NEWS).info().messages

        return self.namespace.run(count)

    def messages(self) -> list[str]:
        """The labels of everything in its queue. A message with another one's body has none."""

        def read() -> list[str]:
            with postroad.connect(self.server.api) as manager:
                return [
                    each.label if each.body == body_of(each.label, len(each.body)) else "damaged"
                    for each in manager.queue(NEWS).messages()
                ]

        return self.namespace.run(read)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.namespace.run(command, "status", "--json", api=self.server.api).objects[0]
        return dict(found["multicast"])


class Stage:
    """A segment and its members."""

    def __init__(self, directory: Path, stack: ExitStack, rate_kb_s: int) -> None:
        self.directory = directory
        self.stack = stack
        self.rate_kb_s = rate_kb_s
        self.segment = Segment(stack)

    def members(self, *names: str) -> list[Member]:
        return [Member(self, name) for name in names]


@contextmanager
def staged(directory: Path | None, rate_kb_s: int) -> Iterator[Stage]:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) if directory is None else directory
        yield Stage(place, stack, rate_kb_s)


@dataclass
class Result:
    """The findings of a scenario. It is good if there are no `contradictions`."""

    lines: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)

    def judge(self, member: Member, found: Sequence[str], wanted: Sequence[str]) -> None:
        """Every message is there, in this order, and none twice."""
        twice = len(found) - len(set(found))
        missing = len(set(wanted) - set(found))
        strange = len(set(found) - set(wanted))
        place = {label: number for number, label in enumerate(wanted)}
        known = [place[label] for label in found if label in place]
        reordered = sum(after < before for before, after in pairwise(known))
        if twice or missing or strange or reordered:
            self.contradictions.append(
                f"{member.name}: missing {missing}, twice {twice}, out of order {reordered}, not sent {strange}"
            )


def body_of(label: str, size: int) -> bytes:
    return shake_128(label.encode()).digest(size)


def made(source: str, count: int, size: int, first: int = 0, *, recoverable: bool = False) -> list[postroad.Message]:
    labels = [f"{source} {number}" for number in range(first, first + count)]
    return [postroad.Message(body_of(label, size), label=label, recoverable=recoverable) for label in labels]


def wait_for(members: Sequence[Member], wanted: int) -> None:
    """Waits until every queue has so many messages, or nothing has come for long."""
    before, at = -1, time.monotonic()
    while True:
        counts = [member.received() for member in members]
        if min(counts) >= wanted:
            return
        if sum(counts) != before:
            before, at = sum(counts), time.monotonic()
        elif time.monotonic() - at > PATIENCE_S:
            return
        time.sleep(0.5)


def wait_until(true: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise AssertionError("it did not happen in time")
        time.sleep(0.2)


# Scenarios


def flow(small: int, large: int, loss: float, rate_kb_s: int, directory: Path | None = None) -> Result:
    """One sender, three receivers: everything is received, in order, nothing twice."""
    result = Result()
    with staged(directory, rate_kb_s) as stage:
        sender, *receivers = stage.members("alpha", "beta", "gamma", "delta")
        stage.segment.start_relay(loss)
        for member in receivers:
            member.listen()
        messages = [*made("alpha", small, SMALL), *made("alpha", large, LARGE, small)]
        started = time.monotonic()
        sender.namespace.run(sender.send, messages)
        wait_for(receivers, len(messages))
        seconds = time.monotonic() - started
        dropped = stage.segment.stop_relay()
        wanted = [message.label for message in messages]
        repaired = lost = overflowed = 0
        for member in receivers:
            result.judge(member, member.messages(), wanted)
            status = member.status()
            repaired += status["repaired"]
            lost += status["lost"] + status["unconfirmed"]
            overflowed += status["overflowed"]
        if lost:
            result.contradictions.append(f"{lost} packets were lost")
        if loss and not repaired:
            result.contradictions.append("no packet was repaired")
        result.lines.append(
            f"loss {loss:.0%}: {small} x {SMALL} and {large} x {LARGE} bytes to {len(receivers)} receivers in "
            f"{seconds:.0f} s; packets dropped {dropped}, by full buffers {overflowed}, repaired {repaired}, "
            f"lost {lost}"
        )
    return result


def coming_and_going(count: int, loss: float, rate_kb_s: int, directory: Path | None = None) -> Result:
    """Two sources send to one group. Of three receivers one stays, one is killed and comes back, and one joins late.
    Then a source is killed."""
    result = Result()
    with staged(directory, rate_kb_s) as stage:
        first, second, *receivers = stage.members("alpha", "beta", "gamma", "delta", "epsilon")
        stays, returns, joins = receivers
        stage.segment.start_relay(loss)
        for member in (stays, returns):
            member.listen()

        def send(part: int) -> None:
            each = count // 4
            threads = [
                threading.Thread(
                    target=source.namespace.run,
                    args=(source.send, made(source.name, each, SMALL, part * each, recoverable=True)),
                )
                for source in (first, second)
                if part < 3 or source is first
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        each = count // 4
        send(0)
        wait_until(lambda: returns.received() > each // 2)  # in the middle of it
        returns.kill()
        send(1)
        joins.listen()
        returns.start()
        wait_for([stays], 4 * each)
        wait_until(lambda: all(member.status()["sources"] == 2 for member in (returns, joins)))
        send(2)
        wait_until(lambda: stays.received() > 5 * each)
        second.kill()
        send(3)
        last = f"alpha {4 * each - 1}"
        wait_until(lambda: all(last in member.messages() for member in receivers))
        found = {member: member.messages() for member in receivers}
        for source in (first, second):
            wanted = [f"{source.name} {number}" for number in range(4 * each if source is first else 3 * each)]
            for member in receivers:
                labels = [label for label in found[member] if label.startswith(f"{source.name} ")]
                if source is first and member is stays:
                    result.judge(member, labels, wanted)
                    continue
                # Nothing comes twice or out of order. What is missing is one piece, at the place of the event.
                known = set(labels)
                result.judge(member, labels, [label for label in wanted if label in known])
                pieces = sum((label in known) != (before in known) for before, label in pairwise(wanted))
                status = member.status()
                if pieces > (2 if member is returns else 1) + (source is second) and not status["lost"]:
                    result.contradictions.append(f"{member.name} misses messages of {source.name} and counts no loss")
                result.lines.append(f"{member.name} has {len(labels)} of {len(wanted)} messages of {source.name}")
    return result


def forged(count: int, packets: int, loss: float, rate_kb_s: int, directory: Path | None = None) -> Result:
    """A forger sends beside the sender: everything arrives, no packet counts as lost, memory stays bounded."""
    result = Result()
    with staged(directory, rate_kb_s) as stage:
        sender, *receivers = stage.members("alpha", "beta", "gamma", "delta")
        forger, _ = stage.segment.join()
        stage.segment.start_relay(loss)
        for member in receivers:
            member.listen()
        rounds = packets // FORGED_AT_ONCE
        part = count // rounds
        sender.namespace.run(sender.send, made("alpha", part, SMALL))
        wait_for(receivers, part)
        before = [member.server.memory_mb for member in receivers]
        arguments = [sys.executable, "-m", "tests.torture.multicast_forger", GROUP, str(PORT)]
        attack = forger.run(subprocess.Popen, arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stage.stack.enter_context(attack)
        stage.stack.callback(attack.kill)
        assert attack.stdin is not None
        assert attack.stdout is not None
        for number in range(1, rounds + 1):
            attack.stdin.write(f"{FORGED_AT_ONCE}\n")
            attack.stdin.flush()
            sender.namespace.run(sender.send, made("alpha", part, SMALL, number * part))
            assert attack.stdout.readline() == "sent\n"
            wait_for(receivers, (number + 1) * part)
        wanted = [f"alpha {number}" for number in range((rounds + 1) * part)]
        for member, memory_mb in zip(receivers, before, strict=True):
            result.judge(member, member.messages(), wanted)
            status = member.status()
            if status["lost"]:
                result.contradictions.append(f"{member.name} counts {status['lost']} packets as lost")
            grown = member.server.most_memory_mb - memory_mb
            if grown > MEMORY_MB:
                result.contradictions.append(f"{member.name} has taken {grown:.0f} MB more")
            result.lines.append(
                f"{member.name} beside {packets} forged packets: {memory_mb:.0f} MB before, "
                f"{member.server.most_memory_mb:.0f} MB at the most, {member.server.memory_mb:.0f} MB after; lost "
                f"{status['lost']}, claimed by forged sources {status['unconfirmed']}, repaired {status['repaired']}, "
                f"dropped by full buffers {status['overflowed']}"
            )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=10_000, help="messages of 1 KiB")
    parser.add_argument("--large", type=int, default=1000, help="messages of 60 kB")
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 1, 5], help="percent")
    parser.add_argument("--rate-kb-s", type=int, default=2000)
    parser.add_argument("--forged", type=int, default=200_000, help="packets")
    parser.add_argument("--scenarios", nargs="+", default=["flow", "coming-and-going", "forged"])
    arguments = parser.parse_args()
    why = unavailable()
    if why is not None:
        print(why, file=sys.stderr)
        return 2
    rate = arguments.rate_kb_s
    scenarios: list[Callable[[], Result]] = []
    if "flow" in arguments.scenarios:
        scenarios += [
            lambda percent=percent: flow(arguments.small, arguments.large, percent / 100, rate)  # type: ignore[misc]
            for percent in arguments.loss
        ]
    if "coming-and-going" in arguments.scenarios:
        scenarios.append(lambda: coming_and_going(4000, 0.01, rate))
    if "forged" in arguments.scenarios:
        scenarios.append(lambda: forged(4000, arguments.forged, 0.01, rate))
    contradictions = 0
    for scenario in scenarios:
        result = scenario()
        contradictions += len(result.contradictions)
        for line in (*result.lines, *(f"CONTRADICTION: {each}" for each in result.contradictions)):
            print(line, flush=True)
    print(f"contradictions {contradictions}")
    return 1 if contradictions else 0


if __name__ == "__main__":
    sys.exit(main())
