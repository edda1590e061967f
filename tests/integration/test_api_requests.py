"""The bytes of requests: in pieces, large, several at a time, or cut off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.served import API, ORDERS, PATIENCE_S, Served, served


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Peer:
    """A client that sends any bytes."""

    def __init__(self, api: Served) -> None:
        self.socket = socket.create_connection((api.server.host, api.server.port), PATIENCE_S)
        self._input = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, bytes]:
        status = int(self._input.readline().split()[1])
        size = 0
        while (line := self._input.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return status, self._input.read(size)

    def close(self) -> None:
        self._input.close()
        self.socket.close()


def bodies(api: Served) -> list[object]:
    return [each.body for each in api.run(api.manager.reads.peek(r"private$\orders", 100, timeout=0))]


def test_a_request_that_comes_in_pieces_is_served_when_it_is_complete(api: Served) -> None:
    peer = Peer(api)
    request = post(f"{ORDERS}/messages", b"in pieces")
    for at in range(len(request)):
        peer.send(request[at : at + 1])
        if at % 20 == 0:
            api.run(asyncio.sleep(0))
    assert peer.answer()[0] == 201
    assert bodies(api) == [b"in pieces"]
    peer.close()


def test_a_large_body_and_a_small_one_after_it(api: Served) -> None:
    peer = Peer(api)
    large = bytes(300_000)
    peer.send(post(f"{ORDERS}/messages", large))
    assert peer.answer()[0] == 201
    assert bodies(api) == [large]
    peer.send(post(f"{ORDERS}/messages", b"small"))
    assert peer.answer()[0] == 201
    assert bodies(api)[1:] == [b"small"]
    peer.close()


def test_a_client_that_wants_to_be_invited_is(api: Served) -> None:
    peer = Peer(api)
    request = post(f"{ORDERS}/messages", b"invited", "Expect: 100-continue")
    peer.send(request.removesuffix(b"invited"))
    assert peer.answer() == (100, b"")
    peer.send(b"invited")
    assert peer.answer()[0] == 201
    assert bodies(api) == [b"invited"]
    peer.close()


def test_requests_that_come_together_are_answered_in_their_order(api: Served) -> None:
    peer = Peer(api)
    sends = [post(f"{ORDERS}/messages", b"%d" % number) for number in range(5)]
    page = post(f"{API}/nothing").replace(b"POST", b"GET")
    peer.send(
        b"".join([*sends, page, post(f"{ORDERS}/receive?count=9&timeout=0"), post(f"{ORDERS}/messages", b"last")])
    )
    assert [peer.answer()[0] for _ in range(8)] == [201] * 5 + [404, 200, 201]
    assert bodies(api) == [b"last"]
    peer.close()


def test_a_client_that_leaves_within_its_body_has_sent_nothing(api: Served) -> None:
    peer = Peer(api)
    peer.send(post(f"{ORDERS}/messages", b"a body that does not end")[:-1])
    peer.close()
    other = Peer(api)
    other.send(post(f"{ORDERS}/messages", b"other"))
    assert other.answer()[0] == 201
    assert bodies(api) == [b"other"]
    other.close()


def test_a_call_that_meets_a_bug_gets_500_and_others_go_on(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    peer = Peer(api)
    with monkeypatch.context() as patch:
        patch.setattr(api.manager.core, "send", fail)
        peer.send(post(f"{ORDERS}/messages", b"one"))
        assert peer.answer()[0] == 500
    peer.close()
    other = Peer(api)
    other.send(post(f"{ORDERS}/messages", b"two"))
    assert other.answer()[0] == 201
    other.close()
