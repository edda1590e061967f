"""Remote readers of one queue manager, whatever protocol they speak: open queues, reads in two phases, cursors, purge.

mqqp.py and mqrr.py have the two protocols over it. No RPC, no clock, no randomness. An expected failure is an HRESULT,
never an exception. Changes gather in the core's tick, and the caller waits for its commit before it answers the client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from postroad.errors import OperationCancelled, PostroadError, RemoteCancelled, Status, TooManyHeld
from postroad.names import DirectName, DistributionListName, FormatName, MulticastName
from postroad.names.queue_format import Arm, QueueFormat
from postroad.queues.leases import AwakeTime
from postroad.queues.local import PURGE_MORE, LocalQueueManager
from postroad.queues.open_queue import RECEIVING, OpenQueueDescriptor, WaitingRead
from postroad.queues.owners import Held
from postroad.queues.permissions import Action as QueueAction
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.remote_read.values import CALLS, INFINITE_MS, LAST_LOOKUP_ID, SEEKS, Ack, Action, Ports, PortType
from postroad.reports.info import LockInfo, ReaderInfo
from postroad.reports.operations import QueueAccess, SeekAction, ShareMode
from postroad.rpc.calls import Caller
from postroad.security.access import Token
from postroad.security.users import derive_sid
from postroad.store.interface import Record

MAX_SUBQUEUES = 256  # of one queue, made by remote readers: each lives as long as its queue
MISSED_RENEWALS = 5  # a remote reader cannot renew: its messages stay locked for so many times `[leases] receive_s`


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the protocols do differently."""

    name: str
    unknown_cursor: Status
    no_purge: Status  # of a handle that was not opened for receiving
    cancelled: type[PostroadError]
    by_request: bool  # whether the request id names a received message; else a context handle of its own does
    cleans_up: bool  # whether an unacknowledged message goes back after a time


MQQP = Dialect(
    "mqqp", Status.STATUS_INVALID_PARAMETER, Status.ACCESS_DENIED, RemoteCancelled, by_request=False, cleans_up=False
)
MQRR = Dialect(
    "mqrr",
    Status.STATUS_INVALID_HANDLE,
    Status.STATUS_ACCESS_DENIED,
    OperationCancelled,
    by_request=True,
    cleans_up=True,
)


@dataclass(slots=True, eq=False)
class RemoteQueue:
    """A queue that a remote reader has open.

    `waiting` are the reads that are not answered, by request id. `unacknowledged` are the receives whose message is
    locked until the reader ends them: by request id, or by lookup id if the dialect names them otherwise.
    """

    dialect: Dialect
    descriptor: OpenQueueDescriptor
    path: str
    caller: Caller
    opened_at: float
    owner: str  # the limits of this owner count
    waiting: dict[int, RemoteReadEntry] = field(default_factory=dict)
    unacknowledged: dict[int, RemoteReadEntry] = field(default_factory=dict)
    cursors: int = 0


@dataclass(slots=True, eq=False)
class RemoteReadEntry:
    """One read: [MS-MQQP] 3.1.1.2 RemoteReadEntry, [MS-MQRR] 3.1.1.2 PendingRequestEntry."""

    remote: RemoteQueue
    request_id: int
    action: int
    timeout_ms: int
    receives: bool  # whether it removes the message
    waiting: WaitingRead | None = None
    queue: Queue | None = None  # the queue in which the message is locked
    record: Record | None = None
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


_derived_sid = lru_cache(maxsize=1024)(derive_sid)  # cached, because every read needs it


class RemoteReadService:
    """The remote readers of one queue manager.

    With `authenticate`, only authenticated callers can open a queue ([MS-MQQP] 5). Rights are checked when a queue is
    opened, and again for every read and purge, so a change of the access list takes effect at once.
    """

    def __init__(self, core: LocalQueueManager, *, authenticate: bool = False) -> None:
        self.core = core
        self.authenticate = authenticate
        self.ports = Ports(0, 0)
        self.opened: dict[RemoteQueue, None] = {}
        self.received = 0  # messages that readers have acknowledged
        self.returned = 0  # messages that went back because readers did not acknowledge them
        self.owners = core.owners
        self._awake = AwakeTime()
        self._now = 0.0  # in awake time, as of the last clean-up
        self._locked: dict[RemoteReadEntry, float] = {}  # what a clean-up may take back, with its time, in order
        core.reviews.append(self.review)

    def listen_on(self, ports: Ports) -> None:
        self.ports = ports

    def server_port(self, port_type: int) -> int:
        """Where an interface is. 0 for what does not exist, such as SPX."""
        if port_type == PortType.IP_HANDSHAKE:
            return self.ports.handshake
        return self.ports.read if port_type == PortType.IP_READ else 0

    # Opening and closing

    def open(
        self,
        dialect: Dialect,
        queue_format: tuple[int, int, Arm],
        access: QueueAccess,
        share: ShareMode,
        now: float,
        caller: Caller,
    ) -> tuple[int, RemoteQueue | None]:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5. `queue_format` is m_qft, m_SuffixAndFlags and the arm of the union.

        A subqueue that is opened as the target of moves comes into being.
        """
        try:
            name = QueueFormat(*queue_format).to_format_name()
            if isinstance(name, DistributionListName | MulticastName):
                return Status.UNSUPPORTED_FORMATNAME_OPERATION, None
            queue = self.core.queues.find(name)
            parent = self._parent(name) if queue is None and access is QueueAccess.MOVE else queue
            receive = access is not QueueAccess.PEEK
            if parent is not None and not self.permits(parent, caller, receive=receive):
                return Status.ACCESS_DENIED, None
            owner = self._owner(caller)
            if parent is not None and self._full(Held.OPEN_QUEUES, owner):
                return Status.INSUFFICIENT_RESOURCES, None
            if queue is None and parent is not None and not self._make_subqueue(parent, name, now):
                return Status.INSUFFICIENT_RESOURCES, None
            descriptor = self.core.open(name, access, share, now)
        except PostroadError as error:
            return error.status, None
        assert descriptor.queue is not None
        self.owners.take(Held.OPEN_QUEUES, owner)
        remote = RemoteQueue(dialect, descriptor, descriptor.queue.properties.path, caller, now, owner)
        self.opened[remote] = None
        return Status.OK, remote

    def _parent(self, name: FormatName) -> Queue | None:
        """The queue of a subqueue that does not exist. None if the name is not one of a possible subqueue here."""
        if not isinstance(name, DirectName) or name.tail.subqueue is None or name.tail.journal:
            return None
        parent = self.core.queues.find(replace(name, tail=replace(name.tail, subqueue=None)))
        applications = (QueueType.PRIVATE, QueueType.PUBLIC)
        return parent if parent is not None and parent.properties.queue_type in applications else None

    def _make_subqueue(self, parent: Queue, name: FormatName, now: float) -> bool:
        assert isinstance(name, DirectName)
        assert name.tail.subqueue is not None
        if len(parent.subqueues) >= MAX_SUBQUEUES:
            return False
        with self.core.delivery.atomic:
            self.core.queues.subqueue(self.core.tick, parent, name.tail.subqueue, int(now))
        return True

    def close(self, remote: RemoteQueue, now: float) -> None:
        """Close Queue, and the rundown of its handle. Its waiting reads end, and unacknowledged messages go back."""
        if remote not in self.opened:
            return
        for read in list(remote.waiting.values()):
            self.cancel(read)
        # The message nearest to the head first: waiting readers get them in the order of the queue.
        for read in sorted(remote.unacknowledged.values(), key=lambda each: each.place):
            self.end(read, Ack.RR_NACK, now)
        del self.opened[remote]
        self.owners.give(Held.CURSORS, remote.owner, remote.cursors)
        self.owners.give(Held.OPEN_QUEUES, remote.owner)
        if not remote.descriptor.closed:
            self.core.close(remote.descriptor)

    # Who may

    def _owner(self, caller: Caller) -> str:
        """Whose limits count: the user's SID, as with every other interface, or the address."""
        if caller.user is None:
            return caller.address
        user = self.core.access.users.named(caller.user) if caller.account is None else caller.account
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
        for remote in list(self.opened):
            queue = remote.descriptor.queue
            if remote.unacknowledged and queue in queues and not self.permits(queue, remote.caller, receive=True):
                for read in sorted(remote.unacknowledged.values(), key=lambda each: each.place):
                    self.end(read, Ack.RR_NACK, now)

    def refusal(self, caller: Caller, status: int) -> int:
        """[MS-MQQP] 5: a caller that has to log in learns only this, and nothing about what exists."""
        return Status.ACCESS_DENIED if self.authenticate and caller.user is None else status

    def permits(self, queue: Queue | None, caller: Caller, *, receive: bool) -> bool:
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
        user = caller.account
        if user is None and caller.user is not None:
            user = access.users.named(caller.user)
        derived = None if caller.user is None else _derived_sid(self.core.identifier, caller.user)
        sid = derived if user is None else user.sid
        system = queue.properties.queue_type is QueueType.SYSTEM
        if user is not None and user.monitor:
            return False
        if sid == derived and not access.has_own_list(queue) and not (system and caller.user is not None):
            return True
        if caller.account is not None:
            token = access.login_token(caller.account)
        else:
            token = Token.anonymous() if sid is None else access.token(sid)
        return access.allows(queue, token, QueueAction.RECEIVE if receive else QueueAction.PEEK)

    # Cursors and purge

    def open_cursor(self, remote: RemoteQueue, caller: Caller) -> tuple[int, int]:
        """Returns the status and the cursor's handle."""
        if not self.permits(remote.descriptor.queue, caller, receive=False):
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

    def close_cursor(self, remote: RemoteQueue, handle: int) -> bool:
        """Whether there was such a cursor."""
        cursor = remote.descriptor.cursors.get(handle)
        if cursor is None:
            return False
        self.core.close_cursor(remote.descriptor, cursor)
        remote.cursors -= 1
        self.owners.give(Held.CURSORS, remote.owner)
        return True

    def purge(self, remote: RemoteQueue, now: float, caller: Caller) -> tuple[int, bool]:
        """One step of a purge. Returns the status, and whether there may be more to delete."""
        descriptor = remote.descriptor
        if descriptor.access not in (QueueAccess.RECEIVE, QueueAccess.RECEIVE_ADMIN):
            return remote.dialect.no_purge, False
        try:
            queue = descriptor.require(RECEIVING, "purge")
        except PostroadError as error:
            return error.status, False
        if not self.permits(queue, caller, receive=True):
            return Status.ACCESS_DENIED, False
        return Status.OK, self.core.purge(queue, now) >= PURGE_MORE

    # Reading: the first phase

    def read(
        self,
        remote: RemoteQueue,
        action: int,
        request_id: int,
        timeout_ms: int,
        cursor: int,
        now: float,
        caller: Caller,
    ) -> Answer | RemoteReadEntry:
        """Reads the first message, or at a cursor. Returns the answer, or the entry of a read that waits.

        The caller ends a waiting read with `finish` or `fail`, as its WaitingRead says.
        """
        descriptor, receives = remote.descriptor, action == Action.RECEIVE
        if cursor and cursor not in descriptor.cursors:
            return Answer(remote.dialect.unknown_cursor)
        if action not in CALLS:
            return Answer(Status.INVALID_PARAMETER)
        if refused := self._refused(remote, caller, receives):
            return Answer(refused)
        if timeout_ms and self._full(Held.WAITING_READS, remote.owner):
            return Answer(Status.INSUFFICIENT_RESOURCES)
        if receives and not cursor:
            try:
                record = self.core.reading.lock_first(descriptor, now)
            except PostroadError as error:
                return Answer(error.status)
            if record is not None:  # it does not wait, so nobody has to find it
                return self._lock(RemoteReadEntry(remote, request_id, action, timeout_ms, True), record)
        waiting = WaitingRead(
            descriptor,
            CALLS[action],
            deadline=None if timeout_ms == INFINITE_MS else now + timeout_ms / 1000,
            cursor=descriptor.cursors.get(cursor) if cursor else None,
            two_phase=receives,
            # [MS-MQQP] 3.1.4.1 gives a peek no tag, so nobody could cancel it. But both protocols' clients cancel
            # pending peeks: [MS-MQQP] 3.2.4.7, [MS-MQRR] 3.2.4.11.
            tag=(remote, request_id),
            permitted=lambda: self.permits(descriptor.queue, caller, receive=receives),
        )
        entry = RemoteReadEntry(remote, request_id, action, timeout_ms, receives, waiting)
        remote.waiting[request_id] = entry
        try:
            records = self.core.reading.read(waiting, now)
        except PostroadError as error:
            return self.fail(entry, error)
        if records is not None:
            return self.finish(entry, records)
        entry.counted = True
        self.owners.take(Held.WAITING_READS, remote.owner)
        return entry

    def _refused(self, remote: RemoteQueue, caller: Caller, receives: bool) -> int:
        if not self.permits(remote.descriptor.queue, caller, receive=receives):
            return Status.ACCESS_DENIED
        return Status.INSUFFICIENT_RESOURCES if receives and self._holds_all(remote) else Status.OK

    def lookup(
        self, remote: RemoteQueue, action: int, request_id: int, lookup_id: int, now: float, caller: Caller
    ) -> Answer:
        """Reads by lookup id. It never waits.

        A receive locks the message. The event that [MS-MQQP] 3.1.4.11 raises would delete it at once, and a negative
        acknowledgment could not put it back.
        """
        if action not in SEEKS:
            return Answer(Status.INVALID_PARAMETER)
        receives, seek = SEEKS[action]
        if refused := self._refused(remote, caller, receives):
            return Answer(refused)
        if seek is SeekAction.NEXT and lookup_id == 0:
            seek = SeekAction.FIRST
        elif seek is SeekAction.PREVIOUS and lookup_id == LAST_LOOKUP_ID:
            seek, lookup_id = SeekAction.LAST, 0
        entry = RemoteReadEntry(remote, request_id, action, 0, receives)
        remote.waiting.setdefault(request_id, entry)  # [MS-MQQP] 3.1.4.11, whatever else has the id
        try:
            record = self.core.reading.read_by_lookup_id(
                remote.descriptor, lookup_id, seek, now, peek=not receives, two_phase=True
            )
        except PostroadError as error:
            return self.fail(entry, error)
        return self.finish(entry, (record,))

    def finish(self, entry: RemoteReadEntry, records: Sequence[Record]) -> Answer:
        """The read has its message. If it is a receive, the reader must acknowledge the message."""
        self._leave(entry)
        (record,) = records
        return self._lock(entry, record) if entry.receives else Answer(Status.OK, record)

    def fail(self, entry: RemoteReadEntry, error: PostroadError) -> Answer:
        """The read has ended without a message."""
        self._leave(entry)
        return Answer(error.status)

    def _leave(self, entry: RemoteReadEntry) -> None:
        waiting = entry.remote.waiting
        if waiting.get(entry.request_id) is entry:
            del waiting[entry.request_id]
        entry.waiting = None
        if entry.counted:
            entry.counted = False
            self.owners.give(Held.WAITING_READS, entry.remote.owner)

    def _lock(self, entry: RemoteReadEntry, record: Record) -> Answer:
        remote = entry.remote
        entry.record, entry.queue = record, remote.descriptor.queue
        remote.unacknowledged[_key(entry)] = entry
        self.owners.lock(remote.owner, (record,))
        if remote.dialect.cleans_up:
            self._locked[entry] = self._now
        return Answer(Status.OK, record, entry)

    # The second phase, and the end of reads that wait

    def end(self, entry: RemoteReadEntry, ack: int, now: float) -> int:
        """Dequeue Message End, [MS-MQDMPR] 3.1.7.1.12, for an acknowledgment, a rundown or a clean-up."""
        if entry.settled or entry.record is None or entry.queue is None:
            return Status.TRANSACTION_SEQUENCE  # the message is Available again, or another reader has it
        entry.settled = True
        entry.remote.unacknowledged.pop(_key(entry), None)
        self._locked.pop(entry, None)
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

    def cancel(self, entry: RemoteReadEntry) -> int:
        """Cancel Waiting Message Read Request, [MS-MQDMPR] 3.1.7.1.17. The read ends with the dialect's error."""
        waited_on = entry.remote.descriptor.queue
        if waited_on is None:
            return Status.STATUS_NOT_FOUND
        cancelled = entry.remote.dialect.cancelled("the reader cancelled the read")
        return self.core.reading.cancel_tagged(waited_on, (entry.remote, entry.request_id), cancelled)

    def clean_up(self, now: float) -> list[RemoteReadEntry]:
        """[MS-MQRR] 3.1.5.1: gives back messages that were not acknowledged in time. Call it twice a second."""
        self._now = self._awake(now)
        before = self._now - MISSED_RENEWALS * self.core.settings.leases.receive_s
        found = []
        for entry, since in self._locked.items():
            if since > before:
                break  # the others came later
            found.append(entry)
        for entry in found:
            self.end(entry, Ack.RR_NACK, now)
        return found

    # Moving and rejecting, [MS-MQRR] 3.1.4.10 and 3.1.4.14

    def move(
        self,
        remote: RemoteQueue,
        target: RemoteQueue,
        lookup_id: int,
        now: float,
        caller: Caller,
        *,
        transaction: bool = False,
    ) -> int:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, between a queue and its subqueues. With a `transaction`, it only finds
        the error: no remote reader can have one."""
        try:
            source = remote.descriptor.require(RECEIVING, "move messages")
            queue = target.descriptor.require(RECEIVING, "take messages")
        except PostroadError as error:
            return error.status
        if source is queue or _family(source) != _family(queue):
            return Status.STATUS_INVALID_PARAMETER
        if remote.descriptor.access is QueueAccess.MOVE or not self.permits(source, caller, receive=True):
            return Status.ACCESS_DENIED
        if transaction and not queue.properties.transactional:
            return Status.TRANSACTION_USAGE
        record = source.get(lookup_id)
        state = source.state(lookup_id)
        if record is None or state in (PositionState.DELETED, PositionState.PURGE_PENDING):
            return Status.MESSAGE_NOT_FOUND
        if state is not None:
            return Status.MESSAGE_LOCKED_UNDER_TRANSACTION
        if transaction:
            return Status.TRANSACTION_SEQUENCE
        try:
            self.core.relocate(source, queue, record, now)
        except PostroadError as error:
            return error.status
        return Status.OK

    def reject(self, remote: RemoteQueue, lookup_id: int, caller: Caller) -> int:
        """R_SetUserAcknowledgementClass for a message that is in no transaction of a remote reader: there are none."""
        try:
            queue = remote.descriptor.require(RECEIVING, "reject messages")
        except PostroadError as error:
            return error.status
        if remote.descriptor.access is QueueAccess.MOVE or not self.permits(queue, caller, receive=True):
            return Status.ACCESS_DENIED
        return Status.MESSAGE_NOT_FOUND if queue.get(lookup_id) is None else Status.TRANSACTION_USAGE

    # Looking

    def readers(self) -> Iterator[ReaderInfo]:
        """Lists every queue that a remote reader has open."""
        for remote in self.opened:
            descriptor = remote.descriptor
            yield ReaderInfo(
                queue=remote.path,
                address=remote.caller.address,
                user=remote.caller.user,
                access=descriptor.access.name.lower(),
                exclusive=descriptor.share is ShareMode.DENY_RECEIVE,
                cursors=len(descriptor.cursors),
                waiting=len(remote.waiting),
                unacknowledged=len(remote.unacknowledged),
                opened_at_s=remote.opened_at,
            )

    def locks(self, now: float) -> Iterator[LockInfo]:
        """The messages that wait for a reader's acknowledgment, by open queue. `age_s` counts from the open."""
        for remote in self.opened:
            lookup_ids = tuple(each.place for each in remote.unacknowledged.values())
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


def _key(entry: RemoteReadEntry) -> int:
    return entry.request_id if entry.remote.dialect.by_request else entry.place


def _family(queue: Queue) -> int:
    """The number of the queue, or of the queue that a subqueue belongs to."""
    properties = queue.properties
    if properties.queue_type is QueueType.SUBQUEUE and properties.owner is not None:
        return properties.owner
    return queue.number
