"""`postroad route`: the next hop and the route of a message to a queue manager, and why; routing tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import AsJson, Context
from postroad.cli.output import ExitCode, fail, print_json, print_line, print_table, report
from postroad.net import ports
from postroad.reports.info import counted

if TYPE_CHECKING:
    from postroad.reports.enterprise import Route, Table
    from postroad.reports.trace import Trace
    from postroad.routing import Routes


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
    """Prints a routing table. With --json, each row is a line."""
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


# `postroad trace`: where a message went, as far as one queue manager knows.


def trace(
    context: Context,
    message_id: Annotated[
        str, typer.Argument(metavar="MESSAGE-ID", help=r"{guid}\n, as `send` prints it; the braces are optional.")
    ],
) -> None:
    """Show where a message went, and what is known of it at each queue manager.

    A state is waiting, handed over, arrived, received, died or unknown. Exit code 1 if nothing is found.
    """
    from postroad.reports.trace import reason_words

    with context.connect() as manager:
        found = manager.trace(message_id)
    if not found.findings:
        fail(f"nothing was found about {found.id}{_extent(found)}", ExitCode.FAILED)
    if context.as_json:
        print_json(found)
        return
    print_line(found.state if found.reason is None else f"{found.state}: {reason_words(found.reason)}")
    print_line("")
    rows = [(hop.name, hop.state, hop.at and _time(hop.at), hop.sentence) for hop in found.hops]
    print_table(["queue manager", "state", "time", "what is known"], rows)
    print_line("")
    for finding in found.findings:
        print_line(f"{_time(finding.at)}  {finding.sentence}")
        if finding.why is not None:
            print_line(f"{'':25} {finding.why}")
        if finding.lookup_id is not None:
            print_line(f"{'':25} ({finding.queue}, lookup {finding.lookup_id})")
    if found.cut_off:
        report(f"there may be more{_extent(found)}")


def _extent(found: Trace) -> str:
    looked = f": {counted(found.looked_at, 'message was', 'messages were')} searched"
    if not found.cut_off:
        return looked
    ends = f"of {', '.join(found.cut_off)} only the first and the last {found.limit_per_queue // 2}"
    return f"{looked}, {ends}"


def _time(at: str | None) -> str:
    """A time in milliseconds, for a column."""
    if at is None:
        return f"{'(no time)':24}"
    seconds, _, fraction = at.removesuffix("Z").partition(".")
    return f"{seconds}.{(fraction or '0')[:3]:0<3}Z"


# `postroad ping`: whether a host has a queue manager that would accept a session.


MAX_TIMEOUT_S = 3600


def ping(
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host's name or address.")],
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Seconds to wait for an answer; one ping a second.")
    ] = 3.0,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The UDP port of its pings.")] = ports.PING,
    as_json: AsJson = False,
) -> None:
    """Ask a queue manager by UDP whether it would accept a session, as MSMQ does before it connects.

    Exit code 0 only if it would; 1 if it would not, or if the answer is not a ping; 3 if there was no answer in time.
    Many MSMQ servers accept sessions but do not answer pings, which are off by default there.
    """
    from postroad.client.ping import ACCEPTS, NOTHING
    from postroad.client.ping import ping as ask

    if not 0 < timeout <= MAX_TIMEOUT_S:
        fail(f"--timeout: must be above 0 and at most {MAX_TIMEOUT_S} seconds, got {timeout:g}", ExitCode.USAGE)
    answer = ask(host, port=port, timeout=timeout)
    if as_json:
        print_json(answer.json())
    if answer.answer == NOTHING:
        fail(answer.sentence, ExitCode.TIMEOUT)
    if answer.answer != ACCEPTS:
        fail(answer.sentence, ExitCode.FAILED)
    if not as_json:
        print_line(answer.sentence)
