"""`/metrics` in Prometheus' text format: name, help text, kind, and a sample for each value.

Every scrape has every queue, also an empty one, so a series lasts as long as its queue.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from postroad.manager import Manager
from postroad.queues.delivery import Tally
from postroad.queues.leases import Leases
from postroad.values.info import ManagerInfo, QueueInfo

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER = "gauge", "counter"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Family = GaugeMetricFamily | CounterMetricFamily
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueueMetric:
    name: str
    help: str
    value: Callable[[QueueInfo, float], float]  # of a queue at a time
    kind: str = GAUGE


@dataclass(frozen=True, slots=True)
class ManagerMetric:
    name: str
    help: str
    kind: str
    value: Callable[[ManagerInfo], float]


@dataclass(frozen=True, slots=True)
class TallyMetric:
    name: str
    help: str
    value: Callable[[Tally], int]


def _quota_bytes(quota_kb: int | None) -> float:
    return math.inf if quota_kb is None else quota_kb * 1024


def _age(queue: QueueInfo, now: float) -> float:
    return 0.0 if queue.oldest_arrived_ms is None else max(0.0, now - queue.oldest_arrived_ms / 1000)


QUEUE_METRICS = (
    QueueMetric("postroad_queue_messages", "Messages in the queue.", lambda queue, now: queue.messages),
    QueueMetric("postroad_queue_bytes", "Bytes of messages in the queue.", lambda queue, now: queue.bytes),
    QueueMetric(
        "postroad_queue_oldest_message_age_seconds",
        "Age in seconds of the first message to receive, or of the oldest to send; 0 if there is none.",
        _age,
    ),
    QueueMetric(
        "postroad_queue_locked_messages",
        "Messages that a reader or a transaction has locked.",
        lambda queue, now: queue.locked,
    ),
    QueueMetric("postroad_queue_open_handles", "Open handles of the queue.", lambda queue, now: queue.readers),
    QueueMetric("postroad_queue_waiting_reads", "Reads that wait for a message.", lambda queue, now: queue.waiting),
    QueueMetric(
        "postroad_queue_quota_bytes",
        "The queue's quota in bytes; +Inf if there is none.",
        lambda queue, now: _quota_bytes(queue.quota_kb),
    ),
    QueueMetric(
        "postroad_queue_damaged_records",
        "Stored records found with a wrong checksum.",
        lambda queue, now: queue.damaged,
    ),
)
# Further metrics of outgoing queues only.
OUTGOING_METRICS = (
    QueueMetric(
        "postroad_outgoing_unsent_messages", "Messages that are not sent yet.", lambda queue, now: queue.unsent
    ),
    QueueMetric(
        "postroad_outgoing_in_flight_messages",
        "Messages sent that the next hop has not acknowledged.",
        lambda queue, now: queue.in_flight,
    ),
    QueueMetric(
        "postroad_outgoing_unacknowledged_messages",
        "Messages at the next hop that the destination has not acknowledged in order.",
        lambda queue, now: queue.unacknowledged,
    ),
    QueueMetric(
        "postroad_outgoing_stuck",
        "1 while messages wait and need attention, 0 otherwise.",
        lambda queue, now: queue.stuck,
    ),
    QueueMetric(
        "postroad_outgoing_failures_total",
        "Failed attempts to reach the next hop.",
        lambda queue, now: queue.failures,
        COUNTER,
    ),
)
MANAGER_METRICS = (
    ManagerMetric(
        "postroad_start_time_seconds",
        "When the manager started, in seconds since 1970.",
        GAUGE,
        lambda info: info.started_at_s,
    ),
    ManagerMetric(
        "postroad_queues",
        "Queues of applications, without journals and outgoing queues.",
        GAUGE,
        lambda info: info.queues,
    ),
    ManagerMetric("postroad_messages", "Messages in all queues.", GAUGE, lambda info: info.messages),
    ManagerMetric("postroad_bytes", "Bytes of messages in all queues.", GAUGE, lambda info: info.bytes),
    ManagerMetric(
        "postroad_quota_bytes",
        "The manager's quota in bytes; +Inf if there is none.",
        GAUGE,
        lambda info: _quota_bytes(info.quota_kb),
    ),
    ManagerMetric("postroad_open_transactions", "Open transactions.", GAUGE, lambda info: info.transactions),
    ManagerMetric(
        "postroad_damaged_records",
        "Stored records found with a wrong checksum.",
        GAUGE,
        lambda info: info.damaged,
    ),
    ManagerMetric(
        "postroad_store_up",
        "1 while the store takes writes, 0 while it fails.",
        GAUGE,
        lambda info: info.storage_error is None,
    ),
    ManagerMetric(
        "postroad_background_tasks_down",
        "Background tasks that failed and do not run yet.",
        GAUGE,
        lambda info: len(info.down),
    ),
    ManagerMetric(
        "postroad_journal_overflows_total",
        "Copies dropped because a journal or dead-letter queue was full.",
        COUNTER,
        lambda info: info.journal_overflows,
    ),
    ManagerMetric(
        "postroad_outgoing_queues_refused_total",
        "Outgoing queues not created because of limits.outgoing_queues.",
        COUNTER,
        lambda info: info.outgoing_queues_refused,
    ),
    ManagerMetric(
        "postroad_directory_up",
        "1 while the directory's file is in use, 0 while it is faulty and an earlier copy is used.",
        GAUGE,
        lambda info: info.directory_error is None,
    ),
    ManagerMetric(
        "postroad_directory_failures_total",
        "Failed attempts to load the directory's file.",
        COUNTER,
        lambda info: info.directory_failures,
    ),
)
TALLY_METRICS = (
    TallyMetric(
        "postroad_messages_added_total",
        "Messages put into a queue: sent, arrived, moved, copies for journals and dead letters, acknowledgments.",
        lambda tally: tally.added,
    ),
    TallyMetric(
        "postroad_follow_up_errors_total",
        "Follow-ups of a change that failed, such as acknowledgments and copies; the change itself is kept.",
        lambda tally: tally.follow_up_errors,
    ),
    TallyMetric("postroad_messages_received_total", "Messages received.", lambda tally: tally.received),
    TallyMetric("postroad_messages_expired_total", "Messages expired.", lambda tally: tally.expired),
    TallyMetric(
        "postroad_messages_purged_total",
        "Messages deleted by a purge or with their queue.",
        lambda tally: tally.purged,
    ),
    TallyMetric(
        "postroad_messages_dead_lettered_total",
        "Undeliverable messages that asked for a dead-letter queue.",
        lambda tally: tally.dead_lettered,
    ),
)


def metrics_text(manager: Manager, queues: Sequence[QueueInfo]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(manager))
    return generate_latest(registry) + "".join(_queue_lines(queues, manager.clock())).encode()


def _queue_lines(queues: Sequence[QueueInfo], now: float) -> Iterator[str]:
    """The families with a sample for each queue. For 10,000 queues the library takes eight times as long."""
    named = [(f'{{queue="{queue.path.translate(_ESCAPES)}",type="{queue.type}"}}', queue) for queue in queues]
    outgoing = [(f'{{queue="{queue.path.translate(_ESCAPES)}"}}', queue) for queue in queues if queue.state is not None]
    for metrics, labelled in ((QUEUE_METRICS, named), (OUTGOING_METRICS, outgoing)):
        for metric in metrics:
            name, value = metric.name, metric.value
            yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
            for labels, queue in labelled:
                yield f"{name}{labels} {_number(value(queue, now))}\n"


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


class _Page(Collector):
    """The values of one scrape that are about the manager."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def describe(self) -> Iterable[Family]:
        """Nothing: the registry would otherwise collect the whole page once more."""
        return ()

    def collect(self) -> Iterator[Family]:
        manager = self._manager
        info, tally = manager.info(), manager.core.delivery.tally
        labels = {"name": info.name, "id": info.id, "version": info.version}
        yield _family("postroad_info", "Name, id and version of the manager.", GAUGE, [(labels, 1)])
        for each in MANAGER_METRICS:
            yield _family(each.name, each.help, each.kind, [({}, each.value(info))])
        for counter in TALLY_METRICS:
            yield _family(counter.name, counter.help, COUNTER, [({}, counter.value(tally))])
        yield from _limits(info)
        yield from _sessions(manager)
        yield from _readers(manager)
        yield from _leases(manager.leases.core)


def _family(name: str, help_text: str, kind: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    family = CounterMetricFamily(name, help_text) if kind == COUNTER else GaugeMetricFamily(name, help_text)
    for labels, value in samples:
        family.add_sample(name, dict(labels), value)
    return family


def _limits(info: ManagerInfo) -> Iterator[Family]:
    for name, help_text, kind, value in (
        ("postroad_limit_current", "How much of the limit is used; see [limits].", GAUGE, "current"),
        ("postroad_limit_maximum", "The limit.", GAUGE, "maximum"),
        ("postroad_limit_reached_total", "How often the limit was reached.", COUNTER, "reached"),
    ):
        yield _family(
            name,
            help_text,
            kind,
            [({"limit": each}, of[value]) for each, of in info.limits.items() if value in of],
        )


def _sessions(manager: Manager) -> Iterator[Family]:
    outlook = manager.outlook()
    directions = Counter(session.direction for session in outlook.sessions())
    samples = [({"direction": direction}, directions[direction]) for direction in ("in", "out")]
    yield _family(
        "postroad_sessions", "Sessions with other queue managers, by the side that opened them.", GAUGE, samples
    )
    sent, received = outlook.traffic
    yield _family("postroad_session_messages_sent_total", "Messages sent by sessions.", COUNTER, [({}, sent)])
    yield _family(
        "postroad_session_messages_received_total", "Messages received by sessions.", COUNTER, [({}, received)]
    )
    refused = 0 if manager.binary is None else manager.binary.receiver.refusals
    help_text = "Messages from sessions that no local queue accepted."
    yield _family("postroad_session_messages_refused_total", help_text, COUNTER, [({}, refused)])
    binary = manager.binary
    for name, help_text, count in (
        (
            "postroad_session_acks_refused_total",
            "Order and final acknowledgments from another manager than the message's destination.",
            0 if binary is None else binary.sender.refused_acks,
        ),
        (
            "postroad_session_claims_refused_total",
            "Messages from sessions that claim the name of another manager.",
            0 if binary is None else binary.receiver.claims,
        ),
        (
            "postroad_relay_refused_total",
            "Messages, acknowledgments and reports of strangers to hosts outside [relay] allow.",
            manager.core.delivery.tally.withheld,
        ),
    ):
        yield _family(name, help_text, COUNTER, [({}, count)])
    soap = manager.soap
    for name, help_text, value in (
        ("postroad_soap_messages_sent_total", "Messages and receipts that peers accepted by HTTP.", soap and soap.sent),
        ("postroad_soap_messages_received_total", "HTTP requests answered with 200.", soap and soap.taken),
        (
            "postroad_soap_requests_refused_total",
            "HTTP requests answered with 400 or 500.",
            soap and soap.refused,
        ),
        (
            "postroad_soap_receipts_ignored_total",
            "Stream receipts from another host than the message's destination.",
            soap and soap.receiver.receipts_ignored,
        ),
        (
            "postroad_soap_receipts_dropped_total",
            "Receipts that strangers asked for at hosts outside [relay] allow.",
            soap and soap.receiver.receipts_dropped,
        ),
    ):
        yield _family(name, help_text, COUNTER, [({}, value or 0)])
    refusals = soap.receiver.refusals if soap else {}
    by_reason = [({"reason": each.name.removeprefix("NACK_").lower()}, count) for each, count in refusals.items()]
    help_text = "Messages by HTTP that no local queue accepted, by reason."
    yield _family("postroad_soap_messages_refused_total", help_text, COUNTER, by_reason)


def _readers(manager: Manager) -> Iterator[Family]:
    readers = manager.remote_read.readers()
    accesses = Counter(reader.access for reader in readers)
    samples = [({"access": access}, accesses[access]) for access in ("receive", "peek")]
    yield _family("postroad_remote_readers", "Queues that remote readers have open.", GAUGE, samples)
    waiting = sum(reader.waiting for reader in readers)
    yield _family("postroad_remote_reads_waiting", "Remote reads waiting for a message.", GAUGE, [({}, waiting)])
    held = sum(reader.unacknowledged for reader in readers)
    yield _family("postroad_remote_unacknowledged", "Messages that remote readers have locked.", GAUGE, [({}, held)])
    received, returned = manager.remote_read.settled
    name = "postroad_remote_messages_received_total"
    yield _family(name, "Messages that remote readers acknowledged.", COUNTER, [({}, received)])
    name = "postroad_remote_messages_returned_total"
    yield _family(name, "Messages that remote readers put back or left unacknowledged.", COUNTER, [({}, returned)])


def _leases(leases: Leases) -> Iterator[Family]:
    name = "postroad_locks_taken_back_total"
    yield _family(name, "Locked messages taken back from silent clients.", COUNTER, [({}, leases.expired_locks)])
    name = "postroad_transactions_taken_back_total"
    help_text = "Aborted transactions of silent clients."
    yield _family(name, help_text, COUNTER, [({}, leases.expired_transactions)])
