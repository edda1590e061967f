"""The HTTP listener of the SOAP protocol, on a real socket: requests that come slowly, or stop on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from postroad.net import http as accepting
from postroad.net.limits import Limits
from postroad.runtime import supervision
from postroad.soap.listener import Listener

HOST = "127.0.0.1"
HEAD = b"POST /msmq/private$/orders HTTP/1.1\r\nHost: alpha\r\nContent-Length: 4\r\n"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\n"


class App:
    """Answers 200 to what comes whole."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            if event["type"] != "http.request":
                return
            body += event.get("body", b"")
            more = event.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def talk(*pieces: bytes) -> tuple[bytes, list[bytes]]:
    """What the listener answers to these bytes until it closes the connection, and the bodies that it took."""
    app = App()

    async def run() -> bytes:
        listener = Listener(app, Limits(), HOST, 0)
        await listener.start()
        try:
            reader, writer = await asyncio.open_connection(HOST, listener.port)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            return answer
        finally:
            await listener.stop()

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


def test_a_listener_whose_server_ends_listens_again_on_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RETRY_S", 0.01)
    app = App()

    async def run() -> None:
        listener = Listener(app, Limits(), HOST, 0)
        await listener.start()
        port, ended = listener.port, listener._server
        assert ended is not None
        ended.should_exit = True
        async with asyncio.timeout(30):
            while listener._server is ended:  # noqa: ASYNC110  # what is waited for is plain state
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(HEAD + b"Connection: close\r\n\r\nabcd")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
            writer.close()
        await listener.stop()

    asyncio.run(run())
    assert app.bodies == [b"abcd"]
