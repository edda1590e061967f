"""The queues of any MSMQ server as a backend: the verbs that read, by MS-MQRR, or by MS-MQQP if that is all it has.

Verbs that the protocols do not have raise LocalProtocolError.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any, NoReturn, TypeVar
from uuid import UUID, uuid4

from postroad.client.payloads import as_name, check_timeout
from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    BindRefused,
    InterfaceNotOffered,
    InvalidArgument,
    InvalidHandle,
    LocalProtocolError,
    MessageAlreadyReceived,
    MessageNotFound,
    NoMessage,
    PostroadError,
    QueueNotAvailable,
    RpcUnavailable,
    TransactionSequence,
)
from postroad.names import FormatName, QueueFormat, parse_format_name
from postroad.net import ports
from postroad.remote_read.client import (
    ANSWER_TIMEOUT_S,
    WHOLE,
    Identity,
    In,
    Out,
    ReadClient,
    Received,
    check,
)
from postroad.remote_read.mqqp_client import RemoteReadClient
from postroad.remote_read.mqrr_client import MqrrClient
from postroad.remote_read.qmcomm import queue_format_structure
from postroad.remote_read.qmmgmt import (
    ACTION,
    GET_INFO,
    MACHINE,
    QMMGMT,
    ActionIn,
    GetInfoOut,
    MachineProperty,
    MgmtObject,
    MgmtObjectType,
    QueueProperty,
    get_info_of,
    python_value,
)
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.remote_read.structures import Result
from postroad.remote_read.values import (
    INFINITE_MS,
    LAST_LOOKUP_ID,
    Ack,
    Action,
    DesiredAccess,
    DesiredShare,
)
from postroad.reports.operations import QueueAccess, ReadCall, RemoteProtocol, SeekAction, ShareMode
from postroad.rpc.client import RpcClient, connect
from postroad.rpc.epm import resolve
from postroad.rpc.gss import initiator, kerberos_initiator
from postroad.rpc.interface import Interface, Operation
from postroad.rpc.ndr import Format
from postroad.rpc.security import SecurityContext

T = TypeVar("T")

log = logging.getLogger(__name__)

LAYOUTS = (Format.NDR, Format.NDR64)
# What a person can do if the first contact fails.
WHICH_PORT = f"HOST[:PORT] is the port of qmcomm, usually {ports.RPC_HANDSHAKE}"
NO_USERS = (
    "a Postroad server accepts only users that [[user]] in its configuration names: add this one there, or give no user"
)
MAPPER_TIMEOUT_S = 5.0
NO_KERBEROS = (
    "a Postroad server accepts tickets only with the keytab of its services (rpc.keytab), and of people whom it knows"
)
SEARCH_AGAIN_S = 0.5  # between two searches for a correlation id
PIPELINE = 16  # receives in one round trip: what one step may lock in vain
WINDOW = 64  # reads by lookup id in one round trip
LANES = 2  # windows at a time
SMALL_BODY = 4096  # octets. To cut off a smaller body costs more than to send it
# (what to look for, whether to take it) -> the action, and the lookup id to use instead of the caller's, if any
_ACTIONS: dict[tuple[SeekAction, bool], tuple[Action, int | None]] = {
    (SeekAction.CURRENT, False): (Action.LOOKUP_PEEK_CURRENT, None),
    (SeekAction.NEXT, False): (Action.LOOKUP_PEEK_NEXT, None),
    (SeekAction.PREVIOUS, False): (Action.LOOKUP_PEEK_PREV, None),
    (SeekAction.FIRST, False): (Action.LOOKUP_PEEK_NEXT, 0),
    (SeekAction.LAST, False): (Action.LOOKUP_PEEK_PREV, LAST_LOOKUP_ID),
    (SeekAction.CURRENT, True): (Action.LOOKUP_RECEIVE_CURRENT, None),
    (SeekAction.NEXT, True): (Action.LOOKUP_RECEIVE_NEXT, None),
    (SeekAction.PREVIOUS, True): (Action.LOOKUP_RECEIVE_PREV, None),
    (SeekAction.FIRST, True): (Action.LOOKUP_RECEIVE_NEXT, 0),
    (SeekAction.LAST, True): (Action.LOOKUP_RECEIVE_PREV, LAST_LOOKUP_ID),
}
_ACCESS = {QueueAccess.RECEIVE: DesiredAccess.RECEIVE, QueueAccess.PEEK: DesiredAccess.PEEK}
_SHARE = {ShareMode.DENY_NONE: DesiredShare.DENY_NONE, ShareMode.DENY_RECEIVE: DesiredShare.DENY_RECEIVE}


def _cannot(what: str) -> Any:
    """Makes a verb that the protocol does not have. Calling it raises LocalProtocolError."""

    def refuse(self: RemoteBackend, *arguments: object, **options: object) -> NoReturn:
        raise LocalProtocolError(f"remote readers read and purge; they cannot {what}")

    return refuse


class RemoteBackend:
    """Implements the reading verbs of `Backend`. Queues stay open between reads, until `close` or the end of the
    connection."""

    def __init__(
        self,
        host: str,
        port: int = ports.RPC_HANDSHAKE,
        *,
        endpoint_mapper: int | None = None,
        user: str | None = None,
        password: str | None = None,
        kerberos: bool = False,
        layouts: tuple[Format, ...] = LAYOUTS,
        protocol: str = RemoteProtocol.AUTO,
    ) -> None:
        if protocol not in list(RemoteProtocol):
            raise InvalidArgument(f"protocol: must be one of {', '.join(RemoteProtocol)}, got {protocol!r}")
        self.host = host
        self.protocol = RemoteProtocol(protocol)
        self._port = port
        self._mapper_port = endpoint_mapper
        self._user = user
        self._password = password
        self._kerberos = kerberos
        if kerberos and user is not None:
            raise InvalidArgument("kerberos: must not be set together with user")
        self._layouts = layouts
        identity = Identity(uuid4())
        self._mqqp = RemoteReadClient(self._connect, identity, ask_port=endpoint_mapper is None)
        self._mqrr = MqrrClient(self._connect, identity)
        self.client: ReadClient[Any, Any] = self._mqqp if protocol == RemoteProtocol.MQQP else self._mqrr
        self._opened: dict[tuple[FormatName, DesiredAccess], Any] = {}
        self._opening = asyncio.Lock()
        self._handles: dict[int, Any] = {}
        self._locked: dict[tuple[FormatName, int], Received] = {}
        self._names: dict[str, FormatName] = {}  # parsed names, because a reader uses the same name in every call

    async def _security(self) -> SecurityContext | None:
        """How the client authenticates on one connection. A domain controller may be asked for a ticket."""
        if self._kerberos:
            return await asyncio.to_thread(kerberos_initiator, self.host)
        return None if self._user is None else initiator(self._user, self._password, host=self.host)

    async def _connect(self, interface: Interface, port: int | None) -> RpcClient:
        security = await self._security()
        first = port is None and self._mapper_port is None
        if port is None and self._mapper_port is not None:
            port = await resolve(self.host, interface, port=self._mapper_port)
        try:
            return await connect(self.host, port or self._port, interface, security=security, layouts=self._layouts)
        except InterfaceNotOffered as fault:
            if interface not in (REMOTE_READ, QMMGMT) or not first or self._port != ports.RPC_HANDSHAKE:
                raise
            try:  # a standard server: its endpoint mapper knows where the interface is, if it has it
                port = await resolve(self.host, interface, timeout=MAPPER_TIMEOUT_S)
            except RpcUnavailable as no_mapper:
                raise InterfaceNotOffered(f"{fault}; {no_mapper}") from None
            return await connect(self.host, port, interface, security=await self._security(), layouts=self._layouts)
        except BindRefused as fault:
            if self._kerberos:
                raise BindRefused(f"{fault}; {NO_KERBEROS}") from None
            if self._user is None:
                raise
            raise BindRefused(f"{fault}; {NO_USERS}") from None
        except RpcUnavailable as fault:
            if not first:
                raise
            raise RpcUnavailable(f"{fault}; {WHICH_PORT}") from None

    async def _open_queue(
        self, name: FormatName, access: DesiredAccess, share: DesiredShare = DesiredShare.DENY_NONE
    ) -> Any:
        """Opens a queue. With the first one, `auto` decides for a protocol ([MS-MQRR] 3.2.4.1)."""
        try:
            return await self.client.open(name, access, share)
        except InterfaceNotOffered as reason:
            if self.protocol is not RemoteProtocol.AUTO or self.client is self._mqqp:
                raise
            log.debug("reading by MS-MQQP", extra={"host": self.host, "reason": str(reason)})
        opened = await self._mqqp.open(name, access, share)
        self.client = self._mqqp
        return opened

    async def close(self) -> None:
        await self.client.close()
        self._opened.clear()
        self._handles.clear()
        self._locked.clear()

    # Queues that stay open

    def _name(self, name: str) -> FormatName:
        """The format name for a name. A path without a computer is a path on this host."""
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = self._parsed(name)
        return found

    def _parsed(self, name: str) -> FormatName:
        parsed = as_name(name)
        if isinstance(parsed, FormatName):
            return parsed
        kind = "OS"
        if parsed.is_local:
            parsed = parsed.on(self.host)
            kind = "TCP" if _is_address(self.host) else "OS"
        return parse_format_name(f"DIRECT={kind}:{parsed}")

    @asynccontextmanager
    async def _open(self, name: FormatName, access: DesiredAccess) -> AsyncIterator[Any]:
        """Opens a queue, or uses it if it is open. Forgets it if it turns out to be closed."""
        async with self._opening:
            opened = self._opened.get((name, access))
            if opened is None or opened.closed or not self.client.connected:
                opened = self._opened[name, access] = await self._open_queue(name, access)
        try:
            yield opened
        except (InvalidHandle, QueueNotAvailable, RpcUnavailable):
            if self._opened.get((name, access)) is opened:
                del self._opened[name, access]
            raise
        except NoMessage:
            raise NoMessage(str(name)) from None

    async def purge_queue(self, name: str) -> int:
        """Purges a queue. Returns 0, because the protocol does not tell how many messages there were."""
        async with self._open(self._name(name), DesiredAccess.RECEIVE) as opened:
            await self.client.purge(opened)
        return 0

    # Reading

    async def receive(
        self, name: str, count: int, timeout: float | None, transaction: UUID | None
    ) -> list[ReceivedMessage]:
        _refuse_transaction(transaction)
        messages = await self.lock(name, count, timeout)
        await self.settle(name, [message.lookup_id for message in messages], True)
        return messages

    async def lock(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        parsed, wait_ms = self._name(name), _milliseconds(timeout)
        _check_count(count)
        taken: list[Received] = []
        try:
            async with self._open(parsed, DesiredAccess.RECEIVE) as opened:
                taken.append(await self.client.receive(opened, wait_ms))
                while len(taken) < count:
                    step = min(count - len(taken), 1 if self.client.version.is_old else PIPELINE)
                    if await self._receive_together(opened, step, taken) < step:
                        break
        except BaseException:
            await self._return(taken)
            raise
        return [self._hold(parsed, each).message for each in taken]

    async def _receive_together(self, opened: Any, count: int, taken: list[Received]) -> int:
        """Makes several receives that do not wait, in one round trip. Returns how many found a message.

        Whatever happens, the received messages are added to `taken`, in the queue's order, so that none stays locked.
        """
        answers = await self.client.receive_all(opened, count)
        found = [each for each in answers if isinstance(each, Received)]
        taken += sorted(found, key=lambda each: each.message.lookup_id)
        for fault in answers:
            if isinstance(fault, PostroadError) and not isinstance(fault, NoMessage):
                raise fault
        return len(found)

    def _hold(self, name: FormatName, received: Received) -> Received:
        message = received.message
        if not message.lookup_id and received.entry is not None:
            # an old server gives no lookup id, so use any number that is unique here
            message.lookup_id = -received.entry.request_id
        self._locked[name, message.lookup_id] = received
        return received

    async def _return(self, taken: Sequence[Received]) -> None:
        for received in taken:
            if received.entry is not None:
                try:
                    await self.client.end(received.entry, Ack.RR_NACK)
                except PostroadError:
                    return  # the connection is gone, and its locks with it

    async def settle(self, name: str, lookup_ids: Sequence[int], delete: bool) -> None:
        parsed = self._name(name)
        keys = [(parsed, lookup_id) for lookup_id in dict.fromkeys(lookup_ids)]
        for key in keys:
            if key not in self._locked:
                raise TransactionSequence(f"message {key[1]} of {name} is not being received")
        entries = [self._locked.pop(key).entry for key in keys]
        ack = Ack.RR_ACK if delete else Ack.RR_NACK
        for fault in await self.client.end_all([entry for entry in entries if entry is not None], ack):
            if fault is not None:
                raise fault

    async def fetch(
        self, name: str, count: int, timeout: float | None, acknowledged: Sequence[int]
    ) -> list[ReceivedMessage]:
        if not acknowledged:
            return await self.lock(name, count, timeout)
        if self.client is not self._mqrr:
            await self.settle(name, acknowledged, True)
            return await self.lock(name, count, timeout)
        # By MS-MQRR both leave together.
        settling = asyncio.ensure_future(self.settle(name, acknowledged, True))
        locking = asyncio.ensure_future(self.lock(name, count, timeout))
        try:
            await asyncio.wait((settling, locking), return_when=asyncio.FIRST_EXCEPTION)
            if not settling.done():
                await asyncio.wait((settling,))  # there is no message
            settling.result()
        except BaseException:
            settling.cancel()
            locking.cancel()
            await asyncio.wait((settling, locking))
            if not locking.cancelled() and locking.exception() is None:
                await self.settle(name, [each.lookup_id for each in locking.result()], False)
            raise
        return locking.result()

    async def peek(self, name: str, count: int, timeout: float | None) -> list[ReceivedMessage]:
        parsed, wait_ms = self._name(name), _milliseconds(timeout)
        _check_count(count)
        async with self._open(parsed, DesiredAccess.PEEK) as opened:
            if count == 1:
                return [await self.client.peek(opened, wait_ms)]
            cursor = await self.client.create_cursor(opened)
            try:
                found = [await self.client.peek(opened, wait_ms, cursor)]
                while len(found) < count:
                    try:
                        found.append(await self.client.peek(opened, 0, cursor, following=True))
                    except (NoMessage, MessageNotFound):
                        break
                return found
            finally:
                if not opened.closed and self.client.connected:
                    await self.client.close_cursor(opened, cursor)

    async def page(self, name: str, after: int, limit: int, *, bodies: bool = True) -> list[ReceivedMessage]:
        """Without `bodies`, a server that can leave large ones out does; the rest of such a body is zeroes."""
        parsed, max_body_size = self._name(name), WHOLE if bodies else SMALL_BODY
        _check_count(limit)
        found: list[ReceivedMessage] = []
        async with self._open(parsed, DesiredAccess.PEEK) as opened:
            position = max(after, 0)
            while len(found) < limit:
                try:
                    position, message = await self._next_after(opened, position, max_body_size)
                except MessageNotFound:
                    break
                found.append(message)
        return found

    async def _next_after(self, opened: Any, position: int, size: int) -> tuple[int, ReceivedMessage]:
        """The message after a lookup id. If the message with that id is gone, this walks there from the first
        message."""
        try:
            message = (await self.client.lookup(opened, Action.LOOKUP_PEEK_NEXT, position, size)).message
        except MessageNotFound:
            last = (await self.client.lookup(opened, Action.LOOKUP_PEEK_PREV, LAST_LOOKUP_ID, size)).message
            if last.lookup_id <= position:
                raise
            message = last
            walked = 0
            while walked <= position:
                message = (await self.client.lookup(opened, Action.LOOKUP_PEEK_NEXT, walked, size)).message
                walked = message.lookup_id
        return message.lookup_id, message

    async def lookup(
        self, name: str, lookup_id: int, action: SeekAction, receive: bool, transaction: UUID | None
    ) -> ReceivedMessage:
        _refuse_transaction(transaction)
        asked, instead = _ACTIONS[action, receive]
        access = DesiredAccess.RECEIVE if receive else DesiredAccess.PEEK
        async with self._open(self._name(name), access) as opened:
            received = await self.client.lookup(opened, asked, lookup_id if instead is None else instead)
            if received.entry is not None:
                await self.client.end(received.entry, Ack.RR_ACK)
        return received.message

    async def receive_correlated(
        self, name: str, correlation_id: str, timeout: float | None, transaction: UUID | None
    ) -> ReceivedMessage:
        """Looks through the whole queue again and again, because the protocol cannot search."""
        _refuse_transaction(transaction)
        parsed, loop = self._name(name), asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + _milliseconds(timeout) / 1000
        while True:
            after = -1
            while page := await self.page(name, after, 1):
                after = page[0].lookup_id
                if page[0].correlation_id == correlation_id:
                    with suppress(MessageNotFound, MessageAlreadyReceived):  # another reader was faster
                        return await self.lookup(name, after, SeekAction.CURRENT, True, None)
            if loop.time() >= deadline:
                raise NoMessage(str(parsed))
            await asyncio.sleep(min(SEARCH_AGAIN_S, max(0.0, deadline - loop.time())))

    # Several messages at a time, by their lookup ids

    async def look_all(
        self, name: str, lookup_ids: Sequence[int], *, bodies: bool = True
    ) -> list[ReceivedMessage | PostroadError]:
        """The messages with these lookup ids, or the error in the place of each that cannot be had. Without `bodies`, a
        server that can leave large ones out does."""

        async def look(opened: Any, some: Sequence[int]) -> list[Received | PostroadError]:
            size = WHOLE if bodies else SMALL_BODY
            return await self.client.lookup_all(opened, Action.LOOKUP_PEEK_CURRENT, some, size)

        answers = await self._in_lanes(self._name(name), DesiredAccess.PEEK, lookup_ids, look)
        return [each.message if isinstance(each, Received) else each for each in answers]

    async def receive_all_if(
        self, name: str, lookup_ids: Sequence[int], wanted: Callable[[ReceivedMessage], bool]
    ) -> list[bool | PostroadError]:
        """Takes those of the messages with these lookup ids that `wanted` accepts by their headers. The others stay in
        their places. The errors of single messages stand in their places."""

        async def take(opened: Any, some: Sequence[int]) -> list[bool | PostroadError]:
            asked = await self.client.lookup_all(opened, Action.LOOKUP_RECEIVE_CURRENT, some, SMALL_BODY)
            found: list[bool | PostroadError] = [
                wanted(each.message) if isinstance(each, Received) else each for each in asked
            ]
            for ack, verdict in ((Ack.RR_ACK, True), (Ack.RR_NACK, False)):
                places = [n for n, each in enumerate(found) if each is verdict]
                entries = [each.entry for each in map(asked.__getitem__, places) if isinstance(each, Received)]
                ends = await self.client.end_all(entries, ack) if entries else ()
                for place, fault in zip(places, ends, strict=True):
                    found[place] = fault or found[place]
            return found

        return await self._in_lanes(self._name(name), DesiredAccess.RECEIVE, lookup_ids, take)

    async def _in_lanes(
        self,
        name: FormatName,
        access: DesiredAccess,
        lookup_ids: Sequence[int],
        work: Callable[[Any, Sequence[int]], Awaitable[list[T | PostroadError]]],
    ) -> list[T | PostroadError]:
        """Does the work for one window of messages after the other. Several windows are on their way at a time: the
        server works on one of them while this side works on another."""
        windows = [lookup_ids[place : place + WINDOW] for place in range(0, len(lookup_ids), WINDOW)]
        answers: dict[int, list[T | PostroadError]] = {}

        async def lane(opened: Any) -> None:
            while len(answers) < len(windows):
                place = len(answers)
                answers[place] = []
                try:
                    answers[place] = await work(opened, windows[place])
                except PostroadError as fault:  # what other windows did stands
                    answers[place] = [fault] * len(windows[place])

        async with self._open(name, access) as opened:
            await asyncio.gather(*(lane(opened) for _ in range(LANES)))
            found = [each for place in range(len(windows)) for each in answers[place]]
            if any(isinstance(each, InvalidHandle | QueueNotAvailable | RpcUnavailable) for each in found):
                self._opened.pop((name, access), None)  # the next one opens the queue again
        return found

    # Handles and cursors

    async def open_queue(self, name: str, access: QueueAccess, share: ShareMode) -> int:
        opened = await self._open_queue(self._name(name), _ACCESS[access], _SHARE[share])
        self._handles[opened.queue_handle] = opened
        return int(opened.queue_handle)

    def _handle(self, handle: int) -> Any:
        try:
            return self._handles[handle]
        except KeyError:
            raise InvalidHandle(f"there is no open queue {handle}") from None

    async def close_queue(self, handle: int) -> None:
        await self.client.close_queue(self._handle(handle))
        del self._handles[handle]

    async def open_cursor(self, handle: int) -> int:
        return await self.client.create_cursor(self._handle(handle))

    async def close_cursor(self, handle: int, cursor: int) -> None:
        await self.client.close_cursor(self._handle(handle), cursor)

    async def read_cursor(self, handle: int, cursor: int, call: ReadCall, timeout: float | None) -> ReceivedMessage:
        opened, wait_ms = self._handle(handle), _milliseconds(timeout)
        try:
            if call is ReadCall.RECEIVE:
                received = await self.client.receive(opened, wait_ms, cursor)
                assert received.entry is not None
                await self.client.end(received.entry, Ack.RR_ACK)
                return received.message
            return await self.client.peek(opened, wait_ms, cursor, following=call is ReadCall.PEEK_NEXT)
        except (NoMessage, MessageNotFound):  # the latter is the specification's error for a time-out of this call
            raise NoMessage(opened.name) from None

    # Management, [MS-MQMR]

    async def managed(self, queue: str | None) -> dict[str, Any]:
        """All properties of the queue manager, or of one of its queues, by their names in the specification."""
        kind: type[MachineProperty | QueueProperty] = MachineProperty if queue is None else QueueProperty
        request = get_info_of(self._mgmt_object(queue), [*kind])
        answer: GetInfoOut = await self._manage(GET_INFO, request)
        check(answer.result, f"no figures of {queue or self.host}")
        return {each.name: python_value(value) for each, value in zip(kind, answer.values, strict=True)}

    async def act(self, action: str, queue: str | None) -> None:
        answer: Result = await self._manage(ACTION, ActionIn(self._mgmt_object(queue), action))
        check(answer.result, f"cannot {action} {queue or self.host}")

    def _mgmt_object(self, queue: str | None) -> MgmtObject:
        if queue is None:
            return MACHINE
        named = queue_format_structure(QueueFormat.from_format_name(self._name(queue)))
        return MgmtObject(MgmtObjectType.MGMT_QUEUE, named)

    async def _manage(self, operation: Operation[In, Out], request: In) -> Out:
        """One call on a connection of its own: they are rare."""
        connection = await self._connect(QMMGMT, None)
        try:
            return await connection.call(operation, request, ANSWER_TIMEOUT_S)
        finally:
            await connection.close()

    # What remote readers cannot do

    arrow = _cannot("give messages as Arrow")
    info = _cannot("say what the manager is: ask with `managed`")
    route = _cannot("ask for a route")
    route_table = _cannot("ask for routes")
    sessions = _cannot("list sessions")
    readers = _cannot("list readers")
    exposure = _cannot("list listeners")
    keys = _cannot("show keys")
    rotate_keys = _cannot("rotate keys")
    trace = _cannot("trace a message")
    queues = _cannot("list queues")
    queue = _cannot("describe a queue")
    acl = _cannot("show an access list")
    set_acl = _cannot("change an access list")
    edit_acl = _cannot("change an access list")
    create_queue = _cannot("create a queue")
    set_queue = _cannot("change a queue")
    delete_queue = _cannot("delete a queue")
    pause_queue = _cannot("pause a queue")
    resume_queue = _cannot("resume a queue")
    resolve = _cannot("resolve names: send from a queue manager of your own")
    send = _cannot("send: send from a queue manager of your own")
    send_transactional = _cannot("send: send from a queue manager of your own")
    begin = _cannot("begin a transaction: use `receiving`, which takes a message when its block ends")
    commit = _cannot("commit a transaction")
    abort = _cannot("abort a transaction")
    locks = _cannot("list locks")
    release_locks = _cannot("release locks")
    transactions = _cannot("list transactions")
    abort_transaction = _cannot("abort a transaction")
    move = _cannot("move messages")
    move_page = _cannot("move messages")
    insert = _cannot("insert messages")
    mark = _cannot("say how far a queue can be read")
    hold = _cannot("hold messages")
    holds = _cannot("hold messages")
    commit_hold = _cannot("hold messages")
    release = _cannot("hold messages")
    submit = _cannot("send")
    commit_submission = _cannot("send")
    forget_submission = _cannot("send")


def _refuse_transaction(transaction: UUID | None) -> None:
    if transaction is not None:
        raise LocalProtocolError("transaction: remote readers read without one; use `receiving` instead")


def _check_count(count: int) -> None:
    if count < 1:
        raise InvalidArgument(f"count: {count} is not at least 1")


def _milliseconds(timeout: float | None) -> int:
    check_timeout(timeout)
    if timeout is None or math.isinf(timeout):
        return INFINITE_MS
    return min(math.ceil(timeout * 1000), INFINITE_MS - 1)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
