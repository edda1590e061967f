"""The directory as people see it, all by name: sites, routing links and queue managers. Plain values for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroad.values.plain import listed


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
