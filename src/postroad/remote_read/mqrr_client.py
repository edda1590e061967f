"""A reader of queues on another computer by [MS-MQRR] 3.2: the same verbs as client.py has by [MS-MQQP].

One connection serves any number of queues and reads. A read is one call, and so is its end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    InvalidHandle,
    LocalProtocolError,
    MessageNotFound,
    NoMessage,
    PostroadError,
    RemoteProtocolError,
    RpcUnavailable,
)
from postroad.names import FormatName, QueueFormat
from postroad.remote_read import remoteread as wire
from postroad.remote_read.client import (
    ANSWER_TIMEOUT_S,
    OPEN_TIMEOUT_S,
    WHOLE,
    WITHDRAW_TIMEOUT_S,
    Connect,
    Identity,
    Received,
    called,
    check,
    error_of,
    message_of,
    quietly,
)
from postroad.remote_read.qmcomm import queue_format_structure
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.remote_read.sections import message_in
from postroad.remote_read.values import (
    CALLS,
    INFINITE_MS,
    LAST_LOOKUP_ID,
    OWN_VERSION,
    SEEKS,
    Ack,
    Action,
    DesiredAccess,
    DesiredShare,
)
from postroad.rpc.client import RpcClient
from postroad.rpc.ndr import Handle
from postroad.wire.constants import MessageClass

MAX_REQUEST_ID = 0xFFFFFFFF
FIRST_MESSAGES = {  # 3.1.4.7 has no lookup id for the place before the first message: these read the first one
    Action.LOOKUP_PEEK_NEXT: Action.PEEK_CURRENT,
    Action.LOOKUP_RECEIVE_NEXT: Action.RECEIVE,
}
MOVE_ACCESS = 4  # 3.1.4.11
_numbers = count(1)


@dataclass(slots=True, eq=False)
class OpenQueue:
    """A queue that is open on the server, 3.2.1. `queue_handle` is a number of our own."""

    name: str
    handle: Handle
    connection: RpcClient
    access: DesiredAccess
    queue_handle: int = field(default_factory=partial(next, _numbers))
    closed: bool = False


@dataclass(slots=True, eq=False)
class PendingRead:
    """A read from its call until its end."""

    opened: OpenQueue
    request_id: int


class MqrrClient:
    """Reads queues of one server. `connect` opens a connection with the interface bound."""

    def __init__(self, connect: Connect, identity: Identity) -> None:
        self.identity = identity
        self.version = OWN_VERSION  # no server of this protocol is an old one
        self.pending: dict[int, PendingRead] = {}
        self.open_queues: dict[int, OpenQueue] = {}
        self._connect = connect
        self._connection: RpcClient | None = None
        self._connecting = asyncio.Lock()
        self._last_request = 0
        self._giving_back: set[asyncio.Future[None]] = set()

    # Connections

    @property
    def connected(self) -> bool:
        """Whether the connection that the handles belong to is open."""
        return self._connection is not None and not self._connection.closed

    async def connection(self) -> RpcClient:
        """The connection, opened if there is none."""
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._forget()
                self._connection = await self._connect(REMOTE_READ, None)
            return self._connection

    async def close(self) -> None:
        """Closes every queue, then the connection. If a call can no longer be sent, the server cleans up by itself."""
        for opened in list(self.open_queues.values()):
            try:
                await self.close_queue(opened)
            except PostroadError:
                break
        if self._connection is not None:
            await self._connection.close()
        self._forget()

    def _forget(self) -> None:
        """Drops everything that the server ended: a client's handles end with its last connection."""
        for opened in self.open_queues.values():
            opened.closed = True
        self.open_queues.clear()
        self.pending.clear()

    # Queues

    async def open(
        self,
        name: FormatName,
        access: DesiredAccess = DesiredAccess.RECEIVE,
        share: DesiredShare = DesiredShare.DENY_NONE,
    ) -> OpenQueue:
        """Opening a Queue, 3.2.4.1"""
        connection = await self.connection()
        request, what = self._opening(name, access, share), f"cannot open {name}"
        answer = await called(connection, wire.OPEN_QUEUE, request, OPEN_TIMEOUT_S, what=what)
        opened = OpenQueue(str(name), answer.context, connection, access)
        self.open_queues[opened.queue_handle] = opened
        return opened

    def _opening(self, name: FormatName, access: int, share: int) -> wire.OpenQueueIn:
        version = OWN_VERSION
        return wire.OpenQueueIn(
            queue_format_structure(QueueFormat.from_format_name(name)),
            access,
            share,
            self.identity.identifier,
            int(not self.identity.routing_server),
            version.major,
            version.minor,
            version.build,
            1,  # fWorkgroup: nothing here is a member of a domain
        )

    async def close_queue(self, opened: OpenQueue) -> None:
        """Closing a Queue, 3.2.4.13. Reads that wait on the queue end; messages that were not acknowledged go back."""
        if opened.closed:
            return
        opened.closed = True
        self.open_queues.pop(opened.queue_handle, None)
        answer = await called(opened.connection, wire.CLOSE_QUEUE, wire.OneQueue(opened.handle), ANSWER_TIMEOUT_S)
        for read in [each for each in self.pending.values() if each.opened is opened]:
            self.pending.pop(read.request_id, None)
        check(answer.result, f"cannot close {opened.name}")

    async def purge(self, opened: OpenQueue) -> None:
        """Purging a Queue, 3.2.4.7"""
        self._require_open(opened)
        # A large queue takes a long time.
        answer = await called(opened.connection, wire.PURGE_QUEUE, wire.OneQueue(opened.handle), None)
        check(answer.result, f"cannot purge {opened.name}")

    async def create_cursor(self, opened: OpenQueue) -> int:
        """Creating a Cursor, 3.2.4.8"""
        self._require_open(opened)
        request = wire.OneQueue(opened.handle)
        answer = await called(opened.connection, wire.CREATE_CURSOR, request, ANSWER_TIMEOUT_S)
        check(answer.result, f"cannot create a cursor on {opened.name}")
        return answer.cursor

    async def close_cursor(self, opened: OpenQueue, cursor: int) -> None:
        """Closing a Cursor, 3.2.4.12"""
        self._require_open(opened)
        request = wire.CloseCursorIn(opened.handle, cursor)
        answer = await called(opened.connection, wire.CLOSE_CURSOR, request, ANSWER_TIMEOUT_S)
        check(answer.result, f"cannot close the cursor on {opened.name}")

    # Moving and rejecting

    async def move(self, opened: OpenQueue, target: FormatName, lookup_id: int) -> None:
        """Move a Message, 3.2.4.6: between a queue and its subqueues. A subqueue that is not there comes into being."""
        self._require_open(opened)
        connection = opened.connection
        request = self._opening(target, MOVE_ACCESS, DesiredShare.DENY_NONE)
        what = f"cannot open {target} for moves"
        answer = await called(connection, wire.OPEN_QUEUE_FOR_MOVE, request, OPEN_TIMEOUT_S, what=what)
        try:
            move = wire.MoveMessageIn(opened.handle, answer.move_context, lookup_id, wire.NO_TRANSACTION)
            moved = await called(connection, wire.MOVE_MESSAGE, move, ANSWER_TIMEOUT_S)
        finally:
            await quietly(connection, wire.CLOSE_QUEUE, wire.OneQueue(answer.context))
        check(moved.result, f"cannot move a message from {opened.name} to {target}")

    async def reject(self, opened: OpenQueue, lookup_id: int) -> None:
        """Reject a Message, 3.2.4.5. Servers reject only what was received in a transaction."""
        self._require_open(opened)
        request = wire.SetClassIn(opened.handle, lookup_id, MessageClass.NACK_RECEIVE_REJECTED)
        answer = await called(opened.connection, wire.SET_USER_ACKNOWLEDGEMENT_CLASS, request, ANSWER_TIMEOUT_S)
        check(answer.result, f"cannot reject a message of {opened.name}")

    # Reading

    async def peek(
        self, opened: OpenQueue, timeout_ms: int = 0, cursor: int = 0, *, following: bool = False
    ) -> ReceivedMessage:
        """Peek a Message, 3.2.4.3 and 3.2.4.9: the first message, the one at a cursor, or the one `following` it."""
        action = Action.PEEK_NEXT if following else Action.PEEK_CURRENT
        return (await self._read(opened, action, timeout_ms, cursor)).message

    async def receive(self, opened: OpenQueue, timeout_ms: int = 0, cursor: int = 0) -> Received:
        """The first half of Receive a Message, 3.2.4.4.1 and 3.2.4.10.1. The message is locked until `end`."""
        return await self._read(opened, Action.RECEIVE, timeout_ms, cursor)

    async def lookup(self, opened: OpenQueue, action: Action, lookup_id: int, max_body_size: int = WHOLE) -> Received:
        """Reads by lookup id. A received message is locked until `end`. Of a body, `max_body_size` octets come; the
        others are zeroes."""
        if action not in SEEKS:
            raise LocalProtocolError(f"action: must be an action on a lookup id, got {action.name}")
        if not 0 <= lookup_id <= LAST_LOOKUP_ID:
            raise LocalProtocolError(f"lookup_id: must be a lookup id, got {lookup_id}")
        if lookup_id == 0:
            if action not in FIRST_MESSAGES:
                raise LocalProtocolError("lookup_id: must not be 0, which means the place before the first message")
            try:
                return await self._start(opened, FIRST_MESSAGES[action], 0, 0, 0, max_body_size)
            except NoMessage:
                raise MessageNotFound(f"there is no message in {opened.name}") from None
        return await self._start(opened, action, 0, 0, lookup_id, max_body_size)

    async def _read(self, opened: OpenQueue, action: Action, timeout_ms: int, cursor: int) -> Received:
        if action not in CALLS or (action is Action.PEEK_NEXT and not cursor):
            raise LocalProtocolError("a cursor is required for the next message")
        if not 0 <= timeout_ms <= INFINITE_MS:
            raise LocalProtocolError(f"timeout_ms: must be between 0 and {INFINITE_MS}, got {timeout_ms}")
        return await self._start(opened, action, timeout_ms, cursor, 0, WHOLE)

    async def _start(
        self, opened: OpenQueue, action: Action, timeout_ms: int, cursor: int, lookup_id: int, max_body_size: int
    ) -> Received:
        """R_StartReceive. A message that cannot be read goes back, and so does one whose caller has left.

        A read whose caller has left is cancelled, 3.2.4.11, unless it never waits.
        """
        self._require_open(opened)
        request_id = self._request_id()
        read = self.pending[request_id] = PendingRead(opened, request_id)
        receives = action is Action.RECEIVE or (lookup_id != 0 and SEEKS[action][0])
        request = wire.StartReceiveIn(
            opened.handle, lookup_id, cursor, action, timeout_ms, request_id, max_body_size, WHOLE
        )
        waits = receives or timeout_ms != 0  # else nothing is left behind
        settled = asyncio.Event()
        returning: list[asyncio.Future[None]] = []
        kept = False

        def answered_late(answer: wire.StartReceiveOut | None) -> None:
            if receives and answer is not None and not answer.result:
                task = asyncio.ensure_future(self._give_back(read))
                returning.append(task)
                self._giving_back.add(task)
                task.add_done_callback(self._giving_back.discard)
            settled.set()

        try:
            answer = await called(
                opened.connection, wire.START_RECEIVE, request, None, answered_late if waits else None
            )
            if answer.result:
                check(answer.result, f"cannot read {opened.name}")
            packet, trailers = message_in(answer.sections or ())
            known = trailers.aborts, trailers.acknowledgment_class
            message = message_of(packet, answer.sequence_id, answer.arrive_time, *known)
            kept = receives
            return Received(message, read if receives else None)
        except asyncio.CancelledError:
            if waits:
                with suppress(PostroadError, TimeoutError):
                    async with asyncio.timeout(WITHDRAW_TIMEOUT_S):
                        if not settled.is_set():
                            await self._cancel(read)
                            await settled.wait()
                        await asyncio.gather(*returning)
            raise
        except RemoteProtocolError:
            if receives:  # 3.2.4.4.1
                await self._give_back(read)
            raise
        finally:
            if not kept:
                self.pending.pop(request_id, None)

    async def _give_back(self, read: PendingRead) -> None:
        with suppress(PostroadError):
            await self._end(read, Ack.RR_NACK)

    def _request_id(self) -> int:
        """A request id that no pending read of any queue has."""
        while True:
            self._last_request = self._last_request % MAX_REQUEST_ID + 1
            if self._last_request not in self.pending:
                return self._last_request

    async def cancel(self, opened: OpenQueue, request_id: int) -> None:
        """R_CancelReceive. The read ends with OperationCancelled."""
        read = self.pending.get(request_id)
        if read is None or read.opened is not opened:
            raise InvalidHandle(f"there is no waiting read of {opened.name} with the request id {request_id}")
        check(await self._cancel(read), "cannot cancel the read")

    async def _cancel(self, read: PendingRead) -> int:
        request = wire.CancelReceiveIn(read.opened.handle, read.request_id)
        return (await called(read.opened.connection, wire.CANCEL_RECEIVE, request, ANSWER_TIMEOUT_S)).result

    async def end(self, read: PendingRead, ack: Ack) -> None:
        """R_EndReceive. The message is deleted, or returns to its place."""
        if self.pending.pop(read.request_id, None) is not read:
            raise InvalidHandle("there is no received message to acknowledge")
        check(await self._end(read, ack), "cannot acknowledge the message")

    async def _end(self, read: PendingRead, ack: Ack) -> int:
        opened = read.opened
        self._require_open(opened)
        request = wire.EndReceiveIn(opened.handle, ack, read.request_id)
        return (await called(opened.connection, wire.END_RECEIVE, request, None)).result

    async def receive_next(self, opened: OpenQueue, read: PendingRead, timeout_ms: int = 0) -> Received:
        """Acknowledges a message, and receives the next one: two calls that leave together.

        If there is no next message, the acknowledgment stands. If the acknowledgment fails, the next message goes back.
        """
        ended = self.end_later(read)
        try:
            received = await self.receive(opened, timeout_ms)
        finally:
            await ended  # an error in it counts more
        return received

    def end_later(self, read: PendingRead) -> asyncio.Future[None]:
        """Acknowledges a message with a call that leaves with the next one."""
        if self.pending.pop(read.request_id, None) is not read:
            raise InvalidHandle("there is no received message to acknowledge")
        opened = read.opened
        self._require_open(opened)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(answer: wire.Result | None) -> None:
            if ended.done():
                return  # nobody waits any longer
            if answer is None:
                ended.set_exception(RpcUnavailable(f"{opened.name}: the server did not answer an acknowledgment"))
            elif answer.result:
                ended.set_exception(error_of(answer.result, "cannot acknowledge the message"))
            else:
                ended.set_result(None)

        opened.connection.send(wire.END_RECEIVE, wire.EndReceiveIn(opened.handle, Ack.RR_ACK, read.request_id), done)
        return ended

    def _require_open(self, opened: OpenQueue) -> None:
        if opened.closed:
            raise InvalidHandle(f"{opened.name} is closed, or its connection is lost; open it again")
