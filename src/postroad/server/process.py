"""`postroad serve` as a process: it starts a server, stops it on SIGTERM and SIGINT, and reloads it on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from postroad.config import Configuration
from postroad.errors import PostroadError, StorageError
from postroad.server.reload import read_again, refuse, report
from postroad.server.server import Server
from postroad.server.shared_store import (
    FIRST_LOOK_S,
    RETRY_S,
    GuardedSelector,
    SharedStore,
    StandbyApi,
    check_database,
    connector_of,
)

log = logging.getLogger(__name__)


def serve(config: Configuration, announce: Callable[[dict[str, object]], None], level: int | None = None) -> None:
    """Serves until SIGTERM or SIGINT. SIGHUP reads the configuration again. Calls `announce` with the ready line once
    every listener accepts, and with another line while this process stands by. A `level` for the log overrides the
    configuration."""
    if config.store.url is None:
        asyncio.run(_run(config, announce, level))
        return
    selector = GuardedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(_run_shared(config, announce, level, selector))


async def _run(config: Configuration, announce: Callable[[dict[str, object]], None], level: int | None) -> None:
    stop = asyncio.Event()
    _on_signals(stop)
    server = Server(config, level)
    reloading = _Reloading(config, server)
    await server.start()
    try:
        reloading.start()
        _announce_ready(server, announce)
        await stop.wait()
        log.info("stopping")
    finally:
        await server.stop()
    log.info("stopped")


def _announce_ready(server: Server, announce: Callable[[dict[str, object]], None]) -> None:
    ready = server.ready
    announce(ready)
    log.info("ready", extra={"manager": ready["name"], "id": ready["id"]})
    if server.console_url is not None:
        log.info("the console is at", extra={"address": server.console_url})


async def _run_shared(
    config: Configuration,
    announce: Callable[[dict[str, object]], None],
    level: int | None,
    selector: GuardedSelector,
) -> None:
    """Stands by and serves in turn, as the lease of the store has it."""
    stop = asyncio.Event()
    _on_signals(stop)
    reloading = _Reloading(config, None)
    reloading.start()
    connector = connector_of(config)
    await check_database(config, connector)
    shared = SharedStore(config, connector)
    selector.use(shared.guard)
    shared.keeper.start()
    try:
        while await _stand_by(shared, announce, stop, reloading):
            shared.serve(True)
            try:
                await _serve_shared(shared, announce, level, stop, reloading)
            finally:
                shared.keeper.hand_over()
                reloading.use(None)
                shared.serve(False)
                shared.keeper.finished()
            if stop.is_set():
                break
    finally:
        await asyncio.to_thread(shared.keeper.stop)
    log.info("stopped")


async def _stand_by(
    shared: SharedStore, announce: Callable[[dict[str, object]], None], stop: asyncio.Event, reloading: _Reloading
) -> bool:
    """Returns True once this process is active, and False at a stop."""
    config = reloading.config
    api = StandbyApi(config, shared)
    announced = False
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({stopping}, timeout=0)
        first = asyncio.get_running_loop().time() + FIRST_LOOK_S
        while not (stop.is_set() or shared.is_active):
            now = asyncio.get_running_loop().time()
            if config is not reloading.config:
                config = reloading.config
                await api.stop()
                api = StandbyApi(config, shared)
            if shared.view.active not in (None, shared.name) or now >= first:
                await api.start()
            if shared.view.active not in (None, shared.name) and not announced:
                announced = True
                announce({"standby": True, "name": config.manager.name, "active": shared.view.active})
            changing = asyncio.create_task(shared.change())
            await asyncio.wait({stopping, changing}, timeout=FIRST_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            changing.cancel()
    finally:
        stopping.cancel()
        await api.stop()
    return not stop.is_set()


async def _serve_shared(
    shared: SharedStore,
    announce: Callable[[dict[str, object]], None],
    level: int | None,
    stop: asyncio.Event,
    reloading: _Reloading,
) -> None:
    """Serves until a stop, or until somebody asks for a handover."""
    stopping = asyncio.create_task(stop.wait())
    asked = asyncio.create_task(shared.asked_to_hand_over())
    try:
        server = Server(reloading.config, level, shared)
        while not stop.is_set():
            try:
                await server.start()
                break
            except StorageError as fault:  # the database has gone away again
                log.warning("not active yet", extra={"reason": fault})
                await asyncio.wait({stopping}, timeout=RETRY_S)
        else:
            return
        try:
            reloading.use(server)
            _announce_ready(server, announce)
            await asyncio.wait({stopping, asked}, return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping" if stop.is_set() else "handing over")
        finally:
            await server.stop()
    finally:
        stopping.cancel()
        asked.cancel()


async def check_only(config: Configuration) -> None:
    """Raises the PostroadError that would keep the manager from starting. Changes nothing."""
    await Server(config, logging.WARNING).check()


class _Reloading:
    """Runs one reload at a time. All signals during a reload, or before the start is complete, cause one more.
    `config` is the configuration as the last reload left it."""

    def __init__(self, config: Configuration, server: Server | None) -> None:
        self.config = config
        self._server = server
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._wanted.set)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def use(self, server: Server | None) -> None:
        """The server to reload; None while there is none. One that started during a reload is reloaded again."""
        self._server = server
        if server is not None and server.config is not self.config:
            self._wanted.set()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            server = self._server
            try:
                if server is None:
                    await self._reload_standby()
                else:
                    await server.reload()
                    self.config = server.config
            except Exception:
                log.exception("reading the configuration again failed")

    async def _reload_standby(self) -> None:
        """Takes what this process serves with once it is active."""
        found = read_again(self.config)
        if found is None:
            return
        config, taken, waiting = found
        try:
            await check_only(config)
        except PostroadError as fault:
            refuse(fault)
            return
        self.config = config
        report(taken, waiting, ())
        self.use(self._server)


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
