"""`postroad queue acl`: who may do what with a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from postroad.cli.context import Context
from postroad.cli.options import QueueName
from postroad.cli.outcome import ExitCode, fail

app = typer.Typer(help="Show and change the access list of a queue: who may do what with it.")

Who = Annotated[
    str, typer.Argument(metavar="WHO", help="A user of the manager's configuration, a SID, everyone or anonymous.")
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
def show(context: Context, queue: QueueName) -> None:
    """Print the access list of a queue in SDDL."""
    with context.connect() as manager:
        _print(context, manager.queue(queue).acl())


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
        _print(context, manager.queue(queue).set_acl(sddl))


@app.command("grant")
def grant(context: Context, queue: QueueName, who: Who, rights: Rights) -> None:
    """Allow somebody to do more, and print the new list."""
    with context.connect() as manager:
        _print(context, manager.queue(queue).grant(who, *rights))


@app.command("deny")
def deny(context: Context, queue: QueueName, who: Who, rights: Rights) -> None:
    """Forbid somebody to do something, whatever other entries allow, and print the new list."""
    with context.connect() as manager:
        _print(context, manager.queue(queue).deny(who, *rights))


@app.command("revoke")
def revoke(context: Context, queue: QueueName, who: Who, rights: Rights) -> None:
    """Remove rights from all entries of somebody, those that allow and those that deny, and print the new list."""
    with context.connect() as manager:
        _print(context, manager.queue(queue).revoke(who, *rights))


def _print(context: Context, sddl: str) -> None:
    context.print({"sddl": sddl}, sddl)
