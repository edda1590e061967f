"""What the Python API costs: messages a second through each face, beside the queue manager called directly.

`python -m benchmarks.client [URL]`. Recoverable messages of 1 KiB in batches, sent and then received; with the URL of a
running manager's HTTP API, through that too.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import postroad
from postroad import aio
from postroad.manager import Manager
from postroad.message import Message
from postroad.store import open_store

BODY = bytes(1024)
BATCH = 100
BATCHES = 50
ROUNDS = 5
QUEUE = r"private$\benchmark"
MESSAGES = [Message(BODY, recoverable=True) for _ in range(BATCH)]

Rates = tuple[float, float]  # sent and received: messages a second


def rates(start: float, half: float, end: float) -> Rates:
    return BATCH * BATCHES / (half - start), BATCH * BATCHES / (end - half)


async def run_manager(directory: Path) -> list[Rates]:
    manager = Manager("alpha", open_store(directory))
    await manager.start()
    await manager.create_queue(QUEUE)
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(BATCHES):
            await manager.send(QUEUE, MESSAGES)
        half = time.perf_counter()
        for _ in range(BATCHES):
            await manager.receive(QUEUE, BATCH, 0)
        found.append(rates(start, half, time.perf_counter()))
    await manager.stop()
    return found


async def run_aio(opening: aio.Opening) -> list[Rates]:
    found = []
    async with opening as manager:
        queue = await manager.create_queue(QUEUE, exist_ok=True)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(BATCHES):
                await queue.send(MESSAGES)
            half = time.perf_counter()
            for _ in range(BATCHES):
                await queue.receive_many(BATCH, 0)
            found.append(rates(start, half, time.perf_counter()))
    return found


def run_sync(manager: postroad.QueueManager) -> list[Rates]:
    found = []
    with manager:
        queue = manager.create_queue(QUEUE, exist_ok=True)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(BATCHES):
                queue.send(MESSAGES)
            half = time.perf_counter()
            for _ in range(BATCHES):
                queue.receive_many(BATCH, 0)
            found.append(rates(start, half, time.perf_counter()))
    return found


def show(name: str, found: list[Rates]) -> None:
    sent, received = (statistics.median(side) for side in zip(*found, strict=True))
    print(f"{name:<24}{sent:>12,.0f}{received:>12,.0f}", flush=True)


def main() -> None:
    print(f"{'messages a second':<24}{'send':>12}{'receive':>12}")
    with tempfile.TemporaryDirectory() as directory:
        show("Manager", asyncio.run(run_manager(Path(directory, "manager"))))
        show("aio.open", asyncio.run(run_aio(aio.open(Path(directory, "aio")))))
        show("open", run_sync(postroad.open(Path(directory, "sync"))))
    for url in sys.argv[1:]:
        show("aio.connect", asyncio.run(run_aio(aio.connect(url))))
        show("connect", run_sync(postroad.connect(url)))


if __name__ == "__main__":
    main()
