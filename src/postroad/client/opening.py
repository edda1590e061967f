"""Opens a queue manager for a program: in a data directory of its own, by HTTP, or by remote read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from postroad.client.sync.backend import Backend, CallerThread
from postroad.client.sync.manager import QueueManager, RemoteManager
from postroad.net import ports
from postroad.reports.operations import RemoteProtocol

if TYPE_CHECKING:
    from postroad.client.aio.opening import Opening


def open(path: str | Path, *, name: str | None = None) -> QueueManager:
    """Opens the queue manager in a data directory, which is created if necessary. Only one process can have it open.

    `":memory:"` keeps nothing and is for tests. `name` is the computer name in queue paths. The directory remembers it;
    the first default is the host's name. Raises StorageError if the directory cannot be used.
    """
    from postroad.client.aio import opening

    return QueueManager(_start(opening.open(path, name=name)))


def connect(
    url: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    client_certificate: str | Path | None = None,
    client_key: str | Path | None = None,
    kerberos: bool = False,
) -> QueueManager:
    """Connects to the queue manager behind an HTTP API, such as `http://host:8180`.

    The connection is made by the first call, which raises ManagerUnavailable if there is no answer. `token` calls as an
    administrator, `user` and `password` as a user of the manager's configuration. With `kerberos`, the client logs in
    with the ticket of the credentials cache (`kinit`), or of the keytab that KRB5_CLIENT_KTNAME names.

    An API with `client_ca` requires a certificate. `client_certificate` and `client_key` are PEM files. Without them,
    the environment variables POSTROAD_CLIENT_CERT and POSTROAD_CLIENT_KEY name them.
    """
    from postroad.client.exchange import Address
    from postroad.client.http_backend import HttpBackend
    from postroad.client.sync.runtime import JoinedSends
    from postroad.client.sync.transport import Transport

    address = Address(url, token, client_certificate, client_key, user, password, kerberos=kerberos)
    return QueueManager(Backend(CallerThread(), HttpBackend(address, Transport(address), JoinedSends)))


def remote(
    host: str,
    *,
    port: int = ports.RPC_HANDSHAKE,
    endpoint_mapper: int | None = None,
    user: str | None = None,
    password: str | None = None,
    kerberos: bool = False,
    protocol: str = RemoteProtocol.AUTO,
) -> RemoteManager:
    r"""The queues of any MSMQ server, to read and purge. Paths such as `private$\orders` are on `host`. Its
    administrators can ask for figures and make it act, by MS-MQMR.

    `protocol` is "mqrr" (MS-MQRR), "mqqp" (MS-MQQP), or "auto": MS-MQRR, or MS-MQQP if the server does not offer it.
    `port` is the server's port for remote readers. With `endpoint_mapper`, usually 135, the server's endpoint mapper is
    asked for it instead. With a `user`, or with `kerberos` and a ticket, every call is authenticated and sealed. The
    connection is made by the first call, which raises RpcUnavailable if there is no answer. Verbs that the protocols do
    not have, such as sending, raise LocalProtocolError.
    """
    from postroad.client.aio import opening

    opened = opening.remote(
        host,
        port=port,
        endpoint_mapper=endpoint_mapper,
        user=user,
        password=password,
        kerberos=kerberos,
        protocol=protocol,
    )
    return RemoteManager(_start(opened, at_exit=True))


def _start(opened: Opening, *, at_exit: bool = False) -> Backend:
    """Starts a thread with an event loop, and the backend on it."""
    from postroad.client.blocking import LoopThread

    thread = LoopThread()
    try:
        backend = thread.run(opened.backend())
    except BaseException:
        thread.stop()
        raise
    return Backend(thread, backend, at_exit=at_exit)
