"""The Python API in its four forms, so that one test body runs with each: embedded or remote, blocking or async."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import postroad
from postroad import aio
from postroad.api.server import ApiServer, TlsFiles
from postroad.client.blocking import LoopThread
from postroad.config import default_configuration
from postroad.describe.received import ReceivedMessage
from postroad.manager import Manager, build_manager
from postroad.reports.info import ManagerInfo, QueueInfo
from postroad.reports.offsets import HoldInfo, Mark, Submission
from postroad.reports.trace import Trace
from postroad.store import open_store

FACES = ("embedded-sync", "embedded-async", "remote-sync", "remote-async")
NAME = "alpha"


class Driven:
    """Uses an object of `postroad.aio` as if it were one of `postroad`, by waiting for every awaitable that it
    returns."""

    PLAIN = (
        *(str, bytes, int, float, list, tuple, type(None)),
        *(ReceivedMessage, QueueInfo, ManagerInfo, Trace, Mark, HoldInfo, Submission),
    )

    def __init__(self, thing: Any, thread: LoopThread) -> None:
        self._thing = thing
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return self._drive(getattr(self._thing, name))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        plain = [each._thing if isinstance(each, Driven) else each for each in arguments]
        named = {name: each._thing if isinstance(each, Driven) else each for name, each in options.items()}
        return self._drive(self._thing(*plain, **named))

    def __enter__(self) -> Any:
        return self._drive(self._thing.__aenter__())

    def __exit__(self, *exception: object) -> bool | None:
        return cast(bool | None, self._thread.run(self._thing.__aexit__(*exception)))

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._drive(self._thread.run(self._thing.__anext__()))
            except StopAsyncIteration:
                return

    def _drive(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            value = self._thread.run(value)
        return value if isinstance(value, self.PLAIN) else Driven(value, self._thread)


@contextmanager
def served(
    directory: Path | str, token: str | None = None, port: int = 0, tls: TlsFiles | None = None
) -> Iterator[str]:
    """Serves a queue manager by HTTP on this machine. 0 means any free port. Gives the URL."""

    async def start() -> tuple[Manager, ApiServer]:
        manager = build_manager(default_configuration(NAME), open_store(directory))
        await manager.start()
        server = ApiServer(manager, port=port, token=token, tls=tls)
        await server.start()
        return manager, server

    thread = LoopThread()
    try:
        manager, server = thread.run(start())
        try:
            yield server.url
        finally:
            thread.run(server.stop())
            thread.run(manager.stop())
    finally:
        thread.stop()


@contextmanager
def driven(opening: aio.Opening) -> Iterator[postroad.QueueManager]:
    async def start() -> aio.QueueManager:
        return await opening

    thread = LoopThread()
    try:
        manager = thread.run(start())
        try:
            yield cast(postroad.QueueManager, Driven(manager, thread))
        finally:
            thread.run(manager.close())
    finally:
        thread.stop()


@contextmanager
def opened(face: str, directory: Path | str = ":memory:") -> Iterator[postroad.QueueManager]:
    """A queue manager called alpha, opened through one of FACES."""
    where, _, kind = face.partition("-")
    if where == "embedded":
        if kind == "sync":
            with postroad.open(directory, name=NAME) as manager:
                yield manager
        else:
            with driven(aio.open(directory, name=NAME)) as manager:
                yield manager
        return
    with served(directory) as url:
        if kind == "sync":
            with postroad.connect(url) as manager:
                yield manager
        else:
            with driven(aio.connect(url)) as manager:
                yield manager
