"""`postroad serve`: runs a queue manager until it is stopped."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.output import ExitCode, fail, print_json, print_line


class LogLevel(Enum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The queue manager's configuration, a TOML file."),
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
    log_level: Annotated[
        LogLevel | None, typer.Option("--log-level", help="How much to log; default: [log] level, else info.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only read and check what a start would; open, make and change nothing.")
    ] = False,
) -> None:
    """Run a queue manager.

    Prints one JSON line on standard output once every listener accepts, and logs to standard error. SIGTERM and SIGINT
    (Ctrl-C) stop it. SIGHUP reads the configuration again, and the log says what it took and what needs a restart.

    With --check it reads the configuration, every file that the configuration names, and the queues in the data
    directory, and says what would keep the manager from starting. It opens no port, so one that is taken shows at the
    start only, and it may run beside the manager that uses the data directory.

    Without a configuration the manager has this computer's name, keeps its data in ./data/NAME, and
    its API is on 127.0.0.1:8180.

    With [store] url, several processes share one store: one is active, the others stand by, print a line that says so,
    and take over when the active one fails.

    Exit code: 0 after a stop, 1 if it cannot run (a port or the data directory is in use), 2 if the configuration is at
    fault: the last line on standard error then names the file, the key and the fault; 4 if another process has taken
    over: the last line says which one. With --check: 0 or 2.
    """
    import asyncio
    import logging

    from postroad.config import default_configuration, load_configuration
    from postroad.errors import ConfigurationError, PostroadError
    from postroad.runtime.logs import start_logging
    from postroad.runtime.supervision import relax_collector
    from postroad.server.process import check_only
    from postroad.server.process import serve as serve_until_stopped

    level = None if log_level is None else logging.getLevelNamesMapping()[log_level.value.upper()]
    start_logging(as_json=log_json, level=level or (logging.WARNING if check else logging.INFO))
    try:
        configuration = default_configuration() if config is None else load_configuration(config)
        if check:
            asyncio.run(check_only(configuration))
            print_line(f"{config or 'default configuration'}: checked; manager {configuration.manager.name} can start")
            return
        relax_collector()
        serve_until_stopped(configuration, _announce, level)
    except ConfigurationError as fault:
        fail(str(fault), ExitCode.USAGE)
    except PostroadError as fault:
        fail(str(fault), ExitCode.USAGE if check else ExitCode.FAILED)


def _announce(ready: dict[str, object]) -> None:
    print_json(ready)
    sys.stdout.flush()
