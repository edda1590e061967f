"""One request to an HTTP API and its answer, and nothing of queues."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from postroad.client.aio.transport import Transport
from postroad.client.exchange import ANSWER_S, JSON, Address, Answer


class Exchange:
    """Requests to one API, on as many connections as there are requests at a time.

    A connection that stays silent for `answer_s` seconds is given up.
    """

    def __init__(self, address: Address, answer_s: float = ANSWER_S) -> None:
        self._address = address
        self._transport = Transport(address, answer_s)

    async def close(self) -> None:
        await self._transport.close()

    async def json(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        query: Mapping[str, object] | None = None,
        member: str | None = None,
        wait: float | None = 0.0,
    ) -> Any:
        """The answer to a request that brings a JSON value, if any: all of it, or one member of it."""
        body = None if value is None else json.dumps(value).encode()
        answer = await self.request(method, path, query, body=body, wait=wait)
        return self._address.parsed(answer.content, member)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
        media_type: str = JSON,
        wait: float | None = 0.0,
    ) -> Answer:
        """The answer. Raises the error that the manager reports.

        `wait` is how long the manager may wait for a message, in seconds; None is without end.
        """
        headers = {} if body is None else {"Content-Type": media_type}
        target = self._address.target(path, query)
        async with self._transport.asking(method, target, headers, body, wait) as reply:
            content = await reply.read()
        if reply.status >= 300:
            raise self._address.error(reply.status, reply.media_type, content)
        return Answer(content, reply.headers)

    async def stream(self, path: str, query: Mapping[str, object], accept: str) -> AsyncIterator[bytes]:
        """The answer to a GET in pieces, as they come; an answer that breaks off raises ManagerUnavailable."""
        target = self._address.target(path, query)
        async with self._transport.asking("GET", target, {"Accept": accept}, None, 0.0) as reply:
            if reply.status >= 300:
                raise self._address.error(reply.status, reply.media_type, await reply.read())
            async for piece in reply.pieces():
                yield piece
