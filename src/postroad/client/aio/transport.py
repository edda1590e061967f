"""HTTP requests on the caller's event loop: keep-alive connections, TLS and time-outs.

aiohttp reads streamed answers. Small requests use our own connections, which need less time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic

import aiohttp
from yarl import URL

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
from postroad.errors import InvalidHandle

STREAM_BUFFER = 1 << 20  # of a streamed answer, to read ahead


class Reply:
    """An answer whose content is still to be read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.media_type = response.content_type
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        content = bytearray()
        async for piece in self.pieces():
            content += piece
            check_size(len(content))
        return bytes(content)

    def pieces(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()


class Transport:
    """Connections to one API. They belong to the event loop of the first request."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._used: set[Connection] = set()
        self._idle: list[tuple[float, Connection]] = []  # idle connections and since when, the latest last
        self._session: aiohttp.ClientSession | None = None  # for streamed answers
        self._logging_in = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Closes all connections. Requests that wait for answers end with ManagerUnavailable."""
        self._closed = True
        for connection in (*self._used, *(each for _, each in self._idle)):
            connection.close()
        self._idle.clear()
        if self._session is not None:
            await self._session.close()

    def beside(self, address: Address) -> Transport:
        return Transport(address)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> WholeReply:
        await self._log_in()
        whole = await self._ask(partial(self._address.request, method, target, headers, body), wait)
        if self._address.ended(whole.status):
            await self._log_in()
            whole = await self._ask(partial(self._address.request, method, target, headers, body), wait)
        return whole

    async def _ask(self, request: Callable[[], bytes], wait: float | None) -> WholeReply:
        self._check_open()
        return await self._ask_on(self._take() or await self._connect(), request, wait)

    async def _log_in(self) -> None:
        """Begins a session by Kerberos, if one is needed and nobody has begun it meanwhile."""
        address = self._address
        if not address.wants_login:
            return
        async with self._logging_in:
            if address.wants_login:
                self._check_open()
                connection = self._take() or await self._connect()
                try:
                    ticket = await asyncio.to_thread(address.begin_login, connection.certificate)
                except BaseException:
                    connection.close()
                    raise
                address.logged_in(ticket, await self._ask_on(connection, partial(address.login, ticket), 0.0))

    async def _ask_on(self, connection: Connection, request: Callable[[], bytes], wait: float | None) -> WholeReply:
        if self._closed:  # `close` was called in the meantime
            connection.close()
            self._check_open()
        self._used.add(connection)
        reusable = False
        try:
            head, content = await connection.ask(request(), None if wait is None else ANSWER_S + wait)
            reusable = head.keep_alive and not connection.ended
        except OSError as fault:
            raise self._address.not_answered(fault) from fault
        finally:  # a caller that is cancelled ends its request
            self._used.discard(connection)
            if reusable:
                self._idle.append((monotonic(), connection))
            else:
                connection.close()
        return WholeReply(head.status, head.media_type, head.headers, content)

    def _take(self) -> Connection | None:
        """Takes an idle connection that the server has not closed. None if there is none."""
        while self._idle:
            since, connection = self._idle.pop()
            if not connection.ended and monotonic() - since < KEEP_ALIVE_S:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        address, loop = self._address, asyncio.get_running_loop()
        name = None if address.tls is None else address.host
        fault: OSError = OSError("it has no address")
        try:
            async with asyncio.timeout(CONNECT_S):
                for *_, (host, *_) in await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
                    try:
                        _, connection = await loop.create_connection(
                            Connection, str(host), address.port, ssl=address.tls, server_hostname=name
                        )
                    except OSError as error:
                        fault = error
                    else:
                        return connection
        except OSError as error:
            fault = error
        raise address.not_connected(fault) from None

    @asynccontextmanager
    async def asking(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> AsyncIterator[Reply]:
        await self._log_in()
        try:
            async with self._started().request(
                method,
                URL(self._address.origin + target, encoded=True),
                data=body,
                headers={**self._address.headers, **headers},
                timeout=aiohttp.ClientTimeout(
                    sock_connect=CONNECT_S, sock_read=None if wait is None else ANSWER_S + wait, total=None
                ),
                allow_redirects=False,
                read_bufsize=STREAM_BUFFER,
            ) as response:
                yield Reply(response)
        except aiohttp.ClientConnectorCertificateError as fault:
            error = fault.certificate_error
            raise self._address.not_connected(error if isinstance(error, OSError) else OSError(str(error))) from None
        except aiohttp.ClientConnectorError as fault:
            raise self._address.not_connected(fault.os_error) from None
        except aiohttp.ConnectionTimeoutError as fault:
            raise self._address.not_connected(TimeoutError(str(fault))) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise self._address.not_answered(fault) from fault

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidHandle("this queue manager is closed: open it or connect to it again")

    def _started(self) -> aiohttp.ClientSession:
        self._check_open()
        if self._session is None:
            trust = True if self._address.tls is None else self._address.tls
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=trust)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


# One HTTP connection on an event loop: a request, then its whole answer, then the next request.


EARLY_END = "the connection ended before the answer did"


class Connection(asyncio.Protocol):
    """A connection for one request at a time. It cannot be used again after it has `ended`, or after `ask` has
    raised."""

    def __init__(self) -> None:
        self.ended = False
        self._transport: asyncio.Transport
        self._reply: asyncio.Future[tuple[Head, bytes]] | None = None  # the caller of `ask` waits for it
        self._buffer = bytearray()  # received, but not parsed yet
        self._head: Head | None = None
        self._chunks: list[bytes] = []
        self._taken = 0  # bytes received of this answer
        self._heard = 0.0  # when the server was last heard

    async def ask(self, request: bytes, timeout: float | None) -> tuple[Head, bytes]:
        """Sends a request and returns its answer.

        Raises OSError if the answer is incomplete, and TimeoutError if the server is silent for longer than `timeout`.
        """
        if self.ended:
            raise BadAnswer(EARLY_END)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[tuple[Head, bytes]] = loop.create_future()
        self._reply, self._taken = reply, 0
        self._transport.write(request)
        alarm = None
        if timeout is not None:
            self._heard = loop.time()
            alarm = loop.call_later(timeout, self._look, reply, timeout)
        try:
            return await reply
        finally:
            self._reply = self._head = None
            if alarm is not None:
                alarm.cancel()

    def _look(self, reply: asyncio.Future[tuple[Head, bytes]], timeout: float) -> None:
        """Checks for silence of the server as long as an answer is awaited."""
        if reply.done():
            return
        loop = asyncio.get_running_loop()
        left = self._heard + timeout - loop.time()
        if left > 0:
            loop.call_later(left, self._look, reply, timeout)
        else:
            reply.set_exception(TimeoutError())

    @property
    def certificate(self) -> bytes | None:
        """The server's certificate; None without TLS."""
        tls = self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.getpeercert(binary_form=True)

    def close(self) -> None:
        self.ended = True
        self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if reply is None or reply.done():
            self.close()  # data after an answer can only mean that the server closes the connection
            return
        self._buffer += data
        self._taken += len(data)
        self._heard = asyncio.get_running_loop().time()
        try:
            check_size(self._taken)
            content = self._content()
        except BadAnswer as fault:
            self.close()
            reply.set_exception(fault)
            return
        if content is not None:
            assert self._head is not None
            reply.set_result((self._head, content))
            if self._buffer:
                self.close()

    def connection_lost(self, fault: Exception | None) -> None:
        self.ended = True
        reply, head = self._reply, self._head
        if reply is None or reply.done():
            return
        if fault is None and head is not None and head.length is None and not head.chunked:
            reply.set_result((head, bytes(self._buffer)))
        else:
            reply.set_exception(fault if isinstance(fault, OSError) else BadAnswer(EARLY_END))

    # The answer

    def _content(self) -> bytes | None:
        """The body of the answer. None while a part of it is missing."""
        while self._head is None:
            end = self._buffer.find(END)
            if max(end, len(self._buffer) if end < 0 else 0) > MAX_HEAD:
                raise BadAnswer(f"the head of the answer must have at most {MAX_HEAD} bytes")
            if end < 0:
                return None
            head = read_head(bytes(self._buffer[:end]))
            del self._buffer[: end + len(END)]
            if head.status >= 200:
                self._head = head
        if self._head.chunked:
            return self._chunked()
        length = self._head.length
        check_size(length or 0)
        if length is None or len(self._buffer) < length:
            return None
        content = bytes(self._buffer[:length])
        del self._buffer[:length]
        return content

    def _chunked(self) -> bytes | None:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            size = chunk_size(bytes(self._buffer[:end]))
            if not size:
                last = self._buffer.find(END, end)  # after the trailers
                if last < 0:
                    break
                del self._buffer[: last + len(END)]
                content = b"".join(self._chunks)
                self._chunks.clear()
                return content
            if len(self._buffer) < end + size + 4:
                return None
            self._chunks.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            del self._buffer[: end + size + 4]
        if len(self._buffer) > MAX_HEAD:
            raise BadAnswer("a line of the answer is too long")
        return None
