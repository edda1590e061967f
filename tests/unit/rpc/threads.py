"""The counter in a thread of its own, for blocking clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.unit.rpc.counter import Counter, counter


@contextmanager
def served(**options: Any) -> Iterator[Counter]:
    started = threading.Event()
    found: list[Counter] = []
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def run() -> None:
        async with counter(**options) as it:
            found.append(it)
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
        loop.close()
        assert not thread.is_alive()
