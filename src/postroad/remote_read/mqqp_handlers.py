"""The methods of qm2qm and qmcomm as RPC calls. A stub becomes values, mqqp.py answers, the changes become durable, and
the reply is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from postroad.errors import RpcFault, Status
from postroad.remote_read import qm2qm, qmcomm, structures
from postroad.remote_read.handlers import Handlers, ReadManager
from postroad.remote_read.mqqp import Mqqp, OpenQueueEntry, RemoteOpenQueue
from postroad.remote_read.service import Answer, RemoteReadEntry, RemoteReadService
from postroad.remote_read.structures import RemoteReadDesc, RemoteReadDesc2
from postroad.remote_read.values import OWN_VERSION, SEQUENTIAL_MASK, Ack, ReadRequest
from postroad.rpc.calls import Call, Later
from postroad.rpc.ndr import NULL_HANDLE, Handle
from postroad.rpc.server import RpcServer
from postroad.security.attempts import Audit
from postroad.wire.patch import without_local_part

Out = TypeVar("Out")

SESSION_KIND = "PCTX_RRSESSION_HANDLE_TYPE"
READ_KIND = "PCTX_REMOTEREAD_HANDLE_TYPE"
OPEN_KIND = "PCTX_OPENREMOTE_HANDLE_TYPE"
FROM_SERVER = 1  # the usual value of Reserved, which nobody reads


class MqqpHandlers(Handlers):
    interfaces = (qmcomm.QMCOMM, qm2qm.QM2QM)

    def __init__(
        self,
        manager: ReadManager,
        service: RemoteReadService,
        audit: Audit | None = None,
        *,
        new_handle: Callable[[], int],
    ) -> None:
        super().__init__(manager, service, audit)
        self.mqqp = Mqqp(service, new_handle)

    def register(self, server: RpcServer) -> None:
        server.register(qmcomm.QMCOMM)
        server.on(qmcomm.GET_REMOTE_QUEUE_NAME, self._get_remote_queue_name)
        server.on(qmcomm.OPEN_REMOTE_QUEUE, self._open_remote_queue)
        server.on(qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, self._close_remote_queue_context)
        server.on(qmcomm.CREATE_REMOTE_CURSOR, self._create_remote_cursor)
        server.on(qmcomm.GET_SERVER_PORT, self._get_rt_server_port)
        server.register(qm2qm.QM2QM)
        server.on(qm2qm.START_RECEIVE, self._start_receive)
        server.on(qm2qm.END_RECEIVE, self._end_receive)
        server.on(qm2qm.OPEN_QUEUE, self._open_queue)
        server.on(qm2qm.CLOSE_QUEUE, self._close_queue)
        server.on(qm2qm.CLOSE_CURSOR, self._close_cursor)
        server.on(qm2qm.CANCEL_RECEIVE, self._cancel_receive)
        server.on(qm2qm.PURGE_QUEUE, self._purge_queue)
        server.on(qm2qm.GET_SERVER_PORT, self._get_server_port)
        server.on(qm2qm.GET_VERSION, self._get_version)
        server.on(qm2qm.START_RECEIVE2, self._start_receive2)
        server.on(qm2qm.START_RECEIVE_BY_LOOKUP_ID, self._start_receive_by_lookup_id)

    # qmcomm

    def _get_remote_queue_name(self, call: Call, request: qmcomm.GetRemoteQueueNameIn) -> qmcomm.GetRemoteQueueNameOut:
        raise RpcFault(Status.ILLEGAL_OPERATION, "the method is obsolete, [MS-MQMP] 3.1.4.1")

    def _open_remote_queue(self, call: Call, request: qmcomm.OpenRemoteQueueIn) -> qmcomm.OpenRemoteQueueOut:
        structure = request.queue_format
        status, remote = self.mqqp.open_remote_queue(
            None if structure is None else qmcomm.queue_format_parts(structure),
            request.desired_access,
            request.share_mode,
            self.manager.clock(),
            call.caller,
        )
        if remote is None:
            return qmcomm.OpenRemoteQueueOut(NULL_HANDLE, 0, 0, 0, status)
        handle = call.open_context(OPEN_KIND, remote, self._run_down_context)
        return qmcomm.OpenRemoteQueueOut(handle, remote.handle, remote.handle, remote.handle, status)

    def _close_remote_queue_context(self, call: Call, request: qmcomm.CloseContext) -> qmcomm.CloseContext:
        if request.context != NULL_HANDLE:
            self._run_down_context(call.context(request.context, RemoteOpenQueue))
        return qmcomm.CloseContext(call.close_context(request.context))

    def _create_remote_cursor(self, call: Call, request: qmcomm.CreateRemoteCursorIn) -> qmcomm.CreateRemoteCursorOut:
        status, cursor = self.mqqp.create_remote_cursor(request.queue_handle, call.caller)
        return qmcomm.CreateRemoteCursorOut(cursor, status)

    def _get_rt_server_port(self, call: Call, request: qmcomm.GetServerPortIn) -> structures.Result:
        return structures.Result(self.service.server_port(request.port_type))

    # qm2qm: opening and closing

    def _get_server_port(self, call: Call, request: structures.GetPortIn) -> structures.Result:
        return structures.Result(self.service.server_port(request.port_type))

    def _get_version(self, call: Call, request: object) -> structures.GetVersionOut:
        return structures.GetVersionOut(OWN_VERSION.major, OWN_VERSION.minor, OWN_VERSION.build)

    def _open_queue(self, call: Call, request: structures.OpenQueueIn) -> structures.OpenQueueOut:
        status, entry = self.mqqp.open_queue(request.lic_guid, request.queue, request.open_context, call.caller)
        if entry is None:
            return structures.OpenQueueOut(NULL_HANDLE, status)
        return structures.OpenQueueOut(call.open_context(SESSION_KIND, entry, self._run_down_session), status)

    def _close_queue(
        self, call: Call, request: structures.CloseQueueIn
    ) -> structures.CloseQueueOut | Later[structures.CloseQueueOut]:
        entry = call.context(request.context, OpenQueueEntry) if request.context != NULL_HANDLE else None
        null = call.close_context(request.context)
        return self.durably(
            lambda: self.mqqp.close_queue(entry, self.manager.clock()),
            lambda status: structures.CloseQueueOut(null, status),
        )

    def _close_cursor(self, call: Call, request: structures.CloseCursorIn) -> structures.Result:
        return structures.Result(self.mqqp.close_cursor(request.queue_handle, request.cursor, call.caller))

    async def _purge_queue(self, call: Call, request: structures.PurgeQueueIn) -> structures.Result:
        opened = self.mqqp.remote_queues.get(request.queue_handle)
        status = await self.purge(
            None if opened is None else opened.remote,
            lambda: self.mqqp.purge_queue(request.queue_handle, self.manager.clock(), call.caller),
        )
        return structures.Result(status)

    # qm2qm: reading

    def _start_receive(
        self, call: Call, request: structures.StartReceiveIn
    ) -> structures.StartReceiveOut | Awaitable[structures.StartReceiveOut]:
        desc = request.remote_read_desc
        return self._read(
            call,
            desc,
            lambda answer: structures.StartReceiveOut(
                self._context(call, answer), _filled(desc, answer), answer.status
            ),
        )

    def _start_receive2(
        self, call: Call, request: structures.StartReceive2In
    ) -> structures.StartReceive2Out | Awaitable[structures.StartReceive2Out]:
        desc = request.remote_read_desc2.remote_read_desc
        return self._read(call, desc, lambda answer: self._answer2(call, desc, answer))

    def _start_receive_by_lookup_id(
        self, call: Call, request: structures.StartReceiveByLookupIdIn
    ) -> structures.StartReceive2Out:
        desc = request.remote_read_desc2.remote_read_desc
        answer = self.mqqp.start_receive_by_lookup_id(
            request.lookup_id, _read_request(desc), self.manager.clock(), call.caller
        )
        self.manager.commit_soon()
        return self._answer2(call, desc, answer)

    def _answer2(self, call: Call, desc: RemoteReadDesc | None, answer: Answer) -> structures.StartReceive2Out:
        sequential_id = 0 if answer.record is None else answer.record.lookup_id & SEQUENTIAL_MASK
        filled = None if desc is None else _filled(desc, answer)
        return structures.StartReceive2Out(
            self._context(call, answer), RemoteReadDesc2(filled, sequential_id), answer.status
        )

    def _read(self, call: Call, desc: RemoteReadDesc | None, reply: Callable[[Answer], Out]) -> Out | Awaitable[Out]:
        return self.answer(self.mqqp.start_receive(_read_request(desc), self.manager.clock(), call.caller), reply)

    def _context(self, call: Call, answer: Answer) -> Handle:
        if answer.entry is None:
            return NULL_HANDLE
        return call.open_context(READ_KIND, answer.entry, self._run_down_read)

    def _end_receive(
        self, call: Call, request: structures.EndReceiveIn
    ) -> structures.EndReceiveOut | Later[structures.EndReceiveOut]:
        entry = call.context(request.context, RemoteReadEntry) if request.context != NULL_HANDLE else None
        null = call.close_context(request.context)
        return self.durably(
            lambda: self.mqqp.end_receive(entry, request.ack, self.manager.clock()),
            lambda status: structures.EndReceiveOut(null, status),
        )

    def _cancel_receive(self, call: Call, request: structures.CancelReceiveIn) -> structures.Result:
        return structures.Result(
            self.mqqp.cancel_receive(request.queue_handle, request.queue, request.request_id, call.caller)
        )

    # Rundown, [MS-MQQP] 3.1.6

    def _run_down_context(self, opened: RemoteOpenQueue) -> None:
        self.mqqp.close_remote_queue_context(opened, self.manager.clock())

    def _run_down_session(self, entry: OpenQueueEntry) -> None:
        self.mqqp.close_queue(entry, self.manager.clock())
        self.manager.commit_soon()

    def _run_down_read(self, entry: RemoteReadEntry) -> None:
        self.mqqp.end_receive(entry, Ack.RR_NACK, self.manager.clock())
        self.manager.commit_soon()


def _read_request(desc: RemoteReadDesc | None) -> ReadRequest | None:
    if desc is None:
        return None
    return ReadRequest(desc.remote_queue, desc.queue, desc.action, desc.request_id, desc.timeout, desc.cursor)


def _filled(desc: RemoteReadDesc, answer: Answer) -> RemoteReadDesc:
    """The descriptor of the answer: the client's values, and the message if there is one."""
    record = answer.record
    packet = None if record is None else without_local_part(record.packet)
    return RemoteReadDesc(
        desc.remote_queue,
        desc.cursor,
        desc.action,
        desc.timeout,
        0 if packet is None else len(packet),
        desc.queue,
        desc.request_id,
        FROM_SERVER,
        0 if record is None else record.arrived_ms // 1000,
        0,
        packet,
    )
