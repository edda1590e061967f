r"""The client's verbs for asynchronous programs: the same as in `postroad`, with `await`, on the caller's event loop.

async with postroad.aio.open("data/alpha") as qm:  # or postroad.aio.connect("http://host:8180")
    message = await qm.queue(r"private$\orders").receive(timeout=5)
"""

from postroad.client.aio.handle import Cursor, OpenQueue
from postroad.client.aio.manager import QueueManager
from postroad.client.aio.opening import Opening, connect, open, remote
from postroad.client.aio.queue import Queue
from postroad.client.aio.transaction import Transaction
from postroad.message import Message
from postroad.received import ReceivedMessage

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
