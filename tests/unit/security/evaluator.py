"""A second access check, for comparison: the pseudocode of [MS-DTYP] 2.5.3.2 line by line, over the bytes as impacket
reads them. It shares no code with Postroad, and knows SIDs only as text."""

from __future__ import annotations

from typing import NamedTuple

from impacket.ldap import ldaptypes

READ_CONTROL, WRITE_DAC = 0x20000, 0x40000
ACCESS_SYSTEM_SECURITY = 0x1000000
INHERIT_ONLY_ACE = 0x08
OWNER_RIGHTS = "S-1-3-4"


def sid_in_token(token: frozenset[str], sid: str, owner: str | None) -> bool:
    if sid == OWNER_RIGHTS:
        return owner is not None and owner != OWNER_RIGHTS and owner in token
    return sid in token


class Read(NamedTuple):
    """What impacket reads: the owner, and (type, flags, mask, SID) of the entries. None without a DACL."""

    owner: str | None
    entries: list[tuple[int, int, int, str]] | None


def read(data: bytes) -> Read:
    descriptor = ldaptypes.SR_SECURITY_DESCRIPTOR(data=data)
    owner = descriptor["OwnerSid"].formatCanonical() if descriptor["OffsetOwner"] else None
    if not descriptor["OffsetDacl"]:
        return Read(owner, None)
    return Read(
        owner,
        [
            (ace["AceType"], ace["AceFlags"], ace["Ace"]["Mask"]["Mask"], ace["Ace"]["Sid"].formatCanonical())
            for ace in descriptor["Dacl"].aces
        ],
    )


def evaluate(descriptor: Read, token: frozenset[str], access_request: int) -> bool:
    remaining = access_request
    if remaining & ACCESS_SYSTEM_SECURITY:
        return False
    if descriptor.entries is None:
        return True
    owner = descriptor.owner
    effective = [each for each in descriptor.entries if each[0] in (0, 1) and not each[1] & INHERIT_ONLY_ACE]
    if owner is not None and sid_in_token(token, owner, owner):  # noqa: SIM102 - as in the pseudocode
        if OWNER_RIGHTS not in {sid for *_, sid in effective}:
            remaining &= ~(READ_CONTROL | WRITE_DAC)
    for kind, _, mask, sid in effective:
        if not sid_in_token(token, sid, owner):
            continue
        if kind == 0:
            remaining &= ~mask
        elif remaining & mask:
            return False
    return remaining == 0


def evaluate_bit_by_bit(descriptor: Read, token: frozenset[str], access_request: int) -> bool:
    """The same check by another rule: the first applicable entry that names a right decides about it."""
    if access_request & ACCESS_SYSTEM_SECURITY:
        return False
    if descriptor.entries is None:
        return True
    owner = descriptor.owner
    entries = [
        (kind == 0, mask, sid)
        for kind, flags, mask, sid in descriptor.entries
        if kind in (0, 1) and not flags & INHERIT_ONLY_ACE
    ]
    is_owner = owner is not None and owner in token and owner != OWNER_RIGHTS
    if is_owner and not any(sid == OWNER_RIGHTS for _, _, sid in entries):
        entries.insert(0, (True, READ_CONTROL | WRITE_DAC, str(owner)))
    names = (token - {OWNER_RIGHTS}) | ({OWNER_RIGHTS} if is_owner else set())
    return all(
        next((allows for allows, mask, sid in entries if mask & 1 << bit and sid in names), False)
        for bit in range(32)
        if access_request & 1 << bit
    )
