"""The methods of [MS-MQQP] 3.1.4, and those of [MS-MQMP] 3.1.4 that they need, with plain values.

No RPC, no clock, no randomness. An expected failure is an HRESULT, never an exception. Changes gather in the core's
tick, and the caller waits for its commit before it answers the client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from postroad.errors import PostroadError, RemoteCancelled, SharingViolation, Status, TooManyHeld
from postroad.names import DistributionListName, MulticastName
from postroad.names.queue_format import Arm, QueueFormat
from postroad.queues.local import PURGE_BATCH, LocalQueueManager
from postroad.queues.open_queue import RECEIVING, OpenQueueDescriptor, WaitingRead
from postroad.queues.owners import Held
from postroad.queues.permissions import Action as QueueAction
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.remote_read.values import (
    ACCESS,
    CALLS,
    INFINITE_MS,
    LAST_LOOKUP_ID,
    SEEKS,
    SHARE,
    Ack,
    Action,
    DesiredAccess,
    DesiredShare,
    Ports,
    PortType,
    ReadRequest,
)
from postroad.reports.info import LockInfo, ReaderInfo
from postroad.reports.operations import SeekAction
from postroad.rpc.calls import Caller
from postroad.security.access import Token
from postroad.security.users import derive_sid
from postroad.store.interface import Record

# What the server knows of its readers: open queues, reads under way, and how reads ended. [MS-MQQP] 3.1.1 and [MS-MQMP]
# 3.1.1.8.


class RemoteReadState(Enum):
    """[MS-MQDMPR] 3.1.1.16 OpenQueueDescriptor.RemoteReadState"""

    OPENED = "opened"
    READY_FOR_READ = "ready for read"


@dataclass(slots=True, eq=False)
class RemoteQueue:
    """[MS-MQMP] 3.1.1.8 RemoteQueueOpenContextHandle: a queue that a remote reader has open.

    `handle` is random, and not the descriptor's own number, so nobody can guess what others have opened, here or
    remotely. Clients send it as a plain number over several connections: qmcomm gives it, qm2qm takes it. Therefore it
    works only for `caller`, who opened the queue by qmcomm. Once a user has opened the queue by qm2qm, it works only in
    the association of that call. For callers without a name the address decides, because nothing else tells a client's
    second connection from another client.
    """

    handle: int
    descriptor: OpenQueueDescriptor
    path: str
    caller: Caller
    opened_at: float
    owner: str  # the limits of this owner count
    state: RemoteReadState = RemoteReadState.OPENED
    reader: Caller | None = None  # the caller that opened it by qm2qm
    cursors: int = 0
    unacknowledged: set[RemoteReadEntry] = field(default_factory=set)

    def serves(self, caller: Caller) -> bool:
        """Whether this caller may use the handle in calls of qm2qm."""
        reader = self.reader
        if caller.user is not None and reader is not None and reader.association != caller.association:
            return False
        return caller.may_use(self.caller)


@dataclass(frozen=True, slots=True, eq=False)
class OpenQueueEntry:
    """3.1.1.4. A PCTX_RRSESSION_HANDLE_TYPE refers to one. `queue_handle` is its OpenQueueDescriptorHandle."""

    queue_handle: int
    client_id: UUID


@dataclass(slots=True, eq=False)
class RemoteReadEntry:
    """3.1.1.2: one read. A PCTX_REMOTEREAD_HANDLE_TYPE refers to an entry whose message waits for its
    acknowledgment."""

    queue_handle: int
    timeout_ms: int
    action: int
    request_id: int
    remote: RemoteQueue
    waiting: WaitingRead | None = None
    queue: Queue | None = None  # the queue in which the message is locked
    record: Record | None = None  # UserMessagePacket
    counted: bool = False  # whether it is among the reads that wait
    settled: bool = False

    @property
    def place(self) -> int:
        """The position of the message in its queue."""
        return 0 if self.record is None else self.record.lookup_id


@dataclass(slots=True)
class Answer:
    """How a read ended. `entry` is set if the reader must acknowledge the message."""

    status: int
    record: Record | None = None
    entry: RemoteReadEntry | None = None


_Entry = TypeVar("_Entry", OpenQueueEntry, RemoteReadEntry)

_derived_sid = lru_cache(maxsize=1024)(derive_sid)  # cached, because every read needs it


class RemoteReadService:
    """The remote readers of one queue manager. `new_handle` gives numbers that nobody can guess.

    With `authenticate`, only authenticated callers can open a queue ([MS-MQQP] 5). A handle works only for the caller
    that opened it; for all others it does not exist. Rights are checked when a queue is opened, and again for every
    read and purge, so a change of the access list takes effect at once.
    """

    def __init__(self, core: LocalQueueManager, new_handle: Callable[[], int], *, authenticate: bool = False) -> None:
        self.core = core
        self.authenticate = authenticate
        self.ports = Ports(0, 0)
        self.remote_queues: dict[int, RemoteQueue] = {}
        self.open_queue_entries: dict[int, list[OpenQueueEntry]] = {}  # rOpenQueueEntryCollection, by queue handle
        self.remote_reads: dict[int, list[RemoteReadEntry]] = {}  # rRemoteReadEntryCollection, by queue handle
        self.received = 0  # messages that readers have acknowledged
        self.returned = 0  # messages that went back because readers did not acknowledge them
        self.owners = core.owners
        self._new_handle = new_handle
        core.reviews.append(self.review)

    # qmcomm, [MS-MQMP] 3.1.4

    def listen_on(self, ports: Ports) -> None:
        self.ports = ports

    def open_remote_queue(
        self, queue_format: tuple[int, int, Arm] | None, access: int, share: int, now: float, caller: Caller
    ) -> tuple[int, RemoteQueue | None]:
        """R_QMOpenRemoteQueue, 3.1.4.2. `queue_format` is m_qft, m_SuffixAndFlags and the arm of the union."""
        if refused := self._refusal(caller, Status.OK):
            return refused, None
        if access not in ACCESS:
            return Status.UNSUPPORTED_ACCESS_MODE, None
        if queue_format is None or share not in SHARE:
            return Status.INVALID_PARAMETER, None
        try:
            name = QueueFormat(*queue_format).to_format_name()
            if isinstance(name, DistributionListName | MulticastName):
                return Status.UNSUPPORTED_FORMATNAME_OPERATION, None
            queue = self.core.queues.find(name)
            if queue is not None and not self._permits(queue, caller, receive=access == DesiredAccess.RECEIVE):
                return Status.ACCESS_DENIED, None
            descriptor = self.core.open(name, ACCESS[DesiredAccess(access)], SHARE[DesiredShare(share)], now)
        except SharingViolation:
            return Status.STATUS_SHARING_VIOLATION, None  # 3.1.4.2, for share modes; elsewhere it is an HRESULT
        except PostroadError as error:
            return error.status, None
        assert descriptor.queue is not None
        owner = self._owner(caller)
        if self._full(Held.OPEN_QUEUES, owner):
            self.core.close(descriptor)
            return Status.INSUFFICIENT_RESOURCES, None
        self.owners.take(Held.OPEN_QUEUES, owner)
        handle = self._free_handle()
        remote = RemoteQueue(handle, descriptor, descriptor.queue.properties.path, caller, now, owner)
        self.remote_queues[handle] = remote
        return Status.OK, remote

    def close_remote_queue_context(self, remote: RemoteQueue | None) -> None:
        """R_QMCloseRemoteQueueContext, 3.1.4.3, and the rundown of its handle, 3.1.7.2."""
        if remote is not None and remote.state is RemoteReadState.OPENED and remote.handle in self.remote_queues:
            self._close(remote)

    def create_remote_cursor(self, queue_handle: int, caller: Caller) -> tuple[int, int]:
        """R_QMCreateRemoteCursor, 3.1.4.4. Returns the status and the cursor's handle.

        It works from any association of the opener: a client whose connection for qmcomm was idle opens a new one.
        """
        remote = self.remote_queues.get(queue_handle)
        if remote is None or not caller.may_use(remote.caller):
            return self._refusal(caller, Status.INVALID_HANDLE), 0
        if not self._permits(remote.descriptor.queue, caller, receive=False):
            return Status.ACCESS_DENIED, 0
        if self._full(Held.CURSORS, remote.owner):
            return Status.INSUFFICIENT_RESOURCES, 0
        try:
            handle = self.core.open_cursor(remote.descriptor).handle
        except PostroadError as error:
            return error.status, 0
        remote.cursors += 1
        self.owners.take(Held.CURSORS, remote.owner)
        return Status.OK, handle

    def server_port(self, port_type: int) -> int:
        """R_QMGetRTQMServerPort, 3.1.4.24, and RemoteQMGetQMQMServerPort. 0 for what does not exist, such as SPX."""
        if port_type == PortType.IP_HANDSHAKE:
            return self.ports.handshake
        return self.ports.read if port_type == PortType.IP_READ else 0

    # Opening and closing, [MS-MQQP] 3.1.4.3 to 3.1.4.5

    def open_queue(
        self, client_id: UUID | None, queue: int, open_context: int, caller: Caller
    ) -> tuple[int, OpenQueueEntry | None]:
        """RemoteQMOpenQueue, 3.1.4.3. Refuses a handle that R_QMOpenRemoteQueue did not give: see RemoteQueue."""
        remote = self._find(open_context, caller)
        if client_id is None or not queue or not open_context or queue != open_context or remote is None:
            return self._refusal(caller, Status.INVALID_PARAMETER), None
        if not self._permits(remote.descriptor.queue, caller, receive=remote.descriptor.access in RECEIVING):
            return Status.ACCESS_DENIED, None
        remote.reader = caller
        entry = OpenQueueEntry(open_context, client_id)
        self.open_queue_entries.setdefault(open_context, []).append(entry)
        remote.state = RemoteReadState.READY_FOR_READ  # else closing the qmcomm context would close the queue
        return Status.OK, entry

    def close_queue(self, entry: OpenQueueEntry | None, now: float) -> int:
        """RemoteQMCloseQueue, 3.1.4.4, and the rundown of its handle, 3.1.6.1."""
        if entry is None:
            return Status.INVALID_HANDLE
        _remove(self.open_queue_entries, entry.queue_handle, entry)
        for read in list(self.remote_reads.get(entry.queue_handle, ())):
            self._cancel(read)
        remote = self.remote_queues.get(entry.queue_handle)
        if remote is not None:
            # The message nearest to the head first: waiting readers get them in the order of the queue.
            for read in sorted(remote.unacknowledged, key=lambda each: each.place):
                self.end_receive(read, Ack.RR_NACK, now)
            self._close(remote)
        return Status.OK

    def _close(self, remote: RemoteQueue) -> None:
        del self.remote_queues[remote.handle]
        self.owners.give(Held.CURSORS, remote.owner, remote.cursors)
        self.owners.give(Held.OPEN_QUEUES, remote.owner)
        if not remote.descriptor.closed:
            self.core.close(remote.descriptor)

    def _find(self, queue_handle: int, caller: Caller) -> RemoteQueue | None:
        """The queue of a handle in a call of qm2qm. None also for the handle of another caller."""
        remote = self.remote_queues.get(queue_handle)
        return remote if remote is not None and remote.serves(caller) else None

    def _find_open(self, queue_handle: int, caller: Caller) -> RemoteQueue | None:
        """Like `_find`, for calls that need RemoteQMOpenQueue first."""
        remote = self.remote_queues.get(queue_handle)
        if remote is None or queue_handle not in self.open_queue_entries:
            return None
        return remote if remote.reader is caller or remote.serves(caller) else None

    def _owner(self, caller: Caller) -> str:
        """Whose limits count: the user's SID, as with every other interface, or the address."""
        if caller.user is None:
            return caller.address
        user = self.core.access.users.named(caller.user)
        return str(_derived_sid(self.core.identifier, caller.user) if user is None else user.sid)

    def _full(self, kind: Held, owner: str) -> bool:
        try:
            self.owners.check(kind, owner)
        except TooManyHeld:
            return True
        return False

    def _holds_all(self, remote: RemoteQueue) -> bool:
        try:
            self.owners.check_locks(remote.owner)
        except TooManyHeld:
            return True
        return False

    def review(self, queues: Collection[Queue], now: float) -> None:
        """Takes unacknowledged messages back from readers that have lost their right to these queues."""
        for remote in list(self.remote_queues.values()):
            queue = remote.descriptor.queue
            if remote.unacknowledged and queue in queues and not self._permits(queue, remote.caller, receive=True):
                for read in sorted(remote.unacknowledged, key=lambda each: each.place):
                    self.end_receive(read, Ack.RR_NACK, now)

    def _refusal(self, caller: Caller, status: int) -> int:
        """[MS-MQQP] 5: a caller that has to log in learns only this, and nothing about what exists."""
        return Status.ACCESS_DENIED if self.authenticate and caller.user is None else status

    def _permits(self, queue: Queue | None, caller: Caller, *, receive: bool) -> bool:
        """The access check of [MS-MQDMPR] 3.1.7.1.5 with the caller's identity.

        A queue without an access list of its own is open to callers that the listener admits without a login, and to
        users without a SID in the configuration. Dead letters and the manager's journal may hold anybody's messages: of
        the users, only those with the right may read them.
        """
        access = self.core.access
        if caller.user is not None and access.is_gone(caller.user):
            return False
        if queue is None:
            return True  # the queue was deleted: the read itself reports that
        user = None if caller.user is None else access.users.named(caller.user)
        derived = None if caller.user is None else _derived_sid(self.core.identifier, caller.user)
        sid = derived if user is None else user.sid
        system = queue.properties.queue_type is QueueType.SYSTEM
        if user is not None and user.monitor:
            return False
        if sid == derived and not access.has_own_list(queue) and not (system and caller.user is not None):
            return True
        token = Token.anonymous() if sid is None else access.users.token(sid)
        return access.allows(queue, token, QueueAction.RECEIVE if receive else QueueAction.PEEK)

    def close_cursor(self, queue_handle: int, cursor_handle: int, caller: Caller) -> int:
        """RemoteQMCloseCursor, 3.1.4.5"""
        remote = self._find(queue_handle, caller)
        cursor = None if remote is None else remote.descriptor.cursors.get(cursor_handle)
        if remote is None or cursor is None:
            return self._refusal(caller, Status.INVALID_HANDLE)
        self.core.close_cursor(remote.descriptor, cursor)
        remote.cursors -= 1
        self.owners.give(Held.CURSORS, remote.owner)
        return Status.OK

    def purge_queue(self, queue_handle: int, now: float, caller: Caller) -> tuple[int, bool]:
        """One step of RemoteQMPurgeQueue, 3.1.4.7. Returns the status, and whether there may be more to delete."""
        remote = self._find_open(queue_handle, caller)
        if remote is None:
            return self._refusal(caller, Status.INVALID_HANDLE), False
        try:
            queue = remote.descriptor.require(RECEIVING, "purge")
        except PostroadError as error:
            return error.status, False
        if not self._permits(queue, caller, receive=True):
            return Status.ACCESS_DENIED, False
        return Status.OK, self.core.purge(queue, now) == PURGE_BATCH

    # Reading, [MS-MQQP] 3.1.4.1, 3.1.4.10 and 3.1.4.11

    def start_receive(self, request: ReadRequest | None, now: float, caller: Caller) -> Answer | RemoteReadEntry:
        """RemoteQMStartReceive and RemoteQMStartReceive2. Returns the answer, or the entry of a read that waits.

        The caller ends a waiting read with `finish` or `fail`, as its WaitingRead says.
        """
        if request is None:
            return Answer(Status.INVALID_HANDLE)
        fault, remote = self._check(request, caller)
        if remote is None:
            return Answer(self._refusal(caller, fault))
        if request.action == Action.RECEIVE and not request.cursor:
            try:
                record = self.core.reading.lock_first(remote.descriptor, now)
            except PostroadError as error:
                return Answer(error.status)
            if record is not None:  # it does not wait, so nobody has to find it
                return self._locked(_entry_of(request, remote), record)
        infinite = request.timeout_ms == INFINITE_MS
        waiting = WaitingRead(
            remote.descriptor,
            CALLS[request.action],
            deadline=None if infinite else now + request.timeout_ms / 1000,
            cursor=remote.descriptor.cursors.get(request.cursor) if request.cursor else None,
            two_phase=request.action == Action.RECEIVE,
            # 3.1.4.1 gives a peek no tag, so nobody could cancel it. But 3.2.4.7 cancels pending peeks too.
            tag=(request.queue_handle, request.request_id),
            permitted=lambda: self._permits(remote.descriptor.queue, caller, receive=request.action == Action.RECEIVE),
        )
        entry = self._enter(request, remote, waiting)
        try:
            records = self.core.reading.read(waiting, now)
        except PostroadError as error:
            return self.fail(entry, error)
        if records is not None:
            return self.finish(entry, records)
        entry.counted = True
        self.owners.take(Held.WAITING_READS, remote.owner)
        return entry

    def _check(self, request: ReadRequest, caller: Caller) -> tuple[int, RemoteQueue | None]:
        """Makes the checks of 3.1.4.1 in their order."""
        handle = request.queue_handle
        if not request.queue or request.queue != handle:
            return Status.INVALID_PARAMETER, None
        reads = self.remote_reads.get(handle)
        if reads and any(each.request_id == request.request_id for each in reads):
            return Status.INVALID_PARAMETER, None
        if not request.cursor and request.action == Action.PEEK_NEXT:
            return Status.STATUS_INVALID_PARAMETER, None
        remote = self._find_open(handle, caller)
        if remote is None:
            return Status.INVALID_PARAMETER, None
        if request.cursor and request.cursor not in remote.descriptor.cursors:
            return Status.STATUS_INVALID_PARAMETER, None
        if request.action not in CALLS:
            return Status.INVALID_PARAMETER, None
        if not self._permits(remote.descriptor.queue, caller, receive=request.action == Action.RECEIVE):
            return Status.ACCESS_DENIED, None
        if request.action == Action.RECEIVE and self._holds_all(remote):
            return Status.INSUFFICIENT_RESOURCES, None
        if request.timeout_ms and self._full(Held.WAITING_READS, remote.owner):
            return Status.INSUFFICIENT_RESOURCES, None
        return Status.OK, remote

    def start_receive_by_lookup_id(
        self, lookup_id: int, request: ReadRequest | None, now: float, caller: Caller
    ) -> Answer:
        """RemoteQMStartReceiveByLookupId, 3.1.4.11. It never waits.

        A receive locks the message. The event that the specification raises would delete it at once, and a negative
        acknowledgment could not put it back.
        """
        if request is None:
            return Answer(Status.INVALID_HANDLE)
        handle = request.queue_handle
        if not handle or request.timeout_ms or request.cursor:
            return Answer(Status.INVALID_PARAMETER)
        remote = self._find_open(handle, caller)
        if remote is None:
            return Answer(self._refusal(caller, Status.INVALID_PARAMETER))
        if request.action not in SEEKS:
            return Answer(Status.INVALID_PARAMETER)
        receive, seek = SEEKS[request.action]
        if not self._permits(remote.descriptor.queue, caller, receive=receive):
            return Answer(Status.ACCESS_DENIED)
        if receive and self._holds_all(remote):
            return Answer(Status.INSUFFICIENT_RESOURCES)
        if seek is SeekAction.NEXT and lookup_id == 0:
            seek = SeekAction.FIRST
        elif seek is SeekAction.PREVIOUS and lookup_id == LAST_LOOKUP_ID:
            seek, lookup_id = SeekAction.LAST, 0
        entry = self._enter(request, remote)
        try:
            record = self.core.reading.read_by_lookup_id(
                remote.descriptor, lookup_id, seek, now, peek=not receive, two_phase=True
            )
        except PostroadError as error:
            return self.fail(entry, error)
        return self.finish(entry, [record], receive=receive)

    def _enter(self, request: ReadRequest, remote: RemoteQueue, waiting: WaitingRead | None = None) -> RemoteReadEntry:
        entry = _entry_of(request, remote, waiting)
        self.remote_reads.setdefault(entry.queue_handle, []).append(entry)
        return entry

    def _leave(self, entry: RemoteReadEntry) -> None:
        _remove(self.remote_reads, entry.queue_handle, entry)
        entry.waiting = None
        if entry.counted:
            entry.counted = False
            self.owners.give(Held.WAITING_READS, entry.remote.owner)

    def finish(self, entry: RemoteReadEntry, records: Sequence[Record], *, receive: bool | None = None) -> Answer:
        """The read has its message. If it is a receive, the reader must acknowledge the message."""
        self._leave(entry)
        (record,) = records
        if receive is None:
            receive = entry.action == Action.RECEIVE
        return self._locked(entry, record) if receive else Answer(Status.OK, record)

    def _locked(self, entry: RemoteReadEntry, record: Record) -> Answer:
        entry.record, entry.queue = record, entry.remote.descriptor.queue
        entry.remote.unacknowledged.add(entry)
        self.owners.lock(entry.remote.owner, (record,))
        return Answer(Status.OK, record, entry)

    def fail(self, entry: RemoteReadEntry, error: PostroadError) -> Answer:
        """The read has ended without a message."""
        self._leave(entry)
        return Answer(error.status)

    # The end of a read, [MS-MQQP] 3.1.4.2 and 3.1.4.6

    def end_receive(self, entry: RemoteReadEntry | None, ack: int, now: float) -> int:
        """RemoteQMEndReceive, 3.1.4.2, and, with RR_NACK, the rundown of its handle, 3.1.6.2."""
        if entry is None:
            return Status.INVALID_HANDLE
        if entry.settled or entry.record is None or entry.queue is None:
            return Status.TRANSACTION_SEQUENCE  # the message is Available again, or another reader has it
        entry.settled = True
        entry.remote.unacknowledged.discard(entry)
        self.owners.unlock(entry.remote.owner, (entry.record,))
        delete = ack == Ack.RR_ACK
        try:
            self.core.reading.end(entry.queue, entry.record, now, delete=delete)
        except PostroadError as error:
            return error.status
        if delete:
            self.received += 1
        else:
            self.returned += 1
        return Status.OK

    def cancel_receive(self, queue_handle: int, queue: int, request_id: int, caller: Caller) -> int:
        """RemoteQMCancelReceive, 3.1.4.6: the read ends with MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT."""
        if not queue or queue != queue_handle:
            return Status.INVALID_PARAMETER
        reads = self.remote_reads.get(queue_handle)
        if not reads or self._find_open(queue_handle, caller) is None:
            return self._refusal(caller, Status.INVALID_HANDLE)
        entry = next((each for each in reads if each.request_id == request_id), None)
        return Status.ERROR if entry is None else self._cancel(entry)

    def _cancel(self, entry: RemoteReadEntry) -> int:
        waited_on = entry.remote.descriptor.queue
        if waited_on is None:
            return Status.STATUS_NOT_FOUND
        cancelled = RemoteCancelled("the reader cancelled the read")
        return self.core.reading.cancel_tagged(waited_on, (entry.queue_handle, entry.request_id), cancelled)

    # Looking

    def readers(self) -> Iterator[ReaderInfo]:
        """Lists every queue that a remote reader has open."""
        for remote in self.remote_queues.values():
            descriptor = remote.descriptor
            yield ReaderInfo(
                queue=remote.path,
                address=remote.caller.address,
                user=remote.caller.user,
                access=descriptor.access.name.lower(),
                exclusive=descriptor.share is SHARE[DesiredShare.DENY_RECEIVE],
                cursors=len(descriptor.cursors),
                waiting=len(self.remote_reads.get(remote.handle, ())),
                unacknowledged=len(remote.unacknowledged),
                opened_at_s=remote.opened_at,
            )

    def locks(self, now: float) -> Iterator[LockInfo]:
        """The messages that wait for a reader's acknowledgment, by open queue. `age_s` counts from the open."""
        for remote in self.remote_queues.values():
            lookup_ids = tuple(each.place for each in remote.unacknowledged)
            queue = remote.descriptor.queue
            if lookup_ids and queue is not None:
                caller = remote.caller
                yield LockInfo(
                    queue=queue.name,
                    owner=f"{caller.user} from {caller.address}" if caller.user else caller.address,
                    kind="remote reader",
                    age_s=round(max(0.0, now - remote.opened_at), 1),
                    silent_s=None,
                    messages=len(lookup_ids),
                    lookup_ids=lookup_ids,
                )

    def _free_handle(self) -> int:
        while True:
            handle = self._new_handle()
            if handle and handle not in self.remote_queues:
                return handle


def _entry_of(request: ReadRequest, remote: RemoteQueue, waiting: WaitingRead | None = None) -> RemoteReadEntry:
    return RemoteReadEntry(
        request.queue_handle, request.timeout_ms, request.action, request.request_id, remote, waiting
    )


def _remove(collection: dict[int, list[_Entry]], handle: int, entry: _Entry) -> None:
    entries = collection.get(handle, [])
    if entry in entries:
        entries.remove(entry)
        if not entries:
            del collection[handle]
