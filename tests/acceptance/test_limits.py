"""Strangers who connect and say nothing, or begin what they never end, are limited, and others are served."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest

import postroad as client
from postroad.wire import ConnectionParameters, EstablishConnection, decode_packet
from postroad.wire.octets import NULL_GUID
from tests.commands import ServerProcess, postroad, serving

HOST = "127.0.0.22"
LISTENERS = ("binary", "http", "rpc", "api")
PACKET = 0x400000
SLACK_MB = 64  # what reading, allocating and answering take besides what is held
MAX_LOG = 20_000


def configuration(directory: Path, limits: str = "") -> Path:
    file = directory / "target.toml"
    file.write_text(
        f"[manager]\nname = 'target'\n[listen]\nhost = '{HOST}'\nbinary = 0\nping = false\nhttp = 0\nrpc = 0\napi = 0\n"
        f"[[queue]]\npath = 'private$\\q'\n[limits]\n{limits}"
    )
    return file


def connect(server: ServerProcess, listener: str, source: str = "127.0.0.1") -> socket.socket:
    port = int(server.ready["listen"][listener].rpartition(":")[2])
    connection = socket.create_connection((HOST, port), timeout=30, source_address=(source, 0))
    connection.settimeout(30)
    return connection


def open_session(server: ServerProcess, source: str = "127.0.0.1") -> socket.socket:
    connection = connect(server, "binary", source)
    connection.sendall(EstablishConnection(uuid4(), NULL_GUID, 1).encode())
    assert connection.recv(4096)
    connection.sendall(ConnectionParameters(500, 120_000, 64).encode())
    assert connection.recv(4096)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def everybody_is_served(server: ServerProcess) -> None:
    """A new client on each listener gets its answer."""
    with client.connect(server.api) as manager:
        queue = manager.queue(r"private$\q")
        queue.send(b"still here")
        assert queue.receive(timeout=30).body == b"still here"
    open_session(server, "127.0.0.9").close()
    with connect(server, "http", "127.0.0.9") as connection:
        connection.sendall(b"GET /msmq/ HTTP/1.1\r\nHost: target\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 405 ")
    with client.remote(HOST, port=int(server.ready["listen"]["rpc"].rpartition(":")[2])) as manager:
        assert list(manager.queue(r"private$\q").messages()) == []


def times_reached(server: ServerProcess, limit: str) -> int:
    with urlopen(f"{server.api}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return round(float(text.partition(f'postroad_limit_reached_total{{limit="{limit}"}} ')[2].split()[0]))


def test_more_idle_connections_than_descriptors_stop_no_listener(tmp_path: Path) -> None:
    with serving(configuration(tmp_path), descriptors=1024) as server, ExitStack() as stack:
        for number in range(1100):
            listener = LISTENERS[number % len(LISTENERS)]
            stack.enter_context(connect(server, listener, f"127.1.0.{number % 9 + 1}"))
        everybody_is_served(server)
        status = postroad("status", "--json", api=server.api).objects[0]["manager"]["limits"]
        assert status["connections"]["maximum"] == 840  # seven eighths of 1024 less 64; the rest is for calling others
        assert status["connections"]["current"] <= 840
        assert status["connections"]["reached"] >= 1100 - 840
        assert status["descriptors"]["reached"] == 0
        assert times_reached(server, "connections") >= 1100 - 840
        assert "limit reached" in server.log
        assert "Traceback" not in server.log
        assert len(server.log) < MAX_LOG


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    with serving(configuration(tmp_path, "connections_per_address = 20")) as server, ExitStack() as stack:
        opened = [stack.enter_context(connect(server, "binary", "127.1.0.1")) for _ in range(60)]
        assert all(is_closed(connection) for connection in opened[:40])
        assert all(is_open(connection) for connection in opened[40:])
        everybody_is_served(server)
        shown = postroad("status", "--all", api=server.api).text
        assert "connections_per_address 20 of 20" in shown
        assert "the limit connections_per_address of 20 was reached 40 times" in shown


def test_sessions_that_are_open_are_not_closed_for_others(tmp_path: Path) -> None:
    with serving(configuration(tmp_path, "connections = 16")) as server, ExitStack() as stack:
        sessions = [stack.enter_context(open_session(server, f"127.1.0.{each + 1}")) for each in range(16)]
        assert is_closed(stack.enter_context(connect(server, "binary", "127.2.0.1")))
        assert all(is_open(session) for session in sessions)
        sessions.pop().close()
        assert is_open(stack.enter_context(open_session(server, "127.2.0.1")))


# Memory


def unfinished_packet() -> bytes:
    header = struct.pack("<BBH4sII", 0x10, 0, 0, b"LIOR", PACKET, 0xFFFFFFFF)
    return header + bytes(PACKET - len(header) - 1)


def unfinished_request(path: str, size: int, sent: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + bytes(sent)


@pytest.mark.parametrize(
    ("listener", "connections", "data"),
    [
        pytest.param("binary", 60, unfinished_packet, id="packets before a handshake"),
        pytest.param("session", 60, unfinished_packet, id="packets in sessions"),
        pytest.param(
            "http", 60, lambda: unfinished_request("/msmq/private$/q", PACKET, PACKET - 1), id="SOAP requests"
        ),
        pytest.param(
            "api",
            20,
            lambda: unfinished_request("/api/v1/queues/private$/q/packets", 64 << 20, 12 << 20),
            id="API requests",
        ),
    ],
)
def test_unfinished_input_stays_within_its_budget(
    tmp_path: Path, listener: str, connections: int, data: Callable[[], bytes]
) -> None:
    budget_mb = 32
    sent = data()
    with serving(configuration(tmp_path, f"unfinished_input_mb = {budget_mb}")) as server, ExitStack() as stack:
        before = server.memory_mb
        honest = stack.enter_context(open_session(server, "127.0.0.9"))
        honest.sendall(unfinished_packet()[:100_000])
        for _ in range(connections):
            connection = open_session(server) if listener == "session" else connect(server, listener)
            stack.enter_context(connection)
            with suppress(OSError):  # it may be closed on the way
                connection.sendall(sent)
        everybody_is_served(server)
        assert server.most_memory_mb - before < budget_mb + SLACK_MB
        assert is_open(honest)  # whoever holds little is not the one that goes
        if listener != "binary":  # there the session's own limit is enough
            assert times_reached(server, "unfinished_input_bytes") > 0
        assert len(server.log) < MAX_LOG


def test_headers_that_never_end_are_refused(tmp_path: Path) -> None:
    with serving(configuration(tmp_path)) as server:
        for listener, status in (("api", b"431"), ("http", b"400")):
            with connect(server, listener) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + bytes(b"a" * 100_000))
                assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)
            with connect(server, listener) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 300)
                assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
            with connect(server, listener) as connection:
                answers = b""
                with suppress(ConnectionError):
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)
                    while more := connection.recv(65536):
                        answers += more
                assert answers.count(b"HTTP/1.1 ") < 100


def test_a_body_that_is_declared_too_large_is_refused_before_it_comes(tmp_path: Path) -> None:
    with serving(configuration(tmp_path)) as server, connect(server, "api") as connection:
        connection.sendall(unfinished_request("/api/v1/queues/private$/q/messages", 1 << 40, 0))
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.status == 413
        assert b"must have at most" in answer.read()


# Peers that do not read


def test_a_peer_that_does_not_read_cannot_make_us_keep_its_mail_in_memory(tmp_path: Path) -> None:
    """Forty messages of 3 MB wait for it. They stay in the store, not in a buffer."""
    peer = "127.0.0.23"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((peer, 1801)))
        server = stack.enter_context(serving(configuration(tmp_path)))
        manager = stack.enter_context(client.connect(server.api))
        destination = manager.queue(rf"DIRECT=TCP:{peer}\private$\q")
        listener.settimeout(30)
        destination.send(client.Message(b"x", recoverable=True))
        deaf = stack.enter_context(listener.accept()[0])
        request = decode_packet(deaf.recv(4096))
        assert isinstance(request, EstablishConnection)
        before = server.most_memory_mb
        for _ in range(40):
            destination.send(client.Message(bytes(3 << 20), recoverable=True))
        sending = server.most_memory_mb - before
        deaf.sendall(request.response(uuid4()).encode())
        deaf.sendall(deaf.recv(4096))  # its parameters are good enough for us
        assert deaf.recv(1000)  # the first message comes, and nothing more is read
        everybody_is_served(server)
        assert server.most_memory_mb - before - sending < SLACK_MB
        assert sum(queue.messages for queue in manager.queues() if queue.type == "outgoing") == 41
