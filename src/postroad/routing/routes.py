"""Whole routes through the enterprise, for people: each hop as the queue manager there would choose it.

Messages do not need this: a queue manager knows only its own next hops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.errors import ManagerNotFound, NoRoute
from postroad.routing.hops import NextHops, get_next_hops
from postroad.routing.roles import is_site_gate
from postroad.routing.table import RoutingTable, SiteGraph, build_table

KEPT_TABLES = 32  # of other queue managers: those on a way, and not the whole enterprise's


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route from one queue manager to another, all by name.

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


class Routes:
    """Answers about any queue manager of a directory. Tables are made when they are first asked for."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.table_of = lru_cache(KEPT_TABLES)(self._build)

    @cached_property
    def _graph(self) -> SiteGraph:
        return SiteGraph(self.directory)

    def _build(self, machine_id: UUID) -> RoutingTable:
        return build_table(self._graph, machine_id)

    def manager(self, name: str) -> QueueManager:
        """The queue manager of this name; ManagerNotFound if there is none."""
        found = self.directory.manager_named(name)
        if found is None:
            names = {each.computer_name.lower(): each.computer_name for each in self.directory.managers}
            close = get_close_matches(name.lower(), names, n=1)
            hint = f"; did you mean {names[close[0]]}?" if close else ""
            if not names:
                hint = "; it has none at all: [directory] in the configuration names its file"
            raise ManagerNotFound(f"there is no queue manager {name} in the directory{hint}")
        return found

    def next_hops(self, source: QueueManager, destination: QueueManager) -> NextHops:
        table = self.table_of(source.identifier)
        return get_next_hops(self.directory, table, source.identifier, destination.identifier)

    def route(self, source_name: str, destination_name: str) -> Route:
        """ManagerNotFound for a name that is unknown, NoRoute where the way ends or goes round."""
        source, destination = self.manager(source_name), self.manager(destination_name)
        first = self.next_hops(source, destination)
        path, cost = self._follow(source, destination)
        return Route(
            source=source.computer_name,
            destination=destination.computer_name,
            next_hops=_names(first.hops),
            fallback=_names(first.fallback),
            path=_names(path),
            cost=cost,
            why=first.why,
        )

    def table(self, name: str) -> Table:
        """ManagerNotFound for a name that is unknown."""
        manager = self.manager(name)
        return Table(
            manager=manager.computer_name,
            is_site_gate=is_site_gate(self.directory, manager.identifier),
            rows=tuple(
                TableRow(
                    site=row.destination_site.name,
                    next_site=row.next_hop_site.name,
                    gates=_names(row.gates),
                    cost=row.cost,
                )
                for row in self.table_of(manager.identifier).rows
            ),
        )

    def _follow(self, source: QueueManager, destination: QueueManager) -> tuple[list[QueueManager], int]:
        path = [source]
        cost = 0
        while path[-1] is not destination:
            try:
                answer = self.next_hops(path[-1], destination)
            except NoRoute as fault:
                raise NoRoute(f"the route {_arrows(path)} ends there: {fault}") from None
            hop = answer.hops[0]
            if hop in path:
                raise NoRoute(f"the route {_arrows([*path, hop])} is a loop and never reaches {_name(destination)}")
            path.append(hop)
            cost += answer.link_cost
        return path, cost


def _name(manager: QueueManager) -> str:
    return manager.computer_name


def _names(managers: list[QueueManager] | tuple[QueueManager, ...]) -> tuple[str, ...]:
    return tuple(map(_name, managers))


def _arrows(path: list[QueueManager]) -> str:
    return " -> ".join(map(_name, path))
