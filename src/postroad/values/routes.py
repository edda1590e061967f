"""Routes through an enterprise and routing tables, all by name: plain values, and the JSON of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way from one queue manager to another, all by name.

    `next_hops` is what the source tries, in order, and `fallback` what it tries if a direct connection fails. `path`
    takes the first hop everywhere, and `cost` is the sum of the routing links on it.
    """

    source: str
    destination: str
    next_hops: tuple[str, ...]
    fallback: tuple[str, ...]
    path: tuple[str, ...]
    cost: int
    why: str

    def json(self) -> dict[str, object]:
        return {
            "from": self.source,
            "to": self.destination,
            "next_hops": list(self.next_hops),
            "fallback": list(self.fallback),
            "path": list(self.path),
            "cost": self.cost,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Route:
        """What `json` gave; LookupError or TypeError on anything else."""
        return cls(
            source=values["from"],
            destination=values["to"],
            next_hops=tuple(values["next_hops"]),
            fallback=tuple(values["fallback"]),
            path=tuple(values["path"]),
            cost=values["cost"],
            why=values["why"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a routing table, all by name; `gates` in the order they are tried."""

    site: str
    next_site: str
    gates: tuple[str, ...]
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The routing table of one queue manager; without rows unless it is a site gate."""

    manager: str
    is_site_gate: bool
    rows: tuple[TableRow, ...]

    def json(self) -> dict[str, object]:
        return {
            "manager": self.manager,
            "is_site_gate": self.is_site_gate,
            "rows": [
                {"site": row.site, "next_site": row.next_site, "gates": list(row.gates), "cost": row.cost}
                for row in self.rows
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Table:
        """What `json` gave; LookupError or TypeError on anything else."""
        rows = tuple(
            TableRow(site=row["site"], next_site=row["next_site"], gates=tuple(row["gates"]), cost=row["cost"])
            for row in values["rows"]
        )
        return cls(manager=values["manager"], is_site_gate=values["is_site_gate"], rows=rows)
