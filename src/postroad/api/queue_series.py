"""Which queues have metrics of their own: a bounded number, to spare the monitoring system. The others share one.

No sample of a counter ever falls: a queue keeps its series while it exists, and one of the others stays there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from postroad.values.info import QueueInfo

OTHERS = "(others)"
_LAST = frozenset({"system", "journal", "subqueue"})  # the kinds that applications do not work with directly
_SUMS = ("messages", "bytes", "locked", "readers", "waiting", "damaged", "unsent", "in_flight", "unacknowledged")


class QueueSeries:
    """The first `limit` queues that it sees: at the first look those of applications first, then in order of creation.
    A place that becomes free goes to the next new queue."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._own: set[str] = set()
        self._shared: dict[str, tuple[int, int, int]] = {}  # what was counted of each of the others
        self._counted = (0, 0, 0)  # messages in and out and failures, of all others that ever were

    def of(self, queues: Sequence[QueueInfo]) -> list[QueueInfo]:
        """Queues as the metrics show them; the last one stands for the others, if there are any."""
        ids = {queue.id for queue in queues}
        self._own &= ids
        self._shared = {each: counts for each, counts in self._shared.items() if each in ids}
        new = [queue for queue in queues if queue.id not in self._own and queue.id not in self._shared]
        new.sort(key=lambda queue: queue.type in _LAST or queue.is_internal)
        free = max(0, self.limit - len(self._own))
        self._own |= {queue.id for queue in new[:free]}
        self._shared |= {queue.id: (0, 0, 0) for queue in new[free:]}
        shown = [queue for queue in queues if queue.id in self._own]
        others = [queue for queue in queues if queue.id in self._shared]
        return [*shown, self._together(others)] if others else shown

    def _together(self, others: Sequence[QueueInfo]) -> QueueInfo:
        for queue in others:
            counts = queue.messages_in, queue.messages_out, queue.failures
            grown = (max(0, now - before) for now, before in zip(counts, self._shared[queue.id], strict=True))
            self._counted = _sum(self._counted, grown)
            self._shared[queue.id] = counts
        messages_in, messages_out, failures = self._counted
        sums = {name: sum(getattr(queue, name) for queue in others) for name in _SUMS}
        outgoing = [queue for queue in others if queue.state is not None]
        return replace(
            others[0],
            path=OTHERS,
            type=OTHERS,
            id="",
            quota_kb=_all_quotas(others),
            oldest_arrived_ms=min((each.oldest_arrived_ms for each in others if each.oldest_arrived_ms), default=None),
            messages_in=messages_in,
            messages_out=messages_out,
            failures=failures,
            state=outgoing[0].state if outgoing else None,
            stuck=any(queue.stuck for queue in outgoing),
            **sums,
        )


def _sum(counted: tuple[int, int, int], grown: Iterable[int]) -> tuple[int, int, int]:
    first, second, third = (one + other for one, other in zip(counted, grown, strict=True))
    return first, second, third


def _all_quotas(queues: Sequence[QueueInfo]) -> int | None:
    """Their sum; None, which is no limit, if one of them has none."""
    quotas = [queue.quota_kb for queue in queues]
    return None if None in quotas else sum(each for each in quotas if each is not None)
