"""The methods of [MS-MQRR] 3.1.4 as RPC calls, with the checks and errors of that protocol. What they do is in
service.py; stubs are in remoteread.py, packets in message_packet.py.

A queue's context handle stands for it in every call. The request id names a read, from R_StartReceive on until
R_EndReceive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from postroad.errors import RpcFault, Status, StorageError
from postroad.names.grammar import QueueFormatType
from postroad.queues.properties import QueueType
from postroad.remote_read import remoteread as wire
from postroad.remote_read.handlers import Handlers, ReadManager
from postroad.remote_read.message_packet import sections_of
from postroad.remote_read.qmcomm import CreateRemoteCursorOut, queue_format_parts
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.remote_read.service import MQRR, Answer, RemoteQueue, RemoteReadEntry, RemoteReadService
from postroad.remote_read.structures import Result
from postroad.remote_read.values import ACCESS, CALLS, SEEKS, SEQUENTIAL_MASK, SHARE, Action, PortType
from postroad.reports.operations import QueueAccess, ShareMode
from postroad.rpc.calls import Call, Later
from postroad.rpc.interface import Interface, Nothing
from postroad.rpc.ndr import NULL_HANDLE
from postroad.rpc.server import RpcServer
from postroad.security.attempts import Audit
from postroad.wire.constants import MessageClass

MOVE_ACCESS = 4  # 3.1.4.11 dwAccess
# 3.1.4.2: what a queue can be named by.
_NAMES = frozenset(
    {
        QueueFormatType.PUBLIC,
        QueueFormatType.PRIVATE,
        QueueFormatType.DIRECT,
        QueueFormatType.MACHINE,
        QueueFormatType.SUBQUEUE,
    }
)
_CLASSES = frozenset({0, int(MessageClass.NACK_RECEIVE_REJECTED)})
# 3.1.4.9: the message is gone from the queue, whatever took it away.
_GONE = frozenset({Status.TRANSACTION_SEQUENCE, Status.QUEUE_NOT_AVAILABLE})


class MqrrHandlers(Handlers):
    interfaces: tuple[Interface, ...] = (REMOTE_READ,)

    def __init__(
        self,
        manager: ReadManager,
        service: RemoteReadService,
        audit: Audit | None = None,
        *,
        new_context: Callable[[], int],
    ) -> None:
        """`new_context` gives 64 bits that nobody can guess."""
        super().__init__(manager, service, audit)
        self.targets: dict[int, RemoteQueue] = {}  # of moves, by pMoveContext
        self._move_contexts: dict[RemoteQueue, int] = {}
        self._new_context = new_context

    def register(self, server: RpcServer) -> None:
        server.register(REMOTE_READ)
        server.on(wire.GET_SERVER_PORT, self._get_server_port)
        server.on(wire.OPEN_QUEUE, self._open_queue)
        server.on(wire.CLOSE_QUEUE, self._close_queue)
        server.on(wire.CREATE_CURSOR, self._create_cursor)
        server.on(wire.CLOSE_CURSOR, self._close_cursor)
        server.on(wire.PURGE_QUEUE, self._purge_queue)
        server.on(wire.START_RECEIVE, self._start_receive)
        server.on(wire.CANCEL_RECEIVE, self._cancel_receive)
        server.on(wire.END_RECEIVE, self._end_receive)
        server.on(wire.MOVE_MESSAGE, self._move_message)
        server.on(wire.OPEN_QUEUE_FOR_MOVE, self._open_queue_for_move)
        server.on(wire.SET_USER_ACKNOWLEDGEMENT_CLASS, self._set_user_acknowledgement_class)

    # Opening and closing

    def _get_server_port(self, call: Call, request: Nothing) -> Result:
        return Result(self.service.server_port(PortType.IP_HANDSHAKE))

    def _open_queue(self, call: Call, request: wire.OpenQueueIn) -> wire.OpenQueueOut:
        """3.1.4.2. It returns no HRESULT: a failure is a fault with it."""
        if refused := self.service.refusal(call.caller, Status.OK):
            raise RpcFault(refused)
        if request.access not in ACCESS or request.share_mode not in SHARE:
            raise RpcFault(Status.INVALID_PARAMETER)
        access, share = ACCESS[request.access], SHARE[request.share_mode]  # type: ignore[index]
        remote = self._opened(call, request, access, share)
        return wire.OpenQueueOut(call.open_context(wire.HANDLE_KIND, remote, self._run_down))

    async def _open_queue_for_move(self, call: Call, request: wire.OpenQueueIn) -> wire.OpenQueueForMoveOut:
        """3.1.4.11. The answer waits until a new subqueue is durable."""
        if refused := self.service.refusal(call.caller, Status.OK):
            raise RpcFault(refused)
        if request.access != MOVE_ACCESS or request.share_mode not in SHARE:
            raise RpcFault(Status.INVALID_PARAMETER)
        share = SHARE[request.share_mode]  # type: ignore[index]
        opened: list[RemoteQueue] = []
        try:
            await self.manager.durably(lambda: opened.append(self._opened(call, request, QueueAccess.MOVE, share)))
        except BaseException as error:  # the disk failed, or the client has left
            for remote in opened:
                self._run_down(remote)
            if isinstance(error, StorageError):
                raise RpcFault(error.status) from None
            raise
        (remote,) = opened
        context = self._new_context()
        while not context or context in self.targets:
            context = self._new_context()
        self.targets[context], self._move_contexts[remote] = remote, context
        return wire.OpenQueueForMoveOut(context, call.open_context(wire.HANDLE_KIND, remote, self._run_down))

    def _opened(self, call: Call, request: wire.OpenQueueIn, access: QueueAccess, share: ShareMode) -> RemoteQueue:
        if request.queue_format.m_qft not in _NAMES:
            raise RpcFault(Status.INVALID_PARAMETER)
        parts = queue_format_parts(request.queue_format)
        status, remote = self.service.open(MQRR, parts, access, share, self.manager.clock(), call.caller)
        if remote is None:
            raise RpcFault(status)
        return remote

    def _close_queue(self, call: Call, request: wire.OneQueue) -> wire.CloseQueueOut | Later[wire.CloseQueueOut]:
        remote = call.context(request.context, RemoteQueue)
        call.close_context(request.context)

        def operation() -> int:
            self._close(remote)
            return Status.OK

        return self.durably(operation, lambda status: wire.CloseQueueOut(NULL_HANDLE, status))

    def _close(self, remote: RemoteQueue) -> None:
        self.targets.pop(self._move_contexts.pop(remote, 0), None)
        self.service.close(remote, self.manager.clock())

    def _run_down(self, remote: RemoteQueue) -> None:
        """3.1.6.2: its unfinished receives go back, and it closes."""
        self._close(remote)
        self.manager.commit_soon()

    # Cursors and purge

    def _create_cursor(self, call: Call, request: wire.OneQueue) -> CreateRemoteCursorOut:
        remote = call.context(request.context, RemoteQueue)
        if remote.descriptor.access is QueueAccess.MOVE:
            return CreateRemoteCursorOut(0, Status.ACCESS_DENIED)
        status, cursor = self.service.open_cursor(remote, call.caller)
        return CreateRemoteCursorOut(cursor, status)

    def _close_cursor(self, call: Call, request: wire.CloseCursorIn) -> Result:
        closed = self.service.close_cursor(call.context(request.context, RemoteQueue), request.cursor)
        return Result(Status.OK if closed else Status.STATUS_INVALID_HANDLE)

    async def _purge_queue(self, call: Call, request: wire.OneQueue) -> Result:
        remote = call.context(request.context, RemoteQueue)
        return Result(await self.purge(remote, lambda: self.service.purge(remote, self.manager.clock(), call.caller)))

    # Reading

    def _start_receive(
        self, call: Call, request: wire.StartReceiveIn
    ) -> wire.StartReceiveOut | Awaitable[wire.StartReceiveOut]:
        remote = call.context(request.context, RemoteQueue)
        max_body_size = request.max_body_size
        found = self._begin(remote, request, call)
        return self.answer(found, lambda answer: _reply(answer, remote, max_body_size))

    def _begin(self, remote: RemoteQueue, request: wire.StartReceiveIn, call: Call) -> Answer | RemoteReadEntry:
        """Makes the checks of 3.1.4.7, then reads."""
        action, request_id, lookup_id = request.action, request.request_id, request.lookup_id
        if request_id in remote.unacknowledged or request_id in remote.waiting:
            return Answer(Status.INVALID_PARAMETER)
        if remote.descriptor.access is QueueAccess.MOVE:
            return Answer(Status.ACCESS_DENIED)
        now, caller = self.manager.clock(), call.caller
        if lookup_id:
            if request.cursor or request.timeout or action not in SEEKS:
                return Answer(Status.INVALID_PARAMETER)
            return self.service.lookup(remote, action, request_id, lookup_id, now, caller)
        if action not in CALLS or (action == Action.PEEK_NEXT and not request.cursor):
            return Answer(Status.INVALID_PARAMETER)
        return self.service.read(remote, action, request_id, request.timeout, request.cursor, now, caller)

    def _cancel_receive(self, call: Call, request: wire.CancelReceiveIn) -> Result:
        entry = call.context(request.context, RemoteQueue).waiting.get(request.request_id)
        return Result(Status.STATUS_NOT_FOUND if entry is None else self.service.cancel(entry))

    def _end_receive(self, call: Call, request: wire.EndReceiveIn) -> Result | Later[Result]:
        remote = call.context(request.context, RemoteQueue)
        entry = remote.unacknowledged.get(request.request_id)
        if entry is None:
            pending = remote.unacknowledged or [each for each in remote.waiting.values() if each.receives]
            return Result(Status.INVALID_PARAMETER if pending else Status.INVALID_HANDLE)
        return self.durably(lambda: self.service.end(entry, request.ack, self.manager.clock()), _ended)

    # Moving and rejecting

    def _move_message(self, call: Call, request: wire.MoveMessageIn) -> Result | Later[Result]:
        remote = call.context(request.context_from, RemoteQueue)
        target = self.targets.get(request.context_to)
        if target is None or not call.caller.may_use(target.caller):
            return Result(Status.INVALID_HANDLE)
        transaction = request.transaction_id != wire.NO_TRANSACTION
        return self.durably(
            lambda: self.service.move(
                remote, target, request.lookup_id, self.manager.clock(), call.caller, transaction=transaction
            ),
            Result,
        )

    def _set_user_acknowledgement_class(self, call: Call, request: wire.SetClassIn) -> Result:
        remote = call.context(request.context, RemoteQueue)
        if request.acknowledgment_class not in _CLASSES:
            return Result(Status.INVALID_PARAMETER)
        return Result(self.service.reject(remote, request.lookup_id, call.caller))


def _ended(status: int) -> Result:
    return Result(Status.MESSAGE_NOT_FOUND if status in _GONE else status)


def _reply(answer: Answer, remote: RemoteQueue, max_body_size: int) -> wire.StartReceiveOut:
    record = answer.record
    if record is None:
        return wire.StartReceiveOut(0, 0, 0, None, answer.status)
    queue = remote.descriptor.queue
    subqueue = ""
    if queue is not None and queue.properties.queue_type is QueueType.SUBQUEUE:
        subqueue = remote.path.rpartition(";")[2]
    sections = sections_of(record, subqueue, max_body_size)
    return wire.StartReceiveOut(
        record.arrived_ms // 1000, record.lookup_id & SEQUENTIAL_MASK, len(sections), sections, answer.status
    )
