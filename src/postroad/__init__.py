r"""Postroad: an open queue manager that speaks Microsoft Message Queuing's own protocols.

    import postroad

    with postroad.open("data/alpha") as qm:  # or postroad.connect("http://host:8180")
        orders = qm.create_queue(r"private$\orders", transactional=True)
        with qm.transaction() as tx:
            orders.send(postroad.Message(b"...", label="order 1"), tx)
        message = orders.receive(timeout=5)

The same verbs with `await` are in `postroad.aio`. Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from postroad.runtime.version import __version__

if TYPE_CHECKING:
    from postroad import aio as aio
    from postroad import errors as errors
    from postroad.client.opening import connect, open, remote
    from postroad.client.signer import Signer
    from postroad.client.sync.manager import QueueManager
    from postroad.client.sync.queue import Cursor, OpenQueue, Queue, Transaction
    from postroad.describe.received import ReceivedMessage
    from postroad.errors import (
        ManagerUnavailable,
        NoMessage,
        PostroadError,
        QueueExists,
        QueueNotFound,
        QuotaExceeded,
        StorageError,
        TransactionUsage,
    )
    from postroad.message import Message
    from postroad.names import MessageId
    from postroad.reports.info import ManagerInfo, QueueInfo

# The module that each name is imported from when it is first used.
_HOMES = {
    name: module
    for module, names in {
        "postroad.client.opening": "connect open remote",
        "postroad.client.signer": "Signer",
        "postroad.client.sync.manager": "QueueManager",
        "postroad.client.sync.queue": "Cursor OpenQueue Queue Transaction",
        "postroad.errors": "ManagerUnavailable NoMessage PostroadError QueueExists QueueNotFound QuotaExceeded "
        "StorageError TransactionUsage",
        "postroad.message": "Message",
        "postroad.names": "MessageId",
        "postroad.describe.received": "ReceivedMessage",
        "postroad.reports.info": "ManagerInfo QueueInfo",
    }.items()
    for name in names.split()
}
_MODULES = frozenset({"aio", "errors", "spark", "telemetry"})

__all__ = [
    "Cursor",
    "ManagerInfo",
    "ManagerUnavailable",
    "Message",
    "MessageId",
    "NoMessage",
    "OpenQueue",
    "PostroadError",
    "Queue",
    "QueueExists",
    "QueueInfo",
    "QueueManager",
    "QueueNotFound",
    "QuotaExceeded",
    "ReceivedMessage",
    "Signer",
    "StorageError",
    "Transaction",
    "TransactionUsage",
    "__version__",
    "aio",
    "connect",
    "errors",
    "open",
    "remote",
]


if not TYPE_CHECKING:  # otherwise every name would seem to exist

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"postroad.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'postroad' has no attribute {name!r}")
        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # so that the next use does not call this function
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
