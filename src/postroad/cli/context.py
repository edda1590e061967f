"""The values of `--api`, `--token`, `--user`, `--kerberos` and `--json`, or of the environment where they are absent.

A command has one parameter `context: Context`, and cli/commands.py adds the five options to it. They can be given
before the command, as in `postroad --json queue list`, or after it. An option after the command wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from postroad.cli.output import ExitCode, fail, print_json, print_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from postroad import QueueManager, ReceivedMessage


DEFAULT_API = "http://127.0.0.1:8180"


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter's value comes from the command line, and not from the environment or its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _or_before(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """The value after the command, or else the one before it, which may come from the environment."""
    assert parameter.name is not None
    return value if context.obj is None or is_given(context, parameter.name) else context.obj[parameter.name]


Api = Annotated[
    str,
    typer.Option(
        "--api",
        metavar="URL",
        envvar="POSTROAD_API",
        callback=_or_before,
        help="The address of the queue manager's HTTP API.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="POSTROAD_TOKEN",
        show_envvar=False,
        callback=_or_before,
        help="The API's token, if it requires one. [env var: POSTROAD_TOKEN, or POSTROAD_TOKEN_FILE for a file]",
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        envvar="POSTROAD_USER",
        show_envvar=False,
        callback=_or_before,
        help="Log in as this user. [env var: POSTROAD_USER; POSTROAD_PASSWORD, or a prompt, for the password]",
    ),
]
Kerberos = Annotated[
    bool,
    typer.Option(
        "--kerberos",
        envvar="POSTROAD_KERBEROS",
        callback=_or_before,
        help="Log in with a Kerberos ticket, from kinit.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", callback=_or_before, help="Print one JSON object per line.")]


@dataclass(frozen=True, slots=True)
class Context:
    """The queue manager that a command works on, and how the command prints its results."""

    api: str
    token: str | None
    user: str | None
    kerberos: bool
    as_json: bool

    def connect(self) -> QueueManager:
        """A queue manager. The connection is made by the first call."""
        import postroad

        with self._explained():
            return postroad.connect(self.api, **self._login())

    @contextmanager
    def calls(self) -> Iterator[Any]:
        """Gives access to API calls that have no verb in the Python client.

        The object has `json(method, path, value)` and `stream(path, query, accept)` of client.exchange.Exchange, for
        callers without an event loop.
        """
        from postroad.client.exchange import Address, Exchange
        from postroad.client.sync.backend import Backend, CallerThread
        from postroad.client.sync.transport import Transport

        with self._explained():
            address = Address(self.api, **self._login())
        calls: Any = Backend(CallerThread(), Exchange(address, Transport(address)))  # type: ignore[arg-type]
        try:
            yield calls
        finally:
            calls.close()

    def _login(self) -> dict[str, Any]:
        if by_ticket(self.kerberos, self.token, self.user):
            return {"kerberos": True}
        token, user = chosen(self.token, self.user)
        if user is not None:
            return {"user": user, "password": read_password(user)}
        return {"token": read_token(token)}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from postroad.errors import InvalidArgument

        try:
            yield
        except InvalidArgument as fault:
            sentence = str(fault)
            fail(f"--api: {sentence[5:]}" if sentence.startswith("url: ") else sentence, ExitCode.USAGE)

    def only_token(self) -> str | None:
        """The token, for commands that cannot log in as a user."""
        if by_ticket(self.kerberos, self.token, self.user):
            fail("--kerberos: this command needs an administrator: use --token", ExitCode.USAGE)
        token, user = chosen(self.token, self.user)
        if user is not None:
            fail("--user: this command needs an administrator: use --token", ExitCode.USAGE)
        return read_token(token)

    def print(self, value: object, text: str) -> None:
        """Prints the value as JSON, or the text."""
        if self.as_json:
            print_json(value)
        else:
            print_line(text)

    def print_info(self, info: DataclassInstance, print_for_people: Callable[[], None]) -> None:
        """Prints everything about one object."""
        if self.as_json:
            print_json(info)
        else:
            print_for_people()

    def print_list(
        self, infos: Sequence[DataclassInstance], print_for_people: Callable[[], None], none: str = ""
    ) -> None:
        """Prints one JSON object for each row, or a table. Instead of an empty table, prints the sentence `none`, if
        given."""
        if self.as_json:
            for each in infos:
                print_json(each)
        elif infos or not none:
            print_for_people()
        else:
            print_line(none)


def by_ticket(kerberos: bool, token: str | None, user: str | None) -> bool:
    """Whether to log in by Kerberos. An option wins over the environment."""
    others = [
        value for value, name in ((token, "POSTROAD_TOKEN"), (user, "POSTROAD_USER")) if value != os.environ.get(name)
    ]
    if kerberos and others and not os.environ.get("POSTROAD_KERBEROS"):
        fail("--kerberos must not be set together with --user or --token", ExitCode.USAGE)
    return kerberos and not others


def chosen(token: str | None, user: str | None) -> tuple[str | None, str | None]:
    """The token or the user. An option wins over the environment."""
    if token is None or user is None:
        return token, user
    token_given = token != os.environ.get("POSTROAD_TOKEN")
    if token_given == (user != os.environ.get("POSTROAD_USER")):
        fail("--user and --token (POSTROAD_USER and POSTROAD_TOKEN) must not be set together", ExitCode.USAGE)
    return (token, None) if token_given else (None, user)


def read_password(user: str) -> str:
    """The password, from POSTROAD_PASSWORD or a prompt.

    There is no option for it, because other users of a computer can see command lines.
    """
    password = os.environ.get("POSTROAD_PASSWORD")
    if password is not None:
        return password
    if not sys.stdin.isatty():
        fail(f"--user: the password of {user} is missing; set POSTROAD_PASSWORD", ExitCode.USAGE)
    return _typed_password(user)


@cache
def _typed_password(user: str) -> str:
    """Prompts for the password. A command prompts once, however many connections it opens."""
    from getpass import getpass

    return getpass(f"password of {user}: ")


def read_token(given: str | None) -> str | None:
    """The given token, or else the content of the file that POSTROAD_TOKEN_FILE names."""
    file = os.environ.get("POSTROAD_TOKEN_FILE")
    if given is not None or not file:
        return given
    try:
        lines = Path(file).read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as fault:
        fail(f"POSTROAD_TOKEN_FILE: {file}: {getattr(fault, 'strerror', None) or 'must be text'}", ExitCode.USAGE)
    if len(lines) != 1:
        fail(f"POSTROAD_TOKEN_FILE: {file} must contain exactly one line, the token", ExitCode.USAGE)
    return lines[0]


def with_context(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the five options in place of its parameter `context`, if it has one."""
    if signature(command).parameters.get("context") is None:
        return command
    options = [
        Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
        Parameter("api", Parameter.KEYWORD_ONLY, default=DEFAULT_API, annotation=Api),
        Parameter("token", Parameter.KEYWORD_ONLY, default=None, annotation=Token),
        Parameter("user", Parameter.KEYWORD_ONLY, default=None, annotation=User),
        Parameter("kerberos", Parameter.KEYWORD_ONLY, default=False, annotation=Kerberos),
    ]
    return with_options(command, "context", options, lambda given: Context(**given))


# Commands with options from a table. Typer reads options from a function's signature.


def with_options(
    command: Callable[..., None], name: str, options: Sequence[Parameter], gather: Callable[[dict[str, Any]], object]
) -> Callable[..., None]:
    """The command with these options in place of the parameter `name`, which gets what `gather` makes of their values.

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
    del run.__wrapped__  # its annotations do not include the options
    return run


# Arguments and options that several commands share. Those of all commands are above.


Function = TypeVar("Function", bound=Callable[..., None])
MAX_LOOKUP_ID = (1 << 63) - 1

QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help=r"A path such as private$\orders, a format name, or ;journal, ;deadletter, ;deadxact."
    ),
]


class OptionalValues:
    """Options of a command that can be given with or without a value. Without one, the value is empty.

    For each option, a function tells whether the next word is its value: `--encrypt aes128`, but `--encrypt QUEUE`.
    """

    def __init__(self, **takes: Callable[[str], bool]) -> None:
        self._takes = {f"--{name}": test for name, test in takes.items()}

    def __call__(self, command: Function) -> Function:
        """Decorates the command's function."""
        command.optional_values = self  # type: ignore[attr-defined]
        return command

    def spelled_out(self, words: Sequence[str], valued: Collection[str]) -> list[str]:
        """The words of a command line with `--option=value` for these options. `valued` are all options that take a
        value."""
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


def predicate(expression: str | None) -> Callable[[ReceivedMessage], bool] | None:
    """The filter for messages that `--where` describes. A mistake in it is a usage error."""
    from postroad.describe.where import parse_where
    from postroad.errors import IllegalExpression

    try:
        return None if expression is None else parse_where(expression)
    except IllegalExpression as fault:
        fail(f"--where: {fault}", ExitCode.USAGE)
