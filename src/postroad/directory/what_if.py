"""What if: the same directory without some links, or with other costs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from uuid import UUID

from postroad.directory.objects import MAX_COST, MIN_COST, RoutingLink
from postroad.directory.snapshot import Directory
from postroad.errors import InvalidArgument

_COST = re.compile(r"(x|\*)?([0-9]+(?:\.[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of all links between two sites. `cost` replaces their costs, and `factor` multiplies them.

    Without either, the links are removed.
    """

    sites: tuple[str, str]
    cost: int | None = None
    factor: float | None = None

    def applied(self, link: RoutingLink) -> RoutingLink | None:
        if self.cost is None and self.factor is None:
            return None
        cost = self.cost if self.cost is not None else round(link.actual_cost * (self.factor or 1))
        return replace(link, actual_cost=min(max(cost, MIN_COST), MAX_COST))


def parse_down(text: str, directory: Directory) -> Change:
    """Reads `A-B`: remove the links between two sites."""
    return Change(_sites(text, directory))


def parse_cost(text: str, directory: Directory) -> Change:
    """Reads `A-B=N` for a new cost, or `A-B=xN` for a multiple of the old one."""
    name, equals, value = text.rpartition("=")
    found = _COST.fullmatch(value.strip())
    if not equals or found is None or (found[1] is None and "." in found[2]):
        raise InvalidArgument(f"cost: must have the form A-B=N or A-B=xN, got {text!r}")
    number = float(found[2])
    sites = _sites(name, directory)
    if found[1]:
        return Change(sites, factor=number)
    if not MIN_COST <= number <= MAX_COST:
        raise InvalidArgument(f"cost: must be between {MIN_COST} and {MAX_COST}, got {number:.0f}")
    return Change(sites, cost=int(number))


def changed(directory: Directory, changes: Sequence[Change]) -> Directory:
    """The directory after the changes. A manager that only a link names as a gate stays a gate of its site."""
    by_sites: dict[frozenset[UUID], Change] = {}
    for change in changes:
        by_sites[_pair(directory, change.sites)] = change
    links: list[RoutingLink] = []
    orphans: dict[UUID, list[UUID]] = {}
    for link in directory.links:
        found = by_sites.get(frozenset((link.site1_identifier, link.site2_identifier)))
        kept = link if found is None else found.applied(link)
        if kept is not None:
            links.append(kept)
            continue
        for site in (link.site1_identifier, link.site2_identifier):
            orphans.setdefault(site, []).extend(link.site_gate_identifier_list)
    sites = [
        replace(site, site_gate_identifier_list=(*site.site_gate_identifier_list, *orphans.get(site.identifier, ())))
        for site in directory.sites
    ]
    return Directory(sites=sites, links=links, managers=directory.managers, queues=directory.queues)


def _pair(directory: Directory, names: tuple[str, str]) -> frozenset[UUID]:
    sites = [directory.site_named(name) for name in names]
    assert all(sites)
    pair = frozenset(site.identifier for site in sites if site is not None)
    if not any({link.site1_identifier, link.site2_identifier} == pair for link in directory.links):
        raise InvalidArgument(f"no routing link joins {names[0]} and {names[1]}")
    return pair


def _sites(text: str, directory: Directory) -> tuple[str, str]:
    """Splits `A-B` at the hyphen between two known sites, because names may have hyphens."""
    hyphens = [place for place, character in enumerate(text) if character == "-"]
    for place in hyphens:
        one, other = directory.site_named(text[:place].strip()), directory.site_named(text[place + 1 :].strip())
        if one is not None and other is not None:
            return one.name, other.name
    if not hyphens:
        raise InvalidArgument(f"must name two sites as A-B, got {text!r}")
    names: Mapping[str, str] = {site.name.lower(): site.name for site in directory.sites}
    for part in text.split("-"):
        if part.strip().lower() not in names:
            close = get_close_matches(part.strip().lower(), names, n=1)
            hint = f"; did you mean {names[close[0]]}?" if close else ""
            raise InvalidArgument(f"{text!r}: there is no site {part.strip()}{hint}")
    raise InvalidArgument(f"must name two sites as A-B, got {text!r}")
