"""The client API, end to end: one manager process with its HTTP API, producer processes that send single recoverable
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
from benchmarks.peers_processes import (
    Meter,
    cpu_s,
    family,
    next_order,
    run_together,
    say_ready,
    started,
    traced,
    wait_ready,
)
from postroad import aio
from postroad.describe.received import ReceivedMessage
from postroad.message import Message

MODULE = "benchmarks.peers_client"
QUEUE = r"private$\bench"
CONCURRENT = 1000  # single sends at a time, by all producers together
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
    """What the producers do. They make `concurrent` single sends at a time with the async client, or one after the
    other with the blocking client. With `per_second`, they keep that pace together, and the consumer measures
    latencies."""

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
    """Starts a manager with an empty queue. Returns its URL and its process id."""
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
                os.kill(family([server.pid])[-1], signal.SIGTERM)  # strace, if it runs, ends with its child


# What the processes do


async def consume(url: str, calls: Calls) -> None:
    async with aio.connect(url) as manager:
        await manager.info()  # makes the connection
        latencies: list[float] = []

        def take(message: ReceivedMessage) -> None:
            body = message.body
            if calls.per_second:
                latencies.append(latency_ms(body))

        say_ready()
        await next_order()
        meter = Meter()
        await take_all(manager.queue(QUEUE), calls.each * calls.producers, take)
        meter.report(latencies_ms=latencies)
        await next_order()


async def take_all(queue: aio.Queue, count: int, take: Callable[[ReceivedMessage], None]) -> None:
    """Receives so many messages from the queue as they arrive."""
    consume = getattr(queue, "consume", None)  # older versions lack it; the benchmark also compares with those
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
        await next_order()
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
        await next_order()
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
