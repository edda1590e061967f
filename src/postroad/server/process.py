"""`postroad serve` as a process: it starts a server, stops it on SIGTERM and SIGINT, and reloads it on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from postroad.config import Configuration
from postroad.server.server import Server

log = logging.getLogger(__name__)


async def run(config: Configuration, announce: Callable[[dict[str, object]], None], level: int | None = None) -> None:
    """Serves until SIGTERM or SIGINT. SIGHUP reads the configuration again. Calls `announce` with the ready line once
    every listener accepts. A `level` for the log overrides the configuration."""
    stop = asyncio.Event()
    _on_signals(stop)
    server = Server(config, level)
    reloading = _Reloading(server)
    await server.start()
    try:
        reloading.start()
        ready = server.ready
        announce(ready)
        log.info("ready", extra={"manager": ready["name"], "id": ready["id"]})
        if server.console_url is not None:
            log.info("the console is at", extra={"address": server.console_url})
        await stop.wait()
        log.info("stopping")
    finally:
        await server.stop()
    log.info("stopped")


async def check_only(config: Configuration) -> None:
    """Raises the PostroadError that would keep the manager from starting. Changes nothing."""
    await Server(config, logging.WARNING).check()


class _Reloading:
    """Runs one reload at a time. All signals during a reload, or before the start is complete, cause one more."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._wanted.set)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._server.reload()
            except Exception:
                log.exception("reading the configuration again failed")


def _on_signals(stop: asyncio.Event) -> None:
    """Stops cleanly at the first signal, and at once at the second."""
    loop = asyncio.get_running_loop()

    def received() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        if sys.platform == "win32":
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(received))
        else:
            loop.add_signal_handler(number, received)
