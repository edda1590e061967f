"""A core with a store, a clock and an event loop. Every interface of a manager answers through `durability`, once a
change is durable.

Everything here runs on one event loop. The store may have threads of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroad.manager.standing import Standing
from postroad.manager.troubles import Troubles
from postroad.queues.durability import Durability
from postroad.queues.local import LocalQueueManager
from postroad.store.interface import Committer, Store


class DurableCore:
    def __init__(
        self, core: LocalQueueManager, store: Store, clock: Callable[[], float], standing: Standing | None = None
    ) -> None:
        self.core = core
        self.store = store
        self.clock = clock
        self.standing = standing or Standing()
        self._loop: asyncio.AbstractEventLoop
        self._committer: Committer
        self.durability = Durability(core, clock)
        # Direct references, because these are called for every message.
        self.durably = self.durability.durably
        self.change_then = self.durability.change_then
        self.when_durable = self.durability.when_durable
        self.commit_soon = self.durability.soon
        self.troubles = Troubles(core, self.durability, clock)

    @property
    def storage_error(self) -> str | None:
        """Why the last commit failed or there is no room for more messages. None if neither is so."""
        return self.durability.error

    def drive(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, changes are committed on this event loop."""
        self._loop = loop
        self._committer = self.store.committer(loop.call_soon_threadsafe)
        self.durability.drive(loop, self._committer, loop.create_future, self.standing.holds)

    def tidy(self) -> None:
        """Gives space that messages have left back to the disk, soon."""
        self._committer.tidy()

    async def close_store(self) -> None:
        """Commits what has gathered, and closes the store even if that fails."""
        try:
            settled = False
            while not (settled and self.durability.idle):  # a commit can bring back what a reader has left
                self.core.counters.settle(self.core.tick.batch)
                await self.durability.landed()
                settled = True
        finally:
            await asyncio.to_thread(self._committer.close)
            self.store.close()
