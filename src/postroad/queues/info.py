"""What people and programs are told of queues, of sessions and of the manager: plain values, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.queues.collection import QueueCollection
from postroad.queues.delivery import is_internal
from postroad.queues.local import LocalQueueManager
from postroad.queues.properties import QueueType
from postroad.queues.queue import PositionState, Queue
from postroad.version import __version__

_MADE = (QueueType.PRIVATE, QueueType.PUBLIC)


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """`messages` counts what is in the queue, `locked` those of them that a reader has; `holds` are ranges that readers
    keep to themselves, by order of arrival.

    From `state` on it is about outgoing queues. Their messages are unsent; in flight, that is sent and not acknowledged
    by the next hop; or unacknowledged, that is at the next hop and not put in order by the destination, as
    transactional ones are. `why` says in one sentence what they wait for, and is None where there are none; `stuck`
    tells whether somebody ought to look. Those that wait for a final acknowledgment have left the queue.
    """

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
    holds: tuple[dict[str, object], ...] = ()
    state: str | None = None
    next_hops: tuple[str, ...] = ()
    history: tuple[dict[str, object], ...] = ()
    why: str | None = None
    stuck: bool = False
    paused: bool = False
    unsent: int = 0
    in_flight: int = 0
    unacknowledged: int = 0
    awaiting_final_ack: int = 0
    last_error: str | None = None
    failures: int = 0
    next_retry_s: float | None = None
    next_resend_s: float | None = None
    resend_interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session of the binary protocol. `peer` is a GUID, None until the other end has said who it is; `direction` is
    out where we called and in where it did; `queues` are the outgoing queues that use it."""

    peer: str | None
    address: str
    direction: str
    state: str
    opened_at_s: float | None
    last_received_at_s: float | None
    messages_in: int
    messages_out: int
    unacknowledged: int
    window: int
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """A queue that somebody on another computer has open for reading. `user` is None where nobody proved to be one."""

    queue: str
    address: str
    user: str | None
    access: str
    exclusive: bool
    cursors: int
    waiting: int
    unacknowledged: int
    opened_at_s: float


@dataclass(frozen=True, slots=True)
class ListenerInfo:
    """One listener. `reachable` is whether other computers can reach it; `allows` is who may do what there, in words.

    `authentication` is none, token, client certificate or users; `encryption` is none, tls or what each call has.
    """

    listener: str
    address: str
    reachable: bool
    authentication: str
    encryption: str
    allows: str


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Messages of one queue that one client has, and nobody else can see. `kind` is receive, where it locked them;
    transaction, where it took them in one; or remote reader, whose messages return with the end of its connection.

    `silent_s` is how long nothing was heard of the client; None where nothing has to be.
    """

    queue: str
    owner: str
    kind: str
    age_s: float
    silent_s: float | None
    messages: int
    lookup_ids: tuple[int, ...]
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """An open transaction of a client; `messages` are those received and sent in it."""

    id: str
    owner: str
    age_s: float
    silent_s: float
    messages: int
    received: int
    sent: int


@dataclass(frozen=True, slots=True)
class ManagerInfo:
    """`queues` counts those that people made. `storage_error` is what the last commit failed of; None once one has
    worked again. `journal_overflows` are copies that found no room since the start, and `overflowed` the journals and
    dead-letter queues that had none. `outgoing_queues_refused` are those that were not made, since there were
    too many.

    `directory_error` is what is wrong with the directory's file as it is now, `directory_failures` how often it was.
    `down` are background tasks that have failed and do not run again yet, with the reasons; `follow_up_errors` counts
    what followed from a change (an acknowledgment, a copy) and failed.
    `limits` has what strangers can use up: of each limit `current`, `maximum`, and how often it was `reached`.
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
    overflowed: tuple[str, ...] = ()
    outgoing_queues_refused: int = 0
    down: tuple[str, ...] = ()
    follow_up_errors: int = 0
    limits: dict[str, dict[str, int]] = field(default_factory=dict)


def describe_manager(
    core: LocalQueueManager,
    *,
    started_at_s: float,
    storage_error: str | None,
    directory_failures: int,
    directory_error: str | None,
    limits: dict[str, dict[str, int]],
    down: tuple[str, ...] = (),
) -> ManagerInfo:
    queues = list(core.queues)
    return ManagerInfo(
        name=core.name,
        id=str(core.identifier),
        version=__version__,
        started_at_s=started_at_s,
        queues=sum(queue.properties.queue_type in _MADE and not is_internal(queue) for queue in queues),
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
        limits=limits,
    )


def describe_queue(queues: QueueCollection, queue: Queue, damaged: int) -> QueueInfo:
    """Of an outgoing queue, what all kinds have: its protocol tells the rest."""
    properties = queue.properties
    outgoing = queues.outgoing_info.get(queue)
    head = queue.available(1) if outgoing is None else []
    return QueueInfo(
        path=queue.name,
        format_name=properties.path if queue.is_outgoing else str(queues.format_name(queue)),
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
        damaged=damaged,
        created_at_s=properties.create_time,
        oldest_arrived_ms=head[0].arrived_ms if head else None,
        holds=tuple(
            {"name": each.name, "from": each.start, "to": each.end, "since_s": each.since_s}
            for each in queue.holds.values()
        ),
        state=outgoing.state.value if outgoing else None,
        next_hops=outgoing.next_hops if outgoing else (),
        history=tuple(
            {"status": attempt.status.name.lower().replace("_", " "), "time_s": attempt.time_s, "error": attempt.error}
            for attempt in (outgoing.history if outgoing else ())
        ),
    )
