"""Options that many commands share, and the queue manager that they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
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


def _token(given: str | None) -> str | None:
    """The token of the file that POSTROAD_TOKEN_FILE names, where none is given."""
    file = os.environ.get("POSTROAD_TOKEN_FILE")
    if given is not None or not file:
        return given
    try:
        lines = Path(file).read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as fault:
        fail(f"POSTROAD_TOKEN_FILE: {file}: {getattr(fault, 'strerror', None) or 'is no text'}", ExitCode.USAGE)
    if len(lines) != 1:
        fail(f"POSTROAD_TOKEN_FILE: {file} must hold one line with the token, and nothing else", ExitCode.USAGE)
    return lines[0]


Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="POSTROAD_TOKEN",
        show_envvar=False,
        callback=_token,
        help="What the API asks for, if it does. [env var: POSTROAD_TOKEN, or POSTROAD_TOKEN_FILE for a file with it]",
    ),
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
        sentence = str(fault)
        fail(f"--api: {sentence[5:]}" if sentence.startswith("url: ") else sentence, ExitCode.USAGE)


def predicate(expression: str | None) -> Callable[[Mapping[str, object]], bool] | None:
    """The test of a message that `--where` asks for; a mistake in it is one of usage."""
    from postroad.describe.where import parse_where
    from postroad.errors import IllegalExpression

    try:
        return None if expression is None else parse_where(expression)
    except IllegalExpression as fault:
        fail(f"--where: {fault}", ExitCode.USAGE)
