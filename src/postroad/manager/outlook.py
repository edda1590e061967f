"""Describes a running manager and its queues, for `status` and the descriptions of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from itertools import islice

from postroad.errors import IllegalName, Status
from postroad.names import DirectName, FormatName, Protocol
from postroad.names.format import AWAITING_FINAL_ACK
from postroad.queues.collection import QueueCollection
from postroad.queues.leases import Leases, open_handles
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import HINTS, CarrierReport, ConnectionAttempt, OutgoingState
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.reports.info import AmqpInfo, DirectoryState, ManagerInfo, MulticastInfo, QueueInfo, SessionInfo
from postroad.reports.plain import to_json
from postroad.runtime.version import __version__
from postroad.store.interface import Key
from postroad.validation.queue_properties import settings_of
from postroad.wire.queue_names import destination_name
from postroad.wire.view import MessageView

# Descriptions for people: plain values and, for an outgoing queue, a sentence on what it waits for. It only reads. The
# carrier of a queue knows what its messages wait for.


FINAL_ACK_LOOK = 1000  # messages that wait for a final acknowledgment: so many are counted by destination


class Outlook:
    """A manager's queues and carriers, as they are at one time."""

    def __init__(self, core: LocalQueueManager, now: float, leases: Leases | None = None) -> None:
        self.core = core
        self._leases = leases
        self.now = now
        self._oldest: list[Mapping[int, int]] = []  # of all queues, if all are described

    def describe(self, queue: Queue) -> QueueInfo:
        """The whole description of a queue."""
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
        """Describes every queue that still exists when its turn comes. The caller may do other things in between."""
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
        """The state by its carrier, unless the queue is closed for sending."""
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

    # Read once for all queues

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
    """Why nothing leaves the queue, whatever its carrier does; None if it is open."""
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


# Describes queues and the manager for people and programs: fills the values of reports/info.py from the core's state.


_MADE = (QueueType.PRIVATE, QueueType.PUBLIC)


def describe_manager(
    core: LocalQueueManager,
    *,
    started_at_s: float,
    storage_error: str | None,
    directory: DirectoryState | None,
    accounts_error: str | None,
    limits: dict[str, dict[str, int]],
    multicast: MulticastInfo | None = None,
    amqp: AmqpInfo | None = None,
    down: tuple[str, ...] = (),
    disk: dict[str, int] | None = None,
    publishes: bool = False,
    store: dict[str, object] | None = None,
) -> ManagerInfo:
    queues = list(core.queues)
    return ManagerInfo(
        name=core.name,
        id=str(core.identifier),
        version=__version__,
        started_at_s=started_at_s,
        queues=sum(queue.properties.queue_type in _MADE and not queue.is_internal for queue in queues),
        messages=sum(queue.count for queue in queues),
        bytes=sum(queue.total_bytes for queue in queues),
        quota_kb=core.delivery.quota_kb,
        transactions=len(core.transactions),
        damaged=len(core.store.damaged),
        journal_overflows=sum(core.delivery.overflows.values()),
        overflowed=tuple(core.delivery.overflows),
        outgoing_queues_refused=core.queues.idle.refused,
        storage_error=storage_error,
        directory=None if directory is None else to_json(directory),
        directory_failures=0 if directory is None else directory.failures,
        directory_error=None if directory is None else directory.error,
        accounts_error=accounts_error,
        down=down,
        follow_up_errors=core.delivery.tally.follow_up_errors,
        unwritten=core.delivery.tally.unwritten,
        messages_refused={str(reason): count for reason, count in core.delivery.tally.refused.items()},
        algorithms={
            "hashes": list(core.protection.accepted_hashes),
            "ciphers": list(core.protection.accepted_ciphers),
            "send": [core.protection.send_cipher],
        },
        limits=limits,
        multicast=None if multicast is None else asdict(multicast),
        amqp=None if amqp is None else asdict(amqp),
        disk=disk or {},
        publishes=publishes,
        store=store or {},
    )


def describe_queue(queues: QueueCollection, queue: Queue, damaged: int, readers: int) -> QueueInfo:
    """Describes a queue. Of an outgoing queue, only what all queues have; its protocol adds the rest."""
    properties = queue.properties
    outgoing = queues.outgoing_info.get(queue)
    head = queue.available(1) if outgoing is None else []
    return QueueInfo(
        path=queue.name,
        format_name=properties.path if queue.is_outgoing else str(queues.format_name(queue)),
        id=str(properties.identifier),
        type=properties.queue_type.value,
        **settings_of(properties),
        messages=queue.count,
        bytes=queue.total_bytes,
        locked=sum(state is not PositionState.DELETED for state in queue.positions.values()),
        readers=readers,
        waiting=len(queue.waiting),
        nearly_full=queue.nearly_full,
        damaged=damaged,
        created_at_s=properties.create_time,
        oldest_arrived_ms=head[0].arrived_ms if head else None,
        messages_in=queue.messages_in,
        messages_out=queue.messages_out,
        holds=tuple(
            {"name": each.name, "from": each.start, "to": each.end, "since_s": each.since_s}
            for each in queue.holds.values()
        ),
        state=outgoing.state.value if outgoing else None,
        next_hops=outgoing.next_hops if outgoing else (),
        history=tuple(_describe_attempt(attempt) for attempt in (outgoing.history if outgoing else ())),
    )


def _describe_attempt(attempt: ConnectionAttempt) -> dict[str, object]:
    known = attempt.error in Status._value2member_map_
    return {
        "status": attempt.status.name.lower().replace("_", " "),
        "time_s": attempt.time_s,
        "error": attempt.error,
        "code": Status(attempt.error).name if attempt.error and known else None,
        "first_s": attempt.time_s if attempt.first_s is None else attempt.first_s,
        "count": attempt.count,
        "reason": attempt.reason,
        "hint": HINTS.get(attempt.status),
    }
