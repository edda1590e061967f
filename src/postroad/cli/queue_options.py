"""The options of `queue create` and `queue set`, made from the table of queue properties."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.context import with_options
from postroad.cli.output import ExitCode, fail

if TYPE_CHECKING:
    from postroad.validation.queue_properties import QueueProperty


def with_attributes(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each property of a queue.

    The options take the place of the parameter `attributes`, or of `changes` for properties that can change later, if
    the command has one. The parameter gets the properties that were given.
    """
    (name,) = signature(command).parameters.keys() & {"attributes", "changes"} or {""}
    if not name:
        return command
    from postroad.validation.queue_properties import CHANGEABLE, QUEUE_PROPERTIES

    table = QUEUE_PROPERTIES if name == "attributes" else CHANGEABLE

    def gather(given: dict[str, Any]) -> dict[str, object]:
        return {name: _read(table[name], value) for name, value in given.items() if value is not None}

    return with_options(command, name, [*map(_parameter, table.values())], gather)


def _option(each: QueueProperty) -> str:
    return f"--{each.name.replace('_', '-')}"


def _parameter(each: QueueProperty) -> Parameter:
    from postroad.validation.kinds import SWITCH

    help_text = f"{each.help[0].upper()}{each.help[1:]}."
    option = _option(each)
    annotation: Any
    if each.kind is SWITCH:
        annotation = Annotated[bool | None, typer.Option(f"{option}/--no-{option[2:]}", help=help_text)]
    else:
        plain = ["N" if "minimum" in each.kind.schema else "TEXT", *(["none"] if each.optional else [])]
        words: Any = each.kind.schema.get("enum", plain)
        annotation = Annotated[str | None, typer.Option(option, metavar="|".join(words), help=help_text)]
    return Parameter(each.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _read(each: QueueProperty, value: bool | str) -> object:
    from postroad.validation.kinds import FieldFault

    try:
        return value if isinstance(value, bool) else each.from_text(value)
    except FieldFault as fault:
        fail(str(fault.inside(_option(each))), ExitCode.USAGE)
