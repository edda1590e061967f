"""Hours that are unlike the others of their queue: by the number of messages, their latency, and why messages died.

The method is the median and the median absolute deviation (MAD), which a few odd hours do not move: an hour is unusual
if it is more than LIMIT deviations from the median of its queue. A deviation is 1.4826 MAD, the standard deviation of
normal values; it counts as no less than what chance does to the count, which is the square root of the median, and no
less than a twentieth of the median: thousands of messages more are nothing for a queue that has millions. A queue that
is empty in most hours has no usual number of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt
from statistics import median
from typing import Any

LIMIT = 6.0
FEWEST_HOURS = 8  # of a queue: less is no habit
NORMAL = 1.4826
SHARE = 0.05  # of the median: a deviation is no less
LEAST = 1.0  # a deviation is no less than one message, or one second
HOUR = timedelta(hours=1)
SILENT = timedelta(days=1)  # a queue without messages for longer has a new habit


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`kind` is volume, latency or the reason that messages died of. `usual` is the median of all hours, `times` how
    many deviations the hour is away from it; `messages` are those of the hour."""

    hour: datetime
    queue: str
    kind: str
    value: float
    usual: float
    deviation: float
    messages: int

    @property
    def times(self) -> float:
        return (self.value - self.usual) / self.deviation


def anomalies(rows: Iterable[Mapping[str, Any]], as_of: datetime) -> list[Anomaly]:
    """From rows of gold/hours, the newest first. The hour of `as_of` is not over: few messages in it are no sign."""
    by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["queue"] is not None and row["hour"] is not None:
            by_queue.setdefault(row["queue"], []).append(row)
    found = [each for queue, some in by_queue.items() for each in _of_queue(queue, some, as_of)]
    return sorted(found, key=lambda each: (each.hour, abs(each.times)), reverse=True)


def _of_queue(queue: str, rows: list[Mapping[str, Any]], as_of: datetime) -> Iterator[Anomaly]:
    volume = {row["hour"]: row["messages"] for row in rows if row["reason"] is None}
    if not volume:
        return
    first, busy = min(volume), max(row["hour"] for row in rows)
    last = max(busy, min(as_of - HOUR, busy + SILENT))
    every = [first + number * HOUR for number in range((last - first) // HOUR + 1)]
    counts = {hour: float(volume.get(hour, 0)) for hour in every}
    for hour, usual, deviation in _odd(counts):
        if usual and (counts[hour] > usual or hour + HOUR <= as_of):
            yield Anomaly(hour, queue, "volume", counts[hour], usual, deviation, int(counts[hour]))
    took = {row["hour"]: row["receive_p50_s"] for row in rows if row["receive_p50_s"] is not None}
    for hour, usual, deviation in _odd(took, chance=False):
        if took[hour] > usual:
            yield Anomaly(hour, queue, "latency", took[hour], usual, deviation, volume.get(hour, 0))
    for reason in sorted({row["reason"] for row in rows if row["reason"] is not None}):
        died = dict.fromkeys(every, 0.0)
        for row in rows:  # one for each day of the send
            if row["reason"] == reason:
                died[row["hour"]] = died.get(row["hour"], 0.0) + row["messages"]
        for hour, usual, deviation in _odd(died):
            if died[hour] > usual:
                yield Anomaly(hour, queue, reason, died[hour], usual, deviation, int(died[hour]))


def _odd(values: Mapping[datetime, float], *, chance: bool = True) -> Iterator[tuple[datetime, float, float]]:
    """The hours that are unusual, with the median and the deviation."""
    if len(values) < FEWEST_HOURS:
        return
    usual = median(values.values())
    spread = median(abs(value - usual) for value in values.values())
    deviation = max(NORMAL * spread, sqrt(usual) if chance else 0.0, SHARE * usual, LEAST)
    for hour, value in values.items():
        if abs(value - usual) > LIMIT * deviation:
            yield hour, usual, deviation
