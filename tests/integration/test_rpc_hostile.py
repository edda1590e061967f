"""Hostile clients over real connections: garbage, answers that nobody reads, requests that never end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from postroad.net import listening
from postroad.rpc import pdu as pdus
from postroad.rpc.calls import Limits
from postroad.rpc.client import connect
from postroad.rpc.client_connection import ClientConnection
from postroad.rpc.ndr import Format
from tests.unit.rpc import parcels
from tests.unit.rpc.counter import HOST, Counter, counter
from tests.unit.rpc.parcels import PARCELS, Colour, Echo, Parcel

LARGE = parcels.ECHO.request.encode(Echo(Parcel(1, 1 << 19, Colour.RED, bytes(1 << 19))), Format.NDR)


async def bound(it: Counter) -> tuple[ClientConnection, asyncio.StreamReader, asyncio.StreamWriter]:
    """A client with our core, whose connection does what a test wants."""
    reader, writer = await asyncio.open_connection(HOST, it.port)
    core = ClientConnection()
    core.bind(PARCELS)
    writer.write(core.data_to_send())
    while not core.receive(await reader.read(65536)):
        pass
    return core, reader, writer


async def still_serves(it: Counter) -> None:
    client = await connect(HOST, it.port, PARCELS)
    assert (await client.call(parcels.CALL_OFF, parcels.Wait(1))).status == 1
    await client.close()


def test_garbage_ends_its_own_connection_alone() -> None:
    async def run() -> None:
        chance = random.Random(7)
        async with counter() as it:
            bystander = await connect(HOST, it.port, PARCELS)
            for _ in range(200):
                core, reader, writer = await bound(it)
                core.call(PARCELS, 0, chance.randbytes(chance.randrange(200)))
                octets = bytearray(core.data_to_send() + chance.randbytes(chance.randrange(100)))
                for _ in range(chance.randrange(8)):
                    octets[chance.randrange(len(octets))] = chance.randrange(256)
                writer.write(bytes(octets))
                writer.write_eof()  # it may wait for more of what the octets promise
                while await reader.read(65536):
                    pass
                writer.close()
            assert (await bystander.call(parcels.CALL_OFF, parcels.Wait(1))).status == 1
            await bystander.close()
            assert it.server.endpoint.gathering == 0

    asyncio.run(run())


async def deaf(it: Counter) -> asyncio.StreamWriter:
    """A client that asks for 32 MiB of answers and reads none of them."""
    core, _, writer = await bound(it)
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    for _ in range(64):
        core.call(PARCELS, 0, LARGE)
        writer.write(core.data_to_send())
        await asyncio.sleep(0)
    return writer


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to that")


def test_nothing_more_is_taken_of_a_client_that_takes_no_answers() -> None:
    async def run() -> None:
        async with counter() as it:
            writer = await deaf(it)
            (link,) = it.server.links
            transport = link.transport
            assert transport is not None
            await until(lambda: not transport.is_reading())
            assert transport.get_write_buffer_size() < 2 << 20
            await still_serves(it)
            writer.transport.abort()

    asyncio.run(run())


def test_a_client_whose_answers_pile_up_is_dropped() -> None:
    async def run() -> None:
        async with counter(limits=Limits(max_unsent=100_000)) as it:
            writer = await deaf(it)
            await until(lambda: not it.server.links)
            await still_serves(it)
            writer.transport.abort()

    asyncio.run(run())


def test_a_client_that_takes_no_answers_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "UNREAD_S", 0.2)

    async def run() -> None:
        async with counter() as it:
            writer = await deaf(it)
            await until(lambda: not it.server.links)
            assert it.server.shared.unread_output.reached == 1
            await still_serves(it)
            writer.transport.abort()

    asyncio.run(run())


def test_unfinished_requests_share_the_budget_of_all_listeners() -> None:
    async def run() -> None:
        async with counter() as it:
            _, _, writer = await bound(it)
            part = pdus.Request(call_id=9, flags=1, alloc_hint=0, context_id=0, opnum=0, stub=bytes(1000)).encode()
            writer.write(part + part[:100])
            held = it.server.shared.unfinished_input
            await until(lambda: held.current == 1100)
            writer.close()
            await until(lambda: held.current == 0)

    asyncio.run(run())


def test_a_request_that_never_ends_is_given_up() -> None:
    async def run() -> None:
        async with counter(limits=Limits(fragment_timeout_s=0.01)) as it:
            core, reader, writer = await bound(it)
            first = pdus.Request(call_id=9, flags=1, alloc_hint=0, context_id=0, opnum=0, stub=bytes(100)).encode()
            writer.write(first)
            assert await reader.read() == b""
            assert it.server.endpoint.gathering == 0
            assert not core.closed
            await still_serves(it)
            writer.close()

    asyncio.run(run())


def test_half_a_header_and_nothing_more() -> None:
    async def run() -> None:
        async with counter(limits=Limits(bind_timeout_s=0.01)) as it:
            reader, writer = await asyncio.open_connection(HOST, it.port)
            writer.write(b"\5\0\x0b")
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())
