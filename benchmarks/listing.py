"""What it costs to read a queue as Arrow over HTTP: rows per second, for whole packets and for decoded columns.

`python -m benchmarks.listing [MESSAGES]`. A queue on disk has messages of 1 KiB; the server is a separate process.
Besides the wall clock it reports the server's processor time, which varies less on a shared machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import postroad
from benchmarks.harness import print_table
from postroad.api.server import ApiServer
from postroad.client.arrow import batches
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.store import open_store

MESSAGES = 100_000
BODY = ("order " * 171)[:1024]
BATCH = 1000
QUEUE = r"private$\listing"
RAW = ("lookup_id", "arrived_at", "packet")
READS: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    ("whole packets: lookup_id, arrived_at, packet", RAW),
    ("numbers alone: lookup_id, arrived_at", RAW[:2]),
    ("decoded: all columns", None),
    ("decoded: id, label, sent_at", ("id", "label", "sent_at")),
)


def serve(directory: str, count: int, line: Connection) -> None:
    """Fills a queue, then serves it until `stop`. Answers each question with its processor time."""
    asyncio.run(_serve(Path(directory), count, line))


async def _serve(directory: Path, count: int, line: Connection) -> None:
    manager = build_manager(default_configuration("alpha"), open_store(directory))
    await manager.start()
    await manager.create_queue(QUEUE)
    for start in range(0, count, BATCH):
        rows = range(start, min(start + BATCH, count))
        await manager.send(QUEUE, [Message(BODY, label=f"order {row}", recoverable=True) for row in rows])
    server = ApiServer(manager)
    await server.start()
    line.send(server.url)
    while await asyncio.to_thread(line.recv):
        line.send(sum(os.times()[:2]))
    await server.stop()
    await manager.stop()


def read(queue: postroad.Queue, columns: tuple[str, ...] | None) -> int:
    return sum(batch.num_rows for batch in batches(queue.arrow(columns=columns)))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    context = multiprocessing.get_context("spawn")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        line, far_end = context.Pipe()
        server = context.Process(target=serve, args=(directory, count, far_end))
        server.start()
        with postroad.connect(line.recv()) as manager:
            queue = manager.queue(QUEUE)

            def used() -> float:
                line.send(True)
                return float(line.recv())

            for what, columns in READS:
                read(queue, columns)
                cpu, start = used(), time.perf_counter()
                assert read(queue, columns) == count
                elapsed, taken = time.perf_counter() - start, used() - cpu
                rows.append((what, f"{count / elapsed:,.0f}", f"{count / taken:,.0f}"))
            start = time.perf_counter()
            listed = sum(1 for _ in queue.messages())
            rows.append(("one by one, as messages", f"{listed / (time.perf_counter() - start):,.0f}", ""))
        line.send(False)
        server.join()
    print_table(
        f"{count:,} messages of 1 KiB out of a queue, over HTTP", ("columns", "rows/s", "rows/s of server CPU"), rows
    )


if __name__ == "__main__":
    main()
