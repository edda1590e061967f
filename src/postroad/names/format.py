"""All format names, [MS-MQMQ] 2.1.2 to 2.1.7: direct names, names with a GUID or a group address, and lists of names.

This module has their values and the parser for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote, unquote_to_bytes
from uuid import UUID

from postroad.errors import IllegalFormatName
from postroad.names.grammar import COMPUTER_SUFFIXES, FormatName, MsmqVersion, QueueSuffixType, Scanner
from postroad.names.ids import UINT32_MAX, ObjectId
from postroad.names.path import COMPUTER_MAX, KEYWORDS, PathName, QueueKind, QueueTail, scan_computer, scan_tail
from postroad.net import ports

# Direct format names, [MS-MQMQ] 2.1.2: a protocol, an address and a queue, as in `DIRECT=OS:alpha\private$\orders`.
#
# Addresses are parsed, never looked up.


PORT_MAX = 65535
# Messages repeat the same names. Longer texts are not cached, to keep the cache small.
CACHE_ENTRIES = 2048
CACHE_TEXT_MAX = 512


class Protocol(Enum):
    """The protocol of a direct name. The value is the printed token."""

    TCP = "TCP"
    OS = "OS"
    HTTP = "HTTP"
    HTTPS = "HTTPS"
    IPX = "IPX"
    SPX = "SPX"  # not in the grammar of 2.1.2, but names of order queues use it, [MS-MQQB] 2.2.4


_PROTOCOLS = {protocol.value.lower(): protocol for protocol in Protocol}
_DEFAULT_PORTS = {Protocol.HTTP: ports.HTTP, Protocol.HTTPS: ports.HTTPS}
# A computer's name without the comma, which separates two names in a list, [MS-MQMQ] 2.1.7.
_COMPUTER = re.compile(r"[\x21-\x2B\x2D-\x5B\x5D-\x7E]*")
# In a URL also without the characters that structure a URL: # % / : ? @ [ ]
_HTTP_HOST = re.compile(r"[\x21\x22\x24\x26-\x2B\x2D\x2E\x30-\x39\x3B-\x3E\x41-\x5A\x5E-\x7E]*")
_BRACKETED = re.compile(r"\[([^\]\\/]*)\]")
_IN_PATH = "/$=&;:@!'()*~"  # what needs no escape in the path of a URL; the samples of MC-MQSRM leave $ as it is
# RFC 3986 has no zone in IPv6address, but a link-local address is useless without one.
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._~-]+)?")
_IPX = {
    Protocol.IPX: (re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{12}"), "00000012:00A0246F4A15"),
    Protocol.SPX: (re.compile(r"[0-9A-Fa-f]{8}\.[0-9A-Fa-f]{12}"), "00000012.00A0246F4A15"),
}


@dataclass(frozen=True, slots=True)
class DirectName(FormatName):
    """A queue by the address of its computer, which can be found without a directory.

    `wire_text` is the name as it was written, without `DIRECT=`. `host` is the computer; an IPv6 address has no
    brackets. `port` is None except for HTTP and HTTPS. Two names are equal if they name the same queue: case, the
    slashes and escapes of HTTP, an explicit default port and the spelling of an IPv6 address do not count. The
    constructor checks nothing: use a parser, `from_wire` or `from_path`.
    """

    wire_text: str = field(compare=False)
    protocol: Protocol = field(compare=False)
    host: str = field(compare=False)
    port: int | None = field(compare=False)
    tail: QueueTail = field(compare=False)
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        host = self.host
        if ":" in host and (self.protocol is Protocol.TCP or self.protocol in _DEFAULT_PORTS):
            host = str(IPv6Address(host))
        port = "" if self.port is None else f":{self.port}"
        object.__setattr__(self, "key", f"{self.protocol.value}:{host}{port}{self.tail.key}".lower())

    @classmethod
    def from_wire(cls, text: str) -> DirectName:
        """Reads the direct string of a packet or an RPC call, with or without `DIRECT=`."""
        return _from_wire_cached(text) if len(text) <= CACHE_TEXT_MAX else _from_wire(text)

    @classmethod
    def from_path(cls, path: PathName) -> DirectName:
        """The name `DIRECT=OS:` with a path."""
        return cls.from_wire(f"OS:{path}")

    @property
    def path_name(self) -> PathName:
        """Get Queue Path for a direct name, [MS-MQDMPR] 3.1.7.1.26: the machine and what follows the address."""
        return PathName(self.host, self.tail)

    @property
    def suffix(self) -> QueueSuffixType:
        if self.tail.kind is QueueKind.SYSTEM:
            return COMPUTER_SUFFIXES[self.tail.name.lower()]
        if self.tail.journal:
            return QueueSuffixType.JOURNAL
        return QueueSuffixType.NONE if self.tail.subqueue is None else QueueSuffixType.SUBQUEUE

    @property
    def is_send_only(self) -> bool:
        return self.protocol in _DEFAULT_PORTS

    def __str__(self) -> str:
        return f"DIRECT={self.wire_text}"


def _from_wire(text: str) -> DirectName:
    scanner = Scanner(text, IllegalFormatName)
    scanner.accept("direct=")
    return scan_direct(scanner, MsmqVersion.V6, strict=False)


_from_wire_cached = lru_cache(CACHE_ENTRIES)(_from_wire)


def scan_direct(scanner: Scanner, version: MsmqVersion, strict: bool) -> DirectName:
    """Reads the text after `DIRECT=` to its end."""
    start = scanner.position
    protocol = _scan_protocol(scanner, strict)
    port = None
    separators = "\\"
    if protocol in _DEFAULT_PORTS:
        host, port = _scan_http_address(scanner, protocol)
        # The grammar has a backslash here, but URLs that people and SOAP headers write have a slash.
        separators = "\\" if strict else "\\/"
    else:
        host = _scan_address(scanner, protocol)
    if not scanner.accept_any(separators):
        scanner.fail("the address must be followed by a backslash and a queue, as in DIRECT=OS:alpha\\orders")
    tail_start = scanner.position
    if port is None or "%" not in scanner.text[tail_start : scanner.stop]:
        tail = scan_tail(scanner, version, separators, strict)
    else:
        tail = _scan_escaped_tail(scanner, version, separators, strict)
    if tail.kind is QueueKind.SYSTEM and (tail.name.lower() not in COMPUTER_SUFFIXES or tail.subqueue or tail.journal):
        scanner.fail("SYSTEM$; must be followed by JOURNAL, DEADLETTER or DEADXACT, and nothing else", tail_start)
    return DirectName(scanner.text[start : scanner.stop], protocol, host, port, tail)


def _scan_escaped_tail(scanner: Scanner, version: MsmqVersion, separators: str, strict: bool) -> QueueTail:
    """Reads the end of a URL with escapes. An escape that is not well-formed means itself."""
    start = scanner.position
    scanner.position = scanner.stop
    octets = unquote_to_bytes(scanner.text[start : scanner.stop].encode("utf-8", "surrogatepass"))
    try:
        return scan_tail(Scanner(octets.decode("utf-8", "surrogatepass"), scanner.error), version, separators, strict)
    except UnicodeDecodeError:
        scanner.fail("the escapes in a URL must be UTF-8, as in caf%C3%A9", start)
    except IllegalFormatName as fault:
        scanner.fail(f"behind the escapes, {fault.fault}", start)


def url_path(path: str) -> str:
    r"""A path without a computer, such as `private$\orders`, as the end of a URL. `scan_direct` reads it again."""
    return quote(path.replace("\\", "/"), safe=_IN_PATH)


def _scan_protocol(scanner: Scanner, strict: bool) -> Protocol:
    colon = scanner.text.find(":", scanner.position, scanner.stop)
    token = scanner.text[scanner.position : colon] if colon >= 0 else ""
    protocol = _PROTOCOLS.get(token.lower())
    if protocol is None or (strict and protocol is Protocol.SPX):
        scanner.fail("a direct name must start with TCP:, OS:, HTTP:, HTTPS: or IPX:")
    scanner.position = colon + 1
    return protocol


def _scan_address(scanner: Scanner, protocol: Protocol) -> str:
    start = scanner.position
    address = scan_computer(scanner, _COMPUTER)
    host, _, port = address.partition(":")
    if protocol not in _IPX and host and port.isdecimal():
        instead = f"DIRECT={'TCP' if _is_ip_address(host) else 'OS'}:{host}"
        scanner.fail(
            f"a name must not have a port: write {instead}, and set the port in [peers] of the configuration", start
        )
    if protocol is Protocol.TCP and not _is_ip_address(address):
        if address.startswith("["):
            scanner.fail(r"an IPv6 address must not have brackets here, as in DIRECT=TCP:fe80::1\orders", start)
        scanner.fail(f"TCP: must be followed by an IP address; for a computer name write DIRECT=OS:{address}", start)
    if protocol in _IPX and not _IPX[protocol][0].fullmatch(address):
        scanner.fail(
            f"the address must be a network and a host number, as in {protocol.value}:{_IPX[protocol][1]}", start
        )
    return address


def _is_ip_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return _is_ipv6_address(text)
    return True


def _is_ipv6_address(text: str) -> bool:
    if not _IPV6.fullmatch(text):
        return False
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _scan_http_address(scanner: Scanner, protocol: Protocol) -> tuple[str, int]:
    if not scanner.accept("//"):
        scanner.fail(f"two slashes and a host must follow, as in DIRECT={protocol.value}://alpha/msmq/private$/orders")
    bracketed = _BRACKETED.match(scanner.text, scanner.position, scanner.stop)
    if bracketed is not None:
        if not _is_ipv6_address(bracketed[1]):
            scanner.fail("brackets must hold an IPv6 address")
        scanner.position = bracketed.end()
        host = bracketed[1]
    else:
        start = scanner.position
        host = scanner.word("a host", _HTTP_HOST, COMPUTER_MAX, ":/\\")
        if host.lower() in KEYWORDS:
            scanner.fail(f"the host is missing before {host}", start)
    port = _scan_port(scanner, _DEFAULT_PORTS[protocol])
    if not scanner.accept("/msmq"):
        scanner.fail("/MSMQ must follow the host and its port, as in DIRECT=HTTP://alpha:8080/msmq/private$/orders")
    return host, port


def _scan_port(scanner: Scanner, default: int) -> int:
    if not scanner.accept(":"):
        return default
    start = scanner.position
    digits = scanner.digits()
    if scanner.next_character not in ("", "/", "\\"):
        scanner.fail("a port must be a decimal number")
    if not digits:
        return default  # the grammar allows a colon without digits
    significant = digits.lstrip("0") or "0"  # int() refuses a number with thousands of digits, even if they are zeros
    if len(significant) > len(str(PORT_MAX)) or int(significant) > PORT_MAX:
        scanner.fail(f"a port must be at most {PORT_MAX}", start)
    return int(significant)


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
    """A computer's own journal or dead-letter queue. A name without a suffix is legal, but does not name a queue."""

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
    """Reads a format name of any kind, or a list of them. Raises IllegalFormatName for any other text.

    `strict` accepts only the printed grammar: no suffixes of PUBLIC, MACHINE and CONNECTOR names (which QUEUE_FORMAT
    has), no SPX, no slashes before the queue in HTTP names, and only visible ASCII in names of queues. A name read as
    V1 may contain a comma, and then only V1 can read it again.
    """
    parse = _parse_cached if len(text) <= CACHE_TEXT_MAX else _parse
    return parse(text, version, strict)


def parse_name(text: str) -> PathName | FormatName:
    r"""Reads any name that a person may write for a queue: a format name, a path, or `private$\orders` for a local
    queue.

    Text with an equals sign before any backslash is read as a format name, because no computer is called `DIREKT=OS`.
    """
    if "=" in text.partition("\\")[0]:
        return parse_format_name(text)
    return _path_cached(text) if len(text) <= CACHE_TEXT_MAX else PathName.parse(text)


def _parse(text: str, version: MsmqVersion, strict: bool) -> FormatName:
    elements: list[FormatName] = []
    start = 0
    while True:
        # Since 2.0, names contain no comma, so every comma separates two elements, [MS-MQMQ] 2.1.7.
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
    """Skips `;SUFFIX` if it is there. Refuses anything else."""
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
    # Only comments in the printed grammar give the range of ports. Its rules start at the digit 1.
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


# Expand Format Name, [MS-MQDMPR] 3.1.7.3.8: flattens and sorts lists, and removes duplicates.
#
# A callable gives the members of a distribution list, so this needs no directory.


ResolveDistributionList = Callable[[DistributionListName], Iterable[FormatName]]


def expand_format_name(name: FormatName, resolve: ResolveDistributionList) -> FormatName:
    """The same destinations without distribution lists. A name that is not a list is returned unchanged.

    `resolve` gives the members of a list, which may be lists too. If it raises, the expansion raises the same
    exception. A list that contains itself is resolved once.
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


# The queues that every queue manager keeps for itself, [MS-MQDMPR] 3.1.3. Applications can list but not open them.
#
# Use only these names to recognise them: a user's queue may have a similar name, such as `my_queue$`.


ORDER_QUEUE: Final = "private$\\order_queue$"  # acknowledgments of streams between managers
ORDER_QUEUE_NUMBER: Final = 4
NOTIFY_QUEUE: Final = "private$\\notify_queue$"  # changes of the directory, [MS-MQCN] 1.9
NOTIFY_QUEUE_NUMBER: Final = 3
# messages that were sent and put in order, but not yet received
AWAITING_FINAL_ACK: Final = "private$\\final_ack_queue$"
# [MS-MQQB] note 62 knows only these three. On other managers, an application's queue may have the fourth's number.
_EVERYWHERE: Mapping[str, int] = {
    "private$\\admin_queue$": 2,
    NOTIFY_QUEUE: NOTIFY_QUEUE_NUMBER,
    ORDER_QUEUE: ORDER_QUEUE_NUMBER,
}
INTERNAL_QUEUES: Mapping[str, int] = {**_EVERYWHERE, AWAITING_FINAL_ACK: 5}


def is_internal(path: str) -> bool:
    r"""Whether a path without a computer, such as `private$\orders`, is an internal queue. Their journals are not."""
    return path.lower() in INTERNAL_QUEUES


def leads_to_internal(name: FormatName | PathName | None) -> bool:
    """Whether a name means an internal queue of any manager."""
    match name:
        case PrivateName():
            return name.number in _EVERYWHERE.values()
        case DirectName() | PathName():
            return name.tail.key[1:] in _EVERYWHERE
    return False
