"""Calls for monitoring: Prometheus metrics, liveness and readiness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from postroad.errors import StorageError
from postroad.manager import Manager
from postroad.net.exchange import Response, text
from postroad.reports.info import AmqpInfo, MulticastInfo, QueueInfo

# `/metrics` in Prometheus' text format: name, help text, kind, and a sample for each value. Names that end in `_total`
# are counters, all others gauges. QueueSeries decides which queues have series.


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Family = GaugeMetricFamily | CounterMetricFamily
Samples = Sequence[tuple[Mapping[str, str], float]]
# A name, its help text, and a function for the value of a queue at a given time.
QueueMetrics = Sequence[tuple[str, str, Callable[[QueueInfo, float], float]]]


def _quota_bytes(quota_kb: int | None) -> float:
    return math.inf if quota_kb is None else quota_kb * 1024


def _age(queue: QueueInfo, now: float) -> float:
    return 0.0 if queue.oldest_arrived_ms is None else max(0.0, now - queue.oldest_arrived_ms / 1000)


QUEUE_METRICS: QueueMetrics = (
    ("postroad_queue_messages", "Messages in the queue.", lambda queue, now: queue.messages),
    (
        "postroad_queue_messages_in_total",
        "Messages put into the queue.",
        lambda queue, now: queue.messages_in,
    ),
    (
        "postroad_queue_messages_out_total",
        "Messages that left the queue: received, sent on, moved, expired or purged.",
        lambda queue, now: queue.messages_out,
    ),
    ("postroad_queue_bytes", "Bytes of messages in the queue.", lambda queue, now: queue.bytes),
    (
        "postroad_queue_oldest_message_age_seconds",
        "Age in seconds of the first message to receive, or of the oldest to send; 0 if there is none.",
        _age,
    ),
    (
        "postroad_queue_locked_messages",
        "Messages that a reader or a transaction has locked.",
        lambda queue, now: queue.locked,
    ),
    (
        "postroad_queue_readers",
        "Readers of the queue: who has it open, and clients that work on its messages.",
        lambda queue, now: queue.readers,
    ),
    ("postroad_queue_waiting_reads", "Reads that wait for a message.", lambda queue, now: queue.waiting),
    (
        "postroad_queue_quota_bytes",
        "The queue's quota in bytes; +Inf if there is none.",
        lambda queue, now: _quota_bytes(queue.quota_kb),
    ),
    ("postroad_queue_damaged_records", "Stored records found with a wrong checksum.", lambda queue, now: queue.damaged),
)
# Metrics of outgoing queues only.
OUTGOING_METRICS: QueueMetrics = (
    ("postroad_outgoing_unsent_messages", "Messages that are not sent yet.", lambda queue, now: queue.unsent),
    (
        "postroad_outgoing_in_flight_messages",
        "Messages sent that the next hop has not acknowledged.",
        lambda queue, now: queue.in_flight,
    ),
    (
        "postroad_outgoing_unacknowledged_messages",
        "Messages at the next hop that the destination has not acknowledged in order.",
        lambda queue, now: queue.unacknowledged,
    ),
    (
        "postroad_outgoing_stuck",
        "1 while messages wait and need attention, 0 otherwise.",
        lambda queue, now: queue.stuck,
    ),
    ("postroad_outgoing_failures_total", "Failed attempts to reach the next hop.", lambda queue, now: queue.failures),
)


def metrics_text(manager: Manager, queues: Sequence[QueueInfo], series: QueueSeries) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(manager))
    return generate_latest(registry) + "".join(_queue_lines(series.of(queues), manager.clock())).encode()


def _queue_lines(queues: Sequence[QueueInfo], now: float) -> Iterator[str]:
    """The metrics with a sample for each queue. Prometheus' library takes eight times as long for 10,000 queues."""
    named = [(f'{{queue="{queue.path.translate(_ESCAPES)}",type="{queue.type}"}}', queue) for queue in queues]
    outgoing = [(f'{{queue="{queue.path.translate(_ESCAPES)}"}}', queue) for queue in queues if queue.state is not None]
    for metrics, labelled in ((QUEUE_METRICS, named), (OUTGOING_METRICS, outgoing)):
        for name, help_text, value in metrics:
            yield f"# HELP {name} {help_text}\n# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
            for labels, queue in labelled:
                yield f"{name}{labels} {_number(value(queue, now))}\n"


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


class _Page(Collector):
    """The manager's own values, for one scrape."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def describe(self) -> Iterable[Family]:
        """Returns nothing; otherwise the registry would collect the whole page once more."""
        return ()

    def collect(self) -> Iterator[Family]:
        for name, help_text, value in _manager_metrics(self._manager):
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, help_text)
            for labels, each in [({}, value)] if isinstance(value, float | int) else value:
                family.add_sample(name, dict(labels), each)
            yield family


def _multicast_metrics(info: MulticastInfo) -> Sequence[tuple[str, str, float]]:
    return (
        ("postroad_multicast_groups", "Multicast addresses that queues listen to.", len(info.groups)),
        ("postroad_multicast_sources", "Multicast sources heard at present.", info.sources),
        ("postroad_multicast_messages_sent_total", "Messages sent by multicast.", info.sent),
        ("postroad_multicast_messages_received_total", "Messages put into queues by multicast.", info.received),
        ("postroad_multicast_messages_refused_total", "Multicast messages that were not taken.", info.refused),
        ("postroad_multicast_packets_received_total", "Data packets received by multicast.", info.packets),
        ("postroad_multicast_packets_repaired_total", "Missed packets that came again.", info.repaired),
        ("postroad_multicast_packets_malformed_total", "Packets that could not be read.", info.malformed),
        ("postroad_multicast_packets_overflowed_total", "Packets that found a full receive buffer.", info.overflowed),
        ("postroad_multicast_packets_lost_total", "Missed packets that no source repaired.", info.lost),
        ("postroad_multicast_packets_unconfirmed", "Packets missing from sources without a message.", info.unconfirmed),
        ("postroad_multicast_naks_sent_total", "Requests for missed packets.", info.naks),
        ("postroad_multicast_repairs_sent_total", "Packets sent again for others.", info.repairs_sent),
    )


def _amqp_metrics(info: AmqpInfo) -> Sequence[tuple[str, str, float]]:
    return (
        ("postroad_amqp_connections", "Connections by AMQP.", info.open),
        ("postroad_amqp_links", "Links of these connections.", info.links),
        ("postroad_amqp_unsettled", "Messages on these links that are not settled.", info.unsettled),
        ("postroad_amqp_messages_received_total", "Messages that came by AMQP.", info.received),
        ("postroad_amqp_messages_sent_total", "Messages that went to receivers by AMQP.", info.sent),
    )


def _disk_metrics(disk: Mapping[str, int]) -> Iterator[tuple[str, str, float | Samples]]:
    """None for a manager in memory."""
    used = [({"use": each}, size) for each, size in disk.items() if each not in ("free", "total")]
    if used:
        yield "postroad_disk_bytes", "Bytes that the store has on the disk, by what they are for.", used
    if "free" in disk:
        yield "postroad_disk_free_bytes", "Free bytes on the disk of the data directory.", disk["free"]
        yield "postroad_disk_total_bytes", "All bytes of the disk of the data directory.", disk["total"]


def standing_metrics(store: Mapping[str, Any]) -> Iterator[tuple[str, str, float | Samples]]:
    """None for a store that no other process can take over."""
    if store.get("kind") != "postgresql":
        return
    yield "postroad_active", "1 while this process is active, 0 while it stands by.", store["role"] == "active"
    yield "postroad_epoch", "How often a process became active.", store["epoch"]
    yield "postroad_standbys", "Processes that stand by.", len(store["standbys"])
    yield (
        "postroad_database_synchronous",
        "1 if the database waits for a replica before it confirms, 0 if not.",
        store["synchronous"],
    )
    yield "postroad_database_up", "1 while the database answers, 0 while it does not.", store["trouble"] is None


def _manager_metrics(manager: Manager) -> Sequence[tuple[str, str, float | Samples]]:
    """Each metric with its value, or with a value for each of its labels."""
    info, tally, leases = manager.info(), manager.core.delivery.tally, manager.leases.core
    outlook, readers = manager.outlook(), manager.doors.remote_read.readers()
    sent, received = outlook.traffic
    acknowledged, returned = manager.doors.remote_read.settled
    binary, soap = manager.doors.binary, manager.doors.soap
    multicast = None if manager.doors.multicast is None else manager.doors.multicast.info()
    amqp = None if manager.doors.amqp is None else manager.doors.amqp.info()
    directions = Counter(session.direction for session in outlook.sessions())
    accesses = Counter(reader.access for reader in readers)

    def of_limits(figure: str) -> Samples:
        return [({"limit": name}, limit[figure]) for name, limit in info.limits.items() if figure in limit]

    return (
        (
            "postroad_info",
            "Name, id and version of the manager.",
            [({"name": info.name, "id": info.id, "version": info.version}, 1)],
        ),
        ("postroad_start_time_seconds", "When the manager started, in seconds since 1970.", info.started_at_s),
        ("postroad_queues", "Queues of applications, without journals and outgoing queues.", info.queues),
        ("postroad_messages", "Messages in all queues.", info.messages),
        ("postroad_bytes", "Bytes of messages in all queues.", info.bytes),
        ("postroad_quota_bytes", "The manager's quota in bytes; +Inf if there is none.", _quota_bytes(info.quota_kb)),
        ("postroad_open_transactions", "Open transactions.", info.transactions),
        ("postroad_damaged_records", "Stored records found with a wrong checksum.", info.damaged),
        ("postroad_store_up", "1 while the store takes writes, 0 while it fails.", info.storage_error is None),
        *standing_metrics(info.store),
        ("postroad_background_tasks_down", "Background tasks that failed and do not run yet.", len(info.down)),
        (
            "postroad_journal_overflows_total",
            "Copies dropped because a journal or dead-letter queue was full.",
            info.journal_overflows,
        ),
        (
            "postroad_outgoing_queues_refused_total",
            "Outgoing queues not created because of limits.outgoing_queues.",
            info.outgoing_queues_refused,
        ),
        (
            "postroad_directory_up",
            "1 while the directory's source is in use, 0 while it is faulty or away and an earlier copy is used.",
            info.directory_error is None,
        ),
        ("postroad_directory_failures_total", "Failed attempts to read the directory.", info.directory_failures),
        (
            "postroad_directory_age_seconds",
            "How long ago the directory's source was last asked with success.",
            0 if info.directory is None else info.directory["age_s"],
        ),
        (
            "postroad_messages_added_total",
            "Messages put into a queue: sent, arrived, moved, copies for journals and dead letters, acknowledgments.",
            tally.added,
        ),
        (
            "postroad_follow_up_errors_total",
            "Follow-ups of a change that failed, such as acknowledgments and copies; the change itself is kept.",
            tally.follow_up_errors,
        ),
        ("postroad_messages_received_total", "Messages received.", tally.received),
        ("postroad_messages_expired_total", "Messages expired.", tally.expired),
        ("postroad_messages_purged_total", "Messages deleted by a purge or with their queue.", tally.purged),
        (
            "postroad_messages_dead_lettered_total",
            "Undeliverable messages that asked for a dead-letter queue.",
            tally.dead_lettered,
        ),
        ("postroad_limit_current", "How much of the limit is used; see [limits].", of_limits("current")),
        ("postroad_limit_maximum", "The limit.", of_limits("maximum")),
        ("postroad_limit_reached_total", "How often the limit was reached.", of_limits("reached")),
        (
            "postroad_sessions",
            "Sessions with other queue managers, by the side that opened them.",
            [({"direction": each}, directions[each]) for each in ("in", "out")],
        ),
        ("postroad_session_messages_sent_total", "Messages sent by sessions.", sent),
        ("postroad_session_messages_received_total", "Messages received by sessions.", received),
        (
            "postroad_session_messages_refused_total",
            "Messages from sessions that no local queue accepted.",
            binary.receiver.refusals if binary else 0,
        ),
        (
            "postroad_session_acks_refused_total",
            "Order and final acknowledgments from another manager than the message's destination.",
            binary.sender.refused_acks if binary else 0,
        ),
        (
            "postroad_session_claims_refused_total",
            "Messages from sessions that claim the name of another manager.",
            binary.receiver.claims if binary else 0,
        ),
        (
            "postroad_relay_refused_total",
            "Messages, acknowledgments and reports of strangers to hosts outside [relay] allow.",
            tally.withheld,
        ),
        (
            "postroad_unwritten_total",
            "Acknowledgments, receipts, reports and dead letters that were not written: no right of their cause, or no "
            "room.",
            tally.unwritten,
        ),
        (
            "postroad_soap_messages_sent_total",
            "Messages and receipts that peers accepted by HTTP.",
            soap.sent if soap else 0,
        ),
        ("postroad_soap_messages_received_total", "HTTP requests answered with 200.", soap.taken if soap else 0),
        (
            "postroad_soap_requests_refused_total",
            "HTTP requests answered with 400 or 500.",
            soap.refused if soap else 0,
        ),
        (
            "postroad_soap_receipts_ignored_total",
            "Stream receipts from another host than the message's destination.",
            soap.receiver.receipts_ignored if soap else 0,
        ),
        (
            "postroad_soap_receipts_dropped_total",
            "Receipts that strangers asked for at hosts outside [relay] allow.",
            soap.receiver.receipts_dropped if soap else 0,
        ),
        *(() if multicast is None else _multicast_metrics(multicast)),
        *(() if amqp is None else _amqp_metrics(amqp)),
        (
            "postroad_messages_refused_total",
            "Messages of other managers that no local queue accepted, by reason.",
            [({"reason": str(each)}, count) for each, count in tally.refused.items()],
        ),
        (
            "postroad_remote_readers",
            "Queues that remote readers have open.",
            [({"access": each}, accesses[each]) for each in ("receive", "peek")],
        ),
        (
            "postroad_remote_reads_waiting",
            "Remote reads waiting for a message.",
            sum(reader.waiting for reader in readers),
        ),
        (
            "postroad_remote_unacknowledged",
            "Messages that remote readers have locked.",
            sum(reader.unacknowledged for reader in readers),
        ),
        ("postroad_remote_messages_received_total", "Messages that remote readers acknowledged.", acknowledged),
        (
            "postroad_remote_messages_returned_total",
            "Messages that remote readers put back or left unacknowledged.",
            returned,
        ),
        *_disk_metrics(info.disk),
        (
            "postroad_journal_messages_expired_total",
            "Messages that journals no longer keep, because of keep_journal_days.",
            manager.core.retention.removed,
        ),
        ("postroad_locks_taken_back_total", "Locked messages taken back from silent clients.", leases.expired_locks),
        (
            "postroad_transactions_taken_back_total",
            "Aborted transactions of silent clients.",
            leases.expired_transactions,
        ),
    )


# Which queues have series of their own. Their number is bounded to spare the monitoring system; all other queues share
# one series. No counter ever falls: a queue keeps its series while it exists, and a queue without one keeps being
# counted with the others.


OTHERS = "(others)"
_LAST = frozenset({"system", "journal", "subqueue"})  # kinds that applications do not use directly
_SUMS = ("messages", "bytes", "locked", "readers", "waiting", "damaged", "unsent", "in_flight", "unacknowledged")


class QueueSeries:
    """Gives series to the first `limit` queues that it sees. At the first look, queues of applications come first;
    after that, queues in order of creation. A series that becomes free goes to the next new queue."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._own: set[str] = set()
        self._shared: dict[str, tuple[int, int, int]] = {}  # what is counted of each of the others
        self._counted = (0, 0, 0)  # messages in and out, and failures, of all others so far

    def of(self, queues: Sequence[QueueInfo]) -> list[QueueInfo]:
        """Queues as the metrics show them. The last one stands for all the others, if there are any."""
        ids = {queue.id for queue in queues}
        self._own &= ids
        self._shared = {each: counts for each, counts in self._shared.items() if each in ids}
        new = [queue for queue in queues if queue.id not in self._own and queue.id not in self._shared]
        new.sort(key=lambda queue: queue.type in _LAST or queue.is_internal)
        free = max(0, self.limit - len(self._own))
        self._own |= {queue.id for queue in new[:free]}
        self._shared |= {queue.id: (0, 0, 0) for queue in new[free:]}
        shown = [queue for queue in queues if queue.id in self._own]
        others = [queue for queue in queues if queue.id in self._shared]
        return [*shown, self._together(others)] if others else shown

    def _together(self, others: Sequence[QueueInfo]) -> QueueInfo:
        for queue in others:
            counts = queue.messages_in, queue.messages_out, queue.failures
            grown = (max(0, now - before) for now, before in zip(counts, self._shared[queue.id], strict=True))
            self._counted = _sum(self._counted, grown)
            self._shared[queue.id] = counts
        messages_in, messages_out, failures = self._counted
        sums = {name: sum(getattr(queue, name) for queue in others) for name in _SUMS}
        outgoing = [queue for queue in others if queue.state is not None]
        return replace(
            others[0],
            path=OTHERS,
            type=OTHERS,
            id="",
            quota_kb=_all_quotas(others),
            oldest_arrived_ms=min((each.oldest_arrived_ms for each in others if each.oldest_arrived_ms), default=None),
            messages_in=messages_in,
            messages_out=messages_out,
            failures=failures,
            state=outgoing[0].state if outgoing else None,
            stuck=any(queue.stuck for queue in outgoing),
            **sums,
        )


def _sum(counted: tuple[int, int, int], grown: Iterable[int]) -> tuple[int, int, int]:
    first, second, third = (one + other for one, other in zip(counted, grown, strict=True))
    return first, second, third


def _all_quotas(queues: Sequence[QueueInfo]) -> int | None:
    """The sum of the quotas. None, no limit, if one of them has none."""
    quotas = [queue.quota_kb for queue in queues]
    return None if None in quotas else sum(each for each in quotas if each is not None)


# `/healthz`: the process answers. `/readyz`: the store takes writes and every background task runs.


async def live(manager: Manager) -> Response:
    return text("ok\n")


async def ready(manager: Manager) -> Response:
    """Answers 503 with the reasons while the store fails, its disk is full (small writes may still fit), or a
    background task is down. Each call tries the store again, because without traffic nothing else would."""
    if (refusal := manager.standing.refusal() or manager.standing.stalled()) is not None:
        return text(f"{refusal}\n", HTTPStatus.SERVICE_UNAVAILABLE)
    reasons = [f"the background task {name} is down: {why}" for name, why in manager.supervisor.down.items()]
    if manager.storage_error is not None:
        try:
            await manager.write_identifier()
        except StorageError as error:
            reasons.append(str(error))
    if (full := manager.troubles.look(manager.clock())) is not None:
        reasons.append(full)
    if reasons:
        lines = "".join(f"{each}\n" for each in dict.fromkeys(reasons))
        return text(lines, HTTPStatus.SERVICE_UNAVAILABLE)
    return text("ready\n")
