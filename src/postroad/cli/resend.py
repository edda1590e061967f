"""`postroad resend`: dead letters and journaled messages, sent again as new messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from postroad.cli.context import Context
from postroad.cli.lock import report_locked
from postroad.cli.options import QueueName, predicate
from postroad.cli.outcome import ExitCode, fail, report
from postroad.cli.output import count_text, print_json, print_line, print_table
from postroad.cli.progress import Bar
from postroad.cli.rescue import Everything, Lookups, Where

if TYPE_CHECKING:
    from postroad import ReceivedMessage

BATCH_MESSAGES = 100
SHOWN_REFUSALS = 10
INFINITE = 0xFFFFFFFF


def resend(
    context: Context,
    queue: QueueName,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="NAME", help="The new destination; without it, where each message was sent."),
    ] = None,
    lookup: Lookups = None,
    everything: Everything = False,
    where: Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent where.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="The old messages stay.")] = False,
    ttbr: Annotated[
        int | None,
        typer.Option("--ttbr", metavar="S", min=0, max=INFINITE, help="Seconds within which they must be received."),
    ] = None,
) -> None:
    """Send dead letters and journaled messages again, as new messages, to where they were sent before or elsewhere.

    A new message has the same content and options, and a new id and time. Its lifetime is that of the old one, counted
    from now, or S seconds with --ttbr. The old message leaves in the same
    commit; with --keep it stays, and so do messages of a journal. A message that is refused stays, and the exit code
    is 1.
    """
    if sum((bool(lookup), everything, where is not None)) != 1:
        fail("choose the messages with one of --lookup ID, --all and --where EXPR", ExitCode.USAGE)
    if to is not None:
        from postroad.names import parse_name

        parse_name(to)
    wanted = predicate(where)
    with context.connect() as manager:
        source = manager.queue(queue)
        info = source.info()
        if lookup:
            chosen: Iterator[ReceivedMessage] = (source.peek_by_id(each) for each in dict.fromkeys(lookup))
        else:
            found = islice(source.messages(), info.messages)  # a message that is sent to its own queue comes again
            chosen = (each for each in found if wanted is None or wanted(each.describe()))
        if dry_run:
            _show(chosen, to, ttbr, context.as_json)
        else:
            ids = [message.lookup_id for message in chosen]
            sent, refused, short = _resend(context, queue, ids, to, keep, ttbr)
        locked = {} if lookup else report_locked(source, "would not be sent" if dry_run else "not sent")
    if dry_run:
        return
    for lookup_id, why in refused[:SHOWN_REFUSALS]:
        report(f"not sent: the message {lookup_id}: {why}")
    if len(refused) > SHOWN_REFUSALS:
        report(f"not sent: {count_text(len(refused) - SHOWN_REFUSALS, 'more message')}")
    _warn(short, "expire")
    facts = {"resent": sent, "refused": [{"lookup_id": each, "why": why} for each, why in refused], **locked}
    facts |= {"expiring": len(short), "first_expires_s": min(short)} if short else {}
    where_to = "" if to is None else f" to {to}"
    context.print(facts, f"sent {count_text(sent, 'message')} of {queue} again{where_to}")
    if refused:
        raise typer.Exit(ExitCode.FAILED)


def _resend(
    context: Context, queue: str, ids: Sequence[int], to: str | None, keep: bool, ttbr: int | None
) -> tuple[int, list[tuple[int, str]], list[int]]:
    """How many were sent, the lookup ids of the others with the reasons, and the lifetimes that are short."""
    from postroad.values.resending import is_short

    sent = 0
    short: list[int] = []
    refused: list[tuple[int, str]] = []
    path = f"/queues/{quote(queue, safe='')}/resend"
    with context.calls() as api, Bar("sending again", len(ids)) as bar:
        for start in range(0, len(ids), BATCH_MESSAGES):
            batch = ids[start : start + BATCH_MESSAGES]
            order: dict[str, object] = {"lookup_ids": list(batch), "keep": keep}
            order |= {} if to is None else {"to": to}
            order |= {} if ttbr is None else {"time_to_be_received": ttbr}
            try:
                outcomes = api.json("POST", path, order, member="resent")
            except Exception:
                if sent:
                    print_line(f"sent the first {sent} of {count_text(len(ids), 'message')} again")
                raise
            refused += [(each["lookup_id"], each["why"]) for each in outcomes if each["id"] is None]
            sent += sum(each["id"] is not None for each in outcomes)
            short += [each["lifetime_s"] for each in outcomes if is_short(each.get("lifetime_s"))]
            bar.advance(len(batch))
    return sent, refused, short


def _warn(short: Sequence[int], word: str) -> None:
    if short:
        who = "1 message" if len(short) == 1 else f"{len(short)} messages"
        report(f"{who} {word} soon, the first after {min(short)} s: --ttbr S gives each S seconds to be received")


def _show(messages: Iterator[ReceivedMessage], to: str | None, ttbr: int | None, as_json: bool) -> None:
    from postroad.values.resending import is_short, lifetime_s

    count = 0
    short: list[int] = []

    def rows() -> Iterator[tuple[object, ...]]:
        nonlocal count
        for message in messages:
            count += 1
            # Whether the destination is here is the manager's to say: the time to be received counts in any case.
            lifetime = lifetime_s(message, ttbr, here=True)
            if lifetime is not None and is_short(lifetime):
                short.append(lifetime)
            yield message.lookup_id, message.label, _reason(message), to or message.destination_queue, lifetime

    if as_json:
        for lookup_id, label, reason, destination, lifetime in rows():
            row = {"lookup_id": lookup_id, "label": label, "reason": reason, "to": destination, "lifetime_s": lifetime}
            print_json(row)
        _warn(short, "would expire")
        return
    print_table(("lookup id", "label", "reason", "to", "lifetime s"), rows(), numbers=("lookup id", "lifetime s"))
    _warn(short, "would expire")
    print_line(f"{count_text(count, 'message')} would be sent again")


def _reason(message: ReceivedMessage) -> str | None:
    """Why it is a dead letter."""
    return message.class_name if message.message_class else None
