"""Messages that arrive by a session, [MS-MQQB] 3.1.5.8: put into a local queue, forwarded to the next hop, or refused.

All changes of a batch of packets go into the gathering tick. After the tick, the session learns that its messages are
stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from postroad.binary.neighbours import Neighbours, Trust, plain
from postroad.binary.sender import Sender
from postroad.binary.sequences import IncomingSequence, IncomingSequences
from postroad.binary.session import TIMERS, BinarySettings, Session
from postroad.binary.states import Received, ReceivedRun
from postroad.binary.trace_reports import send_report
from postroad.carriers.arrivals import (
    REMOVALS,
    Destinations,
    MessageIdHistory,
    arrive_all,
    demand_room,
    foreign_id,
    has_room,
    overflow,
    refusal,
)
from postroad.carriers.flights import TransferWatcher, withdraw
from postroad.errors import IllegalName, ManagerFull, PostroadError, QuotaExceeded
from postroad.names import DirectName, FormatName, MulticastName, PrivateName, parse_format_name
from postroad.names.format import ORDER_QUEUE_NUMBER
from postroad.queues.behalf import ACK_SHARE_BYTES, FINAL_SHARE_BYTES
from postroad.queues.local import LocalQueueManager
from postroad.queues.permissions import NOBODY, Credentials, sender_of
from postroad.queues.queue import Queue
from postroad.queues.tick import keys
from postroad.runtime.bounded import Standing, owner_of
from postroad.runtime.deadlines import Source
from postroad.security.access import ANONYMOUS
from postroad.security.descriptors import Sid
from postroad.security.guard import Opened, Verdict, is_secured
from postroad.security.refusals import CLOSED, EXPIRED, NO_QUEUE, TOO_MANY_HOPS, Refused
from postroad.security.signatures import is_signed
from postroad.store.interface import NEVER, Record
from postroad.wire.constants import MAX_HOP_COUNT, MessageClass, TransactionFlags
from postroad.wire.headers import TxSequenceId
from postroad.wire.octets import NULL_GUID
from postroad.wire.ordering import FinalAck, OrderAck, order_queue
from postroad.wire.patch import as_stored, with_hop_count
from postroad.wire.queue_names import destination_name
from postroad.wire.runs import Run
from postroad.wire.view import MessageView, has_expired, with_sender

_NOBODY = NULL_GUID.bytes_le  # QueueManagerAddress for a direct name
NO_ROOM = "more managers send than [limits] remote_managers allows"
# How long the FinalAck of a message that begins no sequence may wait to be sent: the message comes again.
REFUSAL_S = 60
REFUSALS = 1000  # of those FinalAcks, remembered so that a repeated message has only one


@dataclass(slots=True)
class _OrderAckDue:
    """An OrderAck that waits for more messages to cover, 3.1.1.6.2."""

    session: Session  # by which the last of the messages came
    sequence: IncomingSequence
    source: bytes
    address: str | None  # the sender's, if the message came by a direct name
    origin: str  # where the message came from


class Receiver:
    """The receiver of one queue manager. Passes ordering acknowledgments to its `sender`.

    Calls `claimed` for messages in the name of managers that are elsewhere.
    """

    def __init__(
        self,
        core: LocalQueueManager,
        settings: BinarySettings,
        neighbours: Neighbours,
        sender: Sender,
        claimed: Callable[[UUID, str, bool], None],
        watcher: TransferWatcher,
    ) -> None:
        self.core = core
        self.settings = settings
        self.neighbours = neighbours
        self.history = MessageIdHistory(
            core.store,
            settings.duplicates,
            settings.duplicates_s,
            is_known=self._is_known,
            begun=self._note_cleaning,
        )
        self.incoming = IncomingSequences(
            core.store,
            settings.remote_managers,
            owner=lambda sender: owner_of(neighbours.address_of(sender.bytes_le) or str(sender)),
            standing=lambda sender: neighbours.standing(sender.bytes_le),
            dropped=self._forget_sequence,
        )
        self.refusals = 0
        self.claims = 0  # messages in the name of managers that are elsewhere
        self._claimed = claimed
        self._watcher = watcher
        self._sender = sender
        self._own = core.identifier.bytes_le
        self._due: dict[str, _OrderAckDue] = {}
        self.destinations = Destinations(core.queues)
        self._order_acks: dict[str, tuple[Queue, Record]] = {}  # the last of each sequence, and where it is
        self._refusal_acks: dict[bytes, tuple[Queue, Record]] = {}  # by message id, the newest last
        self._timers = core.deadlines.source(TIMERS, self._order_acks_due)
        self._cleaning: Source[None] = core.deadlines.source(TIMERS, self._clean)

    def take(self, session: Session, event: Received, address: str, now: float, opened: Verdict | None = None) -> None:
        """Takes one message of a session from `address`. `opened` is the verdict of the security checks, if there were
        any.

        If the manager's quota is full, the session closes without an answer.
        """
        packet = event.packet
        address = plain(address)
        try:
            if isinstance(packet, MessageView):
                self._take_message(session, event.data, packet, address, now, opened)
            elif packet.queue_manager_address not in (NULL_GUID, self.core.identifier):
                self._forward(event.data, MessageView(event.data), address, now)
            elif isinstance(packet, OrderAck):
                self._sender.take_order_ack(packet, session, now)
            else:
                self._sender.take_final_ack(packet, session, now)
        except ManagerFull as fault:
            session.close(str(fault))

    def take_run(self, session: Session, event: ReceivedRun, address: str, now: float) -> None:
        """Takes several plain messages of a session together, or one by one if any of them is unusual."""
        if not self._take_together(session, event.run, plain(address), now):
            for each in event.each():
                self.take(session, each, address, now)

    def _take_together(self, session: Session, run: Run, address: str, now: float) -> bool:
        """Puts all of the messages into their queue. Returns False, with nothing changed, if that cannot be done
        together.

        They are alike, so the rights of the first apply to all. Expiry, room and duplicates are checked for all of them
        at once.
        """
        view = run.view
        source = view.source_queue_manager_bytes
        queue = self._destination(view)
        if (
            queue is None
            or source == self._own
            or view.queue_manager_address_bytes not in (self._own, _NOBODY)
            or self._refusal(queue, view, None, now) is not None
            or has_expired(view.time_to_reach_queue, run.oldest_s, now)
            or not has_room(self.core.delivery, queue, run.size)
            or self.neighbours.admit(source, address, session, now) is not Trust.FIRST_HAND
        ):
            return False
        tick = self.core.delivery.tick
        if not view.transactional:
            if self.history.has_any(run.identifiers):
                return False
            arrive_all(self.core.delivery, queue, run, now)
            self.history.add_all(run.identifiers, now, tick if view.recoverable else None, address)
        else:
            name, sequence = self.incoming.find(view)
            if sequence is None or not sequence.accepts(*_place(view)):
                return False
            self._schedule_order_ack(name, session, sequence, view, address, now)
            records = arrive_all(self.core.delivery, queue, run, now)
            added = keys(queue.number, [record.lookup_id for record in records])
            self.incoming.advance(tick, name, sequence, _place(view)[0], run.last_number, added, now)
        self.neighbours.delivered(source, recoverable=view.recoverable)
        return True

    def needs_opening(self, view: MessageView) -> bool:
        """Whether a signature or key must be checked, 3.1.5.8.3. Only at the destination, because routers have no
        keys."""
        if not view.has_security or view.queue_manager_address_bytes not in (self._own, _NOBODY):
            return False
        return is_secured(view) or self.core.access.awaits(view)

    def _take_message(
        self,
        session: Session,
        data: bytes,
        view: MessageView,
        address: str,
        now: float,
        opened: Verdict | None,
    ) -> None:
        if view.arrived_by_http:  # AH, which no sender may set
            data = as_stored(data)
            view = MessageView(data)
        trust = self.neighbours.admit(view.source_queue_manager_bytes, address, session, now)
        if not trust:
            if self.neighbours.is_unknown(view.source_queue_manager_bytes):
                session.close(NO_ROOM)
                return
            self._refuse_claim(view.source_queue_manager, address)
            # Not acknowledged, so that nothing is lost if the manager has moved: it will try again.
            session.close(f"a message claims to be from {view.source_queue_manager}, which is at another address")
            return
        identifier = view.identifier
        # Otherwise a stranger could turn a message of the manager that it names into a duplicate.
        if trust is Trust.SECOND_HAND:
            identifier = foreign_id(identifier, address)
        if not view.transactional and identifier in self.history:  # 3.1.5.8.1
            self.history.refresh(identifier, now)
            return
        taken = False
        if view.queue_manager_address_bytes not in (self._own, _NOBODY):
            taken = self._forward(data, view, address, now)
        elif not view.transactional:
            taken = self._deliver(data, view, address, now, opened)
        elif trust is Trust.FIRST_HAND:
            self._take_transactional(session, data, view, address, now, opened)
        else:  # this caller must not move the sequence; the sender keeps the message
            self._refuse_claim(view.source_queue_manager, address, passed_on=True)
        # Last, so that a message for which there was no room is no duplicate when it comes again.
        if not view.transactional:
            tick = self.core.delivery.tick if view.recoverable else None
            self.history.add(identifier, now, tick, address, taken=taken)

    def _refuse_claim(self, source: UUID, address: str, *, passed_on: bool = False) -> None:
        self.claims += 1
        self._claimed(source, address, passed_on)

    # Into a local queue

    def _take_transactional(
        self,
        session: Session,
        data: bytes,
        view: MessageView,
        address: str,
        now: float,
        opened: Verdict | None,
    ) -> None:
        """3.1.5.8.6: accepts a message in order or not at all. In both cases the sender learns which number we
        expect."""
        place = _place(view)
        name, sequence = self.incoming.find(view)
        if sequence is None:
            refused = self._refusal(self._destination(view), view, opened, now)
            if refused is not None:  # a refused message begins no sequence, so that nothing needs to be remembered
                self._refuse(data, view, refused, address, now, opened)
                return
            standing = self.neighbours.standing_at(address)
            if not place[2]:  # no message has to come before it
                standing = max(standing, Standing.PROVEN)
            sequence = self.incoming.begin(name, view, owner_of(address), standing)
            if sequence is None:  # not acknowledged, so that the sender keeps the message
                session.close(NO_ROOM)
                return
        self._schedule_order_ack(name, session, sequence, view, address, now)
        if sequence.accepts(*place):
            tick = self.core.tick
            before = len(tick.batch.puts)
            self._deliver(data, view, address, now, opened)
            added = tick.last_puts(len(tick.batch.puts) - before)
            self.incoming.advance(tick, name, sequence, place[0], place[1], added, now)
        else:
            self.incoming.reject(self.core.tick, name, sequence, now)

    def _is_known(self, address: str) -> bool:
        return self.neighbours.standing_at(address) is Standing.KNOWN

    def _forget_sequence(self, name: str, sequence: IncomingSequence) -> None:
        """The sequence was dropped to make room for another."""
        self._timers.set(name, None)
        self._due.pop(name, None)
        self._order_acks.pop(name, None)
        if sequence.number:
            self.core.tick.set_state(name, None)

    def _deliver(self, data: bytes, view: MessageView, address: str, now: float, opened: Verdict | None) -> bool:
        """3.1.5.8.2, 3.1.5.8.3 and 3.1.5.8.8: checks the message for a local queue and puts it there, decrypted.
        Returns whether the queue took it."""
        queue = self._destination(view)
        refused = self._refusal(queue, view, opened, now)
        asked = False
        if refused is not None and queue is not None and refused in CLOSED:
            asked = self.core.delivery.asked.answers(view, queue, address)
            refused = None if asked else refused
        if refused is None:
            assert queue is not None
            refused = overflow(self.core.delivery, queue, len(data))
        if refused is not None:
            self._refuse(data, view, refused, address, now, opened, in_order=True)
            return False
        assert queue is not None
        if isinstance(opened, Opened):
            data = opened.packet
            view = MessageView(data)
        self.neighbours.delivered(view.source_queue_manager_bytes, recoverable=view.recoverable)
        packet = as_stored(data)
        if view.source_queue_manager_bytes == self._own:  # only a claim: the message is from no application here
            credentials = self._credentials(view, opened if isinstance(opened, Opened) else None)
            packet = with_sender(packet, sender_of(credentials.token) or str(ANONYMOUS))
            view = MessageView(packet)
        self.core.delivery.arrive(queue, packet, view, now)
        if asked:
            self.core.delivery.asked.take(view)
        if view.tracing:
            report = partial(send_report, self.core, view, now, stored=True)
            self.core.delivery.try_after(data, report)
        return True

    def _destination(self, view: MessageView) -> Queue | None:
        """The local queue that a message is for. A direct name means this computer, whatever it calls it."""
        written = view.queue_manager_address_bytes + view.destination_bytes
        queue = self.destinations.known(written)
        if queue is None:
            try:
                name = destination_name(view)
            except IllegalName:
                return None
            queue = None if name is None else self.destinations.find(name)
            if queue is not None:
                self.destinations.remember(written, queue)
        return queue

    def _refusal(self, queue: Queue | None, view: MessageView, opened: Verdict | None, now: float) -> Refused | None:
        if queue is None:
            return NO_QUEUE
        if isinstance(opened, Refused):
            # A queue that refuses such messages gives the same answer whether or not the message could be decrypted.
            if is_signed(view):
                return opened
            visible = Credentials(self.core.access.claimed_sender(view), encrypted=view.encrypted)
            return refusal(queue, view, visible, self.core.access, now) or opened
        return refusal(queue, view, self._credentials(view, opened), self.core.access, now)

    def _credentials(self, view: MessageView, opened: Opened | None) -> Credentials:
        """The sender: the owner of a registered certificate, the one that the message names if the settings believe
        that, or nobody."""
        if opened is not None and opened.sender is not None:
            token = self.core.access.token(Sid.decode(opened.sender))
        elif view.has_security:
            signed = opened is not None and opened.authentication_level > 0
            token = self.core.access.claimed_sender(view, signed=signed)
        else:
            return NOBODY
        if opened is None:
            return Credentials(token)
        return Credentials(token, bool(opened.authentication_level), opened.cipher is not None)

    def _refuse(
        self,
        data: bytes,
        view: MessageView,
        refused: Refused,
        address: str,
        now: float,
        opened: Verdict | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        """Refuses a message and sends the acknowledgments it asks for. Of a stranger's message, only a count stays. A
        message of a known manager leaves a dead letter here, as 3.1.5.8.8 demands for a full queue, for any reason. If
        it is not transactional, its sender has already given it up.

        Raises ManagerFull if there is no room for the dead letter, or for the FinalAck of a message that is `in_order`,
        because nobody will ask for it again.
        """
        delivery = self.core.delivery
        reason = refused.acknowledgment
        leaves_letter = view.negative_journaling and not view.transactional and delivery.knows(address)
        if leaves_letter:
            demand_room(delivery, len(data))
        if view.transactional:
            self._tell_refusal(view, reason, self._direct_address(view, address), address, now, in_order=in_order)
        self.refusals += 1
        delivery.tally.refused[refused.reason] += 1
        delivery.try_after(data, self._watcher.refused, view, refused)
        if leaves_letter:
            nobody = replace(NOBODY, origin=address)
            delivery.try_after(data, delivery.dead_letter, as_stored(data), view, reason, now, None, nobody)
        cause = self._credentials(view, opened) if isinstance(opened, Opened) else NOBODY
        delivery.try_after(data, delivery.acknowledge, view, reason, now, replace(cause, origin=address))

    def _tell_refusal(
        self, view: MessageView, reason: int, direct: str | None, address: str, now: float, *, in_order: bool = False
    ) -> None:
        """Sends the FinalAck of a refused message. If the message begins no sequence, its sender repeats it until the
        FinalAck arrives. A newer FinalAck then replaces an older one, and each expires soon."""
        key = view.identifier
        if not in_order:
            withdraw(self.core, self._refusal_acks.pop(key, None))
        expires_s = NEVER if in_order else int(now) + REFUSAL_S
        try:
            sent = self._send_final_ack(view, reason, direct, address, now, expires_s=expires_s)
        except QuotaExceeded as fault:
            if in_order:
                raise ManagerFull(str(fault)) from fault
            self.core.delivery.tally.unwritten += 1
            return
        except Exception as error:  # no acknowledgment can express its place
            self.core.delivery.note_failure(view.data, error)
            return
        if sent is not None and not in_order:
            self._refusal_acks[key] = sent
            if len(self._refusal_acks) > REFUSALS:
                del self._refusal_acks[next(iter(self._refusal_acks))]

    # On to the next hop

    def _forward(self, data: bytes, view: MessageView, address: str, now: float) -> bool:
        """3.1.5.8.2 and 3.1.5.8.5: counts the hop, and puts the message into the outgoing queue for its destination.
        Returns whether it did."""
        hops = view.hop_count + 1
        name = self._onward_name(view)
        refused = None
        if hops > MAX_HOP_COUNT:
            refused = TOO_MANY_HOPS
        elif name is None:
            refused = NO_QUEUE
        elif view.has_expired(now):
            refused = EXPIRED
        elif not self._may_forward(view, name, address):
            self._withhold(view, name, address, now)
            return False
        if refused is not None:
            self._refuse(data, view, refused, address, now)
            return False
        assert name is not None
        packet = with_hop_count(as_stored(data), hops)
        if view.source_queue_manager_bytes == self._own:
            packet = with_sender(packet, str(ANONYMOUS))
        try:
            queue = self.core.queues.outgoing_queue(self.core.tick, name, int(now))
            self.core.delivery.check_quota(queue, len(packet))
        except QuotaExceeded as fault:
            raise ManagerFull(str(fault)) from fault
        self.core.delivery.arrive(queue, packet, view, now)
        if view.tracing:
            self.core.delivery.try_after(packet, send_report, self.core, MessageView(packet), now)
        return True

    def _may_forward(self, view: MessageView, name: FormatName, address: str) -> bool:
        relay = self.core.delivery.relay
        if relay.everything:
            return True
        source = view.source_queue_manager
        trusted = self.neighbours.trusts(source, address)
        return self.neighbours.directory.forwards(source, name, relay.lists, trusted=trusted)

    def _withhold(self, view: MessageView, name: FormatName, address: str, now: float) -> None:
        """Refuses a message that we must not forward. Keeps nothing of it, not even a dead letter."""
        self.refusals += 1
        self.core.delivery.withhold(name, address)
        cause = replace(NOBODY, origin=address)
        self.core.delivery.acknowledge(view, MessageClass.NACK_BAD_DST_Q, now, cause)
        if view.transactional:
            self._tell_refusal(view, MessageClass.NACK_BAD_DST_Q, None, address, now)

    def _onward_name(self, view: MessageView) -> FormatName | None:
        """The name to forward to. None for a name that leads nowhere from here, such as a direct name with another
        manager's GUID. We forward to no multicast group."""
        try:
            name = destination_name(view)
        except IllegalName:
            return None
        return None if isinstance(name, DirectName | MulticastName) else name

    # Ordering acknowledgments

    def _schedule_order_ack(
        self, name: str, session: Session, sequence: IncomingSequence, view: MessageView, address: str, now: float
    ) -> None:
        """3.1.1.6.2: each message delays the OrderAck a little, up to a limit of time and of messages."""
        delay = self.settings.order_ack_ms / 1000
        if sequence.last_order_ack is None:
            sequence.last_order_ack = now
        due = self._due.get(name)
        if due is None:
            direct = self._direct_address(view, address)
            source = view.source_queue_manager_bytes
            self._due[name] = _OrderAckDue(session, sequence, source, direct, address)
            self._timers.set(name, now + delay)
            return
        due.session = session
        few = sequence.number - sequence.order_acked < self.settings.order_ack_messages
        if few and now - sequence.last_order_ack < self.settings.max_order_ack_delay_s:
            self._timers.set(name, now + delay)

    def _direct_address(self, view: MessageView, address: str) -> str | None:
        """The address to answer a message with a direct name; None if its answer goes by the sender's GUID."""
        return address if view.queue_manager_address_bytes == _NOBODY else None

    def _clean(self, keys: list[None], now: float) -> None:
        """MessageIDHistory Cleanup Timer, 3.1.6.7."""
        self.history.clean(now)
        self._note_cleaning()

    def _note_cleaning(self) -> None:
        self._cleaning.set(None, self.history.deadline)

    def _order_acks_due(self, names: list[str], now: float) -> None:
        """Order Ack Send Timer, 3.1.6.9. Messages that are not durable are not acknowledged yet. The timer starts again
        for them."""
        for name in names:
            due = self._due.get(name)
            if due is None:
                continue
            if due.session.closed:  # the sender will repeat, perhaps from another address
                del self._due[name]
                continue
            sequence = due.sequence
            if sequence.durable == sequence.number:
                del self._due[name]
            else:
                self._timers.set(name, now + self.settings.order_ack_ms / 1000)
                if sequence.durable <= sequence.order_acked:
                    continue  # nothing new to acknowledge
            if sequence.durable:
                self._send_order_ack(name, due, now)
                sequence.last_order_ack, sequence.order_acked = now, sequence.durable

    def _send_order_ack(self, name: str, due: _OrderAckDue, now: float) -> None:
        """Sends an OrderAck. It covers the previous one, which it replaces if that has not left yet."""
        withdraw(self.core, self._order_acks.pop(name, None))
        target = self._ordering_target(due.source, due.address)
        if target is None:
            return
        destination, address = target
        ack = OrderAck(
            source_queue_manager=self.core.identifier,
            message_id=self.core.counters.next_message_id(),
            sent_time=int(now),
            destination_queue=order_queue(due.address),
            queue_manager_address=address,
            sequence_id=due.sequence.sequence_id,
            sequence_number=due.sequence.durable,
            previous_sequence_number=due.sequence.durable - 1,
        )
        try:
            sent = self._send(destination, ack.encode(), due.origin, now, follows=True)
        except QuotaExceeded:
            return  # the messages come again and cause another
        if sent is not None:
            self._order_acks[name] = sent

    def _send_final_ack(
        self,
        view: MessageView,
        final_class: int,
        address: str | None,
        origin: str | None,
        now: float,
        *,
        expires_s: int = NEVER,
        follows: bool = False,
    ) -> tuple[Queue, Record] | None:
        """3.1.7.17: sends a FinalAck to the manager that the message is from, not to the last hop. Raises QuotaExceeded
        if there is no room. There is more room if it `follows` from a message that leaves."""
        header = view.transaction_header
        assert header is not None
        source = view.source_queue_manager_bytes
        target = self._ordering_target(source, address)
        if target is None:
            return None
        destination, manager = target
        ack = FinalAck(
            source_queue_manager=self.core.identifier,
            message_id=self.core.counters.next_message_id(),
            sent_time=int(now),
            destination_queue=order_queue(address),
            queue_manager_address=manager,
            sequence_id=header.sequence_id,
            sequence_number=header.sequence_number,
            previous_sequence_number=header.previous_sequence_number,
            final_class=final_class,
            source_guid=view.source_queue_manager,
            acknowledged_message_id=view.message_id,
        )
        return self._send(destination, ack.encode(), origin, now, expires_s=expires_s, follows=follows)

    def _ordering_target(self, source: bytes, address: str | None) -> tuple[FormatName, UUID] | None:
        """Where ordering acknowledgments go. None, and they are dropped, if nobody can send to the address of the
        message."""
        if address is not None:
            try:
                return parse_format_name(f"DIRECT={order_queue(address).direct_name}"), NULL_GUID
            except IllegalName:
                return None
        manager = UUID(bytes_le=source)
        return PrivateName(manager, ORDER_QUEUE_NUMBER), manager

    def _send(
        self,
        destination: FormatName,
        packet: bytes,
        origin: str | None,
        now: float,
        *,
        expires_s: int = NEVER,
        follows: bool = False,
    ) -> tuple[Queue, Record] | None:
        """Sends an acknowledgment. Drops it if nobody can or may send to the name, 3.1.7.17."""
        delivery = self.core.delivery
        if not delivery.may_call(destination, origin):
            return None
        try:
            queue = self.core.queues.outgoing_queue(self.core.tick, destination, int(now))
        except PostroadError:
            return None
        share = FINAL_SHARE_BYTES if follows else ACK_SHARE_BYTES
        cause = replace(NOBODY, origin=origin)
        return queue, delivery.write(queue, packet, cause, now, expires_s=expires_s, follows=follows, share_bytes=share)

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """3.1.7.2.2: a message has left its queue. If it is transactional, tells its sender how."""
        if queue.properties.queue_type not in REMOVALS:
            return
        view = MessageView(record.packet)
        fields = view.transaction_fields
        if fields is None or view.source_queue_manager_bytes == self._own or view.arrived_by_http:
            return
        if view.positive_journaling or view.negative_journaling or fields[0] & TransactionFlags.FINAL_ACK.value:
            if fields[4] >= fields[3]:
                return  # accepted by an earlier version, and no FinalAck can express its place
            origin = self.neighbours.address_of(view.source_queue_manager_bytes)
            direct = origin if view.queue_manager_address_bytes == _NOBODY else None
            try:
                self._send_final_ack(view, reason, direct, origin, now, follows=True)
            except QuotaExceeded:
                self.core.delivery.tally.unwritten += 1


def _place(view: MessageView) -> tuple[TxSequenceId, int, int]:
    """The place of a transactional message: its sequence, its number and the previous number."""
    fields = view.transaction_fields
    assert fields is not None
    return TxSequenceId(fields[1], fields[2]), fields[3], fields[4]
