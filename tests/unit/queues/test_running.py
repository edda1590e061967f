"""The running manager around the core: its states, and verbs that must neither lose nor double a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from postroad.config import default_configuration
from postroad.errors import QueueNotFound, TransactionSequence
from postroad.manager import Manager, build_manager
from postroad.message import Message
from postroad.queues.local import QueueManagerState
from postroad.queues.outgoing_queues import OutgoingState
from postroad.store.memory import MemoryStore
from tests.unit.queues.harness import ELSEWHERE, NAME, ORDERS, OTHER, Harness


def run(body: Callable[[Manager], Awaitable[None]]) -> Manager:
    """A manager from its start to its stop, with two queues."""

    async def life() -> Manager:
        manager = build_manager(default_configuration(NAME), MemoryStore())
        await manager.start()
        try:
            await manager.create_queue(ORDERS)
            await manager.create_queue(OTHER)
            await body(manager)
        finally:
            await manager.stop()
        return manager

    return asyncio.run(life())


@pytest.mark.spec("DM-3.1.1.1-08")
def test_a_manager_goes_from_stopped_to_stopped() -> None:
    states = []

    async def life() -> None:
        manager = build_manager(default_configuration(NAME), MemoryStore())
        states.append(manager.core.state)
        starting = asyncio.ensure_future(manager.start())
        await asyncio.sleep(0)
        states.append(manager.core.state)
        await starting
        states.append(manager.core.state)
        stopping = asyncio.ensure_future(manager.stop())
        await asyncio.sleep(0)
        states.append(manager.core.state)
        await stopping
        states.append(manager.core.state)

    asyncio.run(life())
    assert states == [
        QueueManagerState.STOPPED,
        QueueManagerState.INITIALIZING,
        QueueManagerState.READY,
        QueueManagerState.STOPPING,
        QueueManagerState.STOPPED,
    ]


@pytest.mark.spec("DM-3.1.4.12-01")
def test_a_manager_is_online_until_it_is_taken_off_and_again_when_it_is_brought_back(harness: Harness) -> None:
    manager = harness.manager
    seen = [manager.connection_active]
    for step in (manager.take_offline, manager.bring_online):
        step(0.0)
        seen.append(manager.connection_active)
    assert seen == [True, False, True]


@pytest.mark.spec("DM-3.1.4.14-01", "DM-3.1.7.2.3-01", "DM-3.1.7.2.4-01")
def test_an_administrator_pauses_and_resumes_an_outgoing_queue() -> None:
    async def body(manager: Manager) -> None:
        await manager.send(ELSEWHERE, [Message(recoverable=True)])
        assert manager.pause_queue(ELSEWHERE).state == OutgoingState.ON_HOLD.value
        assert manager.resume_queue(ELSEWHERE).state == OutgoingState.INACTIVE.value

    run(body)


def test_messages_are_settled_together_or_not_at_all() -> None:
    async def body(manager: Manager) -> None:
        await manager.send(ORDERS, [Message(label="a", recoverable=True)])
        (locked,) = (await manager.reads.lock(ORDERS, timeout=0)).messages
        with pytest.raises(TransactionSequence):
            await manager.reads.settle(ORDERS, [locked.lookup_id, 99], delete=True)
        await manager.reads.settle(ORDERS, [locked.lookup_id, locked.lookup_id], delete=False)
        assert [message.label for message in await manager.reads.peek(ORDERS, timeout=0)] == ["a"]

    run(body)


def test_a_message_that_is_named_twice_is_moved_once() -> None:
    async def body(manager: Manager) -> None:
        await manager.send(ORDERS, [Message(label="a", recoverable=True)])
        (message,) = await manager.reads.peek(ORDERS, timeout=0)
        assert await manager.rescue.move(ORDERS, OTHER, [message.lookup_id] * 2) == [message.lookup_id]
        assert manager.queue(OTHER).messages == 1

    run(body)


def test_messages_on_their_way_can_be_looked_at_and_not_received() -> None:
    async def body(manager: Manager) -> None:
        with pytest.raises(QueueNotFound):
            await manager.reads.peek(ELSEWHERE, timeout=0)
        await manager.send(ELSEWHERE, [Message(label="a", recoverable=True)])
        assert [message.label for message in await manager.reads.peek(ELSEWHERE, timeout=0)] == ["a"]
        for read in (manager.reads.receive, manager.reads.lock):
            with pytest.raises(QueueNotFound, match="on another machine"):
                await read(ELSEWHERE, timeout=0)
        assert [message.label for message in await manager.reads.peek(ELSEWHERE, timeout=0)] == ["a"]

    run(body)


def test_every_queue_can_be_told_of() -> None:
    async def body(manager: Manager) -> None:
        await manager.send(ELSEWHERE, [Message(recoverable=True)])
        assert {info.path for info in manager.queues()} > {ORDERS, OTHER, ELSEWHERE, "system$;journal"}

    run(body)
