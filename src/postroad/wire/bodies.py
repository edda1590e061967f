"""Converts message bodies to text and back, as Windows applications write them ([MS-MQMQ] 2.2.12). Other bodies are
bytes."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE

from postroad.wire.constants import BodyType

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_UTF16_TYPES = frozenset({BodyType.VT_BSTR, BodyType.VT_LPWSTR})


def body_text(body: bytes, body_type: int) -> str | None:
    """The body as text if its type or its bytes show that it is text. Otherwise None.

    If the type says text but the bytes are not valid text, the result is None. No character is replaced.
    """
    if body_type in _UTF16_TYPES:
        return _terminated(_decode(body, "utf-16-le"))
    if body_type == BodyType.VT_LPSTR:
        text = _decode(body, "utf-8")
        return _terminated(_decode(body, "cp1252") if text is None else text)
    if body_type == BodyType.VT_EMPTY:  # .NET's XML formatter uses it, and so do senders that set no type
        return _sniffed(body)
    return None


def encode_body(text: str, body_type: int) -> bytes:
    """Encodes text as the body of a message of this type: UTF-16LE for VT_BSTR and VT_LPWSTR, UTF-8 for all others."""
    return text.encode("utf-16-le" if body_type in _UTF16_TYPES else "utf-8", "surrogatepass")


def _decode(body: bytes, encoding: str) -> str | None:
    try:
        return body.decode(encoding)
    except UnicodeDecodeError:
        return None


def _terminated(text: str | None) -> str | None:
    return text[:-1] if text is not None and text.endswith("\0") else text


def _sniffed(body: bytes) -> str | None:
    if body.startswith(BOM_UTF8):
        return _decode(body, "utf-8-sig")
    if body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return _decode(body, "utf-16")
    latin_utf16 = body and len(body) % 2 == 0 and not any(body[1::2])
    text = _decode(body, "utf-16-le" if latin_utf16 else "utf-8")
    return text if text is not None and _readable(text) else None


def _readable(text: str) -> bool:
    """Whether the text has no control characters except tab and line ends."""
    return _CONTROLS.search(text) is None
