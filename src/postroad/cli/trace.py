"""`postroad trace`: where a message went, as far as one queue manager knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import Context
from postroad.cli.outcome import ExitCode, fail, report
from postroad.cli.output import print_json, print_line

if TYPE_CHECKING:
    from postroad.values.trace import Trace


def trace(
    context: Context,
    message_id: Annotated[
        str, typer.Argument(metavar="MESSAGE-ID", help=r"{guid}\n, as `send` prints it; the braces are optional.")
    ],
) -> None:
    """Show where a message went: the queues that contain it, its copies, its acknowledgments and its reports.

    Exit code 1 if nothing is found. With --json, each finding is one object.
    """
    with context.connect() as manager:
        found = manager.trace(message_id)
    if not found.findings:
        fail(f"nothing was found about {found.id}{_extent(found)}", ExitCode.FAILED)
    for finding in found.findings:
        if context.as_json:
            print_json(finding)
            continue
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
