"""The search for a message in everything that a queue manager has: queues, journals, dead letters, acknowledgments.

Only reads, a page of messages a step, so that whoever drives it can serve others in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from postroad.describe.message import delivery_word, destination_text
from postroad.describe.values import rfc3339_ns
from postroad.errors import RemoteProtocolError
from postroad.queues.collection import AWAITING_FINAL_ACK, DEADLETTER, DEADXACT, JOURNAL
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.status.report import Outlook
from postroad.store.interface import Record
from postroad.values.trace import Finding, FindingKind, Trace, class_words, read_message_id
from postroad.wire.constants import MessageClass, class_name
from postroad.wire.fields import MESSAGE_ID, SOURCE
from postroad.wire.ordering import FinalAck
from postroad.wire.packets import decode_packet
from postroad.wire.report import MESSAGE_ID_TAG, TraceReport
from postroad.wire.view import MessageView

LOOK_LIMIT = 10_000  # messages of one queue: what a store reads in well under a second
PAGE = 500
_REPORT_TAG = MESSAGE_ID_TAG.encode("utf-16-le")
_STATES = {
    None: "not received yet",
    PositionState.LOCKED: "held by a reader or a transaction",
    PositionState.PURGE_PENDING: "purged while a reader holds it",
    PositionState.DELETED: "about to leave it",  # with the commit that is under way
}
_RANKS = {kind.value: rank for rank, kind in enumerate(FindingKind)}


class Search:
    """Go through `pages`, then ask for the `trace`. IllegalIdentifier for text that is no message id."""

    def __init__(self, outlook: Outlook, message_id: str) -> None:
        self.id = read_message_id(message_id)
        self.outlook = outlook
        self.core = outlook.core
        self.looked_at = 0
        self._identifier = self.id.to_bytes()
        self._guid, self._ordinal = self._identifier[:16], self._identifier[16:]
        self._cut_off: list[str] = []
        self._found: dict[tuple[int, int], tuple[int, Finding]] = {}  # by place; the time in ms stands beside it
        self._sent: Finding | None = None

    def pages(self) -> Iterator[int]:
        """Looks at everything, a page of messages a step: how many were looked at so far.

        What is found nowhere is looked for once more: it may have moved to a queue that was done with.
        """
        yield from self._look_everywhere()
        if not self._found:
            self.looked_at = 0
            self._cut_off.clear()
            yield from self._look_everywhere()

    def trace(self) -> Trace:
        found = sorted(self._found.values(), key=lambda each: (each[0], _RANKS[each[1].kind]))
        findings = [finding for _, finding in found]
        if not findings:
            findings += self._left()
        if (passed := self._passed()) is not None:
            findings.insert(0, passed)
        if self._sent is not None:
            findings.insert(0, self._sent)
        return Trace(str(self.id), tuple(findings), self.looked_at, LOOK_LIMIT, tuple(self._cut_off))

    # Where to look

    def _look_everywhere(self) -> Iterator[int]:
        for queue in list(self.core.queues):
            for record in self._messages(queue):
                self.looked_at += 1
                self._look_at(queue, record)
                if self.looked_at % PAGE == 0:
                    yield self.looked_at

    def _messages(self, queue: Queue) -> Iterator[Record]:
        if queue.count <= LOOK_LIMIT:
            yield from islice(queue.everything(), LOOK_LIMIT)
            return
        self._cut_off.append(_shown(queue))
        yield from islice(queue.everything(), LOOK_LIMIT // 2)
        yield from islice(queue.everything_back(), LOOK_LIMIT // 2)

    def _look_at(self, queue: Queue, record: Record) -> None:
        """By bytes first: of a million messages hardly one has to be opened."""
        packet = record.packet
        if packet[MESSAGE_ID] == self._ordinal and packet[SOURCE] == self._guid:
            view = MessageView(packet)
            self._sent = self._sent or self._origin(view)
            finding: Finding | None = self._copy(queue, record, view)
        else:
            finding = self._reference(queue, record) if self._identifier in packet else None
            if finding is None and _REPORT_TAG in packet:
                finding = self._report(queue, record)
        if finding is not None:
            self._found[record.queue, record.lookup_id] = (record.arrived_ms, finding)

    # What it means

    def _origin(self, view: MessageView) -> Finding:
        label = f" {view.label!r}," if view.label else ""
        sentence = (
            f"sent by {self._manager(view.source_queue_manager)}:{label} {delivery_word(view)}, "
            f"to {destination_text(view) or 'nowhere'}"
        )
        at = rfc3339_ns(view.sent_time * 1_000_000_000)
        return Finding(at, FindingKind.SENT.value, sentence, manager=str(view.source_queue_manager))

    def _left(self) -> Iterator[Finding]:
        """What has left this manager is known for a while. A copy or an acknowledgment says more."""
        for departure in self.core.departures.find(self._identifier):
            if departure.reason is None:
                sentence = f"delivered: the next hop on the way to {departure.queue} has taken it"
            else:
                sentence = f"left {departure.queue.removeprefix('system$')}: {class_words(departure.reason)}"
            at = rfc3339_ns(int(departure.at_s * 1000) * 1_000_000)
            name = None if departure.reason is None else class_name(departure.reason)
            yield Finding(at, FindingKind.LEFT.value, sentence, queue=departure.queue, class_name=name)

    def _passed(self) -> Finding | None:
        """Of messages that are not transactional it is known for a while that they came, wherever they are now."""
        for carrier in self.core.queues.carriers:
            if (seen := carrier.seen(self._identifier)) is not None:
                return Finding(rfc3339_ns(seen[0] * 1_000_000_000), FindingKind.PASSED.value, seen[1])
        return None

    def _copy(self, queue: Queue, record: Record, view: MessageView) -> Finding:
        path, queue_type = queue.properties.path, queue.properties.queue_type
        if queue_type is QueueType.OUTGOING:
            why = self.outlook.outgoing(queue).why
            return _finding(FindingKind.OUTGOING, self._outgoing(queue, record), queue, record, why=why)
        if queue_type is QueueType.JOURNAL:
            owner = queue.name.rpartition(";")[0]
            return _finding(FindingKind.JOURNAL, f"received from {owner}: a copy is in its journal", queue, record)
        if path == JOURNAL:
            return _finding(FindingKind.JOURNAL, "delivered: a copy is in the manager's journal", queue, record)
        if record.reason or path in (DEADLETTER, DEADXACT):
            reason = record.reason or view.message_class
            sentence = f"died: {class_words(reason)}; a copy is in {_shown(queue)}"
            return _finding(FindingKind.DEAD_LETTER, sentence, queue, record, reason)
        if path == AWAITING_FINAL_ACK:
            sentence = "put in order at its destination; whether it was received is not known yet"
            return _finding(FindingKind.AWAITING_FINAL_ACK, sentence, queue, record)
        sentence = f"in {queue.name}, {_STATES[queue.state(record.lookup_id)]}"
        return _finding(FindingKind.QUEUED, sentence, queue, record)

    def _outgoing(self, queue: Queue, record: Record) -> str:
        place = f"in the outgoing queue to {queue.name}"
        if queue.positions.get(record.lookup_id) is PositionState.DELETED:
            return f"{place}, {_STATES[PositionState.DELETED]}"
        carrier = queue.carrier
        progress = None if carrier is None else carrier.progress(queue, record.lookup_id, self.outlook.now)
        return f"{place}, {progress or 'not sent'}"

    def _reference(self, queue: Queue, record: Record) -> Finding | None:
        """A message about it: an acknowledgment, or an answer."""
        view = MessageView(record.packet)
        message_class = view.message_class
        if view.correlation_id != self._identifier:
            return self._final_ack(queue, record)
        where = f"; on its way in the outgoing queue to {queue.name}" if queue.is_outgoing else ""
        manager = view.source_queue_manager
        if message_class == MessageClass.NORMAL:
            sentence = f"answered by {self._manager(manager)} with message {view.message_id}{where}"
            return _finding(FindingKind.ANSWER, sentence, queue, record, manager=manager)
        sentence = f"acknowledged by {self._manager(manager)}: {class_words(message_class)}{where}"
        return _finding(FindingKind.ACKNOWLEDGMENT, sentence, queue, record, message_class, manager)

    def _final_ack(self, queue: Queue, record: Record) -> Finding | None:
        try:
            packet = decode_packet(record.packet)
        except RemoteProtocolError:
            return None  # made to look like one
        if not isinstance(packet, FinalAck):
            return None
        if (packet.source_guid, packet.acknowledged_message_id) != (self.id.guid, self.id.ordinal):
            return None
        sentence = f"{class_words(packet.final_class)}; the final acknowledgment is on its way to its source"
        return _finding(
            FindingKind.ACKNOWLEDGMENT, sentence, queue, record, packet.final_class, packet.source_queue_manager
        )

    def _report(self, queue: Queue, record: Record) -> Finding | None:
        view = MessageView(record.packet)
        report = TraceReport.of(view)
        if report is None or not report.is_about(self.id.guid, self.id.ordinal):
            return None
        manager = view.source_queue_manager
        hops = "1 hop" if report.hops == 1 else f"{report.hops} hops"
        did = "reported as come in" if report.next_hop is None else f"reported as sent on to {report.next_hop}"
        sentence = f"{did} by {self._manager(manager)}, after {hops}, bound for {report.target_queue or 'nowhere'}"
        return _finding(FindingKind.REPORT, sentence, queue, record, MessageClass.REPORT, manager)

    def _manager(self, identifier: UUID) -> str:
        return f"{self.core.name}, this queue manager" if identifier == self.core.identifier else str(identifier)


def _finding(
    kind: FindingKind,
    sentence: str,
    queue: Queue,
    record: Record,
    message_class: int | None = None,
    manager: UUID | None = None,
    why: str | None = None,
) -> Finding:
    return Finding(
        at=rfc3339_ns(record.arrived_ms * 1_000_000),
        kind=kind.value,
        sentence=sentence,
        queue=_shown(queue),
        lookup_id=record.lookup_id,
        class_name=None if message_class is None else class_name(message_class),
        manager=None if manager is None else str(manager),
        why=why,
    )


def _shown(queue: Queue) -> str:
    """Its name as commands take it."""
    return queue.name.removeprefix("system$")
