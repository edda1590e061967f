"""Servers with multicast in this process: one message to several queues, and queues that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from postroad.config import load_configuration
from postroad.manager import Manager
from postroad.message import Message
from postroad.server.server import Server

PATIENCE_S = 20
GROUP = "239.50.2.7"
NAME = f"MULTICAST={GROUP}:8001"
NEWS = r"private$\news"
CONFIGURATION = """
[manager]
name = "{name}"
[listen]
host = "127.0.62.{number}"
binary = false
ping = false
http = false
rpc = false
api = false
[multicast]
enabled = true
interfaces = ["{interface}"]
encapsulation = "udp"
port_udp = 13156
rate_kb_s = 2000
"""


@asynccontextmanager
async def running(directory: Path, name: str, number: int, interface: str | None = None) -> AsyncIterator[Manager]:
    file = directory / f"{name}.toml"
    interface = interface or f"127.0.62.{number}"
    file.write_text(CONFIGURATION.format(name=name, number=number, interface=interface))
    server = Server(load_configuration(file))
    await server.start()
    try:
        yield server.manager
    finally:
        await server.stop()


async def wait_until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  (it is what other managers do)
            await asyncio.sleep(0.01)


def test_one_message_reaches_every_queue_that_listens_at_that_time(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            names = enumerate(("alpha", "beta", "gamma"), 1)
            alpha, *receivers = [await stack.enter_async_context(running(tmp_path, name, n)) for n, name in names]
            beta, gamma = receivers
            for each in receivers:
                await each.create_queue(NEWS, multicast_address=f"{GROUP}:8001")
            await alpha.send(NAME, [Message("first", label="first")])
            await wait_until(lambda: all(each.core.queues.get(NEWS).count == 1 for each in receivers))
            await gamma.delete_queue(NEWS)
            await alpha.send(NAME, [Message(bytes(60_000), label="second"), Message("third", label="third")])
            await wait_until(lambda: beta.core.queues.get(NEWS).count == 3)
            assert gamma.doors.multicast is not None
            assert beta.doors.multicast is not None
            assert alpha.doors.multicast is not None
            assert (beta.doors.multicast.info().received, gamma.doors.multicast.info().received) == (3, 1)
            assert alpha.doors.multicast.info().sent == 3

    asyncio.run(run())


def test_a_server_without_such_an_interface_starts_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, "alpha", 1, "nothing0") as alpha:
            assert alpha.doors.multicast is not None
            info = alpha.doors.multicast.info()
            assert info.address is None
            assert info.error is not None
            assert "there is no interface nothing0" in info.error
            await alpha.send(NAME, [Message("waits")])
            (queue,) = [each for each in await alpha.all_queues() if each.type == "outgoing"]
            assert queue.why is not None
            assert "there is no interface nothing0" in queue.why

    asyncio.run(run())


def test_a_configured_multicast_address_is_a_warning_where_multicast_is_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queues = f"[[queue]]\npath = '{NEWS}'\nmulticast_address = '{GROUP}:8001'\n[[queue]]\npath = 'private$\\plain'\n"
    told = []
    for enabled in ("true", "false"):
        file = tmp_path / "alpha.toml"
        text = CONFIGURATION.format(name="alpha", number=9, interface="127.0.62.9")
        file.write_text(text.replace("enabled = true", f"enabled = {enabled}") + queues)
        server = Server(load_configuration(file))

        async def run(server: Server = server) -> None:
            await server.start()
            await server.stop()

        with caplog.at_level(logging.WARNING):
            asyncio.run(run())
        told.append([vars(each) for each in caplog.records if each.getMessage().startswith("multicast is off: ")])
        caplog.clear()
    on, (warning,) = told
    assert on == []
    assert "set enabled = true in [multicast]" in warning["msg"]
    assert (str(warning["queue"]).removeprefix(".\\"), warning["address"]) == (NEWS, f"{GROUP}:8001")
