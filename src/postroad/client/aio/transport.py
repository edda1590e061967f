"""HTTP requests on the caller's event loop: keep-alive connections, TLS and time-outs.

aiohttp reads streamed answers. For a small request it needs more time than our own connections do.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic

import aiohttp
from yarl import URL

from postroad.client.aio.connection import Connection
from postroad.client.exchange import ANSWER_S, CONNECT_S, KEEP_ALIVE_S, Address, WholeReply
from postroad.errors import InvalidHandle

STREAM_BUFFER = 1 << 20  # bytes of a streamed answer that are read ahead


class Reply:
    """An answer whose content is still to be read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.media_type = response.content_type
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        return await self._response.read()

    def pieces(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()


class Transport:
    """Connections to one API. It belongs to the event loop of its first request."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._used: set[Connection] = set()
        self._idle: list[tuple[float, Connection]] = []  # since when, the latest last
        self._session: aiohttp.ClientSession | None = None  # for streamed answers
        self._closed = False

    async def close(self) -> None:
        """Requests that wait for their answers end with ManagerUnavailable."""
        self._closed = True
        for connection in (*self._used, *(each for _, each in self._idle)):
            connection.close()
        self._idle.clear()
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> WholeReply:
        self._check_open()
        connection = self._take() or await self._connect()
        if self._closed:  # meanwhile
            connection.close()
            self._check_open()
        self._used.add(connection)
        reusable = False
        try:
            head, content = await connection.ask(
                self._address.request(method, target, headers, body), None if wait is None else ANSWER_S + wait
            )
            reusable = head.keep_alive and not connection.ended
        except OSError as fault:
            raise self._address.not_answered(fault) from fault
        finally:  # a caller that leaves ends its request
            self._used.discard(connection)
            if reusable:
                self._idle.append((monotonic(), connection))
            else:
                connection.close()
        return WholeReply(head.status, head.media_type, head.headers, content)

    def _take(self) -> Connection | None:
        """One that the server has not closed meanwhile; None if there is none."""
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
        try:
            async with self._started().request(
                method,
                URL(self._address.origin + target, encoded=True),
                data=body,
                headers=headers,
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
            raise InvalidHandle("this queue manager was closed: open it, or connect to it, again")

    def _started(self) -> aiohttp.ClientSession:
        self._check_open()
        if self._session is None:
            trust = True if self._address.tls is None else self._address.tls
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=trust)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._address.headers)
        return self._session
