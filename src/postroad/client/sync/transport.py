"""HTTP requests that block their thread, by the standard library: keep-alive connections, TLS and time-outs.

Its coroutines never wait for an event loop, so `CallerThread` runs them. aiohttp, which client/aio uses, alone takes
longer to import than a whole command may take.
"""

from __future__ import annotations

import http.client
import selectors
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from threading import Lock
from time import monotonic
from weakref import finalize

from postroad.client.exchange import ANSWER_S, CONNECT_S, KEEP_ALIVE_S, Address
from postroad.errors import InvalidHandle, OperationCancelled

PIECE = 1 << 18  # bytes of a streamed answer that are read at a time, at the most


class Reply:
    """An answer whose content is still to be read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.media_type = response.headers.get_content_type()
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    @property
    def complete(self) -> bool:
        """Whether it was read to its end, and the connection can serve another request."""
        return self._response.isclosed() and not self._response.will_close

    async def read(self) -> bytes:
        return self._response.read()

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := self._response.read1(PIECE):
            yield piece
        if self._response.length:  # read1 does not say that the connection ended too early
            raise http.client.IncompleteRead(b"", self._response.length)


class Transport:
    """Connections to one API, for any number of threads; each request has one to itself."""

    def __init__(self, address: Address, answer_s: float = ANSWER_S) -> None:
        self._address = address
        self._answer_s = answer_s
        self._pool = _Pool()
        finalize(self, self._pool.close)  # one that was not closed is closed with the program

    async def close(self) -> None:
        """Requests that wait for their answers end with OperationCancelled."""
        self._pool.close()

    @asynccontextmanager
    async def asking(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> AsyncIterator[Reply]:
        connection = self._pool.take() or self._connect()
        try:
            assert connection.sock is not None
            connection.sock.settimeout(None if wait is None else self._answer_s + wait)
            given = {**self._address.headers, **headers}
            connection.request(method, target, body, {name: value.encode() for name, value in given.items()})
            reply = Reply(connection.getresponse())
            yield reply
        except (http.client.HTTPException, OSError) as fault:
            self._pool.drop(connection)
            if self._pool.closed:
                raise OperationCancelled("the queue manager was closed meanwhile") from None
            raise self._address.not_answered(fault) from fault
        except BaseException:
            self._pool.drop(connection)
            raise
        if reply.complete:
            self._pool.give_back(connection)
        else:
            self._pool.drop(connection)

    def _connect(self) -> http.client.HTTPConnection:
        address = self._address
        if address.tls is None:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
        else:
            connection = http.client.HTTPSConnection(address.host, address.port, timeout=CONNECT_S, context=address.tls)
        try:
            connection.connect()
        except OSError as fault:
            connection.close()
            raise address.not_connected(fault) from None
        except BaseException:
            connection.close()
            raise
        self._pool.add(connection)
        return connection


class _Pool:
    """The open connections: those in use, and those that wait for the next request, the latest last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._used: set[http.client.HTTPConnection] = set()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self.closed = False

    def take(self) -> http.client.HTTPConnection | None:
        """One that the server has not closed meanwhile; None if there is none."""
        with self._lock:
            self._check()
            while self._idle:
                since, connection = self._idle.pop()
                if monotonic() - since < KEEP_ALIVE_S and not _has_ended(connection):
                    self._used.add(connection)
                    return connection
                connection.close()
        return None

    def add(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self.closed:
                connection.close()
            self._check()
            self._used.add(connection)

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._used.discard(connection)
            if self.closed:
                connection.close()
            else:
                self._idle.append((monotonic(), connection))

    def drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._used.discard(connection)
        connection.close()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()
            for connection in self._used:  # its own thread closes it: that one may be reading
                with suppress(OSError):
                    if connection.sock is not None:
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def _check(self) -> None:
        if self.closed:
            raise InvalidHandle("this queue manager was closed: open it, or connect to it, again")


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """A server that sends something between two answers has nothing to say but that it closes the connection."""
    assert connection.sock is not None
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))
