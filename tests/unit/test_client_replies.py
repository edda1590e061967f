"""The blocking client reads answers of any framing, cut at any byte, and refuses what is not HTTP."""

from __future__ import annotations

import socket
from threading import Thread

import pytest

from postroad.client.exchange import BadAnswer, read_head
from postroad.client.sync.transport import Connection

SIZED = b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
UNTIL_END = b"HTTP/1.1 200 OK\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED


def answered(data: bytes, step: int) -> tuple[int, bytes, bool]:
    """The status and content of an answer that comes in pieces, and whether the connection can be used again."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        theirs.recv(100)
        for start in range(0, len(data), step):
            theirs.sendall(data[start : start + step])
        theirs.close()

    thread = Thread(target=send)
    thread.start()
    connection = Connection(ours)
    try:
        reply = connection.ask(b"request", 10.0)
        return reply.status, reply.read_all(), reply.complete
    finally:
        thread.join()
        connection.close()


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("data", "content", "again"),
    [(SIZED, b"hello", True), (CHUNKED, b"hello", True), (UNTIL_END, b"hello", False), (CONTINUED, b"hello", True)],
)
def test_an_answer_is_read_whole_however_it_is_cut(data: bytes, content: bytes, again: bool, step: int) -> None:
    assert answered(data, step) == (200, content, again)


def test_an_answer_without_content_ends_at_its_head() -> None:
    assert answered(EMPTY, 100) == (204, b"", True)


@pytest.mark.parametrize("data", [SIZED[:-1], CHUNKED[:-1], CHUNKED[:60], EMPTY[:-1], b"SSH-2.0-x\r\n\r\n", b""])
def test_an_answer_that_ends_too_early_or_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        answered(data, 1000)


def test_heads() -> None:
    head = read_head(SIZED.partition(b"\r\n\r\n")[0])
    assert (head.media_type, head.length, head.chunked, head.keep_alive) == ("application/json", 5, False, True)
    assert not read_head(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0").keep_alive
    assert not read_head(b"HTTP/1.0 200 OK\r\nContent-Length: 0").keep_alive


@pytest.mark.parametrize("size", [b"5x", b"-1", b""])
def test_a_length_that_is_no_number_is_refused(size: bytes) -> None:
    with pytest.raises(BadAnswer):
        answered(b"HTTP/1.1 200 OK\r\nContent-Length: " + size + b"\r\n\r\nhello", 1000)


def test_a_head_without_end_is_refused() -> None:
    with pytest.raises(BadAnswer, match="at most"):
        answered(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, 1 << 16)
