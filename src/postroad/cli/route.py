"""`postroad route`: the next hop and the route of a message to a queue manager, and why; routing tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import Context
from postroad.cli.outcome import ExitCode, fail
from postroad.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from postroad.routing import Routes
    from postroad.values.routes import Route, Table

TABLE = "table"


def route(
    context: Context,
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DEST", help=f"A queue manager's name; the word {TABLE} prints the routing table instead."
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="MANAGER", help="The queue manager that sends; the one behind the API if absent."
        ),
    ] = None,
    enterprise: Annotated[
        Path | None,
        typer.Option(
            "--enterprise", metavar="FILE", help="Read the directory from this file; no queue manager has to run."
        ),
    ] = None,
) -> None:
    """Show the next hop and the route of a message to a queue manager, and why.

    Each queue manager on the route decides by its own rules. Exit code 1 if there is no route, or a name is unknown.
    """
    if enterprise is not None:
        if source is None:
            fail("--enterprise: --from is missing; it names the queue manager that sends", ExitCode.USAGE)
        routes = _routes(enterprise)
        if destination == TABLE:
            _print_table(routes.table(source), context.as_json)
        else:
            _print_route(routes.route(source, destination), context.as_json)
        return
    with context.connect() as manager:
        if destination == TABLE:
            _print_table(manager.route_table(source), context.as_json)
        else:
            _print_route(manager.route(destination, source), context.as_json)


def _routes(file: Path) -> Routes:
    from postroad.directory.file import load_enterprise, read_directory
    from postroad.routing import Routes

    return Routes(read_directory(load_enterprise(file)))


def _print_route(found: Route, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_line(f"{found.source} to {found.destination}, cost {found.cost}")
    print_line(f"next hop  {', then '.join(found.next_hops)}")
    if found.fallback:
        print_line(f"fallback  {', then '.join(found.fallback)}, if the direct connection fails")
    print_line(f"route     {' -> '.join(found.path)}")
    print_line(f"why       {found.why}")


def _print_table(table: Table, as_json: bool) -> None:
    """With --json, one row per line."""
    if as_json:
        for row in table.rows:
            print_json(row)
    elif not table.is_site_gate:
        print_line(f"{table.manager} is not a site gate, so its routing table is empty ([MS-MQBR] 3.1.3.1)")
    else:
        print_table(
            ("site", "next site", "gates, in order", "cost"),
            [(row.site, row.next_site, ", ".join(row.gates) or None, row.cost) for row in table.rows],
            numbers=("cost",),
        )
