"""Reads and writes bytes in order: bounds, alignment, padding, UTF-16 strings, and bodies as text. Knows no header."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from struct import Struct
from typing import Any
from uuid import UUID

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.wire.constants import BodyType

NULL_GUID = UUID(int=0)


def aligned(offset: int, to: int = 4) -> int:
    return -(-offset // to) * to


class Reader:
    """Reads `data` from `offset` to `end`. Reading past the end raises RemoteProtocolError with the offset."""

    __slots__ = ("_padding", "data", "end", "offset")

    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self.data = data
        self.offset = offset
        self.end = end
        self._padding: list[bytes] = []

    def take(self, size: int, what: str) -> bytes:
        start, stop = self.offset, self.offset + size
        if stop > self.end:
            raise RemoteProtocolError(f"{what} needs {size} bytes, but only {self.end - start} are left", start)
        self.offset = stop
        return self.data[start:stop]

    def unpack(self, layout: Struct, what: str) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size, what))

    def guid(self, what: str) -> UUID:
        return UUID(bytes_le=self.take(16, what))

    def align(self, to: int, what: str) -> None:
        """Skips to the next boundary, counted from the packet's start, and keeps the skipped bytes."""
        self._padding.append(self.take(aligned(self.offset, to) - self.offset, f"the padding of {what}"))

    def padded(self, size: int, what: str) -> bytes:
        """Takes `size` bytes and the padding up to the next 4-byte boundary. Returns the bytes."""
        item = self.take(size, what)
        self.align(4, what)
        return item

    def padding(self) -> bytes:
        """The padding skipped since the last call. It has no meaning, but is kept for an exact copy."""
        skipped = b"".join(self._padding)
        self._padding.clear()
        return skipped

    def text(self, size: int, what: str) -> str:
        """Reads a UTF-16LE string of `size` bytes that ends in its only NUL."""
        start = self.offset
        return terminated_text(self.take(size, what), what, start)

    def text_to_nul(self, what: str) -> str:
        """Reads a UTF-16LE string without a length. It ends at the first NUL."""
        start = self.offset
        stop = self.data.find(b"\0\0", start, self.end)
        while stop >= 0 and (stop - start) % 2:  # two zero bytes that belong to two units are not a NUL
            stop = self.data.find(b"\0\0", stop + 1, self.end)
        if stop < 0:
            raise RemoteProtocolError(f"{what} has no terminator", start)
        return self.text(stop + 2 - start, what)


def check_text(data: bytes, start: int, stop: int, what: str) -> None:
    """Refuses the same strings as `terminated_text`, at a tenth of the cost."""
    # In Latin text, the first two adjacent zero bytes are the end of the last unit and the start of the terminator.
    if data[stop - 2 : stop] != b"\0\0" or (stop - start) % 2 or data.find(b"\0\0", start, stop) < stop - 3:
        terminated_text(data[start:stop], what, start)


def terminated_text(raw: bytes, what: str, offset: int) -> str:
    """Decodes UTF-16LE with its terminator. Unpaired surrogates are kept, because the application wrote them."""
    if len(raw) < 2 or len(raw) % 2 or raw[-2:] != b"\0\0":
        raise RemoteProtocolError(f"{what} must end in a UTF-16 terminator", offset)
    text = raw[:-2].decode("utf-16-le", "surrogatepass")
    if "\0" in text:
        raise RemoteProtocolError(f"{what} must not have a terminator before its end", offset)
    return text


def encode_text(text: str, what: str) -> bytes:
    """Encodes UTF-16LE with a terminator."""
    if "\0" in text:
        raise LocalProtocolError(f"{what} must not contain a NUL")
    return text.encode("utf-16-le", "surrogatepass") + b"\0\0"


class Writer:
    """Collects the bytes of a packet. Padding is zero, unless `padding` was kept from a packet that was read."""

    __slots__ = ("_kept", "_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._kept = b""
        self.size = 0

    def put(self, data: bytes) -> None:
        self._parts.append(data)
        self.size += len(data)

    def keep_padding(self, padding: bytes) -> None:
        self._kept = padding

    def align(self, to: int) -> None:
        missing = aligned(self.size, to) - self.size
        self.put(self._kept[:missing].ljust(missing, b"\0"))
        self._kept = self._kept[missing:]

    def getvalue(self) -> bytes:
        return b"".join(self._parts)


def whole_text(text: str) -> str:
    """Text that every encoder accepts: an unpaired surrogate, which a string on the wire may have, becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# Bodies as text and back, as Windows applications write them, [MS-MQMQ] 2.2.12. Other bodies are bytes.


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
