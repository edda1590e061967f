"""`postroad serve`: starts a queue manager."""

from __future__ import annotations

from typing import Annotated

import typer

from postroad.cli.outcome import ExitCode, fail


def serve(
    config: Annotated[
        str, typer.Option("--config", "-c", metavar="FILE", help="The queue manager's configuration, a TOML file.")
    ] = "postroad.toml",
) -> None:
    """Start a queue manager (not part of this version yet)."""
    fail("serving is not part of this version", ExitCode.USAGE)
