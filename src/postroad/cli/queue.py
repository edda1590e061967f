"""`postroad queue ...`: create, list, show, change, purge, pause, release and delete queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from postroad.cli.acl import app as acl
from postroad.cli.administration import report_locked
from postroad.cli.context import Context, QueueName
from postroad.cli.output import ExitCode, fail, print_line, print_table, size_text
from postroad.reports.info import counted

if TYPE_CHECKING:
    from postroad.reports.info import QueueInfo
    from postroad.validation.queue_properties import QueueAttributes

app = typer.Typer(help="Create, list, show, change, purge, pause, release and delete queues, and set who may use them.")
app.add_typer(acl, name="acl")


# The properties that only outgoing queues have.
_OUTGOING = (
    *("state", "next_hops", "why", "stuck", "paused", "unsent", "in_flight", "unacknowledged", "awaiting_final_ack"),
    *("last_error", "failures", "next_retry_s", "next_resend_s", "resend_interval_s"),
)


@app.command("create")
def create(
    context: Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help=r"The new queue's path, as in private$\orders.")],
    attributes: dict[str, Any],
    public: Annotated[
        bool, typer.Option("--public", help="PATH is the name of a public queue, as in orders; see the directory.")
    ] = False,
) -> None:
    """Create a queue, and print its path."""
    from postroad.names import public_path

    with context.connect() as manager:
        path = public_path(path) if public else path
        info = manager.backend.create_queue(path, cast("QueueAttributes", attributes))
    context.print(info, info.path)


@app.command("list")
def list_queues(
    context: Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Include journals, subqueues and the queue manager's own queues.")
    ] = False,
) -> None:
    """List the queues; with --json, all of them."""
    with context.connect() as manager:
        infos = sorted(manager.queues(), key=lambda info: (info.type == "outgoing", info.path.lower()))
    context.print_list(infos, lambda: print_queues(info for info in infos if everything or is_of_interest(info)))


@app.command("show")
def show(context: Context, queue: QueueName) -> None:
    """Show everything about a queue."""
    with context.connect() as manager:
        info = manager.queue(queue).info()
    context.print_info(info, lambda: _print_one(info))


@app.command("set")
def set_properties(
    context: Context,
    queue: QueueName,
    changes: dict[str, Any],
) -> None:
    """Change properties of a queue. Quotas and limits accept a number or none."""
    if not changes:
        fail("nothing to change: use an option, such as --quota-kb", ExitCode.USAGE)
    with context.connect() as manager:
        info = manager.queue(queue).change(**changes)
    context.print_info(info, lambda: _print_one(info))


@app.command("delete")
def delete(context: Context, queue: QueueName) -> None:
    """Delete a queue with every message in it, its journal and its subqueues."""
    with context.connect() as manager:
        manager.delete_queue(queue)
    context.print({"deleted": queue}, f"deleted {queue}")


@app.command("purge")
def purge(context: Context, queue: QueueName) -> None:
    """Remove every message of a queue. Locked messages are removed when their readers release them."""
    with context.connect() as manager:
        source = manager.queue(queue)
        purged = source.purge()
        locked = report_locked(source, "purged when their readers release them")
    context.print({"purged": purged, **locked}, f"purged {counted(purged, 'message')} from {queue}")


@app.command("pause")
def pause(context: Context, queue: QueueName) -> None:
    """Stop an outgoing queue from sending. QUEUE is its format name, as `queue list` shows it."""
    with context.connect() as manager:
        info = manager.queue(queue).pause()
    context.print(info, f"{info.path}: {(info.state or '').lower()}")


@app.command("resume")
def resume(context: Context, queue: QueueName) -> None:
    """Let an outgoing queue continue to send."""
    with context.connect() as manager:
        info = manager.queue(queue).resume()
    context.print(info, f"{info.path}: {(info.state or '').lower()}")


@app.command("release")
def release(
    context: Context,
    queue: QueueName,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name that holds messages, as `queue show` lists it.")
    ],
) -> None:
    """Make the messages that a pipeline holds available to every reader again."""
    with context.connect() as manager:
        held = manager.queue(queue).holds()
        if name not in (hold.name for hold in held):
            known = f"; it must be one of {', '.join(hold.name for hold in held)}" if held else ""
            fail(f"no pipeline called {name} holds messages of {queue}{known}", ExitCode.FAILED)
        manager.queue(queue).release(name)
        messages = sum(hold.messages for hold in held if hold.name == name)
    context.print({"released": name, "messages": messages}, f"released {counted(messages, 'message')} of {queue}")


def is_of_interest(info: QueueInfo) -> bool:
    """Whether to list a queue: those of users, outgoing queues, and any other queue with messages."""
    made = info.type in ("private", "public", "outgoing") and not info.is_internal
    return made or info.messages > 0


def print_queues(infos: Iterable[QueueInfo]) -> None:
    print_table(
        ("queue", "messages", "size", "quota", "kind", "label"),
        (
            (
                info.path,
                info.messages,
                size_text(info.bytes),
                "-" if info.quota_kb is None else f"{100 * info.bytes // max(info.quota_kb * 1024, 1)} %",
                _kind(info),
                "" if info.label == info.path else info.label,  # a property of outgoing queues
            )
            for info in infos
        ),
        numbers=("messages", "size", "quota"),
    )


def _kind(info: QueueInfo) -> str:
    words = [info.type if info.state is None else f"outgoing, {info.state.lower()}"]
    words += ["transactional"] if info.transactional else []
    words += ["journal"] if info.journal else []
    return ", ".join(words)


def _print_one(info: QueueInfo) -> None:
    fields = asdict(info)
    fields = {name: fields[name] for name in ("path", "format_name", "id", "type")} | fields
    history = fields.pop("history")
    fields["holds"] = ", ".join(f"{each['name']}: {each['from']} to {each['to']}" for each in info.holds) or None
    fields["next_hops"] = ", ".join(info.next_hops) or None
    if info.state is None:
        fields = {name: value for name, value in fields.items() if name not in _OUTGOING}
    else:
        fields = {"path": info.path, "why": info.why} | fields
    fields["created_at_s"] = _time(info.created_at_s)
    fields["oldest_arrived_ms"] = None if info.oldest_arrived_ms is None else _time(info.oldest_arrived_ms // 1000)
    names = {
        "created_at_s": "created",
        "oldest_arrived_ms": "oldest message",
        "next_retry_s": "next try in s",
        "next_resend_s": "sent again in s",
        "resend_interval_s": "resend interval in s",
    }
    print_table(
        ("property", "value"),
        [(names.get(name, name.replace("_", " ")), value) for name, value in fields.items()],
    )
    for attempt in history:
        print_line(_attempt_text(attempt))


def _attempt_text(attempt: dict[str, Any]) -> str:
    count, reason, hint = attempt.get("count", 1), attempt.get("reason"), attempt.get("hint")
    said = reason or attempt.get("code") or (f"error {attempt['error']:#x}" if attempt["error"] else "")
    times = f", {count} times since {_time(attempt['first_s'])}" if count > 1 else ""
    words = f"{attempt['status']}: {said}" if said else attempt["status"]
    return f"{_time(attempt['time_s'])}  {words}{times}{f'; {hint}' if hint else ''}"


def _time(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
