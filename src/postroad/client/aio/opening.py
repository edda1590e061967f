"""Opens a queue manager for an asynchronous program: from a data directory, by HTTP, or by remote read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

from postroad.client.aio.backend import Backend
from postroad.client.aio.manager import QueueManager, RemoteManager
from postroad.net import ports
from postroad.reports.operations import RemoteProtocol


class Opening:
    """A queue manager that is not open yet. Use `async with`, or `await` it and close it yourself."""

    def __init__(self, backend: Callable[[], Coroutine[Any, Any, Backend]]) -> None:
        self.backend = backend
        self._manager: QueueManager | None = None

    async def _open(self) -> QueueManager:
        return QueueManager(await self.backend())

    def __await__(self) -> Generator[Any, None, QueueManager]:
        return self._open().__await__()

    async def __aenter__(self) -> QueueManager:
        self._manager = await self._open()
        return self._manager

    async def __aexit__(self, *_: object) -> None:
        if self._manager is not None:
            await self._manager.close()


class RemoteOpening(Opening):
    """The same for a queue manager on another computer."""

    async def _open(self) -> RemoteManager:
        return RemoteManager(await self.backend())

    def __await__(self) -> Generator[Any, None, RemoteManager]:
        return self._open().__await__()

    async def __aenter__(self) -> RemoteManager:
        self._manager = manager = await self._open()
        return manager


def open(path: str | Path, *, name: str | None = None) -> Opening:
    """Opens a data directory, like `postroad.open`."""

    async def backend() -> Backend:
        from postroad.client.embedded import open_embedded

        return await open_embedded(path, name)

    return Opening(backend)


def connect(
    url: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    client_certificate: str | Path | None = None,
    client_key: str | Path | None = None,
    kerberos: bool = False,
) -> Opening:
    """Connects to an HTTP API, like `postroad.connect`."""

    async def backend() -> Backend:
        from postroad.client.aio.runtime import JoinedSends
        from postroad.client.aio.transport import Transport
        from postroad.client.exchange import Address
        from postroad.client.http_backend import HttpBackend

        address = Address(url, token, client_certificate, client_key, user, password, kerberos=kerberos)
        return HttpBackend(address, Transport(address), JoinedSends)

    return Opening(backend)


def remote(
    host: str,
    *,
    port: int = ports.RPC_HANDSHAKE,
    endpoint_mapper: int | None = None,
    user: str | None = None,
    password: str | None = None,
    kerberos: bool = False,
    protocol: str = RemoteProtocol.AUTO,
) -> RemoteOpening:
    """Reads the queues of any MSMQ server, like `postroad.remote`."""

    async def backend() -> Backend:
        from postroad.client.remote import RemoteBackend

        return RemoteBackend(
            host,
            port,
            endpoint_mapper=endpoint_mapper,
            user=user,
            password=password,
            kerberos=kerberos,
            protocol=protocol,
        )

    return RemoteOpening(backend)
