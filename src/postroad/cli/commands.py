"""The commands by name: the module of each, and its sentence in `postroad --help`.

A command's module is imported when the command runs, so the list imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import getdoc
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from postroad.cli.context import OptionalValues, with_context
from postroad.cli.output import ExitCode, fail
from postroad.cli.queue_options import with_attributes

MARKUP: Final = None  # plain text, because Rich and Markdown take twice the time of everything else that a help does


@dataclass(frozen=True, slots=True)
class Source:
    """Where a command is: a function in a module of this package, or a Typer with commands of its own.

    `help` is the first paragraph of its help.
    """

    module: str
    attribute: str
    help: str


COMMANDS = {
    "serve": Source("serve", "serve", "Run a queue manager."),
    "console": Source("console", "console", "Run the web console."),
    "status": Source(
        "status",
        "status",
        "Show what needs attention, with the reasons, the totals of the manager, and its ten largest queues.",
    ),
    "failover": Source(
        "administration", "failover", "Let another process that shares the store become active, and stand by."
    ),
    "queue": Source(
        "queue", "app", "Create, list, show, change, purge, pause, release and delete queues, and set who may use them."
    ),
    "send": Source("send", "send", "Send a message, and print its id."),
    "receive": Source("read", "receive", "Receive messages from a queue, and print them."),
    "peek": Source("read", "peek", "Print the first messages of a queue, and leave them there."),
    "browse": Source("read", "browse", "List the messages of a queue, one per line; on a terminal, page by page."),
    "move": Source("rescue", "move", "Move messages to another local queue."),
    "resend": Source(
        "rescue",
        "resend",
        "Send dead letters and journaled messages again, as new messages, to where they were sent before or elsewhere.",
    ),
    "export": Source("rescue", "export", "Write the messages of a queue to a file, byte for byte, in queue order."),
    "import": Source("rescue", "import_packets", "Put the messages of a file into a local queue, byte for byte."),
    "backup": Source(
        "backup",
        "backup",
        "Write everything that a running manager holds to one file: queues, messages, state and private keys.",
    ),
    "restore": Source("backup", "restore", "Make a data directory, or a store in a database, from a backup."),
    "store": Source("backup", "store_app", "Copy a store between a data directory and a database."),
    "definitions": Source(
        "definitions", "app", "Write the queues and users of a manager to a file, and create queues from such a file."
    ),
    "keys": Source(
        "administration", "keys_app", "Show and replace the keys that others encrypt messages to this manager with."
    ),
    "log-level": Source(
        "administration",
        "log_level",
        "Show how much a running manager logs, or change it until the manager stops or reads its configuration again.",
    ),
    "lock": Source("administration", "lock_app", "List and release messages that clients have locked."),
    "transaction": Source("administration", "transactions", "List and abort the open transactions of clients."),
    "remote": Source("remote", "app", "Read the queues of any MSMQ server on another computer."),
    "route": Source("route", "route", "Show the next hop and the route of a message to a queue manager, and why."),
    "directory": Source(
        "directory", "app", "Show the directory, write it to a file, and check whether a join of the domain would work."
    ),
    "trace": Source(
        "route",
        "trace",
        "Show where a message went, and what is known of it at each queue manager.",
    ),
    "ping": Source(
        "route",
        "ping",
        "Ask a queue manager by UDP whether it would accept a session, as MSMQ does before it connects.",
    ),
    "simulate": Source(
        "simulate",
        "simulate",
        "Run a network of queue managers in virtual time, and report what arrived, how fast, and what is stuck.",
    ),
    "pipeline": Source(
        "pipeline",
        "app",
        "Process messages with Spark: tables, a report, dead letters sent again; and routes of a changed enterprise.",
    ),
    "kit": Source("kit", "app", "Compare what Windows and Postroad saw of the same messages."),
    "decode": Source(
        "decode", "decode", "Show the packets in a file, field by field, and what the bodies of messages say."
    ),
}


# What to use instead of commands that are gone.
GONE = {
    "pipeline routes": "pipeline routes: there is no such command any more; `postroad pipeline what-if` compares "
    "routes and the load of links, and `postroad route` shows the way to a destination",
}


class LazyGroup(TyperGroup):
    """A group that knows the names of its commands, but builds only the command that runs."""

    listed: ClassVar[Mapping[str, str]]  # the first sentence of each command's help

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, sentence in self.listed.items():
            self.add_command(TyperCommand(name, help=sentence, rich_markup_mode=MARKUP))

    def build(self, name: str) -> TyperCommand | TyperGroup:
        """Builds a command."""
        raise NotImplementedError

    def get_params(self, ctx: Any) -> Any:
        return _with_light_coercion(super().get_params, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if not args and self.no_args_is_help:
            typer.echo(ctx.get_help())
            raise typer.Exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes whole sentences. Typer would cut each to fit one line."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, " ".join(text.partition("\n\n")[0].split())) for name, text in self.listed.items()]
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (said := GONE.get(f"{self.name} {args[0]}")) is not None:
            fail(said, ExitCode.USAGE)
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and self.build(name or ""), rest


class Commands(LazyGroup):
    """All commands."""

    listed: ClassVar = {name: source.help for name, source in COMMANDS.items()}

    def build(self, name: str) -> TyperCommand | TyperGroup:
        return load(name)


def load(name: str) -> TyperCommand | TyperGroup:
    source = COMMANDS[name]
    found = getattr(import_module(f"postroad.cli.{source.module}"), source.attribute)
    return _group(name, found) if isinstance(found, typer.Typer) else _command(name, found)


def _group(name: str, app: typer.Typer) -> LazyGroup:
    """The group of a Typer. It does not build all of its commands to run one, because that takes too long."""
    functions = {each.name or getattr(each.callback, "__name__", ""): each.callback for each in app.registered_commands}
    groups = {each.name or "": each.typer_instance for each in app.registered_groups}
    helps = {each: getdoc(function) or "" for each, function in functions.items()}
    helps |= {each: str(inner.info.help) for each, inner in groups.items() if inner is not None}

    class Group(LazyGroup):
        listed: ClassVar = helps

        def build(self, name: str) -> TyperCommand | TyperGroup:
            if (inner := groups.get(name)) is not None:
                return _group(name, inner)
            function = functions[name]
            assert function is not None
            return _command(name, function)

    return Group(
        name=name, help=app.info.help, no_args_is_help=app.info.no_args_is_help is True, rich_markup_mode=MARKUP
    )


def _command(name: str, function: Callable[..., None]) -> TyperCommand:
    holder = typer.Typer(rich_markup_mode=MARKUP, add_completion=False, pretty_exceptions_enable=False)
    holder.command(name)(with_context(with_attributes(function)))
    command = typer.main.get_command(holder)
    assert isinstance(command, TyperCommand)
    command.get_params = partial(_with_light_coercion, command.get_params)  # type: ignore[method-assign]
    optional: OptionalValues | None = getattr(function, "optional_values", None)
    if optional is not None:
        valued = {name for each in command.params if not getattr(each, "is_flag", True) for name in each.opts}
        parse = command.parse_args
        command.parse_args = lambda ctx, args: parse(ctx, optional.spelled_out(args, valued))  # type: ignore[method-assign]
    return command


class _Coercion:
    """Converts the value of one parameter like Typer, but avoids pydantic where there is nothing to convert.

    Typer imports pydantic for the first value of any parameter, even for a text that stays a text. That takes longer
    than everything else that a small command does.
    """

    def __init__(self, parameter: Any, typers: Callable[[], Any]) -> None:
        self._typers = typers
        self._is_text = parameter.type_descriptor.annotation is str
        self._default = parameter.default

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if value is self._default or (self._is_text and isinstance(value, str)):
            return value
        return self._typers().coerce(value, param=param, ctx=ctx)


def _with_light_coercion(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    """The parameters of a command, including --help, each with its _Coercion."""
    parameters = get_params(ctx)
    for parameter in parameters:
        # Typer 0.29 has this method. With a version without it, commands may start more slowly.
        typers = getattr(parameter, "get_runtime_param", None)
        if typers is not None and not isinstance(typers, partial):
            parameter.get_runtime_param = partial(_Coercion, parameter, typers)
    return parameters
