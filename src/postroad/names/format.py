"""The format names that hold a GUID or a group address, lists of names, and the parser of all format names.

[MS-MQMQ] 2.1.3 to 2.1.7; direct names have their own module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address
from uuid import UUID

from postroad.errors import IllegalFormatName
from postroad.names.base import COMPUTER_SUFFIXES, FormatName, MsmqVersion, QueueSuffixType
from postroad.names.direct import CACHE_ENTRIES, CACHE_TEXT_MAX, PORT_MAX, scan_direct
from postroad.names.ids import UINT32_MAX, ObjectId
from postroad.names.path import PathName
from postroad.names.scanner import Scanner

DOMAIN_MAX = 255
_PRIVATE_NUMBER_DIGITS = 8
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]*")
# VCHAR without the comma, which separates two names in a list.
_DOMAIN = re.compile(r"[\x21-\x2B\x2D-\x7E]*")


@dataclass(frozen=True, slots=True)
class PublicName(FormatName):
    """A public queue by its identifier in the directory, or its journal."""

    guid: UUID
    journal: bool = False

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.JOURNAL if self.journal else QueueSuffixType.NONE

    def __str__(self) -> str:
        return f"PUBLIC={self.guid}{';JOURNAL' if self.journal else ''}"


@dataclass(frozen=True, slots=True)
class PrivateName(FormatName):
    """A private queue by the identifier of its queue manager and its number there, or its journal."""

    guid: UUID
    number: int
    journal: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.number <= UINT32_MAX:
            raise IllegalFormatName(str(self), 0, "the number of a private queue must fit in 32 bits")

    @classmethod
    def from_object_id(cls, object_id: ObjectId, journal: bool = False) -> PrivateName:
        return cls(object_id.lineage, object_id.uniquifier, journal)

    @property
    def object_id(self) -> ObjectId:
        return ObjectId(self.guid, self.number)

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.JOURNAL if self.journal else QueueSuffixType.NONE

    def __str__(self) -> str:
        return f"PRIVATE={self.guid}\\{self.number:x}{';JOURNAL' if self.journal else ''}"


@dataclass(frozen=True, slots=True)
class MachineName(FormatName):
    """A computer's own journal or dead-letter queue. A name without a suffix is legal, but names no queue."""

    guid: UUID
    computer_suffix: QueueSuffixType = QueueSuffixType.NONE

    def __post_init__(self) -> None:
        if self.computer_suffix not in (QueueSuffixType.NONE, *COMPUTER_SUFFIXES.values()):
            raise IllegalFormatName(str(self), 0, "a computer's own queue must be ;JOURNAL, ;DEADLETTER or ;DEADXACT")

    @property
    def suffix(self) -> QueueSuffixType:
        return self.computer_suffix

    def __str__(self) -> str:
        suffix = f";{self.computer_suffix.name}" if self.computer_suffix else ""
        return f"MACHINE={self.guid}{suffix}"


@dataclass(frozen=True, slots=True)
class ConnectorName(FormatName):
    """The queue of a connector to a foreign site, or its transactional one."""

    guid: UUID
    xact_only: bool = False

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.XACTONLY if self.xact_only else QueueSuffixType.NONE

    def __str__(self) -> str:
        return f"CONNECTOR={self.guid}{';XACTONLY' if self.xact_only else ''}"


@dataclass(frozen=True, slots=True)
class DistributionListName(FormatName):
    """A list in the directory. The domain only says where to look first, so comparisons ignore it."""

    guid: UUID
    domain: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.domain is not None:
            scanner = Scanner(str(self), IllegalFormatName, len(str(self)) - len(self.domain))
            scanner.word("a domain", _DOMAIN, DOMAIN_MAX, "")

    def __str__(self) -> str:
        return f"DL={self.guid}{'' if self.domain is None else f'@{self.domain}'}"


@dataclass(frozen=True, slots=True)
class MulticastName(FormatName):
    """Every queue that listens to an IPv4 group address and port."""

    address: IPv4Address
    port: int

    def __post_init__(self) -> None:
        if not self.address.is_multicast:
            raise IllegalFormatName(str(self), 0, "a multicast address must start with 224 to 239")
        if not 0 <= self.port <= PORT_MAX:
            raise IllegalFormatName(str(self), 0, f"a port must be at most {PORT_MAX}")

    @property
    def is_send_only(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"MULTICAST={self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class MultipleElementName(FormatName):
    """Two or more names, to send to all of them at once."""

    elements: tuple[FormatName, ...]

    def __post_init__(self) -> None:
        if len(self.elements) < 2:
            raise IllegalFormatName(str(self), 0, "a list must have two or more elements")
        for element in self.elements:
            fault = _element_fault(element)
            if fault is not None:
                raise IllegalFormatName(str(self), 0, fault)

    def __str__(self) -> str:
        return ",".join(map(str, self.elements))


def _element_fault(name: FormatName) -> str | None:
    if isinstance(name, MultipleElementName):
        return "a list cannot hold a list"
    if isinstance(name, MachineName):
        return "a list cannot hold a MACHINE= name"
    if name.is_read_only:
        return "a list cannot hold a journal or a dead-letter queue: messages cannot be sent to them"
    return None


def parse_format_name(text: str, version: MsmqVersion = MsmqVersion.V6, strict: bool = False) -> FormatName:
    """Reads a format name of any kind, or a list of them; raises IllegalFormatName on any other text.

    `strict` accepts the printed grammar only: no suffixes of PUBLIC, MACHINE and CONNECTOR names (which QUEUE_FORMAT
    has), no SPX, no slashes before the queue in HTTP names. A name read as V1 may contain a comma, and then only V1
    can read it again.
    """
    parse = _parse_cached if len(text) <= CACHE_TEXT_MAX else _parse
    return parse(text, version, strict)


def parse_name(text: str) -> PathName | FormatName:
    r"""Reads any name that a person may write for a queue: a format name, a path, or `private$\orders` for a local one.

    Text with an equals sign before any backslash counts as a format name: a computer is never called `DIREKT=OS`.
    """
    if "=" in text.partition("\\")[0]:
        return parse_format_name(text)
    return _path_cached(text) if len(text) <= CACHE_TEXT_MAX else PathName.parse(text)


def _parse(text: str, version: MsmqVersion, strict: bool) -> FormatName:
    elements: list[FormatName] = []
    start = 0
    while True:
        # Since 2.0 names contain no comma, so every comma separates two elements, [MS-MQMQ] 2.1.7.
        comma = text.find(",", start) if version >= MsmqVersion.V2 else -1
        scanner = Scanner(text, IllegalFormatName, start, None if comma < 0 else comma)
        element = _scan_element(scanner, version, strict)
        if comma < 0 and not elements:
            return element
        fault = _element_fault(element)
        if fault is not None:
            scanner.fail(fault, start)
        elements.append(element)
        if comma < 0:
            return MultipleElementName(tuple(elements))
        start = comma + 1


_parse_cached = lru_cache(CACHE_ENTRIES)(_parse)
_path_cached = lru_cache(CACHE_ENTRIES)(PathName.parse)


def _scan_element(scanner: Scanner, version: MsmqVersion, strict: bool) -> FormatName:
    start = scanner.position
    equals = scanner.text.find("=", start, scanner.stop)
    scan = _KINDS.get(scanner.text[start:equals].lower()) if equals >= 0 else None
    if scan is None:
        if scanner.next_character.isspace():
            scanner.fail("a format name must not start with a space")
        kinds = ", ".join(f"{kind.upper()}=" for kind in _KINDS)
        scanner.fail(f"a format name must start with one of {kinds}")
    scanner.position = equals + 1
    name = scan(scanner, version, strict)
    scanner.expect_end("the name must end here")
    return name


def _accept_suffix(scanner: Scanner, suffix: str, strict: bool) -> bool:
    """Skips `;SUFFIX` if there is one, and refuses anything else."""
    if scanner.at_end:
        return False
    start = scanner.position
    if strict or not scanner.accept(f";{suffix}"):
        allowed = "nothing" if strict else f"nothing but ;{suffix.upper()}"
        scanner.fail(f"{allowed} can follow here", start)
    return True


def _scan_public(scanner: Scanner, version: MsmqVersion, strict: bool) -> PublicName:
    return PublicName(scanner.guid(), _accept_suffix(scanner, "journal", strict))


def _scan_private(scanner: Scanner, version: MsmqVersion, strict: bool) -> PrivateName:
    guid = scanner.guid()
    if not scanner.accept("\\"):
        scanner.fail(r"the GUID must be followed by a backslash and the queue's number, as in PRIVATE=guid\1f")
    number = scanner.word("the hexadecimal number of a private queue", _HEXADECIMAL, _PRIVATE_NUMBER_DIGITS, ";")
    # Only private names have ;JOURNAL in the printed grammar.
    return PrivateName(guid, int(number, 16), _accept_suffix(scanner, "journal", strict=False))


def _scan_machine(scanner: Scanner, version: MsmqVersion, strict: bool) -> MachineName:
    guid = scanner.guid()
    if scanner.at_end:
        return MachineName(guid)
    start = scanner.position
    suffix = COMPUTER_SUFFIXES.get(scanner.text[start + 1 : scanner.stop].lower()) if scanner.accept(";") else None
    if suffix is None or strict:
        allowed = "nothing" if strict else "nothing but ;JOURNAL, ;DEADLETTER or ;DEADXACT"
        scanner.fail(f"{allowed} can follow here", start)
    scanner.position = scanner.stop
    return MachineName(guid, suffix)


def _scan_connector(scanner: Scanner, version: MsmqVersion, strict: bool) -> ConnectorName:
    return ConnectorName(scanner.guid(), _accept_suffix(scanner, "xactonly", strict))


def _scan_distribution_list(scanner: Scanner, version: MsmqVersion, strict: bool) -> DistributionListName:
    guid = scanner.guid()
    if scanner.at_end:
        return DistributionListName(guid)
    if not scanner.accept("@"):
        scanner.fail("nothing but @ and a domain can follow the GUID of a distribution list")
    return DistributionListName(guid, scanner.word("a domain", _DOMAIN, DOMAIN_MAX, ""))


def _scan_multicast(scanner: Scanner, version: MsmqVersion, strict: bool) -> MulticastName:
    if version < MsmqVersion.V3:
        scanner.fail("multicast names need MSMQ 3.0 or later")
    start = scanner.position
    octets = [_scan_decimal(scanner, "an octet of the address", 255)]
    while len(octets) < 4:
        if not scanner.accept("."):
            scanner.fail("a multicast name must have an IPv4 address, as in MULTICAST=234.1.1.1:8001")
        octets.append(_scan_decimal(scanner, "an octet of the address", 255))
    if not 224 <= octets[0] <= 239:
        scanner.fail("a multicast address must start with 224 to 239", start)
    if not scanner.accept(":"):
        scanner.fail("a multicast name must have a port, as in MULTICAST=234.1.1.1:8001")
    # Only the comments of the printed grammar give the range of ports. Its rules start at the digit 1.
    return MulticastName(IPv4Address(bytes(octets)), _scan_decimal(scanner, "a port", PORT_MAX))


def _scan_decimal(scanner: Scanner, what: str, largest: int) -> int:
    start = scanner.position
    digits = scanner.digits()
    if not digits:
        scanner.fail(f"{what} must be a decimal number")
    if len(digits) > 1 and digits[0] == "0":
        scanner.fail(f"{what} must not have leading zeros", start)
    if len(digits) > len(str(largest)) or int(digits) > largest:
        scanner.fail(f"{what} must be at most {largest}", start)
    return int(digits)


_KINDS: dict[str, Callable[[Scanner, MsmqVersion, bool], FormatName]] = {
    "direct": scan_direct,
    "public": _scan_public,
    "private": _scan_private,
    "machine": _scan_machine,
    "connector": _scan_connector,
    "dl": _scan_distribution_list,
    "multicast": _scan_multicast,
}
