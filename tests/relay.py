"""A TCP relay before a server: counts connections, and cuts them on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from postroad.client.blocking import LoopThread


class Relay:
    """Forwards bytes in both directions. With `cut` set, the next bytes from the server end the connection instead.

    `allowances` limit how many bytes from the server each of the next connections gets before it ends.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 0)
        self.url = ""
        self.connections = 0
        self.cut = False
        self.allowances: list[int] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        with suppress(ConnectionError):
            await asyncio.gather(self._copy(reader, upstream_writer), self._copy(upstream_reader, writer, down=True))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, down: bool = False) -> None:
        left = self.allowances.pop(0) if down and self.allowances else None
        try:
            while data := await reader.read(65536):
                if down and self.cut:
                    break
                if left is not None:
                    data, left = data[:left], left - len(data)
                    if left < 0:
                        writer.write(data)
                        break
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@contextmanager
def relayed(url: str) -> Iterator[Relay]:
    thread = LoopThread()
    relay = Relay(url)
    try:
        thread.run(relay.start())
        yield relay
        thread.run(relay.stop())
    finally:
        thread.stop()
