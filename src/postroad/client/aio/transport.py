"""HTTP requests on the caller's event loop, by aiohttp: keep-alive connections, TLS and time-outs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

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
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> WholeReply:
        async with self.asking(method, target, headers, body, wait) as reply:
            return WholeReply(reply.status, reply.media_type, reply.headers, await reply.read())

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

    def _started(self) -> aiohttp.ClientSession:
        if self._closed:
            raise InvalidHandle("this queue manager was closed: open it, or connect to it, again")
        if self._session is None:
            trust = True if self._address.tls is None else self._address.tls
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=trust)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._address.headers)
        return self._session
