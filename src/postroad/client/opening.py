"""Where a program gets a queue manager from: a data directory of its own, an HTTP API, or remote read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from postroad.client.sync.backend import Backend, CallerThread
from postroad.client.sync.manager import QueueManager
from postroad.net import ports

if TYPE_CHECKING:
    from postroad.client.aio.opening import Opening


def open(path: str | Path, *, name: str | None = None) -> QueueManager:
    """The queue manager in a data directory, which is made if need be; one process at a time can have it open.

    `":memory:"` keeps nothing, for tests. The name is the computer name in queue paths; it is kept in the directory,
    and without one it is the host's. StorageError if the directory cannot be used.
    """
    from postroad.client.aio import opening

    return _start(opening.open(path, name=name))


def connect(
    url: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    client_certificate: str | Path | None = None,
    client_key: str | Path | None = None,
) -> QueueManager:
    """The queue manager behind an HTTP API, as in `http://host:8180`. The first call connects, and raises
    ManagerUnavailable if there is no answer.

    `token` calls as an administrator, `user` and `password` as a user of the manager's configuration.

    An API with `client_ca` wants a certificate: `client_certificate` and `client_key` are PEM files; without them, the
    environment variables POSTROAD_CLIENT_CERT and POSTROAD_CLIENT_KEY name them.
    """
    from postroad.client.exchange import Address
    from postroad.client.http_backend import HttpBackend
    from postroad.client.sync.runtime import JoinedSends
    from postroad.client.sync.transport import Transport

    address = Address(url, token, client_certificate, client_key, user, password)
    return QueueManager(Backend(CallerThread(), HttpBackend(address, Transport(address), JoinedSends)))


def remote(
    host: str,
    *,
    port: int = ports.RPC_HANDSHAKE,
    endpoint_mapper: int | None = None,
    user: str | None = None,
    password: str | None = None,
) -> QueueManager:
    r"""The queues of any MSMQ server, to read and purge by MS-MQQP. Paths such as `private$\orders` are on `host`.

    `port` is qmcomm's; with `endpoint_mapper`, as a rule 135, the server's endpoint mapper is asked for it instead.
    With a `user` every call is authenticated and sealed. The first call connects, and raises RpcUnavailable if
    there is no answer. Verbs that the protocol does not have, such as sending, raise LocalProtocolError.
    """
    from postroad.client.aio import opening

    opened = opening.remote(host, port=port, endpoint_mapper=endpoint_mapper, user=user, password=password)
    return _start(opened, at_exit=True)


def _start(opened: Opening, *, at_exit: bool = False) -> QueueManager:
    """A thread with an event loop, and the manager on it."""
    from postroad.client.blocking import LoopThread

    thread = LoopThread()
    try:
        backend = thread.run(opened.backend())
    except BaseException:
        thread.stop()
        raise
    return QueueManager(Backend(thread, backend, at_exit=at_exit))
