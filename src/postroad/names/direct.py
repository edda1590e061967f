r"""Direct format names, [MS-MQMQ] 2.1.2: a protocol, an address and a queue, as in `DIRECT=OS:alpha\private$\orders`.

Addresses are read, never looked up: no name resolution here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from postroad.errors import IllegalFormatName
from postroad.names.base import COMPUTER_SUFFIXES, FormatName, MsmqVersion, QueueSuffixType
from postroad.names.path import COMPUTER_MAX, KEYWORDS, PathName, QueueKind, QueueTail, scan_computer, scan_tail
from postroad.names.scanner import Scanner
from postroad.net import ports

PORT_MAX = 65535
# Messages repeat the same names. Longer texts are parsed each time, to keep the cache small.
CACHE_ENTRIES = 2048
CACHE_TEXT_MAX = 512


class Protocol(Enum):
    """The value is the token as it is printed."""

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
# RFC 3986 has no zone in IPv6address, but a link-local address is useless without one.
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._~-]+)?")
_IPX = {
    Protocol.IPX: (re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{12}"), "00000012:00A0246F4A15"),
    Protocol.SPX: (re.compile(r"[0-9A-Fa-f]{8}\.[0-9A-Fa-f]{12}"), "00000012.00A0246F4A15"),
}


@dataclass(frozen=True, slots=True)
class DirectName(FormatName):
    """A queue by its computer's address: no directory is needed to find it.

    `wire_text` is the name as it was written, without `DIRECT=`. `host` is the computer (an IPv6 address without
    brackets), `port` is None except for HTTP and HTTPS. Two names are equal if they name the same queue: case, the
    slashes of HTTP, an explicit default port and the spelling of an IPv6 address do not count. The constructor checks
    nothing: use a parser, `from_wire` or `from_path`.
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
        """Reads the direct string of a packet or of an RPC call, with or without `DIRECT=`."""
        return _from_wire_cached(text) if len(text) <= CACHE_TEXT_MAX else _from_wire(text)

    @classmethod
    def from_path(cls, path: PathName) -> DirectName:
        """`DIRECT=OS:` and the path."""
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
    """Reads the text after `DIRECT=`, up to the end."""
    start = scanner.position
    protocol = _scan_protocol(scanner, strict)
    port = None
    separators = "\\"
    if protocol in _DEFAULT_PORTS:
        host, port = _scan_http_address(scanner, protocol)
        # The grammar has a backslash here; the URLs that people and SOAP headers write have a slash.
        separators = "\\" if strict else "\\/"
    else:
        host = _scan_address(scanner, protocol)
    if not scanner.accept_any(separators):
        scanner.fail("the address must be followed by a backslash and a queue, as in DIRECT=OS:alpha\\orders")
    tail_start = scanner.position
    tail = scan_tail(scanner, version, separators)
    if tail.kind is QueueKind.SYSTEM and (tail.name.lower() not in COMPUTER_SUFFIXES or tail.subqueue or tail.journal):
        scanner.fail("SYSTEM$; must be followed by JOURNAL, DEADLETTER or DEADXACT, and nothing else", tail_start)
    return DirectName(scanner.text[start : scanner.stop], protocol, host, port, tail)


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
    significant = digits.lstrip("0") or "0"  # int() refuses thousands of digits, even of zeros
    if len(significant) > len(str(PORT_MAX)) or int(significant) > PORT_MAX:
        scanner.fail(f"a port must be at most {PORT_MAX}", start)
    return int(significant)
