"""Attacks by a user without rights through the HTTP API, and by strangers on the web console."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AsyncExitStack
from urllib.parse import urlencode
from uuid import uuid4

import pyarrow as pa

from tests.torture.hostile.stage import (
    API,
    CLOSED,
    CONSOLE,
    GUEST,
    GUEST_PASSWORD,
    LEFT,
    LOCAL,
    OPEN,
    RECOVERABLE,
    TRANSACTIONAL,
    USER,
    Target,
)
from tests.torture.hostile.stranger import Stranger

_ARROW = "application/vnd.apache.arrow.stream"
_JSON = "application/json"
_CREDENTIALS = base64.b64encode(f"{GUEST}:{GUEST_PASSWORD}".encode()).decode()
_FORM = "application/x-www-form-urlencoded"
_PAGES = ("/", "/0/queues", "/0/dead", "/0/network", "/login", "/0/queue?name=private%24%5Copen", "/~x/0/queues")


def call(
    target: Target, method: str, path: str, body: bytes = b"", *, kind: str = _JSON, length: int | None = None
) -> bytes:
    """A request of the guest."""
    head = (
        f"{method} /api/v1{path} HTTP/1.1\r\nHost: {target.host}\r\nAuthorization: Basic {_CREDENTIALS}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


def in_path(queue: str) -> str:
    return queue.replace("\\", "/")


def _arrow(columns: dict[str, pa.Array], compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


async def arrow_submissions(stranger: Stranger) -> None:
    """Arrow streams with a few broken octets, among them lengths and offsets that point elsewhere."""
    target, chance = stranger.target(), stranger.chance
    honest = _arrow(
        {
            "body": pa.array([b"x" * chance.randrange(100) for _ in range(20)]),
            "label": pa.array([f"{n}" for n in range(20)]),
        }
    )
    async with stranger.line(target.host, API) as line:
        for _ in range(chance.randint(1, 10)):
            octets = bytearray(honest)
            for _ in range(chance.randint(1, 6)):
                octets[chance.randrange(len(octets))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            path = f"/queues/{in_path(OPEN)}/submissions/{uuid4()}/0/0"
            await line.send(call(target, "POST", path, bytes(octets), kind=_ARROW))
            await line.read(timeout=10)


async def arrow_bombs(stranger: Stranger) -> None:
    """A few kilobytes of compressed columns that would become hundreds of megabytes."""
    target, codec = stranger.target(), stranger.chance.choice(("zstd", "lz4"))
    bomb = _arrow({"body": pa.array([bytes(4_000_000)] * 60)}, codec)
    async with stranger.line(target.host, API) as line:
        await line.send(call(target, "POST", f"/queues/{in_path(OPEN)}/submissions/b/0/0", bomb, kind=_ARROW))
        await line.read(timeout=15)


async def large_sends(stranger: Stranger) -> None:
    """JSON with very many small messages, or very deep."""
    target, chance = stranger.target(), stranger.chance
    body = chance.choice(
        (
            b'{"messages":[' + b'{"body":"x"},' * 500_000 + b"{}]}",
            b'{"messages":' * 100_000,
            b'{"body":"' + b"x" * 8_000_000 + b'"}',
            b"[" * 1_000_000,
        )
    )
    async with stranger.line(target.host, API) as line:
        await line.send(call(target, "POST", f"/queues/{in_path(OPEN)}/messages", body))
        await line.read(timeout=15)


async def many_transactions(stranger: Stranger) -> None:
    """Transactions that begin and never end."""
    target = stranger.target()
    async with stranger.line(target.host, API) as line:
        for _ in range(stranger.chance.randint(10, 300)):
            await line.send(call(target, "POST", "/transactions"))
            await line.read(timeout=10)


async def things_of_others(stranger: Stranger) -> None:
    """Every call that could take, change or delete what does not belong to the guest."""
    target, chance = stranger.target(), stranger.chance
    queue = in_path(chance.choice((RECOVERABLE, TRANSACTIONAL, LOCAL, CLOSED)))
    calls = [
        ("POST", f"/queues/{queue}/purge", {}),
        ("POST", f"/queues/{queue}/receive", {}),
        ("POST", f"/queues/{queue}/lock", {}),
        ("DELETE", f"/queues/{queue}", {}),
        ("PATCH", f"/queues/{queue}/acl", {"sddl": "O:WDD:(A;;0xff;;;WD)"}),
        ("POST", f"/queues/{queue}/move", {"to": OPEN}),
        ("POST", f"/queues/{queue}/messages", {"body": "x"}) if queue == in_path(CLOSED) else ("GET", "/status", {}),
        ("PUT", f"/queues/{queue}/holds/mine", {"from": 0}),
        ("GET", f"/queues/{queue}/packets", {}),
        ("GET", "/audit", {}),
        ("GET", "/transactions", {}),
        ("DELETE", f"/transactions/{uuid4()}", {}),
        ("POST", "/keys/rotate", {}),
        ("PUT", "/log-level", {"level": "debug"}),
        ("GET", "/backup", {}),
    ]
    async with stranger.line(target.host, API) as line:
        for method, path, body in chance.choices(calls, k=20):
            await line.send(call(target, method, path, json.dumps(body).encode()))
            await line.read(timeout=10)


async def dead_ends(stranger: Stranger) -> None:
    """Messages of the guest that make the manager write into a closed queue, or into somebody's dead letters."""
    target, chance = stranger.target(), stranger.chance
    async with stranger.line(target.host, API) as line:
        for _ in range(chance.randint(1, 30)):
            message = {
                "body": "x" * 100,
                "label": "not asked",
                "ack": "full",
                "admin_queue": rf"DIRECT=TCP:{target.host}\{CLOSED}",
                "dead_letter": True,
                "dead_letter_queue": rf"DIRECT=TCP:{target.host}\{CLOSED}",
                "time_to_be_received": 0,
                "recoverable": chance.random() < 0.5,
            }
            await line.send(call(target, "POST", f"/queues/{in_path(OPEN)}/messages", json.dumps(message).encode()))
            await line.read(timeout=10)


def _get(target: Target, path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {target.host}:{CONSOLE}\r\n{headers}\r\n".encode()


async def console_visits(stranger: Stranger) -> None:
    """Pages without a cookie, or with a made-up one."""
    target, chance = stranger.target(), stranger.chance
    async with stranger.line(target.host, CONSOLE) as line:
        for _ in range(chance.randint(1, 60)):
            cookie = chance.choice(("", f"Cookie: postroad_console={uuid4()}\r\n"))
            await line.send(_get(target, chance.choice(_PAGES), cookie))
            await line.read(timeout=10)


async def console_logins(stranger: Stranger) -> None:
    """Wrong passwords at the console's login page, for existing names."""
    target = stranger.target()
    async with stranger.line(target.host, CONSOLE) as line:
        for _ in range(stranger.chance.randint(1, 20)):
            form = urlencode({"manager": 0, "user": stranger.chance.choice((USER, GUEST)), "password": "wrong"})
            head = (
                f"POST /login HTTP/1.1\r\nHost: {target.host}:{CONSOLE}\r\nContent-Type: {_FORM}\r\n"
                f"Content-Length: {len(form)}\r\n\r\n{form}"
            )
            await line.send(head.encode())
            await line.read(timeout=10)


async def unfinished_forms(stranger: Stranger) -> None:
    """Forms at the console that never become complete, and connections that say nothing."""
    target, chance = stranger.target(), stranger.chance
    async with AsyncExitStack() as stack:
        for _ in range(chance.randint(1, 60)):
            line = await stack.enter_async_context(stranger.line(target.host, CONSOLE))
            if chance.random() < 0.7:
                head = f"POST /login HTTP/1.1\r\nHost: {target.host}:{CONSOLE}\r\nContent-Type: {_FORM}\r\n"
                await line.send(f"{head}Content-Length: 20000000\r\n\r\n".encode())
                for _ in range(chance.randint(0, 20)):
                    await line.send(b"x" * 65536)
        await asyncio.sleep(chance.uniform(0.1, 3.0))


async def readers_that_leave(stranger: Stranger) -> None:
    """Reads that wait, with more requests sent behind them, on connections that are cut."""
    target, chance = stranger.target(), stranger.chance
    async with AsyncExitStack() as stack:
        for _ in range(chance.randint(1, 10)):
            line = await stack.enter_async_context(stranger.line(target.host, API))
            read = chance.choice(("receive", "peek", "lock", "receive?timeout=60"))
            behind = chance.choice(
                (
                    b"",
                    call(target, "GET", "/whoami"),
                    call(target, "GET", "/whoami") * chance.randint(2, 40),
                    call(target, "POST", f"/queues/{in_path(LEFT)}/receive") * chance.randint(1, 15),
                    call(target, "POST", f"/queues/{in_path(OPEN)}/messages", bytes(100_000), length=1_000_000),
                    bytes(chance.randint(1, 500_000)),
                )
            )
            await line.send(call(target, "POST", f"/queues/{in_path(LEFT)}/{read}") + behind)
        await asyncio.sleep(chance.uniform(0.0, 1.0))


ATTACKS = (
    arrow_submissions,
    arrow_bombs,
    large_sends,
    many_transactions,
    things_of_others,
    dead_ends,
    console_visits,
    console_logins,
    unfinished_forms,
    readers_that_leave,
)
