"""Expand Format Name, [MS-MQDMPR] 3.1.7.3.8: flattens and sorts lists, and removes duplicates.

The members of a distribution list come from a callable; the directory behind it is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from postroad.errors import IllegalFormatName
from postroad.names.base import FormatName
from postroad.names.format import DistributionListName, MultipleElementName

ResolveDistributionList = Callable[[DistributionListName], Iterable[FormatName]]


def expand_format_name(name: FormatName, resolve: ResolveDistributionList) -> FormatName:
    """The same destinations without distribution lists. A name that is not a list is returned unchanged.

    `resolve` gives the members of a list, which may be lists too. If it raises, the expansion raises the same.
    A list that contains itself is resolved once.
    """
    if not isinstance(name, DistributionListName | MultipleElementName):
        return name
    members = sorted(dict.fromkeys(_members(name, resolve)), key=lambda member: str(member).lower())
    if not members:
        raise IllegalFormatName(str(name), 0, "the distribution list must have members, but it is empty")
    return members[0] if len(members) == 1 else MultipleElementName(tuple(members))


def _members(name: FormatName, resolve: ResolveDistributionList) -> Iterator[FormatName]:
    """All single names. The members of a distribution list come after the names beside it."""
    pending = [name]
    resolved: set[DistributionListName] = set()
    for element in pending:  # grows during the loop
        if isinstance(element, MultipleElementName):
            pending.extend(element.elements)
        elif not isinstance(element, DistributionListName):
            yield element
        elif element not in resolved:
            resolved.add(element)
            pending.extend(resolve(element))
