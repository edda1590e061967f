"""What the code of both faces needs of its surroundings, for programs without an event loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Thread
from threading import get_ident as caller
from time import sleep

__all__ = ["Leaving", "caller", "sleep"]


class Leaving:
    """Ends what was left without a word, such as an iterator that a loop has dropped, and can be waited for."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []

    def run(self, end: Callable[[], None]) -> None:
        """At once; on another thread where Python has dropped it on that of an event loop, which must not wait."""
        if not _on_a_loop():
            end()
            return
        thread = Thread(target=end, name="postroad-leaving")
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()


def _on_a_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # importing it takes time that a short program may not have
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
