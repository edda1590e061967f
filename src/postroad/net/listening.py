"""Listening sockets that count each connection before they create anything for it, and peers that do not read.

The protocols are elsewhere; limits.py says how many connections there may be.
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
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from postroad.net.limits import MAX_CLOSING, UNREAD_S, Admission, Limits

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTS_AT_A_TIME = 8  # by one listener, before others have their turn
CLOSING_TURNS = 8  # of the event loop: aborted connections free their descriptor within so many
RETRY_S = 1.0  # after the system ran out of descriptors or memory
TLS_HANDSHAKE_S = 30.0
MIN_TAKEN = 0x10000  # bytes that a peer must read in UNREAD_S, if as many wait for it
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Factory = Callable[[Admission], asyncio.BaseProtocol]


async def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at every address of `host`; OSError if one of them is not available."""
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
            listener.bind(address)
            listener.listen(BACKLOG)
    except BaseException:
        for listener in sockets:
            listener.close()
        raise
    return sockets


class Acceptor:
    """Accepts from its start to `close`, which keeps existing connections. `factory` makes the protocol of each."""

    def __init__(
        self, limits: Limits, sockets: Sequence[socket.socket], factory: Factory, tls: ssl.SSLContext | None = None
    ) -> None:
        self._limits = limits
        self._sockets = sockets
        self._factory = factory
        self.tls = tls  # of connections that come from now on
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = int(sockets[0].getsockname()[1])
        for listener in sockets:
            listener.listen(BACKLOG)
        self._loop = asyncio.get_running_loop()
        for listener in sockets:
            self._run(self._accept(listener))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for listener in self._sockets:
            listener.close()

    async def wait_closed(self) -> None:
        """Like an asyncio.Server's."""

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        limits = self._limits
        while True:
            for _ in range(ACCEPTS_AT_A_TIME):
                try:
                    connection, address = await self._loop.sock_accept(listener)
                except OSError as error:
                    if listener.fileno() < 0:
                        return
                    if error.errno in _OUT_OF_RESOURCES:
                        limits.descriptors.hit(reason=os.strerror(error.errno))
                        await asyncio.sleep(RETRY_S)
                    break  # else the peer is already gone
                try:
                    admission = limits.admit(str(address[0]), partial(_shut_down, connection))
                except Exception:  # a bug: it must not end the listener
                    log.exception("connection not accepted")
                    admission = None
                if admission is None:
                    connection.close()
                else:
                    self._run(self._serve(connection, admission))
            await asyncio.sleep(0)
            for _ in range(CLOSING_TURNS):
                if limits.closing <= MAX_CLOSING:
                    break
                await asyncio.sleep(0)

    async def _serve(self, connection: socket.socket, admission: Admission) -> None:
        tls = self.tls
        handshake_s = None if tls is None else TLS_HANDSHAKE_S
        try:
            connection.getpeername()  # a peer that has gone again has no address, and its protocol needs one
            await self._loop.connect_accepted_socket(
                lambda: self._factory(admission), connection, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        except BaseException as error:
            admission.close()
            connection.close()
            if not isinstance(error, OSError):  # a peer that leaves during the handshake, or speaks no TLS
                raise


def _shut_down(connection: socket.socket) -> None:
    """Closes a connection that has no transport yet, or one in its TLS handshake: its reader sees the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@dataclass(slots=True, eq=False)
class ReadWatch:
    """Closes the connection of a peer that reads nothing of our output. Driven by `pause_writing` and the like."""

    _limits: Limits
    _admission: Admission
    _transport: asyncio.Transport
    _left: int = 0
    _timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._left = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(UNREAD_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() > self._left - MIN_TAKEN:
            self._limits.unread_output.hit(address=self._admission.address, bytes=self._left)
            self._transport.abort()
        else:
            self.start()
