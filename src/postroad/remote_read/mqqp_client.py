"""A reader of queues on another computer by [MS-MQQP] 3.2. What it shares with that by [MS-MQRR] is in client.py.

One connection for qmcomm and one for qm2qm serve any number of reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from postroad.describe.received import ReceivedMessage
from postroad.errors import LocalProtocolError, RemoteProtocolError, RpcFault, RpcUnavailable
from postroad.names import FormatName, QueueFormat
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read.client import (
    ANSWER_TIMEOUT_S,
    OPEN_TIMEOUT_S,
    Asked,
    Connect,
    Identity,
    OpenQueue,
    PendingRead,
    ReadClient,
    called,
    check,
    message_of,
    quietly,
)
from postroad.remote_read.qm2qm import QM2QM
from postroad.remote_read.qmcomm import QMCOMM, TransferBuffer
from postroad.remote_read.structures import RemoteReadDesc, RemoteReadDesc2
from postroad.remote_read.values import SEEKS, Ack, Action, DesiredAccess, DesiredShare, PortType, Version
from postroad.rpc.client import RpcClient
from postroad.rpc.constants import FaultStatus
from postroad.rpc.interface import Nothing, Operation
from postroad.rpc.ndr import NULL_HANDLE, Handle

CLIENT_SYSTEM = 0x500  # dwMQS of R_QMOpenRemoteQueue: an operating system without licences to count
OLD_VERSION = Version(5, 0, 0)  # of a server without RemoteQmGetVersion


@dataclass(slots=True, eq=False)
class RemoteOpenQueueEntry(OpenQueue):
    """3.2.1.3, and the other results of R_QMOpenRemoteQueue. `queue_handle` is phQueue."""

    queue: int  # dwpQueue
    session: Handle  # RRSessionHandle
    context: Handle  # pphContext of R_QMOpenRemoteQueue


@dataclass(slots=True, eq=False)
class PendingRemoteReadEntry(PendingRead[RemoteOpenQueueEntry]):
    """3.2.1.1"""

    remote_read_handle: Handle = NULL_HANDLE


class RemoteReadClient(ReadClient[RemoteOpenQueueEntry, PendingRemoteReadEntry]):
    """`pending` is rPendingRemoteReadEntryCollection, and `open_queues` rRemoteOpenQueueEntryCollection.

    With `ask_port`, a first binding asks for the port of qm2qm, as in 3.2.4.1. Without it, the first port found serves
    all calls, as with Windows Vista and later (note 5).
    """

    def __init__(self, connect: Connect, identity: Identity, *, ask_port: bool = True) -> None:
        super().__init__(connect, identity, OLD_VERSION)
        self._ask_port = ask_port
        self._qmcomm: RpcClient | None = None

    # Connections

    async def _handshake_connection(self) -> RpcClient:
        async with self._connecting:
            if self._qmcomm is None or self._qmcomm.closed:
                self._qmcomm = await self._connect(QMCOMM, None)
            return self._qmcomm

    async def _bind(self) -> RpcClient:
        connection = await self._bind_for_reading()
        try:
            self.version = await _version_of(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

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
        await super().close()
        if self._qmcomm is not None:
            await self._qmcomm.close()

    # Queues

    async def open(
        self,
        name: FormatName,
        access: DesiredAccess = DesiredAccess.RECEIVE,
        share: DesiredShare = DesiredShare.DENY_NONE,
    ) -> RemoteOpenQueueEntry:
        """R_QMOpenRemoteQueue of qmcomm, then Opening a Queue, 3.2.4.1."""
        reading = await self.connection()
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
            str(name), answer.queue_handle, access, answer.queue, opened.context, answer.context
        )
        self.open_queues[entry.queue_handle] = entry
        # The queue belongs to qm2qm from now on. The context of qmcomm is no longer needed.
        await quietly(handshake, qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, qmcomm.CloseContext(answer.context))
        return entry

    async def _close_queue(self, opened: RemoteOpenQueueEntry) -> int:
        """Closing a Queue, 3.2.4.9"""
        return (await self._call(qm2qm.CLOSE_QUEUE, structures.CloseQueueIn(opened.session))).result

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

    # Reading: peeks are 3.2.4.2 and 3.2.4.5, receives 3.2.4.3 and 3.2.4.6

    def _asked(
        self, opened: RemoteOpenQueueEntry, action: Action, timeout_ms: int, cursor: int
    ) -> Asked[PendingRemoteReadEntry]:
        read = PendingRemoteReadEntry(opened, self._request_id(), action is Action.RECEIVE)
        desc = RemoteReadDesc(opened.queue_handle, cursor, action, timeout_ms, 0, opened.queue, read.request_id)
        if self.version.is_old:
            return read, qm2qm.START_RECEIVE, structures.StartReceiveIn(desc), partial(_message, read)
        return read, qm2qm.START_RECEIVE2, structures.StartReceive2In(RemoteReadDesc2(desc)), partial(_message2, read)

    def _asked_for(
        self, opened: RemoteOpenQueueEntry, action: Action, lookup_id: int, max_body_size: int
    ) -> Asked[PendingRemoteReadEntry]:
        """RemoteQMStartReceiveByLookupId, 3.1.4.11. The whole body comes: this protocol cuts none. It never waits,
        3.1.4.6."""
        if self.version.is_old:
            raise LocalProtocolError("the server does not support lookup ids; it is too old")
        receives, _ = SEEKS[action]
        read = PendingRemoteReadEntry(opened, self._request_id(), receives)
        desc = RemoteReadDesc(opened.queue_handle, 0, action, 0, 0, opened.queue, read.request_id)
        request = structures.StartReceiveByLookupIdIn(lookup_id, RemoteReadDesc2(desc))
        return read, qm2qm.START_RECEIVE_BY_LOOKUP_ID, request, partial(_message2, read)

    async def _cancel(self, read: PendingRemoteReadEntry) -> int:
        """Canceling a Pending Peek or Receive, 3.2.4.7"""
        opened = read.opened
        request = structures.CancelReceiveIn(opened.queue_handle, opened.queue, read.request_id)
        answer = await self._call(qm2qm.CANCEL_RECEIVE, request)
        self.pending.pop(read.request_id, None)
        return answer.result

    def _ended(self, read: PendingRemoteReadEntry, ack: Ack) -> tuple[Operation[Any, Any], Any]:
        """RemoteQMEndReceive"""
        return qm2qm.END_RECEIVE, structures.EndReceiveIn(read.remote_read_handle, ack)


def _message(read: PendingRemoteReadEntry, answer: structures.StartReceiveOut) -> ReceivedMessage:
    return _message_in(read, answer.result, answer.context, answer.remote_read_desc, 0)


def _message2(read: PendingRemoteReadEntry, answer: structures.StartReceive2Out) -> ReceivedMessage:
    desc2 = answer.remote_read_desc2
    return _message_in(read, answer.result, answer.context, desc2.remote_read_desc, desc2.sequential_id)


def _message_in(
    read: PendingRemoteReadEntry, status: int, handle: Handle, desc: RemoteReadDesc | None, sequential_id: int
) -> ReceivedMessage:
    """The message of an answer. After a failure the handle has no meaning and is ignored."""
    if status:
        check(status, f"cannot read {read.opened.name}")
    if read.receives:
        read.remote_read_handle = handle
        read.locked = handle != NULL_HANDLE
    if desc is None or desc.buffer is None or (read.receives and not read.locked):
        raise RemoteProtocolError("the server's answer must contain a message, got none")
    return message_of(desc.buffer, sequential_id, desc.arrive_time)


async def _version_of(connection: RpcClient) -> Version:
    """RemoteQmGetVersion, asked once for each connection. A server without the method is an old one."""
    try:
        answer = await connection.call(qm2qm.GET_VERSION, Nothing(), ANSWER_TIMEOUT_S)
    except RpcFault as fault:
        if fault.fault_status != FaultStatus.NCA_OP_RANGE_ERROR:
            raise
        return OLD_VERSION
    return Version(answer.major, answer.minor, answer.build_number)
