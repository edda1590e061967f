"""The audit log: one JSON line for each administrative change, refused login, refused call and refused message.

A line says who did what, when, from where, and with which outcome. It never has messages or secrets.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from postroad.runtime.private_files import open_private

LOGIN_REFUSED: Final = "login refused"
ACCESS_REFUSED: Final = "access refused"  # to a user who lacks the right
MESSAGE_REFUSED: Final = "message refused"  # for its signature, its encryption or its sender
DONE: Final = "done"
_REFUSALS = frozenset({LOGIN_REFUSED, ACCESS_REFUSED, MESSAGE_REFUSED})
# Unknown callers cause these lines and must not fill the disk: further ones of a minute are counted in the next line.
MAX_REFUSED_A_MINUTE: Final = 60
MAX_RECENT: Final = 500  # lines that are kept in memory
MAX_TEXT: Final = 1024  # of one fact: names of queues are shorter, and a line is written in one piece
_ERROR_EVERY_S: Final = 60.0
_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)  # a pipe without a reader must not block us

log = logging.getLogger(__name__)


class AuditLog:
    """Appends to `file`, which is opened for each line, so a moved file is created again. None: no file, but `recent`
    has the last lines since the start.

    If a line cannot be written, the log gets an error, at most one a minute, and the operation goes on.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self.file = file
        self.recent: deque[dict[str, object]] = deque(maxlen=MAX_RECENT)  # the newest first
        self.lost = 0  # lines that could not be written
        self._clock = clock
        self._told = float("-inf")
        self._torn = False
        self._minute = 0
        self._refused: Counter[str] = Counter()  # lines of this minute, by event

    def check(self) -> None:
        """Raises OSError if the file cannot be written; makes it if it is not there."""
        if self.file is not None:
            os.close(open_private(self.file, _FLAGS))

    def __call__(
        self, event: str, *, who: str | None = None, address: str | None = None, outcome: str = DONE, **facts: Any
    ) -> None:
        """`who` is "token", "local", a user or a certificate's subject; `address` is where the call came from."""
        now = self._clock()
        if event in _REFUSALS:
            outcome = "refused"
            minute = int(now // 60)
            if minute != self._minute:
                self._minute = minute
                if unlisted := self._refused.total() - sum(
                    min(each, MAX_REFUSED_A_MINUTE) for each in self._refused.values()
                ):
                    facts["not_listed_before"] = unlisted
                self._refused.clear()
            self._refused[event] += 1
            if self._refused[event] > MAX_REFUSED_A_MINUTE:
                return
        when = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"when": when, "who": who, "from": address, "what": event, **facts, "outcome": outcome}
        line = {name: _short(value) for name, value in line.items()}
        self.recent.appendleft(line)
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
            if not 0 <= now - self._told < _ERROR_EVERY_S:
                self._told = now
                facts = {"file": self.file, "reason": error.strerror, "lost": self.lost}
                log.error("audit log not written", extra=facts)


def _short(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
