"""Where an asynchronous program gets a queue manager from: a data directory, an HTTP API, or remote read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

from postroad.client.aio.backend import Backend
from postroad.client.aio.manager import QueueManager
from postroad.net import ports


class Opening:
    """A queue manager that is yet to be opened: `async with` it, or `await` it and close it yourself."""

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


def open(path: str | Path, *, name: str | None = None) -> Opening:
    """The queue manager in a data directory, which is made if need be; one process at a time can have it open.

    `":memory:"` keeps nothing, for tests. The name is the computer name in queue paths; it is kept in the directory,
    and without one it is the host's. StorageError if the directory cannot be used.
    """

    async def backend() -> Backend:
        from postroad.client.embedded import open_embedded

        return await open_embedded(path, name)

    return Opening(backend)


def connect(
    url: str,
    *,
    token: str | None = None,
    client_certificate: str | Path | None = None,
    client_key: str | Path | None = None,
) -> Opening:
    """The queue manager behind an HTTP API, as in `http://host:8180`. The first call connects, and raises
    ManagerUnavailable if there is no answer.

    An API with `client_ca` wants a certificate: `client_certificate` and `client_key` are PEM files; without them, the
    environment variables POSTROAD_CLIENT_CERT and POSTROAD_CLIENT_KEY name them.
    """

    async def backend() -> Backend:
        from postroad.client.aio.transport import Transport
        from postroad.client.exchange import Address
        from postroad.client.http import HttpBackend

        address = Address(url, token, client_certificate, client_key)
        return HttpBackend(address, Transport(address))

    return Opening(backend)


def remote(
    host: str,
    *,
    port: int = ports.RPC_HANDSHAKE,
    endpoint_mapper: int | None = None,
    user: str | None = None,
    password: str | None = None,
) -> Opening:
    r"""The queues of any MSMQ server, to read and purge by MS-MQQP. Paths such as `private$\orders` are on `host`.

    `port` is qmcomm's; with `endpoint_mapper`, as a rule 135, the server's endpoint mapper is asked for it instead.
    With a `user` every call is authenticated and sealed. The first call connects, and raises RpcUnavailable if
    there is no answer. Verbs that the protocol does not have, such as sending, raise LocalProtocolError.
    """

    async def backend() -> Backend:
        from postroad.client.remote import RemoteBackend

        return RemoteBackend(host, port, endpoint_mapper=endpoint_mapper, user=user, password=password)

    return Opening(backend)
