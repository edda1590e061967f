"""`postroad queue acl`: who may do what with a queue."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from postroad.cli.context import Context, QueueName
from postroad.cli.output import ExitCode, fail, print_json, print_line, print_table
from postroad.errors import AccessDenied

MAX_NAMED = 100  # SIDs in one question to the manager

app = typer.Typer(help="Show and change the access list of a queue: who may do what with it.")

Who = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help="A user of the manager's configuration, an account of the domain, a SID, everyone or anonymous.",
    ),
]
Rights = Annotated[
    list[str],
    typer.Argument(
        metavar="RIGHT...",
        help="write, peek, receive, purge, receive-journal, get-properties, set-properties, delete, get-permissions, "
        "set-permissions, take-ownership or full.",
    ),
]


@app.command("show")
def show(
    context: Context,
    queue: QueueName,
    sddl: Annotated[bool, typer.Option("--sddl", help="Print the security descriptor in SDDL.")] = False,
) -> None:
    """Print who may do what with a queue, in the order that counts."""
    with context.connect() as manager:
        _print(context, queue, manager.queue(queue).acl(), in_words=not sddl)


@app.command("set")
def set_acl(
    context: Context,
    queue: QueueName,
    sddl: Annotated[
        str | None,
        typer.Option("--sddl", metavar="S", help="The new list. Without D: everybody may do everything."),
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Restore the default list.")] = False,
) -> None:
    """Replace the access list of a queue, and print the new one."""
    if default == (sddl is not None):
        fail("use one of --sddl and --default", ExitCode.USAGE)
    with context.connect() as manager:
        _print(context, queue, manager.queue(queue).set_acl(sddl))


@app.command("grant")
def grant(context: Context, queue: QueueName, who: Who, rights: Rights) -> None:
    """Allow somebody to do more, and print the new list."""
    with context.connect() as manager:
        _print(context, queue, manager.queue(queue).grant(who, *rights))


@app.command("deny")
def deny(context: Context, queue: QueueName, who: Who, rights: Rights) -> None:
    """Forbid somebody to do something, whatever other entries allow, and print the new list."""
    with context.connect() as manager:
        _print(context, queue, manager.queue(queue).deny(who, *rights))


@app.command("revoke")
def revoke(context: Context, queue: QueueName, who: Who, rights: Rights) -> None:
    """Remove rights from all entries of somebody, those that allow and those that deny, and print the new list."""
    with context.connect() as manager:
        _print(context, queue, manager.queue(queue).revoke(who, *rights))


def _print(context: Context, queue: str, sddl: str, *, in_words: bool = True) -> None:
    from postroad.reports.access_list import read_entries, read_owner

    names = _names(context, queue, sddl) if in_words or context.as_json else {}
    entries, owner = read_entries(sddl, names), read_owner(sddl, names)
    if context.as_json:
        print_json({"sddl": sddl, "owner": owner, "entries": entries, "names": names})
    elif not in_words:
        print_line(sddl)
    else:
        print_line(f"owner: {owner or 'nobody'}")
        rows = [(entry.kind, entry.who, ", ".join(entry.rights)) for entry in entries]
        print_table(("kind", "who", "rights"), rows)
        if not entries:
            print_line("the list is empty: nobody but administrators may use the queue")


def _names(context: Context, queue: str, sddl: str) -> dict[str, str]:
    """The names of users and accounts by their SIDs, as far as the caller may see them."""
    from postroad.client.payloads import queue_path
    from postroad.reports.access_list import named_sids

    found: dict[str, str] = {}
    if sids := named_sids(sddl):
        with context.calls() as api:
            with suppress(AccessDenied):
                found |= api.json("GET", queue_path(queue, "acl")).get("names", {})
            if not found:
                with suppress(AccessDenied):
                    found |= api.json("GET", "/names", query={"of": ",".join(sids[:MAX_NAMED])}, member="names")
    return found
