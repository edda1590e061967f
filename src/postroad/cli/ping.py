"""`postroad ping`: whether a host has a queue manager that would accept a session."""

from __future__ import annotations

from typing import Annotated

import typer

from postroad.cli.context import AsJson
from postroad.cli.outcome import ExitCode, fail
from postroad.cli.output import print_json, print_line
from postroad.net import ports

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
