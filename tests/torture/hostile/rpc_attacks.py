"""Attacks on remote read: DCE/RPC, with and without a user name."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import postroad.aio
from postroad.errors import PostroadError
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM
from postroad.rpc import pdu as pdus
from postroad.rpc.client_connection import ClientConnection
from tests.torture.hostile.honest import SECRET
from tests.torture.hostile.stage import RECOVERABLE, REMOTE, RPC, USER
from tests.torture.hostile.stranger import Line, Stranger


async def _bound(stranger: Stranger, line: Line) -> ClientConnection:
    """A connection bound to one of the two interfaces, without a user."""
    core = ClientConnection()
    core.bind(stranger.chance.choice((QMCOMM, QM2QM)))
    await line.send(core.data_to_send())
    core.receive(await line.read())
    return core


async def rpc_garbage(stranger: Stranger) -> None:
    async with stranger.line(stranger.target().host, RPC) as line:
        if stranger.chance.random() < 0.7:
            await _bound(stranger, line)
        await line.send(stranger.chance.randbytes(stranger.chance.randint(1, 3000)))
        await line.read_all(1.0)


async def guessed_handles(stranger: Stranger) -> None:
    """Calls with stubs of random octets. With luck, some contain other readers' handles."""
    async with stranger.line(stranger.target().host, RPC) as line:
        await _bound(stranger, line)
        for number in range(stranger.chance.randint(1, 20)):
            stub = stranger.chance.randbytes(stranger.chance.choice((0, 20, 24, 60, 200)))
            opnum = stranger.chance.randrange(12)
            await line.send(
                pdus.Request(
                    call_id=number + 2, flags=3, alloc_hint=len(stub), context_id=0, opnum=opnum, stub=stub
                ).encode()
            )
        await line.read_all(1.0)


async def unfinished_calls(stranger: Stranger) -> None:
    """Calls whose last fragment never comes."""
    async with AsyncExitStack() as stack:
        target = stranger.target()
        for _ in range(stranger.chance.randint(1, 10)):
            line = await stack.enter_async_context(stranger.line(target.host, RPC))
            await _bound(stranger, line)
            for _ in range(stranger.chance.randint(1, 50)):
                await line.send(
                    pdus.Request(
                        call_id=9, flags=1, alloc_hint=1 << 24, context_id=0, opnum=0, stub=bytes(4000)
                    ).encode()
                )
        await asyncio.sleep(stranger.chance.uniform(0.1, 2.0))


async def idle_binds(stranger: Stranger) -> None:
    target = stranger.target()
    async with AsyncExitStack() as stack:
        for _ in range(stranger.chance.randint(1, 30)):
            line = await stack.enter_async_context(stranger.line(target.host, RPC))
            if stranger.chance.random() < 0.5:
                await _bound(stranger, line)
        await asyncio.sleep(stranger.chance.uniform(0.1, 2.0))


async def without_a_user(stranger: Stranger) -> None:
    """Reads and purges, without a user or with a wrong password."""
    user = stranger.chance.choice((None, USER, "nobody"))
    async with postroad.aio.remote(
        stranger.target().host, port=RPC, user=user, password=None if user is None else "wrong"
    ) as manager:
        queue = manager.queue(stranger.chance.choice((RECOVERABLE, REMOTE)))
        try:
            if stranger.chance.random() < 0.5:
                message = await queue.receive(timeout=0.5)
                if SECRET in message.label:
                    stranger.findings.leaks.append(stranger.doing)
            else:
                await queue.purge()
                stranger.findings.leaks.append("a stranger purged a queue")
        except (PostroadError, TimeoutError):
            pass


ATTACKS = (rpc_garbage, guessed_handles, unfinished_calls, idle_binds, without_a_user)
