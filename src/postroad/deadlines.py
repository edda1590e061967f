"""When something is due next, of several times that are there or not."""

from __future__ import annotations

from collections.abc import Iterable


def earliest(times: Iterable[float | None]) -> float | None:
    """The first of them; None where there is none. A loop, since services are asked after every event."""
    found = None
    for time in times:
        if time is not None and (found is None or time < found):
            found = time
    return found
