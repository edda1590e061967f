"""The running queue manager: joins the core of queues/, a store, an event loop and a clock.

Every call that changes something returns once the change is durable. Concurrent calls share one commit. Everything here
runs on one event loop; the store's writer is the only other thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

from postroad.directory.watch import Watch
from postroad.errors import (
    DirectoryError,
    IllegalIdentifier,
    InvalidArgument,
    OperationCancelled,
    PostroadError,
    StorageError,
    UnsupportedFormatNameOperation,
)
from postroad.manager.access_lists import AccessLists
from postroad.manager.backup import Backups
from postroad.manager.doors import Doors
from postroad.manager.durable import DurableCore
from postroad.manager.keys import Keys
from postroad.manager.leases import LeaseService
from postroad.manager.lookups import Lookups
from postroad.manager.offsets import Offsets
from postroad.manager.outlook import Outlook, describe_manager
from postroad.manager.publishing import NOTIFY_QUOTA_KB, Publishing
from postroad.manager.publishing import TASK as PUBLISHING
from postroad.manager.reads import Name, Reads
from postroad.manager.rescue import Rescue
from postroad.manager.standing import Standing
from postroad.manager.trace import Search
from postroad.message import Message
from postroad.names import PathName, QueueKind, parse_name
from postroad.names.format import NOTIFY_QUEUE
from postroad.net.limits import Limits
from postroad.queues.leases import THIS_PROCESS, Holder
from postroad.queues.local import PURGE_MORE, TRUSTED, LocalQueueManager, QueueManagerState
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.properties import QueueType
from postroad.queues.queue import Queue
from postroad.reports.info import DirectoryState, ManagerInfo, QueueInfo, SessionInfo
from postroad.reports.operations import Destination, Resolution
from postroad.reports.trace import Trace
from postroad.routing import Router
from postroad.runtime.deadlines import Source
from postroad.runtime.supervision import Supervisor
from postroad.security.access import Token, default_queue_descriptor
from postroad.security.attempts import FailedLogins
from postroad.security.audit import AuditLog
from postroad.security.descriptors import Sid
from postroad.security.sddl import format_sddl
from postroad.store.interface import Store
from postroad.validation.queue_properties import NO_BASE_PRIORITY

log = logging.getLogger(__name__)

IDENTITY_STATE = "manager"
NAME_STATE = "manager/name"
TIMER_INTERVAL_S = 0.5
DESCRIBED_AT_ONCE = 100  # queues, before other tasks get a turn


class Manager(DurableCore):
    """A queue manager. It takes over an open store. Call `start` before use and `stop` at the end. `build_manager`
    makes one."""

    def __init__(
        self,
        core: LocalQueueManager,
        store: Store,
        clock: Callable[[], float],
        *,
        router: Router,
        watch: Watch | None,
        keys: Keys,
        audit: AuditLog,
        limits: Limits,
        metrics_queues: int,
        lookups: Lookups | None = None,
        standing: Standing | None = None,
    ) -> None:
        """`watch` rereads the router's directory, if there is one, and `lookups` asks for accounts of the domain. All
        listeners share `limits`. `metrics_queues` is how many queues have metrics of their own."""
        super().__init__(core, store, clock, standing)
        self.name = core.name
        self.identifier = core.identifier
        self.router = router
        self.watch = watch
        self.keys = keys
        keys.commit_by(self.durably)
        self.lookups = lookups
        self.audit = audit
        self.limits = limits
        self.metrics_queues = metrics_queues
        self.doors = Doors()
        self.logins = FailedLogins(audit)  # for all interfaces: guessing at one slows down the others
        self.leases = LeaseService(self, lambda now: self.doors.remote_read.locks(now))
        self.reads = Reads(self, self.leases)
        self.rescue = Rescue(self)
        self.access_lists = AccessLists(self, self.change_properties, lookups)
        self.offsets = Offsets(core, self.durably, clock)
        self.backups = Backups(self)
        self.supervisor = Supervisor()
        self.publishing: Publishing | None = None  # until `publish`
        self.started_at = 0.0
        core.watch(Watcher(removed=core.departures.removed))

    async def start(self) -> None:
        """Loads the queues without reading their messages."""
        self.drive(loop := asyncio.get_running_loop())
        self.started_at = self.clock()
        self.core.start(self.started_at)
        await self.write_identifier()
        self.core.enter(QueueManagerState.READY)
        for work in (
            lambda now: self.core.run_timers(now),
            lambda now: self.core.retention.run_timers(now),
            lambda now: self.leases.run_timers(now),
            lambda now: self.keys.cleanup(),
            lambda now: self.troubles.look(now),
            lambda now: self.audit.run_timers(now),
            lambda now: None if self.publishing is None else self.publishing.take_notifications(now),
        ):
            self._every(TIMER_INTERVAL_S, work)
        self.core.deadlines.drive(loop, self.clock, self.commit_soon, self.supervisor)
        if self.lookups is not None:
            self.supervisor.keep("accounts", partial(self.lookups.run, changed=self._accounts_changed))

    async def write_identifier(self) -> None:
        """Tests the store with a small write. Raises StorageError if that fails."""
        await self.durably(lambda: self.core.tick.set_state(IDENTITY_STATE, self.identifier.bytes))

    def publish(self, publishing: Publishing) -> None:
        """From now on, public queues are created, changed and deleted in the directory too."""
        self.publishing = publishing
        self.core.queues.expect_notifications()
        queue = self.core.queues.get(NOTIFY_QUEUE)
        if queue.properties.quota_kb != NOTIFY_QUOTA_KB:
            self.core.change_queue(queue, self.clock(), quota_kb=NOTIFY_QUOTA_KB)
            self.commit_soon()
        self.keys.watch(publishing.wake)
        self.supervisor.keep(PUBLISHING, partial(publishing.run, self.supervisor))

    async def stop(self) -> None:
        """Aborts open transactions, commits what is left, and closes the store."""
        self.core.enter(QueueManagerState.STOPPING)
        self.core.deadlines.stop()
        await self.supervisor.stop()
        if self.lookups is not None:
            self.lookups.stop()
        now = self.clock()
        for transaction in list(self.core.transactions.values()):
            self.core.abort(transaction, now)
        for queue in list(self.core.queues):
            for request in list(queue.waiting):
                self.core.reading.cancel(queue, request, OperationCancelled("the queue manager stops"))
        if express := sum(queue.express_count for queue in self.core.queues if not queue.is_internal):
            log.warning("express messages dropped at stop", extra={"messages": express})
        try:
            await self.close_store()
        finally:
            self.core.enter(QueueManagerState.STOPPED)

    def _every(self, seconds: float, work: Callable[[float], object]) -> None:
        """Repeats work that finds out itself what is due. Each work has its own entry, so a failure stops no other."""

        def run_timers(keys: list[None], now: float) -> None:
            if self.standing.stalled() is None:  # otherwise the work would only fail
                work(now)
            source.set(None, now + seconds)

        source: Source[None] = self.core.deadlines.source("timers", run_timers)
        source.set(None, self.clock() + seconds)

    # Accounts of the domain

    def _accounts_changed(self) -> None:
        """Ends what somebody has begun who may no longer do it, and forgets signatures that were checked."""
        protection = self.core.protection
        protection.use_certificates(protection.certificates)
        self.core.review(list(self.core.queues), self.clock())
        self.commit_soon()

    async def know_senders(self, packets: Iterable[bytes]) -> None:
        """Returns once the directory has said what it knows of the senders that these packets name."""
        if self.lookups is not None:
            await self.lookups.know_senders(packets)

    def _is_unknown(self, message: Message) -> bool:
        """Whether the directory should be asked for the message's sender before it is sent."""
        sid = None if message.signature is None else message.signature.sender_id
        return self.lookups is not None and isinstance(sid, str) and self.lookups.accounts.is_due(Sid.parse(sid))

    async def _know_signers(self, messages: Sequence[Message]) -> None:
        if self.lookups is not None:
            named = (each.signature.sender_id for each in messages if each.signature is not None)
            await self.lookups.know({Sid.parse(each) for each in named if isinstance(each, str)})

    async def registered_sid(self, certificate: bytes) -> str | None:
        """The SID that a certificate is registered for: here, or in the directory."""
        found = next((sid for sid, known in self.core.protection.certificates.items() if certificate in known), None)
        if found is not None or self.lookups is None or not certificate:
            return found
        try:
            account = await self.lookups.certified(certificate)
        except DirectoryError:
            return None
        return None if account is None else str(account.sid)

    async def names_of(self, identifiers: Iterable[str]) -> dict[str, str]:
        """The names of users, accounts and queue managers by their SIDs and GUIDs, as far as they are known."""
        given = list(identifiers)
        sids: dict[str, Sid] = {}
        for text in given:
            with suppress(IllegalIdentifier):
                sids[text] = Sid.parse(text)
        if self.lookups is not None:
            users = self.core.access.users
            await self.lookups.know([sid for sid in sids.values() if users.with_sid(sid) is None])
        named = {text: self.name_of(sids[text]) if text in sids else self._manager_name(text) for text in given}
        return {text: name for text, name in named.items() if name is not None}

    def name_of(self, sid: Sid) -> str | None:
        """The name of a user or account, as far as it is known without a wait."""
        user = self.core.access.users.with_sid(sid)
        if user is not None or self.lookups is None:
            return None if user is None else user.name
        return self.lookups.accounts.name(sid)

    def _manager_name(self, identifier: str) -> str | None:
        try:
            return self.router.manager_name(UUID(identifier))
        except ValueError:
            return None

    # Queues

    def info(self) -> ManagerInfo:
        return describe_manager(
            self.core,
            started_at_s=self.started_at,
            storage_error=self.storage_error,
            down=tuple(f"{name} is down: {why}" for name, why in self.supervisor.down.items()),
            directory=self.directory_state(),
            accounts_error=None if self.lookups is None else self.lookups.problem,
            limits={each.name: each.figures for each in self.limits.all} | self.core.owners.figures,
            multicast=None if self.doors.multicast is None else self.doors.multicast.info(),
            amqp=None if self.doors.amqp is None else self.doors.amqp.info(),
            disk=dict(self.store.disk_use()),
            publishes=self.publishing is not None,
            store=self.standing.report(),
        )

    def directory_state(self) -> DirectoryState | None:
        """Where the directory comes from."""
        watch = self.watch
        if watch is None:
            return None
        age_s = max(0.0, round(self.clock() - watch.read_at_s, 1))
        return DirectoryState(watch.kind, watch.source, watch.online, age_s, watch.failures, watch.last_error)

    def outlook(self) -> Outlook:
        """Describes queues, sessions and messages under way, as of now."""
        return Outlook(self.core, self.clock(), self.leases.core)

    def sessions(self) -> list[SessionInfo]:
        """Every session, with the name of its peer where the directory has it."""
        found = self.outlook().sessions()
        return [each if each.peer is None else replace(each, peer_name=self._manager_name(each.peer)) for each in found]

    def queues(self) -> list[QueueInfo]:
        """Every queue. Journals and subqueues are parts of their owner."""
        return list(self.outlook().describe_all())

    async def all_queues(self) -> list[QueueInfo]:
        """Every queue, described in steps between which other tasks run."""
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
        """Where a message went, as far as this manager knows. Other tasks run between pages of messages."""
        search = Search(self.outlook(), message_id, self.router.manager_name)
        for _ in search.pages():
            await asyncio.sleep(0)
        return search.trace()

    async def create_queue(self, path: str, *, owner: Sid | None = None, **attributes: object) -> QueueInfo:
        """Creates a queue. `owner` is the user who owns it, [MS-MQDMPR] 3.1.7.1.3.1; None stands for the
        administrators. With an `identifier`, the directory has the queue already."""
        parsed = PathName.parse(path)
        if parsed.tail.kind is not QueueKind.PUBLIC:
            _refuse_base_priority(attributes)
        if owner is not None:
            attributes["acl"] = format_sddl(default_queue_descriptor(owner))
        identifier = attributes.pop("identifier", None)
        if parsed.tail.kind is QueueKind.PUBLIC and self.publishing is not None and identifier is None:
            return self._describe(await self.publishing.create(parsed, **attributes))
        if identifier is not None:
            attributes["identifier"] = identifier
        queue = await self.durably(lambda: self.core.create_queue(path, self.clock(), **attributes))
        return self._describe(queue)

    async def set_queue(self, name: Name, **attributes: object) -> QueueInfo:
        """Changes the properties of a queue that can change: label, journal, quotas, limits."""
        queue = self.core.queues.get(name)
        if queue.properties.queue_type is not QueueType.PUBLIC:
            _refuse_base_priority(attributes)
        await self.change_properties(queue, lambda: attributes)
        return self._describe(queue)

    async def follow_directory(self, name: Name, **attributes: object) -> QueueInfo:
        """Changes a public queue as the directory has it, which is not told again."""
        queue = self.core.queues.get(name)
        await self.durably(lambda: self.core.change_queue(queue, self.clock(), **attributes))
        return self._describe(queue)

    async def change_properties(self, queue: Queue, make: Callable[[], dict[str, object]]) -> None:
        """Changes properties of a queue, its access list included, in the directory too if it is published there."""
        if self.publishing is not None and queue.properties.queue_type is QueueType.PUBLIC:
            await self.publishing.change(queue, make)
        else:
            await self.durably(lambda: self.core.change_queue(queue, self.clock(), **make()))

    async def delete_queue(self, name: Name) -> None:
        queue = self.core.queues.get(name)
        if self.publishing is not None and queue.properties.queue_type is QueueType.PUBLIC:
            await self.publishing.delete(queue)
        else:
            await self.durably(lambda: self.core.delete_queue(queue, self.clock()))

    async def purge_queue(self, name: Name) -> int:
        """Deletes the messages of a queue. Returns how many."""
        queue = self.core.queues.get(name)
        purged, step = 0, PURGE_MORE
        while step >= PURGE_MORE:
            purged += (step := await self.durably(lambda: self.core.purge(queue, self.clock())))
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
            raise UnsupportedFormatNameOperation(f"only an outgoing queue can pause, got {queue.name}")
        return queue

    # Sending

    async def resolve(self, destination: Name, names: Sequence[Name], certificate: bytes) -> Resolution:
        """What an application must know to sign a message itself. Sends nothing and makes no queue."""
        return resolution(self.core, destination, names, await self.registered_sid(certificate))

    async def send(
        self,
        destination: Name,
        messages: Sequence[Message],
        transaction: UUID | None = None,
        token: Token = TRUSTED,
    ) -> list[str]:
        """Sends messages. Returns their ids in order; for several destinations, those of each destination in turn.
        `token` is who sends."""
        if any(each.encrypt is not None for each in messages):
            destination = self._with_keys(destination)
            await self.keys.prepare(destination, messages)
        await self._know_signers(messages)
        held = None if transaction is None else self.leases.used(transaction)
        ids = await self.durably(lambda: self.core.send(destination, messages, self.clock(), held, token))
        return self._identifiers(ids)

    def _with_keys(self, destination: Name) -> Name:
        """The name by which the directory knows the keys of the destination, if a path alone would not tell them."""
        name = parse_name(destination) if isinstance(destination, str) else destination
        if not isinstance(name, PathName) or self.core.queues.is_local(name):
            return destination
        return self.router.public_name(name) or destination

    def send_then(
        self,
        destination: Name,
        messages: Sequence[Message],
        token: Token,
        done: Callable[[list[str], StorageError | None], object],
    ) -> bool:
        """Like `send`, for callers without a coroutine. Calls `done` at once, or in the callback of the commit. Returns
        False, and sends nothing, if the send must wait for anything else."""
        if any(each.encrypt is not None or self._is_unknown(each) for each in messages):
            return False
        self.change_then(
            lambda: self.core.send(destination, messages, self.clock(), None, token),
            lambda ids, error: done(self._identifiers(ids), error),
        )
        return True

    async def send_each(
        self, destination: Name, messages: Sequence[Message], token: Token = TRUSTED
    ) -> list[str | PostroadError]:
        """Sends messages that succeed or fail one by one, in one commit. Returns the id or the error of each; for
        several destinations, the id for the first."""
        try:
            if not any(map(_reports_refusal, messages)):
                return [*(await self.send(destination, messages, None, token))[: len(messages)]]
        except StorageError as error:
            return [error for _ in messages]
        except PostroadError:
            pass  # one is refused: find out which

        async def send(message: Message) -> str | PostroadError:
            try:
                return (await self.send(destination, [message], None, token))[0]
            except PostroadError as error:
                return error

        return await asyncio.gather(*map(send, messages))

    async def send_transactional(
        self, destination: Name, messages: Sequence[Message], token: Token = TRUSTED
    ) -> list[str]:
        """Sends all messages in a new transaction."""
        if any(each.encrypt is not None for each in messages):
            destination = self._with_keys(destination)
            await self.keys.prepare(destination, messages)
        await self._know_signers(messages)
        ids = await self.durably(lambda: self.core.send_transactional(destination, messages, self.clock(), token))
        return self._identifiers(ids)

    def _identifiers(self, ids: Sequence[int]) -> list[str]:
        prefix = f"{{{self.core.identifier}}}\\"
        return [f"{prefix}{message_id}" for message_id in ids]

    # Transactions

    def begin(self, holder: Holder = THIS_PROCESS) -> UUID:
        return self.leases.begin(holder)

    async def commit(self, identifier: UUID) -> None:
        transaction = self.leases.transaction(identifier)
        await self.durably(lambda: self.core.commit(transaction, self.clock()))

    async def abort(self, identifier: UUID) -> None:
        """Aborts a transaction. Its messages are back in place when this returns; their abort counts become durable
        with the next tick."""
        transaction = self.leases.transaction(identifier)
        await self.durably(lambda: self.core.abort(transaction, self.clock()))


def _reports_refusal(message: Message) -> bool:
    """Whether a refusal of the message is reported to a queue. A second try would report it twice."""
    return message.admin_queue is not None or message.dead_letter or message.dead_letter_queue is not None


def _refuse_base_priority(attributes: Mapping[str, object]) -> None:
    """Tells people that a base priority has no effect here. The core ignores it, as the specification says."""
    if attributes.get("base_priority"):
        raise InvalidArgument(f"base_priority: {NO_BASE_PRIORITY}")


def resolution(core: LocalQueueManager, destination: Name, names: Sequence[Name], registered: str | None) -> Resolution:
    """`registered` is the SID of the sender whose certificate signs."""
    parsed = [parse_name(name) if isinstance(name, str) else name for name in names]
    return Resolution(
        str(core.identifier),
        core.protection.profile.word,
        tuple(Destination(str(name), str(manager)) for name, manager in core.resolve(destination)),
        tuple(str(core.answer_name(name) if isinstance(name, PathName) else name) for name in parsed),
        registered,
    )
