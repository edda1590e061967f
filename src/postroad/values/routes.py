"""Routes through an enterprise and routing tables, all by name: plain values, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.values.plain import keyed, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way from one queue manager to another, all by name.

    `next_hops` is what the source tries, in order, and `fallback` what it tries if a direct connection fails. `path`
    takes the first hop everywhere, and `cost` is the sum of the routing links on it.
    """

    source: str = field(metadata=keyed("from"))
    destination: str = field(metadata=keyed("to"))
    next_hops: tuple[str, ...]
    fallback: tuple[str, ...]
    path: tuple[str, ...]
    cost: int
    why: str


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
    rows: tuple[TableRow, ...] = field(metadata=listed(TableRow))
