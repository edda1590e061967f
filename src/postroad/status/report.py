"""What people are told of queues: plain values, and of an outgoing queue one sentence on what it waits for.

Only reads. What a message on its way waits for is known to the carrier of its queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice

from postroad.errors import IllegalName
from postroad.names import DirectName, FormatName, Protocol
from postroad.names.internal import AWAITING_FINAL_ACK
from postroad.queues.carriers import CarrierReport
from postroad.queues.info import describe_queue
from postroad.queues.leases import Leases, open_handles
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing import OutgoingState
from postroad.queues.queue import PositionState, Queue
from postroad.store.interface import Key
from postroad.values.info import QueueInfo, SessionInfo
from postroad.values.plain import to_json
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

FINAL_ACK_LOOK = 1000  # messages that wait for a final acknowledgment and are sorted by where they went, at the most


class Outlook:
    """One look at a manager's queues and carriers, at one time."""

    def __init__(self, core: LocalQueueManager, now: float, leases: Leases | None = None) -> None:
        self.core = core
        self._leases = leases
        self.now = now
        self._oldest: list[Mapping[int, int]] = []  # of all queues, where all are asked for

    def describe(self, queue: Queue) -> QueueInfo:
        """Everything that is told of a queue."""
        info = describe_queue(self.core.queues, queue, self._damaged.get(queue.number, 0), self._readers[queue])
        if info.state is None:
            return info
        outgoing = self.core.queues.outgoing_info[queue]
        return replace(
            info,
            oldest_arrived_ms=self._oldest_arrived_ms(queue),
            paused=outgoing.state is OutgoingState.ON_HOLD,
            last_error=outgoing.last_error,
            failures=outgoing.failures,
            **to_json(self.outgoing(queue)),
        )

    def describe_all(self) -> Iterator[QueueInfo]:
        """Every queue, as long as it is there: the caller may do other things in between."""
        self._oldest = [store.oldest() for store in (self.core.store, self.core.express)]
        for queue in list(self.core.queues):
            if self.core.queues.by_number.get(queue.number) is queue:
                yield self.describe(queue)

    def _oldest_arrived_ms(self, queue: Queue) -> int | None:
        if not queue.count:
            return None
        found = [table[queue.number] for table in self._oldest if queue.number in table]
        if found:
            return min(found)
        oldest = queue.oldest
        return None if oldest is None else oldest.arrived_ms

    def outgoing(self, queue: Queue) -> CarrierReport:
        """What its carrier says, unless the queue is closed for sending."""
        info = self.core.queues.outgoing_info[queue]
        if queue.carrier is None:
            leaving = sum(state is PositionState.DELETED for state in queue.positions.values())
            report = CarrierReport(why=None, stuck=True, unsent=queue.count - leaving)
        else:
            oldest_ms = self._oldest_arrived_ms(queue)
            oldest_s = None if oldest_ms is None else max(0.0, self.now - oldest_ms / 1000)
            report = queue.carrier.report(queue, oldest_s, self.now)
        awaiting = report.awaiting_final_ack + self._awaiting_final_ack.get(info.destination, 0)
        report = replace(report, awaiting_final_ack=awaiting)
        if not queue.count:
            return replace(report, why=None, stuck=False)
        closed = _closed_for_sending(queue, info.destination, info.state)
        return report if closed is None else replace(report, why=closed, stuck=True)

    def sessions(self) -> list[SessionInfo]:
        return [each for carrier in self.core.queues.carriers for each in carrier.session_infos()]

    @property
    def traffic(self) -> tuple[int, int]:
        """Messages sent and received by sessions."""
        counts = [carrier.traffic for carrier in self.core.queues.carriers]
        return sum(sent for sent, _ in counts), sum(received for _, received in counts)

    # What one look finds once, for all queues

    @cached_property
    def _damaged(self) -> Counter[int]:
        return Counter(key.queue for key in self.core.store.damaged if isinstance(key, Key))

    @cached_property
    def _readers(self) -> Counter[Queue]:
        return open_handles(self.core) if self._leases is None else self._leases.readers()

    @cached_property
    def _awaiting_final_ack(self) -> dict[FormatName, int]:
        found: dict[FormatName, int] = {}
        names: dict[bytes, FormatName | None] = {}
        for record in islice(self.core.queues.system(AWAITING_FINAL_ACK).everything(), FINAL_ACK_LOOK):
            view = MessageView(record.packet)
            key = view.destination_bytes + view.queue_manager_address_bytes
            if key not in names:
                names[key] = _destination(view)
            if (name := names[key]) is not None:
                found[name] = found.get(name, 0) + 1
        return found


def _closed_for_sending(queue: Queue, name: FormatName, state: OutgoingState) -> str | None:
    """Why nothing leaves the queue, whatever its carrier does."""
    if state is OutgoingState.ON_HOLD:
        return "paused by an operator"
    if state is OutgoingState.LOCKED:
        return "locked: security.hardened is on, so this queue manager sends by HTTP alone"
    if queue.carrier is not None:
        return None
    if isinstance(name, DirectName) and name.protocol not in (Protocol.TCP, Protocol.OS):
        return f"nothing here sends by {name.protocol.value}"
    if name.is_send_only:
        return "nothing here sends by multicast"
    return "the binary protocol is off here: nothing is sent until `postroad serve` runs on this data with it on"


def _destination(view: MessageView) -> FormatName | None:
    try:
        return destination_name(view)
    except IllegalName:
        return None
