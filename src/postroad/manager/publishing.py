"""Keeps the directory up to date with this manager: its own object, and its public queues before they change here.

[MS-MQDMPR] 3.1.7.1.3, 3.1.7.1.4, 3.1.7.1.18, 3.1.7.1.19 and 3.1.7.1.24. The directory is asked in a thread, one call
at a time. What a crash or an outage has left undone is done at the next start or by `run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import UUID

from postroad.directory.publisher import OwnObject, Publisher, queue_values
from postroad.errors import AccessDenied, DirectoryError, LdapError, LimitReached, PostroadError, QueueNotFound
from postroad.manager.durable import DurableCore
from postroad.message import Composer, Message
from postroad.names import PathName, PrivateName, PublicName
from postroad.names.format import NOTIFY_QUEUE, NOTIFY_QUEUE_NUMBER
from postroad.queues.permissions import OWN, descriptor_of
from postroad.queues.properties import CHANGEABLE, QueueProperties, QueueType
from postroad.queues.queue import Queue
from postroad.runtime.supervision import Running, Supervisor
from postroad.wire.change_notifications import ChangeEvent, ChangeNotification
from postroad.wire.octets import NULL_GUID
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)

TASK: Final = "publishing"
DELETED_STATE = "published/deleted/"  # public queues that are deleted here, and perhaps not yet in the directory
MAX_GONE = 100_000  # deleted queues that a directory read before may still have
MAX_WAITING = 1000  # callers that wait for the directory: each may wait for its time-out, and nobody would wait longer
RETRY_S = 120.0  # [MS-MQDMPR] 3.1.3 InitializationRetryTimerDuration
NOTIFICATION_S = 300  # [MS-MQCN] 3.3.5.3 TimeToReachQueue
REFRESH_S = 60.0  # between two refreshes because of notifications: anybody can send one
NOTIFY_QUOTA_KB = 1024  # of the notification queue: anybody may fill it
_AT_ONCE = 100  # [MS-MQCN] note 3: of more than these, each asks for the same refresh


class Publishing:
    """Made by the server for a manager that has joined. `own` says what to write about the manager, `server` names the
    domain in notifications, and `refresh` reads the directory soon."""

    def __init__(
        self,
        durable: DurableCore,
        publisher: Publisher,
        own: Callable[[], OwnObject],
        written: OwnObject | None,
        server: str,
        refresh: Callable[[], object],
    ) -> None:
        """`written` is what the directory has of the manager; None if it could not be asked."""
        self._core = durable.core
        self._durably = durable.durably
        self._clock = durable.clock
        self._publisher = publisher
        self._own = own
        self._server = server
        self._refresh = refresh
        self._refresh_at = 0.0
        self._refresh_wanted = False
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._wanted = asyncio.Event()
        self._written = written
        self._pending: dict[UUID, None] = {
            UUID(each.removeprefix(DELETED_STATE)): None for each in self._core.store.state(DELETED_STATE)
        }
        self._gone: dict[UUID, None] = dict(self._pending)
        self._missing: dict[UUID, None] = {}  # public queues here that the directory lacks, as the log has said
        self._changes = 0
        self._changed: dict[UUID, int] = {}  # by id: the number of the last change

    # Public queues

    async def create(self, path: PathName, **attributes: object) -> Queue:
        """Creates a public queue: in the directory first, and then here under the id that the directory chose."""
        planned = self._core.queues.planned(path, int(self._clock()), **attributes)
        return await asyncio.shield(self._create(path, planned, attributes))

    async def _create(self, path: PathName, planned: QueueProperties, attributes: dict[str, object]) -> Queue:
        async with self._asked():
            self._core.queues.planned(path, int(self._clock()), **attributes)  # another caller may have been faster
            await self._notify(ChangeEvent.QUEUE_CREATION, NULL_GUID)
            descriptor = descriptor_of(planned.acl)
            identifier = await asyncio.to_thread(
                self._publisher.create_queue,
                self._core.identifier,
                path.tail.name,
                planned,
                planned.type_id,
                descriptor,
            )
            try:
                return await self._durably(lambda: self._create_here(path, identifier, attributes))
            except PostroadError:
                await self._delete(identifier, path.tail.name)
                raise

    def _create_here(self, path: PathName, identifier: UUID, attributes: dict[str, object]) -> Queue:
        now = self._clock()
        queue = self._core.queues.find(PublicName(identifier))
        if queue is None:
            queue = self._core.create_queue(path, now, identifier=identifier, **attributes)
        else:  # a refresh has seen it in the directory and was faster
            changes = {name: value for name, value in attributes.items() if name in CHANGEABLE}
            self._core.change_queue(queue, now, **changes)
        self._note_change(identifier)
        return queue

    async def change(self, queue: Queue, make: Callable[[], dict[str, object]]) -> None:
        """Changes a public queue: in the directory first, and then here. `make` gives the properties, once it is this
        caller's turn."""
        await asyncio.shield(self._change(queue, make))

    async def _change(self, queue: Queue, make: Callable[[], dict[str, object]]) -> None:
        async with self._asked():
            _check_exists(queue)
            attributes = make()
            properties, _ = self._core.queues.planned_change(queue, int(self._clock()), **attributes)
            values = queue_values(properties, new=False) != queue_values(queue.properties, new=False)
            acl = properties.acl != queue.properties.acl
            identifier = queue.properties.identifier
            self._note_change(identifier)
            if values or acl:
                found = await asyncio.to_thread(
                    self._publisher.write_queue,
                    self._core.identifier,
                    identifier,
                    properties if values else None,
                    descriptor_of(properties.acl) if acl else None,
                )
                if found:
                    await self._notify(ChangeEvent.QUEUE_UPDATE, identifier)
                else:
                    self._note_missing(queue)
            await self._durably(lambda: self._change_here(queue, attributes))
            self._note_change(identifier)

    def _change_here(self, queue: Queue, attributes: dict[str, object]) -> None:
        _check_exists(queue)
        self._core.change_queue(queue, self._clock(), **attributes)

    async def delete(self, queue: Queue) -> None:
        """Deletes a public queue: here first, [MS-MQDMPR] 3.1.7.1.4. If the directory refuses or does not answer, the
        error goes to the caller, and the manager tries again until the queue is gone there too."""
        await asyncio.shield(self._delete_both(queue))

    async def _delete_both(self, queue: Queue) -> None:
        identifier = queue.properties.identifier

        def delete() -> None:
            _check_exists(queue)
            self._core.delete_queue(queue, self._clock())
            self._core.tick.set_state(f"{DELETED_STATE}{identifier}", b"1")
            self._pending[identifier] = None
            self._forget(identifier)

        async with self._asked():
            await self._durably(delete)
            await self._notify(ChangeEvent.QUEUE_DELETION, identifier)
            try:
                await self._finish(identifier)
            except PostroadError as fault:
                sentence = f"{queue.name} is deleted here, but not yet in the directory, which is tried again: {fault}"
                if isinstance(fault, LdapError):
                    raise LdapError(fault.fault, sentence, fault.code) from fault
                raise (AccessDenied if isinstance(fault, AccessDenied) else DirectoryError)(sentence) from fault

    async def _finish(self, identifier: UUID) -> None:
        """Deletes in the directory what is deleted here."""
        await asyncio.to_thread(self._publisher.delete_queue, self._core.identifier, identifier)
        await self._durably(lambda: self._core.tick.set_state(f"{DELETED_STATE}{identifier}", None))
        self._pending.pop(identifier, None)

    async def _delete(self, identifier: UUID, name: str) -> None:
        """Takes back what was created for a queue that could not be created here."""
        self._forget(identifier)
        try:
            await asyncio.to_thread(self._publisher.delete_queue, self._core.identifier, identifier)
        except PostroadError as fault:
            self._gone.pop(identifier, None)  # the next refresh creates it here
            log.error("queue created in the directory only", extra={"queue": name, "reason": fault})

    def _forget(self, identifier: UUID) -> None:
        """Notes that the queue was deleted here. An id never comes back."""
        self._gone[identifier] = None
        if len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _note_change(self, identifier: UUID) -> None:
        self._changes += 1
        self._changed.pop(identifier, None)
        self._changed[identifier] = self._changes
        if len(self._changed) > MAX_GONE:
            del self._changed[next(iter(self._changed))]

    def mark(self) -> int:
        """The moment before the directory is read, for `is_newer`."""
        return self._changes

    def is_newer(self, identifier: UUID | None, mark: int) -> bool:
        """Whether a public queue was deleted or changed here since the mark: a directory that was read after the mark
        may know it as it was before."""
        return identifier is not None and (identifier in self._gone or self._changed.get(identifier, 0) > mark)

    def compare(self, found: Collection[UUID | None], mark: int) -> None:
        """Logs public queues that are not among those `found` in the directory, which was read after the mark. They
        stay, since somebody may want their messages."""
        for queue in self._core.queues:
            identifier = queue.properties.identifier
            if queue.properties.queue_type is QueueType.PUBLIC and not self.is_newer(identifier, mark):
                if identifier in found:
                    self._missing.pop(identifier, None)
                elif identifier not in self._missing:
                    self._note_missing(queue)

    def _note_missing(self, queue: Queue) -> None:
        self._missing[queue.properties.identifier] = None
        log.warning(
            "the directory does not have this public queue",
            extra={"queue": queue.name, "do": "delete it, and create it again if others must find it"},
        )

    # The manager's own object

    def wake(self) -> None:
        """Something about the manager has changed, such as its keys."""
        self._wanted.set()

    async def run(self, supervisor: Supervisor, running: Running) -> None:
        """Keeps the manager's own object up to date, and tries again what the directory has refused."""
        while True:
            try:
                await self._keep_up()
                running()
            except PostroadError as fault:
                supervisor.fails(TASK, fault)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), RETRY_S)
            self._wanted.clear()

    async def _keep_up(self) -> None:
        own = self._own()
        if own != self._written:
            async with self._asked():
                await asyncio.to_thread(self._publisher.join, own, self._core.identifier, empty=False)
                self._written = own
                await self._notify(ChangeEvent.QUEUE_MANAGER_UPDATE, self._core.identifier)
        for identifier in list(self._pending):
            async with self._asked():
                await self._finish(identifier)

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[None]:
        """One caller at a time asks the directory."""
        if self._waiting >= MAX_WAITING:
            raise LimitReached(
                f"{self._waiting} callers wait for the directory already: try again later", "the domain controller"
            )
        self._waiting += 1
        try:
            async with self._turn:
                yield
        except LdapError as fault:
            if fault.code is None:  # no controller has answered: the next read notes that the directory is offline
                self._refresh()
            raise
        finally:
            self._waiting -= 1

    # Change notifications, [MS-MQCN]

    async def _notify(self, event: ChangeEvent, identifier: UUID) -> None:
        """Send Change Notification, 3.3.4.1, to the manager that owns the object: this one."""

        def put() -> None:
            now, queue = self._clock(), self._core.queues.get(NOTIFY_QUEUE)
            destination = PrivateName(self._core.identifier, NOTIFY_QUEUE_NUMBER)
            body = ChangeNotification(event, identifier, self._server).encode()
            message = Message(body, time_to_reach_queue=NOTIFICATION_S)
            composer = Composer(self._core.identifier, destination, manager=self._core.identifier)
            packet = composer.compose(message, self._core.counters.next_message_id(), int(now))
            expires_s = self._core.delivery.expiry(queue, packet, now)
            self._core.delivery.write(queue, packet, OWN, now, priority=message.priority, expires_s=expires_s)

        with suppress(PostroadError):  # it only tells what the next refresh sees anyway
            await self._durably(put)

    def take_notifications(self, now: float) -> None:
        """Reads what has come to the notification queue. Anybody may have sent it: it changes nothing, and makes the
        manager ask the directory at most once in REFRESH_S."""
        queue = self._core.queues.get(NOTIFY_QUEUE)
        if queue.count:
            records = queue.available(_AT_ONCE)
            self._refresh_wanted |= any(self._concerns_us(record.packet) for record in records)
            self._core.purge(queue, now)
        if self._refresh_wanted and not 0 < self._refresh_at - now <= REFRESH_S:
            self._refresh_wanted = False
            self._refresh_at = now + REFRESH_S
            self._refresh()

    def _concerns_us(self, packet: bytes) -> bool:
        try:
            notification = ChangeNotification.decode(bytes(MessageView(packet).body))
        except PostroadError:
            return False
        match notification.event:
            case ChangeEvent.QUEUE_CREATION:
                return True
            case ChangeEvent.QUEUE_MANAGER_UPDATE:
                return notification.object_guid == self._core.identifier
        return self._core.queues.find(PublicName(notification.object_guid)) is not None


def _check_exists(queue: Queue) -> None:
    """While a caller waits for its turn, another may have deleted the queue."""
    if queue.deleted:
        raise QueueNotFound(f"there is no queue {queue.name} any longer")
