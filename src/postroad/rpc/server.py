"""An RPC server on asyncio. It listens, passes calls to handlers and writes their answers. The rules are in
server_connection.py.

A handler is a plain function that returns its reply or a `Later`, or a coroutine if it must wait. A handler that waits
delays no other call.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from postroad.errors import RpcFault
from postroad.net.limits import Admission
from postroad.net.limits import Limits as SharedLimits
from postroad.net.listening import Connection, Listener
from postroad.rpc import mgmt
from postroad.rpc.calls import Associations, Call, CallCancelled, CallReceived, Endpoint, Later, Limits, LoginRefused
from postroad.rpc.constants import AuthLevel, FaultStatus
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.security import Provider
from postroad.rpc.server_connection import ServerConnection
from postroad.runtime.bounded import BoundedTable, owner_of
from postroad.runtime.logs import RateLimitedLog
from postroad.security.attempts import FailedLogins

_log = logging.getLogger(__name__)

In = TypeVar("In")
Out = TypeVar("Out")
Handler = Callable[[Call, In], Out | Awaitable[Out] | Later[Out]]

PORT_STEP = 11  # [MS-MQQP] 3.1.4.8: if a static port is taken, the next one 11 higher is tried
PORT_TRIES = 100
_SWEEP_S = 1.0
_HANDLES_AHEAD = 256


class RpcServer:
    """Serves any number of interfaces at any number of addresses. All of them share the associations."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        shared: SharedLimits | None = None,
        providers: Mapping[int, Provider] | None = None,
        minimum_level: int = AuthLevel.CONNECT,
        logins: FailedLogins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """An authenticated client must protect every call at `minimum_level` or higher. `logins` counts failed logins
        by address; other listeners share it."""
        self.limits = limits or Limits()
        self.shared = shared or SharedLimits()  # shared with other listeners
        associations = Associations(
            partial(secrets.randbits, 32), partial(next, _random_octets()), self.limits.max_handles
        )
        self.endpoint = Endpoint(associations, self.limits, providers=providers or {}, minimum_level=int(minimum_level))
        self.logins = FailedLogins() if logins is None else logins
        self.clock = clock
        self.links: set[_Link] = set()
        self.half_open: BoundedTable[_Link, None] = BoundedTable(
            self.limits.max_half_open, dropped=lambda link, _: link.abort()
        )
        self._handlers: dict[Operation[Any, Any], Handler[Any, Any]] = {}
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._ended = RateLimitedLog(_log, "RPC connection ended")
        self._manage()

    def _manage(self) -> None:
        """Every server offers the management interface."""
        management = mgmt.Management(self.endpoint)
        self.register(mgmt.MGMT)
        self.on(mgmt.INQ_IF_IDS, management.interface_ids)
        self.on(mgmt.INQ_STATS, management.statistics)
        self.on(mgmt.IS_SERVER_LISTENING, management.is_listening)
        self.on(mgmt.STOP_SERVER_LISTENING, management.stop_listening)
        self.on(mgmt.INQ_PRINC_NAME, management.principal_name)

    def register(self, interface: Interface) -> None:
        """Offers an interface. An operation without a handler is answered as if it did not exist."""
        self.endpoint.interfaces[interface.uuid] = interface

    def on(self, operation: Operation[In, Out], handler: Handler[In, Out]) -> None:
        """Sets the handler of an operation. It may raise RpcFault. When its call is cancelled, it sees
        CancelledError."""
        self._handlers[operation] = handler

    async def listen(self, host: str, port: int, *, probe: bool = False) -> int:
        """Listens at one more address and returns the port. If it is taken, `probe` tries further ones in steps of
        11."""
        loop = asyncio.get_running_loop()
        for attempt in range(PORT_TRIES if probe else 1):
            chosen = port + attempt * PORT_STEP
            listener = Listener("rpc", self.shared, partial(_Link, self), host, chosen)
            try:
                await listener.start()
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not probe or attempt == PORT_TRIES - 1:
                    raise
                continue
            self._listeners.append(listener)
            if self._timer is None:
                self._timer = loop.call_later(_SWEEP_S, self._sweep)
            return listener.port
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        """Ends every call and connection, and runs down the context handles."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for link in self.links for task in link.tasks.values()]
        await asyncio.gather(*(each.stop() for each in self._listeners))
        await asyncio.gather(*tasks, return_exceptions=True)

    def end_logins(self, users: Collection[str]) -> None:
        """Ends the connections on which these users have logged in, and runs down what they have open."""
        for link in [*self.links]:
            if link.connection is not None and link.connection.has_user(users):
                link.connection.end("the user was removed, or has another password")
                self.log_end(link.address, "the user was removed, or has another password")
                link.abort()

    def gone(self, link: _Link) -> None:
        self.links.discard(link)
        self.half_open.pop(link)

    def log_end(self, address: str, reason: str) -> None:
        """Logs why a client lost its connection."""
        self._ended.warn(self.clock(), {"peer": address, "reason": reason})

    def handler(self, operation: Operation[Any, Any]) -> Handler[Any, Any] | None:
        return self._handlers.get(operation)

    def _sweep(self) -> None:
        now = self.clock()
        for link in [*self.links]:
            try:
                deadline = link.connection.deadline if link.connection is not None else None
                if deadline is not None and deadline <= now:
                    self.log_end(link.address, "no complete bind or request in time")
                    link.abort()
            except Exception:  # a bug; the other connections must keep their time-outs
                _log.exception("time-out check failed", extra={"peer": link.address})
        self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


class _Link(Connection):
    """One connection, and its calls that wait."""

    def __init__(self, server: RpcServer, listener: Listener, admission: Admission) -> None:
        super().__init__(listener, admission)
        self.server = server
        self.address = ""
        self.connection: ServerConnection | None = None
        self.tasks: dict[Call, asyncio.Future[Any]] = {}
        self._bound = False  # and logged in, if it wants to
        self._later: set[Call] = set()  # calls that wait without a task
        self._flushing = False  # a flush is due, at the end of this input or in the next turn of the event loop
        self._orphans: set[Call] = set()
        self._held: list[bytes] = []  # input that waits because its address may not log in yet
        self._waking: asyncio.TimerHandle | None = None
        self._deaf = False  # the client does not read its answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        server = self.server
        self.address = str(transport.get_extra_info("peername")[0])
        server.links.add(self)
        if len(server.links) > server.limits.max_connections:
            server.log_end(self.address, f"limit of {server.limits.max_connections} connections reached")
            self.transport.abort()
            return
        keep_alive(transport.get_extra_info("socket"))
        local = transport.get_extra_info("sockname")
        self.connection = ServerConnection(server.endpoint, self.address, server.clock(), (local[0], local[1]))
        if not server.half_open.put(self, None, owner_of(self.address)):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.closed:
            return
        if connection.logging_in and self._must_wait(data):
            return
        try:
            events = connection.receive(data, self.server.clock())
            if not self._bound and not connection.half_open:
                self._bound = True
                self.server.half_open.pop(self)
                self.admission.busy()
            if (unfinished := connection.unfinished) != self.admission.held:
                self.admission.hold(unfinished)
            self._flushing = True  # what these calls are answered at once leaves together
            for event in events:
                if isinstance(event, LoginRefused):
                    self.server.logins.failed(self.address, self.server.clock(), door="rpc", who=event.who)
                else:
                    self._handle(event)
            self._flush_together()
        except Exception:  # a bug; it ends this connection and no other
            _log.exception("RPC connection failed", extra={"peer": self.address})
            self.abort()

    def _must_wait(self, data: bytes) -> bool:
        """Whether this input must wait. After failed logins the next login waits, from the same address only."""
        wait = self.server.logins.delay(self.address, self.server.clock())
        if not wait and self._waking is None:
            return False
        self._held.append(data)
        if self._waking is None:
            self._waking = asyncio.get_running_loop().call_later(wait, self._wake)
            self._read_or_pause()
        return True

    def _wake(self) -> None:
        """Tries again. If another attempt from this address has failed meanwhile, the input waits again."""
        held, self._held, self._waking = b"".join(self._held), [], None
        self.data_received(held)
        self._read_or_pause()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.server.gone(self)
        if self._waking is not None:
            self._waking.cancel()
        if self.connection is None:
            return
        # First the calls, then the handles that they may use: disconnected() waits for the last call.
        self.connection.disconnected()
        for task in list(self.tasks.values()):
            task.cancel()
        later, self._later = self._later, set()
        for call in later:
            self.connection.drop(call)

    def abort(self) -> None:
        self.server.half_open.pop(self)
        self.transport.abort()

    def shutdown(self) -> None:
        self.abort()

    def pause_writing(self) -> None:
        """Stops reading requests, because the client does not read its answers."""
        super().pause_writing()
        self._deaf = True
        self._read_or_pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._deaf = False
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        if self.transport.is_closing():
            return
        if self._deaf or self._waking is not None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # Calls

    def _handle(self, event: CallReceived | CallCancelled) -> None:
        assert self.connection is not None
        call = event.call
        if isinstance(event, CallCancelled):
            if event.orphaned and call in self._later:
                self._later.discard(call)
                self.connection.drop(call)
            elif event.orphaned:
                self._orphans.add(call)
            if call in self.tasks:
                self.tasks[call].cancel()
            return
        self.server.endpoint.calls_in += 1
        handler = self.server.handler(call.operation)
        if handler is None:
            self.connection.fault(call, FaultStatus.NCA_OP_RANGE_ERROR, executed=False)
            return
        try:
            result = handler(call, call.request)
        except Exception as error:
            self._fail(call, error)
            return
        if isinstance(result, Later):
            self._later.add(call)
            result.then(partial(self._later_replied, call))
        elif hasattr(result, "__await__"):
            task = asyncio.ensure_future(result)
            self.tasks[call] = task
            task.add_done_callback(partial(self._done, call))
        else:
            self._reply(call, result)

    def _done(self, call: Call, task: asyncio.Future[Any]) -> None:
        assert self.connection is not None
        del self.tasks[call]
        if call in self._orphans:
            self._orphans.discard(call)
            if not task.cancelled():
                task.exception()  # retrieved, or asyncio would log it
            self.connection.drop(call)
        elif task.cancelled():
            self.connection.fault(call, FaultStatus.NCA_FAULT_CANCEL)
        elif (error := task.exception()) is not None:
            self._fail(call, error)
        else:
            self._reply(call, task.result())
        self._flush()

    def _later_replied(self, call: Call, reply: object) -> None:
        if call not in self._later:  # the client left, or wants no reply
            return
        self._later.discard(call)
        self._reply(call, reply)
        if self._flushing:
            return
        if not self._later:
            self._flush()
        else:  # several calls may wait for one commit: their replies leave together
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_together)

    def _flush_together(self) -> None:
        self._flushing = False
        self._flush()

    def _reply(self, call: Call, reply: object) -> None:
        assert self.connection is not None
        try:
            self.connection.reply(call, reply)
        except Exception as error:  # the handler's answer has a wrong type
            self._fail(call, error)

    def _fail(self, call: Call, error: BaseException) -> None:
        assert self.connection is not None
        if isinstance(error, RpcFault):
            self.connection.fault(call, error.fault_status)
            return
        _log.error("RPC call failed", extra={"operation": call.operation.name, "peer": self.address}, exc_info=error)
        self.connection.fault(call, FaultStatus.NCA_FAULT_UNSPECIFIED)

    def _flush(self) -> None:
        connection, transport = self.connection, self.transport
        if connection is None:
            return
        data = connection.data_to_send()
        if data and not transport.is_closing():
            transport.write(data)
            if transport.get_write_buffer_size() > self.server.limits.max_unsent:
                self.server.shared.unread_output.hit(address=self.address)
                transport.abort()
        if connection.closed and not transport.is_closing():
            if connection.fault_text:
                self.server.log_end(self.address, connection.fault_text)
            transport.close()


def _random_octets() -> Iterator[bytes]:
    """Returns 16 octets for a context handle. Every receive needs them, so they are taken from the system in bulk."""
    while True:
        octets = secrets.token_bytes(_HANDLES_AHEAD * 16)
        for start in range(0, len(octets), 16):
            yield octets[start : start + 16]


def keep_alive(connection: socket.socket) -> None:
    """Makes the system notice within two minutes that a peer has vanished. Its context handles are then run down."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6), ("TCP_USER_TIMEOUT", 120000)):
        option = getattr(socket, name, None)  # not every system has all of these options
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
