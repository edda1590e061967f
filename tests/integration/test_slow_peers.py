"""Peers that send a request slowly, do not read an answer, or say nothing: on real sockets, with short time-outs."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from postroad.api import ApiServer, TlsFiles
from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Received, singly
from postroad.config import default_configuration, load_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.net import http as accepting
from postroad.net import listening
from postroad.net.limits import Limits
from postroad.server.server import Server
from postroad.store import MemoryStore
from postroad.wire.view import MessageView
from tests.certificates import Authority
from tests.served import ORDERS, PATIENCE_S, Served, served
from tests.unit.binary.link import STRANGER

POST = f"POST {ORDERS}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with served() as running:
        running.create()
        monkeypatch.setattr(accepting, "REQUEST_S", 0.5)
        monkeypatch.setattr(listening, "UNREAD_S", 0.2)
        yield running


def connect(api: Served) -> socket.socket:
    connection = socket.create_connection((api.server.host, api.server.port), timeout=PATIENCE_S)
    connection.settimeout(PATIENCE_S)
    return connection


def until(condition: Callable[[], bool]) -> None:
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


def trickle(connection: socket.socket, data: bytes, end: bytes = b"") -> bytes:
    """Sends a byte at a time until an answer comes; then, if none does, `end` after a while."""
    answer = b""
    connection.settimeout(0.02)
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
            answer = connection.recv(65536)
            break
        except TimeoutError:
            continue
        except ConnectionError:
            return answer
    connection.settimeout(PATIENCE_S)
    if end and not answer:
        connection.sendall(end)
    try:
        while more := connection.recv(65536):
            answer += more
    except ConnectionError:
        pass
    return answer


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"", id="headers"),
        pytest.param(POST + b"Content-Length: 1000\r\n\r\n", id="a body of a known length"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n", id="a body in chunks"),
    ],
)
def test_a_request_to_the_api_that_trickles_is_ended(api: Served, start: bytes) -> None:
    with connect(api) as connection:
        connection.sendall(start)
        answer = trickle(connection, b"GET / HTTP/1.1\r\nX: " + b"a" * 980)
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert answer.endswith(b"the request was not complete in time\n")
    assert api.manager.limits.requests.reached == 1
    assert api.bodies() == []
    until(lambda: api.manager.limits.connections.current == 0)


def test_empty_lines_do_not_keep_a_connection(api: Served) -> None:
    with connect(api) as connection:
        assert trickle(connection, b"\r\n" * 1000) == b""


def test_a_large_request_has_the_time_that_it_needs(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "BYTES_PER_S", 1)
    with connect(api) as connection:
        connection.sendall(POST + b"Connection: close\r\nContent-Length: 60\r\n\r\n")
        assert trickle(connection, b"a" * 59, b"a").startswith(b"HTTP/1.1 201 ")
    assert api.bodies() == ["a" * 60]


def test_a_client_that_takes_no_answer_is_dropped(api: Served) -> None:
    for _ in range(8):
        assert api.call("POST", f"{ORDERS}/messages", body=bytes(4 << 20)[:-4096]).status == 201
    limits = api.manager.limits
    with connect(api) as deaf:
        deaf.sendall(f"GET {ORDERS}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        until(lambda: limits.unread_output.reached == 1)
        until(lambda: limits.connections.current == 0)
    assert api.call("GET", "/healthz").status == 200


def test_connections_in_a_tls_handshake_count(tmp_path: Path) -> None:
    """They never reach the HTTP protocol, but they count and make room all the same."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("127.0.0.1")

    async def run() -> None:
        limits = Limits(connections=4)
        manager = build_manager(default_configuration("alpha"), MemoryStore(), limits=limits)
        await manager.start()
        server = ApiServer(manager, port=0, tls=TlsFiles(certificate, key))
        await server.start()
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(10)]
        context = ssl.create_default_context(cafile=str(authority.file))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).startswith(b"HTTP/1.1 200 ")
        assert limits.connections.reached >= 7
        for each, _ in silent[:6]:
            assert await asyncio.wait_for(each.read(), PATIENCE_S) == b""
        for _, other in [*silent, (reader, writer)]:
            other.close()
        await server.stop()
        await manager.stop()

    asyncio.run(run())


def test_peers_that_leave_in_the_tls_handshake_leave_no_buffers_to_the_garbage_collector(tmp_path: Path) -> None:
    """Each connection has a quarter of a megabyte of them, and the collector comes seldom."""
    certificate, key = Authority(tmp_path).issue("127.0.0.1")

    async def run() -> None:
        limits = Limits()
        manager = build_manager(default_configuration("alpha"), MemoryStore(), limits=limits)
        await manager.start()
        server = ApiServer(manager, port=0, tls=TlsFiles(certificate, key))
        await server.start()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"\x16\x03\x01")
                writer.close()
                await writer.wait_closed()
            while limits.connections.current:  # noqa: ASYNC110  # the limits have no event
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            assert sum(isinstance(each, SSLProtocol) for each in gc.get_objects()) < 5
        finally:
            gc.enable()
        await server.stop()
        await manager.stop()

    asyncio.run(run())


# The binary protocol

CONFIGURATION = """
[manager]
name = "alpha"
[listen]
host = "127.0.20.71"
binary = 0
ping = false
http = false
rpc = false
api = false
[binary]
retry_connect_s = 0.05
"""
PEER = "127.0.20.72"


class Peer:
    """Takes its mail; on its first connection it reads nothing after the handshake, and the manager's patience is short
    there alone: on a busy machine an honest peer may be slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.set_patience = partial(monkeypatch.setattr, listening, "UNREAD_S")
        self.labels: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await self._take(reader, writer)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        deaf = self.calls == 1
        self.set_patience(0.2 if deaf else PATIENCE_S)
        session = Session.accept(STRANGER, BinarySettings(), time.time())
        while not (deaf and session.opened_at) and (data := await reader.read(65536)):
            session.receive_data(data, time.time())
            for event in singly(session.events()):
                if isinstance(event, Received):
                    if isinstance(event.packet, MessageView):
                        self.labels.add(event.packet.label)
                    session.stored(event.number, time.time())
            writer.write(session.data_to_send())
        if deaf:
            transport = writer.transport
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            await asyncio.sleep(PATIENCE_S)


def test_a_session_whose_peer_does_not_read_ends_and_its_mail_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIGURATION)
    labels = {f"message {number}" for number in range(8)}

    async def run() -> None:
        peer = Peer(monkeypatch)
        listener = await asyncio.start_server(peer.serve, PEER, 1801)
        server = Server(load_configuration(file))
        await server.start()
        manager = server.manager
        assert manager is not None
        messages = [Message(bytes(3 << 20), label=label, recoverable=True) for label in sorted(labels)]
        await manager.send(rf"DIRECT=TCP:{PEER}\private$\q", messages)
        async with asyncio.timeout(PATIENCE_S):
            while peer.labels != labels:  # noqa: ASYNC110  (the peer is another program)
                await asyncio.sleep(0.01)
        assert manager.limits.unread_output.reached == 1
        assert manager.limits.outgoing_connections.current == 1
        assert peer.calls == 2
        await server.stop()
        listener.close()

    asyncio.run(run())


# A process without descriptors

STARVED = """
import asyncio
from postroad.net.limits import Limits
from postroad.net.listening import Connection, Listener
from postroad.runtime.logs import start_logging

class Echo(Connection):
    def data_received(self, data):
        self.transport.write(data)

async def main():
    start_logging()
    limits = Limits()  # which knows nothing of the process's limit
    listener = Listener("echo", limits, Echo, "127.0.0.1", 0)
    await listener.start()
    print(listener.port, flush=True)
    await asyncio.to_thread(input)
    print(limits.descriptors.reached, limits.connections.current, flush=True)
    await asyncio.to_thread(input)

asyncio.run(main())
"""


def test_a_process_without_descriptors_left_waits_and_goes_on() -> None:
    command = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", sys.executable, "-c", STARVED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        port = int(child.stdout.readline())
        with ExitStack() as stack:
            connections = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
                for _ in range(60)
            ]
            connections[0].sendall(b"early")
            assert connections[0].recv(100) == b"early"
            child.stdin.write("\n")
            child.stdin.flush()
            reached, current = map(int, child.stdout.readline().split())
            assert reached > 0
            assert current < 40
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"late")
            assert connection.recv(100) == b"late"
        _, errors = child.communicate("\n", timeout=PATIENCE_S)
    assert errors.count("limit reached") == 1
    assert "Traceback" not in errors
    assert len(errors) < 1000
