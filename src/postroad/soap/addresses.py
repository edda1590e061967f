"""Queues as URLs, [MC-MQSRM] 2.2.4.2 and [MS-MQMQ] 2.1.2: `http://alpha/msmq/private$/orders` and format names.

This module does not know the local computer, or whether a queue exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from postroad.errors import IllegalName, LocalProtocolError, MalformedSoap
from postroad.names import (
    DirectName,
    FormatName,
    MulticastName,
    PathName,
    PrivateName,
    Protocol,
    PublicName,
    parse_format_name,
)
from postroad.names.format import url_path
from postroad.names.path import QueueKind
from postroad.net.ports import HTTP, HTTPS
from postroad.soap.simple_types import shown

MSMQ_PREFIX = "MSMQ:"
HTTP_PREFIXES = ("http://", "https://")
# The path of a queue that a name gives only as an identifier. None if nobody knows it.
Resolve = Callable[[FormatName], PathName | None]

_HTTP = (Protocol.HTTP, Protocol.HTTPS)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_AUTHORITY = re.compile(r"https?://[^/\\?]*", re.IGNORECASE)
_HOST = re.compile(r"https?://(?:\[[^\]]*\]|[^:/]*)")
_UNESCAPED = "/$?=&;:@!'()*+,~%-._"  # not escaped in a request line; the samples leave $ as it is


def is_http(text: str) -> bool:
    return text[:8].lower().startswith(HTTP_PREFIXES)


def destination_of(to: str, place: str = "path/to") -> DirectName | MulticastName:
    """3.1.5.1.1: the format name in `to`. The query of a URL belongs to its sender and names nothing here."""
    try:
        if is_http(to):
            return DirectName.from_wire(to.partition("?")[0])
        if to[: len(MSMQ_PREFIX)].upper() == MSMQ_PREFIX:
            name = parse_format_name(to[len(MSMQ_PREFIX) :])
            if isinstance(name, MulticastName):
                return name
    except IllegalName as error:
        raise MalformedSoap(place, str(error)) from None
    raise MalformedSoap(place, f"must be the URL of a queue or a multicast address, got {shown(to)}")


def to_text(name: FormatName) -> str:
    """2.2.4.2: a destination as `to` expresses it. DIRECT= is never part of it."""
    if isinstance(name, DirectName) and name.protocol in _HTTP:
        return url_of(name)
    if isinstance(name, MulticastName):
        return f"{MSMQ_PREFIX}{name}"
    raise LocalProtocolError(f"must be a destination that SOAP can name, got {name}")


def url_of(name: DirectName) -> str:
    """The URL of a direct name, with its scheme in lower case, forward slashes, and escapes for what a URL cannot hold.
    The rest keeps its case."""
    text = name.wire_text
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise LocalProtocolError(f"must be a URL, got {name}")
    authority = _AUTHORITY.match(text)
    assert authority is not None
    path = quote(text[authority.end() :].replace("\\", "/"), safe=_UNESCAPED)
    return scheme[0].lower() + text[scheme.end() : authority.end()] + path


def at_address(name: DirectName, address: str) -> DirectName:
    """The same queue, with an address in place of the host. Raises IllegalName if the name becomes too long."""
    rest = _HOST.sub("", url_of(name), count=1)
    scheme = "https" if name.protocol is Protocol.HTTPS else "http"
    host = f"[{address}]" if ":" in address else address
    return DirectName.from_wire(f"{scheme}://{host}{rest}")


def via_text(name: FormatName) -> str:
    """2.2.4.4: a response queue as a URL, or MSMQ: and any other format name."""
    return url_of(name) if isinstance(name, DirectName) and name.protocol in _HTTP else f"{MSMQ_PREFIX}{name}"


def via_name(via: str, place: str = "path/rev/via") -> FormatName | None:
    """The format name after MSMQ:. None if there is none; the caller then takes the text as a URL."""
    if via[: len(MSMQ_PREFIX)].upper() != MSMQ_PREFIX:
        return None
    try:
        return parse_format_name(via[len(MSMQ_PREFIX) :])
    except IllegalName as error:
        raise MalformedSoap(place, str(error)) from None


def receipt_url(name: FormatName, resolve: Resolve) -> str | None:
    """2.2.5.2.2: an administration queue as a URL, however it is named. None if its computer is unknown."""
    if isinstance(name, DirectName):
        return url_of(name) if name.protocol in _HTTP else _path_url(name.path_name)
    if isinstance(name, PrivateName | PublicName):
        path = resolve(name)
        return None if path is None else _path_url(path)
    return None


def _path_url(path: PathName) -> str | None:
    if path.tail.kind is QueueKind.SYSTEM or path.is_local:
        return None
    host = f"[{path.computer}]" if ":" in path.computer else path.computer
    return f"http://{host}/msmq{url_path(str(path.tail))}"


def request_target(url: str) -> str:
    """4.2, 4.4: the path and query of a URL, in lower case, for the request line."""
    authority = _AUTHORITY.match(url)
    target = url[authority.end() :] if authority else url
    return quote(target.replace("\\", "/").lower(), safe=_UNESCAPED) or "/"


# Redirections of URLs, [MC-MQSRM] 3.1.1.1.7 to 3.1.1.1.10: one URL that an administrator puts in place of another. Only
# values and matching are here. The sender and the receiver decide whom they redirect.


ORDER_QUEUE_PATH = "/MSMQ/PRIVATE$/order_queue$"  # 3.1.7.2.4, with the slash that the specification forgets
_DEFAULT_PORTS = {"http": HTTP, "https": HTTPS}


def matches(url: str, pattern: str) -> bool:
    """3.1.1.1.10: a trailing asterisk stands for any rest, an empty one too. Elsewhere an asterisk is just a character.

    Upper and lower case do not matter, nor do escapes and the kind of slash: all spellings of a queue's name mean the
    same.
    """
    url, pattern = _plain(url), _plain(pattern)
    return url.startswith(pattern[:-1]) if pattern.endswith("*") else url == pattern


def _plain(url: str) -> str:
    return unquote(url).lower().replace("\\", "/")


@dataclass(frozen=True, slots=True)
class Redirection:
    """3.1.1.1.10: `source` is From, `target` is To."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Redirections:
    """All redirections of the configuration. Each start reads them, so they are as durable as the file."""

    store_and_forward: bool = False  # TransparentStoreAndForward
    inbound: tuple[Redirection, ...] = ()  # InboundRedirectionCollection
    outbound: tuple[Redirection, ...] = ()  # OutboundRedirectionCollection
    outbound_exceptions: tuple[str, ...] = ()  # OutboundRedirectionExceptionCollection
    receipts: tuple[Redirection, ...] = ()  # StreamReceiptURLReplacementCollection
    default_receipts: str = ""  # DefaultStreamReceiptURLReplacement

    def inbound_target(self, url: str) -> str | None:
        """3.1.5.1.3: the URL to which a message for a local URL is redirected."""
        return _target(url, self.inbound)

    def outbound_target(self, url: str) -> str | None:
        """3.1.7.9: the URL whose host is connected to instead, unless the destination is an exception."""
        target = _target(url, self.outbound)
        if target is None or any(matches(url, each) for each in self.outbound_exceptions):
            return None
        return target

    def receipts_url(self, destination: str, computer: str, ports: dict[str, int]) -> str:
        """3.1.7.2.4 sendReceiptsTo: the URL configured for the destination, else the default, else our own order queue.

        `ports` are the ports that we listen on, by scheme. Standard ports are left out of the URL.
        """
        replaced = _target(destination, self.receipts) or self.default_receipts
        return replaced or own_url(destination, computer, ports) + ORDER_QUEUE_PATH


def own_url(destination: str, computer: str, ports: dict[str, int]) -> str:
    """The URL by which a peer reaches us with this scheme, such as `https://alpha`. It names the port unless that is
    the standard one."""
    scheme = "https" if destination.lower().startswith("https:") else "http"
    port = ports.get(scheme, _DEFAULT_PORTS[scheme])
    shown = "" if port == _DEFAULT_PORTS[scheme] else f":{port}"
    return f"{scheme}://{computer}{shown}"


def _target(url: str, redirections: Iterable[Redirection]) -> str | None:
    return next((each.target for each in redirections if matches(url, each.source)), None)
