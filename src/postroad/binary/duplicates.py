"""MessageIDHistoryTable, [MS-MQQB] 3.1.1.3: which messages have come already, so that none is delivered twice.

Transactional messages are not in it: their sequence numbers say as much.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct

from postroad.queues.tick import Tick
from postroad.store.interface import Store

HISTORY_STATE = "history/"
_ENTRY = Struct("<20sI")


class MessageIdHistory:
    """The newest `size` ids, each with the time it was last seen. Kept in the store in blocks, one for each tick."""

    def __init__(self, store: Store, size: int, lifetime_s: int) -> None:
        self.size = size
        self.lifetime_s = lifetime_s
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._blocks: OrderedDict[str, int] = OrderedDict()  # by name: how many ids they hold
        self._gathering: list[bytes] = []
        self._tick: Tick | None = None
        self._next_block = 0
        for name, block in sorted(store.state(HISTORY_STATE).items()):
            entries = list(_ENTRY.iter_unpack(block))
            self._seen.update(entries)
            self._blocks[name] = len(entries)
            self._next_block = int(name.removeprefix(HISTORY_STATE)) + 1

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._seen

    def seen_at(self, identifier: bytes) -> int | None:
        """When a message came last, in seconds; None for one that did not, or that is forgotten."""
        return self._seen.get(identifier)

    def refresh(self, identifier: bytes, now: float) -> None:
        """3.1.5.8.1: a duplicate came, so more may."""
        self._seen[identifier] = int(now)
        self._seen.move_to_end(identifier)

    def add(self, identifier: bytes, now: float, tick: Tick | None) -> None:
        """3.1.5.8.2. With a tick the id becomes durable with the message; an express one's is only remembered."""
        self._seen[identifier] = int(now)
        if len(self._seen) > self.size:
            self._seen.popitem(last=False)
        if tick is None:
            return
        if tick is not self._tick:
            self._tick = tick
            self._gathering = []
            self._next_block += 1
        self._gathering.append(_ENTRY.pack(identifier, int(now)))
        name = f"{HISTORY_STATE}{self._next_block:012d}"
        self._blocks[name] = len(self._gathering)
        tick.set_state(name, b"".join(self._gathering))
        tick.on_failure.append(lambda _: self._forget(identifier))
        self._drop_old_blocks(tick)

    def _forget(self, identifier: bytes) -> None:
        self._seen.pop(identifier, None)

    def _drop_old_blocks(self, tick: Tick) -> None:
        total = sum(self._blocks.values())
        while len(self._blocks) > 1 and total - next(iter(self._blocks.values())) >= self.size:
            name, count = self._blocks.popitem(last=False)
            total -= count
            tick.set_state(name, None)

    @property
    def deadline(self) -> float | None:
        """MessageIDHistory Cleanup Timer, 3.1.2.8: it runs as long as there is something to forget."""
        oldest = next(iter(self._seen.values()), None)
        return None if oldest is None else oldest + self.lifetime_s + 1

    def clean(self, now: float) -> None:
        """3.1.6.7: ids that nobody has repeated for long are forgotten."""
        while self._seen and next(iter(self._seen.values())) < now - self.lifetime_s:
            self._seen.popitem(last=False)
