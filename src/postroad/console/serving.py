"""Runs the console: alone, or as the child of `postroad serve`, which gives it a socket and a token."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from postroad.console.app import Console, Settings
from postroad.console.client import NO_CREDENTIALS, Credentials
from postroad.errors import PostroadError
from postroad.net.endpoints import endpoint

STOP_S = 2


@dataclass(frozen=True, slots=True)
class Options:
    """`descriptor` is a socket that listens already. `certificate` and `key` are PEM files for TLS. `api_certificate`
    (PEM) is the only one of a manager to trust; None: those that the system trusts."""

    apis: Sequence[str]
    host: str
    port: int
    names: Sequence[str] = ()
    credentials: Credentials = NO_CREDENTIALS
    descriptor: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    api_certificate: str | None = None


def read_parent() -> tuple[Credentials, str | None]:
    """What `postroad serve` writes to standard input: a token, which belongs neither into the arguments nor into the
    environment of a process, and the certificate of its API."""
    given = json.loads(sys.stdin.readline() or "{}")
    return Credentials(token=given.get("token")), given.get("certificate")


def run(options: Options, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT. Calls `announce` with the address once it listens."""
    asyncio.run(_serve(options, announce))


async def _serve(options: Options, announce: Callable[[str], None]) -> None:
    listener = _listener(options)
    host, port = listener.getsockname()[:2]
    secure = options.certificate is not None
    names = frozenset(each.lower() for each in (options.host, *options.names) if each)
    console = Console(Settings(options.apis, options.credentials, names, port, secure, options.api_certificate))
    config = uvicorn.Config(
        console.app(),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    server = uvicorn.Server(config)
    if options.descriptor is not None:
        _end_with_parent(server)
    announce(f"http{'s' if secure else ''}://{endpoint(host, port)}/")
    await server.serve([listener])


def _listener(options: Options) -> socket.socket:
    if options.descriptor is not None:
        return socket.socket(fileno=options.descriptor)
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0])
    except OSError as error:
        where = endpoint(options.host, options.port)
        raise PostroadError(f"cannot listen on {where}: {os.strerror(error.errno or 0)}; set another --port") from None


def _end_with_parent(server: uvicorn.Server) -> None:
    """The end of standard input is the end of `postroad serve`, however that came about."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin)
            server.should_exit = True

    loop.add_reader(sys.stdin, ended)
