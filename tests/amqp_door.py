"""The listener of AMQP on a free port, its manager on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from ssl import SSLContext
from typing import Any, TypeVar

from postroad.amqp.engine import EngineSettings
from postroad.amqp.listener import AmqpListener, Credentials
from postroad.config import default_configuration
from postroad.describe.received import ReceivedMessage
from postroad.manager import Manager, build_manager
from postroad.message import Message
from postroad.security.audit import AuditLog
from postroad.security.users import User, Users
from postroad.store import MemoryStore, Store

T = TypeVar("T")
PATIENCE_S = 20
EVERYBODY = Credentials({}, None, everybody=True)
ORDERS, TX, TX2 = r"private$\orders", r"private$\tx", r"private$\tx2"


class AmqpDoor:
    def __init__(self, manager: Manager, listener: AmqpListener, loop: asyncio.AbstractEventLoop) -> None:
        self.manager = manager
        self.listener = listener
        self.loop = loop

    @property
    def address(self) -> str:
        return self.listener.address

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def send(self, *bodies: bytes, queue: str = ORDERS, **properties: Any) -> list[str]:
        messages = [Message(body, **{"recoverable": True, **properties}) for body in bodies]
        sent = self.manager.send_transactional if queue in (TX, TX2) else self.manager.send
        return self.run(sent(queue, messages))

    def count(self, queue: str = ORDERS) -> int:
        """How many messages the queue has, with those that a reader holds."""
        self.run(self._landed())
        return self.manager.queue(queue).messages

    async def _landed(self) -> None:
        await self.manager.durability.landed()

    def messages(self, queue: str = ORDERS) -> list[ReceivedMessage]:
        """What another reader finds now."""

        async def look() -> list[ReceivedMessage]:
            await self.manager.durability.landed()
            return await self.manager.reads.peek(queue, 1000, after=-1)

        return self.run(look())

    def bodies(self, queue: str = ORDERS) -> list[bytes]:
        return [each.body for each in self.messages(queue)]

    def dial(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


@contextmanager
def amqp_door(
    store: Store | None = None,
    *,
    credentials: Credentials = EVERYBODY,
    users: Sequence[User] = (),
    tls: SSLContext | None = None,
    audit: Path | None = None,
    settings: EngineSettings = EngineSettings("alpha"),  # noqa: B008  (it is frozen)
    queues: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[AmqpDoor]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="amqp door")
    thread.start()

    async def start() -> AmqpDoor:
        manager = build_manager(default_configuration("alpha"), store or MemoryStore(), audit=AuditLog(audit))
        manager.core.use(replace(manager.core.settings, users=Users(users)), manager.clock())
        await manager.start()
        for path, attributes in (queues or {ORDERS: {}, TX: {"transactional": True}}).items():
            await manager.create_queue(path, **attributes)
        listener = AmqpListener(manager, manager.leases.core, "127.0.0.1", 0, settings, credentials, tls)
        await listener.start()
        manager.doors.open(amqp=listener.service)
        return AmqpDoor(manager, listener, loop)

    try:
        running = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
        try:
            yield running
        finally:
            running.run(running.listener.stop())
            running.run(running.manager.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
