"""Limits that were reached, a full disk and commits that failed: in the log each kind once, and again after a while.

What is counted is counted where it happens.
"""

from __future__ import annotations

import logging

from postroad.queues.commits import Commits
from postroad.queues.local import LocalQueueManager
from postroad.store.writer import Writer

log = logging.getLogger(__name__)

AGAIN_S = 60.0


class Troubles:
    """`look` as often as you like: while the disk is full, nothing is added to the queues."""

    def __init__(self, core: LocalQueueManager, commits: Commits, writer: Writer) -> None:
        self._core = core
        self._commits = commits
        self._writer = writer
        self._told: dict[str, tuple[int, float]] = {}  # by event: how many there were, and when that was said

    def look(self, now: float) -> str | None:
        """Why nothing more is stored; None while there is room."""
        delivery, idle = self._core.delivery, self._core.queues.idle
        before, full = delivery.full, self._core.store.no_room()
        delivery.full = full
        if full is not None:
            self._writer.tidy()
            if before is None:
                log.error("disk full", extra={"reason": full})
        elif before is not None:
            log.info("disk has room again")
        copies, names = sum(delivery.overflows.values()), list(delivery.overflows)
        self._tell("commits failed", self._commits.failures, now, last=self._commits.last_failure)
        self._tell("copies dropped, for a journal or dead-letter queue is full", copies, now, queues=names)
        self._tell("outgoing queues refused, for there are too many", idle.refused, now, limit=idle.limit)
        return full

    def _tell(self, event: str, count: int, now: float, **facts: object) -> None:
        told, at = self._told.get(event, (0, 0.0))
        if count > told and not 0 <= now - at < AGAIN_S:
            self._told[event] = count, now
            log.warning(event, extra={"count": count - told, **facts})
