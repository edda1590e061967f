"""Security descriptors, access lists and their entries, [MS-DTYP] 2.4.4 to 2.4.6, as values and as bytes.

The bytes are the self-relative form. access.py decides who may do what; sddl.py has the text form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag
from struct import Struct

from postroad.errors import IllegalIdentifier, LocalProtocolError, RemoteProtocolError
from postroad.security.rights import GenericMapping

# Security identifiers, [MS-DTYP] 2.4.2, as bytes in a packet and as the text that people know, `S-1-5-...`.


REVISION = 1
MAX_SUB_AUTHORITIES = 15  # [MS-DTYP] 2.4.2.2 SubAuthorityCount
_HEAD = Struct(">BBHI")  # the authority is the only big-endian number of the structure
_UINT32_MAX = 0xFFFFFFFF
_AUTHORITY_MAX = 0xFFFFFFFFFFFF
_TEXT = re.compile(r"S-1-([0-9]{1,10}|0x[0-9A-F]{12})((?:-[0-9]{1,10}){1,15})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sid:
    """`str()` gives text that parses to an equal value. `encode` gives the bytes that it was decoded from."""

    identifier_authority: int
    sub_authorities: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.identifier_authority <= _AUTHORITY_MAX:
            raise LocalProtocolError(f"a SID's authority must fit in 48 bits, got {self.identifier_authority}")
        if not 1 <= len(self.sub_authorities) <= MAX_SUB_AUTHORITIES:
            raise LocalProtocolError(
                f"a SID must have 1 to {MAX_SUB_AUTHORITIES} parts, got {len(self.sub_authorities)}"
            )
        if not all(0 <= part <= _UINT32_MAX for part in self.sub_authorities):
            raise LocalProtocolError("every part of a SID must fit in 32 bits")

    @classmethod
    def decode(cls, data: bytes) -> Sid:
        """Reads exactly one SID. Raises RemoteProtocolError for other bytes."""
        if len(data) < _HEAD.size:
            raise RemoteProtocolError(f"a SID must have at least {_HEAD.size + 4} bytes, got {len(data)}", len(data))
        revision, count, high, low = _HEAD.unpack_from(data)
        if revision != REVISION:
            raise RemoteProtocolError(f"SID revision must be {REVISION}, got {revision}", 0)
        if not 1 <= count <= MAX_SUB_AUTHORITIES:
            raise RemoteProtocolError(f"a SID must have 1 to {MAX_SUB_AUTHORITIES} parts, got {count}", 1)
        if len(data) != _HEAD.size + 4 * count:
            raise RemoteProtocolError(
                f"a SID of {count} parts must have {_HEAD.size + 4 * count} bytes, got {len(data)}", 1
            )
        return cls(high << 32 | low, Struct(f"<{count}I").unpack_from(data, _HEAD.size))

    def encode(self) -> bytes:
        count = len(self.sub_authorities)
        authority = self.identifier_authority
        return _HEAD.pack(REVISION, count, authority >> 32, authority & _UINT32_MAX) + Struct(f"<{count}I").pack(
            *self.sub_authorities
        )

    @classmethod
    def parse(cls, text: str) -> Sid:
        """[MS-DTYP] 2.4.2.1. Raises IllegalIdentifier for any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise IllegalIdentifier(text, 0, "a SID must be S-1-, an authority and 1 to 15 numbers, as in S-1-5-18")
        authority = int(match[1], 16) if match[1][:2].lower() == "0x" else int(match[1])
        parts = tuple(int(part) for part in match[2][1:].split("-"))
        if authority > _UINT32_MAX and match[1].isdigit():
            raise IllegalIdentifier(text, match.start(1), "an authority above 32 bits must be 0x and 12 digits")
        if max(parts) > _UINT32_MAX:
            raise IllegalIdentifier(text, match.start(2) + 1, "every part of a SID must fit in 32 bits")
        return cls(authority, parts)

    def __str__(self) -> str:
        authority = self.identifier_authority
        written = str(authority) if authority <= _UINT32_MAX else f"0x{authority:012X}"
        return f"S-1-{written}-{'-'.join(map(str, self.sub_authorities))}"


EVERYONE = Sid(1, (0,))  # S-1-1-0, [MS-DTYP] 2.4.2.4
ACL_REVISION = 2
ACL_REVISION_DS = 4  # for lists with object entries, [MS-DTYP] 2.4.5
MAX_ACL_BYTES = 0xFFFC  # AclSize has 16 bits, and the size of a list is a multiple of 4
_DESCRIPTOR = Struct("<BBHIIII")
_ACL = Struct("<BBHHH")
_ACE = Struct("<BBH")
_MASK = Struct("<I")
MAX_ACE_BODY_BYTES = MAX_ACL_BYTES - _ACL.size - _ACE.size
_SID_HEAD = 8  # bytes of a SID before its parts

OWNER_RIGHTS = Sid(3, (4,))  # S-1-3-4, [MS-DTYP] 2.4.2.4: stands for the object's owner at the time of the check


class Control(IntFlag):
    """SECURITY_DESCRIPTOR.Control, 2.4.6"""

    OWNER_DEFAULTED = 0x1
    GROUP_DEFAULTED = 0x2
    DACL_PRESENT = 0x4
    DACL_DEFAULTED = 0x8
    SACL_PRESENT = 0x10
    SACL_DEFAULTED = 0x20
    DACL_TRUSTED = 0x40
    SERVER_SECURITY = 0x80
    DACL_INHERITANCE_REQUIRED = 0x100
    SACL_INHERITANCE_REQUIRED = 0x200
    DACL_AUTO_INHERITED = 0x400
    SACL_AUTO_INHERITED = 0x800
    DACL_PROTECTED = 0x1000
    SACL_PROTECTED = 0x2000
    RM_CONTROL_VALID = 0x4000
    SELF_RELATIVE = 0x8000


NO_CONTROL = Control(0)
# These bits follow from other fields of a SecurityDescriptor.
_DERIVED = Control.SELF_RELATIVE | Control.DACL_PRESENT | Control.SACL_PRESENT


class AceType(IntEnum):
    """The entry types that consist of a mask and a SID, 2.4.4.1. Entries of other types are kept as bytes."""

    ALLOW = 0
    DENY = 1
    AUDIT = 2


class AceFlag(IntFlag):
    """AceFlags, 2.4.4.1"""

    OBJECT_INHERIT = 0x1
    CONTAINER_INHERIT = 0x2
    NO_PROPAGATE_INHERIT = 0x4
    INHERIT_ONLY = 0x8
    INHERITED = 0x10
    SUCCESSFUL_ACCESS = 0x40
    FAILED_ACCESS = 0x80


_MASK_AND_SID = frozenset(AceType)
# 2.4.4.1: types with object GUIDs, which need ACL_REVISION_DS
_OBJECT_TYPES = frozenset({0x05, 0x06, 0x07, 0x08, 0x0B, 0x0C, 0x0F, 0x10})


@dataclass(frozen=True, slots=True)
class Ace:
    """An entry that allows, denies or audits the rights of `mask` for `sid`."""

    type: AceType
    mask: int
    sid: Sid
    flags: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.mask <= _UINT32_MAX:
            raise LocalProtocolError(f"an access mask must fit in 32 bits, got {self.mask:#x}")
        if not 0 <= self.flags <= 0xFF:
            raise LocalProtocolError(f"the flags of an entry must fit in 8 bits, got {self.flags:#x}")

    @property
    def inherited(self) -> bool:
        return bool(self.flags & AceFlag.INHERITED)

    def encode(self) -> bytes:
        body = _MASK.pack(self.mask) + self.sid.encode()
        return _ACE.pack(self.type, self.flags, _ACE.size + len(body)) + body


@dataclass(frozen=True, slots=True)
class OtherAce:
    """An entry that the access check ignores: an object entry, a conditional one, or one of unknown type."""

    type: int
    body: bytes  # everything after the header
    flags: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.type <= 0xFF or self.type in _MASK_AND_SID:
            raise LocalProtocolError(f"the type of an entry kept as bytes must be 3 to 255, got {self.type}")
        if not 0 <= self.flags <= 0xFF:
            raise LocalProtocolError(f"the flags of an entry must fit in 8 bits, got {self.flags:#x}")
        if len(self.body) % 4 or len(self.body) > MAX_ACE_BODY_BYTES:
            raise LocalProtocolError(
                f"an entry's body must have a multiple of 4 bytes, at most {MAX_ACE_BODY_BYTES}, got {len(self.body)}"
            )

    @property
    def inherited(self) -> bool:
        return bool(self.flags & AceFlag.INHERITED)

    def encode(self) -> bytes:
        return _ACE.pack(self.type, self.flags, _ACE.size + len(self.body)) + self.body


@dataclass(frozen=True, slots=True)
class Acl:
    """An access list. The order of its entries matters.

    `checks` are the entries that decide access, as (denies, mask, SID in bytes). Every message is checked against them,
    so the hash of the bytes is computed only once.
    """

    aces: tuple[Ace | OtherAce, ...] = ()
    checks: tuple[tuple[bool, int, bytes], ...] = field(init=False, repr=False, compare=False)
    names_owner: bool = field(init=False, repr=False, compare=False)  # an entry for OWNER RIGHTS is among the checks

    def __post_init__(self) -> None:
        if (size := len(self.encode())) > MAX_ACL_BYTES:
            raise LocalProtocolError(f"an access list must have at most {MAX_ACL_BYTES} bytes, got {size}")
        effective = [
            ace
            for ace in self.aces
            if isinstance(ace, Ace) and ace.type != AceType.AUDIT and not ace.flags & AceFlag.INHERIT_ONLY
        ]
        checks = tuple((ace.type == AceType.DENY, ace.mask, ace.sid.encode()) for ace in effective)
        object.__setattr__(self, "checks", checks)
        object.__setattr__(self, "names_owner", any(ace.sid == OWNER_RIGHTS for ace in effective))

    def encode(self) -> bytes:
        revision = ACL_REVISION_DS if any(ace.type in _OBJECT_TYPES for ace in self.aces) else ACL_REVISION
        body = b"".join(ace.encode() for ace in self.aces)
        # A list that is too long is refused when it is made. So no wrong length leaves this module.
        return _ACL.pack(revision, 0, (_ACL.size + len(body)) & 0xFFFF, len(self.aces) & 0xFFFF, 0) + body


@dataclass(frozen=True, slots=True)
class SecurityDescriptor:
    """Without a DACL (None), everyone may do everything. With an empty DACL, nobody may do anything.

    `control` contains the bits that do not follow from other fields. `resource_manager` is the byte Sbz1.
    """

    owner: Sid | None = None
    group: Sid | None = None
    dacl: Acl | None = None
    sacl: Acl | None = None
    control: Control = NO_CONTROL
    resource_manager: int = 0
    owner_key: bytes | None = field(init=False, repr=False, compare=False)  # the owner in bytes, for access checks

    def __post_init__(self) -> None:
        if not 0 <= self.control <= 0xFFFF or self.control & _DERIVED:
            raise LocalProtocolError(
                f"the control bits of a descriptor must fit in 16 bits, without {int(_DERIVED):#x}; "
                f"got {int(self.control):#x}"
            )
        if not 0 <= self.resource_manager <= 0xFF:
            raise LocalProtocolError(f"the resource manager's byte must fit in 8 bits, got {self.resource_manager}")
        object.__setattr__(self, "owner_key", None if self.owner is None else self.owner.encode())

    @classmethod
    def decode(cls, data: bytes) -> SecurityDescriptor:
        """Reads the self-relative form, with its parts in any order. Raises RemoteProtocolError for other bytes."""
        if len(data) < _DESCRIPTOR.size:
            raise RemoteProtocolError(
                f"a security descriptor must have at least {_DESCRIPTOR.size} bytes, got {len(data)}", len(data)
            )
        revision, resource_manager, bits, owner, group, sacl, dacl = _DESCRIPTOR.unpack_from(data)
        if revision != REVISION:
            raise RemoteProtocolError(f"security descriptor revision must be {REVISION}, got {revision}", 0)
        control = Control(bits)
        if Control.SELF_RELATIVE not in control:
            raise RemoteProtocolError(
                f"a security descriptor must have the self-relative bit 0x8000, got {bits:#06x}", 2
            )
        for name, offset, bit, position in (
            ("SACL", sacl, Control.SACL_PRESENT, 12),
            ("DACL", dacl, Control.DACL_PRESENT, 16),
        ):
            if offset and bit not in control:
                raise RemoteProtocolError(
                    f"{name} offset must be 0 without the control bit {bit.value:#x}, got {offset}", position
                )
        return cls(
            owner=_decode_sid(data, owner, "owner"),
            group=_decode_sid(data, group, "group"),
            dacl=_decode_acl(data, dacl, "DACL"),
            sacl=_decode_acl(data, sacl, "SACL"),
            control=control & ~_DERIVED,
            resource_manager=resource_manager,
        )

    def encode(self) -> bytes:
        """Writes the self-relative form, with the parts in the order of the header's offsets."""
        control = self.control | Control.SELF_RELATIVE
        if self.dacl is not None:
            control |= Control.DACL_PRESENT
        if self.sacl is not None:
            control |= Control.SACL_PRESENT
        offsets, body = [], b""
        for part in (self.owner, self.group, self.sacl, self.dacl):
            offsets.append(0 if part is None else _DESCRIPTOR.size + len(body))
            body += b"" if part is None else part.encode()
        return _DESCRIPTOR.pack(REVISION, self.resource_manager, control, *offsets) + body

    def mapped(self, mapping: GenericMapping) -> SecurityDescriptor:
        """The descriptor with specific rights in place of generic ones. [MS-DTYP] 2.4.3 demands this when a descriptor
        is attached to an object: the access check compares specific rights only."""
        if self.dacl is None:
            return self
        aces = tuple(replace(a, mask=mapping.map(a.mask)) if isinstance(a, Ace) else a for a in self.dacl.aces)
        return replace(self, dacl=Acl(aces))


def _decode_sid(data: bytes, offset: int, name: str) -> Sid | None:
    if not offset:
        return None
    _require(data, offset, _SID_HEAD, f"the {name}'s SID")
    length = _SID_HEAD + 4 * data[offset + 1]
    return _sid(data, offset, min(offset + length, len(data)), f"the {name}")


def _decode_acl(data: bytes, offset: int, name: str) -> Acl | None:
    """A null offset is no list, whether or not the control bit is set: Windows writes both."""
    if not offset:
        return None
    _require(data, offset, _ACL.size, f"the {name}'s header")
    revision, _, size, count, _ = _ACL.unpack_from(data, offset)
    if revision not in (ACL_REVISION, ACL_REVISION_DS):
        raise RemoteProtocolError(f"{name} revision must be 2 or 4, got {revision}", offset)
    if size < _ACL.size or size % 4:
        raise RemoteProtocolError(f"{name} size must be a multiple of 4, at least {_ACL.size}, got {size}", offset + 2)
    _require(data, offset, size, f"the {name}")
    # Every entry takes at least its header. So the size of the list bounds this loop, however large the count is.
    aces, position, end = [], offset + _ACL.size, offset + size
    for index in range(1, count + 1):
        ace, position = _decode_ace(data, position, end, f"{name} entry {index} of {count}")
        aces.append(ace)
    return Acl(tuple(aces))  # bytes after the last entry are spare room, 2.4.5


def _decode_ace(data: bytes, position: int, end: int, name: str) -> tuple[Ace | OtherAce, int]:
    if end - position < _ACE.size:
        raise RemoteProtocolError(f"{name} must have at least {_ACE.size} bytes, got {end - position}", position)
    kind, flags, size = _ACE.unpack_from(data, position)
    if size < _ACE.size or size % 4 or size > end - position:
        raise RemoteProtocolError(
            f"{name} must have a size that is a multiple of 4, from {_ACE.size} to {end - position}, got {size}",
            position + 2,
        )
    after = position + size
    body = position + _ACE.size
    if kind not in _MASK_AND_SID:
        return OtherAce(kind, data[body:after], flags), after
    if size < _ACE.size + _MASK.size:
        raise RemoteProtocolError(f"{name} must have a mask and a SID, got {size} bytes", position + 2)
    (mask,) = _MASK.unpack_from(data, body)
    return Ace(AceType(kind), mask, _sid(data, body + _MASK.size, after, name), flags), after


def _sid(data: bytes, start: int, end: int, name: str) -> Sid:
    try:
        return Sid.decode(data[start:end])
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{name}: {error.fault}", start + (error.offset or 0)) from None


def _require(data: bytes, offset: int, length: int, name: str) -> None:
    if offset < _DESCRIPTOR.size:
        raise RemoteProtocolError(
            f"{name} must start behind the header of {_DESCRIPTOR.size} bytes, got {offset}", offset
        )
    if offset + length > len(data):
        raise RemoteProtocolError(f"{name} must end within {len(data)} bytes, got {offset + length}", offset)
