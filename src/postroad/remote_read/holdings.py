"""How much each remote reader holds, and the limits of it. The rules of reading are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from postroad.rpc.caller import Caller

# What one user, or one address without a user, may hold over all its connections.
MAX_QUEUES: Final = 4096
MAX_CURSORS: Final = 4096
MAX_READS: Final = 8192  # reads that wait
MAX_UNACKNOWLEDGED_OCTETS: Final = 256 << 20  # of messages handed out; the last message may exceed it


@dataclass(slots=True)
class Holdings:
    """Of one reader."""

    queues: int = 0
    cursors: int = 0
    reads: int = 0
    octets: int = 0


class HoldingsByReader:
    """Readers exist while they have a queue open; everything else they hold belongs to one."""

    def __init__(self) -> None:
        self._table: dict[tuple[str, str | None], Holdings] = {}

    def __len__(self) -> int:
        return len(self._table)

    def open(self, caller: Caller) -> Holdings | None:
        """Counts one more queue; None if that is too many."""
        holdings = self._table.setdefault(_reader(caller), Holdings())
        if holdings.queues >= MAX_QUEUES:
            return None
        holdings.queues += 1
        return holdings

    def close(self, caller: Caller) -> None:
        reader = _reader(caller)
        holdings = self._table[reader]
        holdings.queues -= 1
        if not holdings.queues:
            del self._table[reader]


def _reader(caller: Caller) -> tuple[str, str | None]:
    return ("", caller.user) if caller.user is not None else (caller.address, None)
