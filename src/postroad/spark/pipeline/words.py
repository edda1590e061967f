"""Figures as people write them: times, sizes, counts, moments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime


def seconds(value: float | None) -> str:
    """A time such as `0.4 s`, `12 s`, `3 min` or `2.5 h`."""
    if value is None:
        return "-"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def between(least: float | None, most: float | None) -> str:
    """A time between two bounds, such as `0.28 to 1.3 s`, `up to 0.7 s`, or `3 min` if the bounds read the same."""
    low, high = seconds(least), seconds(most)
    if least is None or low == high:
        return high
    if low == seconds(0.0):
        return f"up to {high}"
    number, _, unit = low.rpartition(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def age(since: datetime | None, until: datetime) -> float | None:
    """The seconds between two times, never below 0. None if the first is unknown."""
    return None if since is None else max(0.0, (until - since).total_seconds())


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 or what == 'more' else 's'}"


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def size(value: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def moment(at: datetime | None) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
