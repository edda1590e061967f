"""A server and its directory's file: what the file says of this manager, at the start and when it is written anew."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from uuid import UUID

import pytest

from postroad.config import load_configuration
from postroad.errors import QueueNotFound
from postroad.manager import Manager
from postroad.server.server import Server
from postroad.wire.layout import NULL_GUID

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
    assert server._manager is not None
    return server._manager


@pytest.mark.spec("QB-6-20")
@pytest.mark.parametrize(("server", "cleanup_ms"), [(False, 300_000), (True, 120_000)], indirect=["server"])
def test_idle_sessions_close_earlier_on_a_routing_server(server: Server, cleanup_ms: int) -> None:
    async def body() -> None:
        manager = await started(server)
        assert manager.binary is not None
        session = manager.binary.accepted("127.0.20.42", 1000.0)
        assert session is not None
        assert session.settings.cleanup_ms == cleanup_ms
        await server.stop()

    asyncio.run(body())


@pytest.mark.spec("QB-3.1.3.2-20", "QB-6-25")
def test_every_manager_has_an_id_of_its_own_and_keeps_it_unless_it_is_told_another(tmp_path: Path) -> None:
    def identifier(name: str, said: UUID | None = None) -> UUID:
        """Of a manager that starts and stops on the data directory of this name, with what its file says."""
        line = "" if said is None else f'id = "{said}"\n'
        ports = "binary = 0\nping = false\nhttp = false\nrpc = false\napi = false\n"
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[manager]\nname = "{name}"\n{line}[listen]\nhost = "127.0.20.41"\n{ports}')
        server = Server(load_configuration(file))

        async def body() -> UUID:
            manager = await started(server)
            assert manager.binary is not None
            session = manager.binary.accepted("127.0.20.42", 1000.0)
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


def test_new_public_queues_are_made_when_the_file_is_written(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def until_found(manager: Manager, name: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    manager.queue(name)
                    return
                except QueueNotFound:
                    await asyncio.sleep(0.02)

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
    (told,) = [record for record in caplog.records if record.getMessage() == "public queue not created"]
    assert r"the queue alpha\third exists with the id" in str(told.__dict__["reason"])
