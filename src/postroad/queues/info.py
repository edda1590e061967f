"""What people and programs are told of a queue and of the manager: plain values, ready for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from postroad.queues.collection import QueueCollection
from postroad.queues.queue import PositionState, Queue
from postroad.store.interface import Key


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """`messages` counts what is in the queue, `locked` those of them that a reader holds."""

    path: str
    format_name: str
    id: str
    type: str
    label: str
    transactional: bool
    journal: bool
    quota_kb: int | None
    journal_quota_kb: int | None
    authenticate: bool
    privacy: str
    abort_limit: int | None
    messages: int
    bytes: int
    locked: int
    readers: int
    waiting: int
    nearly_full: bool
    damaged: int
    created_at_s: int
    oldest_arrived_ms: int | None
    state: str | None = None  # of an outgoing queue
    next_hops: tuple[str, ...] = ()
    history: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class ManagerInfo:
    """`storage_error` is what the last commit failed of; None once one has worked again.

    `directory_error` is what is wrong with the directory's file as it is now, `directory_failures` how often it was.
    """

    name: str
    id: str
    version: str
    started_at_s: float
    queues: int
    messages: int
    bytes: int
    quota_kb: int | None
    transactions: int
    damaged: int
    journal_overflows: int
    storage_error: str | None
    directory_failures: int = 0
    directory_error: str | None = None


def describe_queue(queues: QueueCollection, queue: Queue, damaged: Mapping[Key | str, str]) -> QueueInfo:
    properties = queue.properties
    outgoing = queues.outgoing_info.get(queue)
    head = queue.available(1)
    return QueueInfo(
        path=properties.path,
        format_name=str(queues.format_name(queue)),
        id=str(properties.identifier),
        type=properties.queue_type.value,
        label=properties.label,
        transactional=properties.transactional,
        journal=properties.journaling,
        quota_kb=properties.quota_kb,
        journal_quota_kb=properties.journal_quota_kb,
        authenticate=properties.authenticate,
        privacy=properties.privacy.value,
        abort_limit=properties.abort_limit,
        messages=queue.count,
        bytes=queue.total_bytes,
        locked=sum(state is not PositionState.DELETED for state in queue.positions.values()),
        readers=len(queue.descriptors),
        waiting=len(queue.waiting),
        nearly_full=queue.nearly_full,
        damaged=sum(isinstance(key, Key) and key.queue == queue.number for key in damaged),
        created_at_s=properties.create_time,
        oldest_arrived_ms=head[0].arrived_ms if head else None,
        state=outgoing.state.value if outgoing else None,
        next_hops=outgoing.next_hops if outgoing else (),
        history=tuple(
            {"status": attempt.status.name.lower().replace("_", " "), "time_s": attempt.time_s, "error": attempt.error}
            for attempt in (outgoing.history if outgoing else ())
        ),
    )
