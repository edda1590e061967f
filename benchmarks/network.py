"""Two queue managers in two processes: from the sender's store to the receiver's store over TCP. `make bench-wire`.

With `--peers DIR`, where DIR holds scripts that measure RabbitMQ and NATS with native clients (`brokers.py`,
`native_bench.py`), the same machine in the same minutes gives the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import print_table
from postroad.binary.service import BinaryService, Hop
from postroad.binary.settings import BinarySettings
from postroad.binary.transport import BinaryTransport
from postroad.manager import Manager
from postroad.message import Message
from postroad.names import DirectName, FormatName
from postroad.store import open_store

BODY = b"x" * 1024
BATCH = 100
SENDER, RECEIVER = "127.0.0.41", "127.0.0.42"
PORT = 11841
KINDS = ("express", "recoverable", "transactional")
PEERS = (
    ("RabbitMQ classic, durable", ("rabbitmq", "--mode", "durable", "--variant", "classic"), "recoverable"),
    ("RabbitMQ classic, express", ("rabbitmq", "--mode", "express", "--variant", "classic"), "express"),
    ("NATS JetStream, file (no sync)", ("nats", "--mode", "durable", "--variant", "file"), "recoverable"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--peers", type=Path, help="a directory with brokers.py and native_bench.py")
    arguments = parser.parse_args()
    rates = {kind: max(measure(kind, arguments.messages) for _ in range(3)) for kind in KINDS}
    rows = [(f"Postroad, {kind}", f"{rate:,.0f}", "1.00") for kind, rate in rates.items()]
    if arguments.peers is not None:
        for name, options, kind in PEERS:
            rate = measure_peer(arguments.peers, options, arguments.messages)
            rows.append((name, f"{rate:,.0f}", f"{rates[kind] / rate:.2f}"))
    print_table(
        "Sender's store to receiver's store over TCP, 1 KiB, messages a second",
        ("", "messages/s", "Postroad of it"),
        rows,
        f"best of 3 rounds of {arguments.messages:,}; a peer's figure is end to end through one broker",
    )


def measure(kind: str, messages: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.network_receiver", kind, directory, str(messages)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()  # it listens
            started = asyncio.run(send(kind, directory, messages))
            ended = json.loads(receiver.stdout.readline())
        return messages / (float(ended) - started)


async def open_manager(name: str, host: str, directory: str) -> tuple[Manager, BinaryTransport]:
    manager = Manager(name, open_store(Path(directory, name)))
    await manager.start()
    manager.core.queues.local_hosts.add(host)
    transport = BinaryTransport(manager, host, PORT, lambda _: PORT)
    await transport.start(BinaryService(manager.core, BinarySettings(order_ack_ms=100), resolve, transport))
    return manager, transport


def resolve(name: FormatName) -> list[Hop]:
    return [Hop(name.host)] if isinstance(name, DirectName) else []


async def send(kind: str, directory: str, messages: int) -> float:
    """When it began, by the clock that both processes share."""
    manager, transport = await open_manager("sender", SENDER, directory)
    name = rf"DIRECT=TCP:{RECEIVER}\private$\bench"
    batch = [Message(BODY, label="bench", recoverable=kind == "recoverable")] * BATCH
    started = time.time()
    for _ in range(messages // BATCH):
        if kind == "transactional":
            await manager.send_transactional(name, batch)
        else:
            await manager.send(name, batch)
    queue = manager.core.queues.get(name)
    await _until(lambda: queue.count <= len(queue.positions))  # everything is on its way; the receiver tells the rest
    await asyncio.sleep(1.0)
    await transport.stop()
    await manager.stop()
    return started


async def receive(kind: str, directory: str, messages: int) -> None:
    manager, transport = await open_manager("receiver", RECEIVER, directory)
    await manager.create_queue(r"private$\bench", transactional=kind == "transactional")
    print("listening", flush=True)
    queue = manager.core.queues.get(r"private$\bench")
    await _until(lambda: queue.count >= messages)
    print(json.dumps(time.time()), flush=True)
    await asyncio.sleep(2.0)
    await transport.stop()
    await manager.stop()


async def _until(happened: Callable[[], bool]) -> None:
    """Looks from time to time, so that the watched manager has nothing more to do for being watched."""
    while not happened():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def measure_peer(directory: Path, options: tuple[str, ...], messages: int) -> float:
    peer = options[0]
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"BENCH_DIR": scratch}

        def run(script: str, *arguments: str) -> str:
            command = [sys.executable, str(directory / script), *arguments]
            return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

        run("brokers.py", "start", peer, *(["--express"] if "express" in options else []))
        try:
            lines = run("native_bench.py", *options, "-n", str(messages)).splitlines()
        finally:
            run("brokers.py", "stop", peer)
    (rate,) = [float(figures["rate"]) for figures in map(json.loads, lines) if figures["scenario"] == "e2e"]
    return rate


if __name__ == "__main__":
    main()
