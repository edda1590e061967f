"""The body of a message for people: a line for lists, readable text, raw text or hexadecimal digits, and its headers.
Always text for a page, never markup.

Bodies come from strangers: nothing here is longer than a page shows, and what is cut says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from postroad.bodies import BodyKind, Decoded, decode
from postroad.bodies.decoding import start_of, text_of
from postroad.describe.received import ReceivedMessage

MOST_CHARACTERS = 128 << 10  # that a page shows of a body
HEX_BYTES = 16 << 10
MOST_OF_VALUE = 16 << 10  # characters of one header
MOST_OF_HEADERS = 128 << 10  # characters of all headers
MOST_OF_PREVIEW = 80
SMALL = 2048  # bytes of a body that is no text, which a list decodes
READABLE, RAW, HEX = "text", "raw", "hex"
_BEFORE_CONTENT = re.compile(
    r"\s*+(?:<\?[^<>]*+>\s*+)?"
    r"(?:<(?:\w{1,100}:)?Envelope\b[^<>]*+>.*?<(?:\w{1,100}:)?Body\b[^<>]{0,1000}+>)?",
    re.DOTALL,
)
_AFTER_CONTENT = re.compile(r"</(?:\w{1,100}:)?Body>\s{0,100}</(?:\w{1,100}:)?Envelope>.*", re.DOTALL)
_NAMESPACE = re.compile(r"""\sxmlns(?::[\w.-]{1,100})?=(?:"[^"]*"|'[^']*')""")
KINDS: Mapping[BodyKind, str] = {
    BodyKind.TEXT: "text",
    BodyKind.JSON: "JSON",
    BodyKind.XML: "XML",
    BodyKind.NRBF: "BinaryFormatter",
    BodyKind.ACTIVEX: "ActiveX",
    BodyKind.WCF: "WCF",
    BodyKind.BYTES: "bytes",
}
SYSTEMS: Mapping[str, str] = {
    "nservicebus": "NServiceBus",
    "rebus": "Rebus",
    "masstransit": "MassTransit",
    "wcf": "WCF",
    "system.messaging": "System.Messaging",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of a body. `views` are the names of the others and what a person reads as their names."""

    view: str
    text: str
    is_cut: bool
    views: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShownHeader:
    """`left_out` is the number of characters that are not shown."""

    name: str
    value: str
    left_out: int = 0


def shown_body(body: bytes, body_type: int, found: Decoded, view: str = "") -> Shown:
    """The view that is asked for, or the readable text, which bytes have not."""
    views = {RAW: "raw", HEX: "hex"} if found.text is None else {READABLE: KINDS[found.kind], RAW: "raw", HEX: "hex"}
    if view not in views:
        view = HEX if found.text is None else READABLE
    if view == HEX:
        return Shown(HEX, hex_dump(body[:HEX_BYTES]), len(body) > HEX_BYTES, views)
    if view == READABLE:
        text = found.text or ""
        return Shown(READABLE, text[:MOST_CHARACTERS], found.text_cut or len(text) > MOST_CHARACTERS, views)
    raw = text_of(body, body_type)
    if raw is None:
        raw = body[: 4 * MOST_CHARACTERS].decode("utf-8", "replace")
    return Shown(RAW, raw[:MOST_CHARACTERS], len(raw) > MOST_CHARACTERS, views)


def preview(message: ReceivedMessage) -> str:
    """One line from the beginning of a body. Only a small body that is no text is read whole."""
    body, body_type = message.body, message.body_type
    if message.view.encrypted:
        return ""
    text = start_of(body, body_type)
    if not text and len(body) <= SMALL:
        text = decode(body, body_type, limit=SMALL).text or ""
    if not text:
        return body[:24].hex(" ")
    if text.startswith("<") and (before := _BEFORE_CONTENT.match(text)):
        text = _NAMESPACE.sub("", _AFTER_CONTENT.sub("", text[before.end() :][:SMALL]))
    return " ".join(text[:SMALL].split())[:MOST_OF_PREVIEW]


def shown_headers(headers: Mapping[str, str]) -> tuple[list[ShownHeader], int]:
    """As many headers as a page shows, and the number of the others."""
    shown: list[ShownHeader] = []
    left = MOST_OF_HEADERS
    for name, value in headers.items():
        if left <= 0:
            break
        part = value[:MOST_OF_VALUE]
        shown.append(ShownHeader(name[:MOST_OF_VALUE], part, len(value) - len(part)))
        left -= len(name[:MOST_OF_VALUE]) + len(part)
    return shown, len(headers) - len(shown)


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: offset, digits and printable characters."""
    lines = []
    for offset in range(0, len(data), 16):
        part = data[offset : offset + 16]
        digits = " ".join(f"{byte:02x}" for byte in part)
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{offset:08x}  {digits:<47}  {text}")
    return "\n".join(lines)
