"""A reader of queues on another computer by [MS-MQRR] 3.2. What it shares with that by [MS-MQQP] is in client.py.

A read is one call, and so is its end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from postroad.describe.received import ReceivedMessage
from postroad.errors import PostroadError, RpcUnavailable
from postroad.names import FormatName, QueueFormat
from postroad.remote_read import remoteread as wire
from postroad.remote_read.client import (
    OPEN_TIMEOUT_S,
    WHOLE,
    Asked,
    Connect,
    Identity,
    OpenQueue,
    PendingRead,
    ReadClient,
    Received,
    called,
    check,
    error_of,
    message_of,
)
from postroad.remote_read.message_packet import message_in
from postroad.remote_read.qmcomm import queue_format_structure
from postroad.remote_read.remoteread import REMOTE_READ
from postroad.remote_read.structures import Result
from postroad.remote_read.values import OWN_VERSION, SEEKS, Ack, Action, DesiredAccess, DesiredShare
from postroad.rpc.client import RpcClient
from postroad.rpc.interface import Operation
from postroad.rpc.ndr import Handle
from postroad.wire.constants import MessageClass

FIRST_MESSAGES = {  # 3.1.4.7 has no lookup id for the place before the first message: these read the first one
    Action.LOOKUP_PEEK_NEXT: Action.PEEK_CURRENT,
    Action.LOOKUP_RECEIVE_NEXT: Action.RECEIVE,
}
MOVE_ACCESS = 4  # 3.1.4.11
_numbers = count(1)


@dataclass(slots=True, eq=False)
class MqrrQueue(OpenQueue):
    """3.2.1. `queue_handle` is a number of our own."""

    handle: Handle


MqrrRead = PendingRead[MqrrQueue]


class MqrrClient(ReadClient[MqrrQueue, MqrrRead]):
    """The verbs of [MS-MQRR]."""

    def __init__(self, connect: Connect, identity: Identity) -> None:
        super().__init__(connect, identity, OWN_VERSION)  # no server of this protocol is an old one

    async def _bind(self) -> RpcClient:
        return await self._connect(REMOTE_READ, None)

    # Queues

    async def open(
        self,
        name: FormatName,
        access: DesiredAccess = DesiredAccess.RECEIVE,
        share: DesiredShare = DesiredShare.DENY_NONE,
    ) -> MqrrQueue:
        """Opening a Queue, 3.2.4.1"""
        connection = await self.connection()
        request, what = self._opening(name, access, share), f"cannot open {name}"
        answer = await called(connection, wire.OPEN_QUEUE, request, OPEN_TIMEOUT_S, what=what)
        opened = MqrrQueue(str(name), next(_numbers), access, answer.context)
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

    async def _close_queue(self, opened: MqrrQueue) -> int:
        """Closing a Queue, 3.2.4.13"""
        return (await self._call(wire.CLOSE_QUEUE, wire.OneQueue(opened.handle))).result

    async def purge(self, opened: MqrrQueue) -> None:
        """Purging a Queue, 3.2.4.7"""
        self._require_open(opened)
        # A large queue takes a long time.
        answer = await self._call(wire.PURGE_QUEUE, wire.OneQueue(opened.handle), None)
        check(answer.result, f"cannot purge {opened.name}")

    async def create_cursor(self, opened: MqrrQueue) -> int:
        """Creating a Cursor, 3.2.4.8"""
        self._require_open(opened)
        answer = await self._call(wire.CREATE_CURSOR, wire.OneQueue(opened.handle))
        check(answer.result, f"cannot create a cursor on {opened.name}")
        return answer.cursor

    async def close_cursor(self, opened: MqrrQueue, cursor: int) -> None:
        """Closing a Cursor, 3.2.4.12"""
        self._require_open(opened)
        answer = await self._call(wire.CLOSE_CURSOR, wire.CloseCursorIn(opened.handle, cursor))
        check(answer.result, f"cannot close the cursor on {opened.name}")

    # Moving and rejecting

    async def move(self, opened: MqrrQueue, target: FormatName, lookup_id: int) -> None:
        """Move a Message, 3.2.4.6: between a queue and its subqueues. A subqueue that is not there comes into being."""
        self._require_open(opened)
        connection = await self.connection()
        request = self._opening(target, MOVE_ACCESS, DesiredShare.DENY_NONE)
        what = f"cannot open {target} for moves"
        answer = await called(connection, wire.OPEN_QUEUE_FOR_MOVE, request, OPEN_TIMEOUT_S, what=what)
        try:
            move = wire.MoveMessageIn(opened.handle, answer.move_context, lookup_id, wire.NO_TRANSACTION)
            moved = await self._call(wire.MOVE_MESSAGE, move)
        finally:
            with suppress(PostroadError):  # the server cleans up when the connection ends
                await self._call(wire.CLOSE_QUEUE, wire.OneQueue(answer.context))
        check(moved.result, f"cannot move a message from {opened.name} to {target}")

    async def reject(self, opened: MqrrQueue, lookup_id: int) -> None:
        """Reject a Message, 3.2.4.5. Servers reject only what was received in a transaction."""
        self._require_open(opened)
        request = wire.SetClassIn(opened.handle, lookup_id, MessageClass.NACK_RECEIVE_REJECTED)
        answer = await self._call(wire.SET_USER_ACKNOWLEDGEMENT_CLASS, request)
        check(answer.result, f"cannot reject a message of {opened.name}")

    # Reading: peeks are 3.2.4.3 and 3.2.4.9, receives 3.2.4.4.1 and 3.2.4.10.1

    def _asked(
        self,
        opened: MqrrQueue,
        action: Action,
        timeout_ms: int,
        cursor: int,
        lookup_id: int = 0,
        max_body_size: int = WHOLE,
    ) -> Asked[MqrrRead]:
        """R_StartReceive"""
        receives = action is Action.RECEIVE or (lookup_id != 0 and SEEKS[action][0])
        read = MqrrRead(opened, self._request_id(), receives)
        request = wire.StartReceiveIn(
            opened.handle, lookup_id, cursor, action, timeout_ms, read.request_id, max_body_size, WHOLE
        )
        return read, wire.START_RECEIVE, request, partial(_message, read)

    def _asked_for(self, opened: MqrrQueue, action: Action, lookup_id: int, max_body_size: int) -> Asked[MqrrRead]:
        return self._asked(opened, action if lookup_id else FIRST_MESSAGES[action], 0, 0, lookup_id, max_body_size)

    async def _cancel(self, read: MqrrRead) -> int:
        """R_CancelReceive, 3.2.4.11"""
        request = wire.CancelReceiveIn(read.opened.handle, read.request_id)
        return (await self._call(wire.CANCEL_RECEIVE, request)).result

    def _ended(self, read: MqrrRead, ack: Ack) -> tuple[Operation[Any, Any], Any]:
        """R_EndReceive"""
        self._require_open(read.opened)
        return wire.END_RECEIVE, wire.EndReceiveIn(read.opened.handle, ack, read.request_id)

    async def receive_next(self, opened: MqrrQueue, read: MqrrRead, timeout_ms: int = 0) -> Received:
        """Acknowledges a message, and receives the next one: two calls that leave together.

        If there is no next message, the acknowledgment stands. If the acknowledgment fails, the next message goes back.
        """
        ended = self.end_later(read)
        received: Received | None = None
        try:
            received = await self.receive(opened, timeout_ms)
        finally:
            try:
                await ended  # an error in it counts more
            except PostroadError:
                if received is not None:
                    await self._put_back(received.entry)
                raise
        return received

    def end_later(self, read: MqrrRead) -> asyncio.Future[None]:
        """Acknowledges a message with a call that leaves with the next one."""
        self._ending(read)
        self.pending.pop(read.request_id, None)
        opened, connection = read.opened, self._connection
        self._require_open(opened)
        assert connection is not None
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(answer: Result | None) -> None:
            if ended.done():
                return  # nobody waits any longer
            if answer is None:
                ended.set_exception(RpcUnavailable(f"{opened.name}: the server did not answer an acknowledgment"))
            elif answer.result:
                ended.set_exception(error_of(answer.result, "cannot acknowledge the message"))
            else:
                ended.set_result(None)

        connection.send(*self._ended(read, Ack.RR_ACK), done)
        return ended


def _message(read: MqrrRead, answer: wire.StartReceiveOut) -> ReceivedMessage:
    if answer.result:
        check(answer.result, f"cannot read {read.opened.name}")
    read.locked = read.receives  # also if it cannot be read, 3.2.4.4.1
    packet, trailers = message_in(answer.sections or ())
    known = trailers.aborts, trailers.acknowledgment_class
    return message_of(packet, answer.sequence_id, answer.arrive_time, *known)
