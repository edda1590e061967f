"""Collects the content of a report from the small gold tables, as plain values: no Spark and no HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from postroad.spark.pipeline.alerts import Reported, last_report
from postroad.spark.pipeline.fates import STATES as STATE_WORDS
from postroad.spark.pipeline.lake import (
    BACKLOG,
    BRONZE,
    CHAINS,
    DEAD_LETTERS,
    FAULTS,
    HOURS,
    LATENCY,
    LINKS,
    OLDEST,
    PAIRS,
    SPANS,
    STATES,
    TOP,
    TRAFFIC,
    TREND,
    Lake,
)
from postroad.spark.pipeline.service_levels import Attainment, ServiceLevel, attained, latency_by
from postroad.spark.pipeline.silver import QUEUED
from postroad.spark.pipeline.summaries import current
from postroad.spark.pipeline.trends import BEFORE, NOW, Anomaly, anomalies

Row = dict[str, Any]
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of a report: rows of the gold tables, and sums over them.

    `lake` is the directory of the tables. `apis` has the known APIs of managers by name. `as_of` is when the pipeline
    last looked at the queues; ages are counted up to then. `before` is what the last report has said.
    """

    managers: tuple[str, ...]
    batch: int
    states: list[Row]
    latency: list[Row]
    traffic: list[Row]
    links: list[Row]
    dead_letters: list[Row]
    oldest: list[Row]
    faults: list[Row]
    lake: str = "lake"
    apis: Mapping[str, str] = field(default_factory=dict)
    as_of: datetime = EPOCH
    backlog: list[Row] = field(default_factory=list)
    trend: list[Row] = field(default_factory=list)
    levels: list[Attainment] = field(default_factory=list)
    pairs: list[Row] = field(default_factory=list)
    chains: list[Row] = field(default_factory=list)
    top: list[Row] = field(default_factory=list)
    unusual: list[Anomaly] = field(default_factory=list)
    days: list[Row] = field(default_factory=list)
    before: Reported | None = None

    @property
    def messages(self) -> int:
        return self.total("messages")

    @property
    def by_state(self) -> dict[str, int]:
        """Messages by state, in the order of STATES. States without messages are absent."""
        counted = summed(self.states, "state")
        return {state: counted[state] for state in STATE_WORDS if state in counted}

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """Messages by kind of delivery and state. The kind is unknown for messages that are only mentioned."""
        found: dict[str, dict[str, int]] = {}
        for (kind, state), count in sorted(summed(self.states, "delivery", "state").items(), key=str):
            found.setdefault(kind or "unknown", {})[state] = count
        return found

    @property
    def queues(self) -> list[Row]:
        """The last look at each queue that was read, the fullest queue first."""
        return sorted(current(self.backlog), key=lambda row: (-row["messages"], row["called"]))

    @property
    def waiting(self) -> int:
        """How many messages were in the queues of applications at the last look."""
        return sum(row["messages"] for row in current(self.backlog) if row["role"] == QUEUED)

    @property
    def undecodable(self) -> int:
        return sum(row["packets"] for row in self.faults)

    @property
    def reasons(self) -> dict[str, int]:
        """How many messages died for each reason, the most frequent first."""
        return dict(summed(self.dead_letters, "reason").most_common())

    @property
    def replayed(self) -> Counter[str]:
        """How many dead messages were sent again, by reason."""
        return summed(self.dead_letters, "reason", what="replayed")

    @property
    def dead_letters_left(self) -> dict[str, list[str]]:
        """For each reason, the managers with dead letters that were not sent again, the most first."""
        found: dict[str, Counter[str]] = {}
        for row in self.dead_letters:
            left = row["messages"] - (row.get("replayed") or 0)
            if left and (manager := row.get("dead_in")) is not None:
                found.setdefault(row["reason"], Counter())[manager] += left
        return {reason: [name for name, _ in managers.most_common()] for reason, managers in found.items()}

    @property
    def period(self) -> tuple[datetime | None, datetime | None]:
        """When the first and the last message were sent."""
        return earliest(self.states, "first_sent_at"), latest(self.states, "last_sent_at")

    @property
    def types(self) -> list[Row]:
        """The message types with the most messages, and, with the value None, all other messages that say a type.

        The value is "" for messages that do not say their type.
        """
        found = sorted((row for row in self.top if row["kind"] == "type"), key=lambda row: -row["messages"])
        if not found:
            return []
        whole = {"messages": self.messages, "bytes": self.total("bytes")}
        whole |= {"received": self.by_state.get("received", 0), "died": self.by_state.get("dead", 0)}
        left = {name: count - sum(row[name] for row in found) for name, count in whole.items()}
        return [*found, {"value": None} | left] if left["messages"] > 0 else found

    def compared(self, by: str) -> list[tuple[Row, Row | None]]:
        """The last period and the one before it for each group, the most messages first."""
        rows = [row for row in self.trend if row["by"] == by]
        before = {row["value"]: row for row in rows if row["period"] == BEFORE}
        now = [row for row in rows if row["period"] == NOW]
        return [(row, before.get(row["value"])) for row in sorted(now, key=lambda row: (-row["sent"], row["value"]))]

    def json(self) -> dict[str, Any]:
        """The headline figures."""
        speed = self.overall("receive") or {}
        return {
            "batch": self.batch,
            "as_of": self.as_of.isoformat(),
            "managers": list(self.managers),
            "messages": self.messages,
            "waiting": self.waiting,
            "states": self.by_state,
            "kinds": self.kinds,
            "types": {row["value"]: row["messages"] for row in self.types if row["value"]},
            "reasons": self.reasons,
            "replayed": self.replayed.total(),
            "unexplained": self.total("unexplained"),
            "duplicates": self.total("duplicates"),
            "out_of_order": self.total("out_of_order"),
            "contradicted": self.total("contradicted"),
            "undecodable": self.undecodable,
            "requests": {
                name: sum(row.get(name) or 0 for row in self.pairs)
                for name in ("messages", "answered", "unanswered", "unknown")
            },
            "unusual_hours": len(self.unusual),
            "bytes": self.total("bytes"),
            "received_s": {name: speed.get(f"{name}_s") for name in ("p50", "p90", "p99", "max")},
            "received_least_s": {name: speed.get(f"{name}_least_s") for name in ("p50", "p90", "p99", "max")},
        }

    def total(self, column: str) -> int:
        return sum(row.get(column) or 0 for row in self.states)

    def speed(self, by: str, until: str = "receive") -> list[Row]:
        """Rows with percentiles, the most messages first."""
        rows = [row for row in self.latency if row["by"] == by and row["until"] == until]
        return sorted(rows, key=lambda row: (-row["messages"], row["value"]))

    def overall(self, until: str) -> Row | None:
        return next(iter(self.speed("all", until)), None)


def gather(lake: Lake, levels: Sequence[ServiceLevel] = ()) -> Facts:
    """Reads the facts from a lake. Raises PipelineError for a directory without a finished run."""
    names = (STATES, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS, OLDEST, FAULTS, BACKLOG, TREND, PAIRS, CHAINS, TOP, HOURS)
    read = {name: lake.rows(name) for name in names}
    last = lake.table(BRONZE).last()
    assert last is not None  # without bronze there are no gold tables
    as_of = latest(read[BACKLOG], "looked_at") or latest(read[STATES], "last_sent_at") or EPOCH
    return Facts(
        managers=tuple(sorted(each["name"] for each in last.facts["managers"])),
        batch=last.batch,
        states=read[STATES],
        latency=read[LATENCY],
        traffic=read[TRAFFIC],
        links=read[LINKS],
        dead_letters=read[DEAD_LETTERS],
        oldest=read[OLDEST],
        faults=read[FAULTS],
        lake=str(lake.path),
        apis={each["name"]: each["api"] for each in last.facts["managers"] if each.get("api")},
        as_of=as_of,
        backlog=read[BACKLOG],
        trend=read[TREND],
        levels=attained(lake, levels, as_of),
        pairs=read[PAIRS],
        chains=read[CHAINS],
        top=read[TOP],
        unusual=anomalies(read[HOURS], as_of),
        days=by_day(read[STATES], lake.arrow(SPANS)),
        before=last_report(lake),
    )


def by_day(states: Iterable[Row], counted: pa.Table) -> list[Row]:
    """For each day of the send: messages, how many of them were received and died, and how long they took."""
    found: dict[Any, Row] = {}
    for row in states:
        if row["day"] is not None:
            into = found.setdefault(row["day"], {"day": row["day"], "messages": 0, "received": 0, "dead": 0})
            into["messages"] += row["messages"]
            if row["state"] in into:
                into[row["state"]] += row["messages"]
    for row in latency_by(counted, "day"):
        if row["until"] == "receive" and row["day"] in found:
            found[row["day"]] |= {name: value for name, value in row.items() if name.endswith("_s")}
    return [found[day] for day in sorted(found)]


def summed(rows: Iterable[Mapping[str, Any]], *columns: str, what: str = "messages") -> Counter[Any]:
    """Adds up a column for each combination of other columns. The key of one column is its value, of several a tuple.

    A table of an older run may lack the column.
    """
    found: Counter[Any] = Counter()
    for row in rows:
        key = tuple(row[column] for column in columns)
        found[key[0] if len(key) == 1 else key] += row.get(what) or 0
    return found


def earliest(rows: Iterable[Mapping[str, Any]], column: str) -> datetime | None:
    return min((row[column] for row in rows if row.get(column) is not None), default=None)


def latest(rows: Iterable[Mapping[str, Any]], column: str) -> datetime | None:
    return max((row[column] for row in rows if row.get(column) is not None), default=None)
