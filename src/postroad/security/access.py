"""Who may do what: the access check of [MS-DTYP] 2.5.3.2, the default descriptors, and the edits of an access list.

This module knows neither queues nor users. A caller brings a descriptor, a token and the rights that an action
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from postroad.security.descriptors import EVERYONE, OWNER_RIGHTS, Ace, AceType, Acl, OtherAce, SecurityDescriptor, Sid
from postroad.security.rights import QUEUE_MAPPING, QueueManagerRight, QueueRight, StandardRight

ANONYMOUS = Sid(5, (7,))
AUTHENTICATED_USERS = Sid(5, (11,))
ADMINISTRATORS = Sid(5, (32, 544))
_OWNER_RIGHTS_KEY = OWNER_RIGHTS.encode()
_OWNER_RIGHTS_KEYS = frozenset({_OWNER_RIGHTS_KEY})
_NOT_IMPLICIT = ~(StandardRight.READ_CONTROL.value | StandardRight.WRITE_DAC.value)
_SYSTEM_SECURITY = StandardRight.ACCESS_SYSTEM_SECURITY.value

# What a monitor may do. The bits mean the same for a queue and for its manager.
_WATCHED = (QueueRight.GET_QUEUE_PROPERTIES | QueueRight.GET_QUEUE_PERMISSIONS).value

_NT_AUTHORITY = 5
_FIRST_ACCOUNT = 17  # S-1-5-1 to S-1-5-15 are kinds of logon
# [MS-DTYP] 2.4.2.4: S-1-5-32-... are groups that every computer has; the others are kinds of logon and of accounts
_NT_GROUPS = frozenset({32, 33, 64, 65, 113, 114, 1000})
# null, world, local, creator, non-unique; app packages, integrity levels, policies, kinds of identity
_GROUP_AUTHORITIES = frozenset({0, 1, 2, 3, 4, 15, 16, 17, 18})
_GUEST_RID = 501  # DOMAIN_USER_RID_GUEST, [MS-SAMR] 2.2.1.14


def is_account(sid: Sid) -> bool:
    """Whether the SID can be a single account. Groups that exist everywhere, such as Everyone, cannot."""
    if sid.identifier_authority != _NT_AUTHORITY:
        return sid.identifier_authority not in _GROUP_AUTHORITIES
    return sid.sub_authorities[0] >= _FIRST_ACCOUNT and sid.sub_authorities[0] not in _NT_GROUPS


def can_own(sid: Sid) -> bool:
    """Whether the SID can own something: an account, or Administrators, whose members own together what they make."""
    return sid == ADMINISTRATORS or is_account(sid)


def is_guest(sid: Sid) -> bool:
    return sid.identifier_authority == _NT_AUTHORITY and (sid.sub_authorities[0], sid.sub_authorities[-1]) == (
        21,
        _GUEST_RID,
    )


@dataclass(frozen=True, slots=True)
class Token:
    """Somebody who asks for access. Use the constructors: they add the groups that everybody belongs to."""

    user: Sid | None
    groups: frozenset[Sid] = frozenset()
    everything: bool = False  # an administrator: descriptors are not consulted
    only: int | None = None  # exactly these rights on queues and the manager, whatever a descriptor says
    keys: frozenset[bytes] = field(init=False, repr=False, compare=False)  # the SIDs in bytes, as in Acl.checks

    def __post_init__(self) -> None:
        sids = self.groups if self.user is None else {self.user, *self.groups}
        # OWNER RIGHTS is for the check to add, whatever SIDs a sender claims.
        object.__setattr__(self, "keys", frozenset(sid.encode() for sid in sids) - _OWNER_RIGHTS_KEYS)

    @classmethod
    def everyone(cls) -> Token:
        """A SOAP sender, or a queue manager as a sender, [MS-MQQB] 3.1.5.8.3."""
        return _EVERYONE_TOKEN

    @classmethod
    def anonymous(cls) -> Token:
        return _ANONYMOUS_TOKEN

    @classmethod
    def of_user(cls, sid: Sid, groups: Iterable[Sid] = ()) -> Token:
        """An authenticated user. A SID that is not an account gives the anonymous token, so a sender who claims to be
        Administrators or Everyone gains nothing."""
        if not is_account(sid):
            return _ANONYMOUS_TOKEN
        return cls(sid, frozenset({*groups, EVERYONE, AUTHENTICATED_USERS}))

    @classmethod
    def monitor(cls, sid: Sid, groups: Iterable[Sid] = ()) -> Token:
        """Sees every queue, its properties and its access list. May change nothing and read no message."""
        return cls(sid, frozenset({*groups, EVERYONE, AUTHENTICATED_USERS}), only=_WATCHED)

    @classmethod
    def nobody(cls) -> Token:
        """Somebody whose identity has ended, such as a user who was removed. May not even do what everyone may."""
        return _NOBODY_TOKEN

    @property
    def watches(self) -> bool:
        """Whether this is a monitor."""
        return self.only == _WATCHED

    @classmethod
    def administrator(cls, sid: Sid | None = None, groups: Iterable[Sid] = ()) -> Token:
        """May do everything. `sid` is None for the bearer of the API's token."""
        return cls(sid, frozenset({*groups, ADMINISTRATORS, EVERYONE, AUTHENTICATED_USERS}), everything=True)


_NOBODY_TOKEN = Token(None, only=0)
_EVERYONE_TOKEN = Token(None, frozenset({EVERYONE}))
_ANONYMOUS_TOKEN = Token(ANONYMOUS, frozenset({EVERYONE}))


def allowed(descriptor: SecurityDescriptor, token: Token, mask: int) -> bool:
    """Whether the token has every right in `mask`, [MS-DTYP] 2.5.3.2. `mask` contains specific rights only."""
    if token.everything:
        return True
    mask = int(mask)  # an operator of IntFlag takes ten times as long
    if token.only is not None:
        return bool(token.only) and not mask & ~token.only
    if mask & _SYSTEM_SECURITY:
        return False  # this needs a privilege that only administrators have
    dacl = descriptor.dacl
    if dacl is None:
        return True
    keys = token.keys
    if descriptor.owner_key in keys:
        if dacl.names_owner:  # 2.4.2.4 OWNER_RIGHTS: the entry replaces what an owner can do without it
            keys |= _OWNER_RIGHTS_KEYS
        else:
            mask &= _NOT_IMPLICIT
    for denies, bits, sid in dacl.checks:
        if not mask:
            return True
        if mask & bits and sid in keys:
            if denies:
                return False
            mask &= ~bits
    return not mask


def default_queue_descriptor(
    creator: Sid | None = ADMINISTRATORS,
    *,
    supplied: SecurityDescriptor | None = None,
    machine: Sid | None = None,
    is_domain_user: Callable[[Sid], bool] = can_own,
    srmp: bool = True,
) -> SecurityDescriptor:
    """The descriptor of a new queue, [MS-MQDMPR] 3.1.7.1.3.1. `machine` is the SID of this computer in its domain.

    The owner and the lists of `supplied` are kept. An owner who is not a domain user counts as anonymous, and then
    Everyone gets all rights. Users that this manager knows count as domain users. Administrators own the queues of the
    configuration file, because an open list would let everyone receive their messages. `srmp` says whether SOAP senders
    can reach the queue: they need the right to write for Everyone.
    """
    supplied = supplied or SecurityDescriptor()
    owner = supplied.owner or creator
    if owner is None or not is_domain_user(owner):
        owner = ANONYMOUS
    dacl = supplied.dacl
    if dacl is None:
        open_to_all = owner == ANONYMOUS or is_guest(owner)
        dacl = _default_queue_dacl(None if open_to_all else owner, machine, srmp)
    return replace(supplied, owner=owner, dacl=dacl).mapped(QUEUE_MAPPING)


def _default_queue_dacl(owner: Sid | None, machine: Sid | None, srmp: bool) -> Acl:
    see = (QueueRight.GET_QUEUE_PROPERTIES | QueueRight.GET_QUEUE_PERMISSIONS).value
    write = QueueRight.WRITE_MESSAGE.value if srmp else 0
    full = QueueRight.QUEUE_GENERIC_ALL.value
    entries = (
        (EVERYONE, (full if owner is None else see) | write),
        (ANONYMOUS, write),
        (machine, see),
        (owner, full),
    )
    return Acl(tuple(Ace(AceType.ALLOW, mask, sid) for sid, mask in entries if sid is not None and mask))


def default_manager_descriptor(
    owner: Sid = ADMINISTRATORS, *, machine: Sid | None = None, foreign: bool = False
) -> SecurityDescriptor:
    """The descriptor of a queue manager, [MS-MQDSSM] 3.1.6.1.1.8.

    It has no entry with MQSEC_MACHINE_SELF_RIGHTS: no specification says what those rights are, and the entry before it
    gives the computer all rights.
    """
    world = QueueManagerRight.MACHINE_GENERIC_WRITE if foreign else QueueManagerRight.MACHINE_WORLD_RIGHTS
    full = QueueManagerRight.MACHINE_GENERIC_ALL.value
    entries = ((EVERYONE, world.value), (machine, full), (owner, full))
    return SecurityDescriptor(
        owner=owner, dacl=Acl(tuple(Ace(AceType.ALLOW, mask, sid) for sid, mask in entries if sid is not None))
    )


def grant(descriptor: SecurityDescriptor, who: Sid, mask: int) -> SecurityDescriptor:
    """Adds an entry that allows, after the entries that deny. Without a DACL all is allowed, so nothing changes."""
    if descriptor.dacl is None:
        return descriptor
    aces = descriptor.dacl.aces
    denies = [index for index, ace in enumerate(aces) if ace.type == AceType.DENY and not ace.inherited]
    behind = denies[-1] + 1 if denies else 0
    # The new entry comes last among the list's own entries: [MS-DTYP] 2.4.5 puts inherited entries after them.
    own = [index for index, ace in enumerate(aces) if not ace.inherited]
    end = max(behind, own[-1] + 1 if own else 0)
    return _with_entry(descriptor, aces, Ace(AceType.ALLOW, mask, who), behind, end)


def deny(
    descriptor: SecurityDescriptor, who: Sid, mask: int, *, full: int = QueueRight.QUEUE_GENERIC_ALL.value
) -> SecurityDescriptor:
    """Adds an entry that denies, before those that allow. If there was no DACL, everyone keeps the rights in `full`."""
    everyone = (Ace(AceType.ALLOW, full, EVERYONE),)
    aces = everyone if descriptor.dacl is None else descriptor.dacl.aces
    end = 0
    while end < len(aces) and aces[end].type == AceType.DENY and not aces[end].inherited:
        end += 1
    return _with_entry(descriptor, aces, Ace(AceType.DENY, mask, who), 0, end)


def revoke(descriptor: SecurityDescriptor, who: Sid, mask: int) -> SecurityDescriptor:
    """Removes the rights of `mask` from all entries of `who` that allow or deny. Without a DACL nothing changes."""
    if descriptor.dacl is None:
        return descriptor
    aces = []
    for ace in descriptor.dacl.aces:
        if isinstance(ace, Ace) and ace.sid == who and ace.type != AceType.AUDIT:
            if not ace.mask & ~mask:
                continue
            ace = replace(ace, mask=ace.mask & ~mask)
        aces.append(ace)
    return replace(descriptor, dacl=Acl(tuple(aces)))


def _with_entry(
    descriptor: SecurityDescriptor, aces: tuple[Ace | OtherAce, ...], new: Ace, start: int, end: int
) -> SecurityDescriptor:
    """Adds the rights of `new` to an equal entry between `start` and `end`, or inserts `new` at `end`."""
    changed = list(aces)
    for index in range(start, end):
        ace = aces[index]
        if isinstance(ace, Ace) and (ace.type, ace.sid, ace.flags) == (new.type, new.sid, new.flags):
            changed[index] = replace(ace, mask=ace.mask | new.mask)
            break
    else:
        changed.insert(end, new)
    return replace(descriptor, dacl=Acl(tuple(changed)))
