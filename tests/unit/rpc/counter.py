"""A server of the parcels interface: what its operations do, and what tests can see of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from postroad.errors import RpcFault
from postroad.rpc.calls import Call, Limits
from postroad.rpc.constants import AuthLevel
from postroad.rpc.interface import Nothing
from postroad.rpc.security import Provider
from postroad.rpc.server import RpcServer
from tests.unit.rpc import parcels
from tests.unit.rpc.parcels import PARCELS

HOST = "127.0.60.1"


@dataclass(eq=False)
class Shelf:
    place: object


@dataclass
class Counter:
    """Keeps shelves; a call of Wait blocks until CallOff names its ticket."""

    server: RpcServer
    port: int = 0
    open: set[Shelf] = field(default_factory=set)
    run_down: list[Shelf] = field(default_factory=list)
    waiting: dict[int, asyncio.Event] = field(default_factory=dict)
    cancelled: list[int] = field(default_factory=list)
    identities: list[str | None] = field(default_factory=list)

    def echo(self, call: Call, request: parcels.Echo) -> parcels.EchoReply:
        self.identities.append(call.identity)
        return parcels.EchoReply(request.parcel, 0)

    def open_shelf(self, call: Call, request: parcels.Open) -> parcels.OpenReply:
        shelf = Shelf(None if request.address is None else request.address.place)
        self.open.add(shelf)
        return parcels.OpenReply(call.open_context(parcels.SHELF, shelf, self._ran_down), 0)

    def _ran_down(self, shelf: Shelf) -> None:
        self.open.discard(shelf)
        self.run_down.append(shelf)

    def use(self, call: Call, request: parcels.Use) -> parcels.Status:
        assert call.context(request.shelf, Shelf) in self.open
        return parcels.Status(7)

    def close(self, call: Call, request: parcels.Close) -> parcels.CloseReply:
        self.open.discard(call.context(request.shelf, Shelf))
        return parcels.CloseReply(call.close_context(request.shelf))

    def count(self, call: Call, request: parcels.Count) -> parcels.Status:
        return parcels.Status(0)

    async def wait(self, call: Call, request: parcels.Wait) -> parcels.Status:
        event = self.waiting[request.ticket] = asyncio.Event()
        try:
            await event.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.ticket)
            raise
        finally:
            del self.waiting[request.ticket]
        return parcels.Status(request.ticket)

    def call_off(self, call: Call, request: parcels.Wait) -> parcels.Status:
        event = self.waiting.get(request.ticket)
        if event is None:
            return parcels.Status(1)
        event.set()
        return parcels.Status(0)

    def fail(self, call: Call, request: Nothing) -> parcels.Status:
        raise RpcFault(0xC00E0007)

    def empty(self, call: Call, request: Nothing) -> Nothing:
        return request


@asynccontextmanager
async def counter(
    *,
    limits: Limits | None = None,
    providers: Mapping[int, Provider] | None = None,
    minimum_level: AuthLevel = AuthLevel.CONNECT,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Counter]:
    server = RpcServer(limits=limits, providers=providers, minimum_level=minimum_level, clock=clock)
    it = Counter(server)
    server.register(PARCELS)
    server.on(parcels.ECHO, it.echo)
    server.on(parcels.OPEN, it.open_shelf)
    server.on(parcels.USE, it.use)
    server.on(parcels.CLOSE, it.close)
    server.on(parcels.COUNT, it.count)
    server.on(parcels.WAIT, it.wait)
    server.on(parcels.CALL_OFF, it.call_off)
    server.on(parcels.FAIL, it.fail)
    server.on(parcels.EMPTY, it.empty)
    it.port = await server.listen(HOST, 0)
    try:
        yield it
    finally:
        await server.stop()
