"""Describes queues and the manager for people and programs: the values of values/info.py, from the core's state."""

from __future__ import annotations

from dataclasses import asdict

from postroad.errors import Status
from postroad.fields.queue import settings_of
from postroad.queues.collection import QueueCollection
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing import HINTS, ConnectionAttempt
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.values.info import ManagerInfo, MulticastInfo, QueueInfo
from postroad.version import __version__

_MADE = (QueueType.PRIVATE, QueueType.PUBLIC)


def describe_manager(
    core: LocalQueueManager,
    *,
    started_at_s: float,
    storage_error: str | None,
    directory_failures: int,
    directory_error: str | None,
    limits: dict[str, dict[str, int]],
    multicast: MulticastInfo | None = None,
    down: tuple[str, ...] = (),
    disk: dict[str, int] | None = None,
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
        directory_failures=directory_failures,
        directory_error=directory_error,
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
        disk=disk or {},
    )


def describe_queue(queues: QueueCollection, queue: Queue, damaged: int, readers: int) -> QueueInfo:
    """Of an outgoing queue, what all kinds have: its protocol tells the rest."""
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
