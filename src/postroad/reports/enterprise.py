"""The enterprise as a manager knows it: its sites and managers, and the routes to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.reports.plain import keyed, listed

# The directory as people see it, with names instead of identifiers: sites, routing links and queue managers.


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInfo:
    """A site. `gates` are its gates, including those that only a link names."""

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
class DirectoryQueue:
    """A public queue of the directory. `qualified_path` has the host name of its manager, if the directory knows it."""

    path: str
    id: str
    qualified_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryInfo:
    """The directory. `manager` is the manager that answers. Everything is in the order of the directory.

    `kind` is `file` or `ldap`, and `source` the file or the domain controller that was asked last; None without a
    directory. While it is not `online`, this is the last good copy. `age_s` is how long ago the source confirmed it.
    """

    manager: str
    kind: str | None = None
    source: str | None = None
    online: bool = True
    age_s: float = 0.0
    error: str | None = None
    sites: tuple[SiteInfo, ...] = field(default=(), metadata=listed(SiteInfo))
    links: tuple[LinkInfo, ...] = field(default=(), metadata=listed(LinkInfo))
    managers: tuple[DirectoryManager, ...] = field(default=(), metadata=listed(DirectoryManager))
    queues: tuple[DirectoryQueue, ...] = field(default=(), metadata=listed(DirectoryQueue))


# What a join of the domain needs

FINE, ADVICE, MISSING = "ok", "advice", "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinFinding:
    """One thing that a join needs. `state` is `ok`, `missing` (a join would fail) or `advice` (it would work, but not
    all of it). `do` mends it."""

    what: str
    state: str
    detail: str
    do: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCheck:
    """`ready` is whether a join would work."""

    ready: bool
    findings: tuple[JoinFinding, ...] = field(default=(), metadata=listed(JoinFinding))


# Routes through an enterprise and routing tables, with names instead of identifiers. Plain values, ready for JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route from one queue manager to another, by name.

    `next_hops` are the managers that the source tries, in order. It tries `fallback` if a direct connection fails.
    `path` is the route that takes the first hop everywhere, and `cost` is the sum of its routing links.
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
    """A row of a routing table, by name. `gates` are in the order in which they are tried."""

    site: str
    next_site: str
    gates: tuple[str, ...]
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The routing table of one queue manager. It has rows only for a site gate."""

    manager: str
    is_site_gate: bool
    rows: tuple[TableRow, ...] = field(metadata=listed(TableRow))
