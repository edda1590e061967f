"""Outgoing queues that nobody needs any more: forgotten once they are old, or sooner where there are too many.

Strangers cause outgoing queues, so that their number has a limit. Nothing here touches a queue that has messages.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from postroad.errors import LimitReached
from postroad.queues.outgoing import OutgoingState
from postroad.queues.queue import Queue
from postroad.queues.tick import Tick

if TYPE_CHECKING:
    from postroad.queues.collection import QueueCollection

MAX_OUTGOING = 10_000
OWN_SHARE = 10  # one part in so many of the limit is for local applications: strangers cannot use up all of it
FORGET_AFTER_S = 600.0
SWEEP_S = 60.0
AT_ONCE = 1000  # that many are forgotten in one tick
JUST_MADE_S = 2  # a send to several queues makes them all before it puts a message into one


class IdleQueues:
    """`needed` says of a queue without messages that it must stay."""

    def __init__(self, queues: QueueCollection) -> None:
        self.limit = MAX_OUTGOING
        self.refused = 0  # that were to be made, since the start
        self.needed: list[Callable[[Queue], bool]] = []
        self._queues = queues
        self._empty_since: dict[Queue, float] = {}
        self._sweep_at = 0.0
        self._full_at = -1  # the second in which none could be forgotten: one search of all of them is enough

    def sweep(self, tick: Tick, now: float) -> None:
        """Forgets those that have had no message for long. Call it as often as you like."""
        if 0 <= self._sweep_at - now <= SWEEP_S:
            return
        self._sweep_at = now + SWEEP_S
        before, self._empty_since = self._empty_since, {}
        for queue in list(self._queues.outgoing.values()):
            if self._is_idle(queue):
                self._empty_since[queue] = max(before.get(queue, now), queue.last_added_at)
        old = (queue for queue, since in self._empty_since.items() if now - since >= FORGET_AFTER_S)
        for queue in list(islice(old, AT_ONCE)):
            self._forget(tick, queue)

    def make_room(self, tick: Tick, now_s: int, *, own: bool) -> None:
        """There is to be one more, for a local application or not: those that were unused longest go, if need be."""
        limit = self.limit if own else self.limit - self.limit // OWN_SHARE
        if len(self._queues.outgoing) < limit:
            return
        if now_s != self._full_at:
            idle = [
                queue
                for queue in self._queues.outgoing.values()
                if self._last_used(queue) < now_s - JUST_MADE_S and self._is_idle(queue)
            ]
            idle.sort(key=self._last_used)
            for queue in idle[: len(self._queues.outgoing) - limit + max(1, limit // 100)]:
                self._forget(tick, queue)
        if len(self._queues.outgoing) >= limit:
            self._full_at = now_s
            self.refused += 1
            raise LimitReached(
                f"the queue manager has {len(self._queues.outgoing)} outgoing queues and makes no more: wait until "
                "some are empty, delete some, or raise outgoing_queues in [limits]",
                "outgoing_queues in [limits]",
            )

    @staticmethod
    def _last_used(queue: Queue) -> float:
        return max(queue.last_added_at, queue.properties.create_time)

    def _is_idle(self, queue: Queue) -> bool:
        return not (
            queue.count
            or queue.used_bytes
            or queue.positions
            or queue.descriptors
            or queue.waiting
            or queue.holds
            or self._queues.outgoing_info[queue].state is OutgoingState.ON_HOLD
            or any(needs(queue) for needs in self.needed)
        )

    def _forget(self, tick: Tick, queue: Queue) -> None:
        self._empty_since.pop(queue, None)
        carrier = queue.carrier
        self._queues.remove(tick, queue)
        if carrier is not None:
            carrier.forget(queue)
