"""`postroad keys`, `lock`, `transaction`, `failover` and `log-level`: what operators manage besides queues."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.context import MAX_LOOKUP_ID, Context, QueueName
from postroad.cli.output import ExitCode, fail, print_line, print_table, report
from postroad.cli.serve import LogLevel
from postroad.errors import PostroadError
from postroad.reports.info import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad import Queue
    from postroad.reports.info import KeysInfo, LockInfo, TransactionInfo

FAILOVER_S = 120.0  # for which a handover may last
FAILOVER_LOOK_S = 0.1

keys_app = typer.Typer(help="Show and replace the keys that others encrypt messages to this manager with.")


@keys_app.command("show")
def show(context: Context) -> None:
    """Show the public keys of the manager, which `public_keys` in `enterprise.toml` publishes."""
    with context.connect() as manager:
        keys = manager.keys()
    context.print_info(keys, lambda: _print(keys))


@keys_app.command("rotate")
def rotate(context: Context) -> None:
    """Make new keys. The previous three still decrypt messages that are on their way.

    Other managers use the old keys until the directory has the new ones, so publish them.
    """
    with context.connect() as manager:
        name = manager.info().name
        keys = manager.rotate_keys()

    def print_for_people() -> None:
        print_line(f"New keys are in use. Set public_keys of [[manager]] {name} in enterprise.toml to:")
        print_line("")
        _print(keys)

    context.print_info(keys, print_for_people)


def _print(keys: KeysInfo) -> None:
    """Prints the public keys alone on the first line, so that they are easy to copy."""
    print_line(keys.public_keys or "this manager has no keys")
    if not keys.keys:
        return
    made = "-" if keys.made_at_s is None else f"{datetime.fromtimestamp(keys.made_at_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    print_line("")
    print_table(
        ("provider", "bits", "made", "previous keys", "fingerprint"),
        [(each.provider, each.bits, made, each.previous, each.fingerprint) for each in keys.keys],
        numbers=("bits", "previous keys"),
    )


# `postroad lock` and `postroad transaction`: what clients hold, who they are, and how an operator releases it.


SHOWN_NUMBERS = 5  # lookup ids of a lock to show in a table; --json shows all

lock_app = typer.Typer(help="List and release messages that clients have locked.")
transactions = typer.Typer(help="List and abort the open transactions of clients.")


@lock_app.command("list")
def list_locks(
    context: Context,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="A queue, such as private$\\orders; all queues if absent.")
    ] = None,
) -> None:
    """List the messages that clients have locked, who holds them and for how long, the oldest first. No other reader
    sees them."""
    with context.connect() as manager:
        locks = manager.locks(queue)
    context.print_list(locks, lambda: print_locks(locks), "no locked messages")


@lock_app.command("release")
def release(
    context: Context,
    queue: QueueName,
    lookup: Annotated[
        list[int] | None,
        typer.Option(
            "--lookup",
            metavar="ID",
            min=0,
            max=MAX_LOOKUP_ID,
            help="The message with this lookup id; repeat it for more. Every locked message if absent.",
        ),
    ] = None,
) -> None:
    """Put locked messages back, even if the client that holds them still works.

    That client gets an error when it settles them, and another reader may receive them a second time. Messages of a
    transaction return with `postroad transaction abort`, those of a remote reader when its connection ends.
    """
    with context.connect() as manager:
        source = manager.queue(queue)
        released = source.release_locks(lookup)
        locked = source.info().locked
    context.print({"released": released, "locked": locked}, f"released {counted(len(released), 'message')} of {queue}")
    if locked and not lookup:
        have = counted(locked, "message is", "messages are")
        report(f"{have} still locked, by transactions or remote readers: postroad lock list {shlex.quote(queue)}")


@transactions.command("list")
def list_transactions(context: Context) -> None:
    """List the open transactions of clients, the oldest first."""
    with context.connect() as manager:
        found = manager.transactions()
    context.print_list(found, lambda: print_transactions(found), "no open transactions")


@transactions.command("abort")
def abort(
    context: Context,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The transaction, as `transaction list` shows it.")],
) -> None:
    """Abort a transaction, even if its client still works: received messages return, sent messages are dropped."""
    with context.connect() as manager:
        manager.abort_transaction(identifier)
    context.print({"aborted": identifier}, f"aborted {identifier}")


def print_locks(locks: Iterable[LockInfo]) -> None:
    print_table(
        ("queue", "messages", "for", "silent", "how", "owner", "lookup ids"),
        (
            (
                each.queue,
                each.messages,
                f"{each.age_s:.0f} s",
                None if each.silent_s is None else f"{each.silent_s:.0f} s",
                each.kind if each.transaction is None else f"{each.kind} {each.transaction}",
                each.owner,
                _numbers(each.lookup_ids),
            )
            for each in locks
        ),
        numbers=("messages", "for", "silent"),
    )


def print_transactions(found: Iterable[TransactionInfo]) -> None:
    print_table(
        ("transaction", "received", "sent", "for", "silent", "owner"),
        (
            (each.id, each.received, each.sent, f"{each.age_s:.0f} s", f"{each.silent_s:.0f} s", each.owner)
            for each in found
        ),
        numbers=("received", "sent", "for", "silent"),
    )


def _numbers(lookup_ids: tuple[int, ...]) -> str:
    more = len(lookup_ids) - SHOWN_NUMBERS
    text = ", ".join(map(str, lookup_ids[:SHOWN_NUMBERS]))
    return f"{text} and {more} more" if more > 0 else text


def report_locked(queue: Queue, what_became: str) -> dict[str, int]:
    """Reports on stderr how many messages of a queue a command skipped, if any. Returns these counts for its JSON.

    The line starts with what happened to them, such as "not moved".
    """
    info = queue.info()
    name = shlex.quote(queue.name)
    what = f"{what_became}: {counted(info.locked, 'message')} of {queue.name}"
    if info.locked and info.type == "outgoing":
        report(f"{what} on the way to the next hop; see postroad queue show {name}")
    elif info.locked:
        report(f"{what} that others have locked; see postroad lock list {name}")
    for hold in info.holds:
        report(f"{what_became}: messages of {queue.name} that {hold['name']} holds; see postroad queue show {name}")
    return {"locked": info.locked} if info.locked else {}


# `postroad log-level`: how much a running manager logs.


def log_level(
    context: Context,
    level: Annotated[
        LogLevel | None, typer.Argument(metavar="[LEVEL]", help="debug, info, warning or error.", show_default=False)
    ] = None,
) -> None:
    """Show how much a running manager logs, or change it until the manager stops or reads its configuration again."""
    with context.calls() as api:
        if level is None:
            found = api.json("GET", "/log-level")
        else:
            found = api.json("PUT", "/log-level", {"level": level.value})
    context.print(found, found["level"])


def failover(context: Context) -> None:
    """Let another process that shares the store become active, and stand by.

    The active process finishes what is under way first. Exit code 1 if no other process stands by: then it stays
    active.
    """
    with context.calls() as api:
        before = api.json("POST", "/manager/failover")["store"]["epoch"]
        until = time.monotonic() + FAILOVER_S
        store: dict[str, Any] = {}
        while time.monotonic() < until:
            time.sleep(FAILOVER_LOOK_S)
            with suppress(PostroadError):  # its API closes and opens again
                store = api.json("GET", "/manager")["store"]
            if store.get("epoch", 0) > before:
                break
    if store.get("role") != "standby" or not store.get("active"):
        fail("no other process became active; see the logs of both", ExitCode.FAILED)
    context.print(store, f"{store['active']} is active; this one stands by")
