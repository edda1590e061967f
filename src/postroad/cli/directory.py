"""`postroad directory`: what the directory holds, as a file, and whether a join of the domain would work."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.context import Context
from postroad.cli.output import ExitCode, fail, print_json, print_line, print_table
from postroad.reports.info import counted
from postroad.runtime.private_files import write_private

if TYPE_CHECKING:
    from postroad.config import Configuration
    from postroad.directory.watch import Watch
    from postroad.reports.enterprise import DirectoryInfo, JoinCheck

app = typer.Typer(help="Show the directory, write it to a file, and check whether a join of the domain would work.")

STANDARD_OUTPUT = "-"
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Read the directory of this configuration; no queue manager has to run."
    ),
]


@app.command("show")
def show(context: Context, config: Config = None) -> None:
    """Show the sites, routing links, queue managers and public queues, where they come from, and how old they are."""
    from postroad.directory.review import describe_directory
    from postroad.reports.enterprise import DirectoryInfo
    from postroad.reports.info import DirectoryState
    from postroad.reports.plain import from_json

    if config is None:
        with context.calls() as api:
            found = from_json(DirectoryInfo, api.json("GET", "/directory", query={"queues": "true"}))
    else:
        with _opened(config) as (configuration, watch):
            age_s = max(0.0, round(time.time() - watch.read_at_s, 1))
            state = DirectoryState(watch.kind, watch.source, watch.online, age_s, watch.failures, watch.last_error)
            found = describe_directory(watch.directory, configuration.manager.name, state, queues=True)
    if context.as_json:
        print_json(found)
    else:
        _print(found)


@app.command("export")
def export(
    context: Context,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The file to write; standard output if absent or -.")
    ] = STANDARD_OUTPUT,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write the directory as an enterprise.toml, which [directory] file of any manager can name."""
    from postroad.directory.watch import export_enterprise

    if file != STANDARD_OUTPUT and Path(file).exists() and not force:
        fail(f"{file}: exists already; --force writes over it", ExitCode.USAGE)
    if config is None:
        with context.calls() as api:
            text = b"".join(api.stream("/directory/export", {}, "text/plain")).decode()
    else:
        with _opened(config) as (_, watch):
            text = export_enterprise(watch.directory, watch)
    if file == STANDARD_OUTPUT:
        print(text, end="")
        return
    try:
        write_private(Path(file), text)
    except OSError as fault:
        fail(f"{file}: cannot be written: {fault.strerror}", ExitCode.FAILED)
    context.print({"file": file}, f"wrote the directory to {file}")


@app.command("check")
def check(context: Context, config: Config = None) -> None:
    """Check whether this manager could join the domain, and say what is missing and what mends it.

    Exit code 0 if a join would work, 1 if something is missing. An advice alone is no failure.
    """
    from postroad.reports.enterprise import JoinCheck
    from postroad.reports.plain import from_json

    if config is None:
        with context.calls() as api:
            found = from_json(JoinCheck, api.json("GET", "/directory/check"))
    else:
        from postroad.directory.ldap_watch import check_domain
        from postroad.server.preparation import domain_settings

        configuration = _configuration(config)
        if not configuration.directory.ldap:
            fail(f"{config}: directory.ldap: is missing: set it to the URL of a domain controller", ExitCode.USAGE)
        found = check_domain(domain_settings(configuration), time.time())
    _print_check(found, as_json=context.as_json)
    if not found.ready:
        raise typer.Exit(ExitCode.FAILED)


def _configuration(file: Path) -> Configuration:
    from postroad.config import load_configuration
    from postroad.errors import ConfigurationError

    try:
        return load_configuration(file)
    except ConfigurationError as fault:
        fail(str(fault), ExitCode.USAGE)


@contextmanager
def _opened(config: Path) -> Iterator[tuple[Configuration, Watch]]:
    """The directory of a configuration. Nothing is written, not even the copy of a domain."""
    from postroad.errors import ConfigurationError
    from postroad.runtime.logs import start_logging
    from postroad.server.preparation import open_watch

    configuration = _configuration(config)
    start_logging(as_json=False, level=logging.WARNING)  # names objects that cannot be used
    try:
        watch = open_watch(configuration, keep=False)
    except ConfigurationError as fault:
        fail(str(fault), ExitCode.FAILED)
    if watch is None:
        fail(f"{config}: directory: is missing: set file or ldap in it", ExitCode.USAGE)
    try:
        yield configuration, watch
    finally:
        watch.close()


def _print(found: DirectoryInfo) -> None:
    if found.source is None:
        print_line("the manager has no directory: set file or ldap in [directory]")
        return
    state = "online" if found.online else f"offline: {found.error}"
    print_line(f"source    {found.source} ({found.kind}), {state}")
    print_line(f"confirmed {found.age_s:.0f} s ago")
    counts = ((found.sites, "site"), (found.links, "link"), (found.managers, "manager"), (found.queues, "public queue"))
    print_line(f"holds     {', '.join(counted(len(each), what) for each, what in counts)}")
    print_line("")
    print_table(("site", "gates"), [(each.name, ", ".join(each.gates) or None) for each in found.sites])
    print_line("")
    links = [(" - ".join(each.sites), each.cost, ", ".join(each.gates) or None) for each in found.links]
    print_table(("link", "cost", "gates"), links, numbers=("cost",))
    print_line("")
    managers = [
        (each.name, each.address, ", ".join(each.sites) or None, each.routing_server, each.id)
        for each in found.managers
    ]
    print_table(("manager", "address", "sites", "routing server", "id"), managers)
    print_line("")
    print_table(("public queue", "id"), [(each.path, each.id) for each in found.queues])


def _print_check(found: JoinCheck, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for each in found.findings:
        print_line(f"{each.state:8} {each.what}: {each.detail}")
        if each.do and each.state != "ok":
            print_line(f"{'':8} -> {each.do}")
    print_line("a join would work" if found.ready else "a join would not work")
