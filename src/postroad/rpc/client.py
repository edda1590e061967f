"""An RPC client on asyncio: many calls in flight on one connection, time-outs, cancelling. The rules are in
client_connection.py."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from postroad.errors import (
    AuthenticationFailed,
    BindRefused,
    InterfaceNotOffered,
    PostroadError,
    RemoteProtocolError,
    RpcFault,
    RpcUnavailable,
)
from postroad.net.endpoints import SILENT_S, AddressOrder, endpoint, plain_address
from postroad.net.reaching import find, open_connection
from postroad.rpc.client_connection import Bound, ClientConnection, Faulted, Refused, Replied
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import Format
from postroad.rpc.security import SecurityContext
from postroad.rpc.server import keep_alive

In = TypeVar("In")
Out = TypeVar("Out")

CONNECT_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 2.0
_ORDER = AddressOrder()  # of all clients of this process


_Settled = Callable[[tuple[bytes, str] | None, PostroadError | None], None]


class RpcClient:
    """One connection to a server. Use `connect` to make one; it binds an interface at its first call."""

    def __init__(self, core: ClientConnection, peer: str) -> None:
        self._core = core
        self._peer = peer
        self._link = _Link(self)
        self._calls: dict[int, asyncio.Future[tuple[bytes, str]]] = {}
        self._late: dict[int, _Settled] = {}  # of calls without a future of their own, or whose caller has left
        self._unclaimed: dict[
            int, tuple[bytes, str] | None
        ] = {}  # replies that came while the caller was being cancelled
        self._binding: asyncio.Future[None] | None = None
        self._bind_lock = asyncio.Lock()
        self._error: PostroadError | None = None
        self._flushing = False  # a flush is due at the end of this turn of the event loop

    @property
    def association(self) -> int:
        """The association's id. A client that connects with it shares the context handles of this one."""
        return self._core.association

    @property
    def address(self) -> str:
        """The address that it is connected to."""
        transport = self._link.transport
        return "" if transport is None else plain_address(str(transport.get_extra_info("peername")[0]))

    def link(self) -> asyncio.Protocol:
        return self._link

    @property
    def closed(self) -> bool:
        return self._error is not None or self._core.closed

    async def bind(self, interface: Interface) -> None:
        """Makes an interface callable. Raises RpcUnavailable if the server does not offer it."""
        async with self._bind_lock:
            if self._core.layout(interface) is not None:
                return
            self._refuse_closed()
            self._binding = asyncio.get_running_loop().create_future()
            self._core.bind(interface)
            self.flush()
            try:
                await self._binding
            except asyncio.CancelledError:
                # The answer would reach no caller, and the next bind would wait for it.
                self._fail(RpcUnavailable(f"the bind to {self._peer} was cancelled"))
                raise
            finally:
                self._binding = None

    def send(self, operation: Operation[In, Out], request: In, done: Callable[[Out | None], None]) -> None:
        """Makes a call for which nobody waits. It leaves with the next one of this turn of the event loop, or at its
        end. `done` gets the reply, or None if none comes. The interface must be bound."""
        self._refuse_closed()
        octets, layout = self._encoded(operation, request)
        call_id = self._core.call(operation.interface, operation.opnum, octets)
        decoded = partial(self._decoded, operation, request, layout)

        def settled(answer: tuple[bytes, str] | None, error: PostroadError | None) -> None:
            try:
                reply = None if answer is None else decoded(*answer)
            except RpcUnavailable:
                reply = None
            done(reply)

        self._late[call_id] = settled
        self._flush_soon()

    async def call_all(self, calls: Sequence[tuple[Operation[Any, Any], Any]]) -> list[Any]:
        """Makes several calls that leave together, without a task for each. Returns what each is answered, or its
        RpcFault or RpcUnavailable. Their interfaces must be bound.

        If the caller leaves, the calls go on, and nobody gets the answers.
        """
        self._refuse_closed()
        answers: dict[int, tuple[bytes, str] | PostroadError] = {}
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(place: int, answer: tuple[bytes, str] | None, error: PostroadError | None) -> None:
            answers[place] = answer or error or RpcUnavailable(f"{self._peer} sent no answer")
            if len(answers) == len(calls) and not ended.done():
                ended.set_result(None)

        stubs = [self._encoded(operation, request) for operation, request in calls]
        for place, ((operation, _), (octets, _)) in enumerate(zip(calls, stubs, strict=True)):
            self._late[self._core.call(operation.interface, operation.opnum, octets)] = partial(settled, place)
        self._flush_soon()
        if calls:
            await ended
        found: list[Any] = []
        for place, ((operation, request), (_, layout)) in enumerate(zip(calls, stubs, strict=True)):
            answer = answers[place]
            if not isinstance(answer, PostroadError):
                try:
                    answer = self._decoded(operation, request, layout, *answer)
                except RpcUnavailable as error:
                    answer = error
            found.append(answer)
        return found

    def _encoded(self, operation: Operation[In, Out], request: In) -> tuple[bytes, Format]:
        layout = self._core.layout(operation.interface)
        assert layout is not None
        return operation.request.encode(request, layout), layout

    def _flush_soon(self) -> None:
        """Further calls of this turn of the event loop leave with the ones before."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_together)

    async def call(
        self,
        operation: Operation[In, Out],
        request: In,
        timeout: float | None = None,
        late: Callable[[Out | None], None] | None = None,
    ) -> Out:
        """Makes one call. Raises RpcFault if the server answers with a fault, RpcUnavailable if the connection ends,
        and TimeoutError after `timeout`.

        A call that times out, or whose task is cancelled, is orphaned: the server ends it, and other calls continue.
        With `late` the call continues instead; `late` then gets the reply when it comes, or None if none comes.
        """
        interface = operation.interface
        layout = self._core.layout(interface)
        if layout is None:
            async with asyncio.timeout(timeout):
                await self.bind(interface)
            layout = self._core.layout(interface)
        self._refuse_closed()
        assert layout is not None
        call_id = self._core.call(interface, operation.opnum, operation.request.encode(request, layout))
        loop = asyncio.get_running_loop()
        answer = self._calls[call_id] = loop.create_future()
        if len(self._calls) == 1:
            self.flush()
        else:
            self._flush_soon()
        try:
            if timeout is None:
                octets, order = await answer
            else:
                async with asyncio.timeout(timeout):
                    octets, order = await answer
        except (TimeoutError, asyncio.CancelledError):
            if late is not None:
                self._follow(call_id, answer, partial(self._decoded, operation, request, layout), late)
            elif not self.closed:
                self._core.orphan(call_id)
                self.flush()
            raise
        finally:
            del self._calls[call_id]
            if self._unclaimed:
                self._unclaimed.pop(call_id, None)
        return self._decoded(operation, request, layout, octets, order)

    def _decoded(self, operation: Operation[In, Out], request: In, layout: Format, octets: bytes, order: str) -> Out:
        try:
            return operation.reply.decode(octets, layout, order if layout is Format.NDR else "<", request)
        except RemoteProtocolError as error:
            raise RpcUnavailable(f"{self._peer} sent an invalid answer to {operation.name}: {error}") from None

    def _follow(
        self,
        call_id: int,
        answer: asyncio.Future[tuple[bytes, str]],
        decoded: Callable[[bytes, str], Out],
        late: Callable[[Out | None], None],
    ) -> None:
        """Passes the reply of a call whose caller has left to `late`. It may come before or after the cancellation."""

        def settled(answer: tuple[bytes, str] | None, error: PostroadError | None = None) -> None:
            try:
                late(None if answer is None else decoded(*answer))
            except RpcUnavailable:
                late(None)

        if answer.done() and not answer.cancelled():
            settled(None if answer.exception() is not None else answer.result())
        elif call_id in self._unclaimed:
            settled(self._unclaimed.pop(call_id))
        elif self.closed:
            late(None)
        else:
            self._late[call_id] = settled

    def cancel_calls(self) -> None:
        """Asks the server to end all calls in flight. Each ends with a fault, or with a reply that came first."""
        for call_id in self._calls:
            self._core.cancel(call_id)
        self.flush()

    async def close(self) -> None:
        """Closes the connection. When an association loses its last one, the server runs down its handles."""
        self._fail(RpcUnavailable(f"the connection to {self._peer} is closed"))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._link.gone.wait()
        except TimeoutError:  # the peer does not read
            if self._link.transport is not None:
                self._link.transport.abort()

    async def ended(self) -> None:
        """Returns once the connection has ended, whoever ended it."""
        await self._link.gone.wait()

    # Events of the link

    def _flush_together(self) -> None:
        self._flushing = False
        self.flush()

    def flush(self) -> None:
        transport = self._link.transport
        if transport is None or transport.is_closing():
            return
        data = self._core.data_to_send()
        if data:
            transport.write(data)
        if self._core.closed:
            self._fail(RpcUnavailable(f"the connection to {self._peer} was closed to cancel a call"))

    def received(self, data: bytes) -> None:
        if self._error is not None:
            return
        try:
            events = self._core.receive(data)
        except AuthenticationFailed as error:
            self._fail(error)
            return
        except RemoteProtocolError as error:
            self._fail(RpcUnavailable(f"{self._peer} does not speak RPC: {error}"))
            return
        for event in events:
            if isinstance(event, Replied):
                self._settle(event.call_id, (event.stub, event.order), None)
            elif isinstance(event, Faulted):
                self._settle(event.call_id, None, RpcFault(event.status))
            elif self._binding is not None and not self._binding.done():
                if isinstance(event, Bound):
                    self._binding.set_result(None)
                else:
                    assert isinstance(event, Refused)
                    refusal = BindRefused if event.offered else InterfaceNotOffered
                    self._binding.set_exception(refusal(f"{self._peer}: {event.why}"))
        if self._core.has_data:
            self.flush()

    def lost(self, error: Exception | None) -> None:
        words = f": {_words(error)}" if isinstance(error, OSError) else ""
        self._fail(RpcUnavailable(f"{self._peer} closed the connection{words}"))

    def _settle(self, call_id: int, answer: tuple[bytes, str] | None, error: RpcFault | None) -> None:
        if self._late and call_id in self._late:
            self._late.pop(call_id)(answer, error)
            return
        future = self._calls.get(call_id)
        if future is None:
            return
        if future.done():
            self._unclaimed[call_id] = answer
        elif error is not None:
            future.set_exception(error)
        elif answer is not None:
            future.set_result(answer)

    def _fail(self, error: PostroadError) -> None:
        """Ends every call in flight, because the connection has ended."""
        if self._error is None:
            self._error = error
        for call in self._calls.values():
            if not call.done():
                call.set_exception(self._error)
        late, self._late = self._late, {}
        for settled in late.values():
            settled(None, self._error)
        if self._binding is not None and not self._binding.done():
            self._binding.set_exception(self._error)
        if self._link.transport is not None:
            self._link.transport.close()

    def _refuse_closed(self) -> None:
        if self._error is not None:
            raise self._error


class _Link(asyncio.Protocol):
    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self.transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._client.received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.lost(error)
        self.gone.set()


async def connect(
    host: str,
    port: int,
    *interfaces: Interface,
    association: int = 0,
    security: SecurityContext | None = None,
    layouts: tuple[Format, ...] = (Format.NDR, Format.NDR64),
    local_host: str | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
) -> RpcClient:
    """Connects to `host`:`port` and binds the interfaces. Of several addresses of the host, one that accepts and does
    not answer is left for the others. Raises RpcUnavailable with a sentence that says why not."""
    peer = endpoint(host, port)
    try:
        async with asyncio.timeout(timeout):
            places = await find([host], lambda host: port, _ORDER)
            while True:
                core = ClientConnection(association=association, security=security, layouts=layouts)
                client = RpcClient(core, peer)
                await open_connection(client.link, places, local_host)
                try:
                    async with asyncio.timeout(SILENT_S if len(places) > 1 else None):
                        for interface in interfaces:
                            await client.bind(interface)
                    _ORDER.answered(client.address)
                    return client
                except TimeoutError:
                    await client.close()
                    _ORDER.failed(client.address)
                    places = [each for each in places if each.address != client.address]
                    if not places or security is not None:  # which is good for one connection
                        raise
                except BaseException:
                    await client.close()
                    raise
    except TimeoutError:
        raise RpcUnavailable(f"{peer} did not answer within {timeout:g} seconds") from None
    except (socket.gaierror, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise RpcUnavailable(f"{host} cannot be found: {words}") from None
    except OSError as error:
        raise RpcUnavailable(f"cannot connect to {peer}: {_words(error)}") from None


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
