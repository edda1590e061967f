"""Runs the console: alone, or as the child of `postroad serve`, which gives it a socket and a token."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from postroad.console.app import Console, Settings
from postroad.console.client import NO_CREDENTIALS, Credentials
from postroad.console.guard import Networks
from postroad.errors import PostroadError
from postroad.net.endpoints import endpoint
from postroad.net.http import KEEP_ALIVE_S, AcceptingServer, BoundedHttpProtocol
from postroad.net.limits import Limits, usable_descriptors

STOP_S = 2


@dataclass(frozen=True, slots=True)
class Given:
    """What `postroad serve` writes to standard input, because it belongs neither into the arguments nor into the
    environment of a process. `key` proves to the manager for whom the console calls; `certificate` (PEM) is the only
    one of a manager to trust; the rest is of `[limits]`."""

    token: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificate: str | None = None
    connections: int = 4096
    connections_per_address: int = 256
    unfinished_input_mb: int = 256


@dataclass(frozen=True, slots=True)
class Options:
    """`descriptor` is a socket that listens already. `certificate` and `key` are PEM files for TLS. `proxies` may say
    whom they call for."""

    apis: Sequence[str]
    host: str
    port: int
    names: Sequence[str] = ()
    proxies: Networks = ()
    given: Given = Given()
    descriptor: int | None = None
    certificate: Path | None = None
    key: Path | None = None


def read_parent() -> Given:
    """Of the console of `postroad serve`."""
    return Given(**json.loads(sys.stdin.readline() or "{}"))


def run(options: Options, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT. Calls `announce` with the address once it listens."""
    asyncio.run(_serve(options, announce))


async def _serve(options: Options, announce: Callable[[str], None]) -> None:
    listener, given = _listener(options), options.given
    host, port = listener.getsockname()[:2]
    secure = options.certificate is not None
    names = frozenset(each.lower() for each in (options.host, *options.names) if each)
    settings = Settings(
        options.apis,
        NO_CREDENTIALS if given.token is None else Credentials(token=given.token),
        (given.key or given.token or "").encode() or None,
        names,
        options.proxies,
        port,
        secure,
        given.certificate,
    )
    config = uvicorn.Config(
        Console(settings).app(),
        http=BoundedHttpProtocol,
        loop="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        interface="asgi3",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    config.load()
    descriptors = usable_descriptors(given.connections)
    limits = Limits(given.connections, given.connections_per_address, given.unfinished_input_mb, descriptors)
    server = AcceptingServer(config, limits)
    serving = await server.start(listener, "postroad-console-server")
    _end_on_signals(server)
    if options.descriptor is not None:
        _end_with_parent(server)
    announce(f"http{'s' if secure else ''}://{endpoint(host, port)}/")
    await serving


def _listener(options: Options) -> socket.socket:
    if options.descriptor is not None:
        listener = socket.socket(fileno=options.descriptor)
        listener.setblocking(False)
        return listener
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listener = socket.create_server(found[0][4][:2], family=found[0][0])
        listener.setblocking(False)
        return listener
    except OSError as error:
        where = endpoint(options.host, options.port)
        raise PostroadError(f"cannot listen on {where}: {os.strerror(error.errno or 0)}; set another --port") from None


def _end_on_signals(server: uvicorn.Server) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        if sys.platform == "win32":
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(end))
        else:
            loop.add_signal_handler(number, end)


def _end_with_parent(server: uvicorn.Server) -> None:
    """The end of standard input is the end of `postroad serve`, however that came about."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin)
            server.should_exit = True

    loop.add_reader(sys.stdin, ended)
