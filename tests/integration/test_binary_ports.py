"""Sessions on real sockets, [MS-MQQB] 2.1.1 and 3.1.1.3.1: the ports of both ends, and the address of the peer."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from postroad.binary import transport
from postroad.binary.ping_udp import PingClient, PingResponder
from postroad.binary.service import BinaryService
from postroad.binary.session import BinarySettings, Session
from postroad.binary.states import Acknowledged, Opened, Received, singly
from postroad.config import load_configuration
from postroad.manager import Manager
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.security.guard import Verdict
from postroad.security.signatures import sign
from postroad.server.server import Server
from postroad.wire.octets import NULL_GUID
from postroad.wire.view import MessageView
from tests.security_vectors import CERTIFICATE, SENDER

PATIENCE_S = 20
PORT = 1801  # of a session, wherever nothing else is said
NAME, NAMED = "127.5178", "127.0.20.58"  # the resolver of every computer makes the one of the other, and asks nobody
CALLER = UUID("6d6f6e74-0000-4000-8000-00000000cafe")
CONFIGURATION = """
[manager]
name = "alpha"
[listen]
host = "{host}"
ping = false
http = false
rpc = false
api = false
{rest}
"""


class Listener:
    """A peer on a socket that speaks as much of the protocol as a test needs. It notes who called, and what came."""

    def __init__(self) -> None:
        self.callers: list[tuple[str, int]] = []
        self.labels: asyncio.Queue[str] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int = PORT) -> int:
        """Starts the listener. Returns its port."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def label(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.labels.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.append(writer.get_extra_info("peername")[:2])
        session = Session.accept(CALLER, BinarySettings(), time.time())
        with closing(writer):
            while data := await reader.read(65536):
                session.receive_data(data, time.time())
                for event in singly(session.events()):
                    if isinstance(event, Received) and isinstance(event.packet, MessageView):
                        self.labels.put_nowait(event.packet.label)
                writer.write(session.data_to_send())


async def opens(host: str, port: int) -> bool:
    """Whether a caller gets a session."""
    reader, writer = await asyncio.open_connection(host, port)
    session = Session.initiate(CALLER, NULL_GUID, BinarySettings(), time.time())
    async with asyncio.timeout(PATIENCE_S):
        while not session.opened_at and not session.closed:
            writer.write(session.data_to_send())
            session.receive_data(await reader.read(65536), time.time())
    writer.close()
    return any(isinstance(event, Opened) for event in session.events())


@contextmanager
def full(host: str) -> Iterator[None]:
    """A port whose queue of callers is full. It accepts nobody."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, PORT), backlog=0))
        while True:
            caller = stack.enter_context(socket.socket())
            caller.settimeout(0.2)
            try:
                caller.connect(server.getsockname())
            except TimeoutError:
                break
        yield


def run(
    tmp_path: Path,
    host: str,
    body: Callable[[Manager, BinaryService], Coroutine[None, None, None]],
    rest: str = "binary = 0",
) -> None:
    """A server at this address, until the body ends. The rest of its configuration begins in [listen]."""
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIGURATION.format(host=host, rest=rest))

    async def served() -> None:
        server = Server(load_configuration(file))
        await server.start()
        try:
            assert server.manager.doors.binary is not None
            await body(server.manager, server.manager.doors.binary)
        finally:
            await server.stop()

    asyncio.run(served())


async def failure(manager: Manager, name: str) -> tuple[object, str]:
    """How the first attempt to reach this queue ended: its status, and the error in words."""
    await manager.send(name, [Message(label="a", recoverable=True)])
    async with asyncio.timeout(PATIENCE_S):
        while not manager.queue(name).failures:  # noqa: ASYNC110  # what is waited for is plain state
            await asyncio.sleep(0.01)
    info = manager.queue(name)
    assert info.messages == 1  # nothing is lost by it
    assert manager.limits.outgoing_connections.current == 0
    return next(each["status"] for each in info.history if each["error"]), str(info.last_error)


# Each test has addresses of its own, because the port is the same for all.


@pytest.mark.spec("QB-2.1.1-06", "QB-2.1.1-09")
def test_others_are_called_on_port_1801_from_any_port_of_ours(tmp_path: Path) -> None:
    here, peers = "127.0.20.51", {host: Listener() for host in ("127.0.20.52", "127.0.20.54")}

    async def body(manager: Manager, service: BinaryService) -> None:
        for host, peer in peers.items():
            await peer.start(host)
            await manager.send(rf"DIRECT=TCP:{host}\private$\orders", [Message(label=f"to {host}")])
        assert [await peer.label() for peer in peers.values()] == [f"to {host}" for host in peers]
        (first,), (second,) = (peer.callers for peer in peers.values())
        assert (first[0], second[0]) == (here, here)
        assert first[1] != second[1]
        for peer in peers.values():
            peer.stop()

    run(tmp_path, here, body)


@pytest.mark.spec("QB-2.1.1-07")
def test_a_manager_listens_on_port_1801(tmp_path: Path) -> None:
    here = "127.0.20.55"

    async def body(manager: Manager, service: BinaryService) -> None:
        assert await opens(here, PORT)

    run(tmp_path, here, body, rest="")


@pytest.mark.spec("QB-3.1.1.3.1-30")
def test_the_address_of_a_peer_is_an_address_whatever_name_led_there(tmp_path: Path) -> None:
    async def body(manager: Manager, service: BinaryService) -> None:
        peer = Listener()
        await peer.start(NAMED)
        there = rf"DIRECT=OS:{NAME}\private$\orders"
        await manager.send(there, [Message(label="a")])
        assert await peer.label() == "a"
        (address,) = service.addresses.values()
        assert address == str(ip_address(NAMED))
        assert manager.queue(there).next_hops == (address,)
        peer.stop()

    run(tmp_path, "127.0.20.57", body)


def test_an_address_that_does_not_answer_does_not_keep_the_next_of_a_name_from_being_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = socket.getaddrinfo
    dead, alive = "127.0.20.60", "127.0.20.61"

    def both(host: str, *arguments: Any, **named: Any) -> list[Any]:
        hosts = (dead, alive) if host == "twofold" else (host,)
        return [each for host in hosts for each in found(host, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    peer = Listener()

    async def body(manager: Manager, service: BinaryService) -> None:
        await peer.start(alive)
        await manager.send(r"DIRECT=OS:twofold\private$\orders", [Message(label="a")])
        assert await peer.label() == "a"
        peer.stop()

    with full(dead):
        run(tmp_path, "127.0.20.59", body)


# Why a host cannot be reached

NO_HOST = "x" * 64  # a name that the resolver does not even look for: its parts have at most 63 characters


@pytest.mark.parametrize("ping", ["false", "true"])
@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        ("127.0.20.62", "connect socket failure", "cannot connect to 127.0.20.62:1801: Connection refused"),
        ("no-such-host.invalid", "name resolution failure", "no-such-host.invalid cannot be found: "),
        (NO_HOST, "name resolution failure", f"{NO_HOST} cannot be found: encoding with 'idna' codec failed"),
    ],
)
def test_a_host_that_cannot_be_reached_is_named_with_the_reason(
    tmp_path: Path, host: str, status: str, words: str, ping: str
) -> None:
    async def body(manager: Manager, service: BinaryService) -> None:
        found = await failure(manager, rf"DIRECT=OS:{host}\private$\orders")
        if ping == "true" and host == "127.0.20.62":  # where a name leads is found out before the ping
            assert found[0] == "ping failure"
            assert found[1].startswith((f"cannot send a ping to {host}: ", f"{host} did not answer a ping"))
        else:
            assert found[0] == status
            assert found[1].startswith(words)

    run(tmp_path, "127.0.20.63", body, rest=f"binary = 0\n[binary]\nping = {ping}")


def test_a_fault_of_our_own_in_connecting_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(manager: Manager, service: BinaryService) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(socket, "getaddrinfo", lambda *arguments, **named: 1 / 0)
            found = await failure(manager, r"DIRECT=OS:127.5197\private$\orders")
        assert found[0] == "unknown failure"
        assert found[1].startswith("cannot connect to 127.5197: ZeroDivisionError")
        assert "connection not made" in caplog.messages
        peer = Listener()
        await peer.start("127.0.20.77")
        assert await peer.label() == "a"
        peer.stop()

    run(tmp_path, "127.0.20.69", body, rest="binary = 0\n[binary]\nretry_connect_s = 0.05")


def test_a_host_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT_S", 0.2)

    async def body(manager: Manager, service: BinaryService) -> None:
        found = await failure(manager, r"DIRECT=TCP:127.0.20.64\private$\orders")
        assert found == ("connect socket failure", "127.0.20.64 did not answer in time")

    with full("127.0.20.64"):
        run(tmp_path, "127.0.20.65", body, rest="binary = 0\n[binary]\nping = false")


def test_no_more_hosts_are_called_than_there_may_be_connections(tmp_path: Path) -> None:
    async def body(manager: Manager, service: BinaryService) -> None:
        manager.limits.outgoing_connections.maximum = 0
        found = await failure(manager, r"DIRECT=TCP:127.0.20.66\private$\orders")
        assert found == ("low resource", "there are 0 connections to other hosts already")

    run(tmp_path, "127.0.20.67", body, rest="binary = 0\n[binary]\nping = false")


@pytest.mark.parametrize(
    ("binary", "found"),
    [
        (SimpleNamespace(full=False), None),
        (SimpleNamespace(full=True), "127.0.20.70 would refuse a session: its answer to a ping says so"),
        (None, "127.0.20.70 would refuse a session: its answer to a ping says so"),
    ],
)
def test_a_ping_says_whether_there_would_be_a_session(binary: Any, found: str | None) -> None:
    async def body() -> None:
        responder = PingResponder(CALLER, binary, "127.0.20.70", 0)
        await responder.start()
        client = PingClient(UUID(int=1), lambda host: responder.port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:  # what is no ping is not answered
            other.sendto(b"no ping", ("127.0.20.70", responder.port))
        assert [await client.ask("127.0.20.70") for _ in range(2)] == [found, found]
        responder.stop()

    asyncio.run(body())


def test_a_fault_of_our_own_ends_one_session_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = "127.0.20.68"

    async def body(manager: Manager, service: BinaryService) -> None:
        reader, writer = await asyncio.open_connection(here, PORT)
        with monkeypatch.context() as broken:
            broken.setattr(service, "received", lambda *arguments: 1 / 0)
            writer.write(b"anything")
            async with asyncio.timeout(PATIENCE_S):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        writer.close()
        assert "session broken off" in caplog.messages
        assert await opens(here, PORT)

    run(tmp_path, here, body, rest="")


def test_a_caller_that_has_gone_again_is_no_fault_of_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = "127.0.20.73"

    async def body(manager: Manager, service: BinaryService) -> None:
        for _ in range(20):  # they wait for us to accept them, and reset the connection before
            with socket.create_connection((here, PORT)) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert await opens(here, PORT)
        assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []

    run(tmp_path, here, body, rest="")


async def send_all(host: str, packets: list[bytes]) -> list[object]:
    """Sends all in one write once the session is open. Returns what was acknowledged until the manager has read all, or
    has closed the connection."""
    reader, writer = await asyncio.open_connection(host, PORT)
    session = Session.initiate(CALLER, NULL_GUID, BinarySettings(), time.time())
    acknowledged: list[object] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(acknowledged) < len(packets) and not reader.at_eof():
            if session.free and not session.sent.count:
                for number, packet in enumerate(packets):
                    session.send(packet, number, time.time(), recoverable=True, plain=True)
            writer.write(session.data_to_send())
            with suppress(ConnectionResetError):
                session.receive_data(await reader.read(65536), time.time())
            for event in singly(session.events()):
                if isinstance(event, Acknowledged):
                    acknowledged += event.tokens
    writer.close()
    return acknowledged


def signed_and_plain(host: str, count: int) -> list[bytes]:
    composer = Composer(CALLER, parse_format_name(f"DIRECT=TCP:{host}\\private$\\orders"))
    packets = []
    for number in range(count):
        packet = composer.compose(Message(b"x", label=str(number), recoverable=True), number + 1, int(time.time()))
        packets.append(sign(packet, SENDER, CERTIFICATE) if number % 3 else packet)
    return packets


def test_signed_messages_are_checked_in_a_thread_and_keep_their_order(tmp_path: Path) -> None:
    """More than a thread takes at once, among messages that need no check."""
    here = "127.0.20.71"

    async def body(manager: Manager, service: BinaryService) -> None:
        await manager.create_queue(r"private$\orders")
        threads: set[str] = set()
        opener = manager.core.protection.opener
        check = opener.open

        def watched(packet: bytes, now: float) -> Verdict:
            threads.add(threading.current_thread().name)
            return check(packet, now)

        opener.open = watched  # type: ignore[method-assign]
        assert len(await send_all(here, signed_and_plain(here, 60))) == 60
        views = [MessageView(each.packet) for each in manager.core.queues.get(r"private$\orders").available(100)]
        assert [view.label for view in views] == [str(number) for number in range(60)]
        assert len(threads) == 1
        assert threading.main_thread().name not in threads

    run(tmp_path, here, body, rest="")


def test_a_fault_of_our_own_in_checking_ends_one_session_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = "127.0.20.72"

    async def body(manager: Manager, service: BinaryService) -> None:
        await manager.create_queue(r"private$\orders")
        manager.core.protection.opener.open = lambda packet, now: 1 / 0  # type: ignore[assignment,return-value,method-assign]
        assert await send_all(here, signed_and_plain(here, 60)) == []
        assert "session broken off" in caplog.messages
        assert len(await send_all(here, signed_and_plain(here, 1))) == 1

    run(tmp_path, here, body, rest="")


def test_the_audit_log_says_why_a_message_was_refused(tmp_path: Path) -> None:
    here = "127.0.20.73"

    async def body(manager: Manager, service: BinaryService) -> None:
        await manager.create_queue(r"private$\orders")
        forged = [packet.replace(b"x", b"y") for packet in signed_and_plain(here, 2)]
        assert len(await send_all(here, forged)) == 2

    run(tmp_path, here, body, rest='[audit]\nfile = "audit.jsonl"')
    (line,) = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (line["what"], line["why"], line["outcome"]) == ("message refused", "wrong-signature", "refused")
    assert (line["queue"], line["from"]) == (f"DIRECT=TCP:{here}\\private$\\orders", "127.0.0.1")
