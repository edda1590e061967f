r"""Queues as URLs, [MC-MQSRM] 2.2.4.2 and [MS-MQMQ] 2.1.2: `http://alpha/msmq/private$/orders` and format names.

Nothing here asks who the local computer is, or whether a queue exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
from postroad.names.path import QueueKind
from postroad.soap.texts import shown

MSMQ_PREFIX = "MSMQ:"
HTTP_PREFIXES = ("http://", "https://")
# Where a queue is that a name tells by an identifier alone, or None where nobody knows.
Resolve = Callable[[FormatName], PathName | None]

_HTTP = (Protocol.HTTP, Protocol.HTTPS)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_AUTHORITY = re.compile(r"https?://[^/\\?]*", re.IGNORECASE)
_HOST = re.compile(r"https?://(?:\[[^\]]*\]|[^:/]*)")
_AS_IT_IS = "/$?=&;:@!'()*+,~%-._"  # what stays unescaped in a request line; the samples leave $ alone


def is_http(text: str) -> bool:
    return text[:8].lower().startswith(HTTP_PREFIXES)


def destination_of(to: str, place: str = "path/to") -> DirectName | MulticastName:
    """3.1.5.1.1: the format name in `to`; a query in a URL is its sender's, and names nothing here."""
    try:
        if is_http(to):
            url = to.partition("?")[0]
            return DirectName.from_wire(unquote(url) if "%" in url else url)
        if to[: len(MSMQ_PREFIX)].upper() == MSMQ_PREFIX:
            name = parse_format_name(to[len(MSMQ_PREFIX) :])
            if isinstance(name, MulticastName):
                return name
    except IllegalName as error:
        raise MalformedSoap(place, str(error)) from None
    raise MalformedSoap(place, f"{shown(to)} is neither a queue by HTTP nor a multicast address")


def to_text(name: FormatName) -> str:
    """2.2.4.2: what `to` says of a destination; DIRECT= is never in it."""
    if isinstance(name, DirectName) and name.protocol in _HTTP:
        return url_of(name)
    if isinstance(name, MulticastName):
        return f"{MSMQ_PREFIX}{name}"
    raise LocalProtocolError(f"{name} is no destination for SOAP")


def url_of(name: DirectName) -> str:
    """The URL of a direct name, its scheme in lower case and its slashes forward; the rest keeps its case."""
    text = name.wire_text
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise LocalProtocolError(f"{name} is no URL")
    return scheme[0].lower() + text[scheme.end() :].replace("\\", "/")


def at_address(name: DirectName, address: str) -> DirectName:
    """The same queue, at an address in the place of the host; IllegalName where that is too long for a name."""
    rest = _HOST.sub("", url_of(name), count=1)
    scheme = "https" if name.protocol is Protocol.HTTPS else "http"
    host = f"[{address}]" if ":" in address else address
    return DirectName.from_wire(f"{scheme}://{host}{rest}")


def via_text(name: FormatName) -> str:
    """2.2.4.4: a response queue as a URL, or as any other format name behind MSMQ:."""
    return url_of(name) if isinstance(name, DirectName) and name.protocol in _HTTP else f"{MSMQ_PREFIX}{name}"


def via_name(via: str, place: str = "path/rev/via") -> FormatName | None:
    """The format name behind MSMQ:, None where there is none; a URL is taken as it is, and is not for here."""
    if via[: len(MSMQ_PREFIX)].upper() != MSMQ_PREFIX:
        return None
    try:
        return parse_format_name(via[len(MSMQ_PREFIX) :])
    except IllegalName as error:
        raise MalformedSoap(place, str(error)) from None


def receipt_url(name: FormatName, resolve: Resolve) -> str | None:
    """2.2.5.2.2: an administration queue by HTTP, whatever way it is named; None where its computer is unknown."""
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
    return f"http://{host}/msmq{str(path.tail).replace(chr(92), '/')}"


def request_target(url: str) -> str:
    """4.2, 4.4: what the request line says of a URL: its path and query, in lower case."""
    authority = _AUTHORITY.match(url)
    target = url[authority.end() :] if authority else url
    return quote(target.replace("\\", "/").lower(), safe=_AS_IT_IS) or "/"
