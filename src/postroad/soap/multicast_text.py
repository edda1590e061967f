"""A message as the text of an HTTP POST that goes out by multicast, [MC-MQSRM] 2.1.2 and 4.5; and what comes in so.

Nobody answers such a request, and its receivers ignore the HTTP header (note 2), but for what it says of the entity.
"""

from __future__ import annotations

import re

from postroad.errors import MalformedSoap
from postroad.names import MulticastName

MAX_HEADER = 8192
_METHOD = b"POST "
_END = re.compile(rb"\r?\n\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")


def join_request(name: MulticastName, content_type: str, entity: bytes) -> bytes:
    """The request line has the address alone, without a slash."""
    address = f"{name.address}:{name.port}"
    lines = (
        f"POST {address} HTTP/1.1",
        f"Host: {address}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(entity)}",
        'SOAPAction: "MSMQMessage"',
        "Proxy-Accept: NonInteractiveClient",
    )
    return "\r\n".join((*lines, "", "")).encode("ascii") + entity


def split_request(text: bytes) -> tuple[str, bytes, int]:
    """Content-Type, what is here of the entity, and its whole length; MalformedSoap where it is no request."""
    end = _END.search(text, 0, MAX_HEADER)
    if not text.startswith(_METHOD) or end is None:
        raise MalformedSoap("request", "a multicast message must be an HTTP POST with a header of its own")
    content_type, length = "", None
    for line in _FOLD.sub(b" ", text[: end.start()]).split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        match name.strip().lower():
            case b"content-type":
                content_type = value.strip().decode("latin-1")
            case b"content-length" if value.strip().isdigit():
                length = int(value)
    entity = text[end.end() :]
    return content_type, entity, len(entity) if length is None else length


class Requests:
    """The requests of one source: each APDU has one, or the rest of the one before that was not complete."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._unfinished = b""

    def take(self, apdu: bytes) -> tuple[str, bytes] | None:
        """Content-Type and entity; None while more has to come. MalformedSoap for what belongs to no request."""
        if apdu.startswith(_METHOD):
            text = apdu
        elif self._unfinished:
            text = self._unfinished + apdu
        else:
            raise MalformedSoap("request", "a multicast message must begin with POST")
        self._unfinished = b""
        content_type, entity, length = split_request(text)
        if length > self._longest:
            raise MalformedSoap("Content-Length", f"{length} bytes are more than {self._longest}")
        if len(entity) < length:
            self._unfinished = text
            return None
        return content_type, entity[:length]

    def lost(self) -> None:
        """Packets are missing: what has come of a request is of no use."""
        self._unfinished = b""
