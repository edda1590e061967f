"""The `postroad` command. Each group of commands is a module; cli/commands.py lists them.

A command's module is imported when the command runs, and its functions import what they need. So `postroad --help` and
every small command start at once.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from postroad.cli.commands import MARKUP, Commands
from postroad.cli.context import DEFAULT_API, Api, AsJson, Kerberos, Token, User
from postroad.cli.output import ExitCode, report
from postroad.errors import ConfigurationError, IllegalName, InvalidArgument, InvalidMessage, PostroadError
from postroad.runtime.version import __version__

app = typer.Typer(
    name="postroad",
    cls=Commands,
    help="An open queue manager that speaks Microsoft Message Queuing's own protocols.",
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"postroad {__version__}")
        raise typer.Exit(ExitCode.DONE)


@app.callback(invoke_without_command=True)
def _postroad(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    as_json: AsJson = False,
    api: Api = DEFAULT_API,
    token: Token = None,
    user: User = None,
    kerberos: Kerberos = False,
) -> None:
    context.obj = {"as_json": as_json, "api": api, "token": token, "user": user, "kerberos": kerberos}
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(ExitCode.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Expected errors are one line on stderr, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a label may contain characters that this terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(arguments, prog_name="postroad", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as fault:
        report(fault.format_message().replace(": Value error, ", ": "))  # the name of the exception would say nothing
        return fault.exit_code
    except typer.Abort:
        return ExitCode.FAILED
    # no manager could do what was asked
    except (ConfigurationError, IllegalName, InvalidArgument, InvalidMessage) as fault:
        report(str(fault))
        return ExitCode.USAGE
    except PostroadError as fault:
        report(str(fault))
        return ExitCode.FAILED
    except OSError as fault:
        if not isinstance(fault, BrokenPipeError):  # whoever read our output may have stopped
            report(f"the output cannot be written: {fault.strerror}")
        sys.stdout = None  # otherwise Python tries to write once more at its end
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE
