"""Arguments and options that several commands share; those of all commands are in cli/context.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from postroad.cli.outcome import ExitCode, fail

MAX_LOOKUP_ID = (1 << 63) - 1

QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help=r"A path such as private$\orders, a format name, or ;journal, ;deadletter, ;deadxact."
    ),
]


def predicate(expression: str | None) -> Callable[[Mapping[str, object]], bool] | None:
    """The test of a message that `--where` asks for; a mistake in it is one of usage."""
    from postroad.describe.where import parse_where
    from postroad.errors import IllegalExpression

    try:
        return None if expression is None else parse_where(expression)
    except IllegalExpression as fault:
        fail(f"--where: {fault}", ExitCode.USAGE)
