"""MIME multipart/related, [RFC2387], as SRMP uses it: the envelope, then the body, then the extension.

In [MC-MQSRM] 4.1 a delimiter follows a part directly. Therefore parts are cut by their own Content-Length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from postroad.errors import MalformedSoap
from postroad.soap.elements import Attachments
from postroad.soap.tree import MAX_ENVELOPE_SIZE
from postroad.wire.constants import MAX_PACKET_SIZE

# A packet holds body and extension. What frames them is small.
MAX_ENTITY_SIZE: Final = MAX_ENVELOPE_SIZE + MAX_PACKET_SIZE + 0x10000
MAX_PART_HEADERS: Final = 0x4000
MAX_PREAMBLE: Final = 0x4000
MAX_PARTS: Final = 8
MAX_BOUNDARY: Final = 70  # [RFC2046] 5.1.1
MAX_CONTENT_TYPE: Final = 1024

XML_TYPE: Final = "text/xml"
_PART_TYPE = "text/xml; charset=UTF-8"
_MEDIA_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*")
_PARAMETER = re.compile(r';\s*(?:([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))\s*)?')
# A message as queue managers write it, 4.1. Anything that differs by an octet is read part by part.
_STANDARD_TYPE = re.compile(r'multipart/related; boundary="([ !#-\[\]-~]{1,70})"; type=text/xml')
_ENVELOPE_HEADERS = re.compile(
    rb"\r\nContent-Type: %s\r\nContent-Length: ([0-9]{1,10})\r\n\r\n" % re.escape(_PART_TYPE.encode())
)
_BODY_HEADERS = re.compile(
    rb"\r\nContent-Type: [!-~][ -~]{0,99}\r\nContent-Length: ([0-9]{1,10})\r\nContent-Id: body@[!-~]{1,100}\r\n\r\n"
)
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_FOLD = re.compile(rb"\r?\n[ \t]+")
_MAX_LENGTH_DIGITS = 10
_PLAIN_ENCODINGS = frozenset({"", "7bit", "8bit", "binary"})


@dataclass(frozen=True, slots=True)
class ContentType:
    """A media type in lower case, and its parameters by name, in lower case too."""

    media_type: str
    parameters: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> ContentType:
        match = _MEDIA_TYPE.match(text) if len(text) <= MAX_CONTENT_TYPE else None
        if match is None:
            raise MalformedSoap("Content-Type", f"must be a media type, got {text[:80]!r}")
        parameters: dict[str, str] = {}
        position = match.end()
        while position < len(text):
            parameter = _PARAMETER.match(text, position)
            if parameter is None:
                raise MalformedSoap(
                    "Content-Type", f"must have name=value here, got {text[position : position + 80]!r}"
                )
            position = parameter.end()
            name, quoted, token = parameter.groups()
            if name is not None:
                value = token if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                parameters.setdefault(name.lower(), value)
        return cls(match[1].lower(), parameters)


class Part(NamedTuple):
    """One part: what its headers say, and its octets."""

    content_type: str
    content_id: str
    content: bytes


def split_entity(content_type: str, entity: bytes) -> tuple[bytes, Attachments]:
    """Returns the envelope's octets and the attachments. MalformedSoap if the entity has neither of the two forms."""
    if len(entity) > MAX_ENTITY_SIZE:
        raise MalformedSoap("entity", f"must have at most {MAX_ENTITY_SIZE} bytes, got {len(entity)}")
    standard = _STANDARD_TYPE.fullmatch(content_type)
    if standard is not None:
        found = _split_standard(standard[1], entity)
        if found is not None:
            return found
        parts = split_parts(standard[1], entity)
        root = parts[0]
    else:
        kind = ContentType.parse(content_type)
        if kind.media_type == XML_TYPE:
            return entity, Attachments()
        if kind.media_type != "multipart/related":
            raise MalformedSoap("Content-Type", f"must be text/xml or multipart/related, got {kind.media_type}")
        parts = split_parts(kind.parameters.get("boundary", ""), entity)
        root = _root(parts, kind.parameters.get("start"))
    if root.content_type != _PART_TYPE and ContentType.parse(root.content_type).media_type != XML_TYPE:
        raise MalformedSoap("part 1", "the envelope must be text/xml")
    return root.content, _attachments([part for part in parts if part is not root])


def _split_standard(boundary: str, entity: bytes) -> tuple[bytes, Attachments] | None:
    """An envelope and a body. None if there is anything else, or if the headers differ."""
    delimiter = b"--" + boundary.encode("ascii")
    first = _ENVELOPE_HEADERS.match(entity, len(delimiter)) if entity.startswith(delimiter) else None
    if first is None:
        return None
    stop = first.end() + int(first[1])
    second = _BODY_HEADERS.match(entity, stop + len(delimiter)) if entity.startswith(delimiter, stop) else None
    if second is None:
        return None
    end = second.end() + int(second[1])
    if not entity.startswith(delimiter + b"--", end):
        return None
    return entity[first.end() : stop], Attachments(entity[second.end() : end])


def _root(parts: list[Part], start: str | None) -> Part:
    """[RFC2387] 3.2: the part that `start` names; without `start`, the first part."""
    if start is None:
        return parts[0]
    for part in parts:
        if part.content_id == start.strip("<>"):
            return part
    raise MalformedSoap("Content-Type", f"no part has the Content-Id {start!r}")


def _attachments(parts: list[Part]) -> Attachments:
    """Finds body and extension by Content-Id, 2.2.7.1.2. If there is no body, the first other part is the body. More
    parts are an error: none is dropped."""
    body: bytes | None = None
    extension: bytes | None = None
    others = []
    for part in parts:
        name = part.content_id.partition("@")[0].lower()
        if name == "body" and body is None:
            body = part.content
        elif name == "extension" and extension is None:
            extension = part.content
        else:
            others.append(part)
    if others and body is None:
        body = others.pop(0).content
    if others:
        raise MalformedSoap("entity", f"must have only envelope, body and extension, got {len(others)} other parts")
    return Attachments(body, extension)


def split_parts(boundary: str, entity: bytes) -> list[Part]:
    """Cuts the parts between delimiters: by Content-Length if a part has one, else at the next delimiter."""
    if not 0 < len(boundary) <= MAX_BOUNDARY or not boundary.isascii():
        raise MalformedSoap("Content-Type", f"a boundary must have 1 to {MAX_BOUNDARY} characters")
    delimiter = b"--" + boundary.encode("ascii")
    position = entity.find(delimiter, 0, MAX_PREAMBLE + len(delimiter))
    if position < 0:
        raise MalformedSoap("entity", "must start with its boundary")
    parts: list[Part] = []
    while True:
        position += len(delimiter)
        if entity.startswith(b"--", position):
            break
        if len(parts) == MAX_PARTS:
            raise MalformedSoap("entity", f"must have at most {MAX_PARTS} parts")
        part, position = _part(entity, position, delimiter, f"part {len(parts) + 1}")
        parts.append(part)
    if not parts:
        raise MalformedSoap("entity", "must have at least one part")
    return parts


def _part(entity: bytes, position: int, delimiter: bytes, place: str) -> tuple[Part, int]:
    """Returns one part, and where the next delimiter is. `position` is directly after the delimiter before the part."""
    line = _LINE_END.search(entity, position, position + MAX_PART_HEADERS)
    if line is None or entity[position : line.start()].strip(b" \t"):
        raise MalformedSoap(place, "a line end must follow its delimiter")
    # The search starts at the end of the line, so that a part without headers has a blank line too.
    blank = _BLANK_LINE.search(entity, line.start(), line.start() + MAX_PART_HEADERS)
    if blank is None:
        raise MalformedSoap(place, f"its headers must end within {MAX_PART_HEADERS} bytes")
    headers = _headers(entity[line.end() : blank.start()], place) if blank.start() > line.start() else {}
    content_type = headers.get("content-type", XML_TYPE)
    content_id = headers.get("content-id", "").strip("<>")
    start = blank.end()
    encoding = headers.get("content-transfer-encoding", "")
    if encoding.lower() not in _PLAIN_ENCODINGS:
        raise MalformedSoap(place, f"the transfer encoding {encoding!r} is not supported")
    length_text = headers.get("content-length")
    if length_text is None:
        following = re.compile(re.escape(delimiter) + rb"(?=--|[ \t]*\r?\n)").search(entity, start)
        if following is None:
            raise MalformedSoap(place, "a delimiter must follow it")
        content = _without_line_end(entity[start : following.start()])
        return Part(content_type, content_id, content), following.start()
    if not (length_text.isascii() and length_text.isdigit() and len(length_text) <= _MAX_LENGTH_DIGITS):
        raise MalformedSoap(place, f"the Content-Length must be a number, got {length_text[:80]!r}")
    stop = start + int(length_text)
    for gap in (b"", b"\r\n", b"\n"):
        if entity.startswith(gap + delimiter, stop):
            return Part(content_type, content_id, entity[start:stop]), stop + len(gap)
    raise MalformedSoap(place, f"a delimiter must follow its {length_text} bytes")


def _without_line_end(content: bytes) -> bytes:
    """[RFC2046] 5.1.1: a line end before a delimiter belongs to the delimiter."""
    return content.removesuffix(b"\r\n") if content.endswith(b"\r\n") else content.removesuffix(b"\n")


def _headers(block: bytes, place: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in _LINE_END.split(_FOLD.sub(b" ", block)):
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            raise MalformedSoap(place, f"must be a header, got {line[:80]!r}")
        key = name.strip().lower().decode("latin-1")
        if key in headers:
            raise MalformedSoap(place, f"the header {key} occurs twice")
        headers[key] = value.strip().decode("latin-1")
    return headers


def join_entity(envelope: bytes, attachments: Attachments, manager: UUID, number: int) -> tuple[str, list[bytes]]:
    """Returns the Content-Type, and the entity in pieces, in the form of 4.1: text/xml alone if nothing is attached.

    `number` makes the boundary. If a part contains that boundary, the next number is tried, for receivers that
    search.
    """
    named = [
        (name, content)
        for name, content in (("body", attachments.body), ("extension", attachments.extension))
        if content is not None
    ]
    if not named:
        return XML_TYPE, [envelope]
    boundary = f"MSMQ - SOAP boundary, {number}"
    while any(boundary.encode() in content for _, content in named) or boundary.encode() in envelope:
        number += 1
        boundary = f"MSMQ - SOAP boundary, {number}"
    pieces = [
        f"--{boundary}\r\nContent-Type: {_PART_TYPE}\r\nContent-Length: {len(envelope)}\r\n\r\n".encode(),
        envelope,
    ]
    for name, content in named:
        pieces.append(
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(content)}\r\n"
            f"Content-Id: {name}@{manager}\r\n\r\n".encode()
        )
        pieces.append(content)
    pieces.append(f"--{boundary}--\r\n".encode())
    return f'multipart/related; boundary="{boundary}"; type={XML_TYPE}', pieces
