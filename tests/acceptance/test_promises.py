"""A packet that no acknowledgment can name, on a real manager: nothing is lost, nothing stops, and all is reported."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import UUID, uuid4

import pytest

import postroad as client
from postroad.config import default_configuration
from postroad.errors import PostroadError
from postroad.manager import build_manager
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.store import open_store
from postroad.wire import ConnectionParameters, EstablishConnection, MessageView, TxSequenceId
from postroad.wire.framer import Framer
from postroad.wire.octets import NULL_GUID
from postroad.wire.patch import stamp_transaction
from tests.commands import ServerProcess, postroad, serving

HOST = "127.0.0.31"
IDENTIFIER = UUID("7d2b3d5e-5a5e-4b5f-8d3c-3a1f0b8f6a31")
LEDGER = r"private$\ledger"
PATIENCE_S = 60
CONFIGURATION = rf"""
[manager]
name = "target"
id = "{IDENTIFIER}"
data = "data"
[listen]
host = "{HOST}"
binary = 0
ping = false
http = false
rpc = false
api = 0
[[queue]]
path = '{LEDGER}'
transactional = true
"""


def nameless(label: str = "it", number: int = 0, previous: int = 0, **properties: object) -> bytes:
    """A transactional message without a valid place in its sequence. It wants to know how it ended."""
    composer = Composer(uuid4(), parse_format_name(rf"DIRECT=TCP:{HOST}\{LEDGER}"))
    message = Message(b"", label=label, dead_letter=True, journal=True, **properties)  # type: ignore[arg-type]
    packet = composer.compose(message, 1, int(time.time()), transactional=True)
    return stamp_transaction(packet, TxSequenceId(1, 1), number, previous, 1, first=True, last=True)


def write(directory: Path) -> Path:
    file = directory / "target.toml"
    file.write_text(CONFIGURATION)
    return file


def store_as_before(directory: Path, packets: list[bytes]) -> None:
    """Stores the packet, as an older version that accepted it would have."""

    async def put() -> None:
        manager = build_manager(default_configuration("target"), open_store(directory / "data"), identifier=IDENTIFIER)
        await manager.start()
        await manager.create_queue(LEDGER, transactional=True)
        queue = manager.core.queues.get(LEDGER)
        for packet in packets:
            manager.core.delivery.arrive(queue, packet, MessageView(packet), time.time())
        await manager.stop()

    asyncio.run(put())


def ready(server: ServerProcess) -> tuple[int, str]:
    try:
        with urlopen(f"{server.api}/readyz", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def call(server: ServerProcess, *packets: bytes) -> bool:
    """Sends packets by a session. Returns whether the manager closes the connection."""
    host, _, port = server.ready["listen"]["binary"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        framer = Framer()
        for hello in (EstablishConnection(uuid4(), NULL_GUID, 1), ConnectionParameters(500, 120_000, 64)):
            connection.sendall(hello.encode())
            while not list(framer.feed(connection.recv(65536))):
                pass
        connection.sendall(b"".join(packets))
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
        return True


def labels(server: ServerProcess, queue: str = LEDGER) -> list[str]:
    with client.connect(server.api) as manager:
        return [message.label for message in manager.queue(queue).messages()]


@pytest.mark.spec("MQ-2.2.20.5-13")
@pytest.mark.parametrize(("number", "previous"), [(0, 0), (1, 1), (5, 9), (0xFFFFFFFF, 0xFFFFFFFF)])
def test_a_place_that_cannot_be_acknowledged_is_refused(tmp_path: Path, number: int, previous: int) -> None:
    packet = nameless(number=number, previous=previous)
    with serving(write(tmp_path)) as server:
        assert call(server, packet)
        assert labels(server) == []
        with client.connect(server.api) as manager, pytest.raises(PostroadError):
            manager.queue(LEDGER).insert([packet])
        assert ready(server) == (200, "ready\n")
        assert "Traceback" not in server.log


def test_what_an_older_version_has_stored_breaks_no_batch_no_commit_and_no_purge(tmp_path: Path) -> None:
    a, b = nameless("a", 1, 0), nameless("b", 1, 0)
    store_as_before(tmp_path, [a, nameless(), b, a, nameless(), b, a, nameless(), b])
    with serving(write(tmp_path)) as server:
        with client.connect(server.api) as manager:
            ledger = manager.queue(LEDGER)
            batch = ledger.receive_many(3, timeout=0)
            assert [message.label for message in batch] == ["a", "it", "b"]
            with manager.transaction() as transaction:
                batch = ledger.receive_many(3, timeout=0, tx=transaction)
            assert [message.label for message in batch] == ["a", "it", "b"]
            assert ledger.purge() == 3
        assert labels(server) == []
        assert ready(server) == (200, "ready\n")
        server.end()
        assert "Traceback" not in server.log
    with serving(write(tmp_path)) as server:  # and none of them comes back
        assert labels(server) == []


def test_what_an_older_version_has_stored_expires_and_so_does_the_rest(tmp_path: Path) -> None:
    store_as_before(tmp_path, [nameless(time_to_be_received=1), nameless("b", 1, 0, time_to_be_received=1)])
    with serving(write(tmp_path)) as server:
        until(lambda: postroad("queue", "show", LEDGER, "--json", api=server.api).objects[0]["messages"] == 0)
        with client.connect(server.api) as manager:
            manager.queue(LEDGER).send(client.Message("late", time_to_be_received=1), transactional=True)
        until(lambda: postroad("queue", "show", LEDGER, "--json", api=server.api).objects[0]["messages"] == 0)
        assert ready(server) == (200, "ready\n")
        status = postroad("status", "--json", api=server.api).objects[0]["manager"]
        assert status["down"] == []
        assert "Traceback" not in server.log
