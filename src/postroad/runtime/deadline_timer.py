"""The event loop's one timer for the next deadline of a service without I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroad.runtime.supervision import RETRY_S, Supervisor


class DeadlineTimer:
    """Calls `step` when the deadline has come. A step that fails is due again after RETRY_S."""

    def __init__(
        self, name: str, supervisor: Supervisor, clock: Callable[[], float], step: Callable[[float], object]
    ) -> None:
        self._name = name
        self._supervisor = supervisor
        self._clock = clock
        self._step = step
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = 0.0
        self._not_before = 0.0  # of the next step, after a failure

    def arm(self, deadline: float | None, after: Callable[[], object]) -> None:
        """`after` is called behind the step: the next deadline may be another one."""
        if deadline is None or (self._timer is not None and self._armed_at <= deadline):
            return  # a timer that fires early does nothing
        self.cancel()
        self._armed_at = deadline = max(deadline, self._not_before)
        wait = max(0.0, deadline - self._clock())
        self._timer = asyncio.get_running_loop().call_later(wait, self._fire, after)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, after: Callable[[], object]) -> None:
        self._timer = None
        if not self._supervisor.step(self._name, lambda: self._step(self._clock())):
            self._not_before = self._clock() + RETRY_S  # what failed is still due
        after()
