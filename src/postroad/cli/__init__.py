"""The `postroad` command: one module for each group of commands, joined here.

Commands import what they need when they run, so that `postroad --help` and every small command start at once.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from postroad.cli import (
    decode,
    lock,
    ping,
    pipeline,
    queue,
    read,
    remote,
    rescue,
    route,
    send,
    serve,
    simulate,
    status,
    trace,
)
from postroad.cli.outcome import ExitCode, report
from postroad.errors import IllegalName, InvalidArgument, InvalidMessage, PostroadError
from postroad.version import __version__

app = typer.Typer(
    name="postroad",
    help="An open queue manager that speaks Microsoft Message Queuing's own protocols.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.add_typer(queue.app, name="queue")
app.command("send")(send.send)
app.command("receive")(read.receive)
app.command("peek")(read.peek)
app.command("browse")(read.browse)
app.command("move")(rescue.move)
app.command("export")(rescue.export)
app.command("import")(rescue.import_packets)
app.add_typer(lock.app, name="lock")
app.add_typer(lock.transactions, name="transaction")
app.add_typer(remote.app, name="remote")
app.command("route")(route.route)
app.command("trace")(trace.trace)
app.command("ping")(ping.ping)
app.command("simulate")(simulate.simulate)
app.add_typer(pipeline.app, name="pipeline")
app.command("decode")(decode.decode)


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
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(ExitCode.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives back its exit code. Expected faults are one line on stderr, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a label may hold what this terminal's encoding does not
    try:
        code = app(arguments, prog_name="postroad", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as fault:
        report(fault.format_message())
        return fault.exit_code
    except typer.Abort:
        return ExitCode.FAILED
    except (IllegalName, InvalidArgument, InvalidMessage) as fault:  # what was asked for can never be
        report(str(fault))
        return ExitCode.USAGE
    except PostroadError as fault:
        report(str(fault))
        return ExitCode.FAILED
    except OSError as fault:
        if not isinstance(fault, BrokenPipeError):  # whoever reads our output may have enough
            report(f"the output cannot be written: {fault.strerror}")
        sys.stdout = None  # or Python tries once more at its end
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.DONE
