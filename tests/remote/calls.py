"""A reader by [MS-MQRR] whose calls are made by hand: what goes out and comes back are the parameters themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from postroad.errors import RpcFault
from postroad.names import DirectName, FormatName, QueueFormat, parse_format_name
from postroad.remote_read import remoteread as wire
from postroad.remote_read.message_packet import message_in
from postroad.remote_read.qmcomm import QueueFormatStructure, queue_format_structure
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.gss import initiator
from postroad.rpc.interface import Nothing, Operation
from postroad.rpc.ndr import Format, Handle
from postroad.wire.view import MessageView
from tests.remote.station import DIRECT, PASSWORD, Station

In = TypeVar("In")
Out = TypeVar("Out")
CLIENT_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
INFINITE = 0xFFFFFFFF
WHOLE = 0xFFFFFFFF
RECEIVE, PEEK, PEEK_NEXT = 0, 0x80000000, 0x80000001
LOOKUP_PEEK_CURRENT, LOOKUP_PEEK_NEXT, LOOKUP_PEEK_PREV = 0x40000010, 0x40000011, 0x40000012
LOOKUP_RECEIVE_CURRENT, LOOKUP_RECEIVE_NEXT, LOOKUP_RECEIVE_PREV = 0x40000020, 0x40000021, 0x40000022
NACK, ACK = 1, 2
Start = wire.StartReceiveOut


class Caller:
    """One connection. Each call waits for its answer; `later` starts one and gives a future."""

    def __init__(self, running: Station, client: RpcClient) -> None:
        self.running = running
        self.client = client
        self.numbers = count(1)

    def call(self, operation: Operation[In, Out], request: In) -> Out:
        return self.running.run(self.client.call(operation, request, 60))

    def later(self, operation: Operation[In, Out], request: In) -> Future[Out]:
        future: Future[Out] = asyncio.run_coroutine_threadsafe(self.client.call(operation, request), self.running.loop)
        self.running.run(asyncio.sleep(0))  # it is on its way, before any later call
        return future

    def fault(self, operation: Operation[Any, Any], request: object) -> int:
        """The status of the fault that the call ends with."""
        try:
            answer = self.call(operation, request)
        except RpcFault as fault:
            return fault.fault_status
        raise AssertionError(f"must be a fault, got {answer}")

    def close(self) -> None:
        self.running.run(self.client.close())

    # Opens

    def opening(
        self,
        name: str | FormatName | QueueFormatStructure = DIRECT,
        access: int = 1,
        share: int = 0,
        **more: Any,
    ) -> wire.OpenQueueIn:
        fields: dict[str, Any] = {
            "client_id": CLIENT_ID,
            "non_routing_server": 1,
            "major": 6,
            "minor": 1,
            "build_number": 7601,
            "workgroup": 1,
            **more,
        }
        return wire.OpenQueueIn(structure(name), access, share, **fields)

    def open(
        self, name: str | FormatName | QueueFormatStructure = DIRECT, access: int = 1, share: int = 0, **more: Any
    ) -> Opened:
        answer = self.call(wire.OPEN_QUEUE, self.opening(name, access, share, **more))
        return Opened(self, answer.context)

    def refused(self, name: str | FormatName | QueueFormatStructure = DIRECT, access: int = 1, share: int = 0) -> int:
        return self.fault(wire.OPEN_QUEUE, self.opening(name, access, share))

    def target(self, name: str | FormatName | QueueFormatStructure) -> tuple[int, Opened]:
        """A queue that messages are moved to."""
        answer = self.call(wire.OPEN_QUEUE_FOR_MOVE, self.opening(name, 4))
        return answer.move_context, Opened(self, answer.context)

    def using(self, handle: Handle) -> Opened:
        return Opened(self, handle)


class Opened:
    """An open queue."""

    def __init__(self, caller: Caller, handle: Handle) -> None:
        self.caller = caller
        self.handle = handle
        self.last = 0  # the request id of the last read

    def request(
        self,
        action: int = RECEIVE,
        timeout: int = 0,
        cursor: int = 0,
        lookup_id: int = 0,
        request_id: int | None = None,
        max_body_size: int = WHOLE,
        max_compound_message_size: int = WHOLE,
    ) -> wire.StartReceiveIn:
        self.last = next(self.caller.numbers) if request_id is None else request_id
        return wire.StartReceiveIn(
            self.handle, lookup_id, cursor, action, timeout, self.last, max_body_size, max_compound_message_size
        )

    def start(self, action: int = RECEIVE, **more: Any) -> Start:
        return self.caller.call(wire.START_RECEIVE, self.request(action, **more))

    def start_later(self, action: int = RECEIVE, timeout: int = INFINITE, **more: Any) -> Future[Start]:
        return self.caller.later(wire.START_RECEIVE, self.request(action, timeout, **more))

    def status(self, action: int = RECEIVE, **more: Any) -> int:
        return self.start(action, **more).result

    def end(self, ack: int = ACK, request_id: int | None = None) -> int:
        number = self.last if request_id is None else request_id
        return self.caller.call(wire.END_RECEIVE, wire.EndReceiveIn(self.handle, ack, number)).result

    def take(self, **more: Any) -> str:
        """Receives and acknowledges. Returns the label."""
        found = label(self.start(RECEIVE, **more))
        assert self.end() == 0
        return found

    def cancel(self, request_id: int) -> int:
        return self.caller.call(wire.CANCEL_RECEIVE, wire.CancelReceiveIn(self.handle, request_id)).result

    def cursor(self) -> int:
        answer = self.caller.call(wire.CREATE_CURSOR, wire.OneQueue(self.handle))
        assert answer.result == 0
        return answer.cursor

    def close_cursor(self, cursor: int) -> int:
        return self.caller.call(wire.CLOSE_CURSOR, wire.CloseCursorIn(self.handle, cursor)).result

    def purge(self) -> int:
        return self.caller.call(wire.PURGE_QUEUE, wire.OneQueue(self.handle)).result

    def close(self) -> wire.CloseQueueOut:
        return self.caller.call(wire.CLOSE_QUEUE, wire.OneQueue(self.handle))

    def move(self, context: int, lookup_id: int, transaction: bytes = wire.NO_TRANSACTION) -> int:
        request = wire.MoveMessageIn(self.handle, context, lookup_id, transaction)
        return self.caller.call(wire.MOVE_MESSAGE, request).result

    def set_class(self, lookup_id: int, number: int = 0xC004) -> int:
        request = wire.SetClassIn(self.handle, lookup_id, number)
        return self.caller.call(wire.SET_USER_ACKNOWLEDGEMENT_CLASS, request).result


def structure(name: str | FormatName | QueueFormatStructure) -> QueueFormatStructure:
    if isinstance(name, QueueFormatStructure):
        return name
    if isinstance(name, str):
        name = parse_format_name(name) if "=" in name else DirectName.from_wire(name)
    return queue_format_structure(QueueFormat.from_format_name(name))


def octets(answer: Start) -> bytes:
    """All octets of all sections."""
    assert answer.result == 0, hex(answer.result)
    return b"".join(each.section or b"" for each in answer.sections or ())


def view(answer: Start) -> MessageView:
    assert answer.result == 0, hex(answer.result)
    return MessageView(message_in(answer.sections or ())[0])


def label(answer: Start) -> str:
    return view(answer).label


def lookup_id(answer: Start) -> int:
    """3.1.4.7: the identifier whose low 7 octets are pSequenceId."""
    found = view(answer)
    return (7 - (0 if found.transactional else found.priority)) << 56 | answer.sequence_id


@contextmanager
def calling(
    running: Station,
    *,
    user: str | None = None,
    password: str = PASSWORD,
    level: AuthLevel = AuthLevel.PRIVACY,
    layout: Format = Format.NDR,
    association: int = 0,
) -> Iterator[Caller]:
    """A connection to the server, with RemoteRead bound."""
    host, port = running.address

    async def open_one() -> RpcClient:
        security = None
        if user is not None:
            security = initiator(user, password, host=host, auth_type=AuthType.NTLM, level=level)
        return await connect(host, port, REMOTE_READ, security=security, layouts=(layout,), association=association)

    caller = Caller(running, running.run(open_one()))
    try:
        yield caller
    finally:
        caller.close()


def port_of(caller: Caller) -> int:
    return caller.call(wire.GET_SERVER_PORT, Nothing()).result
