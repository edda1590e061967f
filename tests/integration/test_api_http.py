"""HTTP as clients of the API see it: HEAD, answers in pieces, connections that end, and what is done at the end."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroad.net.http import MAX_PIPELINED
from tests.served import API, ORDERS, PATIENCE_S, Served, served


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


def raw(api: Served, sent: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        connection.sendall(sent)
        answer = b""
        while more := connection.recv(65536):
            answer += more
        return answer


def get(path: str, version: str = "1.1", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.parametrize("path", ["/healthz", f"{API}/queues", f"{ORDERS}/messages?limit=100000"])
def test_head_has_the_head_alone(api: Served, path: str) -> None:
    api.send(*(str(number) * 100 for number in range(600)))  # more than a page
    connection = api.connect()
    for _ in range(2):  # the second one finds nothing of the first one's body
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.request("GET", path)
    full = connection.getresponse()
    assert full.read()
    assert answer.headers["content-length"] == full.headers["content-length"]
    assert answer.headers["content-type"] == full.headers["content-type"]
    connection.close()


def test_an_answer_in_pieces_ends_with_the_connection_for_an_old_client(api: Served) -> None:
    api.send(*(str(number) * 100 for number in range(600)))
    path = f"{ORDERS}/messages?limit=100000"
    head, _, body = raw(api, get(path, "1.0")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == api.call("GET", path).body


def test_a_slow_reader_gets_the_whole_answer(api: Served) -> None:
    for _ in range(6):
        assert api.call("POST", f"{ORDERS}/messages", body=bytes(3 << 20)).status == 201
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect((api.server.host, api.server.port))
    connection.sendall(get(f"{ORDERS}/messages"))
    time.sleep(0.2)
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert answer.read() == api.call("GET", f"{ORDERS}/messages").body
    connection.close()


def test_a_client_that_leaves_within_an_answer_in_pieces_ends_it(api: Served) -> None:
    for _ in range(8):
        assert api.call("POST", f"{ORDERS}/messages", body=bytes(3 << 20)).status == 201
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        connection.sendall(get(f"{ORDERS}/messages"))
        assert connection.recv(1000)
    for _ in range(1000):
        if not api.manager.limits.connections.current and not api.server._app._serving:
            break
        time.sleep(0.01)
    assert not api.server._app._serving


def test_a_client_that_leaves_at_any_byte_harms_nobody(api: Served) -> None:
    request = f"POST {ORDERS}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody".encode()
    for at in range(len(request)):
        with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
            connection.sendall(request[:at])
    assert api.bodies() == []
    assert raw(api, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
    for _ in range(1000):
        if not api.manager.limits.connections.current:
            break
        time.sleep(0.01)
    assert api.manager.limits.connections.current == api.manager.limits.unfinished_input.current == 0


def test_a_send_whose_client_leaves_before_the_answer_is_made(api: Served) -> None:
    request = f"POST {ORDERS}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody".encode()
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        connection.sendall(request)
    for _ in range(1000):
        if api.bodies():
            break
        time.sleep(0.01)
    assert api.bodies() == ["body"]


def test_a_flood_of_requests_on_one_connection_leaves_others_alone(api: Served) -> None:
    flood = f"GET {API}/queues HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 20_000
    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(_flood, api, flood)
        for _ in range(20):
            assert api.call("GET", "/healthz").status == 200
        assert flooding.result() <= MAX_PIPELINED + 2


def _flood(api: Served, flood: bytes) -> int:
    """How many answers come."""
    answers = 0
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        try:
            connection.sendall(flood)
            while data := connection.recv(1 << 20):
                answers += data.count(b"HTTP/1.1 ")
        except ConnectionError:
            pass
    return answers


def test_the_server_stops_when_the_answer_under_way_is_sent(api: Served) -> None:
    """A waiting read ends at once; an idle connection is closed without a word."""
    idle = api.connect()
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.call, "POST", f"{ORDERS}/receive?timeout=60")
        while not api.manager.core.queues.get(r"private$\orders").waiting:
            time.sleep(0.01)
        api.run(api.server.stop())
        answer = waiting.result()
    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert idle.sock.recv(100) == b""
    idle.close()


@pytest.mark.parametrize(
    "body",
    ["Content-Length: 1000\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"],
)
@pytest.mark.parametrize("call", ["messages", "packets", "receive", "submissions/me/0/0"])
def test_a_server_that_stops_ends_requests_that_are_not_complete(api: Served, call: str, body: str) -> None:
    """Nobody was promised anything for them, so the stop does not wait for the rest."""
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        head = f"POST {ORDERS}/{call} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}{body}".encode())
        while not any(each._current for each in api.server.connections):  # type: ignore[attr-defined]
            time.sleep(0.01)
        api.run(api.server.stop())  # does not wait for the time that work under way has
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the server stops; try again later" in answer


def test_an_answer_under_way_is_sent_before_a_request_that_is_not_complete_ends(api: Served) -> None:
    api.send(*["x" * 1000] * 3000)
    with socket.create_connection((api.server.host, api.server.port), PATIENCE_S) as connection:
        head = f"GET {ORDERS}/messages?limit=3000 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"
        connection.sendall(head.encode())
        answer = connection.recv(100)
        stopping = asyncio.run_coroutine_threadsafe(api.server.stop(), api.loop)
        answer += b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.endswith(b"\r\n0\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    stopping.result(PATIENCE_S)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/%68ealthz", 404), ("/healthz/", 404), ("/healthz?x=%00", 200), ("/%00", 404), ("//healthz", 404)],
)
def test_a_path_is_what_was_sent(api: Served, path: str, status: int) -> None:
    assert raw(api, get(path)).startswith(f"HTTP/1.1 {status} ".encode())
    assert raw(api, get(path, method="OPTIONS")).startswith(f"HTTP/1.1 {405 if status == 200 else 404} ".encode())


def test_the_host_of_a_whole_url_must_be_ours_too(api: Served) -> None:
    assert raw(api, get(f"http://127.0.0.1{API}/manager")).startswith(b"HTTP/1.1 200 ")
    assert raw(api, get(f"http://pages.example{API}/manager")).startswith(b"HTTP/1.1 403 ")
