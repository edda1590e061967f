"""Security descriptors as text: the Security Descriptor Description Language, [MS-DTYP] 2.5.1.

It reads and writes entries that allow, deny and audit. It does not support object entries and conditional entries,
because the access check of a queue ignores them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NoReturn

from postroad.errors import IllegalIdentifier, LocalProtocolError
from postroad.security.descriptors import Ace, AceFlag, AceType, Acl, Control, OtherAce, SecurityDescriptor, Sid
from postroad.validation.kinds import Kind, parsed

MAX_CHARACTERS = 1 << 20  # the longest access list is shorter as text
NO_ACCESS_CONTROL = "NO_ACCESS_CONTROL"  # Windows writes it if there is no DACL

# 2.5.1.1 sid-token. Aliases that depend on a domain are in DOMAIN_ALIASES.
ALIASES: Mapping[str, Sid] = {
    alias: Sid.parse(text)
    for alias, text in {
        "WD": "S-1-1-0",
        "CO": "S-1-3-0",
        "CG": "S-1-3-1",
        "OW": "S-1-3-4",
        "NU": "S-1-5-2",
        "IU": "S-1-5-4",
        "SU": "S-1-5-6",
        "AN": "S-1-5-7",
        "ED": "S-1-5-9",
        "PS": "S-1-5-10",
        "AU": "S-1-5-11",
        "RC": "S-1-5-12",
        "SY": "S-1-5-18",
        "LS": "S-1-5-19",
        "NS": "S-1-5-20",
        "WR": "S-1-5-33",
        "BA": "S-1-5-32-544",
        "BU": "S-1-5-32-545",
        "BG": "S-1-5-32-546",
        "PU": "S-1-5-32-547",
        "AO": "S-1-5-32-548",
        "SO": "S-1-5-32-549",
        "PO": "S-1-5-32-550",
        "BO": "S-1-5-32-551",
        "RE": "S-1-5-32-552",
        "RU": "S-1-5-32-554",
        "RD": "S-1-5-32-555",
        "NO": "S-1-5-32-556",
        "MU": "S-1-5-32-558",
        "LU": "S-1-5-32-559",
        "IS": "S-1-5-32-568",
        "CY": "S-1-5-32-569",
        "ER": "S-1-5-32-573",
        "CD": "S-1-5-32-574",
        "RA": "S-1-5-32-575",
        "ES": "S-1-5-32-576",
        "MS": "S-1-5-32-577",
        "HA": "S-1-5-32-578",
        "AA": "S-1-5-32-579",
        "RM": "S-1-5-32-580",
        "UD": "S-1-5-84-0-0-0-0-0",
        "AC": "S-1-15-2-1",
        "LW": "S-1-16-4096",
        "ME": "S-1-16-8192",
        "MP": "S-1-16-8448",
        "HI": "S-1-16-12288",
        "SI": "S-1-16-16384",
    }.items()
}
DOMAIN_ALIASES = frozenset({"DA", "DG", "DU", "DD", "DC", "LA", "LG", "SA", "CA", "RS", "EA", "PA", "RO", "CN"})
_ALIAS_OF = {sid: alias for alias, sid in ALIASES.items()}

# 2.5.1.1 generic-right, standard-right, object-specific-right. Windows writes the rights of a queue with the words of
# directory objects: CCDCLCSWRPWPSDRCWDWO is 0xf003f.
RIGHTS: Mapping[str, int] = {
    "GR": 0x80000000,
    "GW": 0x40000000,
    "GX": 0x20000000,
    "GA": 0x10000000,
    "WO": 0x00080000,
    "WD": 0x00040000,
    "RC": 0x00020000,
    "SD": 0x00010000,
    "CR": 0x00000100,
    "LO": 0x00000080,
    "DT": 0x00000040,
    "WP": 0x00000020,
    "RP": 0x00000010,
    "SW": 0x00000008,
    "LC": 0x00000004,
    "DC": 0x00000002,
    "CC": 0x00000001,
    "FA": 0x001F01FF,
    "FX": 0x001200A0,
    "FW": 0x00120116,
    "FR": 0x00120089,
    "KA": 0x000F003F,
    "KR": 0x00020019,
    "KX": 0x00020019,
    "KW": 0x00020006,
}
ACE_FLAGS: Mapping[str, AceFlag] = {
    "OI": AceFlag.OBJECT_INHERIT,
    "CI": AceFlag.CONTAINER_INHERIT,
    "NP": AceFlag.NO_PROPAGATE_INHERIT,
    "IO": AceFlag.INHERIT_ONLY,
    "ID": AceFlag.INHERITED,
    "SA": AceFlag.SUCCESSFUL_ACCESS,
    "FA": AceFlag.FAILED_ACCESS,
}
DACL_FLAGS: Mapping[str, Control] = {
    "P": Control.DACL_PROTECTED,
    "AR": Control.DACL_INHERITANCE_REQUIRED,
    "AI": Control.DACL_AUTO_INHERITED,
}
SACL_FLAGS: Mapping[str, Control] = {
    "P": Control.SACL_PROTECTED,
    "AR": Control.SACL_INHERITANCE_REQUIRED,
    "AI": Control.SACL_AUTO_INHERITED,
}
DACL_TYPES: Mapping[str, AceType] = {"A": AceType.ALLOW, "D": AceType.DENY}
SACL_TYPES: Mapping[str, AceType] = {"AU": AceType.AUDIT}
_TYPE_WORDS = {type: word for word, type in {**DACL_TYPES, **SACL_TYPES}.items()}
_OTHER_TYPES = frozenset({"OA", "OD", "OU", "ML", "SP", "XA", "XD", "XU", "ZA", "RA"})

# The SID ends after its digits: a section such as `D:` can follow at once.
_SID = re.compile(r"S-1-(?:0x[0-9A-F]{12}|[0-9]+)(?:-[0-9]+)+", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"0x[0-9A-F]{1,16}|[0-9]{1,20}", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"[A-Z]*", re.ASCII)


def parse_sddl(text: str) -> SecurityDescriptor:
    """Returns the descriptor that the text describes. Without `D:` it has no DACL. Generic rights stay generic.

    Raises IllegalIdentifier with the position of the fault.
    """
    if len(text) > MAX_CHARACTERS:
        raise IllegalIdentifier(
            text[:40], MAX_CHARACTERS, f"SDDL must have at most {MAX_CHARACTERS} characters, got {len(text)}"
        )
    return _Reader(text).descriptor()


SDDL: Final[Kind[SecurityDescriptor]] = parsed("an access list in SDDL", parse_sddl, MAX_CHARACTERS)


def format_sddl(descriptor: SecurityDescriptor) -> str:
    """Returns text that `parse_sddl` reads as an equal descriptor: rights in hexadecimal, aliases for well-known SIDs.

    The text cannot express bits such as OWNER_DEFAULTED. Raises LocalProtocolError for entries of other types.
    """
    text = "" if descriptor.owner is None else f"O:{_format_sid(descriptor.owner)}"
    text += "" if descriptor.group is None else f"G:{_format_sid(descriptor.group)}"
    for letter, acl, flags in (("D", descriptor.dacl, DACL_FLAGS), ("S", descriptor.sacl, SACL_FLAGS)):
        if acl is not None:
            words = "".join(word for word, bit in flags.items() if descriptor.control & bit)
            text += f"{letter}:{words}{''.join(map(_format_ace, acl.aces))}"
    return text or f"D:{NO_ACCESS_CONTROL}"  # parse_sddl refuses an empty text, because it is more likely a mistake


def _format_sid(sid: Sid) -> str:
    return _ALIAS_OF.get(sid) or str(sid)


def _format_ace(ace: Ace | OtherAce) -> str:
    if isinstance(ace, OtherAce):
        raise LocalProtocolError(f"an entry of type {ace.type:#04x} cannot be written as SDDL")
    flags = "".join(word for word, bit in ACE_FLAGS.items() if ace.flags & bit)
    return f"({_TYPE_WORDS[ace.type]};{flags};{ace.mask:#x};;;{_format_sid(ace.sid)})"


class _Reader:
    """Reads from left to right. Every method leaves `position` after what it has read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def descriptor(self) -> SecurityDescriptor:
        control = Control(0)
        owner = self.sid() if self.take("O:") else None
        group = self.sid() if self.take("G:") else None
        dacl = sacl = None
        if self.take("D:") and not self.take(NO_ACCESS_CONTROL):
            control |= Control(self.flags(DACL_FLAGS, "P, AR, AI or an entry in parentheses"))
            dacl = self.acl(DACL_TYPES)
        if self.take("S:"):
            control |= Control(self.flags(SACL_FLAGS, "P, AR, AI or an entry in parentheses"))
            sacl = self.acl(SACL_TYPES)
        if self.position < len(self.text) or not self.text:
            self.fail("O:, G:, D: or S:, each at most once and in this order")
        return SecurityDescriptor(owner, group, dacl, sacl, control)

    def acl(self, types: Mapping[str, AceType]) -> Acl:
        start = self.position
        aces = []
        while self.take("("):
            aces.append(self.ace(types))
        try:
            return Acl(tuple(aces))
        except LocalProtocolError as error:
            raise IllegalIdentifier(self.excerpt(), start, str(error)) from None

    def ace(self, types: Mapping[str, AceType]) -> Ace:
        word = self.word()
        if word not in types:
            also = "; entries for parts of objects and entries with conditions are not supported"
            self.fail(f"{' or '.join(types)}, the type of an entry", also if word in _OTHER_TYPES else "")
        self.position += len(word)
        self.expect(";")
        flags = self.flags(ACE_FLAGS, f"{', '.join(ACE_FLAGS)} or ;")
        self.expect(";")
        mask = self.rights()
        self.expect(";")
        self.expect(";", "object GUIDs are not supported")
        self.expect(";", "object GUIDs are not supported")
        sid = self.sid()
        self.expect(")")
        return Ace(types[word], mask, sid, flags)

    def flags(self, table: Mapping[str, int], wanted: str) -> int:
        """Reads words that follow each other directly. Each may occur once."""
        value = 0
        while self.text[self.position : self.position + 1].isalpha():
            # No word in these tables is the beginning of another.
            word = next((each for each in table if self.text.startswith(each, self.position)), None)
            if word is None and self.text.startswith("S:", self.position):
                break
            if word is None or value & table[word]:
                self.fail(wanted if word is None else f"a flag other than {word}, which is set already")
            value |= table[word]
            self.position += len(word)
        return int(value)

    def rights(self) -> int:
        if match := _NUMBER.match(self.text, self.position):
            digits = match[0].lower()
            base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") and len(digits) > 1 else 10
            try:
                value = int(digits, base)
            except ValueError:
                self.fail("octal digits after a leading 0 (hexadecimal starts with 0x)")
            if value > 0xFFFFFFFF:
                self.fail("rights that fit in 32 bits")
            self.position = match.end()
            return value
        value = 0
        while (word := self.text[self.position : self.position + 2]) in RIGHTS:
            value |= RIGHTS[word]
            self.position += 2
        if not self.text.startswith(";", self.position):
            self.fail(f"rights (a number such as 0x4, or words of {' '.join(RIGHTS)}) and then ;")
        return value

    def sid(self) -> Sid:
        if match := _SID.match(self.text, self.position):
            try:
                sid = Sid.parse(match[0])
            except IllegalIdentifier as error:
                raise IllegalIdentifier(self.excerpt(), self.position + error.position, error.fault) from None
            self.position = match.end()
            return sid
        alias = self.text[self.position : self.position + 2]
        if alias in DOMAIN_ALIASES:
            self.fail("a SID (S-1-5-...)", f"; the alias {alias} depends on a domain")
        if alias not in ALIASES:
            self.fail("a SID (S-1-5-...) or an alias such as WD, AN, AU, BA, SY")
        self.position += 2
        return ALIASES[alias]

    def word(self) -> str:
        match = _WORD.match(self.text, self.position)
        return match[0] if match else ""

    def take(self, token: str) -> bool:
        found = self.text.startswith(token, self.position)
        self.position += len(token) if found else 0
        return found

    def expect(self, token: str, why: str = "") -> None:
        if not self.take(token):
            self.fail(token, f"; {why}" if why else "")

    def fail(self, wanted: str, more: str = "") -> NoReturn:
        found = self.text[self.position : self.position + 12]
        got = repr(found) if found else "the end of the text"
        raise IllegalIdentifier(self.excerpt(), self.position, f"must be {wanted}, got {got}{more}")

    def excerpt(self) -> str:
        """The text as an error quotes it: at most one line."""
        return self.text if len(self.text) <= 200 else f"{self.text[:197]}..."
