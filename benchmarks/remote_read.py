"""Remote read over RPC: receive and acknowledge, compared with empty calls on the same connection. `make bench-rpc`.
The server is one process, and so is every client."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import print_table, process_cpu_s
from postroad.client.remote import RemoteBackend
from postroad.config import default_configuration
from postroad.errors import NoMessage
from postroad.manager import build_manager
from postroad.message import Message
from postroad.remote_read import qm2qm, structures
from postroad.remote_read.client import Received
from postroad.remote_read.server import RemoteReadServer
from postroad.remote_read.values import Ack
from postroad.rpc.ndr import Format
from postroad.store import open_store

HOST = "127.0.70.50"
QUEUE = r"private$\bench"
BODY = b"x" * 1024
SECONDS = 4.0
CLIENTS = (1, 8)
BATCH = 1000
TURNS = 16
TOGETHER = 100  # messages in one call of `receive_many`
KINDS = ("empty", "mqqp", "mqrr", "joined", "together")
LAYOUTS = {"ndr": Format.NDR, "ndr64": Format.NDR64}


async def serve(directory: Path, kind: str, messages: int) -> None:
    """Runs a manager with a full queue. Ends when its input ends."""
    manager = build_manager(default_configuration("bench"), open_store(directory))
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


async def measure(port: int, layout: str) -> None:
    """One client. Each line of its input names a kind of call and the seconds to make it, one call after the other. The
    answer is how many calls it made, or messages it got, and in which time and processor time."""
    backend = RemoteBackend(HOST, port, layouts=(LAYOUTS[layout],), protocol="mqrr")
    client, modern = backend._mqqp, backend._mqrr
    try:
        name = backend._name(QUEUE)
        opened, mqrr = await client.open(name), await modern.open(name)
        connection = await client.connection()
        held: Received | None = None

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

        async def pair_by_mqrr() -> int:
            received = await modern.receive(mqrr)
            await modern.end(received.entry, Ack.RR_ACK)
            return 1

        async def joined() -> int:
            """The next receive leaves with the acknowledgment."""
            nonlocal held
            done, held = held, None
            held = await modern.receive(mqrr) if done is None else await modern.receive_next(mqrr, done.entry)
            return 1

        steps = {"empty": empty, "mqqp": pair, "mqrr": pair_by_mqrr, "joined": joined, "together": together}
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, seconds = line.split()
            step, done, started, cpu = steps[name], 0, time.perf_counter(), time.process_time()
            with contextlib.suppress(NoMessage):
                while time.perf_counter() - started < float(seconds):
                    done += await step()
            if held is not None:
                await modern.end(held.entry, Ack.RR_NACK)
                held = None
            print(json.dumps([done, time.perf_counter() - started, time.process_time() - cpu]), flush=True)
    finally:
        await client.close()
        await modern.close()


@dataclass(slots=True)
class Total:
    """Calls of one kind by all clients, and what they took."""

    done: int = 0
    per_s: float = 0.0
    server_s: float = 0.0  # processor time, like the next
    clients_s: float = 0.0

    @property
    def server_us(self) -> float:
        return self.server_s / max(self.done, 1) * 1e6

    @property
    def clients_us(self) -> float:
        return self.clients_s / max(self.done, 1) * 1e6


class Server(NamedTuple):
    pid: int
    port: int


@contextlib.contextmanager
def serving(kind: str, messages: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.remote_read", "--serve", directory, kind, str(messages)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            yield Server(server.pid, json.loads(server.stdout.readline())["port"])
            server.stdin.close()


def rates(server: Server, clients: int, seconds: float, layout: str) -> dict[str, Total]:
    """The sums over clients that make the same kind of call at the same time. The kinds take turns, so that other load
    on the machine affects all of them alike."""
    command = [sys.executable, "-m", "benchmarks.remote_read", "--measure", str(server.port), layout]
    totals = {name: Total() for name in KINDS}
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(clients)
        ]
        for client in running:
            assert client.stdout is not None
            client.stdout.readline()
        for _ in range(TURNS):
            for name, total in totals.items():
                before = process_cpu_s(server.pid)
                for client in running:
                    assert client.stdin is not None
                    print(name, seconds / TURNS, file=client.stdin, flush=True)
                for client in running:
                    assert client.stdout is not None
                    done, elapsed, cpu = json.loads(client.stdout.readline())
                    total.done += done
                    total.per_s += done / elapsed / TURNS
                    total.clients_s += cpu
                total.server_s += process_cpu_s(server.pid) - before
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=3, metavar=("DIRECTORY", "KIND", "MESSAGES"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("PORT", "LAYOUT"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--messages", type=int, default=60_000)
    arguments = parser.parse_args()
    if arguments.serve:
        directory, kind, messages = arguments.serve
        asyncio.run(serve(Path(directory), kind, int(messages)))
        return
    if arguments.measure:
        port, layout = arguments.measure
        asyncio.run(measure(int(port), layout))
        return
    rows, costs = [], []
    for kind, layout in (("express", "ndr"), ("express", "ndr64"), ("recoverable", "ndr")):
        for clients in CLIENTS:
            with serving(kind, arguments.messages) as server:
                totals = rates(server, clients, arguments.seconds, layout)
            empty = totals["empty"]
            name = (f"{kind}, {layout}", str(clients))
            rest = [totals[each] for each in KINDS[1:]]
            beside = [f"{each.per_s:,.0f} ({each.per_s / empty.per_s:.2f})" for each in rest]
            rows.append((*name, f"{empty.per_s:,.0f}", *beside))
            whole = [each.server_us + each.clients_us for each in rest]
            ratios = [f"{(empty.server_us + empty.clients_us) / max(each, 1):.2f}" for each in whole]
            spent = [f"{each.server_us:.0f} + {each.clients_us:.0f}" for each in (empty, *rest)]
            costs.append(
                (*name, spent[0], *[f"{each} ({ratio})" for each, ratio in zip(spent[1:], ratios, strict=True)])
            )
    kinds = ("MS-MQQP", "MS-MQRR", "MS-MQRR, joined", f"MS-MQRR, {TOGETHER} a call")
    print_table(
        "Messages of 1 KiB received and acknowledged by remote read, per second (beside empty calls)",
        ("messages", "clients", "empty calls", *kinds),
        rows,
        "A message is two calls. Joined: the acknowledgment leaves with the receive of the next message. A recoverable "
        "message is gone from disk before its acknowledgment is answered.",
    )
    print_table(
        "The same in processor time, us: the server's and the client's (an empty call's share of it)",
        ("messages", "clients", "empty calls", *kinds),
        costs,
        "Other load on the machine changes this less than the rates.",
    )


if __name__ == "__main__":
    main()
