"""AMQP as `postroad serve` opens it: its settings, TLS, logins by certificate, a reload, and what operators see."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from postroad.amqp.codec import NULL, binary, described, listed, symbol
from postroad.amqp.performatives import BEGIN, DISPOSITION, FLOW, HEADER, INIT, MECHANISMS, OUTCOME, SASL_HEADER, frame
from postroad.config import load_configuration
from postroad.errors import ConfigurationError, StorageError
from postroad.server.server import Server
from tests.amqp_door import ORDERS, PATIENCE_S, amqp_door
from tests.amqp_peer import (
    RawPeer,
    attach_receiver,
    attach_sender,
    begin,
    data,
    flow,
    opening,
    source,
    target,
    transfer,
)
from tests.certificates import Authority
from tests.served import FailingStore

HOST = "127.0.40.77"
CONFIG = f"""
[manager]
name = "alpha"
[listen]
host = "{HOST}"
binary = false
ping = false
http = false
rpc = false
epm = false
api = 0
console = false
amqp = 0
[[user]]
name = "ann"
password = "secret"
[[queue]]
path = 'private$\\orders'
"""
TLS = f'[amqp]\ncertificate = "{HOST}.pem"\nkey = "{HOST}.key"\nclient_ca = "clients.pem"\nidle_timeout_s = 30\n'


def configured(file: Path, text: str) -> Server:
    file.write_text(text)
    return Server(load_configuration(file))


@asynccontextmanager
async def running(file: Path, text: str) -> AsyncIterator[Server]:
    server = configured(file, text)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def address_of(server: Server) -> tuple[str, int]:
    host, _, port = server.ready["listen"]["amqp"].rpartition(":")  # type: ignore[index]
    return host, int(port)


def log_in(peer: RawPeer, mechanism: str, response: bytes = b"") -> tuple[list[str], int]:
    """The mechanisms that are offered, and the outcome."""
    given = binary(response) if response else NULL
    peer.write(SASL_HEADER + frame(0, described(INIT, listed(symbol(mechanism), given)), 1))
    return peer.until(MECHANISMS)[0], peer.until(OUTCOME)[0]


def dial(address: tuple[str, int], authority: Path, certificate: tuple[Path, Path] | None = None) -> RawPeer:
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    plain = socket.create_connection(address, timeout=PATIENCE_S)
    return RawPeer(context.wrap_socket(plain, server_hostname=HOST), login=False)


def test_users_log_in_by_certificate_and_by_password_over_tls(tmp_path: Path) -> None:
    servers, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    servers.issue(HOST)
    ann, bob = clients.issue("ann"), clients.issue("bob")

    def work(address: tuple[str, int]) -> None:
        with dial(address, servers.file, ann) as peer:
            assert log_in(peer, "EXTERNAL") == (["EXTERNAL", "PLAIN", "ANONYMOUS"], 0)
            peer.write(HEADER + opening() + begin() + attach_sender(target(ORDERS)) + transfer(data(b"x")))
            assert peer.until(DISPOSITION)[4].descriptor == 0x24
        with dial(address, servers.file, bob) as peer:
            assert log_in(peer, "EXTERNAL")[1] == 1
        with dial(address, servers.file) as peer:
            assert log_in(peer, "EXTERNAL") == (["PLAIN", "ANONYMOUS"], 1)
        with dial(address, servers.file) as peer:
            assert log_in(peer, "PLAIN", b"\0ann\0secret")[1] == 0
        with dial(address, servers.file) as peer:
            assert log_in(peer, "PLAIN", b"\0ann\0wrong")[1] == 1

    async def run() -> None:
        async with running(tmp_path / "alpha.toml", CONFIG + TLS) as server:
            await asyncio.to_thread(work, address_of(server))
            [row] = [each for each in server.manager.doors.exposure if each.listener == "amqp"]
            assert (row.encryption, row.authentication) == ("tls", "none")
            assert server.manager.queue(ORDERS).messages == 1
            before = server.manager.doors.amqp
            configured(tmp_path / "alpha.toml", (CONFIG + TLS).replace('"secret"', '"other"'))
            await server.reload()
            assert server.manager.doors.amqp is before

            def after(address: tuple[str, int]) -> None:
                with dial(address, servers.file) as peer:
                    assert log_in(peer, "PLAIN", b"\0ann\0other")[1] == 0

            await asyncio.to_thread(after, address_of(server))

    asyncio.run(run())


def test_status_and_metrics_show_connections_and_links(tmp_path: Path) -> None:
    def work(server: Server) -> None:
        api = f"http://{server.ready['listen']['api']}"  # type: ignore[index]
        with RawPeer(socket.create_connection(address_of(server), timeout=PATIENCE_S)) as peer:
            peer.write(attach_sender(target(ORDERS)) + transfer(data(b"x")))
            peer.until(DISPOSITION)
            with urlopen(f"{api}/api/v1/status") as answer:
                status = json.load(answer)
            with urlopen(f"{api}/metrics") as answer:
                metrics = answer.read().decode()
        [connection] = status["amqp"]["connections"]
        assert connection["container"] == "peer"
        [link] = connection["links"]
        assert (link["address"], link["role"], link["unsettled"]) == (ORDERS, "sender", 0)
        assert "postroad_amqp_connections 1.0" in metrics
        assert "postroad_amqp_messages_received_total 1.0" in metrics

    async def run() -> None:
        async with running(tmp_path / "alpha.toml", CONFIG) as server:
            await asyncio.to_thread(work, server)

    asyncio.run(run())


def test_nobody_is_anonymous_where_the_api_has_a_token(tmp_path: Path) -> None:
    def work(address: tuple[str, int]) -> None:
        with RawPeer(socket.create_connection(address, timeout=PATIENCE_S), login=False) as peer:
            assert log_in(peer, "ANONYMOUS") == (["PLAIN"], 1)
        with RawPeer(socket.create_connection(address, timeout=PATIENCE_S), login=False) as peer:
            peer.write(HEADER)  # without a login
            assert peer.connection.recv(8) == SASL_HEADER
        with RawPeer(socket.create_connection(address, timeout=PATIENCE_S), login=False) as peer:
            assert log_in(peer, "PLAIN", b"\0token\0a-long-enough-token")[1] == 0
            peer.write(HEADER + opening() + begin())
            peer.until(BEGIN)

    async def run() -> None:
        token = '[api]\ntoken = "a-long-enough-token"\n'
        async with running(tmp_path / "alpha.toml", CONFIG + token) as server:
            await asyncio.to_thread(work, address_of(server))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[amqp]\ncertificate = "a.pem"\n', "amqp.key: is missing"),
        ('[amqp]\nclient_ca = "a.pem"\n', "amqp.certificate: is missing"),
        ("[amqp]\nidle_timeout_s = 0\n", "amqp.idle_timeout_s: must be"),
        ("[limits]\namqp_links = 0\n", "limits.amqp_links: must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "a.pem").write_text("no certificate")
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIG + text)
    with pytest.raises(ConfigurationError, match=fault):
        load_configuration(file)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "amqp.certificate: is missing: other computers can reach listen.amqp"),
        (f'[amqp]\ncertificate = "{HOST}.key"\nkey = "{HOST}.key"\n', "amqp.certificate: cannot be used"),
    ],
)
def test_a_door_for_other_computers_needs_tls(tmp_path: Path, text: str, fault: str) -> None:
    Authority(tmp_path).issue(HOST)
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIG.replace(HOST, "0.0.0.0").replace("api = 0", "api = false") + text)
    with pytest.raises(ConfigurationError, match=fault):
        asyncio.run(Server(load_configuration(file)).check())


# A store that fails


def test_what_could_not_be_stored_is_rejected_and_what_was_not_removed_comes_again() -> None:
    store = FailingStore()
    with amqp_door(store) as door, RawPeer(door.dial()) as peer:
        door.send(b"one")
        peer.write(attach_sender(target(ORDERS)) + attach_receiver(source(ORDERS), 1) + flow(1, 1))
        peer.until(FLOW)
        peer.until(0x14)
        store.full = True
        peer.write(transfer(b"\0\x53\x70" + listed(b"\x41") + data(b"lost"), 0))
        assert peer.until(DISPOSITION)[4].value[0].value[0] in ("amqp:internal-error", "amqp:resource-limit-exceeded")
        peer.write(frame(0, described(0x15, listed(b"\x41", b"\x43", b"\x43", b"\x41", b"\0\x53\x24\x45"))))
        with pytest.raises(StorageError):
            door.run(door.manager.write_identifier())
        store.full = False
        assert door.bodies() == [b"one"]
