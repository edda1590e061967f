"""What a manager reports about itself, its queues and their users: plain values, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroad.reports.plain import listed
from postroad.validation.queue_properties import QueueSettings


def counted(number: int, one: str, many: str = "") -> str:
    """1 message, 3 messages; with `many`: 1 message waits, 3 messages wait"""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo(QueueSettings):
    """A queue.

    `messages` counts the messages in the queue, and `locked` those that a reader has locked. `readers` counts the
    readers that have the queue open, and the clients that work on its messages. `holds` are ranges that readers hold,
    in order of arrival. `messages_in` and `messages_out` count arrivals and departures since the start.

    The fields from `state` on are for outgoing queues. Their messages are unsent; or in flight, which means sent but
    not acknowledged by the next hop; or unacknowledged, which means at the next hop but not acknowledged in order by
    the destination. Only transactional messages can be unacknowledged. `why` says what the messages wait for, and is
    None if there are none. `stuck` says whether they need attention. Messages that wait for a final acknowledgment have
    left the queue.
    """

    path: str
    format_name: str
    id: str
    type: str
    messages: int
    bytes: int
    locked: int
    readers: int
    waiting: int
    nearly_full: bool
    damaged: int
    created_at_s: int
    oldest_arrived_ms: int | None
    messages_in: int = 0
    messages_out: int = 0
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

    @property
    def is_internal(self) -> bool:
        r"""Whether the manager made the queue for itself, such as private$\admin_queue$."""
        from postroad.names.format import is_internal  # imported here, because a small command needs no names

        return is_internal(self.path)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session of the binary protocol.

    `peer` is a GUID, or None until the other end has identified itself. `direction` is out if we called, and in if the
    peer did. `queues` are the outgoing queues that use the session. `peer_name` is the peer's name in the directory.
    """

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
    peer_name: str | None = None


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """A queue that a remote reader has open. `user` is None for an anonymous reader."""

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
    """One listener. `reachable` is whether other computers can reach it. `allows` says in words who may do what there.

    `authentication` is none, token, client certificate or users. `encryption` is none, tls or what each call has.
    """

    listener: str
    address: str
    reachable: bool
    authentication: str
    encryption: str
    allows: str


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user of the configuration. `groups` are SIDs."""

    name: str
    sid: str
    groups: tuple[str, ...]
    administrator: bool
    monitor: bool


@dataclass(frozen=True, slots=True)
class LoginInfo:
    """A session. Send `token` as a bearer token until `expires_s` seconds have passed."""

    who: str
    token: str
    expires_s: int


@dataclass(frozen=True, slots=True)
class CallerInfo:
    """The caller, and what the caller may do.

    `role` is `administrator`, `monitor` or `user`. `queues` has the caller's rights in words, by path, for the queues
    that the caller may see.
    """

    name: str
    role: str
    create_queues: bool
    see_manager: bool
    queues: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key pair of the manager. `fingerprint` is of the public key in DER.

    `previous` counts the earlier keys that still decrypt.
    """

    provider: str
    bits: int
    fingerprint: str
    previous: int


@dataclass(frozen=True, slots=True)
class KeysInfo:
    """The manager's keys. `public_keys` is what the directory must publish: MQDSPUBLICKEYS in hexadecimal digits."""

    public_keys: str
    made_at_s: int | None
    keys: tuple[KeyInfo, ...] = field(default=(), metadata=listed(KeyInfo))


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Messages of one queue that one client has locked.

    `kind` is receive, transaction (they were received in one), or remote reader (they return when its connection ends).
    `silent_s` is the time since the client's last call, or None if it need not call.
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
    """An open transaction of a client. `messages` counts those received and sent in it."""

    id: str
    owner: str
    age_s: float
    silent_s: float
    messages: int
    received: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A multicast address that queues here listen to.

    `sources` are those heard at present. `packets`, `lost`, `repaired` and `naks` count data packets since the start.
    `unconfirmed` counts packets missing from sources that have brought no message; these may be forged. `error` says
    why nothing can be received.
    """

    address: str
    queues: tuple[str, ...]
    error: str | None
    sources: tuple[str, ...]
    packets: int
    lost: int
    unconfirmed: int
    repaired: int
    naks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastInfo:
    """The state of multicast.

    `address` is where our packets come from, and `error` says why there are none. `sent`, `received` and `refused`
    count messages since the start. `packets`, `lost`, `unconfirmed`, `repaired` and `naks` count packets of other
    sources, as in GroupInfo. `malformed` packets cannot be read. `overflowed` packets came while the receive buffer was
    full, whether or not they were repaired. `repairs_sent` are our packets that others had missed, and `forced` those
    that left a full window early.
    """

    address: str | None
    error: str | None
    groups: tuple[GroupInfo, ...] = field(default=(), metadata=listed(GroupInfo))
    sources: int = 0
    sent: int = 0
    received: int = 0
    refused: int = 0
    packets: int = 0
    lost: int = 0
    unconfirmed: int = 0
    repaired: int = 0
    malformed: int = 0
    overflowed: int = 0
    naks: int = 0
    repairs_sent: int = 0
    forced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLinkInfo:
    """A link by AMQP. `role` is what the client does: sender or receiver. `credit` is how many messages may come on it,
    and `unsettled` how many have come and are not settled."""

    name: str
    address: str
    role: str
    credit: int
    unsettled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpConnectionInfo:
    """A connection by AMQP. `peer` is its address, and `container` the name that the client gives itself."""

    peer: str
    container: str
    user: str
    links: tuple[AmqpLinkInfo, ...] = field(default=(), metadata=listed(AmqpLinkInfo))


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpInfo:
    """The listener of AMQP. `received` and `sent` count messages since the start. `open` and `links` are how many
    connections and links there are, and `unsettled` how many messages on them; `connections` has the first thousand.
    """

    open: int
    links: int
    unsettled: int
    received: int
    sent: int
    connections: tuple[AmqpConnectionInfo, ...] = field(default=(), metadata=listed(AmqpConnectionInfo))


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The source of the directory: `file` or `ldap`, and the file or the domain controller that was asked last. While
    it is not `online`, its last good copy is used. `age_s` is how long ago the source was last asked with success."""

    kind: str
    source: str
    online: bool
    age_s: float
    failures: int
    error: str | None


@dataclass(frozen=True, slots=True)
class ManagerInfo:
    """A queue manager.

    `queues` counts those that users made. `storage_error` is why the last commit failed, or None after a successful
    commit. `journal_overflows` counts copies that found no room since the start, and `overflowed` names the journals
    and dead-letter queues that were full. `outgoing_queues_refused` counts those that were not made because there were
    too many.

    `directory` has the fields of DirectoryState, or is None without a directory. `directory_error` is what is wrong
    with it now, and `directory_failures` how often it was wrong.
    `down` has the background tasks that have failed and do not run yet, with the reasons. `follow_up_errors` counts
    consequences of changes (acknowledgments, copies) that failed. `unwritten` counts those that were not tried, because
    the user who caused them may not write to the queue, or there is no room.

    `messages_refused` counts messages from other managers that were refused since the start, by reason. `algorithms`
    has the `hashes` and `ciphers` that message security accepts, and the cipher that `send` uses. `limits` has what
    strangers can use up: for each limit `current`, `maximum`, and how often it was `reached`. `multicast` has the
    fields of MulticastInfo and `amqp` those of AmqpInfo; each is None if it is off. `disk` has the bytes of the store's
    `database`, its `log`, the `journal` and the `reserve`, and what is `free` and `total` on the disk. It is empty for
    a manager in memory.

    `store` has its `kind` (`files` or `postgresql`), this process' `role` (`active` or `standby`), and in PostgreSQL
    the `epoch`, which counts how often a process became active, HOST:PID of the `active` one and of its `standbys`,
    whether the database is `synchronous` (waits for a replica before it confirms), and its `trouble`, if any.
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
    directory: dict[str, Any] | None = None
    directory_failures: int = 0
    directory_error: str | None = None
    accounts_error: str | None = None
    overflowed: tuple[str, ...] = ()
    outgoing_queues_refused: int = 0
    down: tuple[str, ...] = ()
    follow_up_errors: int = 0
    unwritten: int = 0
    messages_refused: dict[str, int] = field(default_factory=dict)
    algorithms: dict[str, list[str]] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    publishes: bool = False  # its public queues are in Active Directory
    multicast: dict[str, object] | None = None
    amqp: dict[str, Any] | None = None
    disk: dict[str, int] = field(default_factory=dict)
    store: dict[str, Any] = field(default_factory=dict)


# What needs an operator's attention, in sentences.


LOW_DISK_BYTES = 1 << 30  # free space counts as low only if it is also less than one part in LOW_DISK_SHARE
LOW_DISK_SHARE = 20
MOST_NAMED = 20  # stuck queues in the list; those whose messages wait longest come first


def attention(info: ManagerInfo, queues: Sequence[QueueInfo]) -> Iterator[str]:
    """A sentence for each thing that needs attention, the most urgent first."""
    if info.storage_error is not None:
        yield f"the store cannot be written: {info.storage_error}"
    free, total = info.disk.get("free", 0), info.disk.get("total", 0)
    if free < LOW_DISK_BYTES and free * LOW_DISK_SHARE < total:
        yield f"the disk is nearly full: {free >> 20} MiB of {total >> 20} MiB are free"
    for task in info.down:
        yield f"the background task {task}"
    if info.directory_error is not None:
        yield f"the directory cannot be read, and an earlier copy is used: {info.directory_error}"
    if info.accounts_error is not None:
        yield f"the directory cannot be asked for accounts, and known ones count for 10 hours: {info.accounts_error}"
    if info.damaged:
        yield f"{counted(info.damaged, 'stored record has', 'stored records have')} a wrong checksum; see the log"
    for name, limit in info.limits.items():
        if limit["reached"]:
            yield f"the limit {name} of {limit['maximum']} was reached {counted(limit['reached'], 'time')}"
    stuck = sorted((queue for queue in queues if queue.stuck), key=lambda queue: queue.oldest_arrived_ms or 0)
    for queue in stuck[:MOST_NAMED]:
        yield f"{counted(queue.messages, 'message waits', 'messages wait')} for {queue.path}: {queue.why}"
    if rest := stuck[MOST_NAMED:]:
        stuck_too = counted(len(rest), "more outgoing queue is stuck", "more outgoing queues are stuck")
        yield f"{stuck_too}, with {counted(sum(queue.messages for queue in rest), 'message')}"
    for queue in queues:
        if queue.nearly_full:
            yield f"{queue.path} is nearly full: {queue.bytes} of {(queue.quota_kb or 0) * 1024} bytes"
    if info.journal_overflows:
        dropped, full = counted(info.journal_overflows, "copy", "copies"), ", ".join(info.overflowed)
        yield f"{dropped} dropped, because a journal or dead-letter queue is full: {full}"
    if info.follow_up_errors:
        yield f"{info.follow_up_errors} acknowledgments or copies could not be made; see the log"


# Lengths of time in words.


def span(seconds: float) -> str:
    """A length of time such as `0.8 s`, `45 s`, `12 min`, `3 h` or `4 days`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
