"""Runs the console, alone or as a child of `postroad serve`, which gives it a socket and a token."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from postroad.console.app import Console, Settings
from postroad.console.manager_client import NO_CREDENTIALS, Credentials
from postroad.console.sessions import Networks
from postroad.errors import ConfigurationError, PostroadError
from postroad.net.endpoints import endpoint
from postroad.net.http import HttpConnection
from postroad.net.limits import Limits, usable_descriptors
from postroad.net.listening import Listener
from postroad.net.tls import own_certificate, server_tls

log = logging.getLogger(__name__)

STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Given:
    """What `postroad serve` writes to standard input, because others can read the arguments and the environment of a
    process. With `key` the console proves that it may name the addresses of people. `tls_certificate` and `tls_key` are
    the files of the manager and of the console if they use TLS: the console trusts no other certificate of a manager.
    The rest is from `[limits]`."""

    token: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    tls_certificate: str | None = None
    tls_key: str | None = None
    connections: int = 4096
    connections_per_address: int = 256
    unfinished_input_mb: int = 256


@dataclass(frozen=True, slots=True)
class Options:
    """`descriptor` is a listening socket. `certificate` and `key` are PEM files for TLS. `proxies` may name the
    addresses of their clients."""

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
    """Reads what `postroad serve` writes first, and no byte of what may follow."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(sys.stdin.fileno(), 1)):
        line += byte
    return Given(**json.loads(line or b"{}"))


def run(options: Options, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT. Calls `announce` with the address once it listens."""
    asyncio.run(_serve(options, announce))


async def _serve(options: Options, announce: Callable[[str], None]) -> None:
    opened, given = _listener(options), options.given
    host, port = opened.getsockname()[:2]
    secure = options.certificate is not None
    names = frozenset(each.lower() for each in (options.host, *options.names) if each)
    settings = Settings(
        options.apis,
        _credentials(given),
        (given.key or given.token or "").encode() or None,
        names,
        options.proxies,
        port,
        secure,
        None if given.tls_certificate is None else own_certificate("api", Path(given.tls_certificate)),
    )
    console = Console(settings)
    tls = None
    if options.certificate is not None:
        tls = server_tls("console", options.certificate, options.key or options.certificate)
    descriptors = usable_descriptors(given.connections)
    limits = Limits(given.connections, given.connections_per_address, given.unfinished_input_mb, descriptors)
    listener = Listener("console", limits, partial(HttpConnection, console), host, port, tls=tls, grace_s=STOP_S)
    console.start()
    await listener.start([opened])
    ending = asyncio.Event()
    _end_on_signals(ending)
    if options.descriptor is not None:
        _hear_parent(listener, console, ending)
    announce(f"http{'s' if secure else ''}://{listener.address}/")
    await ending.wait()
    await listener.stop()
    await console.finish(STOP_S)
    await console.stop()


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


def _end_on_signals(ending: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        if sys.platform == "win32":
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(ending.set))
        else:
            loop.add_signal_handler(number, ending.set)


def _hear_parent(listener: Listener, console: Console, ending: asyncio.Event) -> None:
    """Each line has new values. The end of standard input means that `postroad serve` has ended, for whatever
    reason."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    held = b""

    def hear() -> None:
        nonlocal held
        data = os.read(sys.stdin.fileno(), 0x10000)
        if not data:
            loop.remove_reader(sys.stdin)
            ending.set()
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            task = loop.create_task(_renew(listener, console, Given(**json.loads(line))))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    loop.add_reader(sys.stdin, hear)


async def _renew(listener: Listener, console: Console, given: Given) -> None:
    trusted = None
    if given.tls_certificate is not None and given.tls_key is not None:
        certificate, key = Path(given.tls_certificate), Path(given.tls_key)
        try:
            tls, trusted = server_tls("api", certificate, key), own_certificate("api", certificate)
        except ConfigurationError as fault:  # the manager has just read the files, so they have changed again
            log.error(
                "the console keeps its certificate",
                extra={"reason": fault, "do": "reload the manager again when the file is complete"},
            )
        else:
            listener.use_tls(tls)
    await console.renew(_credentials(given), trusted)


def _credentials(given: Given) -> Credentials:
    return NO_CREDENTIALS if given.token is None else Credentials(token=given.token)
