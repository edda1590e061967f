"""The audit log: one JSON line for each administrative change, refused login, refused call and refused message.

A line says who did what, when, from where, and with what outcome. It never contains messages or secrets.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import count, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from postroad.runtime.private_files import open_private

LOGIN_REFUSED: Final = "login refused"
ACCESS_REFUSED: Final = "access refused"  # the user lacks the right
MESSAGE_REFUSED: Final = "message refused"  # because of its signature, its encryption or its sender
DONE: Final = "done"
REFUSED: Final = "refused"
_REFUSALS = frozenset({LOGIN_REFUSED, ACCESS_REFUSED, MESSAGE_REFUSED})
# Refused callers must not fill the disk or hide a change. Refusals beyond these limits are counted, and reported once a
# minute.
MAX_REFUSED_A_MINUTE: Final = 60  # lines for one event
MAX_OF_A_CALLER: Final = 5  # of these, lines for one caller
MAX_COUNTED: Final = 100  # callers that are counted one by one
MAX_RECENT: Final = 500  # changes kept in memory, and as many refusals
MAX_TEXT: Final = 1024  # of one fact: queue names are shorter, and each line must be written in one piece
_ERROR_EVERY_S: Final = 60.0
_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)  # a pipe without a reader must not block the manager

Line = dict[str, object]
Refused = tuple[str, str | None, str | None]  # the event, who, and from where

log = logging.getLogger(__name__)


class AuditLog:
    """Appends to `file`. It opens the file for each line, so a file that was moved away is created again. None means no
    file; `recent` still has the last lines since the start.

    Each change gets a line. A refusal is anything that was not done. Each caller gets a few lines per minute, then one
    line with a count.

    If a line cannot be written, the log gets an error, at most once a minute, and the operation goes on.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self.file = file
        self._changes: deque[tuple[int, Line]] = deque(maxlen=MAX_RECENT)  # numbered, the newest first
        self._refusals: deque[tuple[int, Line]] = deque(maxlen=MAX_RECENT)
        self.lost = 0  # lines that could not be written
        self._clock = clock
        self._reported_at = float("-inf")
        self._torn = False
        self._numbers = count()
        self._minute = 0
        self._listed: Counter[str] = Counter()  # lines of this minute, by event
        self._of_callers: Counter[Refused] = Counter()  # lines of this minute, by event and caller
        self._unlisted: Counter[Refused] = Counter()  # refusals of this minute that got no line

    def check(self) -> None:
        """Creates the file if it does not exist. Raises OSError if it cannot be written."""
        if self.file is not None:
            os.close(open_private(self.file, _FLAGS))

    def __call__(
        self, event: str, *, who: str | None = None, address: str | None = None, outcome: str = DONE, **facts: Any
    ) -> None:
        """Records an event. `who` is "token", "local", a user or a certificate's subject; `address` is the caller's."""
        now = self._clock()
        self.run_timers(now)
        if event in _REFUSALS:
            outcome = REFUSED
        if outcome != DONE and not self._admit((event, who, address)):
            return
        self._write(now, event, who, address, outcome, facts)

    @property
    def recent(self) -> list[Line]:
        """The latest lines, the newest first."""
        return self.latest(2 * MAX_RECENT)

    def latest(self, most: int) -> list[Line]:
        """The latest lines, the newest first. Refusals take at most half of the places from changes."""
        changes = min(len(self._changes), max(most - most // 2, most - len(self._refusals)))
        found = [*islice(self._changes, changes), *islice(self._refusals, most - changes)]
        return [line for _, line in sorted(found, key=itemgetter(0), reverse=True)]

    def run_timers(self, now: float) -> None:
        """Once a minute has passed, writes how many refusals of that minute got no line."""
        minute = int(now // 60)
        if minute == self._minute:
            return
        self._minute = minute
        more, self._unlisted = self._unlisted, Counter()
        self._listed.clear()
        self._of_callers.clear()
        for (event, who, address), times in more.items():
            self._write(now, event, who, address, REFUSED, {"times": times})

    def _admit(self, refused: Refused) -> bool:
        """Whether a refusal gets a line of its own. If not, counts it."""
        event, _, _ = refused
        if self._listed[event] < MAX_REFUSED_A_MINUTE and self._of_callers[refused] < MAX_OF_A_CALLER:
            self._listed[event] += 1
            self._of_callers[refused] += 1
            return True
        known = refused in self._unlisted or len(self._unlisted) < MAX_COUNTED
        self._unlisted[refused if known else (event, None, None)] += 1
        return False

    def _write(
        self,
        now: float,
        event: str,
        who: str | None,
        address: str | None,
        outcome: str,
        facts: Mapping[str, object],
    ) -> None:
        when = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"when": when, "who": who, "from": address, "what": event, **facts, "outcome": outcome}
        line = {name: _short(value) for name, value in line.items()}
        (self._changes if outcome == DONE else self._refusals).appendleft((next(self._numbers), line))
        if self.file is not None:
            self._append(json.dumps(line), now)

    def _append(self, line: str, now: float) -> None:
        assert self.file is not None
        data = f"{chr(10) if self._torn else ''}{line}\n".encode()
        try:
            descriptor = open_private(self.file, _FLAGS)
            try:
                written = os.write(descriptor, data)
            finally:
                os.close(descriptor)
            if written != len(data):
                self._torn = True
                raise OSError(0, f"{written} of {len(data)} bytes were written")
            self._torn = False
        except OSError as error:
            self.lost += 1
            if not 0 <= now - self._reported_at < _ERROR_EVERY_S:
                self._reported_at = now
                facts = {"file": self.file, "reason": error.strerror, "lost": self.lost}
                log.error("audit log not written", extra=facts)


def _short(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
