"""A local transaction as its owner sees it: open, then committed or aborted, once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from postroad.client.aio.manager import QueueManager


class Transaction:
    """Sends and receives that happen together, in any queues of one manager. Made by `QueueManager.transaction`, which
    also ends it, or by `QueueManager.begin`. It stays open however long the work takes; the manager aborts it once this
    process is gone or silent for too long, and then a commit raises LeaseEnded."""

    __slots__ = ("_manager", "ended", "identifier")

    def __init__(self, manager: QueueManager, identifier: UUID) -> None:
        self._manager = manager
        self.identifier = identifier
        self.ended = False

    def __repr__(self) -> str:
        return f"<Transaction {self.id}{', ended' if self.ended else ''}>"

    @property
    def id(self) -> str:
        return str(self.identifier)

    async def commit(self) -> None:
        """Everything done in it becomes true, durably. TransactionSequence if it has ended already."""
        self.ended = True
        await self._manager.backend.commit(self.identifier)

    async def abort(self) -> None:
        """What was sent never was; what was received is back in its place."""
        self.ended = True
        await self._manager.backend.abort(self.identifier)
