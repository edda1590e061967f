"""Attacks on HTTP itself and its TLS, on SOAP over HTTP, and on the HTTP API."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import AsyncExitStack, suppress
from uuid import uuid4

from tests import soap_samples
from tests.torture.hostile.stage import API, CONSOLE, HTTP, HTTPS, Target
from tests.torture.hostile.stranger import CANARY, Stranger

_ENVELOPES = (
    soap_samples.SIMPLE,
    soap_samples.ORDER,
    soap_samples.RECEIPTS_WANTED,
    soap_samples.DELIVERY_RECEIPT,
    soap_samples.COMMITMENT_RECEIPT,
    *soap_samples.STREAM,
    *soap_samples.STREAM_RECEIPTS,
)
_PATHS = (
    "/",
    "/metrics",
    "/api/v1/status",
    "/api/v1/queues",
    "/api/v1/queues/private$/recoverable/messages",
    "/api/v1/queues/private$/recoverable/receive",
    "/api/v1/queues/private$/recoverable/purge",
    "/api/v1/openapi.json",
    "/%00",
    "/api/v1/queues/../../etc/passwd",
)


def post(target: Target, body: bytes, *, path: str = "/msmq/private$/http", length: int | None = None) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {target.host}\r\nContent-Type: text/xml; charset=UTF-8\r\n"
        f'Content-Length: {len(body) if length is None else length}\r\nSOAPAction: "MSMQMessage"\r\n\r\n'
    )
    return head.encode() + body


def envelope(stranger: Stranger, target: Target) -> bytes:
    """One of the specification's samples, addressed to the target's queues. Its answers go to a host that has no part
    in it."""
    text = stranger.chance.choice(_ENVELOPES)
    text = text.replace("machine1", CANARY).replace("machine2", f"{target.host}:{HTTP}")
    text = re.sub("private[$]/t?simple[qQ]", stranger.chance.choice(("private$/open", "private$/http")), text)
    text = text.replace("2007", "2037")
    if stranger.chance.random() < 0.5:
        text = text.replace(soap_samples.NULL_TEXT, str(uuid4()))
    octets = bytearray(text.encode())
    for _ in range(stranger.chance.choice((0, 0, 1, 3))):
        octets[stranger.chance.randrange(len(octets))] = stranger.chance.randrange(256)
    return bytes(octets)


async def soap_messages(stranger: Stranger) -> None:
    """Messages and receipts, forged or broken."""
    target = stranger.target()
    for _ in range(stranger.chance.randint(1, 10)):
        async with stranger.line(target.host, HTTP) as line:
            await line.send(post(target, envelope(stranger, target)))
            await line.read()


async def slow_requests(stranger: Stranger) -> None:
    """Requests that never become complete: a head or a body, an octet now and then."""
    target, port = stranger.target(), stranger.chance.choice((HTTP, API))
    async with AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(stranger.line(target.host, port))
            for _ in range(stranger.chance.randint(1, 30))
        ]
        for line in lines:
            start = b"POST /api/v1/queues HTTP/1.1\r\nHost: x\r\n"
            await line.send(start if stranger.chance.random() < 0.5 else post(target, b"x", length=1_000_000))
        for _ in range(stranger.chance.randint(1, 10)):
            await asyncio.sleep(0.3)
            for line in lines:
                await line.send(b"x")


async def large_requests(stranger: Stranger) -> None:
    """Bodies of the largest size and larger, which never end."""
    target, port = stranger.target(), stranger.chance.choice((HTTP, API))
    async with stranger.line(target.host, port) as line:
        await line.send(post(target, b"", path="/api/v1/queues", length=stranger.chance.choice((1 << 22, 1 << 33))))
        for _ in range(stranger.chance.randint(1, 60)):
            await line.send(bytes(65536))
        await line.read()


async def endless_heads(stranger: Stranger) -> None:
    target, port = stranger.target(), stranger.chance.choice((HTTP, API))
    async with stranger.line(target.host, port) as line:
        await line.send(b"GET / HTTP/1.1\r\n")
        for number in range(stranger.chance.randint(10, 400)):
            await line.send(b"x-%d: %s\r\n" % (number, b"y" * 1000))
        await line.read()


async def without_a_token(stranger: Stranger) -> None:
    """Every call of an operator, by somebody who is not one."""
    target, chance = stranger.target(), stranger.chance
    tokens = ("", "Authorization: Bearer wrong\r\n", "Authorization: Basic cmVhZGVyOng=\r\n", "Origin: http://evil\r\n")
    async with stranger.line(target.host, API) as line:
        for _ in range(chance.randint(1, 10)):
            method = chance.choice(("GET", "POST", "DELETE", "PATCH", "PUT", "OPTIONS"))
            head = f"{method} {chance.choice(_PATHS)} HTTP/1.1\r\nHost: {target.host}\r\n{chance.choice(tokens)}"
            await line.send(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
            await line.read(timeout=10)


async def http_garbage(stranger: Stranger) -> None:
    target, port = stranger.target(), stranger.chance.choice((HTTP, API))
    async with stranger.line(target.host, port) as line:
        await line.send(stranger.chance.randbytes(stranger.chance.randint(1, 3000)))
        await line.read_all(1.0)


def _chunked(target: Target) -> bytes:
    return post(target, b"").replace(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")


async def endless_trailers(stranger: Stranger) -> None:
    """Chunks whose extension, or whose trailers, never end: lines without end, and lines without number."""
    target, chance = stranger.target(), stranger.chance
    start, piece = chance.choice(
        (
            (b"1;x=", b"y" * 65536),
            (b"", b"1;" + b"x" * 8000 + b"\r\ny\r\n"),
            (b"0\r\nx: ", b"y" * 65536),
            (b"0\r\n", b"x: y\r\n" * 8000),
        )
    )
    async with stranger.line(target.host, chance.choice((HTTP, API, CONSOLE))) as line:
        await line.send(_chunked(target) + start)
        for _ in range(chance.randint(1, 200)):
            await line.send(piece)
        await line.read()


async def tiny_chunks(stranger: Stranger) -> None:
    """Bodies of megabytes in chunks of a few octets, which cost the reader more than the wire."""
    target, chance = stranger.target(), stranger.chance
    size = chance.randint(1, 3)
    async with AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(stranger.line(target.host, chance.choice((HTTP, API, CONSOLE))))
            for _ in range(chance.randint(1, 5))
        ]
        for line in lines:
            await line.send(_chunked(target))
        for _ in range(chance.randint(1, 20)):
            for line in lines:
                await line.send(b"%x\r\n%b\r\n" % (size, b"x" * size) * 10_000)
        await lines[0].read()


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


async def broken_handshakes(stranger: Stranger) -> None:
    """TLS handshakes that stop in the middle: within the first message, behind it, or behind one with broken octets."""
    target, chance = stranger.target(), stranger.chance
    async with AsyncExitStack() as stack:
        for _ in range(chance.randint(1, 40)):
            line = await stack.enter_async_context(stranger.line(target.host, HTTPS))
            hello = _client_hello()
            cut = chance.choice((len(hello), len(hello), chance.randrange(1, len(hello))))
            octets = bytearray(hello[:cut])
            for _ in range(chance.choice((0, 0, 2))):
                octets[chance.randrange(len(octets))] = chance.randrange(256)
            await line.send(bytes(octets))
            if chance.random() < 0.5:
                await line.read(timeout=0.5)  # the manager's part of it
            if chance.random() < 0.2:
                await line.send(chance.randbytes(chance.randint(1, 20_000)))
        await asyncio.sleep(chance.uniform(0.0, 3.0))


ATTACKS = (
    soap_messages,
    soap_messages,
    slow_requests,
    large_requests,
    endless_heads,
    endless_trailers,
    tiny_chunks,
    broken_handshakes,
    without_a_token,
    http_garbage,
)
