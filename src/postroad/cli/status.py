"""`postroad status`: shows the queue manager at a glance, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.administration import print_locks, print_transactions
from postroad.cli.context import Context
from postroad.cli.output import print_json, print_line, print_table, shortened, size_text
from postroad.cli.queue import is_of_interest, print_queues
from postroad.reports.info import attention, counted

if TYPE_CHECKING:
    from postroad.reports.info import (
        ListenerInfo,
        LockInfo,
        ManagerInfo,
        QueueInfo,
        ReaderInfo,
        SessionInfo,
    )

LARGEST = 10  # queues that are shown without --all
MOST_OUTGOING = 20  # outgoing queues that are shown; strangers can cause thousands
MOST_QUEUES = 200
SHOWN_LOCKS = 10  # the oldest ones
_DEAD_LETTERS = ("system$;deadletter", "system$;deadxact")


def status(
    context: Context,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Show all queues, sessions, remote readers, locks, transactions and listeners too."),
    ] = False,
) -> None:
    """Show what needs attention, with the reasons, the totals of the manager, and its ten largest queues.

    With --json everything is there, with and without --all.
    """
    with context.connect() as manager:
        info = manager.info()
        if info.store.get("role") == "standby" or info.store.get("trouble"):
            _print_store(context, info)
            return
        queues = sorted(manager.queues(), key=_urgency)
        sessions = manager.sessions()
        readers = manager.readers()
        exposure = manager.exposure()
        locks = manager.locks()
        transactions = manager.transactions()
    needed = [*attention(info, queues), *_dead_letters(queues)]
    if context.as_json:
        print_json(
            {
                "manager": info,
                "queues": queues,
                "sessions": sessions,
                "readers": readers,
                "exposure": exposure,
                "locks": locks,
                "transactions": transactions,
                "multicast": info.multicast,
                "amqp": info.amqp,
                "store": info.store,
                "attention": needed,
            }
        )
        return
    for sentence in needed:
        print_line(f"! {sentence}")
    if needed:
        print_line("")
    _print_totals(info, sessions, readers, locks)
    shown = [queue for queue in queues if is_of_interest(queue)]
    if not everything:
        print_line("")
        _print_largest(shown)
        return
    _print_settings(info)
    print_line("")
    _print_queues(shown)
    if sessions:
        print_line("")
        _print_sessions(sessions)
    if readers:
        print_line("")
        _print_readers(readers)
    if locks:
        print_line("")
        print_locks(locks[:SHOWN_LOCKS])
        _print_rest(len(locks), "lock")
    if transactions:
        print_line("")
        print_transactions(transactions[:SHOWN_LOCKS])
        _print_rest(len(transactions), "transaction")
    print_line("")
    _print_exposure(exposure)


def _print_store(context: Context, info: ManagerInfo) -> None:
    """A process that stands by, or whose database is away, cannot read queues."""
    if context.as_json:
        print_json({"manager": info, "store": info.store, "queues": [], "sessions": [], "attention": []})
        return
    print_line(f"{info.name}  postroad {info.version}")
    active = info.store.get("active") or "no process"
    role = "active" if info.store["role"] == "active" else f"stands by; {active} is active"
    print_line(f"store: PostgreSQL; {role}, epoch {info.store['epoch']}")
    if info.store.get("trouble"):
        print_line(f"! {info.store['trouble']}")


def _print_totals(
    info: ManagerInfo, sessions: Sequence[object], readers: Sequence[object], locks: Sequence[LockInfo]
) -> None:
    quota = "" if info.quota_kb is None else f" of {size_text(info.quota_kb * 1024)}"
    print_line(f"{info.name}  {info.id}  postroad {info.version}")
    print_line(
        f"up {_duration(info.started_at_s)}, {counted(info.queues, 'queue')}, "
        f"{counted(info.messages, 'message')}, {size_text(info.bytes)}{quota}, "
        f"{counted(info.transactions, 'open transaction')}"
    )
    locked = sum(each.messages for each in locks)
    print_line(
        f"{counted(len(sessions), 'session')}, {counted(len(readers), 'remote reader')}, "
        f"{counted(locked, 'locked message')}"
    )
    if info.disk:
        used = sum(size for use, size in info.disk.items() if use not in ("free", "total"))
        free = f", {size_text(info.disk['free'])} free" if "free" in info.disk else ""
        print_line(f"disk: {size_text(used)} used{free}")
    if info.store.get("kind") == "postgresql":
        names = info.store["standbys"]
        standbys = f"{', '.join(map(str, names)) or 'nobody'} {'stand' if len(names) > 1 else 'stands'} by"
        waits = "waits for a replica" if info.store["synchronous"] else "waits for no replica"
        print_line(f"store: PostgreSQL, which {waits}; active, epoch {info.store['epoch']}; {standbys}")
    if info.multicast is not None:
        print_line(_multicast_line(info.multicast))
    if info.amqp is not None:
        print_line(_amqp_line(info.amqp))
    if info.messages_refused:
        refused = (f"{count} {reason}" for reason, count in sorted(info.messages_refused.items()))
        print_line(f"refused messages: {', '.join(refused)}")
    if info.unwritten:
        print_line(f"acknowledgments and copies not written, for lack of rights or room: {info.unwritten}")


def _print_settings(info: ManagerInfo) -> None:
    if info.limits:
        shown = (
            f"{name} {limit['current']} of {limit['maximum']}"
            for name, limit in info.limits.items()
            if "current" in limit
        )
        print_line(f"limits: {', '.join(shown)}")
    if info.algorithms:
        hashes, ciphers, send = (", ".join(info.algorithms.get(each, ())) for each in ("hashes", "ciphers", "send"))
        print_line(f"security: accepts {hashes} and {ciphers}; encrypts with {send}")


def _print_largest(queues: list[QueueInfo]) -> None:
    """Prints the queues with the most messages, and how much is in the others."""
    ordered = sorted(queues, key=lambda queue: (-queue.messages, -queue.bytes, queue.path.lower()))
    print_queues(map(_with_short_name, ordered[:LARGEST]))
    if rest := ordered[LARGEST:]:
        messages = counted(sum(queue.messages for queue in rest), "message")
        print_line(f"{counted(len(rest), 'more queue')} with {messages}: postroad status --all")


def _with_short_name(queue: QueueInfo) -> QueueInfo:
    return replace(queue, path=shortened(queue.path))


def _multicast_line(found: dict[str, Any]) -> str:
    if found["error"] is not None:
        return f"multicast: not available: {found['error']}"
    groups = ", ".join(each["address"] for each in found["groups"]) or "none"
    full = f", {found['overflowed']} found the receive buffer full" if found["overflowed"] else ""
    return (
        f"multicast: from {found['address']}, groups {groups}, {counted(found['sources'], 'source')}, "
        f"{found['received']} received, {found['repaired']} repaired, {found['lost']} lost{full}"
    )


def _amqp_line(found: dict[str, Any]) -> str:
    return (
        f"AMQP: {counted(found['open'], 'connection')}, {counted(found['links'], 'link')}, "
        f"{found['received']} received, {found['sent']} sent"
    )


def _print_exposure(exposure: list[ListenerInfo]) -> None:
    print_table(
        ("listener", "address", "reached by", "authentication", "encryption", "who may do what"),
        [
            (
                each.listener,
                each.address,
                "other computers" if each.reachable else "this computer",
                each.authentication,
                each.encryption,
                each.allows,
            )
            for each in exposure
        ],
    )


def _urgency(queue: QueueInfo) -> tuple[bool, int, str]:
    """Orders outgoing queues: stuck ones first, and among them the longest."""
    return not queue.stuck, queue.oldest_arrived_ms or 0 if queue.stuck else 0, queue.path.lower()


def _print_queues(queues: list[QueueInfo]) -> None:
    """Prints the most urgent outgoing queues and the queues of users, as many as fit on a screen."""
    outgoing = [queue for queue in queues if queue.type == "outgoing"]
    own = [queue for queue in queues if queue.type != "outgoing"]
    print_queues(map(_with_short_name, [*outgoing[:MOST_OUTGOING], *own[:MOST_QUEUES]]))
    for rest, what in ((outgoing[MOST_OUTGOING:], "outgoing queue"), (own[MOST_QUEUES:], "queue")):
        if rest:
            messages = counted(sum(queue.messages for queue in rest), "message")
            print_line(f"{counted(len(rest), f'more {what}')} with {messages}: postroad queue list")


def _print_rest(found: int, what: str) -> None:
    if found > SHOWN_LOCKS:
        print_line(f"and {counted(found - SHOWN_LOCKS, f'more {what}')}: postroad {what} list")


def _print_sessions(sessions: list[SessionInfo]) -> None:
    print_table(
        ("session", "peer", "state", "open for", "in", "out", "unacknowledged", "window", "last heard"),
        [
            (
                f"{session.direction} {session.address}",
                session.peer if session.peer_name is None else f"{session.peer_name} ({session.peer})",
                session.state,
                None if session.opened_at_s is None else _duration(session.opened_at_s),
                session.messages_in,
                session.messages_out,
                session.unacknowledged,
                session.window,
                None if session.last_received_at_s is None else f"{_duration(session.last_received_at_s)} ago",
            )
            for session in sessions
        ],
        numbers=("in", "out", "unacknowledged", "window"),
    )


def _print_readers(readers: list[ReaderInfo]) -> None:
    print_table(
        ("remote reader", "user", "queue", "access", "open for", "cursors", "waiting", "unacknowledged"),
        [
            (
                reader.address,
                reader.user,
                reader.queue,
                f"{reader.access}, exclusive" if reader.exclusive else reader.access,
                _duration(reader.opened_at_s),
                reader.cursors,
                reader.waiting,
                reader.unacknowledged,
            )
            for reader in readers
        ],
        numbers=("cursors", "waiting", "unacknowledged"),
    )


def _dead_letters(queues: list[QueueInfo]) -> Iterator[str]:
    for queue in queues:
        if queue.path.lower() in _DEAD_LETTERS and queue.messages:
            yield f"{counted(queue.messages, 'dead letter')} in ;{queue.path.partition(';')[2]}"


def _duration(started_at_s: float) -> str:
    seconds = max(0, int(datetime.now(UTC).timestamp() - started_at_s))
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((index for index, (amount, _) in enumerate(parts) if amount), len(parts) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2])
