"""The client's door, end to end: one manager process with its HTTP API, producer processes that send single recoverable
messages, and a consumer process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import postroad
from benchmarks.peers_figures import figures
from benchmarks.peers_managers import Run
from benchmarks.peers_pace import BODY, due, latency_ms, stamped
from benchmarks.peers_processes import Meter, cpu_s, family, run_together, say_ready, started, told, traced, wait_ready
from postroad import aio
from postroad.describe.received import ReceivedMessage
from postroad.message import Message

MODULE = "benchmarks.peers_client"
QUEUE = r"private$\bench"
CONCURRENT = 1000  # single sends at a time, of all producers together
PREFETCH = 1000
BATCH = 100
CONFIGURATION = """
[manager]
name = "bench"
[listen]
host = "127.0.0.1"
api = 0
binary = false
ping = false
http = false
rpc = false
[limits]
connections_per_address = 4096
[[queue]]
path = 'private$\\bench'
"""


@dataclass(frozen=True, slots=True)
class Calls:
    """What the producers do: `concurrent` single sends at a time with the async client, or one after the other with the
    blocking client. With `per_second`, they keep that pace together, and the consumer takes latencies."""

    messages: int
    concurrent: bool
    producers: int = 1
    per_second: float = 0.0

    @property
    def each(self) -> int:
        return max(1, self.messages // self.producers)


def measure(name: str, calls: Calls, trace: Path | None = None) -> Run:
    """`trace` is a directory that gets the syncs of the manager."""
    with serving(trace) as (url, pid), ExitStack() as stack:
        arguments = (url, json.dumps(asdict(calls)))
        consumer = stack.enter_context(started(MODULE, "consumer", *arguments))
        producers = [stack.enter_context(started(MODULE, "producer", *arguments)) for _ in range(calls.producers)]
        wait_ready([consumer, *producers])
        before = cpu_s(family([pid]))
        received, sent = run_together([consumer], producers)
        broker = cpu_s(family([pid])) - before
    began = min(each["began"] for each in sent)
    ended = max([each["ended"] for each in received] + [each["sent"] for each in sent])
    spent = {
        "producer": sum(each["cpu_s"] for each in sent),
        "broker": broker,
        "consumer": sum(each["cpu_s"] for each in received),
    }
    return Run(figures(name, calls.each * calls.producers, began, ended, spent), received, sent)


@contextmanager
def serving(trace: Path | None = None) -> Iterator[tuple[str, int]]:
    """The URL and the process id of a manager with an empty queue."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bench.toml")
        file.write_text(CONFIGURATION)
        prefix = traced(None if trace is None else trace / "server")
        command = [*prefix, sys.executable, "-m", "postroad", "serve", "-c", str(file), "--log-level", "error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield f"http://{json.loads(server.stdout.readline())['listen']['api']}", server.pid
            finally:
                os.kill(family([server.pid])[-1], signal.SIGTERM)  # strace, if it is there, ends with its child


# What the processes do


async def consume(url: str, calls: Calls) -> None:
    async with aio.connect(url) as manager:
        await manager.info()  # the connection is made
        latencies: list[float] = []

        def take(message: ReceivedMessage) -> None:
            body = message.body
            if calls.per_second:
                latencies.append(latency_ms(body))

        say_ready()
        await told()
        meter = Meter()
        await take_all(manager.queue(QUEUE), calls.each * calls.producers, take)
        meter.report(latencies_ms=latencies)
        await told()


async def take_all(queue: aio.Queue, count: int, take: Callable[[ReceivedMessage], None]) -> None:
    """Takes so many messages from the queue for good, as they arrive."""
    consume = getattr(queue, "consume", None)  # the benchmark also runs on versions without it, to compare them
    if consume is None:
        while count:
            for message in await queue.receive_many(min(BATCH, count)):
                take(message)
                count -= 1
        return
    async with consume(prefetch=PREFETCH) as messages:
        async for message in messages:
            take(message)
            count -= 1
            if not count:
                break


async def produce_concurrently(url: str, calls: Calls) -> None:
    async with aio.connect(url) as manager:
        await manager.info()
        queue = manager.queue(QUEUE)
        say_ready()
        await told()
        meter = Meter()
        if calls.per_second:
            async with asyncio.TaskGroup() as tasks:
                async for planned in due(calls.each, calls.per_second / calls.producers):
                    for each in planned:
                        tasks.create_task(queue.send(Message(stamped(each), recoverable=True)))
        else:
            numbers = iter(range(calls.each))

            async def send() -> None:
                for _ in numbers:
                    await queue.send(Message(BODY, recoverable=True))

            await asyncio.gather(*(send() for _ in range(max(1, CONCURRENT // calls.producers))))
        ended = time.monotonic()
        await told()
        meter.report(sent=ended)


def produce_singly(url: str, calls: Calls) -> None:
    with postroad.connect(url) as manager:
        manager.info()
        queue = manager.queue(QUEUE)
        say_ready()
        sys.stdin.readline()
        meter = Meter()
        for _ in range(calls.each):
            queue.send(Message(BODY, recoverable=True))
        ended = time.monotonic()
        sys.stdin.readline()
        meter.report(sent=ended)


def main(role: str, url: str, calls: Calls) -> None:
    if role == "consumer":
        asyncio.run(consume(url, calls))
    elif calls.concurrent:
        asyncio.run(produce_concurrently(url, calls))
    else:
        produce_singly(url, calls)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Calls(**json.loads(sys.argv[3])))
