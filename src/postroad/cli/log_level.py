"""`postroad log-level`: how much a running manager logs."""

from __future__ import annotations

from typing import Annotated

import typer

from postroad.cli.context import Context
from postroad.cli.serve import LogLevel


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
