"""How a command ends: exit codes, and one line on stderr that says why."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import NoReturn

import typer

from postroad.cli.terminal import shown


class ExitCode(IntEnum):
    """What scripts can rely on."""

    DONE = 0
    FAILED = 1  # the operation failed, or did only a part
    USAGE = 2  # the command line or the configuration is at fault
    TIMEOUT = 3  # no message came in time


def report(sentence: str) -> None:
    """One line on stderr."""
    print(f"postroad: {shown(' '.join(sentence.split()))}", file=sys.stderr)


def fail(sentence: str, code: ExitCode) -> NoReturn:
    report(sentence)
    raise typer.Exit(code)
