"""A reader of queues on another computer: what is the same by both protocols. mqqp_client.py reads by [MS-MQQP],
mqrr_client.py by [MS-MQRR]. Applications use client/remote.py.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    InvalidHandle,
    LocalProtocolError,
    MessageNotFound,
    NoMessage,
    PostroadError,
    RemoteProtocolError,
    RpcFault,
    RpcUnavailable,
    Status,
    rebuild_error,
)
from postroad.names import FormatName
from postroad.remote_read.values import (
    CALLS,
    INFINITE_MS,
    LAST_LOOKUP_ID,
    SEEKS,
    Ack,
    Action,
    DesiredAccess,
    DesiredShare,
    Version,
    is_failure,
)
from postroad.rpc.client import RpcClient
from postroad.rpc.interface import Interface, Operation
from postroad.store.interface import PRIORITY_SHIFT

In = TypeVar("In")
Out = TypeVar("Out")
Connect = Callable[[Interface, int | None], Awaitable[RpcClient]]

OPEN_TIMEOUT_S = 300.0  # [MS-MQQP] 3.2.4.1: an open that takes longer is abandoned
ANSWER_TIMEOUT_S = 60.0  # for methods that never wait; if the connection is lost, they end sooner
WITHDRAW_TIMEOUT_S = 10.0  # how long a cancelled read may take to come back
WHOLE = 0xFFFFFFFF  # a body of any size
MAX_REQUEST_ID = 0xFFFFFFFF
# The places before the first message, which has the lookup id 0.
FROM_THE_START = frozenset({Action.LOOKUP_PEEK_NEXT, Action.LOOKUP_RECEIVE_NEXT})


@dataclass(frozen=True, slots=True)
class Identity:
    """The queue manager that reads the queues."""

    identifier: UUID
    routing_server: bool = False
    directory_server: bool = False


@dataclass(slots=True, eq=False)
class OpenQueue:
    """A queue that is open on the server."""

    name: str
    queue_handle: int
    access: DesiredAccess
    closed: bool = field(default=False, kw_only=True)


Opened = TypeVar("Opened", bound=OpenQueue)


@dataclass(slots=True, eq=False)
class PendingRead(Generic[Opened]):
    """A read from its call until its end."""

    opened: Opened
    request_id: int
    receives: bool
    locked: bool = field(default=False, kw_only=True)  # it has a message that only its end settles


Read = TypeVar("Read", bound=PendingRead[Any])


# A read that is ready to be asked: itself, its operation and request, and what takes the message from the answer. The
# latter marks the read as `locked` if it has to be ended.
Asked = tuple[Read, Operation[Any, Any], Any, Callable[[Any], ReceivedMessage]]


@dataclass(slots=True)
class Received:
    """A message that is locked at its queue manager until `end`. A peeked message has no entry."""

    message: ReceivedMessage
    entry: Any = None


class ReadClient(ABC, Generic[Opened, Read]):
    """Reads queues of one server. `connect` opens a connection with an interface bound: to the given port or, for None,
    to the first port that offers the interface.

    One connection serves any number of queues and reads, and all handles belong to it.
    """

    def __init__(self, connect: Connect, identity: Identity, version: Version) -> None:
        self.identity = identity
        self.version = version  # of the server
        self.pending: dict[int, Read] = {}
        self.open_queues: dict[int, Opened] = {}
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
                self._connection = await self._bind()
            return self._connection

    @abstractmethod
    async def _bind(self) -> RpcClient: ...

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

    def _call(
        self,
        operation: Operation[In, Out],
        request: In,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Coroutine[Any, Any, Out]:
        """Makes a call on the connection that the handles belong to."""
        return called(self._open_connection(), operation, request, timeout)

    def _open_connection(self) -> RpcClient:
        connection = self._connection
        if connection is None or connection.closed:
            raise RpcUnavailable("the connection of the queue is lost; open the queue again")
        return connection

    # Queues

    @abstractmethod
    async def open(
        self,
        name: FormatName,
        access: DesiredAccess = DesiredAccess.RECEIVE,
        share: DesiredShare = DesiredShare.DENY_NONE,
    ) -> Opened: ...

    async def close_queue(self, opened: Opened) -> None:
        """Closing a Queue. Reads that wait on the queue end; messages that were not acknowledged go back."""
        if opened.closed:
            return
        opened.closed = True
        self.open_queues.pop(opened.queue_handle, None)
        status = await self._close_queue(opened)
        for read in [each for each in self.pending.values() if each.opened is opened]:
            self.pending.pop(read.request_id, None)
        check(status, f"cannot close {opened.name}")

    @abstractmethod
    async def _close_queue(self, opened: Opened) -> int: ...

    @abstractmethod
    async def purge(self, opened: Opened) -> None: ...

    @abstractmethod
    async def create_cursor(self, opened: Opened) -> int: ...

    @abstractmethod
    async def close_cursor(self, opened: Opened, cursor: int) -> None: ...

    def _require_open(self, opened: Opened) -> None:
        if opened.closed:
            raise InvalidHandle(f"{opened.name} is closed, or its connection is lost; open it again")

    # Reading

    async def peek(
        self, opened: Opened, timeout_ms: int = 0, cursor: int = 0, *, following: bool = False
    ) -> ReceivedMessage:
        """Peeks the first message, the one at a cursor, or the one `following` it."""
        action = Action.PEEK_NEXT if following else Action.PEEK_CURRENT
        return (await self._read(opened, action, timeout_ms, cursor)).message

    async def receive(self, opened: Opened, timeout_ms: int = 0, cursor: int = 0) -> Received:
        """The first half of receiving a message. The message is locked until `end`."""
        return await self._read(opened, Action.RECEIVE, timeout_ms, cursor)

    def _read(self, opened: Opened, action: Action, timeout_ms: int, cursor: int) -> Coroutine[Any, Any, Received]:
        if action not in CALLS or (action is Action.PEEK_NEXT and not cursor):
            raise LocalProtocolError("a cursor is required for the next message")
        if not 0 <= timeout_ms <= INFINITE_MS:
            raise LocalProtocolError(f"timeout_ms: must be between 0 and {INFINITE_MS}, got {timeout_ms}")
        self._require_open(opened)
        asked = self._asked(opened, action, timeout_ms, cursor)
        return self._answer(asked, waits=asked[0].receives or timeout_ms != 0)

    async def receive_all(self, opened: Opened, count: int) -> list[Received | PostroadError]:
        """Several receives that do not wait, in one round trip. Where there is no message, its error stands."""
        self._require_open(opened)
        return await self._answers([self._asked(opened, Action.RECEIVE, 0, 0) for _ in range(count)])

    @abstractmethod
    def _asked(self, opened: Opened, action: Action, timeout_ms: int, cursor: int) -> Asked[Read]: ...

    async def lookup(self, opened: Opened, action: Action, lookup_id: int, max_body_size: int = WHOLE) -> Received:
        """Reads by lookup id. A received message is locked until `end`. Of a body, `max_body_size` octets come, and
        zeroes for the others, if the protocol can cut it; else the whole body."""
        asked = self._asked_lookup(opened, action, lookup_id, max_body_size)
        try:
            return await self._answer(asked, waits=asked[0].receives)
        except NoMessage:
            raise MessageNotFound(f"there is no message in {opened.name}") from None

    async def lookup_all(
        self, opened: Opened, action: Action, lookup_ids: Sequence[int], max_body_size: int = WHOLE
    ) -> list[Received | PostroadError]:
        """`lookup` of several messages in one round trip. In the place of a failed one stands its error."""
        return await self._answers([self._asked_lookup(opened, action, each, max_body_size) for each in lookup_ids])

    def _asked_lookup(self, opened: Opened, action: Action, lookup_id: int, max_body_size: int) -> Asked[Read]:
        if action not in SEEKS:
            raise LocalProtocolError(f"action: must be an action on a lookup id, got {action.name}")
        if lookup_id == 0 and action not in FROM_THE_START:
            raise LocalProtocolError("lookup_id: must not be 0, which means the place before the first message")
        if not 0 <= lookup_id <= LAST_LOOKUP_ID:
            raise LocalProtocolError(f"lookup_id: must be a lookup id, got {lookup_id}")
        self._require_open(opened)
        return self._asked_for(opened, action, lookup_id, max_body_size)

    @abstractmethod
    def _asked_for(self, opened: Opened, action: Action, lookup_id: int, max_body_size: int) -> Asked[Read]: ...

    def _request_id(self) -> int:
        """A request id that no pending read of any queue has."""
        while True:
            self._last_request = self._last_request % MAX_REQUEST_ID + 1
            if self._last_request not in self.pending:
                return self._last_request

    async def _answer(self, asked: Asked[Read], *, waits: bool) -> Received:
        """Makes the call of a read.

        A message that cannot be read goes back, and so does one whose caller has left. A read whose caller has left is
        cancelled if it `waits`; else it is orphaned, and the server has nothing to remember of it.
        """
        read, operation, request, message_in = asked
        late: asyncio.Future[Any] | None = None  # the answer, if the caller leaves before it comes
        self.pending[read.request_id] = read

        def answered_late(answer: Any) -> None:
            nonlocal late
            late = late or asyncio.get_running_loop().create_future()
            if not late.done():
                late.set_result(answer)
            elif answer is not None:  # the caller has left
                self._return_later(read, answer, message_in)

        try:
            answer = await self._open_connection().call(operation, request, None, answered_late if waits else None)
            message = message_in(answer)
            return Received(message, read if read.locked else None)
        except RpcFault as fault:
            raise error_of_fault(fault, operation.name) from None
        except asyncio.CancelledError:
            if waits:
                late = late or asyncio.get_running_loop().create_future()
                await self._withdraw(read, late, message_in)
            raise
        except RemoteProtocolError:
            await self._put_back(read)
            raise
        finally:
            if not read.locked:
                self.pending.pop(read.request_id, None)

    async def _answers(self, asked: Sequence[Asked[Read]]) -> list[Received | PostroadError]:
        """Makes the calls of several reads that never wait. If the caller leaves, what was received goes back."""
        calls = [(operation, request) for _, operation, request, _ in asked]
        for read, *_ in asked:
            self.pending[read.request_id] = read
        answering = asyncio.ensure_future(self._open_connection().call_all(calls))
        try:
            answers = await asyncio.shield(answering)
        except asyncio.CancelledError:
            answering.add_done_callback(partial(self._answered_nobody, asked))
            with suppress(PostroadError, TimeoutError):
                async with asyncio.timeout(WITHDRAW_TIMEOUT_S):
                    await asyncio.shield(answering)
                    await asyncio.gather(*self._giving_back)
            raise
        found: list[Received | PostroadError] = []
        for (read, operation, _, message_in), answer in zip(asked, answers, strict=True):
            try:
                if isinstance(answer, PostroadError):
                    raise error_of_fault(answer, operation.name) if isinstance(answer, RpcFault) else answer
                message = message_in(answer)
                found.append(Received(message, read if read.locked else None))
            except PostroadError as error:
                await self._put_back(read)
                found.append(error)
            if not read.locked:
                self.pending.pop(read.request_id, None)
        return found

    def _answered_nobody(self, asked: Sequence[Asked[Read]], answering: asyncio.Future[list[Any]]) -> None:
        answers = [] if answering.cancelled() or answering.exception() is not None else answering.result()
        for (read, _, _, message_in), answer in zip(asked, answers, strict=False):
            self.pending.pop(read.request_id, None)
            if read.receives and not isinstance(answer, PostroadError):
                self._return_later(read, answer, message_in)

    def _return_later(self, read: Read, answer: Out, message_in: Callable[[Out], ReceivedMessage]) -> None:
        task = asyncio.ensure_future(self._give_back(read, answer, message_in))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _withdraw(
        self, read: Read, late: asyncio.Future[Out | None], message_in: Callable[[Out], ReceivedMessage]
    ) -> None:
        """Cancels a read. If a message was received in that moment, it goes back."""
        with suppress(PostroadError, TimeoutError):
            async with asyncio.timeout(WITHDRAW_TIMEOUT_S):
                if not late.done() and await self._cancel(read) != Status.OK and not read.receives:
                    return  # some servers cancel no peeks: this one ends with its queue
                answer = await late  # a read that is no longer pending has been answered
                if answer is not None:
                    await self._give_back(read, answer, message_in)

    async def _give_back(self, read: Read, answer: Out, message_in: Callable[[Out], ReceivedMessage]) -> None:
        with suppress(PostroadError):
            message_in(answer)
        await self._put_back(read)

    async def _put_back(self, read: Read) -> None:
        if read.locked:
            read.locked = False
            with suppress(PostroadError):
                await self._end(read, Ack.RR_NACK)
            self.pending.pop(read.request_id, None)

    async def cancel(self, opened: Opened, request_id: int) -> None:
        """Cancels a waiting read, which then fails."""
        read = self.pending.get(request_id)
        if read is None or read.opened is not opened:
            raise InvalidHandle(f"there is no waiting read of {opened.name} with the request id {request_id}")
        check(await self._cancel(read), "cannot cancel the read")

    @abstractmethod
    async def _cancel(self, read: Read) -> int: ...

    async def end(self, read: Read, ack: Ack) -> None:
        """The second half of receiving a message. The message is deleted, or returns to its place."""
        self._ending(read)
        try:
            answer = await self._end(read, ack)
        finally:
            self.pending.pop(read.request_id, None)
        if answer.result:
            check(answer.result, "cannot acknowledge the message")

    async def end_all(self, reads: Sequence[Read], ack: Ack) -> list[PostroadError | None]:
        """`end` of several messages in one round trip. None stands for one that has ended, else its error."""
        for read in reads:
            self._ending(read)
        try:
            answers = await self._open_connection().call_all([self._ended(read, ack) for read in reads])
        finally:
            for read in reads:
                self.pending.pop(read.request_id, None)
        found: list[PostroadError | None] = []
        for answer in answers:
            if isinstance(answer, PostroadError):
                found.append(error_of_fault(answer, "end") if isinstance(answer, RpcFault) else answer)
            else:
                found.append(error_of(answer.result, "cannot acknowledge the message") if answer.result else None)
        return found

    def _ending(self, read: Read) -> None:
        if not read.locked or self.pending.get(read.request_id) is not read:
            raise InvalidHandle("there is no received message to acknowledge")
        read.locked = False

    def _end(self, read: Read, ack: Ack) -> Coroutine[Any, Any, Any]:
        return self._call(*self._ended(read, ack), None)

    @abstractmethod
    def _ended(self, read: Read, ack: Ack) -> tuple[Operation[Any, Any], Any]:
        """The call that ends a read. Its answer has a `result`."""


async def called(
    connection: RpcClient,
    operation: Operation[In, Out],
    request: In,
    timeout: float | None,
    what: str = "",
) -> Out:
    """Makes a call. `what` says what failed, where the method raises its HRESULT."""
    try:
        return await connection.call(operation, request, timeout)
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
