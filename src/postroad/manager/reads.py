"""Reads of a running manager: peek, receive, two-phase receive and lookup ids, now or with a wait; handles and cursors.

The rules are in queues/reading.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from postroad.describe.received import ReceivedMessage
from postroad.errors import (
    AccessDenied,
    IllegalName,
    InvalidArgument,
    InvalidHandle,
    MessageAlreadyReceived,
    MessageNotFound,
    OperationCancelled,
    PostroadError,
    QueueNotAvailable,
    StorageError,
)
from postroad.manager.durable import DurableCore
from postroad.manager.leases import LeaseService
from postroad.names import FormatName, MessageId, PathName
from postroad.queues.leases import THIS_PROCESS, Holder
from postroad.queues.open_queue import RECEIVING, Cursor, OpenQueueDescriptor, WaitingRead, always
from postroad.queues.queue import READ_BYTES, START, Queue
from postroad.reports.operations import QueueAccess, ReadCall, SeekAction, ShareMode
from postroad.store.interface import Record
from postroad.wire.view import MessageView

SEARCHED_AT_ONCE = 200  # messages that a search reads before others get a turn
T = TypeVar("T")
Name = FormatName | PathName | str
Permitted = Callable[[], bool]
Matches = Callable[[Record], bool]  # whether a search wants this message


def answering(correlation_id: str) -> Matches:
    """Messages with this correlation id, `{guid}\\ordinal`."""
    wanted = _identifier(correlation_id, "correlation_id")
    return lambda record: MessageView(record.packet).correlation_id == wanted


def identified(message_id: str) -> Matches:
    """The message with this id, `{guid}\\ordinal`."""
    wanted = _identifier(message_id, "message_id")
    return lambda record: MessageView(record.packet).identifier == wanted


def _identifier(text: str, name: str) -> bytes:
    try:
        return MessageId.parse(text).to_bytes()
    except IllegalName as fault:
        raise InvalidArgument(f"{name}: {fault}") from None


@dataclass(frozen=True, slots=True)
class Locked:
    """Messages locked by a two-phase receive, and their lease."""

    messages: list[ReceivedMessage]
    lease: UUID


class Reads:
    """The reads of a manager. A read that finds nothing waits. If its reader leaves, no message is lost."""

    def __init__(self, durable: DurableCore, leases: LeaseService) -> None:
        self._core = durable.core
        self._clock = durable.clock
        self._durable = durable
        self._leases = leases
        # Those whose messages leave the queue for good. Cancel one of these only if nobody can get its result.
        self.committing: set[asyncio.Task[Any]] = set()

    async def receive(
        self,
        name: Name,
        count: int = 1,
        timeout: float | None = None,
        transaction: UUID | None = None,
        permitted: Permitted = always,
        handle: int | None = None,
    ) -> list[ReceivedMessage]:
        """Receives at least one message and at most `count`. Waits up to `timeout` seconds for the first, without limit
        if None. The wait ends with AccessDenied if the access list changes and `permitted` returns False. With `handle`
        it reads as whoever has opened the queue, also if this excludes other readers."""
        held = self._leases.used(transaction)
        holder = None if transaction is None else self._leases.core.holder(transaction)
        with self._opened(name, QueueAccess.RECEIVE, holder, handle) as descriptor:
            deadline = self._deadline(timeout)
            request = WaitingRead(descriptor, ReadCall.RECEIVE, count, deadline, transaction=held, permitted=permitted)
            return _received(await self._receive(request))

    async def receive_found(
        self,
        name: Name,
        matches: Matches,
        timeout: float | None = None,
        transaction: UUID | None = None,
        permitted: Permitted = always,
        handle: int | None = None,
    ) -> ReceivedMessage:
        """Receives the first message that matches. Waits for it up to `timeout` seconds."""
        while True:
            lookup_id = await self.find(name, matches, timeout, permitted, handle=handle)
            with suppress(MessageNotFound, MessageAlreadyReceived):  # another reader was faster
                return await self.lookup(name, lookup_id, receive=True, transaction=transaction, handle=handle)

    async def peek_found(
        self,
        name: Name,
        matches: Matches,
        timeout: float | None = None,
        permitted: Permitted = always,
        handle: int | None = None,
    ) -> ReceivedMessage:
        """The first message that matches, which stays in the queue. Waits for it up to `timeout` seconds."""
        while True:
            lookup_id = await self.find(name, matches, timeout, permitted, access=QueueAccess.PEEK, handle=handle)
            with suppress(MessageNotFound, MessageAlreadyReceived):
                return await self.lookup(name, lookup_id, handle=handle)

    async def peek_after(
        self,
        name: Name,
        count: int = 1,
        timeout: float | None = None,
        permitted: Permitted = always,
        handle: int | None = None,
        *,
        after: int,
    ) -> list[ReceivedMessage]:
        """At least one and at most `count` of the messages after that lookup id, which stay in the queue. Waits up to
        `timeout` seconds for the first."""

        def behind(record: Record) -> bool:
            return record.lookup_id > after

        while not (found := await self.peek(name, count, after=after, handle=handle)):
            await self.find(name, behind, timeout, permitted, QueueAccess.PEEK, after, handle)
        return found

    async def find(
        self,
        name: Name,
        matches: Matches,
        timeout: float | None = None,
        permitted: Permitted = always,
        access: QueueAccess = QueueAccess.RECEIVE,
        after: int = START,
        handle: int | None = None,
    ) -> int:
        """The lookup id of the first message after `after` that matches. Searches the queue in steps, so that others
        get turns, and notices messages that arrive in the meantime."""
        deadline = self._deadline(timeout)
        with self._opened(name, access, handle=handle) as descriptor:
            queue = descriptor.queue
            assert queue is not None
            request = WaitingRead(descriptor, ReadCall.PEEK, 1, deadline, permitted=permitted, matches=matches)
            arrival = self.wait(request, lambda records: records[0].lookup_id)
            try:
                self._core.reading.watch(request)
                while page := self._core.delivery.fresh(queue, SEARCHED_AT_ONCE, self._clock(), after, READ_BYTES):
                    if (found := next(filter(matches, page), None)) is not None:
                        return found.lookup_id
                    after = page[-1].lookup_id
                    await asyncio.sleep(0)
                return await arrival
            finally:
                arrival.cancel()
                if not arrival.cancelled():
                    arrival.exception()  # a time-out during the search is no error

    async def peek(
        self,
        name: Name,
        count: int = 1,
        timeout: float | None = None,
        after: int | None = None,
        permitted: Permitted = always,
        most_bytes: int = READ_BYTES,
        handle: int | None = None,
    ) -> list[ReceivedMessage]:
        """The first messages, which stay in the queue. With `after`, those after that lookup id, without waiting: of a
        large queue no more than to the one that brings them to `most_bytes`."""
        with self._opened(name, QueueAccess.PEEK, handle=handle) as descriptor:
            if after is not None:
                if count < 1:
                    raise InvalidArgument(f"count: must be at least 1, got {count}")
                queue = self._core.queues.get(name)
                return _received(self._core.delivery.fresh(queue, count, self._clock(), after, most_bytes))
            request = WaitingRead(descriptor, ReadCall.PEEK, count, self._deadline(timeout), permitted=permitted)
            return _received(await self._read(request))

    async def lookup(
        self,
        name: Name,
        lookup_id: int,
        action: SeekAction = SeekAction.CURRENT,
        *,
        receive: bool = False,
        transaction: UUID | None = None,
        handle: int | None = None,
    ) -> ReceivedMessage:
        """Reads one message by its lookup id, or the one before or after it."""
        held = self._leases.used(transaction)
        access = QueueAccess.RECEIVE if receive else QueueAccess.PEEK
        with self._opened(name, access, handle=handle) as descriptor:
            queue = descriptor.queue
            assert queue is not None
            record, changed = self._durable.durability.run(
                lambda: self._core.reading.read_by_lookup_id(
                    descriptor, lookup_id, action, self._clock(), peek=not receive, transaction=held
                )
            )
            if changed:
                await self._committed(queue, [record] if receive and held is None else [])
        return _received([record])[0]

    async def lock(
        self,
        name: Name,
        count: int = 1,
        timeout: float | None = None,
        holder: Holder = THIS_PROCESS,
        permitted: Permitted = always,
        handle: int | None = None,
    ) -> Locked:
        """The first phase of a receive. No other reader gets the messages until `settle`, the end of their lease, or a
        restart."""
        self._leases.core.check_lock(holder)
        with self._opened(name, QueueAccess.RECEIVE, holder, handle) as descriptor:
            queue = descriptor.queue
            assert queue is not None
            deadline = self._deadline(timeout)
            request = WaitingRead(descriptor, ReadCall.RECEIVE, count, deadline, two_phase=True, permitted=permitted)
            records = await self._read(request)
        return Locked(_received(records), self._leases.lock(queue, records, holder))

    async def settle(
        self, name: Name, lookup_ids: Sequence[int], *, delete: bool, leases: Collection[UUID] | None = None
    ) -> None:
        """The second phase: deletes the messages or puts them back. With `leases`, only messages of these leases."""
        await self._durable.durably(lambda: self._settle(name, lookup_ids, delete, leases))

    def acknowledge(self, name: Name, lookup_ids: Sequence[int], leases: Collection[UUID] | None = None) -> None:
        """Like `settle` with `delete`, but does not wait for the disk: the change shares the next commit, which follows
        soon. After a crash before that, the messages come again."""
        try:
            self._settle(name, lookup_ids, True, leases)
        finally:
            self._durable.commit_soon()

    def _settle(self, name: Name, lookup_ids: Sequence[int], delete: bool, leases: Collection[UUID] | None) -> None:
        queue = self._core.queues.get(name)
        records = self._leases.held(queue, lookup_ids, leases)
        with self._core.delivery.atomic:
            if delete:
                self._core.reading.end_all(queue, records, self._clock())
            else:
                for record in records:
                    self._core.reading.end(queue, record, self._clock(), delete=False)
        self._leases.settled(queue, records)

    # Now, or with a wait

    def wait(
        self,
        request: WaitingRead,
        take: Callable[[list[Record]], T],
        refuse: Callable[[PostroadError], T] | None = None,
    ) -> asyncio.Future[T]:
        """A future for a waiting read. It gets the result of `take` for the messages of the read, or of `refuse` for
        the error that ended it; without `refuse`, the error itself.

        If the caller cancels the future, no message is lost. This is a future and no coroutine, because a coroutine
        that is cancelled before its first step could not give a message back.
        """
        queue, reading = request.descriptor.queue, self._core.reading
        assert queue is not None
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()

        def satisfied(records: list[Record]) -> None:
            if ended.done():  # just cancelled: the core takes the messages back
                raise OperationCancelled("the reader has left")
            ended.set_result(take(records))

        def failed(error: PostroadError) -> None:
            if refuse is not None:
                result = refuse(error)
                if not ended.done():
                    ended.set_result(result)
            elif not ended.done():
                ended.set_exception(error)

        def finish(future: asyncio.Future[T]) -> None:
            if alarm is not None:
                alarm.cancel()
            if future.cancelled():
                reading.cancel(queue, request, OperationCancelled("the reader has left"))

        request.tell(satisfied, failed)
        alarm = None
        if request.deadline is not None:
            wait = max(0.0, request.deadline - self._clock())
            alarm = loop.call_later(wait, reading.time_out, queue, request)
        ended.add_done_callback(finish)
        return ended

    async def _read(self, request: WaitingRead) -> list[Record]:
        queue = request.descriptor.queue
        if queue is None:
            raise QueueNotAvailable("the queue was deleted while it was open; close it and open it again")
        try:
            records = self._core.reading.read(request, self._clock())
        finally:
            self._durable.commit_soon()  # the read may have removed expired messages
        return await self._waited(queue, request) if records is None else records

    async def _waited(self, queue: Queue, request: WaitingRead) -> list[Record]:
        """The messages of a waiting read."""
        ended = self.wait(request, lambda records: records)
        try:
            return await ended
        except asyncio.CancelledError:
            if request.two_phase and not ended.cancelled() and ended.exception() is None:
                for record in ended.result():
                    self._core.reading.put_back(queue, record, self._clock())
            raise

    async def _receive(self, request: WaitingRead) -> list[Record]:
        """A destructive read. It takes one step if there is a message. If it waits, it locks the message first, so that
        the message keeps its place if the reader leaves before the commit."""
        queue = request.descriptor.queue
        assert queue is not None
        if request.transaction is not None:
            return await self._read(request)
        tick, writes = self._core.tick, self._core.tick.writes
        found: list[Record] | None = None
        try:
            found = self._core.reading.read(request, self._clock())
        finally:
            if found is None:
                self._durable.commit_soon()  # the read may have removed expired messages
        if found is not None:
            if tick.writes != writes:
                await self._committed(queue, found)
            return found
        request.lock_first()
        records = await self._waited(queue, request)

        def end() -> None:
            try:
                with self._core.delivery.atomic:
                    self._core.reading.end_all(queue, records, self._clock())
            except BaseException:  # nothing was received
                for record in records:
                    self._core.reading.put_back(queue, record, self._clock())
                raise

        self._durable.durability.run(end)
        await self._committed(queue, records)
        return records

    async def _committed(self, queue: Queue, taken: Sequence[Record]) -> None:
        """Waits until the messages that were taken out of the queue are durably gone. Nothing can stop that. If the
        reader leaves meanwhile, the messages go back to the end of their queue."""
        task = asyncio.current_task()
        assert task is not None
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: StorageError | None) -> None:
            if landed.cancelled():
                if error is None:  # otherwise they have never left
                    self._give_back(queue, taken)
            elif error is None:
                landed.set_result(None)
            else:
                landed.set_exception(error)

        self._durable.when_durable(settle)
        self.committing.add(task)
        try:
            await landed
        except asyncio.CancelledError:
            if not landed.cancelled() and landed.exception() is None:  # the reader left right after the commit
                self._give_back(queue, taken)
            raise
        finally:
            self.committing.discard(task)

    def _give_back(self, queue: Queue, records: Sequence[Record]) -> None:
        self._core.reading.give_back(queue, records, self._clock())
        self._durable.commit_soon()

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            return None
        if not isinstance(timeout, int | float) or not timeout >= 0:
            raise InvalidArgument(
                f"timeout: must be a number of seconds, at least 0, or None to wait without limit, got {timeout!r}"
            )
        return self._clock() + timeout if timeout else 0.0

    # Handles and cursors

    def _open(
        self,
        name: Name,
        access: QueueAccess,
        share: ShareMode = ShareMode.DENY_NONE,
        holder: Holder | None = None,
    ) -> OpenQueueDescriptor:
        """Opens a queue. Peeking at an outgoing queue opens it as an administrator; no local caller can receive from
        it."""
        if access is QueueAccess.PEEK and (queue := self._core.queues.find(name)) is not None and queue.is_outgoing:
            access = QueueAccess.PEEK_ADMIN
        return self._core.open(name, access, share, self._clock(), holder)

    @contextmanager
    def _opened(
        self, name: Name, access: QueueAccess, holder: Holder | None = None, handle: int | None = None
    ) -> Iterator[OpenQueueDescriptor]:
        """Opens the queue for one read, unless somebody has it open for reads of this kind: `handle`."""
        if handle is not None:
            descriptor = self._descriptor(handle)
            if descriptor.queue is None or descriptor.queue is not self._core.queues.find(name):
                raise InvalidHandle(f"handle {handle} is not of this queue; open it again")
            if access is QueueAccess.RECEIVE and descriptor.access not in RECEIVING:
                raise AccessDenied(f"handle {handle} was opened for peeking, not for receiving")
            yield descriptor
            return
        descriptor = self._open(name, access, holder=holder)
        try:
            yield descriptor
        finally:
            if not descriptor.closed:
                self._core.close(descriptor)

    def open_queue(
        self,
        name: Name,
        access: QueueAccess,
        share: ShareMode = ShareMode.DENY_NONE,
        holder: Holder = THIS_PROCESS,
    ) -> int:
        """Opens a queue. The handle can exclude other readers and owns cursors."""
        self._leases.core.check_handle(holder)
        handle = self._open(name, access, share).handle
        self._leases.use_handle(handle)
        self._leases.core.own_handle(handle, holder)
        return handle

    def _descriptor(self, handle: int) -> OpenQueueDescriptor:
        descriptor = self._core.descriptor(handle)
        self._leases.use_handle(handle)
        return descriptor

    def close_queue(self, handle: int) -> None:
        self._leases.core.close_handle(self._descriptor(handle))

    def open_cursor(self, handle: int) -> int:
        return self._leases.core.open_cursor(self._descriptor(handle))

    def close_cursor(self, handle: int, cursor: int) -> None:
        descriptor = self._descriptor(handle)
        self._leases.core.close_cursor(descriptor, _cursor(descriptor, cursor))

    async def read_cursor(
        self, handle: int, cursor: int, call: ReadCall, timeout: float | None = None, permitted: Permitted = always
    ) -> ReceivedMessage:
        """Peeks at a cursor, peeks after it, or receives at it."""
        descriptor = self._descriptor(handle)
        deadline = self._deadline(timeout)
        request = WaitingRead(descriptor, call, 1, deadline, _cursor(descriptor, cursor), permitted=permitted)
        records = await (self._receive(request) if request.destructive else self._read(request))
        return _received(records)[0]


def _cursor(descriptor: OpenQueueDescriptor, handle: int) -> Cursor:
    try:
        return descriptor.cursors[handle]
    except KeyError:
        raise InvalidArgument(f"cursor: there is no cursor {handle} on this queue") from None


def received(record: Record) -> ReceivedMessage:
    """A stored message as readers get it."""
    return ReceivedMessage(record.packet, record.lookup_id, record.arrived_ms, record.aborts, record.reason)


def _received(records: Sequence[Record]) -> list[ReceivedMessage]:
    return [*map(received, records)]
