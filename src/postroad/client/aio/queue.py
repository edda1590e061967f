"""A queue as a program sees it: send, receive, peek, and everything else that one does with one queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, Self, Unpack, overload
from uuid import UUID

from postroad.client.aio.consuming import Consumer
from postroad.client.payloads import PAGE_MESSAGES, as_action, as_lookup_id, as_lookup_ids, as_messages, next_page
from postroad.errors import InvalidArgument, InvalidHandle, PostroadError
from postroad.reports.offsets import Selection
from postroad.reports.operations import QueueAccess, ReadCall, ShareMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.client.aio.backend import Backend
    from postroad.client.aio.manager import QueueManager
    from postroad.client.payloads import Place, Sendable
    from postroad.describe.received import ReceivedMessage
    from postroad.message import Message
    from postroad.reports.info import QueueInfo
    from postroad.reports.offsets import HoldInfo, Mark, Submission
    from postroad.validation.queue_properties import QueueAttributes


# A local transaction as its owner sees it. It is open, and then committed or aborted, once.


class Transaction:
    """Sends and receives that happen together, in any queues of one manager.

    `QueueManager.transaction` makes one and ends it; `QueueManager.begin` makes one that the caller ends. A transaction
    stays open however long the work takes. The manager aborts it if this process is gone or silent for too long. A
    commit then raises LeaseEnded.
    """

    __slots__ = ("_manager", "ended", "identifier")

    def __init__(self, manager: QueueManager, identifier: UUID) -> None:
        self._manager = manager
        self.identifier = identifier
        self.ended = False

    def __repr__(self) -> str:
        return f"<Transaction {self.id}{', ended' if self.ended else ''}>"

    @property
    def id(self) -> str:
        return str(self.identifier)

    async def commit(self) -> None:
        """Makes everything that was done in the transaction durable. Raises TransactionSequence if it has already
        ended."""
        self.ended = True
        await self._manager.backend.commit(self.identifier)

    async def abort(self) -> None:
        """Undoes everything: sent messages are dropped, and received messages return to their places."""
        self.ended = True
        await self._manager.backend.abort(self.identifier)


# An open queue and its cursors, for readers that keep others out or read a queue at their own pace.


class OpenQueue:
    """A queue that `Queue.open` has opened. As a context manager it closes itself. With `exclusive=True` it is the only
    reader."""

    __slots__ = ("_manager", "closed", "handle", "name")

    def __init__(self, manager: QueueManager, name: str, handle: int) -> None:
        self._manager = manager
        self.name = name
        self.handle = handle
        self.closed = False

    def __repr__(self) -> str:
        return f"<OpenQueue {self.name}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the first message."""
        async with self.cursor() as cursor:
            return await cursor.receive(timeout)

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Returns the first message and leaves it in the queue."""
        async with self.cursor() as cursor:
            return await cursor.peek(timeout)

    @asynccontextmanager
    async def cursor(self) -> AsyncIterator[Cursor]:
        """A cursor before the first message."""
        if self.closed:
            raise InvalidHandle(f"the queue {self.name} is closed: open it again")
        cursor = Cursor(self._manager, self.handle, await self._manager.backend.open_cursor(self.handle))
        try:
            yield cursor
        finally:
            with suppress(PostroadError):  # the handle, the queue or the manager may be gone
                await self._manager.backend.close_cursor(self.handle, cursor.number)

    async def close(self) -> None:
        """Closes the handle. Reads that wait on it end with OperationCancelled. A second call does nothing."""
        if not self.closed and not self._manager.closed:
            self.closed = True
            await self._manager.backend.close_queue(self.handle)


class Cursor:
    """A position in a queue, which starts before the first message.

    A read that finds nothing in time raises NoMessage. MessageAlreadyReceived means that another reader took the
    message at this position.
    """

    __slots__ = ("_handle", "_manager", "number")

    def __init__(self, manager: QueueManager, handle: int, number: int) -> None:
        self._manager = manager
        self._handle = handle
        self.number = number

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Returns the message at the cursor."""
        return await self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK, timeout)

    async def peek_next(self, timeout: float | None = None) -> ReceivedMessage:
        """Moves the cursor to the next message and returns it. Raises IllegalCursorAction before the first `peek`."""
        return await self._manager.backend.read_cursor(self._handle, self.number, ReadCall.PEEK_NEXT, timeout)

    async def receive(self, timeout: float | None = None) -> ReceivedMessage:
        """Takes the message at the cursor. The next read concerns the message after it."""
        return await self._manager.backend.read_cursor(self._handle, self.number, ReadCall.RECEIVE, timeout)


class Queue:
    """A queue of one manager, by name. Making one costs nothing and does not check that the queue exists.

    A `timeout` is in seconds: 0 does not wait, and None waits forever. A read that finds nothing in time raises
    NoMessage.
    """

    __slots__ = ("manager", "name")

    def __init__(self, manager: QueueManager, name: str) -> None:
        self.manager = manager
        self.name = name

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def _backend(self) -> Backend:
        return self.manager.backend

    # Sending

    @overload  # text is also a sequence of texts, but counts as one message
    async def send(  # type: ignore[overload-overlap]
        self, messages: Sendable, tx: Transaction | None = None, *, transactional: bool = False
    ) -> str: ...

    @overload
    async def send(
        self, messages: Iterable[Sendable], tx: Transaction | None = None, *, transactional: bool = False
    ) -> list[str]: ...

    async def send(
        self,
        messages: Sendable | Iterable[Sendable],
        tx: Transaction | None = None,
        *,
        transactional: bool = False,
    ) -> str | list[str]:
        r"""Sends one message and returns its id, `{guid}\ordinal`. Or sends several, all or none, and returns their
        ids.

        Bytes and text are messages without properties, and a dict is sent as JSON. To a transactional queue, send in a
        transaction: give `tx`, or let `transactional=True` make one. To any other queue, send without one.
        """
        if transactional and tx is not None:
            raise InvalidArgument("transactional: must not be set together with a transaction")
        values, alone = as_messages(messages)
        name = self.name
        if any(each.sign is not None for each in values):
            name, values = await self._signed(values, transactional or tx is not None)
        if transactional:
            ids = await self._backend.send_transactional(name, values)
        else:
            ids = await self._backend.send(name, values, None if tx is None else tx.identifier)
        return ids[0] if alone else ids

    async def _signed(self, messages: list[Message], transactional: bool) -> tuple[str, list[Message]]:
        """The messages with their signatures, and the name to send them to.

        Asks the manager for what this connection does not know yet.
        """
        signing = self.manager.signing
        for question in signing.unknown(self.name, messages):
            signing.learn(question, await self._backend.resolve(*question))
        return signing.sign(self.name, messages, transactional)

    # Receiving

    async def receive(self, timeout: float | None = None, tx: Transaction | None = None) -> ReceivedMessage:
        """Takes the first message. In a transaction, it is gone after the commit and back after an abort."""
        return (await self.receive_many(1, timeout, tx))[0]

    async def receive_many(
        self, count: int, timeout: float | None = None, tx: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Takes up to `count` messages that are there. Waits only for the first one."""
        return await self._backend.receive(self.name, count, timeout, None if tx is None else tx.identifier)

    async def receive_by_id(
        self,
        lookup_id: int | str,
        place: Place = "current",
        tx: Transaction | None = None,
    ) -> ReceivedMessage:
        """Takes the message with this lookup id, or the one that is `next` or `previous` to it."""
        transaction = None if tx is None else tx.identifier
        return await self._backend.lookup(self.name, as_lookup_id(lookup_id), as_action(place), True, transaction)

    async def receive_by_correlation_id(
        self, correlation_id: str, timeout: float | None = None, tx: Transaction | None = None
    ) -> ReceivedMessage:
        """Takes the first message with this correlation id, such as the reply to a message whose id `send` returned.

        Other messages stay in their places. The manager looks through all of them, so keep the queue short.
        """
        transaction = None if tx is None else tx.identifier
        return await self._backend.receive_correlated(self.name, str(correlation_id), timeout, transaction)

    @asynccontextmanager
    async def receiving(self, timeout: float | None = None) -> AsyncIterator[ReceivedMessage]:
        """Locks the first message for a block, however long it takes, so that no other reader gets it.

        The message is gone when the block ends. It returns to its place if the block raises, this process dies or the
        manager restarts. Raises LeaseEnded at the end of the block if the message has already returned; another reader
        may then receive it too.
        """
        async with self.receiving_many(1, timeout) as messages:
            yield messages[0]

    @asynccontextmanager
    async def receiving_many(self, count: int, timeout: float | None = None) -> AsyncIterator[list[ReceivedMessage]]:
        """Locks up to `count` messages for a block. They go or return together."""
        messages = await self.lock(count, timeout)
        try:
            yield messages
        except BaseException:
            with suppress(PostroadError):  # the caller should see the first exception, that of the block
                await self.settle(messages, delete=False)
            raise
        await self.settle(messages, delete=True)

    def consume(self, prefetch: int = 100, *, timeout: float | None = None) -> Consumer:
        """Iterates over messages as they come, as in `async for message in queue.consume()`.

        Up to `prefetch` messages are fetched ahead, and no other reader gets these. Asking for the next message
        acknowledges the one before, and so does leaving the loop by `break`. An exception in the loop's body gives the
        message in hand back. What was fetched but not handed over always goes back.

        The iterator goes on after a restart of the manager. Messages that were not acknowledged come again, so a
        message can come twice. With `timeout`, the loop ends when no message has come for that many seconds. If you
        keep the iterator in a variable, use `async with queue.consume() as messages`, which does the same.
        """
        return Consumer(self.manager, self.name, prefetch, timeout)

    async def lock(self, count: int = 1, timeout: float | None = None) -> list[ReceivedMessage]:
        """The first phase of a receive: no other reader gets these messages until `settle` or the end of this
        process."""
        return await self._backend.lock(self.name, count, timeout)

    async def settle(self, messages: Iterable[ReceivedMessage | int | str], *, delete: bool) -> None:
        """The second phase of a receive: locked messages are deleted, or return to their places."""
        await self._backend.settle(self.name, as_lookup_ids(messages), delete)

    async def release_locks(self, messages: Iterable[ReceivedMessage | int | str] | None = None) -> list[int]:
        """Puts messages back that clients have locked: these, or all of them. Returns their lookup ids.

        This is for operators. A client that is still working gets LeaseEnded.
        """
        return await self._backend.release_locks(self.name, None if messages is None else as_lookup_ids(messages))

    # Looking

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Returns the first message and leaves it in the queue."""
        return (await self.peek_many(1, timeout))[0]

    async def peek_many(self, count: int, timeout: float | None = None) -> list[ReceivedMessage]:
        """Returns up to `count` messages from the first one on, and leaves them in the queue. Waits only for the first
        one."""
        return await self._backend.peek(self.name, count, timeout)

    async def peek_by_id(self, lookup_id: int | str, place: Place = "current") -> ReceivedMessage:
        """Returns the message with this lookup id, or the one that is `next` or `previous` to it."""
        return await self._backend.lookup(self.name, as_lookup_id(lookup_id), as_action(place), False, None)

    async def messages(self, after: int = -1, until: int | None = None) -> AsyncIterator[ReceivedMessage]:
        """Iterates over all messages, or over those after the lookup id `after` up to and including `until`.

        It takes nothing and does not wait. Messages that arrive or leave in the meantime may or may not be seen, but
        none is seen twice.
        """
        limit = PAGE_MESSAGES
        while page := await self._backend.page(self.name, after, limit):
            limit = next_page(page)
            for message in page:
                after = message.lookup_id
                if until is not None and after > until:
                    return
                yield message

    # Pipelines: ranges by order of arrival, and sending once

    async def mark(self, start: int = 0, limit: int | None = None) -> Mark:
        """How far the queue can be read: no message can appear below the arrival number `arrival` any more.

        With `limit`, the mark is at most that many messages after `start`. An arrival number is the lower 56 bits of a
        lookup id.
        """
        return await self._backend.mark(self.name, start, limit)

    def arrow(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        hold: str | None = None,
        limit: int | None = None,
        priority: int | None = None,
        message_class: int | None = None,
        label: str | None = None,
    ) -> AsyncIterator[bytes]:
        """The messages with `start` <= arrival < `end`, in that order, as the pieces of one Arrow stream.

        Besides the messages that any reader can have, the stream includes those that the name `hold` holds.
        """
        chosen = None if columns is None else tuple(columns)
        selection = Selection(start, end, hold, limit, chosen, priority, message_class, label)
        return self._backend.arrow(self.name, selection)

    async def hold(self, name: str, start: int, end: int | None = None) -> HoldInfo:
        """Holds messages with `start` <= arrival < `end` under a name.

        No other reader, purge or expiry takes held messages until `commit_hold` or `release`, even after a restart.
        Without an end, the range ends at the mark. The same name can hold a wider range later. Raises SharingViolation
        if another name holds some of the messages.
        """
        return await self._backend.hold(self.name, name, start, end)

    async def holds(self) -> list[HoldInfo]:
        return await self._backend.holds(self.name)

    async def commit_hold(self, name: str, end: int) -> int:
        """Receives what `name` holds below the arrival number `end`. Returns how many messages that were.

        It can be repeated: a second call does nothing.
        """
        return await self._backend.commit_hold(self.name, name, end)

    async def release(self, name: str) -> None:
        """Gives what `name` holds back to all readers."""
        await self._backend.release(self.name, name)

    async def submit(
        self,
        messages: Sendable | Iterable[Sendable],
        name: str,
        epoch: int,
        partition: int,
        row: int = 0,
        *,
        transactional: bool | None = None,
    ) -> Submission:
        """Sends messages as the rows from `row` on of a partition and epoch, except those that `name` has already sent.

        So it is safe to repeat the call. If `transactional` is None, a local queue decides whether the messages go in a
        transaction.
        """
        values, _ = as_messages(messages)
        if any(each.sign is not None for each in values):
            raise InvalidArgument("sign: a submission cannot be signed; use send")
        return await self._backend.submit(self.name, name, epoch, partition, row, values, transactional)

    async def submit_arrow(
        self, stream: bytes, name: str, epoch: int, partition: int, row: int = 0, *, transactional: bool | None = None
    ) -> Submission:
        """Sends an Arrow stream with a message in each row, like `submit`."""
        return await self._backend.submit(self.name, name, epoch, partition, row, stream, transactional)

    async def commit_submission(self, name: str, epoch: int) -> None:
        """Completes an epoch and all before it: a later row in them is dropped."""
        await self._backend.commit_submission(self.name, name, epoch)

    async def forget_submission(self, name: str) -> None:
        """Forgets everything about this sender, which must not come back."""
        await self._backend.forget_submission(self.name, name)

    # Handles

    async def open(self, *, access: Literal["receive", "peek"] = "receive", exclusive: bool = False) -> OpenQueue:
        """Opens the queue, for cursors. With `exclusive`, no other reader can use it until it is closed.

        Raises SharingViolation if other readers are in the way.
        """
        share = ShareMode.DENY_RECEIVE if exclusive else ShareMode.DENY_NONE
        opened = QueueAccess.RECEIVE if access == "receive" else QueueAccess.PEEK
        return OpenQueue(self.manager, self.name, await self._backend.open_queue(self.name, opened, share))

    @asynccontextmanager
    async def cursor(self) -> AsyncIterator[Cursor]:
        """A cursor before the first message, with a handle of its own."""
        async with await self.open() as handle, handle.cursor() as cursor:
            yield cursor

    # The queue itself

    async def info(self) -> QueueInfo:
        return await self._backend.queue(self.name)

    async def change(self, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Changes attributes, as in `change(quota_kb=1024, journal=True)`. The kind of a queue cannot change."""
        return await self._backend.set_queue(self.name, attributes)

    async def acl(self) -> str:
        """The access list in SDDL: who may do what with the queue."""
        return await self._backend.acl(self.name)

    async def set_acl(self, sddl: str | None) -> str:
        """Replaces the access list and returns the new one.

        If `sddl` names no owner, the owner stays. Without `D:`, everybody may do everything. None restores the default.
        """
        return await self._backend.set_acl(self.name, sddl)

    async def grant(self, who: str, *rights: str) -> str:
        """Allows `who` more, as in `grant("ann", "peek", "receive")`. Returns the new access list.

        `who` is a user, a SID, everyone or anonymous.
        """
        return await self._backend.edit_acl(self.name, "grant", who, rights)

    async def deny(self, who: str, *rights: str) -> str:
        """Denies rights to `who`, whatever other entries allow. Returns the new access list."""
        return await self._backend.edit_acl(self.name, "deny", who, rights)

    async def revoke(self, who: str, *rights: str) -> str:
        """Removes rights from all entries of `who`, both those that allow and those that deny. Returns the new access
        list."""
        return await self._backend.edit_acl(self.name, "revoke", who, rights)

    async def purge(self) -> int:
        """Removes all messages and returns how many there were. Locked ones are removed when their readers release
        them."""
        return await self._backend.purge_queue(self.name)

    async def delete(self) -> None:
        """Deletes the queue with all its messages, its journal and its subqueues."""
        await self._backend.delete_queue(self.name)

    async def pause(self) -> QueueInfo:
        """Stops an outgoing queue from sending until `resume`."""
        return await self._backend.pause_queue(self.name)

    async def resume(self) -> QueueInfo:
        """Lets an outgoing queue send again."""
        return await self._backend.resume_queue(self.name)

    async def insert(self, packets: Iterable[bytes]) -> list[int]:
        """Puts packets into a local queue byte for byte, as `ReceivedMessage.packet` has them. Returns their lookup
        ids."""
        return await self._backend.insert(self.name, list(packets))
