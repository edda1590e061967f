"""The log on stderr: one line for each event, as text for people or as JSON for machines.

Modules log with the standard library, `log.info("queue created", extra={"queue": path})`: an event and its facts.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

ROOT = "postroad"
TABLE = "table"
# The attributes of every LogRecord. Any other attribute came from `extra` and is a fact.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/\\$;@,+{}[]()<>%~*")


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    if record.exc_info and record.exc_info[1] is not None:
        facts["error"] = repr(record.exc_info[1])
        facts["traceback"] = logging.Formatter().formatException(record.exc_info)
    return facts


class TextFormatter(logging.Formatter):
    r"""`2024-05-17T09:30:00.123Z info queue created queue=private$\orders`; a value with spaces is quoted.

    The fact `table`, a list of rows with the same keys, follows the line as columns.
    """

    def format(self, record: logging.LogRecord) -> str:
        given = _facts(record)
        table = given.pop(TABLE, None)
        facts = "".join(f" {name}={_plain(value)}" for name, value in given.items())
        line = f"{_time(record)} {record.levelname.lower()} {_one_line(record.getMessage())}{facts}"
        return "\n  ".join([line, *(_columns(table) if isinstance(table, list) else ())])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `event` and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(_facts(record) | line, default=str)


class RateLimitedLog:
    """Events of one kind, logged as warnings unless `level` says otherwise. It logs the first few in each interval; the
    last of these says that further ones are suppressed."""

    def __init__(
        self,
        log: logging.Logger,
        event: str,
        burst: int = 20,
        interval_s: float = 30.0,
        level: int = logging.WARNING,
    ) -> None:
        self._log = log
        self._event = event
        self._burst = burst
        self._interval_s = interval_s
        self._level = level
        self._since = 0.0
        self._warned = 0

    def warn(self, now: float, facts: Mapping[str, object] | Callable[[], Mapping[str, object]]) -> None:
        """Give facts that cost time as a function: it is called only if a line is written."""
        if not 0 <= now - self._since < self._interval_s:
            self._since, self._warned = now, 0
        self._warned += 1
        if self._warned > self._burst:
            return
        event, extra = self._event, dict(facts() if callable(facts) else facts)
        if self._warned == self._burst:
            kind = "warnings" if self._level >= logging.WARNING else "lines"
            event += f": further {kind} of this kind are suppressed for {self._interval_s:g} s"
        self._log.log(self._level, event, extra=extra)


class RateLimitedLogs:
    """Does the same for events of many kinds, each with its own limit."""

    def __init__(self, log: logging.Logger, burst: int = 20) -> None:
        self._log = log
        self._burst = burst
        self._kinds: dict[str, RateLimitedLog] = {}

    def warn(self, event: str, now: float, facts: Mapping[str, object]) -> None:
        kind = self._kinds.get(event)
        if kind is None:
            kind = self._kinds[event] = RateLimitedLog(self._log, event, self._burst)
        kind.warn(now, facts)


class Flood(logging.Filter):
    """Limits records of libraries, and all tracebacks, to a few of each kind in an interval.

    Strangers can cause both as often as they like. Our own modules limit their events where they log them.
    """

    def __init__(self, burst: int = 10, interval_s: float = 30.0, kinds: int = 1000) -> None:
        super().__init__()
        self._burst = burst
        self._interval_s = interval_s
        self._kinds = kinds
        self._since = 0.0
        self._seen: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.exc_info and record.name.partition(".")[0] == ROOT:
            return True
        if not 0 <= record.created - self._since < self._interval_s:
            self._since = record.created
            self._seen.clear()
        kind = (record.name, str(record.msg).partition("\n")[0])
        if kind not in self._seen and len(self._seen) >= self._kinds:
            kind = ("", "")
        self._seen[kind] += 1
        if self._seen[kind] == self._burst:
            record.suppressed = f"further ones of this kind for {self._interval_s:g} s"  # a fact of the last line
        return self._seen[kind] <= self._burst


def place_of(error: BaseException) -> str | None:
    """The place where an error was raised, for people who search for the cause."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].name}, {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def _plain(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)


def _columns(rows: list[Mapping[str, object]]) -> list[str]:
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(str(value))[1:-1]


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if line.isprintable() else json.dumps(line)[1:-1]


def set_level(level: int) -> None:
    """From now on, logs our own events of `level` and above."""
    logging.getLogger(ROOT).setLevel(level)


def level_name() -> str:
    return logging.getLevelName(logging.getLogger(ROOT).getEffectiveLevel()).lower()


def start_logging(*, as_json: bool = False, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Logs our own events of `level` and above to `stream` (default: stderr). Of libraries, only warnings and
    errors."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler.addFilter(Flood())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    set_level(level)
