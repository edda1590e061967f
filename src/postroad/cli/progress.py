"""A progress bar on stderr, only on a terminal, and only when something takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0


class Bar:
    """`with Bar("moving", total) as bar: ... bar.advance(n)`; a total of None is not known."""

    def __init__(self, what: str, total: int | None) -> None:
        self.done = 0
        self._what = what
        self.total = total
        self._started = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, count: int) -> None:
        self.done += count
        if self._progress is None and time.monotonic() - self._started > PATIENCE_S and sys.stderr.isatty():
            self._show()
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self.done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(self._what, total=self.total)
        self._progress.start()
