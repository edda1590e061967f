"""The HTTP listener of the SOAP protocol, on a real socket: requests that come slowly, or stop on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from postroad.net import http as accepting
from postroad.net.exchange import Request
from postroad.net.http import HttpConnection
from postroad.net.limits import Limits
from postroad.net.listening import Listener
from postroad.soap.receiver import Incoming
from postroad.soap.transport import SoapApp

HOST = "127.0.0.1"
PATH = b"/msmq/private$/orders"
HEAD = b"POST " + PATH + b" HTTP/1.1\r\nHost: alpha\r\nContent-Length: 4\r\n"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


class App(SoapApp):
    """Answers 200 to what comes whole, at once or when `answer` is called, and 400 to the head of a request with
    another path."""

    def __init__(self, *, later: bool = False) -> None:
        self.bodies: list[bytes] = []
        self.incompletes = 0
        self._later = later
        self._answers: asyncio.Queue[Callable[[int], None]] = asyncio.Queue()

    def refusal(self, request: Request) -> int | None:
        return None if request.path == PATH.decode() else 400

    def incomplete(self, request: Request) -> None:
        self.incompletes += 1

    def take(self, incoming: Incoming, answer: Callable[[int], None]) -> None:
        self.bodies.append(incoming.body)
        if self._later:
            self._answers.put_nowait(answer)
        else:
            answer(200)

    async def answer(self, status: int = 200) -> None:
        """To the request that has waited longest; waits for one."""
        (await asyncio.wait_for(self._answers.get(), 30))(status)


@asynccontextmanager
async def connected(app: App) -> AsyncIterator[tuple[Listener, asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = Listener("http", Limits(), partial(HttpConnection, app), HOST, 0, grace_s=5)
    await listener.start()
    try:
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        async with asyncio.timeout(30):
            yield listener, reader, writer
        writer.close()
    finally:
        await listener.stop()


def protocol_of(listener: Listener) -> HttpConnection:
    """The listener's end of the only connection."""
    (found,) = listener.connections
    assert isinstance(found, HttpConnection)
    return found


def talk(*pieces: bytes) -> tuple[bytes, list[bytes]]:
    """What the listener answers to these bytes until it closes the connection, and the bodies that it took."""
    app = App()

    async def run() -> bytes:
        async with connected(app) as (_, reader, writer):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read()

    coroutine: Coroutine[Any, Any, bytes] = run()
    return asyncio.run(coroutine), app.bodies


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "REQUEST_S", 0.5)
    monkeypatch.setattr(accepting, "KEEP_ALIVE_S", 0.5)


@pytest.mark.parametrize("sent", [b"POST /msm", HEAD, HEAD + b"\r\n", HEAD + b"\r\nab"])
def test_a_request_that_never_ends_is_answered_with_400_and_the_connection_closed(sent: bytes) -> None:
    answer, bodies = talk(sent)
    assert answer.startswith(BAD_REQUEST)
    assert answer.endswith(b"\r\n\r\n")
    assert bodies == []


def test_a_connection_on_which_nothing_comes_is_closed_without_a_word() -> None:
    assert talk() == (b"", [])


def test_requests_before_the_quiet_are_answered() -> None:
    answer, bodies = talk(HEAD + b"\r\nabcd", HEAD, b"\r\nef", b"gh")
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert BAD_REQUEST not in answer
    assert bodies == [b"abcd", b"efgh"]


def test_after_an_answer_a_request_that_stops_is_told_so() -> None:
    answer, bodies = talk(HEAD + b"\r\nabcd", HEAD)
    assert (answer.count(b"HTTP/1.1 200 OK"), answer.count(BAD_REQUEST)) == (1, 1)
    assert bodies == [b"abcd"]


def test_requests_that_come_together_are_taken_and_answered_one_after_the_other() -> None:
    app = App(later=True)

    async def run() -> None:
        async with connected(app) as (_, reader, writer):
            writer.write(HEAD + b"\r\nabcd" + HEAD + b"\r\nefgh" + HEAD + b"Connection: close\r\n\r\nijkl")
            await app.answer(500)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
            assert app.bodies == [b"abcd", b"efgh"]
            await app.answer()
            await app.answer()
            rest = await reader.read()
            assert rest.count(OK) == 2
            assert rest.count(b"connection: close\r\n") == 1

    asyncio.run(run())
    assert app.bodies == [b"abcd", b"efgh", b"ijkl"]


@pytest.mark.parametrize(
    "first",
    [
        b"GET /other HTTP/1.1\r\nHost: alpha\r\n\r\n",
        b"POST " + PATH + b" HTTP/1.0\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Connection: close\r\n\r\nabcd",
    ],
)
def test_what_stands_behind_the_last_request_of_a_connection_is_not_taken(first: bytes) -> None:
    answer, bodies = talk(first + HEAD + b"\r\nefgh")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close\r\n" in answer
    assert b"efgh" not in bodies


def test_a_body_is_asked_for_when_all_requests_before_it_are_answered() -> None:
    app = App(later=True)

    async def run() -> None:
        async with connected(app) as (_, reader, writer):
            writer.write(HEAD + b"Expect: 100-continue\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"abcd" + HEAD + b"Expect: 100-continue\r\n\r\n")
            await app.answer()
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(OK)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"efgh")
            await app.answer()
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(OK)

    asyncio.run(run())
    assert app.bodies == [b"abcd", b"efgh"]


def test_a_peer_that_does_not_read_its_answers_has_no_request_taken() -> None:
    app = App()

    async def run() -> None:
        async with connected(app) as (listener, reader, writer):
            writer.write(HEAD + b"\r\nabcd")
            await reader.readuntil(b"\r\n\r\n")
            protocol = protocol_of(listener)
            protocol.pause_writing()
            writer.write(HEAD + b"\r\nefgh")
            while not protocol._waiting:  # noqa: ASYNC110  # what is waited for is plain state
                await asyncio.sleep(0.01)
            assert app.bodies == [b"abcd"]
            protocol.resume_writing()
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(OK)

    asyncio.run(run())
    assert app.bodies == [b"abcd", b"efgh"]


def test_a_listener_that_stops_answers_what_it_has_taken_and_nothing_behind_it() -> None:
    app = App(later=True)

    async def run() -> None:
        async with connected(app) as (listener, reader, writer):
            writer.write(HEAD + b"\r\nabcd" + HEAD + b"\r\nefgh")
            while not app.bodies:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(listener.stop())
            while not protocol_of(listener)._stopping:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await app.answer()
            answer = await reader.read()
            assert answer.count(b"HTTP/1.1 ") == 1
            assert b"connection: close\r\n" in answer
            await stopping

    asyncio.run(run())
    assert app.bodies == [b"abcd"]


def test_a_listener_that_stops_ends_a_request_that_is_not_complete_so_that_its_sender_tries_again() -> None:
    """After a 400 the sender would give the message up."""
    app = App(later=True)

    async def run() -> bytes:
        async with connected(app) as (listener, reader, writer):
            writer.write(HEAD + b"\r\nab")
            while not listener.connections or protocol_of(listener)._current is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(listener.stop())
            answer = await reader.read()
            await stopping
            return answer

    assert asyncio.run(run()).startswith(b"HTTP/1.1 503 ")
    assert app.bodies == []


def test_an_answer_to_a_peer_that_has_gone_is_dropped() -> None:
    app = App(later=True)

    async def run() -> None:
        async with connected(app) as (listener, _, writer):
            writer.write(HEAD + b"\r\nabcd")
            while not app.bodies:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            protocol = protocol_of(listener)
            writer.transport.abort()
            while not protocol.transport.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await app.answer()
            assert protocol._current is None

    asyncio.run(run())
    assert (app.bodies, app.incompletes) == ([b"abcd"], 0)


def test_too_many_headers_end_the_connection() -> None:
    answer, bodies = talk(HEAD + b"x: y\r\n" * accepting.MAX_HEADERS)
    assert answer.startswith(BAD_REQUEST)
    assert bodies == []


def test_too_many_requests_at_a_time_end_the_connection_when_those_before_are_answered() -> None:
    app = App(later=True)

    async def run() -> bytes:
        async with connected(app) as (_, reader, writer):
            writer.write((HEAD + b"\r\nabcd") * (accepting.MAX_PIPELINED + 2))
            for _ in range(accepting.MAX_PIPELINED + 1):
                await app.answer()
            return await reader.read()

    answer = asyncio.run(run())
    assert answer.count(OK) == accepting.MAX_PIPELINED + 1
    assert answer.rpartition(b"HTTP/1.1 ")[2].startswith(b"400 ")
    assert len(app.bodies) == accepting.MAX_PIPELINED + 1
