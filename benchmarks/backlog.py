"""A million messages in one queue: does it become slower, how much memory does it need, and how fast is it after a
restart?

`make bench-backlog` runs it. The manager is a separate process, so its memory is measured alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

from benchmarks.harness import print_table
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.store import open_store

PATH = r"private$\backlog"
BODY = b"x" * 1024
BATCH = 1000
SHORT = 20 * 5 * BATCH  # messages of the short queue that the long one is compared with, for twenty measurements


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    messages = max(parser.parse_args().messages // SHORT * SHORT, SHORT)
    with tempfile.TemporaryDirectory() as directory:
        empty = _phase("empty", directory + "/empty", SHORT)
        fill = _phase("fill", directory + "/full", messages)
        drain = _phase("drain", directory + "/full", messages)
    print_table(
        f"A backlog of {messages:,} messages of 1 KiB, {BATCH} a call",
        ("", "figure", "aim"),
        [
            ("fill, first quarter, messages/s", f"{fill['first']:,.0f}", ""),
            ("fill, last quarter, messages/s", f"{fill['last']:,.0f}", ""),
            ("fill, processor time of a message, us", f"{fill['fill_us']:.1f}", ""),
            ("last of first", f"{fill['last'] / fill['first']:.2f}", ">= 0.80"),
            ("memory when full, MB", f"{fill['rss_mb']:.0f}", "< 300"),
            ("open to first receive, s", f"{drain['first_receive_s']:.2f}", "< 3"),
            ("drain, messages/s", f"{drain['rate']:,.0f}", ""),
            ("drain, processor time of a message, us", f"{drain['drain_us']:.1f}", ""),
            ("of a short queue's rate", f"{drain['rate'] / empty['rate']:.2f}", ">= 0.80"),
            ("memory while draining, MB", f"{drain['rss_mb']:.0f}", "< 300"),
        ],
    )


def _phase(name: str, directory: str, messages: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.backlog_phase", name, directory, str(messages)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


async def run_phase(name: str, directory: str, messages: int) -> dict[str, float]:
    """Runs one phase in this process: `empty` sends and receives a short queue, `fill` and `drain` a long one."""
    started = time.perf_counter()
    manager = build_manager(default_configuration("bench"), open_store(directory))
    await manager.start()
    figures: dict[str, float] = {}
    if name != "drain":
        await manager.create_queue(PATH)
        twentieth = messages // 20
        batch = [Message(BODY, label="backlog", recoverable=True)] * BATCH
        rates = []
        used = time.process_time()
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(twentieth // BATCH):
                await manager.send(PATH, batch)
            rates.append(twentieth / (time.perf_counter() - start))
        figures |= {"first": median(rates[:5]), "last": median(rates[-5:])}
        figures["fill_us"] = (time.process_time() - used) / messages * 1e6
    if name != "fill":
        first = await manager.reads.receive(PATH, 1, 0)
        assert first[0].label == "backlog"
        figures["first_receive_s"] = time.perf_counter() - started
        start, used = time.perf_counter(), time.process_time()
        received = 1
        while received < messages:
            received += len(await manager.reads.receive(PATH, min(BATCH, messages - received), 0))
        figures["rate"] = messages / (time.perf_counter() - start)
        figures["drain_us"] = (time.process_time() - used) / messages * 1e6
    figures["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    await manager.stop()
    return figures


if __name__ == "__main__":
    main()
