"""`postroad trace`: where a message went, as far as one queue manager knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import Context
from postroad.cli.outcome import ExitCode, fail, report
from postroad.cli.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from postroad.values.trace import Trace


def trace(
    context: Context,
    message_id: Annotated[
        str, typer.Argument(metavar="MESSAGE-ID", help=r"{guid}\n, as `send` prints it; the braces are optional.")
    ],
) -> None:
    """Show where a message went, and what is known of it at each queue manager.

    A state is waiting, handed over, arrived, received, died or unknown. Exit code 1 if nothing is found.
    """
    from postroad.values.trace import reason_words

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
    was = "1 message was" if found.looked_at == 1 else f"{found.looked_at} messages were"
    looked = f": {was} searched"
    if not found.cut_off:
        return looked
    ends = f"of {', '.join(found.cut_off)} only the first and the last {found.limit_per_queue // 2}"
    return f"{looked}, {ends}"


def _time(at: str | None) -> str:
    """To the millisecond, in a column."""
    if at is None:
        return f"{'(no time)':24}"
    seconds, _, fraction = at.removesuffix("Z").partition(".")
    return f"{seconds}.{(fraction or '0')[:3]:0<3}Z"
