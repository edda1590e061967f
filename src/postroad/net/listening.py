"""The base of every listener and connection. A listener counts each connection before it creates anything for it.

The protocols are elsewhere, and limits.py decides how many connections there may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from postroad.net.endpoints import endpoint
from postroad.net.limits import MAX_CLOSING, UNREAD_S, Admission, Limits
from postroad.runtime.supervision import Running, Supervisor

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTS_AT_A_TIME = 8  # by one listener before others get a turn
CLOSING_TURNS = 8  # of the event loop, within which aborted connections free their descriptors
RETRY_S = 1.0  # after the system ran out of descriptors or memory
TLS_HANDSHAKE_S = 30.0
MIN_TAKEN = 0x10000  # bytes that a peer must read in UNREAD_S, if that many wait for it
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Factory = Callable[["Listener", Admission], "Connection"]


async def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at every address of `host`, all on one port. Raises OSError if an address is not
    available."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            if os.name == "posix" and sys.platform != "cygwin":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind((address[0], port, *address[2:]))
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
    except BaseException:
        for listener in sockets:
            listener.close()
        raise
    return sockets


class Connection(asyncio.Protocol):
    """One connection, incoming or outgoing. It counts against the limits while it is open, and it closes if the peer
    reads none of our output. A subclass that overrides a callback must call it here too."""

    transport: asyncio.Transport

    def __init__(self, listener: Listener, admission: Admission) -> None:
        self.listener = listener
        self.admission = admission
        self._unread = 0  # bytes of output at the last check
        self._reading: asyncio.TimerHandle | None = None  # runs until the peer has read enough

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # other event loops do not subclass it
        self.listener.connections.add(self)
        self.admission.attach(self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        Connection.resume_writing(self)
        self.admission.close()
        self.listener.forget(self)

    def pause_writing(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reading = asyncio.get_running_loop().call_later(UNREAD_S, self._look_at_output)

    def resume_writing(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _look_at_output(self) -> None:
        if self.transport.get_write_buffer_size() > self._unread - MIN_TAKEN:
            self.listener.limits.unread_output.hit(address=self.admission.address, bytes=self._unread)
            self.transport.abort()
        else:
            Connection.pause_writing(self)

    def shutdown(self) -> None:
        """The listener stops: the connection begins nothing new."""
        self.transport.close()


class Listener:
    """Listens at one port. `start` begins to accept, and `stop` also ends the connections. Port 0 means any free port.
    `factory` makes the protocol of a connection. `grace_s` is how long `stop` waits for work under way."""

    def __init__(
        self,
        name: str,
        limits: Limits,
        factory: Factory,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        supervisor: Supervisor | None = None,
        grace_s: float = 1.0,
    ) -> None:
        self.name = name
        self.limits = limits
        self.host = host
        self.port = port
        self.tls = tls
        self.connections: set[Connection] = set()
        self._factory = factory
        self._supervisor = supervisor or Supervisor()
        self._grace_s = grace_s
        self._sockets: Sequence[socket.socket] = ()
        self._tasks: set[asyncio.Task[None]] = set()  # connections without a protocol yet
        self._emptied = asyncio.Event()
        self._task = ""  # the supervisor's name for the accepting task

    @property
    def address(self) -> str:
        """`127.0.0.1:8180`, `[::1]:8180`"""
        return endpoint(self.host, self.port)

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """New connections use this certificate. Existing ones keep theirs."""
        self.tls = tls

    async def start(self, sockets: Sequence[socket.socket] = ()) -> None:
        """Accepts at `sockets`, which must listen already, or at every address of the host. Raises OSError if an
        address is not available."""
        if self._sockets:
            raise RuntimeError("the listener is running already")
        self._sockets = sockets or await bind(self.host, self.port)
        self.port = int(self._sockets[0].getsockname()[1])
        self._task = f"{self.name} {self.address}"
        self._supervisor.keep(self._task, self._accept_all)

    async def stop(self) -> None:
        """Returns when every connection is closed. A second call does nothing."""
        if not self._sockets:
            return
        sockets, self._sockets = self._sockets, ()
        self._shut_down()  # now, so that answers from here on say that the connection ends
        await self._supervisor.stop(self._task)
        for listener in sockets:
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._shut_down()
        self._emptied.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), self._grace_s)
        if self.connections:
            for connection in tuple(self.connections):
                connection.transport.abort()
            await self._emptied.wait()

    def _shut_down(self) -> None:
        for connection in tuple(self.connections):
            connection.shutdown()

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    async def _accept_all(self, running: Running) -> None:
        running()
        async with asyncio.TaskGroup() as group:
            for listener in self._sockets:
                group.create_task(self._accept(listener))

    async def _accept(self, listener: socket.socket) -> None:
        limits, loop = self.limits, asyncio.get_running_loop()
        while True:
            for _ in range(ACCEPTS_AT_A_TIME):
                try:
                    connection, address = await _accepted(listener)
                except OSError as error:
                    if listener.fileno() < 0:
                        raise
                    if error.errno in _OUT_OF_RESOURCES:
                        limits.descriptors.hit(reason=os.strerror(error.errno))
                        await asyncio.sleep(RETRY_S)
                    break  # otherwise the peer is already gone
                try:
                    admission = limits.admit(str(address[0]), partial(_shut_down, connection))
                except Exception:  # a bug: it must not end the listener
                    log.exception("connection not accepted")
                    admission = None
                if admission is None:
                    connection.close()
                else:
                    task = loop.create_task(self._connect(connection, admission))
                    self._tasks.add(task)
                    task.add_done_callback(partial(self._connected, connection, admission))
            await asyncio.sleep(0)
            for _ in range(CLOSING_TURNS):
                if limits.closing <= MAX_CLOSING:
                    break
                await asyncio.sleep(0)

    async def _connect(self, connection: socket.socket, admission: Admission) -> None:
        tls = self.tls
        handshake_s = None if tls is None else TLS_HANDSHAKE_S
        connection.getpeername()  # raises if the peer has left: its protocol needs an address
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._factory(self, admission), connection, ssl=tls, ssl_handshake_timeout=handshake_s
        )

    def _connected(self, connection: socket.socket, admission: Admission, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            admission.close()
            connection.close()
        if isinstance(error, OSError):  # the peer left during the handshake, or speaks no TLS
            error.with_traceback(None)  # its frames hold the buffers of TLS, in a cycle
        elif error is not None:
            log.error("connection not made", extra={"peer": admission.address}, exc_info=error)


async def _accepted(listener: socket.socket) -> tuple[socket.socket, Any]:
    """The next connection and its address. Nothing is awaited after the accept, so that a cancellation cannot lose the
    connection."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        return await loop.sock_accept(listener)
    while True:
        try:
            connection, address = listener.accept()
            connection.setblocking(False)
            return connection, address
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_reader(listener, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(listener)


def _shut_down(connection: socket.socket) -> None:
    """Closes a connection before it has a transport or completes its TLS handshake. Whoever reads it sees the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
