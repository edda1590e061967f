"""LocalQueueManager, [MS-MQDMPR] 3.1.1.1: the queues, their readers and transactions as one object without I/O or
clock.

Calls change memory and the gathering tick. Whoever drives it commits the tick and reports the result. What was promised
is true after `committed`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import count, groupby
from uuid import UUID

from postroad.errors import (
    AccessDenied,
    IllegalFormatName,
    InvalidHandle,
    NotEncrypted,
    OperationCancelled,
    PostroadError,
    QueueNotFound,
    QuotaExceeded,
    TransactionSequence,
    TransactionUsage,
    UnsupportedAccessMode,
    UnsupportedFormatNameOperation,
)
from postroad.message import Composer, Message, multi_queue_header
from postroad.names import (
    DirectName,
    DistributionListName,
    FormatName,
    MulticastName,
    MultipleElementName,
    PathName,
    PrivateName,
    PublicName,
    ResolveDistributionList,
    expand_format_name,
    parse_name,
)
from postroad.names.format import INTERNAL_QUEUES
from postroad.queues.behalf import STATE as ASKED_STATE
from postroad.queues.collection import DEADLETTER, DEADXACT, JOURNAL, QueueCollection
from postroad.queues.core_settings import Chance, CoreSettings
from postroad.queues.delivery import OFF, Delivery, as_format_name, check_kind, check_movable, check_multicast
from postroad.queues.expiry import Expiry, Retention
from postroad.queues.holds import STATE as HOLD_STATE
from postroad.queues.holds import Holding
from postroad.queues.open_queue import (
    ADMIN_ACCESS,
    Cursor,
    OpenQueueDescriptor,
    Transaction,
    check_sharing,
    elsewhere,
)
from postroad.queues.outcomes import Departures
from postroad.queues.outgoing_queues import (
    Carrier,
    ConnectionAttempt,
    ConnectionStatus,
    OutgoingEvent,
    Watcher,
)
from postroad.queues.owners import Held, Owners
from postroad.queues.permissions import NOBODY, OWN, Access, Action, no_right, sender_of
from postroad.queues.properties import QueueType
from postroad.queues.queue import READ_BYTES, PositionState, Queue
from postroad.queues.reading import Reading
from postroad.queues.securing import Securing, SendRefused
from postroad.queues.submissions import STATE as SUBMISSION_STATE
from postroad.queues.submissions import Submissions
from postroad.queues.tick import COUNTERS_STATE, MAX_MESSAGE_ID, Counters, Tick, Ticks
from postroad.queues.transactions import MOST_APART, Transacting
from postroad.queues.transactions import STATE as SEQUENCE_STATE
from postroad.reports.operations import QueueAccess, ShareMode
from postroad.runtime.deadlines import Timetable
from postroad.security.access import Token
from postroad.security.descriptors import Sid
from postroad.security.guard import Protection
from postroad.security.refusals import COULD_NOT_ENCRYPT
from postroad.security.relay import Relay
from postroad.store.express import ExpressStore
from postroad.store.interface import Record, Store
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.constants import MessageClass
from postroad.wire.framer import check_place
from postroad.wire.headers import DebugHeader, MultiQueueFormatHeader
from postroad.wire.octets import NULL_GUID
from postroad.wire.queue_names import admin_name
from postroad.wire.view import MessageView, with_sender

PURGE_BATCH = 1000
PURGE_MORE = 4  # a step that removed fewer has removed the last ones: so many messages have READ_BYTES at most
FIRST_MESSAGE_IDS = 1 << 31  # a new manager begins to count below this; the other half is room to grow
_SENT_TO = frozenset({QueueType.PRIVATE, QueueType.PUBLIC, QueueType.CONNECTOR})
TRUSTED = Token.administrator()
Review = Callable[[Collection[Queue], float], None]


class QueueManagerState(Enum):
    """[MS-MQDMPR] 3.1.1.1"""

    STOPPED = "stopped"
    INITIALIZING = "initializing"
    READY = "ready"
    STOPPING = "stopping"


class LocalQueueManager:
    """Built on an open store. `start` makes it ready, and reads only definitions and counts.

    `settings` are those that count now.
    """

    def __init__(
        self,
        name: str,
        identifier: UUID,
        store: Store,
        chance: Chance,
        settings: CoreSettings = CoreSettings(),  # noqa: B008  (it is frozen)
        *,
        insecure_nacks: bool = False,
        hardened_security: bool = False,
        hosts: Iterable[str] = (),
        express: ExpressStore | None = None,
        knows_host: Callable[[str], bool] = lambda host: False,
        locate: Callable[[PublicName], UUID | None] = lambda name: None,
        base_priority: Callable[[FormatName], int] = lambda name: 0,
        public_keys: Callable[[UUID], bytes] = lambda manager: b"",
        resolve_list: ResolveDistributionList | None = None,
        protection: Protection | None = None,
        key_clock: Callable[[], float] | None = None,
    ) -> None:
        """`hosts` mean this manager in a direct name, besides its name.

        `knows_host`, `locate`, `base_priority` and `public_keys` say what the directory knows: whether a host is a
        manager of it, which manager has a public queue, the priority of messages to it, and the keys that bodies for a
        manager are encrypted with. Without `protection` no signature is accepted and nothing can be decrypted;
        `key_clock` is the monotonic clock of its caches.
        """
        new_id, below = chance.new_id, chance.below
        self.new_id = new_id
        self.name = name
        self.identifier = identifier
        self.store = store
        self.state = QueueManagerState.STOPPED
        self.resolve_list = resolve_list or _no_directory
        self.express = ExpressStore() if express is None else express
        self.counters = Counters(store.state(COUNTERS_STATE).get(COUNTERS_STATE), 1 + below(FIRST_MESSAGE_IDS))
        self.queues = QueueCollection(
            name, identifier, store, self.express, new_id, hardened_security, base_priority, frozenset(hosts)
        )
        self.protection = protection or Protection(_no_randomness)
        self.access = Access(self.queues, self.protection.accounts)
        self.delivery = Delivery(
            identifier,
            self.queues,
            self.access,
            self.express,
            self.counters,
            insecure_nacks,
            lambda queue, now, opened: self.reading.wake(queue, now, opened),
            locate,
            Relay(known=lambda host: host in self.queues.local_hosts or knows_host(host)),
        )
        self.securing = Securing(self.access, self.protection, public_keys, key_clock)
        self.reading = Reading(self.delivery)
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        self.departures = Departures()
        self.transacting = Transacting(self.delivery, self.reading, new_id, lambda: 1 + below(MOST_APART))
        self.transactions = self.transacting.open
        self.owners = Owners(self._limit_reached)
        self.holding = Holding(self.queues, self.delivery, self.reading, self.owners)
        self.submissions = Submissions(lambda: self.tick, self.owners)
        self.reviews: list[Review] = []  # what else ends when its owner loses the right
        self.deadlines = Timetable()  # of everything that belongs to this manager
        self._handles = count(1)
        self.ticks = Ticks(self)
        self._expiry = Expiry(self.delivery, (self.express, store))  # the store that can fail comes last
        self.retention = Retention(self.queues, self.delivery)
        self._take(settings)

    def start(self, now: float) -> None:
        """Loads the queues, and creates the manager's own if they are missing. Commit the tick afterwards."""
        self.enter(QueueManagerState.INITIALIZING)
        if COUNTERS_STATE in self.store.damaged:
            self.counters.recover(now)
        self.queues.load()
        self.transacting.start(self.store.state(SEQUENCE_STATE), now)
        self.holding.load(self.store.state(HOLD_STATE))
        self.submissions.load(self.store.state(SUBMISSION_STATE))
        self.delivery.asked.load(self.store.state(ASKED_STATE))
        for path in (JOURNAL, DEADLETTER, DEADXACT, *INTERNAL_QUEUES):
            if self.queues.find(path) is None:
                self.queues.create(self.tick, path, int(now), transactional=path == DEADXACT)
        for destination in self.queues.outgoing:
            if isinstance(destination, DirectName):
                self.delivery.relay.name(destination.host)
        self.counters.reserve(self.tick.batch)

    def enter(self, state: QueueManagerState) -> None:
        """For whoever starts and stops it."""
        self.state = state

    # Settings

    def use(self, settings: CoreSettings, now: float) -> None:
        """From now on these count. What others have begun ends where their users are gone or lost the right to it."""
        self._take(settings)
        self.review(list(self.queues), now)
        self.submissions.forget_owners(lambda owner: not self.access.is_user(owner))

    def _take(self, settings: CoreSettings) -> None:
        self.settings = settings
        self.access.use(settings)
        self.delivery.use(settings)
        self.owners.use(settings.held)
        self.queues.use(settings.strict_names)
        self.queues.idle.use(settings.outgoing_queues)
        self.retention.use(settings.journal_days)

    def throttle(self, *, on: bool) -> None:
        """Flow control: while it is on, nothing is taken from anybody."""
        self.delivery.throttle(on=on)

    def _limit_reached(self, kind: Held, owner: str) -> None:
        for watcher in self.delivery.watchers:
            if watcher.limit_reached is not None:
                watcher.limit_reached(kind, owner)

    @property
    def connection_active(self) -> bool:
        """[MS-MQDMPR] 3.1.1.1: False while nothing leaves or comes in by a carrier."""
        return self.queues.online

    def take_offline(self, now: float) -> None:
        """[MS-MQDMPR] 3.1.4.12: nothing leaves or comes in by a carrier. Does not outlive the process."""
        if self.connection_active:
            self.queues.online = False
            for carrier in self.queues.carriers:
                carrier.take_offline(now)

    def bring_online(self, now: float) -> None:
        """[MS-MQDMPR] 3.1.4.13"""
        if not self.connection_active:
            self.queues.online = True
            for carrier in self.queues.carriers:
                carrier.bring_online(now)
            for queue in list(self.queues.outgoing.values()):
                if queue.count and queue.carrier is not None:
                    queue.carrier.ready(queue, now)

    def resend(self, queue: Queue, now: float) -> None:
        """[MS-MQDMPR] 3.1.7.2.5: transactional messages that have arrived nowhere are sent again now."""
        if queue.carrier is not None:
            queue.carrier.resend(queue, now)

    # The tick

    @property
    def tick(self) -> Tick:
        return self.delivery.tick

    # Carriers

    def attach(self, carrier: Carrier) -> None:
        """From now on the carrier has all outgoing queues whose names it carries and that no other carrier has."""
        self.queues.attach(carrier)

    def watch(self, watcher: Watcher) -> None:
        self.delivery.watchers.append(watcher)

    def pause(self, queue: Queue) -> None:
        """[MS-MQDMPR] 3.1.4.14: the outgoing queue sends nothing until it is resumed."""
        self.queues.outgoing_info[queue].on(OutgoingEvent.PAUSE)
        if queue.carrier is not None:
            queue.carrier.pause(queue)

    def resume(self, queue: Queue, now: float) -> None:
        """[MS-MQDMPR] 3.1.4.15"""
        self.queues.outgoing_info[queue].on(OutgoingEvent.RESUME)
        self.queues.harden(queue)
        if queue.carrier is not None:
            queue.carrier.resume(queue, now)

    # Marks

    # Queues

    def create_queue(self, path: str | PathName, now: float, **attributes: object) -> Queue:
        with self.delivery.atomic:
            return self.queues.create(self.tick, path, int(now), **attributes)

    def change_queue(self, queue: Queue, now: float, **attributes: object) -> None:
        with self.delivery.atomic:
            self.queues.change(self.tick, queue, int(now), **attributes)
        if "acl" in attributes:
            self.access.published(queue)
            self.review(self.queues.family(queue), now)

    def use_directory(self, found: Mapping[UUID, bytes], now: float, *, first: bool) -> None:
        """Takes the descriptors of public queues from the directory. See `Access.use_directory`."""
        changed = self.access.use_directory(found, first=first)
        queues = [each for each in self.queues if each.properties.identifier in changed]
        self.review([member for each in queues for member in self.queues.family(each)], now)

    def review(self, queues: Collection[Queue], now: float) -> None:
        """Rights on these queues have changed. What readers hold without a right goes back."""
        self.reading.end_forbidden(queues)
        self.holding.end_forbidden(queues, self._may_receive, now)
        for review in self.reviews:
            review(queues, now)

    def _may_receive(self, queue: Queue, owner: Sid) -> bool:
        if self.access.is_pending(owner):
            return True  # whoever cannot be looked up yet loses nothing
        return self.access.is_user(owner) and self.access.allows(queue, self.access.token(owner), Action.RECEIVE)

    def delete_queue(self, queue: Queue, now: float) -> None:
        """Delete Queue, [MS-MQDMPR] 3.1.7.1.4. All messages go with it, and so do its journal and its subqueues."""
        if queue.properties.queue_type in (QueueType.SYSTEM, QueueType.JOURNAL) or queue.is_internal:
            raise AccessDenied(f"{queue.name} belongs to the queue manager and cannot be deleted")
        carrier = queue.carrier
        with self.delivery.atomic:
            self.queues.remove(self.tick, queue)  # first, so that no acknowledgment of its messages comes back to it
            self.transacting.forget_reads()
            for each in self.queues.family(queue):
                self.holding.forget(each)
                self.delivery.atomic.then(self._close_readers, each)
                self.empty(each, now)
            if carrier is not None:  # once the queue is durably gone
                self.delivery.atomic.then(self.tick.on_commit.append, partial(carrier.forget, queue))

    def _close_readers(self, queue: Queue) -> None:
        for request in list(queue.waiting):
            self.reading.cancel(queue, request, OperationCancelled("the queue was deleted"))
        for descriptor in queue.descriptors:
            descriptor.queue = None
        queue.descriptors.clear()

    def empty(self, queue: Queue, now: float) -> None:
        """Removes every message of a deleted queue. Messages of a tick on its way are removed when that has landed."""
        reason = MessageClass.NACK_DELETED if queue.is_outgoing else MessageClass.NACK_Q_DELETED
        with self.delivery.atomic:
            for record in queue.everything():
                if queue.positions.get(record.lookup_id) is not PositionState.DELETED:
                    self.delivery.take(queue, record, reason, now)
            for record in self.tick.withdraw(queue):
                self.delivery.undelivered(queue, record.packet, reason, now)

    def purge(self, queue: Queue, now: float, limit: int = PURGE_BATCH) -> int:
        """One step of Purge Queue, [MS-MQDMPR] 3.1.7.1.7, for up to `limit` messages. Returns how many were removed:
        if fewer than PURGE_MORE, there are no others. Locked messages are removed once they are read."""
        reason = MessageClass.NACK_DELETED if queue.is_outgoing else MessageClass.NACK_Q_PURGED
        with self.delivery.atomic:
            for lookup_id, state in queue.positions.items():
                if state is PositionState.LOCKED:
                    self.delivery.lock(queue, lookup_id, PositionState.PURGE_PENDING)
            records = queue.available(limit, most_bytes=READ_BYTES)
            for record in records:
                self.delivery.take(queue, record, reason, now)
        return len(records)

    def move(self, queue: Queue, target: Queue, records: Sequence[Record], now: float) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, without a transaction. It causes no acknowledgment.

        In its new place the message counts its aborts from 0 again.
        """
        check_movable(target)
        for record in records:
            check_kind(target, MessageView(record.packet))
        self.delivery.check_quota(target, sum(len(record.packet) for record in records))
        with self.delivery.atomic:
            for record in records:
                self.delivery.move(queue, target, record, now)

    def relocate(self, queue: Queue, target: Queue, record: Record, now: float) -> None:
        """Move Message between a queue and its subqueues, as remote readers do: the message keeps its lookup id."""
        check_kind(target, MessageView(record.packet))
        self.delivery.check_quota(target, len(record.packet))
        with self.delivery.atomic:
            self.delivery.relocate(queue, target, record, now)

    def insert(self, queue: Queue, views: Sequence[MessageView], now: float) -> list[int]:
        """Imports whole packets as they are. Nothing is acknowledged. Returns their lookup ids."""
        check_movable(queue)
        for view in views:
            check_place(view)
            check_kind(queue, view)
        self.delivery.check_quota(queue, sum(len(view.data) for view in views))
        lookup_ids = []
        with self.delivery.atomic:
            for view in views:
                priority = 0 if view.transactional else view.priority
                expires = self.delivery.expiry(queue, view.data, now)
                lookup_ids.append(self.delivery.add(queue, view.data, priority, expires, now).lookup_id)
        return lookup_ids

    # Opening

    def open(
        self,
        name: FormatName | PathName | str,
        access: QueueAccess,
        share: ShareMode,
        now: float,
        holder: Hashable = None,
    ) -> OpenQueueDescriptor:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5. `holder` is who has it open, where that client can hold messages too."""
        parsed = self._expanded(name)
        if isinstance(parsed, MultipleElementName):
            return self._open_several(parsed, access, share, now)
        if access is QueueAccess.SEND:
            queue = self.delivery.sending_queue(parsed, now, own=True)
        else:
            queue = self._reading_queue(parsed, access)
        if queue.is_internal:
            raise AccessDenied(f"{parsed} is used by the queue manager itself")
        check_sharing(queue.descriptors, access, share)
        format_name = parsed if isinstance(parsed, FormatName) else None
        descriptor = OpenQueueDescriptor(next(self._handles), format_name, access, share, queue, holder=holder)
        queue.descriptors.append(descriptor)
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _reading_queue(self, name: FormatName | PathName, access: QueueAccess) -> Queue:
        """A queue that is here. Messages on their way elsewhere belong to no reader: only an administrator sees
        them."""
        queue = self.queues.find(name)
        if queue is not None and queue.is_outgoing and access in ADMIN_ACCESS.values():
            return queue
        if isinstance(name, FormatName) and name.is_send_only:
            raise UnsupportedFormatNameOperation(f"{name} can be sent to, not read from")
        if queue is None and (self.queues.is_local(name) or isinstance(name, PublicName)):
            raise QueueNotFound(f"there is no queue {name} on {self.name}")
        if queue is None or queue.is_outgoing:
            raise QueueNotFound(elsewhere(name, self.name, waiting=queue is not None))
        return queue

    def _open_several(
        self, names: MultipleElementName, access: QueueAccess, share: ShareMode, now: float
    ) -> OpenQueueDescriptor:
        if access is not QueueAccess.SEND:
            raise UnsupportedFormatNameOperation("a list of several queues can be sent to, not read from")
        if share is not ShareMode.DENY_NONE:
            raise UnsupportedAccessMode("a list of several queues cannot be opened exclusively")
        children: list[OpenQueueDescriptor] = []
        try:
            children.extend(self.open(element, access, share, now) for element in names.elements)
        except PostroadError:
            for child in children:
                self.close(child)
            raise
        descriptor = OpenQueueDescriptor(next(self._handles), names, access, share, None, tuple(children))
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _expanded(self, name: FormatName | PathName | str) -> FormatName | PathName:
        """Expand Format Name, [MS-MQDMPR] 3.1.7.3.8"""
        parsed = parse_name(name) if isinstance(name, str) else name
        if isinstance(parsed, MultipleElementName | DistributionListName):
            return expand_format_name(parsed, self.resolve_list)
        return parsed

    def close(self, descriptor: OpenQueueDescriptor) -> None:
        """Close Queue, [MS-MQDMPR] 3.1.7.1.6: ends its waiting reads and removes its cursors."""
        if descriptor.closed:
            raise InvalidHandle("the queue is closed already")
        descriptor.closed = True
        del self.descriptors[descriptor.handle]
        for child in descriptor.children:
            self.close(child)
        queue = descriptor.queue
        if queue is None:
            return
        for request in [each for each in queue.waiting if each.descriptor is descriptor]:
            self.reading.cancel(queue, request, OperationCancelled("the queue was closed while the read was waiting"))
        descriptor.cursors.clear()
        queue.descriptors.remove(descriptor)

    def descriptor(self, handle: int) -> OpenQueueDescriptor:
        try:
            return self.descriptors[handle]
        except KeyError:
            raise InvalidHandle(f"there is no open queue {handle}") from None

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> Cursor:
        queue = descriptor.require(frozenset(QueueAccess) - {QueueAccess.SEND}, "be read with a cursor")
        cursor = Cursor(next(self._handles), queue)
        descriptor.cursors[cursor.handle] = cursor
        return cursor

    def close_cursor(self, descriptor: OpenQueueDescriptor, cursor: Cursor) -> None:
        """Close Cursor, [MS-MQDMPR] 3.1.7.1.2"""
        for request in [each for each in cursor.queue.waiting if each.cursor is cursor]:
            self.reading.cancel(cursor.queue, request, OperationCancelled("the cursor was closed"))
        descriptor.cursors.pop(cursor.handle, None)

    # Sending

    def send(
        self,
        destination: FormatName | PathName | str,
        messages: Sequence[Message],
        now: float,
        transaction: Transaction | None = None,
        token: Token = TRUSTED,
    ) -> list[int]:
        """Sends messages to one destination, or to each of a list. Returns their message ids. All are sent, or none.

        `token` is the sender. An application in this process may do everything.
        """
        name = self._expanded(destination)
        elements: tuple[FormatName | PathName, ...] = (name,)
        header = None
        if isinstance(name, MultipleElementName):
            elements, header = name.elements, multi_queue_header(name.elements)
        count = len(messages)
        first_id = self.counters.take_message_ids(len(elements) * count)
        ids = [each & MAX_MESSAGE_ID for each in range(first_id, first_id + len(elements) * count)]
        plans: list[tuple[Queue, list[bytes]]] = []
        try:
            with self.delivery.together(now), self.delivery.atomic:
                for place, element in enumerate(elements):
                    if isinstance(element, MulticastName):
                        check_multicast(messages, transaction is not None)
                        if self.queues.carrier_of(element) is None:
                            raise UnsupportedFormatNameOperation(f"cannot send to {element}: {OFF}")
                    queue = self.delivery.sending_queue(element, now, own=True)
                    if queue.is_outgoing and not self.queues.outgoing_info[queue].named:
                        self._name_host(queue, element)
                    own_ids = ids[place * count : (place + 1) * count]
                    packets = self._packets(element, queue, messages, own_ids, header, transaction, now)
                    if [each for each in messages if _names_queues(each)]:
                        packets = self._named_queues(queue, packets, token)
                    if _concerns_security(queue, messages, token):
                        secure = self.securing.apply
                        packets = [secure(queue, *each, token, now) for each in zip(messages, packets, strict=True)]
                    self._check_send(queue, packets, transaction)
                    plans.append((queue, packets))
                for queue, packets in plans:
                    if transaction is None:
                        self.delivery.enter(queue, packets, now)
                    else:
                        self.transacting.send(queue, packets, transaction)
        except SendRefused as refusal:
            for packet in refusal.packets:
                self.delivery.try_after(
                    packet, self.delivery.acknowledge, MessageView(packet), refusal.message_class, now
                )
                if refusal.message_class == COULD_NOT_ENCRYPT:
                    self.delivery.try_after(packet, self._keep_unsent, packet, now)
            if refusal.outgoing is not None and (info := self.queues.outgoing_info.get(refusal.outgoing)):
                status = ConnectionStatus.INVALID_SERVER_CERTIFICATE  # [MS-MQQB] 3.1.7.1.5.1
                info.history.append(ConnectionAttempt(status, int(now), refusal.error.status, info.next_hops))
            raise refusal.error from None
        return ids

    def _named_queues(self, queue: Queue, packets: Sequence[bytes], token: Token) -> list[bytes]:
        """The messages name queues into which the manager will write because of them. Their sender must have the right
        to write there; it is checked now, and again when the manager writes. If such a queue is closed to others, their
        acknowledgments are noted as expected."""
        sender = sender_of(token)
        if sender is None and not queue.is_outgoing:  # the owner of this manager may write everywhere here
            return list(packets)
        credentials = OWN if sender is None else self.access.of_user(sender)
        views = [MessageView(packet) for packet in packets]
        closed: list[tuple[Queue | None, int, bool]] = []
        for view in views:
            admin = self._local_queue(admin_name(view)) if view.ack_flags else None
            letters = view.dead_letter_queue
            reports = view.debug_header
            for named in (
                admin,
                None if letters is None else self._local_queue(parse_name(letters)),
                None if reports is None else self._report_queue(reports),
            ):
                if named is not None and not self.access.may_cause(named, credentials):
                    raise AccessDenied(no_right(Action.SEND, named))
            asks = admin is not None and queue.is_outgoing and not self.access.may_cause(admin, NOBODY)
            closed.append((admin if asks else None, view.ack_flags, view.recoverable))
        for (admin, flags, durable), alike in groupby(range(len(views)), closed.__getitem__):
            if admin is not None:
                ids = [views[each].message_id for each in alike]
                destination = self.queues.outgoing_info[queue].destination
                self.delivery.asked.note(ids, admin, flags, destination, durable=durable)
        return list(packets) if sender is None else [with_sender(packet, sender) for packet in packets]

    def _report_queue(self, header: DebugHeader) -> Queue | None:
        return None if header.queue_identifier is None else self._local_queue(PublicName(header.queue_identifier))

    def _local_queue(self, name: FormatName | PathName | None) -> Queue | None:
        """A queue here to which messages are sent."""
        queue = None if name is None else self.queues.find(name)
        return queue if queue is not None and queue.properties.queue_type in _SENT_TO else None

    def destination_managers(self, destination: FormatName | PathName | str) -> set[UUID]:
        """The other managers whose keys encrypt messages to a destination. A direct name gives none."""
        name = self._expanded(destination)
        elements = name.elements if isinstance(name, MultipleElementName) else (name,)
        found = {each.guid for each in elements if isinstance(each, PrivateName)}
        found |= {self.delivery.manager_of(each) for each in elements if isinstance(each, PublicName)}
        return found - {NULL_GUID, self.identifier}

    def _keep_unsent(self, packet: bytes, now: float) -> None:
        """[MS-MQQB] 3.1.7.1.5.1: a message that could not be encrypted is not sent. It is kept if it asked for that."""
        view = MessageView(packet)
        if view.negative_journaling:
            self.delivery.dead_letter(packet, view, COULD_NOT_ENCRYPT, now)

    def _packets(
        self,
        name: FormatName | PathName,
        queue: Queue,
        messages: Sequence[Message],
        ids: Sequence[int],
        header: MultiQueueFormatHeader | None,
        transaction: Transaction | None,
        now: float,
    ) -> list[bytes]:
        """The messages as packets to one destination, if its queue accepts them."""
        written = name if isinstance(name, FormatName) else self._written_name(queue)
        manager = self.delivery.manager_of(written)
        respond = partial(self._response_name, written) if queue.is_outgoing else None
        composer = Composer(self.identifier, written, self.answer_name, header, manager, respond)
        return composer.compose_all(messages, ids, int(now), transactional=transaction is not None)

    def resolve(self, destination: FormatName | PathName | str) -> list[tuple[FormatName, UUID]]:
        """The names in packets for this destination, each with the manager of a public queue. Creates no queue."""
        name = self._expanded(destination)
        found = []
        for element in name.elements if isinstance(name, MultipleElementName) else (name,):
            queue = self.delivery.sendable(element)
            if isinstance(element, FormatName):
                written = element
            else:
                written = as_format_name(element) if queue is None else self._written_name(queue)
            found.append((written, self.delivery.manager_of(written)))
        return found

    def _name_host(self, queue: Queue, name: FormatName | PathName) -> None:
        """Notes the host: an application here sends to it, so strangers may cause answers to it."""
        self.queues.outgoing_info[queue].named = True
        if isinstance(name, DirectName):
            self.delivery.relay.name(name.host)
        elif isinstance(name, PathName):
            self.delivery.relay.name(name.computer)

    def _check_send(self, queue: Queue, packets: list[bytes], transaction: Transaction | None) -> None:
        """Refuses the whole batch before anything of it is promised. A sender that asked for acknowledgments gets the
        error and the acknowledgment."""
        refusal: PostroadError | None = None
        reason = MessageClass.NORMAL
        properties = queue.properties
        if transaction is not None and transaction.ended:
            raise TransactionSequence(f"the transaction {transaction.identifier} has ended")
        if not queue.is_outgoing and properties.transactional != (transaction is not None):
            if properties.transactional:
                reason = MessageClass.NACK_NOT_TRANSACTIONAL_MSG
                refusal = TransactionUsage(f"the queue {queue.name} is transactional: send within a transaction")
            else:
                reason = MessageClass.NACK_NOT_TRANSACTIONAL_Q
                refusal = TransactionUsage(f"the queue {queue.name} is not transactional: send without a transaction")
        else:
            try:
                self.delivery.check_quota(queue, sum(map(len, packets)))
            except QuotaExceeded as error:
                reason, refusal = MessageClass.NACK_Q_EXCEED_QUOTA, error
        if refusal is not None:
            raise SendRefused(refusal, reason, packets)

    def _written_name(self, queue: Queue) -> FormatName:
        return self.queues.format_name(queue) if queue.is_outgoing else self.queues.direct_name(queue)

    def answer_name(self, path: PathName) -> FormatName:
        """A local path in the form that other managers need to answer."""
        queue = self.queues.find(path)
        if queue is not None:
            return self.queues.format_name(queue)
        if self.queues.is_local(path):
            raise QueueNotFound(f"there is no queue {path} on {self.name}")
        return as_format_name(path)

    def _response_name(self, destination: FormatName, path: PathName) -> FormatName:
        """The name for replies. A reply may be sent long after this message, when the address of our id is forgotten.
        If no directory knows us, the name therefore contains the address."""
        queue = self.queues.find(path)
        if queue is not None and queue.properties.queue_type is QueueType.PRIVATE:
            direct = self.queues.answers.name_for(destination, queue.properties.path)
            if direct is not None:
                return direct
        return self.answer_name(path)

    # Transactions

    def send_transactional(
        self, destination: FormatName | PathName | str, messages: Sequence[Message], now: float, token: Token = TRUSTED
    ) -> list[int]:
        """Like `send`, in a transaction of its own."""
        transaction = self.begin()
        try:
            ids = self.send(destination, messages, now, transaction, token)
            self.commit(transaction, now)
        except BaseException:
            self.abort(transaction, now)
            raise
        return ids

    def begin(self, identifier: UUID | None = None) -> Transaction:
        return self.transacting.begin(identifier)

    def transaction(self, identifier: UUID) -> Transaction:
        return self.transacting.get(identifier)

    def commit(self, transaction: Transaction, now: float) -> None:
        """Puts all of the transaction into the gathering tick. If that tick fails, the transaction is aborted."""
        self.transacting.commit(transaction, now)

    def abort(self, transaction: Transaction, now: float) -> None:
        self.transacting.abort(transaction, now)

    # Time

    def run_timers(self, now: float) -> None:
        """Ends reads that have timed out and removes expired messages. Call it about once a second.

        Raises StorageError if the store cannot be read.
        """
        self.departures.at(now)
        self.reading.expire_all_waits(now)
        self.delivery.try_after(None, self.queues.idle.sweep, self.tick, now)
        self.counters.reserve(self.tick.batch)  # messages that never touch the store use up ids too
        self._expiry.run(now)


def _concerns_security(queue: Queue, messages: Sequence[Message], token: Token) -> bool:
    """Whether `securing` has anything to do. For most messages it has not."""
    properties = queue.properties
    if not queue.is_outgoing and (
        properties.authenticate or properties.privacy is not QueuePrivacy.OPTIONAL or not token.everything
    ):
        return True
    return bool([each for each in messages if each.signature is not None or each.encrypt is not None])


def _names_queues(message: Message) -> bool:
    """Whether the manager may have to write into another queue because of the message."""
    return message.admin_queue is not None or message.dead_letter_queue is not None or message.trace is not None


def _no_randomness(size: int) -> bytes:
    raise NotEncrypted("this queue manager was started without a source of random numbers")


def _no_directory(name: DistributionListName) -> Iterable[FormatName]:
    raise IllegalFormatName(str(name), 0, "there is no directory here that knows the members of a distribution list")
