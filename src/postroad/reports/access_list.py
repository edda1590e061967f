"""An access list in words, from its SDDL: who may do what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from postroad.security.descriptors import Ace, AceType
from postroad.security.rights import QUEUE_MAPPING, QUEUE_RIGHT_WORDS
from postroad.security.sddl import parse_sddl

_FULL = QUEUE_RIGHT_WORDS["full"]
_KINDS = {AceType.ALLOW: "allow", AceType.DENY: "deny", AceType.AUDIT: "audit"}
_GROUPS: Mapping[str, str] = {
    "S-1-1-0": "everyone",
    "S-1-5-7": "anonymous",
    "S-1-5-32-544": "administrators",
    "S-1-5-18": "the system",
    "S-1-3-4": "the owner",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an access list. `kind` is allow, deny, audit or other."""

    kind: str
    who: str
    rights: tuple[str, ...]


def read_entries(sddl: str, names: Mapping[str, str] = MappingProxyType({})) -> list[Entry]:
    """The entries, in the order in which they count. A list without D: allows everything to everyone.

    `names` has the names of users by their SIDs.
    """
    descriptor = parse_sddl(sddl)
    if descriptor.dacl is None:
        return [Entry("allow", "everyone", ("full",))]
    return [
        Entry(_KINDS[ace.type], who(str(ace.sid), names), _words(ace.mask))
        if isinstance(ace, Ace)
        else Entry("other", "", (f"type {ace.type}",))
        for ace in descriptor.dacl.aces
    ]


def named_sids(sddl: str) -> list[str]:
    """The SIDs in a list that a directory may have names for."""
    descriptor = parse_sddl(sddl)
    found = [] if descriptor.dacl is None else [each.sid for each in descriptor.dacl.aces if isinstance(each, Ace)]
    if descriptor.owner is not None:
        found.append(descriptor.owner)
    return [sid for sid in dict.fromkeys(map(str, found)) if sid not in _GROUPS]


def read_owner(sddl: str, names: Mapping[str, str]) -> str | None:
    owner = parse_sddl(sddl).owner
    return None if owner is None else who(str(owner), names)


def who(sid: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    name = _GROUPS.get(sid) or names.get(sid)
    return sid if name is None else f"{name} ({sid})"


def _words(mask: int) -> tuple[str, ...]:
    mask = QUEUE_MAPPING.map(mask)
    if mask & _FULL == _FULL:
        return ("full",)
    found = [word for word, bits in QUEUE_RIGHT_WORDS.items() if word not in ("full", "purge") and mask & bits == bits]
    if "receive" in found:
        found.remove("peek")
    return tuple(found) or (f"{mask:#x}",)
