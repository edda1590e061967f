"""A queue manager that remote readers can reach, on an event loop of its own thread, for tests that wait for nothing
themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from postroad.config import default_configuration
from postroad.manager import Manager, build_manager
from postroad.message import Message
from postroad.remote_read.server import RemoteReadServer
from postroad.reports.info import ReaderInfo
from postroad.rpc.constants import AuthLevel
from postroad.rpc.gss import providers
from postroad.store import MemoryStore, Store

T = TypeVar("T")
HOST = "127.0.70.1"
ORDERS = r"private$\orders"
OTHER = r"private$\other"
DIRECT = rf"OS:alpha\{ORDERS}"  # as a QUEUE_FORMAT carries it
USER, PASSWORD = "reader", "a secret"
OTHER_USER = "somebody else"
PATIENCE_S = 30


class Station:
    """`run` runs a coroutine where the manager lives."""

    def __init__(self, manager: Manager, server: RemoteReadServer, loop: asyncio.AbstractEventLoop) -> None:
        self.manager = manager
        self.server = server
        self.loop = loop

    @property
    def address(self) -> tuple[str, int]:
        return self.server.host, self.server.ports.handshake

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def send(self, *labels: str, queue: str = ORDERS, **properties: Any) -> None:
        properties.setdefault("recoverable", True)
        self.run(self.manager.send(queue, [Message(each.encode(), label=each, **properties) for each in labels]))

    def labels(self, queue: str = ORDERS) -> list[str]:
        """What a reader could have."""

        async def look() -> list[str]:
            return [message.label for message in await self.manager.reads.peek(queue, 10_000, after=-1)]

        return self.run(look())

    def count(self, queue: str = ORDERS) -> int:
        """Every message, also those that somebody holds."""

        async def look() -> int:
            return self.manager.core.queues.get(queue).count

        return self.run(look())

    def readers_of(self, queue: str) -> list[ReaderInfo]:
        return [each for each in self.server.readers() if each.queue == queue]

    def wait_until(self, condition: str, wanted: int = 0) -> None:
        """Until the sum over all readers of one of their numbers is what is wanted; `readers` counts themselves."""

        async def look() -> None:
            while True:
                readers = self.server.readers()
                found = len(readers) if condition == "readers" else sum(getattr(each, condition) for each in readers)
                if found == wanted:
                    return
                await asyncio.sleep(0.01)

        self.run(asyncio.wait_for(look(), PATIENCE_S))


@contextmanager
def station(
    store: Store | None = None,
    *,
    host: str = HOST,
    port: int = 0,
    read_port: int | None = None,
    mapper_port: int | None = None,
    authenticate: bool = False,
    minimum_level: AuthLevel = AuthLevel.INTEGRITY,
    queues: Sequence[str] = (ORDERS, OTHER),
) -> Iterator[Station]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="station")
    thread.start()

    async def start() -> Station:
        manager = build_manager(default_configuration("alpha"), store or MemoryStore(), hosts=(host,))
        await manager.start()
        for path in queues:
            await manager.create_queue(path)
        users = providers({USER: PASSWORD, OTHER_USER: PASSWORD}, "alpha")
        server = RemoteReadServer(
            manager,
            host,
            port,
            read_port,
            providers=users,
            authenticate=authenticate,
            minimum_level=minimum_level,
        )
        try:
            await server.start()
            if mapper_port is not None:
                await server.register(mapper_port)
        except BaseException:
            await manager.stop()
            raise
        manager.doors.open(remote_read=server)
        return Station(manager, server, loop)

    try:
        running = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
        try:
            yield running
        finally:
            running.run(running.server.stop())
            running.run(running.manager.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
