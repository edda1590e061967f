"""A change of several steps: all of it or none, and what follows from it once it stands.

What follows is told last, so that nothing has been said to anybody while the change can still fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.queues.delivery import Delivery
    from postroad.queues.tick import Tick

FollowUp = Callable[..., None]


class Atomic:
    """`with atomic:` around the steps; within another one it is a part of that, which can fail by itself.

    An exception within leaves memory, express messages and the gathering tick as they were, and nothing follows.
    Numbers that were given out stay given out.
    """

    __slots__ = ("_delivery", "_marks", "follow_ups")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._marks: list[tuple[Tick, int, int, int, int, int, int, int]] = []
        self.follow_ups: list[tuple[FollowUp, tuple[object, ...]]] = []

    @property
    def open(self) -> bool:
        return bool(self._marks)

    def then(self, follow_up: FollowUp, *arguments: object) -> None:
        """Runs what follows when the change stands: at once where none is open. It must not raise."""
        if self._marks:
            self.follow_ups.append((follow_up, arguments))
        else:
            follow_up(*arguments)

    def __enter__(self) -> None:
        tick = self._delivery.tick
        if tick.steps is None:
            tick.steps = []
        self._marks.append(
            (
                tick,
                len(tick.steps),
                len(self.follow_ups),
                tick.writes,
                len(tick.on_seal),
                len(tick.on_commit),
                len(tick.on_failure),
                len(tick.undo),
            )
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        tick, steps, follow_ups, writes, on_seal, on_commit, on_failure, undo = self._marks.pop()
        assert tick.steps is not None
        if kind is not None:
            go = self._delivery.try_after  # whatever one of them meets, the others are taken back
            for step, *arguments in reversed(tick.steps[steps:]):
                go(None, step, *arguments)
            for back in reversed(tick.undo[undo:]):
                go(None, back, tick)
            del tick.undo[undo:], tick.on_failure[on_failure:], tick.on_commit[on_commit:], tick.on_seal[on_seal:]
            del tick.steps[steps:], self.follow_ups[follow_ups:]
            tick.writes = writes
        if not self._marks:
            tick.steps = None
            if self.follow_ups:
                waiting, self.follow_ups = self.follow_ups, []
                for follow_up, each in waiting:
                    follow_up(*each)
