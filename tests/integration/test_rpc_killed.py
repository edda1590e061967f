"""Clients that die or vanish: a killed process leaves no handle behind, and a silent one is probed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from postroad.rpc.client import connect
from tests.unit.rpc.counter import HOST, counter
from tests.unit.rpc.parcels import PARCELS

PATIENCE_S = 30
ROOT = Path(__file__).parents[2]
CLIENT = """
import asyncio, sys
from postroad.rpc.client import connect
from tests.unit.rpc import parcels

async def main():
    first = await connect(sys.argv[1], int(sys.argv[2]), parcels.PARCELS)
    second = await connect(sys.argv[1], int(sys.argv[2]), parcels.PARCELS, association=first.association)
    for client in (first, second):
        for _ in range(50):
            await client.call(parcels.OPEN, parcels.Open(None))
    waiting = [asyncio.create_task(second.call(parcels.WAIT, parcels.Wait(n))) for n in range(5)]
    print("ready", flush=True)
    await asyncio.gather(*waiting)

asyncio.run(main())
"""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  (another process brings it about)
            await asyncio.sleep(0.005)


def test_a_killed_process_is_run_down() -> None:
    async def run() -> None:
        async with counter() as it:
            environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CLIENT, HOST, str(it.port)), stdout=subprocess.PIPE, env=environment
            )
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            await until(lambda: len(it.waiting) == 5)
            assert len(it.open) == 100
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await until(lambda: len(it.run_down) == 100)
            assert it.open == set()
            assert sorted(it.cancelled) == [0, 1, 2, 3, 4]
            assert it.waiting == {}
            assert not it.server.links
            assert not len(it.server.endpoint.associations)

    asyncio.run(run())


def test_both_sides_probe_a_peer_that_says_nothing() -> None:
    async def run() -> None:
        async with counter() as it:
            client = await connect(HOST, it.port, PARCELS)
            (link,) = it.server.links
            for transport in (link.transport, client._link.transport):
                assert transport is not None
                connection = transport.get_extra_info("socket")
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                if hasattr(socket, "TCP_KEEPIDLE"):
                    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            await client.close()

    asyncio.run(run())
