"""What has changed since the last report, and thresholds of its figures that somebody wants to hear of.

A lake keeps the figures and findings of its last report. So a report can say what is new, and an alert is sent once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from postroad.errors import InvalidArgument, PipelineError

if TYPE_CHECKING:
    from postroad.spark.pipeline.advice import Advice
    from postroad.spark.pipeline.facts import Facts
    from postroad.spark.pipeline.lake import Lake

FIGURES = {
    "messages": "messages known",
    "received": "received",
    "waiting": "wait in queues",
    "dead": "died, not sent again",
    "unexplained": "unexplained",
    "unanswered": "requests without an answer",
    "duplicates": "duplicates",
    "out_of_order": "out of order",
    "undecodable": "packets not decoded",
    "findings": "findings",
    "urgent": "urgent findings",
}
_THRESHOLD = re.compile(r"(\w+)\s*>\s*(\d+)")
_FILE = "reports/last.json"
_WEBHOOK_S = 10.0


@dataclass(frozen=True, slots=True)
class Threshold:
    """An alert is raised while a figure is greater than the limit."""

    figure: str
    limit: int

    def __str__(self) -> str:
        return f"{self.figure}>{self.limit}"


def threshold(text: str) -> Threshold:
    """Reads `dead>10`. Raises InvalidArgument."""
    found = _THRESHOLD.fullmatch(text.strip())
    if found is None or found[1] not in FIGURES:
        raise InvalidArgument(f"--alert: must be FIGURE>NUMBER with one of {', '.join(FIGURES)}, got {text!r}")
    return Threshold(found[1], int(found[2]))


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report has said. A finding is known by its place and its remedy, as its words have changing figures."""

    as_of: str
    figures: Mapping[str, int]
    findings: frozenset[tuple[str, str]] = frozenset()
    alerts: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, facts: Facts, found: Sequence[Advice], thresholds: Iterable[Threshold] = ()) -> Reported:
        figures = _figures(facts, found)
        raised = frozenset(str(each) for each in thresholds if figures[each.figure] > each.limit)
        return cls(facts.as_of.isoformat(), figures, frozenset((each.where, each.do) for each in found), raised)

    def json(self) -> dict[str, Any]:
        lists = {"findings": sorted(self.findings), "alerts": sorted(self.alerts)}
        return {"as_of": self.as_of, "figures": dict(self.figures)} | lists


def _figures(facts: Facts, found: Sequence[Advice]) -> dict[str, int]:
    states = facts.by_state
    return {
        "messages": facts.messages,
        "received": states.get("received", 0),
        "waiting": facts.waiting,
        "dead": max(0, states.get("dead", 0) - facts.replayed.total()),
        "unexplained": facts.total("unexplained"),
        "unanswered": sum(row["unanswered"] for row in facts.pairs),
        "duplicates": facts.total("duplicates"),
        "out_of_order": facts.total("out_of_order"),
        "undecodable": facts.undecodable,
        "findings": len(found),
        "urgent": sum(each.urgent for each in found),
    }


def last_report(lake: Lake) -> Reported | None:
    """What the last report of a lake has said. None without one, or with one that another version wrote."""
    try:
        kept = json.loads(lake.files.read_text(_FILE) or "")
        findings = frozenset((where, do) for where, do in kept["findings"])
        figures = {name: int(kept["figures"].get(name, 0)) for name in FIGURES}
        return Reported(str(kept["as_of"]), figures, findings, frozenset(kept["alerts"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def keep_report(lake: Lake, reported: Reported) -> None:
    lake.files.delete(_FILE)
    lake.files.write_text(_FILE, json.dumps(reported.json()))


def changes(now: Reported, before: Reported) -> dict[str, list[str]]:
    """The alerts that were raised or have ended since."""
    return {"raised": sorted(now.alerts - before.alerts), "ended": sorted(before.alerts - now.alerts)}


def check_webhook(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidArgument(f"--alert-webhook: must be an address such as https://host/path, got {url!r}")


def post(url: str, content: Mapping[str, Any]) -> None:
    """Posts JSON to a webhook. Raises PipelineError if it does not take it."""
    request = Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=_WEBHOOK_S):
            pass
    except (URLError, OSError, ValueError) as fault:
        raise PipelineError(f"{url} has not taken the alert: {getattr(fault, 'reason', fault)}") from None
