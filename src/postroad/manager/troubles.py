"""Logs what goes wrong in a running manager: each kind once, and again after a while.

Other parts count the events where they happen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from postroad.describe.packets import destination_text
from postroad.names import MessageId
from postroad.queues.durability import Durability
from postroad.queues.local import LocalQueueManager
from postroad.queues.outgoing_queues import Watcher
from postroad.queues.owners import Held
from postroad.reports.trace import class_words
from postroad.runtime.logs import RateLimitedLog, place_of
from postroad.wire.view import MessageView

log = logging.getLogger(__name__)

AGAIN_S = 60.0


class Troubles:
    """Logs troubles. `look` may be called any number of times."""

    def __init__(self, core: LocalQueueManager, durability: Durability, clock: Callable[[], float]) -> None:
        self._core = core
        self._durability = durability
        self._clock = clock
        self._told: dict[str, tuple[int, float]] = {}  # by event: the count and the time of its last line
        self._held = {kind: RateLimitedLog(log, "limit reached", burst=1) for kind in Held}
        self._follow_ups = RateLimitedLog(log, "follow-up of a change failed; the change is kept")
        self._deaths = RateLimitedLog(log, "message died", level=logging.INFO)
        self._lost_letters = RateLimitedLog(log, "dead letter lost: its queue is full")
        core.watch(Watcher(follow_up_failed=self._follow_up_failed, died=self._died, limit_reached=self._reached))

    def look(self, now: float) -> str | None:
        """Logs what is new. Returns why nothing more is stored, or None while there is room."""
        delivery, idle = self._core.delivery, self._core.queues.idle
        full = self._durability.look()
        copies, names = sum(delivery.overflows.values()), list(delivery.overflows)
        self._tell("commits failed", self._durability.failures, now, last=self._durability.last_failure)
        self._tell("copies dropped, because a journal or dead-letter queue is full", copies, now, queues=names)
        self._tell("outgoing queues refused, because there are too many", idle.refused, now, limit=idle.limit)
        return full

    def _reached(self, kind: Held, owner: str) -> None:
        facts = {"limit": kind.setting, "maximum": self._core.owners.maximum[kind], "owner": owner}
        self._held[kind].warn(self._clock(), facts)

    def _follow_up_failed(self, message_id: str | None, error: Exception) -> None:
        facts = {"id": message_id, "error": repr(error), "at": place_of(error)}
        self._follow_ups.warn(self._clock(), facts)

    def _died(self, queue: str | None, packet: bytes, reason: int, letter: str | None, lost: bool) -> None:
        def facts() -> dict[str, object]:
            view = MessageView(packet)
            return {
                "queue": queue or destination_text(view),
                "id": str(MessageId(view.source_queue_manager, view.message_id)),
                "reason": class_words(reason),
                "label": view.label,
                "dead_letter": letter or "not asked for",
            }

        (self._lost_letters if lost else self._deaths).warn(self._clock(), facts)

    def _tell(self, event: str, count: int, now: float, **facts: object) -> None:
        told, at = self._told.get(event, (0, 0.0))
        if count > told and not 0 <= now - at < AGAIN_S:
            self._told[event] = count, now
            log.warning(event, extra={"count": count - told, **facts})
