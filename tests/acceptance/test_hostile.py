"""Peers that are hostile or broken. Each ends only its own session, and the manager continues."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

import postroad as client
from postroad.message import Composer, Signature
from postroad.names import parse_format_name
from postroad.security.signatures import attach, hash_input, sign, signature_of
from postroad.wire import ConnectionParameters, EstablishConnection, SessionAck, SessionHeader
from postroad.wire.framer import Framer
from postroad.wire.octets import NULL_GUID
from postroad.wire.patch import without_local_part
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests.commands import ServerProcess, serving
from tests.security_vectors import CERTIFICATE, SENDER, SIGNED_3_0
from tests.vectors import FRAME_7

HOST = "127.0.0.21"
CONFIGURATION = f"""
[manager]
name = "target"
[listen]
host = "{HOST}"
binary = 0
ping = false
api = 0
[[queue]]
path = 'private$\\q'
"""
MAX_GROWTH_MB = 200


@dataclass
class Target:
    server: ServerProcess

    @property
    def port(self) -> int:
        return int(self.server.ready["listen"]["binary"].rpartition(":")[2])

    def connect(self) -> socket.socket:
        connection = socket.create_connection((HOST, self.port), timeout=30)
        connection.settimeout(30)
        return connection

    def open_session(self) -> socket.socket:
        """A connection after the handshake."""
        connection = self.connect()
        connection.sendall(EstablishConnection(uuid4(), NULL_GUID, 1).encode())
        take_packets(connection, 1)
        connection.sendall(ConnectionParameters(500, 120_000, 64).encode())
        take_packets(connection, 1)
        return connection

    @property
    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def works(self) -> bool:
        with client.connect(self.server.api) as manager:
            queue = manager.queue(r"private$\q")
            queue.send(b"still here")
            return queue.receive(timeout=30).body == b"still here"


def take_packets(connection: socket.socket, count: int) -> list[bytes]:
    framer = Framer()
    packets: list[bytes] = []
    while len(packets) < count:
        data = connection.recv(65536)
        assert data, "the connection was closed"
        packets += framer.feed(data)
    return packets


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end closes the connection, whatever it says before."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    file = tmp_path_factory.mktemp("target") / "target.toml"
    file.write_text(CONFIGURATION)
    with serving(file) as server:
        yield Target(server)
        server.end()


def base(size: int, flags: int = 0, signature: bytes = b"LIOR", version: int = 0x10) -> bytes:
    return struct.pack("<BBH4sII", version, 0, flags, signature, size, 0xFFFFFFFF)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
        pytest.param(base(16, signature=b"LIAR"), id="wrong signature"),
        pytest.param(base(16, version=0x11), id="wrong version"),
        pytest.param(base(0x400001), id="larger than a packet can be"),
        pytest.param(base(15), id="smaller than its header"),
        pytest.param(base(16, flags=0x0008), id="an internal packet without a header"),
        pytest.param(FRAME_7, id="a message before the handshake"),
        pytest.param(SessionAck(SessionHeader()).encode(), id="an acknowledgment before the handshake"),
        pytest.param(ConnectionParameters(500, 120_000, 64).encode(), id="parameters before the connection"),
    ],
)
def test_what_no_session_starts_with_ends_it(target: Target, data: bytes) -> None:
    with target.connect() as connection:
        connection.sendall(data)
        assert is_closed(connection)
    assert target.works()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00" * 64, id="zeros"),
        pytest.param(FRAME_7[:60] + b"\xff" * (len(FRAME_7) - 60), id="flags that lie"),
        pytest.param(base(len(FRAME_7)) + FRAME_7[16:200] + b"\xff" * (len(FRAME_7) - 200), id="sizes that lie"),
        pytest.param(EstablishConnection(uuid4(), NULL_GUID, 1).encode(), id="a second handshake"),
        pytest.param(SessionAck(SessionHeader(user_msg_sequence_number=9)).encode(), id="counts that do not agree"),
    ],
)
def test_what_breaks_an_open_session_ends_it(target: Target, data: bytes) -> None:
    with target.open_session() as connection:
        connection.sendall(data)
        assert is_closed(connection)
    assert target.works()


def test_a_window_of_nothing_is_no_reason_to_stop(target: Target) -> None:
    with target.open_session() as connection:
        connection.sendall(SessionAck(SessionHeader(window_size=0)).encode())
        time.sleep(0.2)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
    assert target.works()


def test_one_byte_at_a_time_is_slow_and_nothing_else(target: Target) -> None:
    with target.connect() as connection:
        for byte in EstablishConnection(uuid4(), NULL_GUID, 1).encode():
            connection.sendall(bytes((byte,)))
        assert len(take_packets(connection, 1)) == 1
    assert target.works()


def test_a_thousand_connections_cost_bounded_memory(target: Target) -> None:
    before = target.memory_mb
    with ExitStack() as stack:
        for number in range(1000):
            connection = stack.enter_context(target.connect())
            if number % 2:  # half of them promise the largest packet there is, and never send it
                connection.sendall(base(0x400000) + b"\x00" * 100)
        assert target.works()
        assert target.memory_mb - before < MAX_GROWTH_MB
    assert target.works()


def _packet(queue: str, text: str) -> bytes:
    composed = Composer(uuid4(), parse_format_name(rf"DIRECT=TCP:{HOST}\private$\{queue}")).compose(
        client.Message(text, recoverable=True), 1, int(time.time())
    )
    return without_local_part(composed)


def _signed(packet: bytes, version: str) -> bytes:
    return without_local_part(sign(packet, SENDER, CERTIFICATE, version))


def _read_as_1_0() -> bytes:
    """What was signed as 2.0 for another queue, as the body of a message to this one: the digest of 1.0 is the same."""
    there = MessageView(_packet("q", "2.0"))
    here = UserMessage.decode(_packet("signed", "2.0"))
    body = hash_input(there, "2.0")[24:]
    forged = replace(here, properties=replace(here.properties, body=body, label="", message_size=None))
    return attach(forged.encode(), Signature(signature_of(there, SENDER), CERTIFICATE))


def _for_several() -> bytes:
    """Signed as 1.0, but with a list of destinations, which 1.0 does not know and so does not sign."""
    one = UserMessage.decode(_packet("signed", "several"))
    return _signed(replace(one, multi_queue=UserMessage.decode(SIGNED_3_0).multi_queue).encode(), "1.0")


def test_a_signature_of_1_0_counts_for_nothing_that_only_2_0_signs(tmp_path: Path) -> None:
    queue = "[[queue]]\npath = 'private$\\signed'\nauthenticate = true\n"
    for accepted, taken in (('["3.0", "2.0"]', {"2.0"}), ('["3.0", "2.0", "1.0"]', {"2.0", "1.0"})):
        directory = tmp_path / str(len(taken))
        directory.mkdir()
        file = directory / "target.toml"
        file.write_text(f"{CONFIGURATION}{queue}[security]\naccept_signatures = {accepted}\n")
        with serving(file) as server, client.connect(server.api) as manager:
            with Target(server).open_session() as connection:
                for packet in (
                    _read_as_1_0() if len(taken) == 1 else b"",
                    _for_several(),
                    _packet("signed", "unsigned"),
                    _signed(_packet("signed", "1.0"), "1.0"),
                    _signed(_packet("signed", "2.0"), "2.0"),
                ):
                    connection.sendall(packet)
                found = {manager.queue(r"private$\signed").receive(timeout=30).text for _ in taken}
            assert found == taken
            assert manager.queue(r"private$\signed").info().messages == 0
            server.end()
