"""The options of `queue create` and `queue set`, made from the table of queue properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from postroad.cli.outcome import ExitCode, fail
from postroad.fields.kinds import SWITCH, FieldFault
from postroad.fields.queue import QueueProperty


def property_options(table: Mapping[str, QueueProperty]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command's parameter `attributes` becomes an option for each property; it gets those that were given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            attributes = {}
            for name, each in table.items():
                value = given.pop(name)
                if value is not None:
                    attributes[name] = _read(each, value)
            command(attributes=attributes, **given)

        parameters: list[Parameter] = []
        for parameter in signature(command, eval_str=True).parameters.values():
            parameters += map(_parameter, table.values()) if parameter.name == "attributes" else [parameter]
        run.__signature__ = signature(command).replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=None
        )
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        del run.__wrapped__  # its annotations are not those of the options
        return run

    return decorate


def _option(each: QueueProperty) -> str:
    return f"--{each.name.replace('_', '-')}"


def _parameter(each: QueueProperty) -> Parameter:
    help_text = f"{each.help[0].upper()}{each.help[1:]}."
    option = _option(each)
    annotation: Any
    if each.kind is SWITCH:
        annotation = Annotated[bool | None, typer.Option(f"{option}/--no-{option[2:]}", help=help_text)]
    else:
        words: Any = each.kind.schema.get("enum", ["N", "none"] if each.optional else ["TEXT"])
        annotation = Annotated[str | None, typer.Option(option, metavar="|".join(words), help=help_text)]
    return Parameter(each.name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def _read(each: QueueProperty, value: bool | str) -> object:
    try:
        return value if isinstance(value, bool) else each.from_text(value)
    except FieldFault as fault:
        fail(str(fault.inside(_option(each))), ExitCode.USAGE)
