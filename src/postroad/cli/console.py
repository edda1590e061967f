"""`postroad console`: the web console, for one manager or several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.context import DEFAULT_API, read_token
from postroad.cli.output import ExitCode, fail, print_line

DEFAULT_PORT = 8181


def console(
    api: Annotated[
        list[str] | None,
        typer.Option("--api", metavar="URL", help="The HTTP API of a queue manager; repeat it for several."),
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")
    ] = DEFAULT_PORT,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="A name that browsers may use for this host; repeat it for more."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="A PEM file: the console then uses HTTPS.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            metavar="ADDRESS",
            help="An address or network of reverse proxies, whose X-Forwarded-For is believed; repeat it for more.",
        ),
    ] = None,
    descriptor: Annotated[int | None, typer.Option("--descriptor", hidden=True)] = None,
) -> None:
    """Run the web console.

    It calls the managers by their HTTP APIs, with the login of the person who uses it. POSTROAD_TOKEN, or a file that
    POSTROAD_TOKEN_FILE names, lets it draw charts before somebody has logged in. Needs `pip install postroad[console]`.
    """
    import ipaddress
    import logging

    from postroad.runtime.logs import start_logging

    try:
        import jinja2  # noqa: F401
    except ImportError:
        fail("the console is not installed: pip install 'postroad[console]'", ExitCode.FAILED)
    from postroad.console.serving import Given, Options, read_parent, run

    start_logging(as_json=False, level=logging.WARNING)
    try:
        loopback = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and certificate is None and descriptor is None:
        fail("--host: other computers can reach it, and passwords need TLS: set --tls-certificate", ExitCode.USAGE)
    try:
        proxies = [ipaddress.ip_network(each) for each in proxy or ()]
    except ValueError as fault:
        fail(f"--proxy: must be an address or a network: {fault}", ExitCode.USAGE)
    given = Given(token=read_token(os.environ.get("POSTROAD_TOKEN"))) if descriptor is None else read_parent()
    apis = api or [os.environ.get("POSTROAD_API", DEFAULT_API)]
    options = Options(apis, host, port, name or (), proxies, given, descriptor, certificate, key)
    run(options, (lambda address: None) if descriptor is not None else _announce)


def _announce(address: str) -> None:
    print_line(f"the console is at {address}")
