"""Messages that come in by HTTP, [MC-MQSRM] 3.1.5.1: into a local queue, on to another manager, or refused.

Everything that a request changes is in the gathering tick. Its answer leaves when that is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from postroad.carriers.arrivals import (
    REMOVALS,
    Destinations,
    MessageIdHistory,
    demand_room,
    foreign_id,
    overflow,
    refusal,
)
from postroad.carriers.flights import TransferWatcher, withdraw
from postroad.errors import IllegalName, MalformedSoap, ManagerFull, PostroadError, QuotaExceeded
from postroad.message import Composer, Message
from postroad.names import DirectName, FormatName
from postroad.names.format import ORDER_QUEUE
from postroad.net.endpoints import is_address
from postroad.queues.behalf import ACK_SHARE_BYTES, FINAL_SHARE_BYTES
from postroad.queues.local import LocalQueueManager
from postroad.queues.permissions import Credentials
from postroad.queues.queue import Queue
from postroad.runtime.deadlines import Source
from postroad.security.access import Token
from postroad.security.refusals import CLOSED, EXPIRED, WRONG_DIGEST, Refused
from postroad.soap.addresses import at_address, destination_of, url_of
from postroad.soap.elements import Attachments, Envelope, Stream
from postroad.soap.envelope import read_envelope
from postroad.soap.multipart import split_entity
from postroad.soap.packets import NOT_IDENTIFIED, Form, Forms, MessageType, identify, packet_of
from postroad.soap.requests import REPORTED, stream_id_of, stream_receipt
from postroad.soap.sender import Sender, Taken
from postroad.soap.settings import TIMERS, SoapSettings
from postroad.soap.signature import NOT_SIGNED, check_signature
from postroad.soap.streams import IncomingStream, IncomingStreams, Verdict
from postroad.store.interface import NEVER, Record
from postroad.wire.constants import MAX_PACKET_SIZE, AckFlags, MessageClass
from postroad.wire.patch import arrived_by_http, brought_by
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

HISTORY_STATE = "soap-history/"
OK, BAD_REQUEST, SERVER_ERROR = 200, 400, 500
_NO_ID = NOT_IDENTIFIED.to_bytes()
_STREAM_RECEIPTS = frozenset({MessageType.STREAM_RECEIPT, MessageType.FINAL_STREAM_RECEIPT})
_EVERYONE = Credentials(Token.everyone())
# 3.1.5.2.1.1 and 3.1.7.3.2: the reasons for which a message that belongs to no stream leaves its dead letter here,
# because nobody else would.
_DEAD_HERE = frozenset(
    {
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.NACK_Q_EXCEED_QUOTA,
        MessageClass.NACK_RECEIVE_TIMEOUT,
        MessageClass.NACK_DELETED,
        MessageClass.NACK_Q_PURGED,
    }
)


@dataclass(slots=True)
class Incoming:
    """One request: what its header says about the body, the address that it came from, and the one that it came to."""

    content_type: str
    body: bytes
    address: str = ""
    local: str = ""


@dataclass(slots=True)
class Outcome:
    """The status to answer with. `repeated` means that the message came again, or after others of its stream: the
    answer then depends on the commit under way, too. `fault` says why the request was refused."""

    status: int
    repeated: bool = False
    fault: str | None = None


_TAKEN = Outcome(OK)


class _NotForUs(Exception):
    """3.1.5.1.3: the message is not for this manager."""


class Receiver:
    """Receives for one queue manager. Receipts of streams go to its `sender`."""

    def __init__(
        self,
        core: LocalQueueManager,
        settings: SoapSettings,
        sender: Sender,
        watcher: TransferWatcher,
        first_address: Callable[[str], str],
    ) -> None:
        """`first_address` gives one address for all those of a manager: it is the same sender, wherever it runs."""
        self.core = core
        self.settings = settings
        self.sender = sender
        self.history = MessageIdHistory(
            core.store,
            settings.duplicates,
            settings.duplicates_s,
            HISTORY_STATE,
            self._is_known,
            self._note_cleaning,
        )
        self.incoming = IncomingStreams(
            core.store,
            self.history.forget,
            settings.remote_managers,
            is_known=self._is_known,
            dropped=self._forget_stream,
        )
        self.receipts_ignored = 0  # for streams of ours, from others than their receivers
        self.receipts_dropped = 0  # wanted by strangers at hosts that these may not make us call
        self._watcher = watcher
        self._first_address = first_address
        self._own = core.identifier.bytes_le
        self._destinations = Destinations(core.queues)
        self._forms = Forms()
        self._due = core.deadlines.source(TIMERS, self.on_timer, self._receipt_at)
        self._cleaning: Source[None] = core.deadlines.source(TIMERS, self._clean)
        self._receipts: dict[str, tuple[Queue, Record]] = {}  # the last one of each stream, and where it was put
        for state in self.incoming.names():
            self._due.touch(state)

    def _is_known(self, address: str) -> bool:
        return self.core.delivery.relay.names(address)

    def _forget_stream(self, state: str) -> None:
        self._receipts.pop(state, None)
        self.core.tick.set_state(state, None)

    def take(self, incoming: Incoming, now: float) -> Outcome:
        """Takes a request. If the answer is not 200, nothing has changed."""
        try:
            text, attachments = split_entity(incoming.content_type, incoming.body)
            found = None if attachments.extension else self._forms.find(text, incoming.address)
            if found is not None and self._take_formed(*found, attachments.body or b"", incoming, now):
                return _TAKEN
            envelope = read_envelope(text)
            with self.core.delivery.atomic:
                return Outcome(OK, self._take(envelope, attachments, incoming, now))
        except (MalformedSoap, IllegalName, _NotForUs) as fault:
            return Outcome(BAD_REQUEST, fault=str(fault))
        except ManagerFull as fault:
            return Outcome(SERVER_ERROR, fault=str(fault))

    def _take_formed(self, form: Form, digits: bytes, body: bytes, incoming: Incoming, now: float) -> bool:
        """Puts a message of a known form into its queue, by the rules of `_take`. Returns False, with nothing changed,
        if something prevents it; `_take` then finds out what."""
        name, queues = form.name, self.core.queues
        if name.host.lower() not in queues.local_hosts and name.host != incoming.local:
            return False
        if self.settings.redirections.inbound:
            return False
        queue = self._destinations.known((name, False))
        if queue is None:
            return False
        packet = form.packet(digits, body)
        caller = self._first_address(incoming.address)
        key = _history_key(form.source + int(digits).to_bytes(4, "little"), caller)
        if len(packet) > MAX_PACKET_SIZE or key in self.history or self._refusal(queue, form.view, len(packet), now):
            return False
        delivery = self.core.delivery
        with delivery.atomic:
            delivery.add(queue, packet, form.priority, NEVER, now)  # no message by HTTP has a time to be received
            if key:
                self.history.add_all((key,), now, delivery.tick if form.durable else None, form.caller)
        return True

    def _take(self, envelope: Envelope, attachments: Attachments, incoming: Incoming, now: float) -> bool:
        """3.1.5.1: goes through the steps in their order. Returns whether the message was a duplicate of one that may
        not be durable yet."""
        name = destination_of(envelope.path.to)
        if not isinstance(name, DirectName):
            raise _NotForUs(f"no queue here is subscribed to {name}")
        if name.host.lower() not in self.core.queues.local_hosts and name.host != incoming.local:
            if not self.settings.redirections.store_and_forward:
                raise _NotForUs(f"{name.host} is not a name of this manager, which passes nothing on")
            return self._forward(envelope, attachments, name, incoming.address, now)
        redirections = self.settings.redirections
        if redirections.inbound and (target := redirections.inbound_target(envelope.path.to)) is not None:
            name = DirectName.from_wire(target)
            if not self.core.queues.is_local(name):
                return self._forward(envelope, attachments, name, incoming.address, now, configured=True)
        kind = identify(envelope)
        queue = self._destination(name, kind)
        if queue.properties.transactional != (envelope.stream is not None):
            raise _NotForUs(f"{queue.properties.path} is for {'other' if envelope.stream else 'stream'} messages")
        match kind:
            case MessageType.STREAM_RECEIPT:
                assert envelope.stream_receipt is not None
                taken = self.sender.take_stream_receipt(envelope.stream_receipt, incoming.address, now)
                self._note_receipt(taken, incoming.address)
            case MessageType.FINAL_STREAM_RECEIPT:
                assert envelope.stream_receipt is not None
                assert envelope.commitment_receipt is not None
                assert envelope.msmq is not None
                outcome, reason = envelope.commitment_receipt, envelope.msmq.message_class
                taken = self.sender.take_final_receipt(envelope.stream_receipt, outcome, reason, incoming.address, now)
                self._note_receipt(taken, incoming.address)
                return True  # nobody sends another: what an earlier copy changed must be durable
            case None:
                pass  # 3.1.5.1.5: without a type, and ignored
            case _:
                checked = NOT_SIGNED
                if envelope.signature is not None:
                    checked = check_signature(envelope.signature, attachments, self.settings.accept_hashes)
                if checked.fault is not None:
                    facts = {"peer": incoming.address, "id": envelope.path.id, "reason": checked.fault}
                    self._watcher.suspicious("SOAP signature refused", facts)
                address, forged = incoming.address, checked.fault is not None
                packet = packet_of(envelope, attachments, int(now), name, verified=checked.verified, address=address)
                return self._take_message(queue, name, envelope, packet, address, forged, now)
        return False

    def _note_receipt(self, taken: Taken, address: str) -> None:
        """The answer is the same whatever happened to the receipt, so nobody learns from it which streams exist."""
        if taken is Taken.NOT_FROM_THERE:
            self.receipts_ignored += 1
            advice = "if it is the destination's, add its address to [relay] allow"
            self._watcher.suspicious("stream receipt ignored", {"peer": address, "advice": advice})

    def _destination(self, name: DirectName, kind: MessageType | None) -> Queue:
        """The queue here to which others may send by this name. Receipts of streams go to the manager itself."""
        key = (name, kind in _STREAM_RECEIPTS)
        queue = self._destinations.known(key)
        if queue is None:
            queue = self._destinations.find(name, internal=True)
            if queue is None:
                raise _NotForUs(f"there is no queue {name}")
            receipts = kind in _STREAM_RECEIPTS and queue.properties.path.lower() == ORDER_QUEUE
            if queue.is_internal and not receipts:
                raise _NotForUs(f"{name} is for receipts of streams alone")
            self._destinations.remember(key, queue)
        return queue

    # Into a queue

    def _take_message(
        self, queue: Queue, name: DirectName, envelope: Envelope, packet: bytes, address: str, forged: bool, now: float
    ) -> bool:
        """3.1.5.1.6, with 3.1.5.1.7 and 3.1.5.1.10, which are parts of it."""
        view = MessageView(packet)
        if envelope.stream is not None:
            return self._take_stream_message(queue, name, envelope.stream, view, address, forged, now)
        if self._is_repeated(key := _history_key(view.identifier, self._first_address(address)), now):
            return True
        refused = self._refusal(queue, view, len(packet), now, forged=forged)
        asked = refused in CLOSED and self.core.delivery.asked.answers(view, queue, address)
        if asked:
            refused = overflow(self.core.delivery, queue, len(packet))
        self._deliver(queue, view, key, refused, now)
        if asked and refused is None:
            self.core.delivery.asked.take(view)
        return False

    def _is_repeated(self, key: bytes, now: float) -> bool:
        repeated = key in self.history
        if repeated:
            self.history.refresh(key, now)
        return repeated

    def _remember(self, view: MessageView, key: bytes, now: float) -> None:
        if key:
            self.history.add(key, now, self.core.delivery.tick if view.recoverable else None, brought_by(view.data))

    def _take_stream_message(
        self, queue: Queue, name: DirectName, element: Stream, view: MessageView, address: str, forged: bool, now: float
    ) -> bool:
        """3.1.5.1.6.3: accepts the message in order, or not at all."""
        # 2.2.5.3.1: it identifies the sender
        state, stream = self.incoming.of(element.stream_id, name, self._first_address(address))
        key = _history_key(view.identifier, self.incoming.address(state))  # the same, wherever the stream goes on from
        duplicate = self._is_repeated(key, now)
        delay_s = self.settings.receipt_ms / 1000
        verdict = stream.judge(element, duplicate=duplicate)
        if verdict is Verdict.IGNORED:
            self.incoming.reject(self.core.tick, state, now)
            if stream.number and element.stream_id == stream.stream_id:
                stream.repeat_receipt(now, delay_s)
                self._due.touch(state)
            return True
        if element.send_receipts_to is not None:
            DirectName.from_wire(element.send_receipts_to)  # 2.2.5.3.4: otherwise it is malformed
        refused = self._refusal(queue, view, len(view.data), now, forged=forged)
        tick = self.core.tick
        before = len(tick.batch.puts)
        proven = verdict is Verdict.ACCEPTED and refused is None
        added = self.incoming.advance(tick, state, stream, element, key, now, proven=proven)
        if verdict is Verdict.ACCEPTED:
            self._deliver(queue, view, key, refused, now)
            added += tick.last_puts(len(tick.batch.puts) - before)
        stream.schedule_receipt(now, delay_s, self.settings.max_receipt_delay_s)
        self._due.touch(state)
        return True  # if a tick is lost, what came after its messages is lost too

    def _deliver(self, queue: Queue, view: MessageView, key: bytes, refused: Refused | None, now: float) -> None:
        """3.1.5.1.12. The id comes last: a message for which there was no room is no duplicate when it comes again."""
        if refused is None:
            self.core.delivery.arrive(queue, view.data, view, now)
        else:
            if refused is EXPIRED:
                note_late(self._watcher, view, self.settings.clock_tolerance_s, now)
            self._refuse(view, refused, now)
        self._remember(view, key, now)

    def _refusal(
        self, queue: Queue, view: MessageView, size: int, now: float, *, forged: bool = False
    ) -> Refused | None:
        """The queue's first check that fails gives the reason. Raises ManagerFull if the manager is at its limit."""
        # A receipt has a time limit only as a matter of form, 4.3: it is as true later.
        timeless = view.message_class != MessageClass.NORMAL
        if forged and queue.properties.transactional == view.transactional:
            return WRONG_DIGEST
        # No certificate comes by HTTP, so nobody is authenticated, and the rights are those of Everyone, 3.1.5.1.12.
        due = now - self.settings.clock_tolerance_s
        refused = refusal(queue, view, _EVERYONE, self.core.access, due, timeless=timeless)
        return refused or overflow(self.core.delivery, queue, size)

    def _refuse(self, view: MessageView, refused: Refused, now: float) -> None:
        """Refuses a valid message. Its sender gets an acknowledgment if it asked for one. If the message belongs to no
        stream, its sender has given it away: the dead letter stays here, if the sender is known. A message that was
        forged on its way leaves none.

        Nobody asks again for the receipt of a message in a stream. Raises ManagerFull if there is no room for it, or
        for the dead letter.
        """
        delivery = self.core.delivery
        reason = refused.acknowledgment
        known = delivery.knows(brought_by(view.data) or None)
        leaves_letter = view.negative_journaling and not view.transactional and known and refused is not WRONG_DIGEST
        if leaves_letter:
            demand_room(delivery, len(view.data))
        reported = MessageClass.NACK_RECEIVE_TIMEOUT if reason == MessageClass.NACK_REACH_QUEUE_TIMEOUT else reason
        if view.transactional:
            try:
                self._send_final_receipt(view, reported, now)
            except QuotaExceeded as fault:
                raise ManagerFull(str(fault)) from fault
            except Exception as error:
                delivery.note_failure(view.data, error)
        delivery.tally.refused[refused.reason] += 1
        delivery.try_after(view.data, self._watcher.refused, view, refused)
        delivery.try_after(view.data, delivery.acknowledge, view, reported, now)
        if leaves_letter:
            delivery.try_after(view.data, delivery.dead_letter, view.data, view, reason, now)

    # On the way

    def _forward(
        self,
        envelope: Envelope,
        attachments: Attachments,
        name: DirectName,
        address: str,
        now: float,
        *,
        configured: bool = False,
    ) -> bool:
        """3.1.5.1.3: a store-and-forward server passes messages on as they are, and receipts too.

        A message of a stream that comes again may have been lost after us, so it is passed on again.
        """
        if not (configured or self.core.delivery.relay.allows(name.host) or self._is_redirected(name)):
            raise _NotForUs(f"{name.host} is not a name of this manager, and [relay] allow does not list it")
        packet = packet_of(envelope, attachments, int(now), name, address=address)
        view = MessageView(packet)
        key = b"" if view.transactional else _history_key(view.identifier, self._first_address(address))
        if self._is_repeated(key, now):
            return True
        try:
            queue = self.core.delivery.sending_queue(name, now)
        except QuotaExceeded as fault:
            raise ManagerFull(str(fault)) from fault
        except PostroadError as fault:
            raise _NotForUs(str(fault)) from None
        if view.has_expired(now - self.settings.clock_tolerance_s):
            note_late(self._watcher, view, self.settings.clock_tolerance_s, now)
            self._refuse(view, EXPIRED, now)
        else:
            try:
                self.core.delivery.check_quota(queue, len(packet))
            except QuotaExceeded as fault:
                raise ManagerFull(str(fault)) from fault
            self.core.delivery.arrive(queue, packet, view, now)
        self._remember(view, key, now)
        return False

    # Receipts of streams

    def _way_back(self, name: DirectName, address: str) -> DirectName | None:
        """The name for the outgoing queue of receipts that somebody at this address wants at a name. None if there is
        none.

        Nobody vouches for where an unknown name leads. Its receipts go to the address that the message came from,
        whatever the name service says, and no other message for that name goes there.
        """
        relay, host = self.core.delivery.relay, name.host
        if host == address or relay.trusts(host) or self._is_redirected(name):
            return name
        try:
            if address and not is_address(host):
                return at_address(name, address)
        except IllegalName:
            pass  # the name would be too long
        if relay.allows(host):
            return name
        self.receipts_dropped += 1
        advice = f"add {host} to [relay] allow if messages of others may have it called"
        self._watcher.suspicious("receipt dropped", {"peer": address, "host": host, "advice": advice})
        return None

    def _is_redirected(self, name: DirectName) -> bool:
        return self.settings.redirections.outbound_target(url_of(name)) is not None

    def way_of_acknowledgment(self, view: MessageView, name: FormatName) -> FormatName | None:
        """Of delivery and commitment receipts, and of acknowledgments to names that are not URLs."""
        address = brought_by(view.data)
        if not isinstance(name, DirectName) or not name.is_send_only or self.core.queues.is_local(name):
            return name if self.core.delivery.may_call(name, address or None) else None
        return self._way_back(name, address)

    def _receipt_at(self, state: str) -> float | None:
        stream = self.incoming.get(state)
        return None if stream is None else stream.due

    def _clean(self, keys: list[None], now: float) -> None:
        self.history.clean(now)
        self._note_cleaning()

    def _note_cleaning(self) -> None:
        self._cleaning.set(None, self.history.deadline)

    def on_timer(self, states: list[str], now: float) -> None:
        """Stream Receipt Coalescing Timer, 3.1.6.3."""
        for state in states:
            stream = self.incoming.get(state)
            assert stream is not None
            number = stream.receipt(now, self.settings.receipt_ms / 1000)
            if number is not None:
                self._send_stream_receipt(state, stream, number, now)
                self.incoming.note_receipt(self.core.tick, state)
            self._due.touch(state)

    def _send_stream_receipt(self, state: str, stream: IncomingStream, number: int, now: float) -> None:
        """Sends a receipt, which says all that the last one said. If that has not left yet, this one replaces it."""
        withdraw(self.core, self._receipts.pop(state, None))
        receipt = stream_receipt(stream.stream_id, number, DirectName.from_wire(stream.format_name))
        try:
            sent = self._send(stream.send_receipts_to, self.incoming.address(state), receipt, now, follows=True)
        except QuotaExceeded:
            return  # the messages will come again, and cause another receipt
        if sent is not None:
            self._receipts[state] = sent

    def removed(self, queue: Queue, record: Record, reason: int, now: float) -> None:
        """3.1.7.3: a message that came by HTTP has left its queue, and its sender may want to know how."""
        if not arrived_by_http(record.packet) or queue.properties.queue_type not in REMOVALS:
            return
        view = MessageView(record.packet)
        if reason == MessageClass.NACK_DELETED and not view.ack_flags & AckFlags.NEGATIVE_ARRIVAL.value:
            self.core.delivery.acknowledge(view, MessageClass.NACK_Q_PURGED, now)  # 3.1.7.3.1: NackPurged
        if not view.negative_journaling or view.source_queue_manager_bytes == self._own:
            return
        if view.transactional:
            if reason in REPORTED:
                try:
                    self._send_final_receipt(view, reason, now, follows=True)
                except QuotaExceeded:
                    self.core.delivery.tally.unwritten += 1
        elif reason in _DEAD_HERE:
            self.core.delivery.dead_letter(record.packet, view, reason, now, queue.name)

    def _send_final_receipt(self, view: MessageView, reason: int, now: float, *, follows: bool = False) -> None:
        """3.1.7.3.3: tells the address for its stream's receipts how one message ended. Raises QuotaExceeded if there
        is no room; there is more room for what `follows` from a message that leaves."""
        header = view.transaction_header
        if header is None or not view.negative_journaling:
            return
        try:
            name = destination_name(view)
        except IllegalName:
            return
        stream_id = stream_id_of(view)
        if not isinstance(name, DirectName) or stream_id is None:
            return  # an import: it claims that it came by HTTP, and names no stream
        address = brought_by(view.data)
        state, stream = self.incoming.of(stream_id, name, address)
        receipt = stream_receipt(stream_id, header.sequence_number, name, final_class=reason, original=view.identifier)
        self._send(stream.send_receipts_to, self.incoming.address(state), receipt, now, follows=follows)

    def _send(
        self, url: str, address: str, receipt: Message, now: float, *, follows: bool = False
    ) -> tuple[Queue, Record] | None:
        """Sends a receipt. Drops it if nobody can send to the name."""
        try:
            name = DirectName.from_wire(url)
            if self.core.queues.is_local(name):
                return None
            way = self._way_back(name, address)
            if way is None:
                return None
            queue = self.core.queues.outgoing_queue(self.core.tick, way, int(now))
        except PostroadError:
            return None
        packet = Composer(self.core.identifier, name).compose(receipt, self.core.counters.next_message_id(), int(now))
        cause = replace(_EVERYONE, origin=address or None)
        share = FINAL_SHARE_BYTES if follows else ACK_SHARE_BYTES
        written = self.core.delivery.write(queue, packet, cause, now, follows=follows, share_bytes=share)
        return queue, written


def note_late(watcher: TransferWatcher, view: MessageView, tolerance_s: float, now: float) -> None:
    """Tells people about a message that is dropped because of its time, 2.2.6.17."""
    late_s = int(now) - view.sent_time - view.time_to_reach_queue
    advice = f"compare the clocks of both computers; srmp.clock_tolerance_s is {tolerance_s:g}"
    facts = {"peer": brought_by(view.data), "queue": str(destination_name(view)), "late_s": late_s, "advice": advice}
    watcher.suspicious("SOAP message too late", facts)


def _history_key(identifier: bytes, address: str) -> bytes:
    """What identifies a message that comes again: its id, and who brings it, so that nobody can use up others' ids.

    Empty for a message without an id.
    """
    if identifier == _NO_ID:
        return b""
    return foreign_id(identifier, address)
