"""What operators do with messages of a running manager: move them to another queue, and import packets."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.errors import InvalidArgument
from postroad.manager.durable import DurableCore
from postroad.manager.reads import Name
from postroad.values.reading import SeekAction
from postroad.wire.view import MessageView

MOVE_BATCH = 1000


class Rescue(DurableCore):
    async def move(
        self,
        name: Name,
        target: Name,
        lookup_ids: Sequence[int] | None = None,
        *,
        limit: int = MOVE_BATCH,
        after: int = -1,
    ) -> list[int]:
        """Moves these messages, or up to `limit` after `after`; returns the lookup ids they had. One commit."""
        queue = self.core.queues.get(name)
        to = self.core.queues.get(target)
        if queue is to:
            raise InvalidArgument(f"target: must be another queue, got {target}, where the messages are")
        if lookup_ids is None:
            records = self.core.delivery.fresh(queue, limit, self.clock(), after)
        else:
            records = [
                self.core.reading.seek(queue, lookup_id, SeekAction.CURRENT, peek=False)
                for lookup_id in dict.fromkeys(lookup_ids)
            ]
        await self.durably(lambda: self.core.move(queue, to, records, self.clock()))
        return [record.lookup_id for record in records]

    async def insert(self, name: Name, packets: Sequence[bytes]) -> list[int]:
        """Puts whole packets into a local queue, byte for byte, without acknowledging them."""
        queue = self.core.queues.get(name)
        views = [MessageView(packet) for packet in packets]
        return await self.durably(lambda: self.core.insert(queue, views, self.clock()))
