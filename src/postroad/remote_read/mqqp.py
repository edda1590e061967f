"""The methods of [MS-MQQP] 3.1.4, and those of [MS-MQMP] 3.1.4 that they need, with plain values: numbers for what is
open, and the errors of these two protocols. What they do is in service.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from postroad.errors import Status
from postroad.names.queue_format import Arm
from postroad.queues.open_queue import RECEIVING
from postroad.remote_read.service import MQQP, Answer, RemoteQueue, RemoteReadEntry, RemoteReadService
from postroad.remote_read.values import ACCESS, SHARE, Action, DesiredAccess, DesiredShare, ReadRequest
from postroad.rpc.calls import Caller


class RemoteReadState(Enum):
    """[MS-MQDMPR] 3.1.1.16 OpenQueueDescriptor.RemoteReadState"""

    OPENED = "opened"
    READY_FOR_READ = "ready for read"


@dataclass(slots=True, eq=False)
class RemoteOpenQueue:
    """[MS-MQMP] 3.1.1.8 RemoteQueueOpenContextHandle.

    `handle` is random, and not the descriptor's own number, so nobody can guess what others have opened, here or
    remotely. Clients send it as a plain number over several connections: qmcomm gives it, qm2qm takes it. Therefore it
    works only for the caller who opened the queue by qmcomm. Once a user has opened the queue by qm2qm, it works only
    in the association of that call. For callers without a name the address decides, because nothing else tells a
    client's second connection from another client.
    """

    handle: int
    remote: RemoteQueue
    state: RemoteReadState = RemoteReadState.OPENED
    reader: Caller | None = None  # the caller that opened it by qm2qm
    entries: int = 0  # how many OpenQueueEntries it has

    def serves(self, caller: Caller) -> bool:
        """Whether this caller may use the handle in calls of qm2qm."""
        reader = self.reader
        if caller.user is not None and reader is not None and reader.association != caller.association:
            return False
        return caller.may_use(self.remote.caller)


@dataclass(frozen=True, slots=True, eq=False)
class OpenQueueEntry:
    """3.1.1.4. A PCTX_RRSESSION_HANDLE_TYPE refers to one. `queue_handle` is its OpenQueueDescriptorHandle."""

    queue_handle: int
    client_id: UUID


class Mqqp:
    """The readers by [MS-MQQP] of one queue manager. `new_handle` gives numbers that nobody can guess. A handle works
    only for the caller that opened it; for all others it does not exist."""

    def __init__(self, service: RemoteReadService, new_handle: Callable[[], int]) -> None:
        self.service = service
        self.remote_queues: dict[int, RemoteOpenQueue] = {}
        self._new_handle = new_handle

    # qmcomm, [MS-MQMP] 3.1.4

    def open_remote_queue(
        self, queue_format: tuple[int, int, Arm] | None, access: int, share: int, now: float, caller: Caller
    ) -> tuple[int, RemoteOpenQueue | None]:
        """R_QMOpenRemoteQueue, 3.1.4.2. `queue_format` is m_qft, m_SuffixAndFlags and the arm of the union."""
        if refused := self.service.refusal(caller, Status.OK):
            return refused, None
        if access not in ACCESS:
            return Status.UNSUPPORTED_ACCESS_MODE, None
        if queue_format is None or share not in SHARE:
            return Status.INVALID_PARAMETER, None
        wanted = ACCESS[DesiredAccess(access)], SHARE[DesiredShare(share)]
        status, remote = self.service.open(MQQP, queue_format, *wanted, now, caller)
        if remote is None:
            # 3.1.4.2 has a status of its own for share modes; elsewhere it is an HRESULT
            return Status.STATUS_SHARING_VIOLATION if status == Status.SHARING_VIOLATION else status, None
        handle = self._free_handle()
        found = self.remote_queues[handle] = RemoteOpenQueue(handle, remote)
        return Status.OK, found

    def close_remote_queue_context(self, opened: RemoteOpenQueue | None, now: float) -> None:
        """R_QMCloseRemoteQueueContext, 3.1.4.3, and the rundown of its handle, 3.1.7.2."""
        if opened is not None and opened.state is RemoteReadState.OPENED:
            self._close(opened, now)

    def create_remote_cursor(self, queue_handle: int, caller: Caller) -> tuple[int, int]:
        """R_QMCreateRemoteCursor, 3.1.4.4. Returns the status and the cursor's handle.

        It works from any association of the opener: a client whose connection for qmcomm was idle opens a new one.
        """
        opened = self.remote_queues.get(queue_handle)
        if opened is None or not caller.may_use(opened.remote.caller):
            return self.service.refusal(caller, Status.INVALID_HANDLE), 0
        return self.service.open_cursor(opened.remote, caller)

    # Opening and closing, [MS-MQQP] 3.1.4.3 to 3.1.4.5

    def open_queue(
        self, client_id: UUID | None, queue: int, open_context: int, caller: Caller
    ) -> tuple[int, OpenQueueEntry | None]:
        """RemoteQMOpenQueue, 3.1.4.3. Refuses a handle that R_QMOpenRemoteQueue did not give: see RemoteOpenQueue."""
        opened = self._find(open_context, caller)
        if client_id is None or not queue or not open_context or queue != open_context or opened is None:
            return self.service.refusal(caller, Status.INVALID_PARAMETER), None
        descriptor = opened.remote.descriptor
        if not self.service.permits(descriptor.queue, caller, receive=descriptor.access in RECEIVING):
            return Status.ACCESS_DENIED, None
        opened.reader = caller
        opened.entries += 1
        opened.state = RemoteReadState.READY_FOR_READ  # else closing the qmcomm context would close the queue
        return Status.OK, OpenQueueEntry(open_context, client_id)

    def close_queue(self, entry: OpenQueueEntry | None, now: float) -> int:
        """RemoteQMCloseQueue, 3.1.4.4, and the rundown of its handle, 3.1.6.1."""
        if entry is None:
            return Status.INVALID_HANDLE
        opened = self.remote_queues.get(entry.queue_handle)
        if opened is not None:
            self._close(opened, now)
        return Status.OK

    def _close(self, opened: RemoteOpenQueue, now: float) -> None:
        if self.remote_queues.pop(opened.handle, None) is not None:
            self.service.close(opened.remote, now)

    def _find(self, queue_handle: int, caller: Caller) -> RemoteOpenQueue | None:
        """The queue of a handle in a call of qm2qm. None also for the handle of another caller."""
        opened = self.remote_queues.get(queue_handle)
        return opened if opened is not None and opened.serves(caller) else None

    def _find_open(self, queue_handle: int, caller: Caller) -> RemoteQueue | None:
        """The same, for calls that need RemoteQMOpenQueue first."""
        opened = self.remote_queues.get(queue_handle)
        if opened is None or not opened.entries:
            return None
        return opened.remote if opened.reader is caller or opened.serves(caller) else None

    def close_cursor(self, queue_handle: int, cursor: int, caller: Caller) -> int:
        """RemoteQMCloseCursor, 3.1.4.5"""
        opened = self._find(queue_handle, caller)
        if opened is None or not self.service.close_cursor(opened.remote, cursor):
            return self.service.refusal(caller, Status.INVALID_HANDLE)
        return Status.OK

    def purge_queue(self, queue_handle: int, now: float, caller: Caller) -> tuple[int, bool]:
        """One step of RemoteQMPurgeQueue, 3.1.4.7. Returns the status, and whether there may be more to delete."""
        remote = self._find_open(queue_handle, caller)
        if remote is None:
            return self.service.refusal(caller, Status.INVALID_HANDLE), False
        return self.service.purge(remote, now, caller)

    # Reading, [MS-MQQP] 3.1.4.1, 3.1.4.2, 3.1.4.6, 3.1.4.10 and 3.1.4.11

    def start_receive(self, request: ReadRequest | None, now: float, caller: Caller) -> Answer | RemoteReadEntry:
        """RemoteQMStartReceive and RemoteQMStartReceive2. Returns the answer, or the entry of a read that waits.

        Makes the checks of 3.1.4.1 in their order.
        """
        if request is None:
            return Answer(Status.INVALID_HANDLE)
        handle, request_id = request.queue_handle, request.request_id
        if not request.queue or request.queue != handle:
            return Answer(self.service.refusal(caller, Status.INVALID_PARAMETER))
        opened = self.remote_queues.get(handle)
        if opened is not None and request_id in opened.remote.waiting:
            return Answer(self.service.refusal(caller, Status.INVALID_PARAMETER))
        if not request.cursor and request.action == Action.PEEK_NEXT:
            return Answer(self.service.refusal(caller, Status.STATUS_INVALID_PARAMETER))
        remote = self._find_open(handle, caller)
        if remote is None:
            return Answer(self.service.refusal(caller, Status.INVALID_PARAMETER))
        return self.service.read(remote, request.action, request_id, request.timeout_ms, request.cursor, now, caller)

    def start_receive_by_lookup_id(
        self, lookup_id: int, request: ReadRequest | None, now: float, caller: Caller
    ) -> Answer:
        """RemoteQMStartReceiveByLookupId, 3.1.4.11. It never waits."""
        if request is None:
            return Answer(Status.INVALID_HANDLE)
        handle = request.queue_handle
        if not handle or request.timeout_ms or request.cursor:
            return Answer(Status.INVALID_PARAMETER)
        remote = self._find_open(handle, caller)
        if remote is None:
            return Answer(self.service.refusal(caller, Status.INVALID_PARAMETER))
        return self.service.lookup(remote, request.action, request.request_id, lookup_id, now, caller)

    def end_receive(self, entry: RemoteReadEntry | None, ack: int, now: float) -> int:
        """RemoteQMEndReceive, 3.1.4.2, and, with RR_NACK, the rundown of its handle, 3.1.6.2."""
        return Status.INVALID_HANDLE if entry is None else self.service.end(entry, ack, now)

    def cancel_receive(self, queue_handle: int, queue: int, request_id: int, caller: Caller) -> int:
        """RemoteQMCancelReceive, 3.1.4.6: the read ends with MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT."""
        if not queue or queue != queue_handle:
            return Status.INVALID_PARAMETER
        remote = self._find_open(queue_handle, caller)
        if remote is None or not remote.waiting:
            return self.service.refusal(caller, Status.INVALID_HANDLE)
        entry = remote.waiting.get(request_id)
        return Status.ERROR if entry is None else self.service.cancel(entry)

    def _free_handle(self) -> int:
        while True:
            handle = self._new_handle()
            if handle and handle not in self.remote_queues:
                return handle
