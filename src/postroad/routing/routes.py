"""Whole routes through the enterprise, for people: each hop as the queue manager there would choose it.

Messages do not need this: a queue manager knows only its own next hops.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cached_property, lru_cache
from uuid import UUID

from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.errors import ManagerNotFound, NoRoute
from postroad.reports.enterprise import Route, Table, TableRow
from postroad.routing.hops import NextHops, get_next_hops
from postroad.routing.table import RoutingTable, SiteGraph, build_table, is_site_gate

KEPT_TABLES = 32  # tables of other queue managers; enough for a route, but not for the whole enterprise


class Routes:
    """Answers about any queue manager of a directory. Makes a routing table when it is first needed."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.table_of = lru_cache(KEPT_TABLES)(self._build)

    @cached_property
    def _graph(self) -> SiteGraph:
        return SiteGraph(self.directory)

    def _build(self, machine_id: UUID) -> RoutingTable:
        return build_table(self._graph, machine_id)

    def manager(self, name: str) -> QueueManager:
        """The queue manager with this name. Raises ManagerNotFound if there is none."""
        found = self.directory.manager_named(name)
        if found is None:
            names = {each.computer_name.lower(): each.computer_name for each in self.directory.managers}
            close = get_close_matches(name.lower(), names, n=1)
            hint = f"; did you mean {names[close[0]]}?" if close else ""
            if not names:
                hint = "; the directory is empty: set directory.file in the configuration"
            raise ManagerNotFound(f"there is no queue manager {name} in the directory{hint}")
        return found

    def next_hops(self, source: QueueManager, destination: QueueManager) -> NextHops:
        table = self.table_of(source.identifier)
        return get_next_hops(self.directory, table, source.identifier, destination.identifier)

    def route(self, source_name: str, destination_name: str) -> Route:
        """The route between two queue managers. Raises ManagerNotFound for an unknown name, and NoRoute if the route
        ends early or loops."""
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
        """The routing table of a queue manager. Raises ManagerNotFound for an unknown name."""
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
