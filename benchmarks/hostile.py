"""What strangers cost a running queue manager: its memory, log and answers under attack. `make bench-hostile`.

Each measurement is one function, which starts a new manager. A table at the end has all results.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from uuid import uuid4

from benchmarks.harness import print_table
from postroad.wire import ConnectionParameters, EstablishConnection
from postroad.wire.octets import NULL_GUID
from tests.commands import ServerProcess, serving

HOST = "127.0.0.43"
CONFIGURATION = f"""
[manager]
name = "target"
[listen]
host = "{HOST}"
binary = 0
ping = false
http = 0
rpc = 0
api = 0
[[queue]]
path = 'private$\\q'
"""
ATTACKERS = 200
API_ATTACKERS = 60
PACKET = 0x400000  # the largest possible packet
API_BODY = 64 << 20  # the largest possible body
API_SENT = 19 << 20  # bytes that each attacker sends
IDLE = 1100
SOURCES = 9  # addresses that the attackers use
DESCRIPTORS = 1024
LISTENERS = ("binary", "http", "rpc", "api")
HONEST_CALLS = 20
CALL_TIMEOUT_S = 5.0
SETTLE_S = 2.0

Row = tuple[str, str]


@contextmanager
def target(descriptors: int | None = None) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "target.toml"
        file.write_text(CONFIGURATION)
        with serving(file, descriptors=descriptors) as server:
            yield server


def connect(server: ServerProcess, listener: str, source: str = HOST) -> socket.socket:
    port = int(server.ready["listen"][listener].rpartition(":")[2])
    connection = socket.create_connection((HOST, port), timeout=CALL_TIMEOUT_S, source_address=(source, 0))
    connection.settimeout(CALL_TIMEOUT_S)
    return connection


def answered(server: ServerProcess, calls: int = HONEST_CALLS) -> int:
    """Makes some honest calls, each from a separate client. Returns how many get an answer."""
    good = 0
    for _ in range(calls):
        address = server.ready["listen"]["api"]
        with closing(HTTPConnection(address, timeout=CALL_TIMEOUT_S)) as connection, suppress(HTTPException, OSError):
            connection.request("POST", "/api/v1/queues/private$/q/messages", b"still here")
            good += connection.getresponse().status == HTTPStatus.CREATED
    return good


# Memory


def unfinished(listener: str, connections: int, sent: bytes, handshake: bool = False) -> list[Row]:
    """Every connection sends the beginning of something large, and waits."""
    with target() as server, ExitStack() as stack:
        before = server.memory_mb
        for _ in range(connections):
            with suppress(OSError):
                connection = stack.enter_context(connect(server, listener))
                if handshake:
                    connection.sendall(EstablishConnection(uuid4(), NULL_GUID, 1).encode())
                    connection.recv(4096)
                    connection.sendall(ConnectionParameters(500, 120_000, 64).encode())
                    connection.recv(4096)
                connection.sendall(sent)
        time.sleep(SETTLE_S)
        good = answered(server)
        return [
            ("MB before", f"{before:.0f}"),
            ("MB at most", f"{server.most_memory_mb:.0f}"),
            ("answered calls", f"{good} of {HONEST_CALLS}"),
        ]


def binary_before_the_handshake() -> list[Row]:
    header = struct.pack("<BBH4sII", 0x10, 0, 0, b"LIOR", PACKET, 0xFFFFFFFF)
    return unfinished("binary", ATTACKERS, header + bytes(PACKET - len(header) - 1))


def binary_in_sessions() -> list[Row]:
    header = struct.pack("<BBH4sII", 0x10, 0, 0, b"LIOR", PACKET, 0xFFFFFFFF)
    return unfinished("binary", ATTACKERS, header + bytes(PACKET - len(header) - 1), handshake=True)


def soap_requests() -> list[Row]:
    head = (
        f"POST /msmq/private$/q HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: text/xml\r\nContent-Length: {PACKET}\r\n\r\n"
    )
    return unfinished("http", ATTACKERS, head.encode() + bytes(PACKET - 1))


def api_requests() -> list[Row]:
    path = "/api/v1/queues/private$/q/packets"
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {API_BODY}\r\n\r\n"
    return unfinished("api", API_ATTACKERS, head.encode() + bytes(API_SENT))


# Descriptors


def idle_connections() -> list[Row]:
    with target(DESCRIPTORS) as server, ExitStack() as stack:
        before = len(server.log)
        for number in range(IDLE):
            with suppress(OSError):
                source = f"127.1.0.{number % SOURCES + 1}"
                stack.enter_context(connect(server, LISTENERS[number % len(LISTENERS)], source))
        time.sleep(SETTLE_S)
        good = answered(server)
        log = len(server.log) - before
        return [
            ("answered calls", f"{good} of {HONEST_CALLS}"),
            ("bytes of log", f"{log:,}"),
        ]


MEASUREMENTS: tuple[tuple[str, Callable[[], list[Row]]], ...] = (
    (f"{ATTACKERS} unfinished packets before a handshake", binary_before_the_handshake),
    (f"{ATTACKERS} unfinished packets in open sessions", binary_in_sessions),
    (f"{ATTACKERS} unfinished SOAP requests", soap_requests),
    (f"{API_ATTACKERS} unfinished API requests", api_requests),
    (f"{IDLE} idle connections, {DESCRIPTORS} descriptors", idle_connections),
)


def main() -> None:
    rows = [(what, *row) for what, measure in MEASUREMENTS for row in measure()]
    print_table("A queue manager under attack", ("attack", "figure", "value"), rows)


if __name__ == "__main__":
    main()
