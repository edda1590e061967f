"""What a client leaves behind when it dies: locks, transactions and handles end by themselves."""

from __future__ import annotations

import asyncio

import pytest

from postroad.errors import InvalidHandle, NoMessage, TransactionSequence
from postroad.manager import HANDLE_TIMEOUT_S, LOCK_TIMEOUT_S, TRANSACTION_TIMEOUT_S, Manager
from postroad.message import Message
from postroad.queues.descriptor import QueueAccess, ShareMode
from postroad.store.memory import MemoryStore

QUEUE = r"private$\orders"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


async def started(clock: Clock) -> Manager:
    manager = Manager("alpha", MemoryStore(), clock=clock)
    await manager.start()
    await manager.create_queue(QUEUE, transactional=True)
    await manager.send_transactional(QUEUE, [Message(b"1", label="first")])
    return manager


async def pass_time(manager: Manager, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    manager._release_abandoned(clock.now)
    await manager.durable()


def test_a_lock_that_nobody_settles_is_released_in_place() -> None:
    async def run() -> None:
        clock = Clock()
        manager = await started(clock)
        (message,) = await manager.lock(QUEUE, 1, 0)
        await pass_time(manager, clock, LOCK_TIMEOUT_S - 1)
        with pytest.raises(NoMessage):
            await manager.peek(QUEUE, 1, 0)
        await pass_time(manager, clock, 2)
        assert (await manager.peek(QUEUE, 1, 0))[0].lookup_id == message.lookup_id
        with pytest.raises(TransactionSequence):
            await manager.settle(QUEUE, [message.lookup_id], delete=True)
        await manager.stop()

    asyncio.run(run())


def test_a_transaction_that_nobody_ends_is_aborted() -> None:
    async def run() -> None:
        clock = Clock()
        manager = await started(clock)
        transaction = manager.begin()
        await manager.receive(QUEUE, 1, 0, transaction)
        await pass_time(manager, clock, TRANSACTION_TIMEOUT_S + 1)
        assert (await manager.peek(QUEUE, 1, 0))[0].aborts == 1
        with pytest.raises(TransactionSequence):
            await manager.commit(transaction)
        await manager.stop()

    asyncio.run(run())


def test_an_exclusive_handle_that_nobody_uses_is_closed() -> None:
    async def run() -> None:
        clock = Clock()
        manager = await started(clock)
        handle = manager.open_queue(QUEUE, QueueAccess.RECEIVE, ShareMode.DENY_RECEIVE)
        await pass_time(manager, clock, HANDLE_TIMEOUT_S - 1)
        manager.open_cursor(handle)  # a use starts the time again
        await pass_time(manager, clock, HANDLE_TIMEOUT_S - 1)
        manager.open_cursor(handle)
        await pass_time(manager, clock, HANDLE_TIMEOUT_S + 1)
        with pytest.raises(InvalidHandle):
            manager.open_cursor(handle)
        await manager.receive(QUEUE, 1, 0)
        await manager.stop()

    asyncio.run(run())
