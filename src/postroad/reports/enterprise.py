"""The enterprise as a manager knows it: its sites and managers, and the routes to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.reports.plain import keyed, listed

# The directory as people see it, all by name: sites, routing links and queue managers. Plain values for JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInfo:
    """`gates` are the site's gates, also those that only a link names."""

    name: str
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """A routing link between two sites. It has two directions."""

    sites: tuple[str, ...]
    cost: int
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryManager:
    """A queue manager of the directory."""

    name: str
    id: str
    address: str | None
    sites: tuple[str, ...]
    routing_server: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryInfo:
    """`manager` is the one that answers. Everything is in the order of the directory."""

    manager: str
    sites: tuple[SiteInfo, ...] = field(default=(), metadata=listed(SiteInfo))
    links: tuple[LinkInfo, ...] = field(default=(), metadata=listed(LinkInfo))
    managers: tuple[DirectoryManager, ...] = field(default=(), metadata=listed(DirectoryManager))


# Routes through an enterprise and routing tables, all by name: plain values, ready for JSON.


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
