"""RPC calls per second: our client and our server in another process, with one and with eight connections.

`python -m benchmarks.rpc`. The other process runs `--serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Annotated

from benchmarks.harness import best_of, microseconds, print_table, process_cpu_s
from postroad.rpc import ndr
from postroad.rpc.calls import Call
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.gss import initiator, providers
from postroad.rpc.interface import Interface, Nothing, Operation
from postroad.rpc.ndr import Format
from postroad.rpc.security import SecurityContext
from postroad.rpc.server import RpcServer

HOST = "127.0.60.20"
USER, PASSWORD = "bench", "bench"
BODY = bytes(1392)  # a message of 1 KiB as a packet


@dataclass(frozen=True, slots=True)
class ReadDesc:
    """The shape of qm2qm's REMOTEREADDESC."""

    h_remote_queue: ndr.Dword
    h_cursor: ndr.Dword
    action: ndr.Dword
    timeout: ndr.Dword
    size: Annotated[int, ndr.ulong.range(0, 4325376)]
    queue: ndr.Dword
    request_id: ndr.Dword
    reserved: ndr.Dword
    arrive_time: ndr.Dword
    ack_nack: Annotated[int, ndr.enum(None)]
    buffer: Annotated[bytes | None, ndr.unique(ndr.array(ndr.byte, size_is="size", length_is="size"))]


@dataclass(frozen=True, slots=True)
class Read:
    desc: ReadDesc


@dataclass(frozen=True, slots=True)
class ReadReply:
    context: Annotated[ndr.Handle, ndr.context_handle("PCTX")]
    desc: ReadDesc
    status: ndr.Hresult


EMPTY = Operation(0, "Empty", Nothing, Nothing)
READ = Operation(1, "Read", Read, ReadReply)
POST = Interface("post", "9d0d2a52-5f0e-4a42-9f0e-1d1f6d1f0001", (1, 0), EMPTY, READ)

REQUESTED = ReadDesc(1, 0, 0, 0, 0, 1, 1, 0, 0, 0, None)
REPLIED = ReadReply(ndr.NULL_HANDLE, ReadDesc(1, 0, 0, 0, len(BODY), 1, 1, 1, 1700000000, 0, BODY), 0)


async def serve() -> None:
    server = RpcServer(providers=providers({USER: PASSWORD}, "BENCH"))
    server.register(POST)
    server.on(EMPTY, _empty)
    server.on(READ, _read)
    print(await server.listen(HOST, 0), flush=True)
    await asyncio.Event().wait()


def _empty(call: Call, request: Nothing) -> Nothing:
    return request


def _read(call: Call, request: Read) -> ReadReply:
    return REPLIED


async def rate(port: int, clients: int, flight: int, seconds: float, level: AuthLevel, read: bool) -> float:
    """Calls per second over `clients` connections with `flight` calls in flight on each."""
    opened = [await connect(HOST, port, POST, security=_security(level)) for _ in range(clients)]
    until = time.perf_counter() + seconds

    async def work(client: RpcClient) -> int:
        done = 0
        while time.perf_counter() < until:
            if read:
                await client.call(READ, Read(REQUESTED))
            else:
                await client.call(EMPTY, Nothing())
            done += 1
        return done

    started = time.perf_counter()
    done = await asyncio.gather(*(work(client) for client in opened for _ in range(flight)))
    elapsed = time.perf_counter() - started
    for client in opened:
        await client.close()
    return sum(done) / elapsed


def _security(level: AuthLevel) -> SecurityContext | None:
    if level is AuthLevel.NONE:
        return None
    return initiator(USER, PASSWORD, host=HOST, auth_type=AuthType.NTLM, level=level)


CASES = (
    ("empty, 1 client", 1, 1, AuthLevel.NONE, False),
    ("empty, 1 client, 32 in flight", 1, 32, AuthLevel.NONE, False),
    ("empty, 8 clients", 8, 1, AuthLevel.NONE, False),
    ("1 KiB message, 1 client", 1, 1, AuthLevel.NONE, True),
    ("1 KiB message, 8 clients", 8, 1, AuthLevel.NONE, True),
    ("1 KiB message, 8 clients, NTLM integrity", 8, 1, AuthLevel.INTEGRITY, True),
    ("1 KiB message, 8 clients, NTLM privacy", 8, 1, AuthLevel.PRIVACY, True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    marshalling()
    command = [sys.executable, "-m", "benchmarks.rpc", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        rows = []
        for name, clients, flight, level, read in CASES:
            before = process_cpu_s(server.pid)
            best = 0.0
            calls = 0.0
            for _ in range(3):
                found = asyncio.run(rate(port, clients, flight, arguments.seconds, level, read))
                best = max(best, found)
                calls += found * arguments.seconds
            cpu = (process_cpu_s(server.pid) - before) / calls
            rows.append((name, f"{best:,.0f}", f"{cpu * 1e6:.0f}"))
        server.kill()
    print_table(
        "RPC calls over loopback, client and server in a process each",
        ("", "calls/s", "server CPU us"),
        rows,
        f"best of 3 rounds of {arguments.seconds:g} s; all clients share one process",
    )


def marshalling() -> None:
    rows = []
    for layout in Format:
        request = READ.request.encode(Read(REQUESTED), layout)
        reply = READ.reply.encode(REPLIED, layout)
        rows.append(
            (
                layout.name,
                microseconds(best_of(lambda layout=layout: READ.request.encode(Read(REQUESTED), layout))),  # type: ignore[misc]
                microseconds(best_of(lambda layout=layout, octets=request: READ.request.decode(octets, layout))),  # type: ignore[misc]
                microseconds(best_of(lambda layout=layout: READ.reply.encode(REPLIED, layout))),  # type: ignore[misc]
                microseconds(best_of(lambda layout=layout, octets=reply: READ.reply.decode(octets, layout))),  # type: ignore[misc]
            )
        )
    columns = ("", "request encode", "request decode", "reply encode", "reply decode")
    print_table("One read of a 1 KiB message, marshalled, us", columns, rows)


if __name__ == "__main__":
    main()
