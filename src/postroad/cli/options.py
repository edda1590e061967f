"""Options that many commands share, and the queue manager that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.outcome import ExitCode, fail

if TYPE_CHECKING:
    from postroad import QueueManager

MAX_LOOKUP_ID = (1 << 63) - 1
DEFAULT_API = "http://127.0.0.1:8180"

Api = Annotated[
    str, typer.Option("--api", metavar="URL", envvar="POSTROAD_API", help="Where the queue manager's HTTP API is.")
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", envvar="POSTROAD_TOKEN", help="What the API asks for, if it does."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help=r"A path such as private$\orders, a format name, or ;journal, ;deadletter, ;deadxact."
    ),
]


def connect(api: str, token: str | None) -> QueueManager:
    """The queue manager behind the API; the first call is what connects."""
    import postroad
    from postroad.errors import InvalidArgument

    try:
        return postroad.connect(api, token=token)
    except InvalidArgument as fault:
        fail(f"--api: {str(fault).removeprefix('url: ')}", ExitCode.USAGE)


NO_QUOTA_KB = 0xFFFFFFFF  # what the API takes for no limit, of journals too


def quota_or_none(text: str | None, option: str) -> int | None:
    """A quota in KiB: None where the option is not given, and no limit for the word `none`."""
    return NO_QUOTA_KB if text is not None and text.lower() == "none" else whole_or_none(text, option)


def whole_or_none(text: str | None, option: str, lowest: int = 0) -> int | None:
    """The number of an option that also takes the word `none`."""
    if text is None or text.lower() == "none":
        return None
    if not text.isascii() or not text.isdigit() or not lowest <= int(text) <= 0xFFFFFFFF:
        fail(f"{option}: {text!r} is neither a whole number from {lowest} to {0xFFFFFFFF} nor none", ExitCode.USAGE)
    return int(text)


def predicate(expression: str | None) -> Callable[[Mapping[str, object]], bool] | None:
    """The test of a message that `--where` asks for; a mistake in it is one of usage."""
    from postroad.errors import IllegalExpression
    from postroad.where import parse_where

    try:
        return None if expression is None else parse_where(expression)
    except IllegalExpression as fault:
        fail(f"--where: {fault}", ExitCode.USAGE)
