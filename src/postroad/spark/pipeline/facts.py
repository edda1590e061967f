"""The content of a report, collected from the small gold tables: plain values, no Spark and no HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroad.spark.pipeline.delivery import STATES as STATE_WORDS
from postroad.spark.pipeline.lake import BRONZE, DEAD_LETTERS, FAULTS, LATENCY, LINKS, OLDEST, STATES, TRAFFIC, Lake
from postroad.spark.pipeline.summaries import BINS_S

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """Rows are those of the gold tables; counts are sums over them. `lake` is their directory, and `apis` has the known
    APIs of managers by name."""

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

    @property
    def messages(self) -> int:
        return self.total("messages")

    @property
    def by_state(self) -> dict[str, int]:
        """The states that occur, in the order of STATES."""
        counted = summed(self.states, "state")
        return {state: counted[state] for state in STATE_WORDS if state in counted}

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """States by the kind of delivery; messages that are only mentioned have no known kind."""
        found: dict[str, dict[str, int]] = {}
        for (kind, state), count in sorted(summed(self.states, "delivery", "state").items(), key=str):
            found.setdefault(kind or "unknown", {})[state] = count
        return found

    @property
    def undecodable(self) -> int:
        return sum(row["packets"] for row in self.faults)

    @property
    def reasons(self) -> dict[str, int]:
        """Why messages died, the most frequent first."""
        return dict(summed(self.dead_letters, "reason").most_common())

    @property
    def replayed(self) -> Counter[str]:
        """How many dead messages were sent again, by reason."""
        return summed(self.dead_letters, "reason", what="replayed")

    @property
    def dead_letters_left(self) -> dict[str, list[str]]:
        """By reason, the managers with dead letters that were not sent again, the most first."""
        found: dict[str, Counter[str]] = {}
        for row in self.dead_letters:
            left = row["messages"] - (row.get("replayed") or 0)
            if left and (manager := row.get("dead_in")) is not None:
                found.setdefault(row["reason"], Counter())[manager] += left
        return {reason: [name for name, _ in managers.most_common()] for reason, managers in found.items()}

    @property
    def spread(self) -> list[int]:
        """How many messages took how long, by BINS_S."""
        return [sum(each) for each in zip(*(row["spread"] for row in self.states), strict=True)] or [0] * (
            len(BINS_S) + 1
        )

    @property
    def period(self) -> tuple[datetime | None, datetime | None]:
        """When the first and the last message were sent."""
        first = [row["first_sent_at"] for row in self.states if row["first_sent_at"] is not None]
        last = [row["last_sent_at"] for row in self.states if row["last_sent_at"] is not None]
        return min(first, default=None), max(last, default=None)

    def json(self) -> dict[str, Any]:
        """The headline figures."""
        speed = self.overall("receive") or {}
        return {
            "batch": self.batch,
            "managers": list(self.managers),
            "messages": self.messages,
            "states": self.by_state,
            "kinds": self.kinds,
            "reasons": self.reasons,
            "replayed": self.replayed.total(),
            "unexplained": self.total("unexplained"),
            "duplicates": self.total("duplicates"),
            "out_of_order": self.total("out_of_order"),
            "contradicted": self.total("contradicted"),
            "undecodable": self.undecodable,
            "bytes": self.total("bytes"),
            "received_s": {name: speed.get(f"{name}_s") for name in ("p50", "p90", "p99", "max")},
        }

    def total(self, column: str) -> int:
        return sum(row[column] or 0 for row in self.states)

    def speed(self, by: str, until: str = "receive") -> list[Row]:
        """Percentiles, the most messages first."""
        rows = [row for row in self.latency if row["by"] == by and row["until"] == until]
        return sorted(rows, key=lambda row: (-row["messages"], row["value"]))

    def overall(self, until: str) -> Row | None:
        return next(iter(self.speed("all", until)), None)


def gather(lake: Lake) -> Facts:
    """PipelineError for a directory without a finished run."""
    read = {name: lake.rows(name) for name in (STATES, LATENCY, TRAFFIC, LINKS, DEAD_LETTERS, OLDEST, FAULTS)}
    last = lake.table(BRONZE).last()
    assert last is not None  # otherwise there are no gold tables
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
    )


def summed(rows: Iterable[Mapping[str, Any]], *columns: str, what: str = "messages") -> Counter[Any]:
    """The sum of a column by the values of others: one value as it is, several as a tuple. A table of an older run may
    lack the column."""
    found: Counter[Any] = Counter()
    for row in rows:
        key = tuple(row[column] for column in columns)
        found[key[0] if len(key) == 1 else key] += row.get(what) or 0
    return found
