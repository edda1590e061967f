"""HTTP requests that block their thread, on plain sockets: keep-alive connections, TLS and time-outs.

Its coroutines never wait for an event loop, so `CallerThread` runs them. aiohttp, which client/aio uses, takes longer
to import than a whole command may take. The standard library's client spends most of a call on headers.
"""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from ssl import SSLSocket
from threading import Lock
from time import monotonic, sleep
from weakref import finalize

from postroad.client.exchange import (
    ANSWER_S,
    CONNECT_S,
    END,
    KEEP_ALIVE_S,
    MAX_HEAD,
    Address,
    BadAnswer,
    Head,
    WholeReply,
    check_size,
    chunk_size,
    read_head,
)
from postroad.errors import InvalidHandle, OperationCancelled

READ = 1 << 16  # to read at a time
PIECE = 1 << 18  # of a streamed answer, at most
_LATE = (BrokenPipeError, ConnectionResetError)


class Connection:
    """One connection: a request, then its answer, then the next request."""

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream
        self._rest = b""  # received, but not used yet
        self._poll = _watch(stream)
        self._timeout: float | None = CONNECT_S

    def ask(self, request: bytes, timeout: float | None) -> Reply:
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout
        try:
            self._socket.sendall(request)
        except _LATE as fault:  # a server that refuses a large request need not read all of it
            try:
                return Reply(self, self._head())
            except OSError:
                raise fault from None
        return Reply(self, self._head())

    def _head(self) -> Head:
        while True:
            data = self._rest or self._receive(READ)
            while (end := data.find(END)) < 0:
                if len(data) > MAX_HEAD:
                    raise BadAnswer(f"the head of the answer must have at most {MAX_HEAD} bytes")
                data += self._receive(READ)
            self._rest = data[end + len(END) :]
            head = read_head(data[:end])
            if head.status >= 200:
                return head

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size)
        if not data:
            raise BadAnswer("the connection ended before the answer did")
        return data

    def exactly(self, size: int) -> bytes:
        if len(self._rest) >= size:
            data, self._rest = self._rest[:size], self._rest[size:]
            return data
        parts = [self._rest]
        left = size - len(self._rest)
        while left:
            parts.append(self._receive(min(left, 1 << 20)))
            left -= len(parts[-1])
        self._rest = b""
        return b"".join(parts)

    def some(self, most: int | None) -> bytes:
        """The bytes that are there, up to `most`. If `most` is None, all up to the end of the connection. Empty at the
        end."""
        if self._rest:
            data = self._rest if most is None else self._rest[:most]
            self._rest = self._rest[len(data) :]
            return data
        return self._socket.recv(PIECE) if most is None else self._receive(min(most, PIECE))

    def line(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            if len(self._rest) > MAX_HEAD:
                raise BadAnswer("a line of the answer is too long")
            self._rest += self._receive(READ)
        line, self._rest = self._rest[:end], self._rest[end + 2 :]
        return line

    def has_ended(self) -> bool:
        """Whether the server has closed the connection. Anything that it sends between two answers means that, too."""
        return self._poll()

    @property
    def certificate(self) -> bytes | None:
        """The server's certificate; None without TLS."""
        return self._socket.getpeercert(binary_form=True) if isinstance(self._socket, SSLSocket) else None

    def shut_down(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class Reply:
    """An answer whose content is still to be read."""

    def __init__(self, connection: Connection, head: Head) -> None:
        self._connection = connection
        self._head = head
        self._ended = False
        self.status = head.status
        self.media_type = head.media_type
        self.headers = head.headers

    @property
    def complete(self) -> bool:
        """Whether the answer was read to its end, so that the connection can serve another request."""
        return self._ended and self._head.keep_alive

    async def read(self) -> bytes:
        return self.read_all()

    def read_all(self) -> bytes:
        if self._head.length is None:
            joined = bytearray()
            for part in self.parts():
                joined += part
                check_size(len(joined))
            return bytes(joined)
        check_size(self._head.length)
        content = self._connection.exactly(self._head.length)
        self._ended = True
        return content

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self.parts():
            yield piece

    def parts(self) -> Iterator[bytes]:
        """The content as it arrives."""
        connection, left = self._connection, self._head.length
        if self._head.chunked:
            while size := chunk_size(connection.line()):
                while size:
                    piece = connection.some(size)
                    size -= len(piece)
                    yield piece
                connection.line()
            while connection.line():  # skip the trailers
                pass
        elif left is None:
            while piece := connection.some(None):
                yield piece
        else:
            while left:
                piece = connection.some(left)
                left -= len(piece)
                yield piece
        self._ended = True


class Transport:
    """Connections to one API, for any number of threads. Each request uses a connection of its own."""

    def __init__(self, address: Address, answer_s: float = ANSWER_S) -> None:
        self._address = address
        self._answer_s = answer_s
        self._pool = _Pool()
        self._logging_in = Lock()
        finalize(self, self._pool.close)  # close it with the program if nobody else does

    async def close(self) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Closes all connections. Requests that wait for answers end with OperationCancelled."""
        self._pool.close()

    def beside(self, address: Address) -> Transport:
        return Transport(address, self._answer_s)

    async def pause(self, seconds: float) -> None:
        sleep(seconds)  # noqa: ASYNC251  (no event loop runs this)

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> WholeReply:
        self._log_in()
        whole = self._ask(partial(self._address.request, method, target, headers, body), wait)
        if self._address.ended(whole.status):
            self._log_in()
            whole = self._ask(partial(self._address.request, method, target, headers, body), wait)
        return whole

    def _ask(self, request: Callable[[], bytes], wait: float | None) -> WholeReply:
        connection = self._pool.take() or self._connect()
        return self._ask_on(connection, request, wait)

    def _ask_on(self, connection: Connection, request: Callable[[], bytes], wait: float | None) -> WholeReply:
        try:
            reply = connection.ask(request(), self._timeout(wait))
            whole = WholeReply(reply.status, reply.media_type, reply.headers, reply.read_all())
        except BaseException as fault:
            self._failed(connection, fault)
            raise
        self._done(connection, reply)
        return whole

    def _log_in(self) -> None:
        """Begins a session by Kerberos, if one is needed and no other thread has begun it meanwhile."""
        address = self._address
        if not address.wants_login:
            return
        with self._logging_in:
            if address.wants_login:
                connection = self._pool.take() or self._connect()
                try:
                    ticket = address.begin_login(connection.certificate)
                except BaseException:
                    self._pool.give_back(connection)
                    raise
                address.logged_in(ticket, self._ask_on(connection, partial(address.login, ticket), 0.0))

    @asynccontextmanager
    async def asking(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> AsyncIterator[Reply]:
        with self.reply(method, target, headers, body, wait) as reply:
            yield reply

    @contextmanager
    def reply(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> Iterator[Reply]:
        """The same for callers without coroutines."""
        self._log_in()
        connection = self._pool.take() or self._connect()
        try:
            reply = connection.ask(self._address.request(method, target, headers, body), self._timeout(wait))
            yield reply
        except BaseException as fault:
            self._failed(connection, fault)
            raise
        self._done(connection, reply)

    def _timeout(self, wait: float | None) -> float | None:
        return None if wait is None else self._answer_s + wait

    def _failed(self, connection: Connection, fault: BaseException) -> None:
        self._pool.drop(connection)
        if isinstance(fault, OSError):
            if self._pool.closed:
                raise OperationCancelled("the queue manager was closed in the meantime") from None
            raise self._address.not_answered(fault) from fault

    def _done(self, connection: Connection, reply: Reply) -> None:
        if reply.complete:
            self._pool.give_back(connection)
        else:
            self._pool.drop(connection)

    def _connect(self) -> Connection:
        address = self._address
        stream: socket.socket | None = None
        try:
            stream = socket.create_connection((address.host, address.port), CONNECT_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                stream = address.tls.wrap_socket(stream, server_hostname=address.host)
            connection = Connection(stream)
        except BaseException as fault:
            if stream is not None:
                stream.close()
            if isinstance(fault, OSError):
                raise address.not_connected(fault) from None
            raise
        self._pool.add(connection)
        return connection


class _Pool:
    """The open connections: those in use, and the idle ones, the latest last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._used: set[Connection] = set()
        self._idle: list[tuple[float, Connection]] = []
        self.closed = False

    def take(self) -> Connection | None:
        """Takes an idle connection that the server has not closed. None if there is none."""
        with self._lock:
            self._check()
            while self._idle:
                since, connection = self._idle.pop()
                if monotonic() - since < KEEP_ALIVE_S and not connection.has_ended():
                    self._used.add(connection)
                    return connection
                connection.close()
        return None

    def add(self, connection: Connection) -> None:
        with self._lock:
            if self.closed:
                connection.close()
            self._check()
            self._used.add(connection)

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            self._used.discard(connection)
            if self.closed:
                connection.close()
            else:
                self._idle.append((monotonic(), connection))

    def drop(self, connection: Connection) -> None:
        with self._lock:
            self._used.discard(connection)
        connection.close()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()
            for connection in self._used:  # its own thread closes it, because that may be reading
                connection.shut_down()

    def _check(self) -> None:
        if self.closed:
            raise InvalidHandle("this queue manager is closed: open it or connect to it again")


def _watch(stream: socket.socket) -> Callable[[], bool]:
    """Returns at once whether there is something to read."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        return lambda: bool(poll.poll(0))

    def look() -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            return bool(selector.select(0))

    return look
