"""The same attacks on every listener. A listener that is not in the table fails the first test."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import postroad as client
from postroad.config import ListenSettings
from tests.acceptance.test_limits import (
    HOST,
    PACKET,
    SLACK_MB,
    connect,
    is_closed,
    is_open,
    open_session,
    unfinished_packet,
    unfinished_request,
)
from tests.commands import PATIENCE_S, ServerProcess, serving

BUDGET_MB = 8
PER_ADDRESS = 8
CONNECTIONS = 16
GARBAGE = b"\xde\xad" * 100_000
HEADER = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000


def in_session(server: ServerProcess, source: str) -> None:
    open_session(server, source).close()


def reads(server: ServerProcess, source: str) -> None:
    with client.remote(HOST, port=int(server.ready["listen"]["rpc"].rpartition(":")[2])) as manager:
        assert list(manager.queue(r"private$\q").messages()) == []


def greets(server: ServerProcess, source: str) -> None:
    with connect(server, "amqp", source) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(SASL)
        assert connection.recv(len(SASL), socket.MSG_WAITALL) == SASL


def answers(door: str, path: str, status: int) -> Callable[[ServerProcess, str], None]:
    def ask(server: ServerProcess, source: str) -> None:
        host, _, port = server.ready["listen"][door].rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S, source_address=(source, 0))
        connection.request("GET", path)
        assert connection.getresponse().status == status
        connection.close()

    return ask


@dataclass(frozen=True)
class Door:
    """`serves` sends an honest request. `unfinished` is most of one large input, `endless` a head that does not end,
    `slow` the beginning of something that never continues."""

    serves: Callable[[ServerProcess, str], None]
    unfinished: bytes
    endless: bytes
    slow: bytes
    too_large: bytes | None = None


def amqp_frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), 2, kind, 0) + body


SASL = b"AMQP\x03\x01\0\0"
AMQP_OPENED = (
    SASL
    + amqp_frame(1, b"\0\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS")
    + b"AMQP\0\x01\0\0"
    + amqp_frame(0, b"\0\x53\x10\xc0\x04\x01\xa1\x01x")
)
RPC_HEAD = struct.pack("<BBBB4sHHI", 5, 0, 11, 3, b"\x10\0\0\0", 0xFFFF, 0, 1)
DOORS = {
    "binary": Door(in_session, unfinished_packet(), GARBAGE, b"\x10\0"),
    "rpc": Door(reads, RPC_HEAD + bytes(0xF000), GARBAGE, RPC_HEAD[:7]),
    "http": Door(
        answers("http", "/msmq/", 405),
        unfinished_request("/msmq/private$/q", PACKET, PACKET - 1),
        HEADER,
        b"POST /msmq/private$/q HTTP/1.1\r\nHost: x\r\n",
        unfinished_request("/msmq/private$/q", 1 << 40, 0),
    ),
    "api": Door(
        answers("api", "/healthz", 200),
        unfinished_request("/api/v1/queues/private$/q/packets", 64 << 20, 12 << 20),
        HEADER,
        b"POST /api/v1/queues HTTP/1.1\r\nHost: x\r\n",
        unfinished_request("/api/v1/queues/private$/q/messages", 1 << 40, 0),
    ),
    "console": Door(
        answers("console", "/healthz", 200),
        unfinished_request("/login", 12 << 20, (12 << 20) - 1),
        HEADER,
        b"POST /login HTTP/1.1\r\nHost: x\r\n",
        unfinished_request("/login", 1 << 40, 0),
    ),
    "amqp": Door(
        greets,
        AMQP_OPENED + struct.pack(">IBBH", 1 << 16, 2, 0, 0) + bytes(60_000),
        GARBAGE,
        SASL[:5],
        AMQP_OPENED + struct.pack(">IBBH", 1 << 30, 2, 0, 0) + bytes(100_000),
    ),
}
# These have the core or the protocol of another listener, or no connections.
SAME = {"https": "http", "rpc_read": "rpc", "epm": "rpc", "ping": None}


@contextmanager
def attacked(directory: Path, limits: str = "") -> Iterator[ServerProcess]:
    file = directory / "target.toml"
    ports = "".join(f"{name} = 0\n" for name in DOORS)
    file.write_text(
        f"[manager]\nname = 'target'\n[listen]\nhost = '{HOST}'\nping = false\n{ports}"
        f"[[queue]]\npath = 'private$\\q'\n[limits]\n{limits}"
    )
    with serving(file) as server:
        DOORS["console"].serves(server, "127.0.0.9")  # it accepts a little later than the others
        yield server


def memory_mb(server: ServerProcess, door: str) -> float:
    """The most memory that the process behind the listener has had. The console is a process of its own."""
    if door != "console":
        return server.most_memory_mb
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            text = status.read_text()
            if int(text.partition("PPid:")[2].split()[0]) == server.pid:
                return int(text.partition("VmHWM:")[2].split()[0]) / 1024
    raise AssertionError("the console does not run")


def test_no_listener_is_missing() -> None:
    listed = {each.name for each in fields(ListenSettings)} - {"host"}
    assert listed == {*DOORS, *SAME}


@pytest.mark.parametrize("door", DOORS)
def test_one_address_has_a_share_of_the_connections(tmp_path: Path, door: str) -> None:
    with attacked(tmp_path, f"connections_per_address = {PER_ADDRESS}") as server, ExitStack() as stack:
        opened = [stack.enter_context(connect(server, door, "127.1.0.1")) for _ in range(20)]
        assert all(is_closed(each) for each in opened[:-PER_ADDRESS])
        assert all(is_open(each) for each in opened[-PER_ADDRESS:])
        DOORS[door].serves(server, "127.0.0.9")


@pytest.mark.parametrize("door", DOORS)
def test_idle_connections_give_way(tmp_path: Path, door: str) -> None:
    with attacked(tmp_path, f"connections = {CONNECTIONS}") as server, ExitStack() as stack:
        opened = [stack.enter_context(connect(server, door, f"127.1.0.{n % 9 + 1}")) for n in range(60)]
        DOORS[door].serves(server, "127.0.0.9")
        assert sum(is_open(each) for each in opened) <= CONNECTIONS


@pytest.mark.parametrize("door", DOORS)
def test_unfinished_input_has_a_budget(tmp_path: Path, door: str) -> None:
    with attacked(tmp_path, f"unfinished_input_mb = {BUDGET_MB}") as server, ExitStack() as stack:
        before = memory_mb(server, door)
        for n in range(60):
            connection = stack.enter_context(connect(server, door, f"127.1.0.{n % 9 + 1}"))
            with suppress(OSError):  # it may be closed on the way
                connection.sendall(DOORS[door].unfinished)
        DOORS[door].serves(server, "127.0.0.9")
        assert memory_mb(server, door) - before < BUDGET_MB + SLACK_MB


@pytest.mark.parametrize("door", DOORS)
def test_what_is_too_large_is_refused_before_it_comes(tmp_path: Path, door: str) -> None:
    with attacked(tmp_path) as server:
        for data in filter(None, (DOORS[door].endless, DOORS[door].too_large)):
            with connect(server, door) as connection:
                found = b""
                with suppress(ConnectionError):
                    connection.sendall(data)
                    while not found.startswith(b"HTTP/") and (more := connection.recv(65536)):
                        found += more
                assert not found.startswith(b"HTTP/") or found[9:12] in (b"400", b"413", b"431")
        DOORS[door].serves(server, "127.0.0.9")


def test_who_is_silent_or_slow_is_closed_at_every_door(tmp_path: Path) -> None:
    with attacked(tmp_path) as server, ExitStack() as stack:
        kinds = [(name, data) for name, door in DOORS.items() for data in (b"", door.slow)]
        opened: list[tuple[str, bytes, socket.socket]] = []
        for name, data in kinds:
            connection = stack.enter_context(connect(server, name))
            connection.sendall(data)
            connection.settimeout(3 * PATIENCE_S)
            opened.append((name, data, connection))
        for name, data, connection in opened:
            found = b""
            with suppress(ConnectionError):
                while more := connection.recv(65536):
                    found += more
            assert not found or found[9:12] in (b"400", b"408"), (name, data)
        for door in DOORS.values():
            door.serves(server, "127.0.0.9")


def test_wrong_logins_at_the_console_lock_nobody_else_out(tmp_path: Path) -> None:
    token = "a-token-that-is-long-enough"
    file = tmp_path / "target.toml"
    file.write_text(
        f"[manager]\nname = 'target'\n[listen]\nhost = '{HOST}'\nbinary = false\nhttp = false\nrpc = false\n"
        f"ping = false\napi = 0\nconsole = 0\n[api]\ntoken = '{token}'\n"
        "[[user]]\nname = 'ann'\npassword = 'correct horse'\n"
    )
    with serving(file) as server:
        for _ in range(5):
            assert log_in(server, "127.1.0.1", "wrong") == 401
        with client.connect(server.api, token=token) as manager:
            assert {each.get("from") for each in refusals(server, token)} == {"127.1.0.1"}
            assert log_in(server, "127.1.0.2", "correct horse") == 303
            assert list(manager.queues())


def log_in(server: ServerProcess, source: str, password: str) -> int:
    host, _, port = server.ready["listen"]["console"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S, source_address=(source, 0))
    try:
        connection.request("GET", "/login")
        page = connection.getresponse()
        text, cookie = page.read().decode(), (page.getheader("Set-Cookie") or "").partition(";")[0]
        csrf = text.partition('name="csrf" value="')[2].partition('"')[0]
        body = f"csrf={csrf}&user=ann&password={password.replace(' ', '+')}"
        connection.request("POST", "/login", body, {"Cookie": cookie})
        return connection.getresponse().status
    finally:
        connection.close()


def refusals(server: ServerProcess, token: str) -> list[dict[str, object]]:
    request = Request(f"{server.api}/api/v1/audit", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=PATIENCE_S) as answer:
        events: list[dict[str, object]] = json.load(answer)["events"]
    return [each for each in events if each["what"] == "login refused"]
