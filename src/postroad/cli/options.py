"""Arguments and options that several commands share; those of all commands are in cli/context.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, TypeVar

import typer

from postroad.cli.outcome import ExitCode, fail

Function = TypeVar("Function", bound=Callable[..., None])
MAX_LOOKUP_ID = (1 << 63) - 1

QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help=r"A path such as private$\orders, a format name, or ;journal, ;deadletter, ;deadxact."
    ),
]


class OptionalValues:
    """Options of a command that stand alone or with a value, which is empty where they stand alone.

    Each has a test that says whether the word behind it is its value: `--encrypt aes128`, but `--encrypt QUEUE`.
    """

    def __init__(self, **takes: Callable[[str], bool]) -> None:
        self._takes = {f"--{name}": test for name, test in takes.items()}

    def __call__(self, command: Function) -> Function:
        """A decorator of the command's function."""
        command.optional_values = self  # type: ignore[attr-defined]
        return command

    def spelled_out(self, words: Sequence[str], valued: Collection[str]) -> list[str]:
        """The words of a command line with `--option=value` for these options. `valued` are all with a value."""
        rest = list(words)
        found: list[str] = []
        while rest:
            word = rest.pop(0)
            if word == "--":
                return [*found, word, *rest]
            if word in self._takes:
                value = rest.pop(0) if rest and self._takes[word](rest[0]) else ""
                found.append(f"{word}={value}")
                continue
            found.append(word)
            if word in valued and rest:
                found.append(rest.pop(0))
        return found


def predicate(expression: str | None) -> Callable[[Mapping[str, object]], bool] | None:
    """The test of a message that `--where` asks for; a mistake in it is one of usage."""
    from postroad.describe.where import parse_where
    from postroad.errors import IllegalExpression

    try:
        return None if expression is None else parse_where(expression)
    except IllegalExpression as fault:
        fail(f"--where: {fault}", ExitCode.USAGE)
