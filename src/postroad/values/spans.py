"""Lengths of time as people say them."""

from __future__ import annotations


def span(seconds: float) -> str:
    """A length of time as people say it: `0.8 s`, `45 s`, `12 min`, `3 h`, `4 days`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
