"""Limits that were reached, and commits that failed: in the log each kind once, and again after a while.

What is counted is counted where it happens.
"""

from __future__ import annotations

import logging

from postroad.queues.durability import Durability
from postroad.queues.local import LocalQueueManager

log = logging.getLogger(__name__)

AGAIN_S = 60.0


class Troubles:
    """`look` as often as you like."""

    def __init__(self, core: LocalQueueManager, durability: Durability) -> None:
        self._core = core
        self._durability = durability
        self._told: dict[str, tuple[int, float]] = {}  # by event: how many there were, and when that was said

    def look(self, now: float) -> str | None:
        """Why nothing more is stored; None while there is room."""
        delivery, idle = self._core.delivery, self._core.queues.idle
        full = self._durability.look()
        copies, names = sum(delivery.overflows.values()), list(delivery.overflows)
        self._tell("commits failed", self._durability.failures, now, last=self._durability.last_failure)
        self._tell("copies dropped, for a journal or dead-letter queue is full", copies, now, queues=names)
        self._tell("outgoing queues refused, for there are too many", idle.refused, now, limit=idle.limit)
        return full

    def _tell(self, event: str, count: int, now: float, **facts: object) -> None:
        told, at = self._told.get(event, (0, 0.0))
        if count > told and not 0 <= now - at < AGAIN_S:
            self._told[event] = count, now
            log.warning(event, extra={"count": count - told, **facts})
