"""A uvicorn server that lives on somebody else's event loop: it tells when it accepts, and leaves signals alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn


class AcceptingServer(uvicorn.Server):
    """Tells when it accepts; signals are for whoever owns the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def start(self, listener: socket.socket, name: str) -> asyncio.Task[None]:
        """The task that serves, once it accepts; closes the listener and raises where it cannot."""
        task = asyncio.create_task(self.serve([listener]), name=name)
        try:
            accepting = asyncio.ensure_future(self._accepting.wait())
            await asyncio.wait({task, accepting}, return_when=asyncio.FIRST_COMPLETED)
            accepting.cancel()
            if task.done():
                await task
                raise RuntimeError("the server ended as soon as it had started")
        except BaseException:
            listener.close()
            raise
        return task
