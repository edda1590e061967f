r"""The client's verbs for asynchronous programs: as in `postroad`, but with `await`, on the caller's event loop.

async with postroad.aio.open("data/alpha") as qm:  # or postroad.aio.connect("http://host:8180")
    message = await qm.queue(r"private$\orders").receive(timeout=5)
"""

from postroad.client.aio.manager import QueueManager
from postroad.client.aio.opening import Opening, connect, open, remote
from postroad.client.aio.queue import Cursor, OpenQueue, Queue, Transaction
from postroad.describe.received import ReceivedMessage
from postroad.message import Message

__all__ = [
    "Cursor",
    "Message",
    "OpenQueue",
    "Opening",
    "Queue",
    "QueueManager",
    "ReceivedMessage",
    "Transaction",
    "connect",
    "open",
    "remote",
]
