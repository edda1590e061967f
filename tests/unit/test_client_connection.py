"""One connection of the async client, with a server that sends given bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from postroad.client import exchange
from postroad.client.aio.transport import Connection
from postroad.client.exchange import MAX_HEAD, BadAnswer

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2;x\r\nbc\r\n0\r\nTrailer: 1\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nabc"


async def asked(answers: Sequence[bytes], *, closes: bool = False, timeout: float | None = 20) -> list[object]:
    """What each request on one connection gets. The server sends each answer byte by byte, in separate reads."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"!")
            for at in range(len(answer)):
                writer.write(answer[at : at + 1])
                await writer.drain()
                await asyncio.sleep(0)
        if not closes:
            await pieces.get()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    found: list[object] = []
    try:
        for _ in answers:
            try:
                head, content = await connection.ask(b"request!", timeout)
                found.append((head.status, content))
            except OSError as fault:
                found.append(fault)
    finally:
        connection.close()
        pieces.put_nowait(b"")
        server.close()
    return found


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN])
def test_an_answer_is_read_to_its_end_and_the_next_one_follows(answer: bytes) -> None:
    assert asyncio.run(asked([answer, answer, PLAIN])) == [(200, b"abc")] * 3


def test_an_answer_may_end_with_the_connection() -> None:
    assert asyncio.run(asked([TO_THE_END], closes=True)) == [(200, b"abc")]


@pytest.mark.parametrize("answer", [PLAIN[:-1], CHUNKED[:-2], PLAIN[:20], b""])
def test_an_answer_that_breaks_off_is_none(answer: bytes) -> None:
    (fault,) = asyncio.run(asked([answer], closes=True))
    assert isinstance(fault, ConnectionError)


@pytest.mark.parametrize(
    "answer",
    [
        b"SMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * (MAX_HEAD + 1),
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * MAX_HEAD + b"\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(answer: bytes) -> None:
    (fault,) = asyncio.run(asked([answer]))
    assert isinstance(fault, BadAnswer)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 200,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 1000,
    ],
)
def test_an_answer_that_would_fill_the_memory_is_refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER", 1000)
    (fault,) = asyncio.run(asked([answer]))
    assert isinstance(fault, BadAnswer)


def test_a_silent_server_is_given_up() -> None:
    (fault,) = asyncio.run(asked([PLAIN[:-1]], timeout=0.05))
    assert isinstance(fault, TimeoutError)


@pytest.mark.parametrize("apart", [False, True])
def test_a_connection_that_gets_something_unasked_cannot_be_used_again(apart: bool) -> None:
    async def main() -> None:
        left = asyncio.Event()  # the client has closed the connection

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"!")
            writer.write(PLAIN if apart else PLAIN + b"HTTP/1.1 408")
            if apart:
                await reader.readuntil(b".")
                writer.write(b"HTTP/1.1 408")
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            left.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        transport, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
        assert (await connection.ask(b"request!", 20))[1] == b"abc"
        assert connection.ended is not apart
        transport.write(b".")
        async with asyncio.timeout(20):
            await left.wait()
        with pytest.raises(BadAnswer):
            await connection.ask(b"request!", 20)
        server.close()

    asyncio.run(main())
