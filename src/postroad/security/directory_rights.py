"""The access list of a queue as Active Directory keeps it, and back.

[MS-MQDSSM] 3.1.6.1.2.2 copies Queue.Security into nTSecurityDescriptor. The bits of both differ, though: what is "see
the properties" for MSMQ is "write properties" for the directory. So the rights to use messages become the control
access rights of [MS-ADTS] 5.1.3.2.1 (msmq-Send and the like), and the others the directory's rights of the same
meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntFlag
from typing import Final
from uuid import UUID

from postroad.errors import RemoteProtocolError
from postroad.security.descriptors import EVERYONE, Ace, AceFlag, AceType, Acl, OtherAce, SecurityDescriptor, Sid
from postroad.security.rights import GenericMapping, QueueRight, StandardRight


class DirectoryRight(IntFlag):
    """Rights on an object of the directory, [MS-ADTS] 5.1.3.2."""

    CREATE_CHILD = 0x1
    DELETE_CHILD = 0x2
    LIST_CONTENTS = 0x4
    WRITE_PROPERTY_EXTENDED = 0x8
    READ_PROPERTY = 0x10
    WRITE_PROPERTY = 0x20
    DELETE_TREE = 0x40
    LIST_OBJECT = 0x80
    CONTROL_ACCESS = 0x100
    DELETE = StandardRight.DELETE.value
    READ_CONTROL = StandardRight.READ_CONTROL.value
    WRITE_DAC = StandardRight.WRITE_DAC.value
    WRITE_OWNER = StandardRight.WRITE_OWNER.value

    FULL = 0xF01FF


_SHARED: Final = int(
    DirectoryRight.DELETE | DirectoryRight.READ_CONTROL | DirectoryRight.WRITE_DAC | DirectoryRight.WRITE_OWNER
)
_PAIRS: Final = (
    (QueueRight.GET_QUEUE_PROPERTIES.value, DirectoryRight.READ_PROPERTY.value),
    (QueueRight.SET_QUEUE_PROPERTIES.value, DirectoryRight.WRITE_PROPERTY.value),
)
_RECEIVE: Final = UUID("06bd3200-df3e-11d1-9c86-006008764d0e")
_PEEK: Final = UUID("06bd3201-df3e-11d1-9c86-006008764d0e")
_SEND: Final = UUID("06bd3202-df3e-11d1-9c86-006008764d0e")
_RECEIVE_JOURNAL: Final = UUID("06bd3203-df3e-11d1-9c86-006008764d0e")
# What each control access right stands for: the bit that only it has, and all that it allows. A denial takes the bit
# alone, so that to deny receiving does not deny looking.
_CONTROL: Final = (
    (_RECEIVE, QueueRight.DELETE_MESSAGE.value, QueueRight.RECEIVE_MESSAGE.value),
    (_PEEK, QueueRight.PEEK_MESSAGE.value, QueueRight.PEEK_MESSAGE.value),
    (_SEND, QueueRight.WRITE_MESSAGE.value, QueueRight.WRITE_MESSAGE.value),
    (_RECEIVE_JOURNAL, QueueRight.DELETE_JOURNAL_MESSAGE.value, QueueRight.RECEIVE_JOURNAL_MESSAGE.value),
)
_MESSAGE_BITS: Final = sum(bit for _, bit, _ in _CONTROL)

_GENERIC: Final = GenericMapping(
    read=int(
        DirectoryRight.READ_CONTROL
        | DirectoryRight.LIST_CONTENTS
        | DirectoryRight.READ_PROPERTY
        | DirectoryRight.LIST_OBJECT
    ),
    write=int(DirectoryRight.READ_CONTROL | DirectoryRight.WRITE_PROPERTY_EXTENDED | DirectoryRight.WRITE_PROPERTY),
    all=int(DirectoryRight.FULL),
)

# ACCESS_ALLOWED_OBJECT_ACE and ACCESS_DENIED_OBJECT_ACE, [MS-DTYP] 2.4.4.3 and 2.4.4.5
_OBJECT_TYPES: Final = {AceType.ALLOW: 0x05, AceType.DENY: 0x06}
_PLAIN_TYPES: Final = {kind: plain for plain, kind in _OBJECT_TYPES.items()}
# ACCESS_DENIED_CALLBACK_ACE and ACCESS_DENIED_CALLBACK_OBJECT_ACE, [MS-DTYP] 2.4.4.7 and 2.4.4.9
_CONDITIONAL_DENIALS: Final = frozenset({0x0A, 0x0C})
_OBJECT: Final = struct.Struct("<II")  # the mask, and which GUIDs follow
_TYPE_PRESENT: Final = 1
_INHERITED_TYPE_PRESENT: Final = 2
_GUID_BYTES: Final = 16


def directory_descriptor(descriptor: SecurityDescriptor, writer: Sid | None = None) -> SecurityDescriptor:
    """The access list of a queue for nTSecurityDescriptor, without owner and audit list, which need privileges there.

    `writer` is the account that publishes: its entry comes first, so that no list can lock it out. Without a list,
    everyone may do everything with messages, and see the queue, but not change the directory.
    """
    aces: list[Ace | OtherAce] = []
    if writer is not None:
        aces.append(Ace(AceType.ALLOW, int(DirectoryRight.FULL & ~DirectoryRight.CONTROL_ACCESS), writer))
    dacl = descriptor.dacl
    if dacl is None:
        everything = _MESSAGE_BITS | QueueRight.GET_QUEUE_PROPERTIES | QueueRight.GET_QUEUE_PERMISSIONS
        dacl = Acl((Ace(AceType.ALLOW, int(everything), EVERYONE),))
    for ace in dacl.aces:
        if isinstance(ace, Ace) and ace.type in _OBJECT_TYPES and not ace.flags & AceFlag.INHERIT_ONLY:
            aces.extend(_to_directory(ace))
    return SecurityDescriptor(dacl=Acl(tuple(aces)))


def queue_descriptor(descriptor: SecurityDescriptor) -> SecurityDescriptor:
    """The access list of a queue from its nTSecurityDescriptor, with the owner. Entries about single attributes and
    about other kinds of objects say nothing about a queue, and are left out."""
    if descriptor.dacl is None:
        return SecurityDescriptor(owner=descriptor.owner)
    aces = (_from_directory(ace) for ace in descriptor.dacl.aces if not ace.flags & AceFlag.INHERIT_ONLY)
    return SecurityDescriptor(owner=descriptor.owner, dacl=Acl(tuple(each for each in aces if each is not None)))


def _to_directory(ace: Ace) -> Iterator[Ace | OtherAce]:
    mask = ace.mask & _SHARED
    for ours, theirs in _PAIRS:
        if ace.mask & ours:
            mask |= theirs
    if mask:
        yield Ace(ace.type, mask, ace.sid)
    for right, bit, _ in _CONTROL:
        if ace.mask & bit:
            head = _OBJECT.pack(DirectoryRight.CONTROL_ACCESS, _TYPE_PRESENT)
            yield OtherAce(_OBJECT_TYPES[ace.type], head + right.bytes_le + ace.sid.encode())


def _from_directory(ace: Ace | OtherAce) -> Ace | None:
    if isinstance(ace, Ace):
        if ace.type not in _OBJECT_TYPES:
            return None
        kind, mask, sid, right = ace.type, ace.mask, ace.sid, None
    else:
        found = _decode_object(ace)
        if found is None:
            return None
        kind, mask, sid, right = found
    mask = _GENERIC.map(mask)
    rights = 0
    if right is None:
        rights = mask & _SHARED
        for ours, theirs in _PAIRS:
            if mask & theirs:
                rights |= ours
    if mask & DirectoryRight.CONTROL_ACCESS:
        for each, bit, whole in _CONTROL:
            if right in (None, each):
                rights |= whole if kind is AceType.ALLOW else bit
    return Ace(kind, rights, sid) if rights else None


def _decode_object(ace: OtherAce) -> tuple[AceType, int, Sid, UUID | None] | None:
    """The kind, mask, SID and object type of an object entry. None for other entries, and if one that allows cannot be
    read. Raises RemoteProtocolError for one that denies and cannot be read, or has a condition: without it, the list
    would allow too much."""
    if ace.type in _CONDITIONAL_DENIALS:
        raise RemoteProtocolError("an entry that denies must not have a condition")
    kind = _PLAIN_TYPES.get(ace.type)
    if kind is None:
        return None
    try:
        return kind, *_object_parts(ace.body)
    except RemoteProtocolError:
        if kind is AceType.DENY:
            raise
        return None


def _object_parts(body: bytes) -> tuple[int, Sid, UUID | None]:
    if len(body) < _OBJECT.size:
        raise RemoteProtocolError(f"an object entry must have at least {_OBJECT.size} bytes, got {len(body)}")
    mask, present = _OBJECT.unpack_from(body)
    place, right = _OBJECT.size, None
    if present & _TYPE_PRESENT:
        if len(body) < place + _GUID_BYTES:
            raise RemoteProtocolError(f"an object entry must have a GUID, got {len(body)} bytes")
        right = UUID(bytes_le=body[place : place + _GUID_BYTES])
        place += _GUID_BYTES
    if present & _INHERITED_TYPE_PRESENT:
        place += _GUID_BYTES
    return mask, Sid.decode(body[place:]), right
