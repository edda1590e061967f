"""Commands whose options are made from a table: Typer reads them from a function's signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any


def with_options(
    command: Callable[..., None], name: str, options: Sequence[Parameter], gather: Callable[[dict[str, Any]], object]
) -> Callable[..., None]:
    """The command with these options instead of the parameter `name`, which gets what `gather` makes of their values.

    The options come last.
    """
    found = signature(command, eval_str=True)
    kept = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in found.parameters.values() if each.name != name]

    @wraps(command)
    def run(**given: Any) -> None:
        gathered = gather({each.name: given.pop(each.name) for each in options})
        command(**given, **{name: gathered})

    parameters = [*kept, *options]
    run.__signature__ = found.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # its annotations are not those of the options
    return run
