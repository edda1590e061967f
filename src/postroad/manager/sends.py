"""Sends of a running manager, and transactions over sends and reads."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from postroad.manager.reads import Name, Reads
from postroad.message import Message
from postroad.queues.leases import THIS_PROCESS, Holder


class Sends(Reads):
    async def send(self, destination: Name, messages: Sequence[Message], transaction: UUID | None = None) -> list[str]:
        """Returns the ids of the messages in order; for several destinations, those of each in turn."""
        held = self._used(transaction)
        ids = await self.durably(lambda: self.core.send(destination, messages, self.clock(), held))
        return self._identifiers(ids)

    async def send_transactional(self, destination: Name, messages: Sequence[Message]) -> list[str]:
        """Sends all of the messages in a new transaction."""

        def send() -> list[str]:
            now = self.clock()
            transaction = self.core.begin()
            try:
                ids = self.core.send(destination, messages, now, transaction)
                self.core.commit(transaction, now)
            except BaseException:
                self.core.abort(transaction, now)
                raise
            return self._identifiers(ids)

        return await self.durably(send)

    def _identifiers(self, ids: Sequence[int]) -> list[str]:
        prefix = f"{{{self.core.identifier}}}\\"
        return [f"{prefix}{message_id}" for message_id in ids]

    # Transactions

    def begin(self, holder: Holder = THIS_PROCESS) -> UUID:
        return self.leases.begin(self.core.begin(), holder)

    async def commit(self, identifier: UUID) -> None:
        transaction = self.leases.transaction(identifier)
        await self.durably(lambda: self.core.commit(transaction, self.clock()))

    async def abort(self, identifier: UUID) -> None:
        """Messages are back in their queues when this returns; their abort counts become durable with the next tick."""
        transaction = self.leases.transaction(identifier)
        await self.durably(lambda: self.core.abort(transaction, self.clock()))
