"""The metrics of our streams in a query's progress.

Spark 4.3 lets a Python source report a latest offset, but no metrics. So our streams report their figures with the
latest offset, and the driver copies them to `metrics`, where those of other sources are.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress

METRICS = ("backlog", "oldestAgeMs", "lost")
_PLAIN = SourceProgress.__init__


def metrics_of(latest_offset: str | None) -> dict[str, str]:
    """The figures in a latest offset, as text like all metrics of Spark; none if it is of another source."""
    try:
        found = json.loads(latest_offset or "null")
    except ValueError:
        return {}
    if not isinstance(found, dict) or not found.keys() >= {*METRICS}:
        return {}
    return {name: str(found[name]) for name in METRICS}


def show_metrics() -> None:
    """From now on, every progress that Python shows has the metrics of our streams. A second call changes nothing."""

    def init(self: SourceProgress, *args: Any, **kwargs: Any) -> None:
        _PLAIN(self, *args, **kwargs)
        for name, value in metrics_of(self["latestOffset"]).items():
            self["metrics"].setdefault(name, value)

    SourceProgress.__init__ = init  # type: ignore[method-assign]
