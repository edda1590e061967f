"""A reader of queues on another computer, [MS-MQQP] 3.2: open, peek, receive, cursors, lookups, cancel. mqrr_client.py
is one by [MS-MQRR], and both use the end of this module.

One connection for qmcomm and one for qm2qm serve any number of reads. Applications use client/remote.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    InvalidHandle,
    LocalProtocolError,
    PostroadError,
    RemoteProtocolError,
    RpcFault,
    RpcUnavailable,
    Status,
    rebuild_error,
)
from postroad.names import FormatName, QueueFormat
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM, TransferBuffer
from postroad.remote_read.structures import RemoteReadDesc, RemoteReadDesc2
from postroad.remote_read.values import (
    CALLS,
    INFINITE_MS,
    LAST_LOOKUP_ID,
    SEEKS,
    Ack,
    Action,
    DesiredAccess,
    DesiredShare,
    PortType,
    Version,
    is_failure,
)
from postroad.rpc.client import RpcClient
from postroad.rpc.constants import FaultStatus
from postroad.rpc.interface import Interface, Nothing, Operation
from postroad.rpc.ndr import NULL_HANDLE, Handle
from postroad.store.interface import PRIORITY_SHIFT

In = TypeVar("In")
Out = TypeVar("Out")
Connect = Callable[[Interface, int | None], Awaitable[RpcClient]]

OPEN_TIMEOUT_S = 300.0  # 3.2.4.1: a RemoteQMOpenQueue that takes longer is abandoned
ANSWER_TIMEOUT_S = 60.0  # for methods that never wait; if the connection is lost, they end sooner
WITHDRAW_TIMEOUT_S = 10.0  # how long a cancelled read may take to come back
WHOLE = 0xFFFFFFFF  # a body of any size
CLIENT_SYSTEM = 0x500  # dwMQS of R_QMOpenRemoteQueue: an operating system without licences to count
OLD_VERSION = Version(5, 0, 0)  # of a server without RemoteQmGetVersion


@dataclass(frozen=True, slots=True)
class Identity:
    """The queue manager that reads the queues."""

    identifier: UUID
    routing_server: bool = False
    directory_server: bool = False


@dataclass(slots=True, eq=False)
class PendingRemoteReadEntry:
    """3.2.1.1"""

    queue_handle: int
    request_id: int
    remote_read_handle: Handle = NULL_HANDLE


@dataclass(slots=True, eq=False)
class RemoteOpenQueueEntry:
    """3.2.1.3, and the other results of R_QMOpenRemoteQueue."""

    name: str
    queue_handle: int  # phQueue
    queue: int  # dwpQueue
    session: Handle  # RRSessionHandle
    context: Handle  # pphContext of R_QMOpenRemoteQueue
    access: DesiredAccess
    closed: bool = False


class ReadClient(Protocol):
    """The verbs of both clients. What one of them has opened or received, only that one understands."""

    @property
    def connected(self) -> bool: ...

    @property
    def version(self) -> Version: ...

    async def open(self, name: FormatName, access: DesiredAccess = ..., share: DesiredShare = ...) -> Any: ...

    async def close_queue(self, opened: Any) -> None: ...

    async def purge(self, opened: Any) -> None: ...

    async def create_cursor(self, opened: Any) -> int: ...

    async def close_cursor(self, opened: Any, cursor: int) -> None: ...

    async def peek(
        self, opened: Any, timeout_ms: int = 0, cursor: int = 0, *, following: bool = False
    ) -> ReceivedMessage: ...

    async def receive(self, opened: Any, timeout_ms: int = 0, cursor: int = 0) -> Received: ...

    async def lookup(self, opened: Any, action: Action, lookup_id: int, max_body_size: int = ...) -> Received: ...

    async def end(self, entry: Any, ack: Ack) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Received:
    """A message that is locked at its queue manager until `end`. A peeked message has no entry."""

    message: ReceivedMessage
    entry: Any = None


class RemoteReadClient:
    """Reads queues of one server. `connect` opens a connection with an interface bound: to the given port or, for None,
    to the first port that offers the interface.

    With `ask_port`, a first binding asks for the port of qm2qm, as in 3.2.4.1. Without it, the first port found serves
    all calls, as with Windows Vista and later (note 5).
    """

    def __init__(self, connect: Connect, identity: Identity, *, ask_port: bool = True) -> None:
        self.identity = identity
        self.pending: dict[int, PendingRemoteReadEntry] = {}  # rPendingRemoteReadEntryCollection
        self.open_queues: dict[int, RemoteOpenQueueEntry] = {}  # rRemoteOpenQueueEntryCollection
        self._giving_back: set[asyncio.Future[None]] = set()
        self.version = OLD_VERSION
        self._connect = connect
        self._ask_port = ask_port
        self._qmcomm: RpcClient | None = None
        self._qm2qm: RpcClient | None = None
        self._connecting = asyncio.Lock()
        self._last_request = 0

    # Connections

    @property
    def connected(self) -> bool:
        """Whether the connection that the handles belong to is open."""
        return self._qm2qm is not None and not self._qm2qm.closed

    async def _handshake_connection(self) -> RpcClient:
        async with self._connecting:
            if self._qmcomm is None or self._qmcomm.closed:
                self._qmcomm = await self._connect(QMCOMM, None)
            return self._qmcomm

    async def _read_connection(self) -> RpcClient:
        async with self._connecting:
            if self._qm2qm is None or self._qm2qm.closed:
                self._forget()
                connection = await self._bind_for_reading()
                try:
                    self.version = await _version_of(connection)
                except BaseException:
                    await connection.close()
                    raise
                self._qm2qm = connection
            return self._qm2qm

    async def _bind_for_reading(self) -> RpcClient:
        """3.2.4.1: a first binding asks for the port; a second one, to that port, serves all further calls."""
        first = await self._connect(QM2QM, None)
        if not self._ask_port:
            return first
        try:
            answer = await first.call(qm2qm.GET_SERVER_PORT, structures.GetPortIn(PortType.IP_READ), ANSWER_TIMEOUT_S)
        finally:
            await first.close()
        if not answer.result:
            raise RpcUnavailable("the server offers no port for remote readers")
        return await self._connect(QM2QM, answer.result)

    async def close(self) -> None:
        """Closes every queue, then the connections. If a call can no longer be sent, the server cleans up by itself."""
        for opened in list(self.open_queues.values()):
            try:
                await self.close_queue(opened)
            except PostroadError:
                break
        for connection in (self._qm2qm, self._qmcomm):
            if connection is not None:
                await connection.close()
        self._forget()

    def _forget(self) -> None:
        """Drops everything that the server ended: a client's handles end with its last connection."""
        for opened in self.open_queues.values():
            opened.closed = True
        self.open_queues.clear()
        self.pending.clear()

    def _call(
        self,
        operation: Operation[In, Out],
        request: In,
        timeout: float | None = ANSWER_TIMEOUT_S,
        late: Callable[[Out | None], None] | None = None,
    ) -> Coroutine[Any, Any, Out]:
        """Makes a call of qm2qm on the connection that the handles belong to."""
        connection = self._qm2qm
        if connection is None or connection.closed:
            raise RpcUnavailable("the connection of the queue is lost; open the queue again")
        return called(connection, operation, request, timeout, late)

    # Queues

    async def open(
        self,
        name: FormatName,
        access: DesiredAccess = DesiredAccess.RECEIVE,
        share: DesiredShare = DesiredShare.DENY_NONE,
    ) -> RemoteOpenQueueEntry:
        """R_QMOpenRemoteQueue of qmcomm, then Opening a Queue, 3.2.4.1."""
        reading = await self._read_connection()
        handshake = await self._handshake_connection()
        structure = qmcomm.queue_format_structure(QueueFormat.from_format_name(name))
        request = qmcomm.OpenRemoteQueueIn(structure, 0, access, share, self.identity.identifier, CLIENT_SYSTEM)
        answer = await called(handshake, qmcomm.OPEN_REMOTE_QUEUE, request, OPEN_TIMEOUT_S)
        check(answer.result, f"cannot open {name}")
        supporting = self.identity.routing_server or self.identity.directory_server
        request2 = structures.OpenQueueIn(
            self.identity.identifier, int(supporting), answer.queue_handle, answer.queue, answer.open_context
        )
        try:
            opened = await called(reading, qm2qm.OPEN_QUEUE, request2, OPEN_TIMEOUT_S)
            check(opened.result, f"cannot open {name} for reading")
        except BaseException:
            await quietly(handshake, qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, qmcomm.CloseContext(answer.context))
            raise
        entry = RemoteOpenQueueEntry(
            str(name), answer.queue_handle, answer.queue, opened.context, answer.context, access
        )
        self.open_queues[entry.queue_handle] = entry
        # The queue belongs to qm2qm from now on. The context of qmcomm is no longer needed.
        await quietly(handshake, qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, qmcomm.CloseContext(answer.context))
        return entry

    async def close_queue(self, opened: RemoteOpenQueueEntry) -> None:
        """Closing a Queue, 3.2.4.9. Reads that wait on the queue end; messages that were not acknowledged go back."""
        if opened.closed:
            return
        opened.closed = True
        self.open_queues.pop(opened.queue_handle, None)
        answer = await self._call(qm2qm.CLOSE_QUEUE, structures.CloseQueueIn(opened.session))
        for entry in [each for each in self.pending.values() if each.queue_handle == opened.queue_handle]:
            self.pending.pop(entry.request_id, None)
        check(answer.result, f"cannot close {opened.name}")

    async def purge(self, opened: RemoteOpenQueueEntry) -> None:
        """Purging a Queue, 3.2.4.4"""
        self._require_open(opened)
        # A large queue takes a long time.
        answer = await self._call(qm2qm.PURGE_QUEUE, structures.PurgeQueueIn(opened.queue_handle), None)
        check(answer.result, f"cannot purge {opened.name}")

    async def create_cursor(self, opened: RemoteOpenQueueEntry) -> int:
        """R_QMCreateRemoteCursor, [MS-MQMP] 3.1.4.4"""
        self._require_open(opened)
        handshake = await self._handshake_connection()
        request = qmcomm.CreateRemoteCursorIn(TransferBuffer(), opened.queue_handle)
        answer = await called(handshake, qmcomm.CREATE_REMOTE_CURSOR, request, ANSWER_TIMEOUT_S)
        check(answer.result, f"cannot create a cursor on {opened.name}")
        return answer.cursor

    async def close_cursor(self, opened: RemoteOpenQueueEntry, cursor: int) -> None:
        """Closing a Cursor, 3.2.4.8"""
        self._require_open(opened)
        answer = await self._call(qm2qm.CLOSE_CURSOR, structures.CloseCursorIn(opened.queue_handle, cursor))
        check(answer.result, f"cannot close the cursor on {opened.name}")

    # Reading

    async def peek(
        self, opened: RemoteOpenQueueEntry, timeout_ms: int = 0, cursor: int = 0, *, following: bool = False
    ) -> ReceivedMessage:
        """Peeking a Message, 3.2.4.2 and 3.2.4.5: the first message, the one at a cursor, or the one `following` it."""
        action = Action.PEEK_NEXT if following else Action.PEEK_CURRENT
        return (await self._read(opened, action, timeout_ms, cursor)).message

    async def receive(self, opened: RemoteOpenQueueEntry, timeout_ms: int = 0, cursor: int = 0) -> Received:
        """The first half of Receiving a Message, 3.2.4.3 and 3.2.4.6. The message is locked until `end`."""
        return await self._read(opened, Action.RECEIVE, timeout_ms, cursor)

    async def lookup(
        self, opened: RemoteOpenQueueEntry, action: Action, lookup_id: int, max_body_size: int = WHOLE
    ) -> Received:
        """RemoteQMStartReceiveByLookupId, 3.1.4.11. A received message is locked until `end`. The whole body comes,
        whatever `max_body_size` is: this protocol cuts none."""
        if action not in SEEKS:
            raise LocalProtocolError(f"action: must be an action on a lookup id, got {action.name}")
        if lookup_id == 0 and action not in (Action.LOOKUP_PEEK_NEXT, Action.LOOKUP_RECEIVE_NEXT):
            raise LocalProtocolError("lookup_id: must not be 0, which means the place before the first message")
        if not 0 <= lookup_id <= LAST_LOOKUP_ID:
            raise LocalProtocolError(f"lookup_id: must be a lookup id, got {lookup_id}")
        self._require_open(opened)
        if self.version.is_old:
            raise LocalProtocolError("the server does not support lookup ids; it is too old")
        entry = self._enter(opened)
        receive, _ = SEEKS[action]
        desc = RemoteReadDesc(opened.queue_handle, 0, action, 0, 0, opened.queue, entry.request_id)
        request = structures.StartReceiveByLookupIdIn(lookup_id, RemoteReadDesc2(desc))
        return await self._start(opened, entry, qm2qm.START_RECEIVE_BY_LOOKUP_ID, request, _parts2, receive)

    def _read(
        self, opened: RemoteOpenQueueEntry, action: Action, timeout_ms: int, cursor: int
    ) -> Coroutine[Any, Any, Received]:
        if action not in CALLS or (action is Action.PEEK_NEXT and not cursor):
            raise LocalProtocolError("a cursor is required for the next message")
        if not 0 <= timeout_ms <= INFINITE_MS:
            raise LocalProtocolError(f"timeout_ms: must be between 0 and {INFINITE_MS}, got {timeout_ms}")
        self._require_open(opened)
        entry = self._enter(opened)
        receive = action is Action.RECEIVE
        desc = RemoteReadDesc(opened.queue_handle, cursor, action, timeout_ms, 0, opened.queue, entry.request_id)
        if self.version.is_old:
            old = structures.StartReceiveIn(desc)
            return self._start(opened, entry, qm2qm.START_RECEIVE, old, _parts, receive)
        request = structures.StartReceive2In(RemoteReadDesc2(desc))
        return self._start(opened, entry, qm2qm.START_RECEIVE2, request, _parts2, receive)

    def _enter(self, opened: RemoteOpenQueueEntry) -> PendingRemoteReadEntry:
        """Chooses a request id that no pending read of any queue has."""
        while True:
            self._last_request = self._last_request % 0xFFFFFFFF + 1
            if self._last_request not in self.pending:
                break
        entry = PendingRemoteReadEntry(opened.queue_handle, self._last_request)
        self.pending[entry.request_id] = entry
        return entry

    def _message_in(
        self,
        opened: RemoteOpenQueueEntry,
        entry: PendingRemoteReadEntry,
        receive: bool,
        status: int,
        handle: Handle,
        desc: RemoteReadDesc | None,
        sequential_id: int,
    ) -> Received:
        """Returns the message of an answer. After a failure the handle has no meaning and is ignored."""
        check(status, f"cannot read {opened.name}")
        if receive:
            entry.remote_read_handle = handle
        if desc is None or desc.buffer is None or (receive and handle == NULL_HANDLE):
            raise RemoteProtocolError("the server's answer must contain a message, got none")
        return Received(message_of(desc.buffer, sequential_id, desc.arrive_time), entry if receive else None)

    async def _start(
        self,
        opened: RemoteOpenQueueEntry,
        entry: PendingRemoteReadEntry,
        operation: Operation[In, Out],
        request: In,
        parts: Callable[[Out], _Parts],
        receive: bool,
    ) -> Received:
        """Makes the call. A message that cannot be read goes back, and so does one whose caller has left.

        A read whose caller has left is cancelled, 3.2.4.7. A read by lookup id never waits, 3.1.4.6: if it is a peek,
        it is orphaned.
        """
        cancels = receive or operation is not qm2qm.START_RECEIVE_BY_LOOKUP_ID
        late: asyncio.Future[Out | None] | None = None  # the answer, if the caller leaves before it comes
        kept = False

        def message_in(answer: Out) -> Received:
            return self._message_in(opened, entry, receive, *parts(answer))

        def answered_late(answer: Out | None) -> None:
            nonlocal late
            late = late or asyncio.get_running_loop().create_future()
            if not late.done():
                late.set_result(answer)
            elif answer is not None:  # the caller has left
                task = asyncio.ensure_future(self._give_back(entry, answer, message_in))
                self._giving_back.add(task)
                task.add_done_callback(self._giving_back.discard)

        try:
            answer = await self._call(operation, request, None, answered_late if cancels else None)
            received = message_in(answer)
            kept = receive
            return received
        except asyncio.CancelledError:
            if cancels:
                late = late or asyncio.get_running_loop().create_future()
                await self._withdraw(opened, entry, late, message_in, receive)
            raise
        except RemoteProtocolError:
            if entry.remote_read_handle != NULL_HANDLE:
                await self.end(entry, Ack.RR_NACK)
            raise
        finally:
            if not kept:
                self.pending.pop(entry.request_id, None)

    async def _withdraw(
        self,
        opened: RemoteOpenQueueEntry,
        entry: PendingRemoteReadEntry,
        late: asyncio.Future[Out | None],
        message_in: Callable[[Out], Received],
        receive: bool,
    ) -> None:
        """Canceling a Pending Peek or Receive, 3.2.4.7. If a message was received in that moment, it goes back."""
        with suppress(PostroadError, TimeoutError):
            async with asyncio.timeout(WITHDRAW_TIMEOUT_S):
                if not late.done() and await self._cancel(opened, entry.request_id) != Status.OK and not receive:
                    return  # the server cancels no peeks, 3.1.4.1: this one ends with its queue
                answer = await late  # a read that is no longer pending has been answered
                if answer is not None:
                    await self._give_back(entry, answer, message_in)

    async def _give_back(
        self, entry: PendingRemoteReadEntry, answer: Out, message_in: Callable[[Out], Received]
    ) -> None:
        with suppress(PostroadError):
            if message_in(answer).entry is not None:
                self.pending[entry.request_id] = entry
                await self.end(entry, Ack.RR_NACK)

    async def cancel(self, opened: RemoteOpenQueueEntry, request_id: int) -> None:
        """RemoteQMCancelReceive. The read ends with RemoteCancelled."""
        entry = self.pending.get(request_id)
        if entry is None or entry.queue_handle != opened.queue_handle:
            raise InvalidHandle(f"there is no waiting read of {opened.name} with the request id {request_id}")
        check(await self._cancel(opened, request_id), "cannot cancel the read")

    async def _cancel(self, opened: RemoteOpenQueueEntry, request_id: int) -> int:
        request = structures.CancelReceiveIn(opened.queue_handle, opened.queue, request_id)
        answer = await self._call(qm2qm.CANCEL_RECEIVE, request)
        self.pending.pop(request_id, None)
        return answer.result

    async def end(self, entry: PendingRemoteReadEntry, ack: Ack) -> None:
        """RemoteQMEndReceive. The message is deleted, or returns to its place."""
        if entry.remote_read_handle == NULL_HANDLE or entry.request_id not in self.pending:
            raise InvalidHandle("there is no received message to acknowledge")
        handle, entry.remote_read_handle = entry.remote_read_handle, NULL_HANDLE
        try:
            answer = await self._call(qm2qm.END_RECEIVE, structures.EndReceiveIn(handle, ack), None)
        finally:
            self.pending.pop(entry.request_id, None)
        check(answer.result, "cannot acknowledge the message")

    def _require_open(self, opened: RemoteOpenQueueEntry) -> None:
        if opened.closed:
            raise InvalidHandle(f"{opened.name} is closed, or its connection is lost; open it again")


_Parts = tuple[int, Handle, RemoteReadDesc | None, int]  # the status, the handle, the message, its sequential id


def _parts(answer: structures.StartReceiveOut) -> _Parts:
    return answer.result, answer.context, answer.remote_read_desc, 0


def _parts2(answer: structures.StartReceive2Out) -> _Parts:
    desc2 = answer.remote_read_desc2
    return answer.result, answer.context, desc2.remote_read_desc, desc2.sequential_id


async def _version_of(connection: RpcClient) -> Version:
    """RemoteQmGetVersion, asked once for each connection. A server without the method is an old one."""
    try:
        answer = await connection.call(qm2qm.GET_VERSION, Nothing(), ANSWER_TIMEOUT_S)
    except RpcFault as fault:
        if fault.fault_status != FaultStatus.NCA_OP_RANGE_ERROR:
            raise
        return OLD_VERSION
    return Version(answer.major, answer.minor, answer.build_number)


async def called(
    connection: RpcClient,
    operation: Operation[In, Out],
    request: In,
    timeout: float | None,
    late: Callable[[Out | None], None] | None = None,
    what: str = "",
) -> Out:
    """Makes a call. `what` says what failed, where the method raises its HRESULT."""
    try:
        return await connection.call(operation, request, timeout, late)
    except TimeoutError:
        raise RpcUnavailable(f"the server did not answer {operation.name} within {timeout:g} seconds") from None
    except RpcFault as fault:
        raise error_of_fault(fault, what or operation.name) from None


async def quietly(connection: RpcClient, operation: Operation[In, Any], request: In) -> None:
    """Makes a call whose failure changes nothing: the server cleans up when the connection ends."""
    try:
        await connection.call(operation, request, ANSWER_TIMEOUT_S)
    except (PostroadError, TimeoutError):
        return


# What a server answers, for a client: an HRESULT becomes an exception with a text, a buffer becomes a message.


HIGHEST_PRIORITY = 7
FACILITY_MQ = 0x0E  # the facility of an HRESULT that is raised as a fault


def error_of_fault(fault: RpcFault, what: str) -> PostroadError:
    """The exception for a fault. Some methods raise their HRESULT, which arrives as a fault with that status."""
    if is_failure(fault.fault_status) and fault.fault_status >> 16 & 0xFF == FACILITY_MQ:
        return error_of(fault.fault_status, what)
    return fault


def check(status: int, what: str) -> None:
    if status != Status.OK:
        raise error_of(status, what)


def error_of(status: int, what: str) -> PostroadError:
    """The exception for an HRESULT. All failures are treated alike; the code is there for people to read."""
    if status == Status.STATUS_SHARING_VIOLATION:  # [MS-MQMP] 3.1.4.2: opening gives this status instead of the HRESULT
        status = Status.SHARING_VIOLATION
    words = WORDS.get(status, f"the server answered 0x{status:08X}")
    return rebuild_error("", status, f"{what}: {words}", {})


WORDS: dict[int, str] = {
    Status.INFORMATION_REMOTE_CANCELED_BY_CLIENT: "the read was cancelled",
    Status.QUEUE_NOT_FOUND: "there is no such queue on the server",
    Status.SHARING_VIOLATION: "another reader has the queue open and does not share it",
    Status.ACCESS_DENIED: "the server denies access",
    Status.IO_TIMEOUT: "no message came in time",
    Status.MESSAGE_NOT_FOUND: "there is no such message",
    Status.MESSAGE_ALREADY_RECEIVED: "another reader has received the message",
    Status.ILLEGAL_CURSOR_ACTION: "the cursor is new: peek the current message first, then the next",
    Status.QUEUE_NOT_AVAILABLE: "the queue was deleted while it was open",
    Status.OPERATION_CANCELLED: "the queue was closed or deleted meanwhile",
    Status.TRANSACTION_SEQUENCE: "the receive of this message has already ended",
    Status.INVALID_HANDLE: "the server does not know the handle",
    Status.UNSUPPORTED_FORMATNAME_OPERATION: "this kind of name is only for sending, not for reading",
}


def message_of(
    packet: bytes, sequential_id: int, arrive_time: int, aborts: int = 0, reason: int = 0
) -> ReceivedMessage:
    """The message in a UserMessage packet. The answer lacks the top octet of the lookup identifier, which follows from
    the priority. An old server gives no identifier at all."""
    message = ReceivedMessage(packet, 0, arrive_time * 1000, aborts, reason)
    view = message.view  # reading the view checks the packet
    if sequential_id:
        rank = HIGHEST_PRIORITY - (0 if view.transactional else view.priority)
        message.lookup_id = rank << PRIORITY_SHIFT | sequential_id
    return message
