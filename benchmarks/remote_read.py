"""Remote read over RPC: receive and acknowledge, beside the rate of an empty call on the same connection.
`make bench-rpc`. The server is one process, and so is every client."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import print_table
from postroad.client.remote import RemoteBackend
from postroad.errors import NoMessage
from postroad.manager import Manager
from postroad.message import Message
from postroad.remote_read import qm2qm, structures
from postroad.remote_read.server import RemoteReadServer
from postroad.remote_read.values import Ack, DesiredAccess
from postroad.rpc.ndr import Format
from postroad.store import open_store

HOST = "127.0.70.50"
QUEUE = r"private$\bench"
BODY = b"x" * 1024
SECONDS = 4.0
CLIENTS = (1, 8)
BATCH = 1000
TURNS = 16
TOGETHER = 100  # messages of one call of `receive_many`
LAYOUTS = {"ndr": Format.NDR, "ndr64": Format.NDR64}


async def serve(directory: Path, kind: str, messages: int) -> None:
    """A manager with a queue full of messages; ends when its input does."""
    manager = Manager("bench", open_store(directory))
    await manager.start()
    await manager.create_queue(QUEUE)
    manager.core.queues.local_hosts.add(HOST)
    for _ in range(0, messages, BATCH):
        await manager.send(QUEUE, [Message(BODY, recoverable=kind == "recoverable") for _ in range(BATCH)])
    server = RemoteReadServer(manager, HOST, 0)
    await server.start()
    print(json.dumps({"port": server.ports.handshake}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()
    await manager.stop()


async def measure(port: int, seconds: float, layout: str) -> dict[str, float]:
    """Calls a second of one client: empty ones, then pairs of receive and acknowledgment, one after the other; then
    messages a second where many are asked for at a time.

    They take turns, so other load on the machine affects all of them alike.
    """
    backend = RemoteBackend(HOST, port, layouts=(LAYOUTS[layout],))
    async with backend._open(backend._name(QUEUE), DesiredAccess.RECEIVE) as opened:
        client = backend.client
        connection = await client._read_connection()

        async def empty() -> int:
            await connection.call(qm2qm.GET_SERVER_PORT, structures.GetPortIn(1))
            return 1

        async def pair() -> int:
            received = await client.receive(opened)
            assert received.entry is not None
            await client.end(received.entry, Ack.RR_ACK)
            return 1

        async def together() -> int:
            return len(await backend.receive(QUEUE, TOGETHER, 0, None))

        steps = {"empty": empty, "pairs": pair, "together": together}
        done, spent = dict.fromkeys(steps, 0), dict.fromkeys(steps, 0.0)
        with contextlib.suppress(NoMessage):
            for _ in range(TURNS):
                for name, step in steps.items():
                    started = time.perf_counter()
                    while (elapsed := time.perf_counter() - started) < seconds / TURNS:
                        done[name] += await step()
                    spent[name] += elapsed
    await backend.close()
    return {name: done[name] / spent[name] for name in steps}


@contextlib.contextmanager
def serving(kind: str, messages: int) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.remote_read", "--serve", directory, kind, str(messages)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            yield json.loads(server.stdout.readline())["port"]
            server.stdin.close()


def rates(port: int, clients: int, seconds: float, layout: str) -> tuple[float, ...]:
    """The sums over clients that run at the same time."""
    command = [sys.executable, "-m", "benchmarks.remote_read", "--measure", str(port), str(seconds), layout]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(clients)]
    results = [json.loads(each.communicate()[0]) for each in running]
    return tuple(sum(each[what] for each in results) for what in ("empty", "pairs", "together"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=3, metavar=("DIRECTORY", "KIND", "MESSAGES"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=3, metavar=("PORT", "SECONDS", "LAYOUT"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--messages", type=int, default=60_000)
    arguments = parser.parse_args()
    if arguments.serve:
        directory, kind, messages = arguments.serve
        asyncio.run(serve(Path(directory), kind, int(messages)))
        return
    if arguments.measure:
        port, seconds, layout = arguments.measure
        print(json.dumps(asyncio.run(measure(int(port), float(seconds), layout))))
        return
    rows = []
    for kind, layout in (("express", "ndr"), ("express", "ndr64"), ("recoverable", "ndr")):
        for clients in CLIENTS:
            with serving(kind, arguments.messages) as port:
                empty, pairs, together = rates(port, clients, arguments.seconds, layout)
            figures = (f"{empty:,.0f}", f"{pairs:,.0f}", f"{pairs / empty:.2f}", f"{together:,.0f}")
            rows.append((f"{kind}, {layout}", str(clients), *figures))
    print_table(
        "Remote read, messages of 1 KiB",
        (
            "messages",
            "clients",
            "empty calls/s",
            "receive+ack pairs/s",
            "pairs per empty call",
            "messages/s, 100 a call",
        ),
        rows,
        "A pair is two calls: one half is the most that there can be. A recoverable message is gone from disk first.",
    )


if __name__ == "__main__":
    main()
