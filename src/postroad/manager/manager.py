"""The queue manager as a running thing: the core of queues/, a store, an event loop and a clock, joined.

Every call that changes something returns once that is durable. Calls made at the same time share one commit. Everything
here runs on one event loop; the store's writer is the only other thread.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future as WriterFuture
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID, uuid4

from postroad.binary.service import BinaryService
from postroad.directory.snapshot import Directory
from postroad.directory.watch import DirectoryWatch
from postroad.errors import (
    InvalidArgument,
    NoRoute,
    OperationCancelled,
    QueueNotAvailable,
    StorageError,
    UnsupportedFormatNameOperation,
)
from postroad.manager.leases import LeaseService
from postroad.manager.troubles import Troubles
from postroad.message import Message
from postroad.names import FormatName, PathName, PublicName
from postroad.net.limits import Limits
from postroad.offsets import Offsets
from postroad.queues.carriers import Watcher
from postroad.queues.commits import Commits, Done
from postroad.queues.cursor import Cursor
from postroad.queues.descriptor import OpenQueueDescriptor, QueueAccess, ShareMode
from postroad.queues.info import ListenerInfo, ManagerInfo, QueueInfo, describe_manager
from postroad.queues.leases import THIS_PROCESS, Holder, LeaseTimes
from postroad.queues.local import PURGE_BATCH, LocalQueueManager, QueueManagerState
from postroad.queues.properties import MAX_QUOTA_KB
from postroad.queues.queue import Queue
from postroad.queues.reading import SeekAction
from postroad.queues.transacting import MOST_APART
from postroad.queues.transaction import Transaction
from postroad.queues.waiting import ReadCall, WaitingRead
from postroad.received import ReceivedMessage
from postroad.remote_read.server import RemoteReaders
from postroad.routing import Router
from postroad.runtime.logs import RateLimitedLog, place_of
from postroad.runtime.supervision import Running, Supervisor
from postroad.security.attempts import FailedLogins
from postroad.security.audit import AuditLog
from postroad.soap.service import SoapService
from postroad.status.report import Outlook
from postroad.status.search import Search
from postroad.store.interface import Batch, Record, Store
from postroad.store.memory import MemoryStore
from postroad.store.writer import Writer
from postroad.values.trace import Trace
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)

T = TypeVar("T")
Name = FormatName | PathName | str

IDENTITY_STATE = "manager"
TIMER_INTERVAL_S = 0.5
MOVE_BATCH = 1000
DESCRIBED_AT_ONCE = 100  # queues, between two turns of everybody else
FIRST_MESSAGE_IDS = 1 << 31  # where a new manager may begin to count; the other half of the ids is room to grow


@dataclass(frozen=True, slots=True)
class Locked:
    """Messages that a two-phase receive has locked, and the lease that keeps them so."""

    messages: list[ReceivedMessage]
    lease: UUID


class Manager:
    """Made with a store that is open and owned from now on; `start`, then use, then `stop`."""

    def __init__(
        self,
        name: str,
        store: Store,
        *,
        identifier: UUID | None = None,
        insecure_nacks: bool = False,
        quota_kb: int | None = None,
        lease_times: LeaseTimes = LeaseTimes(),  # noqa: B008  (it is frozen)
        clock: Callable[[], float] = time.time,
        audit: AuditLog | None = None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.audit = audit or AuditLog()
        self.logins = FailedLogins(self.audit)  # those of every door: guessing at one slows it at the others
        self.exposure: tuple[ListenerInfo, ...] = ()  # set by whoever opens listeners
        self.store = store
        self.identifier = identifier or _stored_identifier(store) or uuid4()
        self.core = LocalQueueManager(
            name,
            self.identifier,
            store,
            insecure_nacks=insecure_nacks,
            first_message_id=1 + secrets.randbelow(FIRST_MESSAGE_IDS),
            locate=self._locate,
            new_id=uuid4,
            express=MemoryStore(),  # its lock costs less than none in Python does
            apart=lambda: 1 + secrets.randbelow(MOST_APART),
        )
        self.core.delivery.quota_kb = None if quota_kb == MAX_QUOTA_KB else quota_kb
        self.offsets = Offsets(self.core, self._durably, clock)
        self.router = Router(self.identifier, Directory(), clock())
        self.watch: DirectoryWatch | None = None  # whoever sets it keeps the router up to date too
        self.started_at = 0.0
        self._writer = Writer(store)
        self._commits = Commits(self.core, clock, self._after, self._write)
        self.troubles = Troubles(self.core, self._commits, self._writer)
        self.leases = LeaseService(self.core, self._durably, clock, lease_times)
        self.leases.remote_locks = lambda now: self.remote_read.locks(now)
        self.binary: BinaryService | None = None  # set by whoever gives it a listener
        self.soap: SoapService | None = None  # the same
        self.remote_read: RemoteReaders = RemoteReaders()  # likewise
        self.limits = Limits()  # shared by all listeners; whoever starts them may put in others before
        self.supervisor = Supervisor()
        self._follow_ups = RateLimitedLog(log, "something that follows from a change failed: the change stands")
        self.core.watch(Watcher(follow_up_failed=self._log_follow_up))

    async def start(self) -> None:
        """Loads the queues; nothing of the backlog is read."""
        self._loop = asyncio.get_running_loop()
        self.started_at = self.clock()
        self.core.start(self.started_at)
        self.core.tick.set_state(IDENTITY_STATE, self.identifier.bytes)
        await self.durable()
        self.core.state = QueueManagerState.READY
        self.supervisor.keep("timers", self._run_timers)

    async def stop(self) -> None:
        """Aborts open transactions, commits what waits, and closes the store."""
        self.core.state = QueueManagerState.STOPPING
        await self.supervisor.stop()
        now = self.clock()
        for transaction in list(self.core.transactions.values()):
            self.core.abort(transaction, now)
        for queue in list(self.core.queues):
            for request in list(queue.waiting):
                self.core.reading.cancel(queue, request, OperationCancelled("the queue manager stops"))
        if express := sum(queue.express_count for queue in self.core.queues):
            log.warning("express messages dropped: they do not outlive the queue manager", extra={"messages": express})
        self.core.counters.settle(self.core.tick.batch)
        try:
            await self.durable()
        finally:
            await asyncio.to_thread(self._writer.close)
            self.store.close()
            self.core.state = QueueManagerState.STOPPED

    # The tick

    async def durable(self) -> None:
        """Returns when everything that was changed before this call is on disk; StorageError if it could not be."""
        promise = self._loop.create_future()
        self._commits.when_durable(lambda error: _settle(promise, None, error))
        await promise

    def _write(self, batch: Batch, done: Done) -> None:
        def written(future: WriterFuture[None]) -> None:  # on the writer's thread
            error = future.exception()
            if error is not None and not isinstance(error, StorageError):
                error = StorageError(f"the store failed: {error!r}")
            self._loop.call_soon_threadsafe(landed, error)

        def landed(error: StorageError | None) -> None:
            if self.store.no_room() is not None:  # what the last room was used for must not be followed by more
                self.troubles.look(self.clock())
            done(error)

        self._writer.submit(batch).add_done_callback(written)

    def _after(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_later(seconds, callback) if seconds else self._loop.call_soon(callback)

    def commit_soon(self) -> None:
        """Commits what has gathered, if anything has, without anybody waiting for it."""
        self._commits.soon()

    def when_durable(self, done: Callable[[BaseException | None], None], *, repeats: bool = False) -> None:
        """As Commits.when_durable, on a turn of the loop of its own: what fails in it is nobody else's fault."""
        self._commits.when_durable(lambda error: self._loop.call_soon(done, error), repeats=repeats)

    async def _durably(self, operation: Callable[[], T]) -> T:
        """Runs a change of the core; returns when it is durable, at once if it changed nothing that has to be."""
        result, changed = self._commits.run(operation)
        if changed:
            await self.durable()
        return result

    async def _run_timers(self, running: Running) -> None:
        while True:
            await asyncio.sleep(TIMER_INTERVAL_S)
            now = self.clock()
            try:
                self.core.run_timers(now)
                self.leases.run_timers(now)
                self.troubles.look(now)
            finally:
                self.commit_soon()
            running()

    def _locate(self, name: PublicName) -> UUID | None:
        try:
            return self.router.destination(name)
        except NoRoute:
            return None

    def _log_follow_up(self, message_id: str | None, error: Exception) -> None:
        facts = {"id": message_id, "error": repr(error), "at": place_of(error)}
        self._follow_ups.warn(self.clock(), facts)

    # Queues

    def info(self) -> ManagerInfo:
        return describe_manager(
            self.core,
            started_at_s=self.started_at,
            storage_error=self.storage_error,
            down=tuple(f"{name} is down: {why}" for name, why in self.supervisor.down.items()),
            directory_failures=0 if self.watch is None else self.watch.failures,
            directory_error=None if self.watch is None else self.watch.last_error,
            limits={each.name: each.figures for each in self.limits.all},
        )

    @property
    def storage_error(self) -> str | None:
        """What the last commit failed of, or why there is no room for more messages."""
        return self.core.delivery.full if self._commits.last_error is None else str(self._commits.last_error)

    def outlook(self) -> Outlook:
        """What can be told of queues, sessions and messages on their way, as it is now."""
        return Outlook(self.core, self.clock())

    def queues(self) -> list[QueueInfo]:
        """Every queue; journals and subqueues stand with their owner."""
        return list(self.outlook().describe_all())

    async def all_queues(self) -> list[QueueInfo]:
        """The same; others are served in between, however many there are."""
        found: list[QueueInfo] = []
        for info in self.outlook().describe_all():
            found.append(info)
            if not len(found) % DESCRIBED_AT_ONCE:
                await asyncio.sleep(0)
        return found

    def queue(self, name: Name) -> QueueInfo:
        return self._describe(self.core.queues.get(name))

    def _describe(self, queue: Queue) -> QueueInfo:
        return self.outlook().describe(queue)

    async def trace(self, message_id: str) -> Trace:
        """Where a message went, as far as is known here; others are served between two pages of messages."""
        search = Search(self.outlook(), message_id)
        for _ in search.pages():
            await asyncio.sleep(0)
        return search.trace()

    async def create_queue(self, path: str, **attributes: object) -> QueueInfo:
        queue = await self._durably(lambda: self.core.create_queue(path, self.clock(), **attributes))
        return self._describe(queue)

    async def set_queue(self, name: Name, **attributes: object) -> QueueInfo:
        """Changes properties of a queue that may change: label, journaling, quotas, limits."""
        queue = self.core.queues.get(name)
        await self._durably(lambda: self.core.change_queue(queue, self.clock(), **attributes))
        return self._describe(queue)

    async def delete_queue(self, name: Name) -> None:
        queue = self.core.queues.get(name)
        await self._durably(lambda: self.core.delete_queue(queue, self.clock()))

    async def purge_queue(self, name: Name) -> int:
        """How many messages went."""
        queue = self.core.queues.get(name)
        purged, step = 0, PURGE_BATCH
        while step == PURGE_BATCH:
            purged += (step := await self._durably(lambda: self.core.purge(queue, self.clock())))
        return purged

    def pause_queue(self, name: Name) -> QueueInfo:
        """[MS-MQDMPR] 3.1.4.14: an outgoing queue sends nothing until it is resumed."""
        queue = self._outgoing(name)
        self.core.pause(queue)
        return self._describe(queue)

    def resume_queue(self, name: Name) -> QueueInfo:
        """[MS-MQDMPR] 3.1.4.15"""
        queue = self._outgoing(name)
        self.core.resume(queue, self.clock())
        self.commit_soon()
        return self._describe(queue)

    def _outgoing(self, name: Name) -> Queue:
        queue = self.core.queues.get(name)
        if not queue.is_outgoing:
            raise UnsupportedFormatNameOperation(f"{queue.name} is not an outgoing queue: only those pause")
        return queue

    # Sending

    async def send(self, destination: Name, messages: Sequence[Message], transaction: UUID | None = None) -> list[str]:
        """The ids of the messages, in their order; for several destinations, those of each in turn."""
        held = self._used(transaction)
        ids = await self._durably(lambda: self.core.send(destination, messages, self.clock(), held))
        return self._identifiers(ids)

    def _identifiers(self, ids: Sequence[int]) -> list[str]:
        prefix = f"{{{self.identifier}}}\\"
        return [f"{prefix}{message_id}" for message_id in ids]

    async def send_transactional(self, destination: Name, messages: Sequence[Message]) -> list[str]:
        """All of the messages in a transaction of their own."""

        def send() -> list[str]:
            now = self.clock()
            transaction = self.core.begin()
            try:
                ids = self.core.send(destination, messages, now, transaction)
                self.core.commit(transaction, now)
            except BaseException:
                self.core.abort(transaction, now)
                raise
            return self._identifiers(ids)

        return await self._durably(send)

    # Reading

    async def receive(
        self, name: Name, count: int = 1, timeout: float | None = None, transaction: UUID | None = None
    ) -> list[ReceivedMessage]:
        """At least one message and at most `count`; waits for the first one up to `timeout` seconds, None for ever."""
        held = self._used(transaction)
        descriptor = self._open(name, QueueAccess.RECEIVE)
        try:
            request = WaitingRead(descriptor, ReadCall.RECEIVE, count, self._deadline(timeout), transaction=held)
            return _received(await self._receive(request))
        finally:
            self._close(descriptor)

    async def peek(
        self, name: Name, count: int = 1, timeout: float | None = None, after: int | None = None
    ) -> list[ReceivedMessage]:
        """Messages that stay where they are. With `after`, those behind that lookup id, at once."""
        descriptor = self._open(name, QueueAccess.PEEK)
        try:
            if after is not None:
                if count < 1:
                    raise InvalidArgument(f"count: {count} is not at least 1")
                return _received(self.core.delivery.fresh(self.core.queues.get(name), count, self.clock(), after))
            request = WaitingRead(descriptor, ReadCall.PEEK, count, self._deadline(timeout))
            return _received(await self._read(request))
        finally:
            self._close(descriptor)

    async def lookup(
        self,
        name: Name,
        lookup_id: int,
        action: SeekAction = SeekAction.CURRENT,
        *,
        receive: bool = False,
        transaction: UUID | None = None,
    ) -> ReceivedMessage:
        """One message by its lookup id, or the one before or behind it."""
        held = self._used(transaction)
        descriptor = self._open(name, QueueAccess.RECEIVE if receive else QueueAccess.PEEK)
        try:
            record = await self._durably(
                lambda: self.core.reading.read_by_lookup_id(
                    descriptor, lookup_id, action, self.clock(), peek=not receive, transaction=held
                )
            )
        finally:
            self._close(descriptor)
        return _received([record])[0]

    async def lock(
        self, name: Name, count: int = 1, timeout: float | None = None, holder: Holder = THIS_PROCESS
    ) -> Locked:
        """The first phase of a receive: the messages are nobody else's until `settle`, the end of their lease, or a
        restart."""
        descriptor = self._open(name, QueueAccess.RECEIVE)
        queue = descriptor.queue
        assert queue is not None
        try:
            request = WaitingRead(descriptor, ReadCall.RECEIVE, count, self._deadline(timeout), two_phase=True)
            records = await self._read(request)
        finally:
            self._close(descriptor)
        return Locked(_received(records), self.leases.lock(queue, records, holder))

    async def settle(
        self, name: Name, lookup_ids: Sequence[int], *, delete: bool, leases: Collection[UUID] | None = None
    ) -> None:
        """The second phase: the messages go, or return to their places. With `leases`, only messages of these."""
        queue = self.core.queues.get(name)
        records = self.leases.held(queue, lookup_ids, leases)

        def end() -> None:
            with self.core.delivery.atomic:
                for record in records:
                    self.core.reading.end(queue, record, self.clock(), delete=delete)
            self.leases.settled(queue, records)

        await self._durably(end)

    async def _receive(self, request: WaitingRead) -> list[Record]:
        """A destructive read. While it waits it is a two-phase one, so that a reader who leaves loses no message."""
        queue = request.descriptor.queue
        assert queue is not None
        if request.transaction is not None:
            return await self._read(request)
        request.two_phase = True
        records = await self._read(request)

        def end() -> None:
            try:
                with self.core.delivery.atomic:
                    for record in records:
                        self.core.reading.end(queue, record, self.clock(), delete=True)
            except BaseException:  # nobody has received any of them
                for record in records:
                    self.core.reading.put_back(queue, record, self.clock())
                raise

        await self._durably(end)
        return records

    async def _read(self, request: WaitingRead) -> list[Record]:
        future: asyncio.Future[list[Record]] = self._loop.create_future()
        request.satisfied = lambda records: _settle(future, records)
        request.failed = lambda error: _settle(future, [], error)
        queue = request.descriptor.queue
        if queue is None:
            raise QueueNotAvailable("the queue was deleted while it was open: close it and open it again")
        try:
            records = self.core.reading.read(request, self.clock())
        finally:
            if self.core.tick:
                self._commits.hurry()  # messages whose time was over went on the way
        if records is not None:
            return records
        alarm = None
        if request.deadline is not None:
            wait = max(0.0, request.deadline - self.clock())
            alarm = self._loop.call_later(wait, lambda: self.core.reading.expire_waits(queue, self.clock()))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.core.reading.cancel(queue, request, OperationCancelled("the reader left"))
            if future.done() and not future.cancelled() and future.exception() is None and request.two_phase:
                for record in future.result():
                    self.core.reading.put_back(queue, record, self.clock())
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            return None
        if timeout < 0:
            raise InvalidArgument(f"timeout: {timeout} seconds is negative; 0 does not wait, and none waits for ever")
        return self.clock() + timeout if timeout else 0.0

    # Handles and cursors

    def _open(self, name: Name, access: QueueAccess, share: ShareMode = ShareMode.DENY_NONE) -> OpenQueueDescriptor:
        """Who looks at messages on their way elsewhere is taken for an administrator; nobody here can receive them."""
        if access is QueueAccess.PEEK and (queue := self.core.queues.find(name)) is not None and queue.is_outgoing:
            access = QueueAccess.PEEK_ADMIN
        return self.core.open(name, access, share, self.clock())

    def _close(self, descriptor: OpenQueueDescriptor) -> None:
        if not descriptor.closed:
            self.core.close(descriptor)

    def open_queue(self, name: Name, access: QueueAccess, share: ShareMode = ShareMode.DENY_NONE) -> int:
        """A handle that keeps others out, if asked to, and that cursors belong to."""
        handle = self._open(name, access, share).handle
        self.leases.use_handle(handle)
        return handle

    def _descriptor(self, handle: int) -> OpenQueueDescriptor:
        descriptor = self.core.descriptor(handle)
        self.leases.use_handle(handle)
        return descriptor

    def close_queue(self, handle: int) -> None:
        self.core.close(self._descriptor(handle))

    def open_cursor(self, handle: int) -> int:
        return self.core.open_cursor(self._descriptor(handle)).handle

    def close_cursor(self, handle: int, cursor: int) -> None:
        descriptor = self._descriptor(handle)
        self.core.close_cursor(descriptor, self._cursor(descriptor, cursor))

    async def read_cursor(
        self, handle: int, cursor: int, call: ReadCall, timeout: float | None = None
    ) -> ReceivedMessage:
        """Peek at the cursor, peek behind it, or receive at it."""
        descriptor = self._descriptor(handle)
        request = WaitingRead(descriptor, call, 1, self._deadline(timeout), self._cursor(descriptor, cursor))
        records = await (self._receive(request) if request.destructive else self._read(request))
        return _received(records)[0]

    @staticmethod
    def _cursor(descriptor: OpenQueueDescriptor, handle: int) -> Cursor:
        try:
            return descriptor.cursors[handle]
        except KeyError:
            raise InvalidArgument(f"cursor: there is no cursor {handle} on this queue") from None

    # Transactions

    def begin(self, holder: Holder = THIS_PROCESS) -> UUID:
        return self.leases.begin(self.core.begin(), holder)

    async def commit(self, identifier: UUID) -> None:
        transaction = self.leases.transaction(identifier)
        await self._durably(lambda: self.core.commit(transaction, self.clock()))

    async def abort(self, identifier: UUID) -> None:
        """Messages are back in their places when this returns; their abort counts become durable with the next tick."""
        transaction = self.leases.transaction(identifier)
        await self._durably(lambda: self.core.abort(transaction, self.clock()))

    def _used(self, identifier: UUID | None) -> Transaction | None:
        return None if identifier is None else self.leases.transaction(identifier)

    # Rescue

    async def move(
        self,
        name: Name,
        target: Name,
        lookup_ids: Sequence[int] | None = None,
        *,
        limit: int = MOVE_BATCH,
        after: int = -1,
    ) -> list[int]:
        """Moves these messages, or up to `limit` from behind `after` on; the lookup ids they had. One commit."""
        queue = self.core.queues.get(name)
        to = self.core.queues.get(target)
        if queue is to:
            raise InvalidArgument(f"target: {target} is the queue that the messages are in")
        if lookup_ids is None:
            records = self.core.delivery.fresh(queue, limit, self.clock(), after)
        else:
            records = [
                self.core.reading.seek(queue, lookup_id, SeekAction.CURRENT, peek=False)
                for lookup_id in dict.fromkeys(lookup_ids)
            ]
        await self._durably(lambda: self.core.move(queue, to, records, self.clock()))
        return [record.lookup_id for record in records]

    async def insert(self, name: Name, packets: Sequence[bytes]) -> list[int]:
        """Puts whole packets into a local queue, as an import does: byte for byte, nothing acknowledged."""
        queue = self.core.queues.get(name)
        views = [MessageView(packet) for packet in packets]
        return await self._durably(lambda: self.core.insert(queue, views, self.clock()))


def _stored_identifier(store: Store) -> UUID | None:
    stored = store.state(IDENTITY_STATE).get(IDENTITY_STATE)
    return UUID(bytes=stored) if stored else None


def _received(records: Sequence[Record]) -> list[ReceivedMessage]:
    return [ReceivedMessage(each.packet, each.lookup_id, each.arrived_ms, each.aborts, each.reason) for each in records]


def _settle(future: asyncio.Future[T], result: T, error: BaseException | None = None) -> None:
    """Whoever waits hears how it ended, unless he has left."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
