"""Messages that come into queues and leave them, with everything that follows in the same tick.

Enqueue Message ([MS-MQDMPR] 3.1.7.1.9), Message Position Deleted (3.1.7.2.1) and its subscribers: journals, dead
letters and administration acknowledgments ([MS-MQQB] 3.1.7.2.1, 3.1.7.15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress, repeat
from math import inf
from uuid import UUID

from postroad.errors import (
    AccessDenied,
    DiskFull,
    IllegalName,
    InvalidMessage,
    MessageTooLarge,
    NotEncrypted,
    PostroadError,
    QueueNotFound,
    QuotaExceeded,
    StorageError,
    TransactionUsage,
    UnsupportedFormatNameOperation,
)
from postroad.message import Composer, Message
from postroad.names import DirectName, FormatName, MachineName, PathName, PublicName, parse_name
from postroad.names.format import leads_to_internal
from postroad.queues.behalf import ACK_SHARE_BYTES, Asked, Shares
from postroad.queues.collection import DEADLETTER, DEADXACT, JOURNAL, QueueCollection
from postroad.queues.core_settings import CoreSettings
from postroad.queues.outcomes import DEATHS, OF_TAKING, POSITIVE, Tally, asks_for
from postroad.queues.outgoing_queues import Carrier, Watcher
from postroad.queues.permissions import NOBODY, OWN, Access, Action, Credentials, no_right
from postroad.queues.properties import QueueType
from postroad.queues.queue import QUOTA_UNIT, START, PositionState, Queue
from postroad.queues.tick import Atomic, Counters, Tick
from postroad.security.access import Token
from postroad.security.guard import arrived_encrypted
from postroad.security.relay import Relay
from postroad.store.express import ExpressStore
from postroad.store.interface import NEVER, PRIORITY_SHIFT, Record
from postroad.wire.constants import INFINITE, MessageClass
from postroad.wire.octets import NULL_GUID, encode_body
from postroad.wire.patch import (
    arrived_by_http,
    asks_for_nothing,
    identifier_of,
    is_recoverable,
    is_transactional,
    priority_of,
    times_of,
    wants_negative_copy,
)
from postroad.wire.queue_names import admin_name, destination_name
from postroad.wire.view import MessageView, with_move

# [MS-MQQB] 3.1.7.15: these classes would tell a stranger what exists here. They leave only if that is configured.
INSECURE_NACKS = frozenset(
    {
        MessageClass.NACK_BAD_DST_Q,
        MessageClass.NACK_ACCESS_DENIED,
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
GRACE = 10  # what follows from messages that leave may exceed the manager's quota by one part in so many
OTHERS_LETTERS = 2  # dead letters of others may use one part in so many of a dead-letter queue's quota
_EVERYONE = Token.everyone()


@dataclass(eq=False, repr=False)
class Delivery:
    """`tick` is where changes gather. Whoever drives the manager replaces it at each commit.

    What follows from a change (copies, acknowledgments, carriers, waking) never undoes it. If it fails, the failure is
    counted and the watchers are called.
    """

    identifier: UUID
    queues: QueueCollection
    access: Access
    express: ExpressStore
    counters: Counters
    insecure_nacks: bool
    _wake: Callable[[Queue, float, Iterable[int]], None]
    _locate: Callable[[PublicName], UUID | None]
    relay: Relay
    quota_kb: int | None = None
    throttled: bool = False
    full: str | None = None  # why the disk accepts nothing more
    tick: Tick = field(default_factory=Tick)
    tally: Tally = field(default_factory=Tally)
    atomic: Atomic = field(init=False)
    overflows: dict[str, int] = field(default_factory=dict)  # copies that did not fit, by journal or dead-letter queue
    asked: Asked = field(init=False)  # the acknowledgments that applications here have asked for
    shares: Shares = field(default_factory=Shares)  # of what waits to leave because of strangers
    watchers: list[Watcher] = field(default_factory=list)
    _ready: dict[Queue, None] | None = None  # the queues that `together` has yet to inform

    def __post_init__(self) -> None:
        self.atomic = Atomic(self)
        self.asked = Asked(self.identifier.bytes_le, lambda: self.tick, self._may_answer)

    def use(self, settings: CoreSettings) -> None:
        self.quota_kb = settings.quota_kb
        self.relay.use(settings.relay)

    def throttle(self, *, on: bool) -> None:
        self.throttled = on

    # In

    def check_quota(self, queue: Queue, size: int, *, follows: bool = False) -> None:
        """Checks the manager's quota before the queue's ([MS-MQDMPR] 3.1.7.1.9)."""
        self.check_manager_quota(size, follows=follows)
        if not queue.has_room(size):
            assert queue.quota_bytes is not None
            setting = f"quota_kb of {queue.name}"
            raise QuotaExceeded(f"the queue {queue.name}", queue.quota_bytes, queue.used_bytes, size, setting)

    def check_manager_quota(self, size: int, *, follows: bool = False) -> None:
        """Raises QuotaExceeded if no queue of this manager could take a message.

        What `follows` from a message that leaves a queue uses that message's place in the manager, which becomes free
        once the message is durably gone.
        """
        if not follows and self.full is not None:
            raise DiskFull(self.full)
        if not follows and self.throttled:
            raise QuotaExceeded("the queue manager", 0, 0, size, "its free resources (flow control is on)")
        if self.quota_kb is not None:
            used, most = self.queues.usage.used_bytes, self.quota_kb * QUOTA_UNIT
            if used + size > (most + most // GRACE if follows else most):
                raise QuotaExceeded("the queue manager", most, used, size, "quota_kb in [manager]")

    def add(
        self,
        queue: Queue,
        packet: bytes,
        priority: int,
        expires_s: int,
        now: float,
        *,
        reason: int = 0,
        aborts: int = 0,
    ) -> Record:
        """Puts one message into a queue, in its place by the ordering rules. The caller checks quotas."""
        record = self._put(queue, packet, priority, expires_s, now, reason, aborts)
        self._announce(queue, (record,), now)
        return record

    def _put(
        self, queue: Queue, packet: bytes, priority: int, expires_s: int, now: float, reason: int = 0, aborts: int = 0
    ) -> Record:
        """Puts the message into the queue, and informs nobody."""
        lookup_id = (7 - priority) << PRIORITY_SHIFT | self.counters.next_arrival()
        record = Record(queue.number, lookup_id, int(now * 1000), expires_s, aborts, packet, reason)
        self._keep(queue, (record,), now, durable=is_recoverable(packet))
        return record

    def put_all(self, queue: Queue, records: Sequence[Record], now: float) -> None:
        """Puts new messages into their queue: all recoverable, or all express. Nothing else follows from them."""
        if records:
            durable = is_recoverable(records[0].packet)
            self._keep(queue, records, now, durable=durable)
            if not durable:
                self._announce(queue, records, now)

    def _keep(self, queue: Queue, records: Sequence[Record], now: float, *, durable: bool) -> None:
        queue.last_added_at = now
        self.tally.added += len(records)
        if durable:
            if len(records) == 1:
                self.tick.put(queue, records[0])
            else:
                self.tick.put_all(queue, records)
            return
        self.express.put_all(records)
        queue.add_express(sum([len(record.packet) for record in records]), len(records))
        queue.came(records)
        if self.tick.steps is not None:
            self.tick.steps.append((self._drop_express, queue, records))

    def add_all(self, queue: Queue, packets: Sequence[bytes], ranks: Sequence[int], now: float) -> list[Record]:
        """`add` for several messages, each with its priority. They expire as their packets say."""
        first = self.counters.take_arrivals(len(packets))
        lookup_ids = [(7 - rank) << PRIORITY_SHIFT | first + place for place, rank in enumerate(ranks)]
        times = [times_of(packet) for packet in packets]
        expiries = {each: self._expiry(queue, *each, now) for each in set(times)}
        records = new_records(queue.number, lookup_ids, int(now * 1000), [expiries[each] for each in times], packets)
        durable = list(map(is_recoverable, packets))
        if packets and all(durable):
            self._keep(queue, records, now, durable=True)
        else:
            self.put_all(queue, list(compress(records, durable)), now)
            self.put_all(queue, [each for each, kept in zip(records, durable, strict=True) if not kept], now)
        return records

    def _announce(self, queue: Queue, records: Sequence[Record], now: float) -> None:
        """Informs waiting readers: at once of an express message, of others when they are durable."""
        if not (queue.waiting or queue.is_outgoing) or is_recoverable(records[0].packet):
            return
        self.atomic.then(self._announced, queue, records, now)

    def _announced(self, queue: Queue, records: Sequence[Record], now: float) -> None:
        try:
            if queue.waiting:
                self._wake(queue, now, [record.lookup_id for record in records])
            elif self._ready is None:
                queue.ready(now)
            else:
                self._ready[queue] = None
        except Exception as error:
            self.note_failure(records[0].packet, error)

    def note_failure(self, packet: bytes | None, error: Exception) -> None:
        """Something that follows from a change has failed. The change stands."""
        self.tally.follow_up_errors += 1
        for watcher in self.watchers:
            if watcher.follow_up_failed is not None:
                found = None if packet is None else identifier_of(packet)
                watcher.follow_up_failed(None if found is None else str(found), error)

    def try_after(self, packet: bytes | None, follow_up: Callable[..., object], *arguments: object) -> None:
        """Runs something that follows from a change. If it fails, the change stands."""
        try:
            follow_up(*arguments)
        except Exception as error:
            self.note_failure(packet, error)

    @contextmanager
    def together(self, now: float) -> Iterator[None]:
        """Express messages for other managers can be sent at once. Within this block their queues wait, and each is
        informed once at the end."""
        if self._ready is not None:
            yield
            return
        ready: dict[Queue, None] = {}
        self._ready = ready
        try:
            yield
        finally:
            self._ready = None
            for queue in ready:
                self.try_after(None, queue.ready, now)

    def expiry(self, queue: Queue, packet: bytes, now: float) -> int:
        """When the message leaves unread: the time to be received here, or the time to reach the queue on the way out.

        Journals and dead letters keep what they have.
        """
        return self._expiry(queue, *times_of(packet), now)

    def _expiry(self, queue: Queue, to_reach_queue: int, to_be_received: int, sent_time: int, now: float) -> int:
        if _is_system(queue):
            return NEVER
        shortest = min(to_be_received, to_reach_queue) if queue.is_outgoing else to_be_received
        if shortest == INFINITE:
            return NEVER
        started: int = min(sent_time, int(now))
        return started + shortest if shortest else max(started - 1, NEVER + 1)  # at once, although expiry is strict

    def arrive(self, queue: Queue, packet: bytes, view: MessageView, now: float) -> Record:
        """A message reaches its queue: order, acknowledgment, the source's journal. The caller checks quotas."""
        priority = 0 if view.transactional else view.priority
        record = self._put(queue, packet, priority, self.expiry(queue, packet, now), now)
        if not queue.is_outgoing and not asks_for_nothing(packet):
            self.atomic.then(self._arrived, packet, view, now)
        self._announce(queue, (record,), now)  # last, because a waiting reader removes the message at once
        return record

    def _arrived(self, packet: bytes, view: MessageView, now: float) -> None:
        if view.ack_flags:
            self.try_after(packet, self.acknowledge, view, MessageClass.ACK_REACH_QUEUE, now, None, True)
        # A transactional message is journaled at its source once it is received, any other once it has arrived.
        if view.positive_journaling and not view.transactional and self._is_own(view):
            self.try_after(packet, self.copy, self.queues.system(JOURNAL), packet, now)

    def enter(self, queue: Queue, packets: Sequence[bytes], now: float) -> list[Record]:
        """Puts messages of this manager into the queue of their destination, or the outgoing queue that leads there."""
        if queue.is_outgoing or all(map(asks_for_nothing, packets)):
            ranks = [0 if is_transactional(packet) else priority_of(packet) for packet in packets]
            return self.add_all(queue, packets, ranks, now)
        return [self.arrive(queue, packet, MessageView(packet), now) for packet in packets]

    # Out

    def take(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """Message Position Deleted: removes the message for `reason`, and informs everybody who has to know."""
        self.take_all(queue, (record,), reason, now)

    def take_all(self, queue: Queue, records: Sequence[Record], reason: int, now: float) -> None:
        """The same for several messages of a queue."""
        self.discard_all(queue, records)
        self.tally.count_taken(reason, len(records))
        self.atomic.then(self._taken, queue, records, reason, now)

    def _taken(self, queue: Queue, records: Sequence[Record], reason: int, now: float) -> None:
        if not records:
            return
        dies = reason in DEATHS
        for record in records:
            packet = record.packet
            # The end of a dead letter was reported when it died.
            if not record.reason and (queue.properties.journal or not asks_for_nothing(packet)):
                self._tell(queue, packet, reason, now)
            if dies and not wants_negative_copy(packet):
                self._note_death(queue.name, packet, reason, None)
            if queue.is_outgoing or is_transactional(packet) or arrived_by_http(packet):
                for carrier in self.queues.carriers:
                    self.try_after(packet, carrier.removed, queue, record, reason, now)
        for watcher in self.watchers:
            if watcher.removed is not None:
                self.try_after(records[0].packet, watcher.removed, queue, records, reason, now)

    def receive(self, queue: Queue, records: Sequence[Record], now: float) -> None:
        """A reader has the messages. Messages on their way to another manager count as deleted before arrival."""
        self.take_all(queue, records, MessageClass.NACK_DELETED if queue.is_outgoing else MessageClass.ACK_RECEIVE, now)

    def reject(self, queue: Queue, record: Record, now: float) -> None:
        """A reader refuses the message: it goes to the dead letters, asked for or not. Raises QuotaExceeded if these
        have no room."""
        reason, packet = MessageClass.NACK_RECEIVE_REJECTED, record.packet
        view = MessageView(packet)
        cause = self.cause_of(view, stored=True)
        letters = self._named_dead_letter_queue(view, cause) or self.queues.system(
            DEADXACT if view.transactional else DEADLETTER
        )
        self.discard(queue, record)
        self.write(letters, packet, cause, now, priority=priority_of(packet), reason=reason)
        self.tally.dead_lettered += 1
        self.atomic.then(self._rejected, queue, record, letters.name, view, now)

    def _rejected(self, queue: Queue, record: Record, letters: str, view: MessageView, now: float) -> None:
        reason = MessageClass.NACK_RECEIVE_REJECTED
        self._note_death(queue.name, record.packet, reason, letters)
        if view.ack_flags:
            self.try_after(record.packet, self.acknowledge, view, reason, now, None, True)
        for carrier in self.queues.carriers:
            self.try_after(record.packet, carrier.removed, queue, record, reason, now)
        for watcher in self.watchers:
            if watcher.removed is not None:
                self.try_after(record.packet, watcher.removed, queue, (record,), reason, now)

    def undelivered(self, queue: Queue, packet: bytes, reason: int, now: float) -> None:
        """A message that was promised to a queue never gets there. Everybody who has to know is informed."""
        self.tally.count_taken(reason)
        self.atomic.then(self._tell, queue, packet, reason, now)

    def _tell(self, queue: Queue, packet: bytes, reason: int, now: float) -> None:
        """Writes journals, dead letters and acknowledgments. Copies in journals and dead-letter queues have had
        theirs."""
        if _is_system(queue):
            return
        try:
            view = MessageView(packet)
        except Exception as error:  # an older version, or somebody by hand, has put it into the store
            self.note_failure(packet, error)
            return
        try:
            if reason == MessageClass.ACK_RECEIVE:
                if queue.properties.journal and queue.journal is not None:
                    self.copy(queue.journal, packet, now)
                if view.positive_journaling and view.transactional and self._is_own(view):
                    self.copy(self.queues.system(JOURNAL), packet, now)
            elif view.negative_journaling and (
                self.journals_at_source(view) or _is_relayed(queue, view, self.identifier)
            ):
                self.dead_letter(packet, view, reason, now, queue.name)
            elif view.negative_journaling and reason in DEATHS and not view.arrived_by_http:
                self._note_death(queue.name, packet, reason, "kept where it was sent")
        except Exception as error:
            self.note_failure(packet, error)
        if view.ack_flags:
            self.try_after(packet, self.acknowledge, view, reason, now, None, not queue.is_outgoing)

    def discard(self, queue: Queue, record: Record) -> None:
        """Removes the message and informs nobody."""
        self.discard_all(queue, (record,))

    def discard_all(self, queue: Queue, records: Sequence[Record]) -> None:
        """The same for several messages of a queue."""
        recoverable = [record for record in records if is_recoverable(record.packet)]
        if recoverable:
            ids = [record.lookup_id for record in recoverable]
            states = [] if self.tick.steps is None else [queue.positions.get(each) for each in ids]
            queue.mark_all(ids, PositionState.DELETED)
            self.tick.delete_all(queue, recoverable, states)
        if len(recoverable) < len(records):
            self._discard_express(queue, [record for record in records if not is_recoverable(record.packet)])

    def _discard_express(self, queue: Queue, records: Sequence[Record]) -> None:
        self.express.delete_all(records)
        states = queue.forget([record.lookup_id for record in records])
        queue.remove_express(sum([len(record.packet) for record in records]), len(records))
        if self.tick.steps is not None:
            self.tick.steps.append((self._return_express, queue, records, states))

    def _drop_express(self, queue: Queue, records: Sequence[Record]) -> None:
        """Undoes `put` for express messages."""
        self.express.delete_all(records)
        queue.forget([record.lookup_id for record in records])
        queue.remove_express(sum([len(record.packet) for record in records]), len(records), undone=True)

    def _return_express(self, queue: Queue, records: Sequence[Record], states: Sequence[PositionState | None]) -> None:
        """Undoes `take` for express messages."""
        self.express.put_all(records)
        queue.add_express(sum([len(record.packet) for record in records]), len(records), back=True)
        queue.restore([record.lookup_id for record in records], states)

    def replace_express(self, record: Record) -> None:
        """Replaces an express message by one with other fields besides its packet."""
        before = self.express.get(record.queue, record.lookup_id)
        self._set_express(record)
        if self.tick.steps is not None and before is not None:
            self.tick.steps.append((self._set_express, before))

    def _set_express(self, record: Record) -> None:
        self.express.replace(record)
        if queue := self.queues.by_number.get(record.queue):
            queue.changed()

    def lock(self, queue: Queue, lookup_id: int, state: PositionState = PositionState.LOCKED) -> None:
        """The position belongs to a reader, or waits for the end of a purge."""
        if self.tick.steps is not None:
            self.tick.steps.append((queue.unmark, lookup_id, queue.positions.get(lookup_id)))
        queue.mark(lookup_id, state)

    def lock_all(self, queue: Queue, lookup_ids: Sequence[int]) -> None:
        """The positions belong to a reader."""
        if self.tick.steps is not None:
            self.tick.steps.append((queue.restore, lookup_ids, [queue.positions.get(each) for each in lookup_ids]))
        queue.mark_all(lookup_ids, PositionState.LOCKED)

    def unlock(self, queue: Queue, lookup_id: int) -> None:
        """The position is Available again."""
        state = queue.positions.pop(lookup_id, None)
        if self.tick.steps is not None and state is not None:
            self.tick.steps.append((queue.mark, lookup_id, state))
        queue.opened_before(lookup_id)

    def fresh(self, queue: Queue, limit: int, now: float, after: int = START, most_bytes: float = inf) -> list[Record]:
        """Available messages that have not expired, see `Queue.available`. Expired ones on the way are removed."""
        while True:
            records = queue.available(limit, after, most_bytes)
            soon = int(now)
            stale = [record for record in records if NEVER < record.expires_s < soon]
            if not stale:
                return records
            for record in stale:
                self.expire(queue, record, now)

    def reserve(self, queue: Queue, size: int) -> None:
        """Counts bytes that a transaction will add against the quota from now on. A negative number gives them back."""
        queue.reserve(size)
        if self.tick.steps is not None:
            self.tick.steps.append((queue.release, size))

    def move(self, queue: Queue, target: Queue, record: Record, now: float, aborts: int = 0) -> Record:
        """Moves the message to another queue, in its place there, and informs nobody."""
        view = MessageView(record.packet)
        priority = 0 if view.transactional else view.priority
        self.discard(queue, record)
        return self.add(target, record.packet, priority, self.expiry(target, record.packet, now), now, aborts=aborts)

    def relocate(self, queue: Queue, target: Queue, record: Record, now: float) -> None:
        """The same between a queue and its subqueues. The message stays what it was, with its lookup id and the end of
        its life, and counts the move."""
        self.discard(queue, record)
        moved = record._replace(
            queue=target.number, arrived_ms=int(now * 1000), aborts=0, packet=with_move(record.packet, int(now * 1000))
        )
        if is_recoverable(moved.packet):
            target.last_added_at = now
            self.tally.added += 1
            self.tick.put(target, moved, moved=True)
        else:
            self._keep(target, (moved,), now, durable=False)
            self._announce(target, (moved,), now)

    def expire(self, queue: Queue, record: Record, now: float) -> None:
        """Time To Be Received Timer Expired ([MS-MQDMPR] 3.1.7.2.7), or the time to reach the queue."""
        reason = MessageClass.NACK_REACH_QUEUE_TIMEOUT if queue.is_outgoing else MessageClass.NACK_RECEIVE_TIMEOUT
        self.take(queue, record, reason, now)

    def manager_of(self, name: FormatName) -> UUID:
        """QueueManagerAddress of a packet to this public queue. Null if nobody knows it, or if the name itself has
        it."""
        if not isinstance(name, PublicName):
            return NULL_GUID
        return self.identifier if self.queues.is_local(name) else self._locate(name) or NULL_GUID

    # What the manager writes by itself

    def cause_of(self, view: MessageView, *, stored: bool) -> Credentials:
        """On whose behalf the manager writes because of a message. If a message of another manager is `stored` in the
        queue of its destination, its header says so, because a Guard has checked it. On its way, it is unchecked."""
        if view.arrived_by_http:  # senders have no certificates there
            return Credentials(_EVERYONE, origin=self._origin(view))
        if self._is_own(view):
            sender = view.local_sender
            return OWN if sender is None else self.access.of_user(sender)
        if stored:
            return self.access.of_arrived(view, self._origin(view))
        return Credentials(NOBODY.token, origin=self._origin(view))

    def _origin(self, view: MessageView) -> str | None:
        carrier = self._brought_by(view)
        return None if carrier is None else carrier.origin(view)

    def knows(self, origin: str | None) -> bool:
        """Whether the address is in the directory, `[peers]` or `[relay] allow`. All other addresses are strangers'."""
        if self.relay.everything or origin is None:
            return self.relay.everything
        if origin in self.queues.local_hosts:  # anybody who can run a program here
            return self.relay.lists(origin)
        names = {origin, *chain.from_iterable(carrier.names(origin) for carrier in self.queues.carriers)}
        return any(map(self.relay.trusts, names))

    def write(
        self,
        queue: Queue,
        packet: bytes,
        cause: Credentials,
        now: float,
        *,
        priority: int = 0,
        expires_s: int = NEVER,
        reason: int = 0,
        follows: bool = False,
        share_bytes: int = ACK_SHARE_BYTES,
        asked: bool = False,
    ) -> Record:
        """The only way in which the manager writes a message that nobody sends: acknowledgments, receipts, reports,
        journals and dead letters. It acts on behalf of the one who has caused it. Raises AccessDenied or QuotaExceeded
        if that one could not have written it.

        For `follows`, see check_manager_quota. `share_bytes` limits what may wait to leave because of one stranger.
        What an application here has `asked` for is accepted whatever its queue demands of others.
        """
        size = len(packet)
        if _is_system(queue):
            self._check_copy(queue, size, cause)
        else:
            if queue.is_outgoing:
                if not cause.local and not self.knows(cause.origin):
                    quota = None if self.quota_kb is None else self.quota_kb * QUOTA_UNIT
                    self.shares.check(queue, size, cause.origin or "", share_bytes, quota, now)
            elif not (cause.own or asked or self.access.may_cause(queue, cause)):
                raise AccessDenied(no_right(Action.SEND, queue))
            self.check_quota(queue, size, follows=follows)
        return self.add(queue, packet, priority, expires_s, now, reason=reason)

    def _check_copy(self, queue: Queue, size: int, cause: Credentials) -> None:
        """A copy of our own message takes over its place. Copies of others' messages must leave room for those."""
        quota = queue.quota_bytes
        if not cause.local:
            self.check_quota(queue, size)
            quota = None if quota is None else quota // OTHERS_LETTERS
        if quota is not None and queue.used_bytes + size > quota:
            raise QuotaExceeded(f"the queue {queue.name}", quota, queue.used_bytes, size, f"quota_kb of {queue.name}")

    def copy(self, queue: Queue, packet: bytes, now: float, reason: int = 0, cause: Credentials = OWN) -> bool:
        """Puts a copy into a journal or a dead-letter queue, and returns whether it did. A copy that does not fit is
        dropped and counted."""
        try:
            self.write(queue, packet, cause, now, priority=priority_of(packet), reason=reason)
        except QuotaExceeded:
            if cause.local:
                self.overflows[queue.name] = self.overflows.get(queue.name, 0) + 1
            else:
                self.tally.unwritten += 1
            return False
        return True

    def dead_letter(
        self,
        packet: bytes,
        view: MessageView,
        reason: int,
        now: float,
        died_in: str | None = None,
        cause: Credentials | None = None,
    ) -> None:
        """Puts a dead letter into the queue that the message names, or into the system's ([MS-MQDMPR] 3.1.1.12,
        [MC-MQSRM] 3.1.5.2.1.2)."""
        self.tally.dead_lettered += 1
        if cause is None:
            cause = self.cause_of(view, stored=False)
        queue = self._named_dead_letter_queue(view, cause) or self.queues.system(
            DEADXACT if view.transactional else DEADLETTER
        )
        kept = self.copy(queue, packet, now, reason, cause)
        if kept or cause.local:
            self._note_death(died_in, packet, reason, queue.name, lost=not kept)

    def _note_death(
        self, died_in: str | None, packet: bytes, reason: int, letter: str | None, *, lost: bool = False
    ) -> None:
        for watcher in self.watchers:
            if watcher.died is not None:
                self.try_after(packet, watcher.died, died_in, packet, reason, letter, lost)

    def _named_dead_letter_queue(self, view: MessageView, cause: Credentials) -> Queue | None:
        """The dead-letter queue that the message names. None if it is not here, cannot have this kind of message, does
        not allow its sender to write, or is full. The dead letter then goes into the system's queue."""
        name = view.dead_letter_queue
        queue = None if name is None else self.queues.find(parse_name(name))
        if queue is None or queue.properties.queue_type not in (QueueType.PRIVATE, QueueType.PUBLIC):
            return None
        if queue.is_internal or queue.properties.transactional != view.transactional:
            return None
        if not self.access.may_cause(queue, cause):
            return None
        return queue if queue.has_room(len(view.data)) else None

    def _is_own(self, view: MessageView) -> bool:
        """Whether this manager made the message. By HTTP anybody can bring a message in our name."""
        return view.source_queue_manager_bytes == self.identifier.bytes_le and not view.arrived_by_http

    def journals_at_source(self, view: MessageView) -> bool:
        """Whether a copy is kept here if the message asks for it. Not for messages to a manager's own queues, note
        2."""
        if not self._is_own(view):
            return False
        try:
            return not leads_to_internal(destination_name(view))
        except IllegalName:
            return True

    # Administration acknowledgments

    def acknowledge(
        self,
        view: MessageView,
        message_class: int,
        now: float,
        cause: Credentials | None = None,
        stored: bool = False,
    ) -> None:
        """Send Administration Acknowledgment, [MS-MQQB] 3.1.7.15, if the message asked for this class. The manager acts
        on behalf of `cause`, or of whoever the message says, see cause_of."""
        if not asks_for(view.ack_flags, message_class):
            return
        if message_class in INSECURE_NACKS and not self.insecure_nacks:
            return
        carrier = self._brought_by(view)
        try:
            admin = admin_name(view) if carrier is None else carrier.admin_name(view, message_class)
            original = destination_name(view)
        except IllegalName:
            return  # nobody can send to this name
        if admin is None or leads_to_internal(original):  # [MS-MQQB] note 62
            return
        way = self._own_way(view, admin) if carrier is None else carrier.way_back(view, admin)
        if way is None:
            return
        sealed = view.encrypted or arrived_encrypted(view)  # a body that came encrypted does not leave in the clear
        body = b"" if message_class in POSITIVE or sealed else view.body
        ack = Message(
            body,
            label=view.label,
            priority=view.priority,
            recoverable=view.recoverable,
            body_type=view.body_type if body else 0,
            correlation_id=view.identifier,
            response_queue=original,
            time_to_reach_queue=INFINITE,
            time_to_be_received=INFINITE,
            message_class=message_class,
        )
        if cause is None:
            cause = self.cause_of(view, stored=stored)
        self.send_own(admin, ack, now, cause, way, follows=message_class in OF_TAKING)

    def _brought_by(self, view: MessageView) -> Carrier | None:
        """The carrier that brought the message. None if an application here has sent it."""
        return next((each for each in self.queues.carriers if each.brought(view)), None)

    def _own_way(self, view: MessageView, name: FormatName) -> FormatName | None:
        return name if self._is_own(view) or self.may_call(name, None) else None

    def may_call(self, name: FormatName, origin: str | None) -> bool:
        """Whether a stranger's message from the address `origin` may make us send to `name`. Counts a refusal."""
        callable_ = self.is_callable(name, origin)
        if not callable_:
            self.withhold(name, origin)
        return callable_

    def is_callable(self, name: FormatName, origin: str | None) -> bool:
        """The same, but counts nothing."""
        if self.relay.everything or self.queues.is_local(name):
            return True
        carrier = self.queues.carrier_of(name)
        hosts = _hosts(name) if carrier is None else list(carrier.hosts(name))
        return bool(hosts) and all(self.relay.allows(host, origin) for host in hosts)

    def _may_answer(self, name: FormatName, address: str) -> bool:
        """Whether a message of ours to `name` may be acknowledged from this address."""
        carrier = self.queues.carrier_of(name)
        return self.relay.trusts(address) or (carrier is not None and carrier.may_answer(name, address))

    def withhold(self, name: FormatName, origin: str | None) -> None:
        self.tally.withheld += 1
        for watcher in self.watchers:
            if watcher.withheld is not None:
                watcher.withheld(name, origin)

    def sending_queue(self, name: FormatName | PathName, now: float, *, own: bool = False) -> Queue:
        """The local queue of this name, or the outgoing queue that leads to it. None for a name that nobody can send
        to.

        `own` means that a local application sends.
        """
        queue = self.sendable(name)
        return queue or self.queues.outgoing_queue(self.tick, as_format_name(name), int(now), own=own)

    def sendable(self, name: FormatName | PathName) -> Queue | None:
        """The same, but does not create an outgoing queue."""
        queue = self.queues.find(name)
        if queue is None:
            if self.queues.is_local(name):
                raise QueueNotFound(f"there is no queue {name} on {self.queues.name}")
            if isinstance(name, MachineName):
                raise UnsupportedFormatNameOperation(f"nobody can send to {name}: these queues are for reading")
            return None
        if _is_system(queue):
            raise UnsupportedFormatNameOperation(
                f"nobody can send to {name}: journals and dead letters are for reading"
            )
        if queue.is_internal:
            raise AccessDenied(f"{name} is used by the queue manager itself")
        return queue

    def send_own(
        self,
        destination: FormatName,
        message: Message,
        now: float,
        cause: Credentials,
        way: FormatName | None = None,
        *,
        follows: bool = False,
    ) -> bool:
        """Sends a message of the manager itself, never transactional, through the outgoing queue of `way` or its own.
        Drops a message that cannot be sent, [MS-MQQB] 3.1.7.15.

        `follows` is for the acknowledgment of a message that leaves. There is at most one for each.
        """
        try:
            queue = self.sending_queue(way or destination, now)
            if queue.properties.transactional:
                return False
            composer = Composer(self.identifier, destination, manager=self.manager_of(destination))
            packet = composer.compose(message, self.counters.next_message_id(), int(now))
            asked = not queue.is_outgoing and bool(self.asked) and self.asked.answers(MessageView(packet), queue, None)
            expires_s = self.expiry(queue, packet, now)
            priority = message.priority
            self.write(queue, packet, cause, now, priority=priority, expires_s=expires_s, follows=follows, asked=asked)
        except StorageError:
            raise
        except (AccessDenied, QuotaExceeded):
            self.tally.unwritten += 1
            return False
        except PostroadError:
            return False
        if asked:
            self.asked.take(MessageView(packet))
        return True


def _hosts(name: FormatName) -> Sequence[str]:
    return (name.host,) if isinstance(name, DirectName) else ()


def is_stale(record: Record, now: float) -> bool:
    """Expiry is strict: it needs more seconds since SentTime than the time given ([MS-MQMQ] 2.2.19.1)."""
    return NEVER < record.expires_s < int(now)


def _is_system(queue: Queue) -> bool:
    return queue.properties.queue_type in (QueueType.SYSTEM, QueueType.JOURNAL)


def _is_relayed(queue: Queue, view: MessageView, identifier: UUID) -> bool:
    """[MS-MQQB] 3.1.7.1.2: the manager that gives up a message on its way keeps the dead letter.

    A transactional message is still at its source, which gives it up by itself.
    """
    foreign = view.source_queue_manager_bytes != identifier.bytes_le
    return foreign and queue.is_outgoing and not view.transactional


def as_format_name(name: FormatName | PathName) -> FormatName:
    """A path on another computer as a direct name."""
    return name if isinstance(name, FormatName) else DirectName.from_path(name)


# Which messages may move into a queue without being sent.


def check_movable(target: Queue) -> None:
    if target.is_outgoing:
        raise UnsupportedFormatNameOperation(
            f"messages move only within a queue manager, and {target.name} belongs to another: send them again"
        )
    if target.properties.queue_type is QueueType.JOURNAL or target.is_internal:
        raise AccessDenied(f"messages cannot be moved to {target.name}")


def check_kind(target: Queue, view: MessageView) -> None:
    """A queue for applications has transactional messages or others, never both."""
    properties = target.properties
    if (
        properties.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC, QueueType.SUBQUEUE)
        and properties.transactional != view.transactional
    ):
        kind, other = ("transactional", "is not") if properties.transactional else ("not transactional", "is")
        raise TransactionUsage(f"the queue {target.name} is {kind} and the message {other}")


# What cannot be sent to a multicast address. The caller gets an error at once, and nothing is queued.


# [MC-MQSRM] 2.1.3.1: an APDU has 64 KiB, including the envelope and the HTTP header. Room for these is left free.
MAX_CONTENT = 61_440


OFF = "multicast is off here: set `enabled = true` in [multicast] of the manager's configuration, and restart it"


def check_multicast(messages: Sequence[Message], transactional: bool) -> None:
    """Refuses what [MS-MQMQ] 2.1.6 and [MC-MQSRM] 2.1.3 forbid."""
    if transactional:
        raise TransactionUsage("a message to a multicast address cannot be sent in a transaction")
    for message in messages:
        if message.encrypt is not None:
            raise NotEncrypted("a message to a multicast address cannot be encrypted: it has no single receiver")
        if message.trace is not None:
            raise InvalidMessage("trace: a message to a multicast address cannot be traced")
        body = message.body
        size = len(encode_body(body, message.body_type) if isinstance(body, str) else body) + len(message.extension)
        if size > MAX_CONTENT:
            raise MessageTooLarge(
                f"a message to a multicast address can have {MAX_CONTENT} bytes of body and extension, got {size}"
            )


_make_record = partial(tuple.__new__, Record)  # runs no Python code for each record


def new_records(
    queue: int, lookup_ids: Iterable[int], arrived_ms: int, expires_s: Iterable[int], packets: Iterable[bytes]
) -> list[Record]:
    """Records of messages that arrive together in one queue."""
    parts = zip(repeat(queue), lookup_ids, repeat(arrived_ms), expires_s, repeat(0), packets, repeat(0))
    return list(map(_make_record, parts))
