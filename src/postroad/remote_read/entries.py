"""The server's state for its readers: open queues, reads under way, and how they ended.

[MS-MQQP] 3.1.1 and [MS-MQMP] 3.1.1.8. What is done with them is in service.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from postroad.queues.descriptor import OpenQueueDescriptor
from postroad.queues.queue import Queue
from postroad.queues.waiting import WaitingRead
from postroad.rpc.caller import Caller
from postroad.store.interface import Record


class RemoteReadState(Enum):
    """[MS-MQDMPR] 3.1.1.16 OpenQueueDescriptor.RemoteReadState"""

    OPENED = "opened"
    READY_FOR_READ = "ready for read"


@dataclass(slots=True, eq=False)
class RemoteQueue:
    """[MS-MQMP] 3.1.1.8 RemoteQueueOpenContextHandle: a queue that a remote reader has open.

    `handle` is random and not the descriptor's own number, so no one can guess what others have opened, here or
    remotely. Clients send it as a plain number over several connections: qmcomm gives it, qm2qm takes it. So it works
    only for `caller`, who opened the queue by qmcomm; and once a user has opened it by qm2qm, only in the association
    of that call. Callers without a name have their address, because nothing else tells a client's second connection
    from another client.
    """

    handle: int
    descriptor: OpenQueueDescriptor
    path: str
    caller: Caller
    opened_at: float
    owner: str  # whose limits count
    state: RemoteReadState = RemoteReadState.OPENED
    reader: Caller | None = None  # the caller that opened it by qm2qm
    cursors: int = 0
    unacknowledged: set[RemoteReadEntry] = field(default_factory=set)

    def serves(self, caller: Caller) -> bool:
        """Whether this caller's calls of qm2qm may name the handle."""
        reader = self.reader
        if caller.user is not None and reader is not None and reader.association != caller.association:
            return False
        return caller.may_use(self.caller)


@dataclass(frozen=True, slots=True, eq=False)
class OpenQueueEntry:
    """3.1.1.4; a PCTX_RRSESSION_HANDLE_TYPE refers to one. `queue_handle` is its OpenQueueDescriptorHandle."""

    queue_handle: int
    client_id: UUID


@dataclass(slots=True, eq=False)
class RemoteReadEntry:
    """3.1.1.2: one read. A PCTX_REMOTEREAD_HANDLE_TYPE refers to one whose message waits for its acknowledgment."""

    queue_handle: int
    timeout_ms: int
    action: int
    request_id: int
    remote: RemoteQueue
    waiting: WaitingRead | None = None
    queue: Queue | None = None  # the queue that the message is locked in
    record: Record | None = None  # UserMessagePacket
    counted: bool = False  # among the reads that wait
    settled: bool = False

    @property
    def place(self) -> int:
        """The position of the message in its queue."""
        return 0 if self.record is None else self.record.lookup_id


@dataclass(slots=True)
class Answer:
    """How a read ended. `entry` is set if the message must be acknowledged."""

    status: int
    record: Record | None = None
    entry: RemoteReadEntry | None = None
