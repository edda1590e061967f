"""A server and its directory's file: what the file says about this manager, at the start and after a change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from postroad.binary.session import BinarySettings as PeerSettings
from postroad.binary.session import Session
from postroad.binary.states import SessionState
from postroad.config import load_configuration
from postroad.errors import QueueNotFound
from postroad.manager import Manager
from postroad.message import Message
from postroad.security.access import Token
from postroad.server.server import Server
from postroad.wire import ConnectionParameters
from postroad.wire.framer import Framer, decode_packet
from postroad.wire.octets import NULL_GUID

T = TypeVar("T")
PATIENCE_S = 20
FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))
CONFIGURATION = """
[manager]
name = "alpha"
[listen]
host = "127.0.20.41"
binary = 0
ping = false
api = false
[directory]
file = "enterprise.toml"
poll_s = 0.05
[[queue]]
path = 'alpha\\third'
label = "as configured"
"""
ENTERPRISE = """
[[site]]
name = "london"
[[manager]]
name = "alpha"
id = "00000000-0000-0000-0000-00000000000a"
sites = ["london"]
routing_server = {routing_server}
"""


def queue(path: str, identifier: UUID) -> str:
    return f"[[queue]]\npath = '{path}'\nid = \"{identifier}\"\n"


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Server:
    (tmp_path / "alpha.toml").write_text(CONFIGURATION)
    text = ENTERPRISE.format(routing_server="true" if getattr(request, "param", False) else "false")
    (tmp_path / "enterprise.toml").write_text(text + queue(r"alpha\first", FIRST))
    return Server(load_configuration(tmp_path / "alpha.toml"))


async def started(server: Server) -> Manager:
    await server.start()
    return server.manager


def with_session(server: Server, look: Callable[[Session, bytes], T]) -> T:
    """What `look` finds at a session that a peer opened at time 1000.0, and in what the manager has said on it."""

    async def body() -> T:
        manager = await started(server)
        assert manager.doors.binary is not None
        session = manager.doors.binary.accepted("127.0.20.42", 1000.0)
        assert session is not None
        peer, said = Session.initiate(FIRST, NULL_GUID, PeerSettings(), 1000.0), b""
        while asked := peer.data_to_send():
            session.receive_data(asked, 1000.0)
            answer = session.data_to_send()
            peer.receive_data(answer, 1000.0)
            said += answer
        try:
            return look(session, said)
        finally:
            await server.stop()

    return asyncio.run(body())


def check_idle(server: Server, seconds: float) -> None:
    def look(session: Session, said: bytes) -> None:
        for now, state in ((seconds - 0.001, SessionState.OPEN), (seconds, SessionState.CLOSED)):
            session.on_timer(1000.0 + now)
            assert session.state is state

    with_session(server, look)


def configured(tmp_path: Path, *settings: str) -> Server:
    text = CONFIGURATION.replace("[directory]", "\n".join(("[binary]", *settings, "[directory]")))
    (tmp_path / "alpha.toml").write_text(text)
    (tmp_path / "enterprise.toml").write_text(ENTERPRISE.format(routing_server="true"))
    return Server(load_configuration(tmp_path / "alpha.toml"))


@pytest.mark.spec("QB-6-20")
@pytest.mark.parametrize(("server", "seconds"), [(False, 300), (True, 120)], indirect=["server"])
def test_idle_sessions_close_earlier_on_a_routing_server(server: Server, seconds: int) -> None:
    check_idle(server, seconds)


@pytest.mark.spec("QB-6-20")
def test_a_setting_says_when_idle_sessions_close(tmp_path: Path) -> None:
    check_idle(configured(tmp_path, "cleanup_ms = 7000"), 7)


@pytest.mark.spec("QB-6-17")
def test_a_server_offers_a_window_of_1024_unless_it_is_told_another(tmp_path: Path) -> None:
    def look(session: Session, said: bytes) -> int:
        packets = [decode_packet(each) for each in Framer().feed(said)]
        (parameters,) = (each for each in packets if isinstance(each, ConnectionParameters))
        return parameters.window_size

    assert with_session(configured(tmp_path), look) == 1024
    assert with_session(configured(tmp_path, "window_size = 9"), look) == 9


@pytest.mark.spec("DM-3.1.7.1.5-12")
def test_an_outgoing_queue_has_the_base_priority_that_the_directory_gives(tmp_path: Path) -> None:
    configured(tmp_path)
    beta = '[[manager]]\nname = "beta"\nid = "00000000-0000-0000-0000-00000000000b"\nsites = ["london"]\n'
    there = queue(r"beta\first", FIRST) + "base_priority = -7\n"
    (tmp_path / "enterprise.toml").write_text(ENTERPRISE.format(routing_server="true") + beta + there)

    server = Server(load_configuration(tmp_path / "alpha.toml"))

    async def body() -> int:
        manager = await started(server)
        await manager.send(f"PUBLIC={FIRST}", [Message(b"")])
        found = manager.core.queues.get(f"PUBLIC={FIRST}").properties.base_priority
        await server.stop()
        return found

    assert asyncio.run(body()) == -7


@pytest.mark.spec("QB-3.1.3.2-20", "QB-6-25")
def test_every_manager_has_an_id_of_its_own_and_keeps_it_unless_it_is_told_another(tmp_path: Path) -> None:
    def identifier(name: str, said: UUID | None = None) -> UUID:
        """The identifier of a manager that starts and stops on this data directory, with what its file says."""
        line = "" if said is None else f'id = "{said}"\n'
        ports = "binary = 0\nping = false\nhttp = false\nrpc = false\napi = false\n"
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[manager]\nname = "{name}"\n{line}[listen]\nhost = "127.0.20.41"\n{ports}')
        server = Server(load_configuration(file))

        async def body() -> UUID:
            manager = await started(server)
            assert manager.doors.binary is not None
            session = manager.doors.binary.accepted("127.0.20.42", 1000.0)
            assert session is not None
            await server.stop()
            return session.identifier

        return asyncio.run(body())

    alpha, beta = identifier("alpha"), identifier("beta")
    assert alpha != beta
    assert NULL_GUID not in (alpha, beta)
    assert (identifier("alpha"), identifier("beta")) == (alpha, beta)
    assert identifier("gamma", FIRST) == FIRST
    assert identifier("gamma") == FIRST


async def until_found(manager: Manager, name: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                manager.queue(name)
                return
            except QueueNotFound:
                await asyncio.sleep(0.02)


def test_new_public_queues_are_made_when_the_file_is_written(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        manager = await started(server)
        await manager.set_queue(r"alpha\third", label="changed since")
        third = manager.queue(r"alpha\third").id
        file = tmp_path / "enterprise.toml"
        text = file.read_text() + queue(r"alpha\third", THIRD) + queue(r"alpha\second", SECOND)
        file.write_text(text)
        await until_found(manager, f"PUBLIC={SECOND}")
        assert manager.queue(f"PUBLIC={SECOND}").path == r"alpha\second"
        assert manager.queue(f"PUBLIC={FIRST}").path == r"alpha\first"
        found = manager.queue(r"alpha\third")
        assert (found.id, found.label) == (third, "changed since")  # its id cannot change, and that is told
        await server.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(body())
    (told,) = [record for record in caplog.records if record.getMessage() == "public queue not provided"]
    assert r"the queue alpha\third exists with the id" in str(told.__dict__["reason"])


def test_a_public_queue_here_has_the_base_priority_that_the_directory_gives(tmp_path: Path) -> None:
    configured(tmp_path)
    text = ENTERPRISE.format(routing_server="true") + queue(r"alpha\first", FIRST) + "base_priority = -7\n"
    (tmp_path / "enterprise.toml").write_text(text)
    server = Server(load_configuration(tmp_path / "alpha.toml"))

    async def body() -> int:
        manager = await started(server)
        found = manager.queue(r"alpha\first").base_priority
        await server.stop()
        return found

    assert asyncio.run(body()) == -7


def test_the_list_of_the_file_counts_on_its_manager_until_somebody_sets_another(server: Server, tmp_path: Path) -> None:
    nobody_sends = 'acl = "O:BAD:(A;;0x20;;;WD)"\n'

    async def body() -> None:
        manager = await started(server)
        access = manager.core.access

        def may_send(name: str) -> bool:
            return access.may_send(manager.core.queues.get(name), Token.everyone())

        assert may_send(r"alpha\first")
        file = tmp_path / "enterprise.toml"
        file.write_text(file.read_text() + nobody_sends + queue(r"alpha\second", SECOND) + nobody_sends)
        await until_found(manager, f"PUBLIC={SECOND}")
        assert not may_send(r"alpha\second")  # from the moment that it exists
        assert not may_send(r"alpha\first")
        await manager.access_lists.set(r"alpha\first", "O:BAD:(A;;0x4;;;WD)")
        assert may_send(r"alpha\first")
        await server.stop()

    asyncio.run(body())
