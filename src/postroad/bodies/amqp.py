"""AMQP 1.0 in a message's extension: the sections that travel with it, as headers.

A section is a described value ([AMQP] 1.3): its number in 0x70 to 0x78, then a map or a list.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from postroad.bodies.bounds import MOST_HEADERS, check_depth, check_values
from postroad.bodies.values import single
from postroad.errors import RemoteProtocolError

_PROPERTIES, _APPLICATION_PROPERTIES = 0x73, 0x74
# The fields of the section `properties`, in their order.
_FIELDS = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding"),
    *("absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_amqp(extension: bytes) -> bool:
    """Whether it starts with a section: a descriptor that is a small or a long number."""
    return extension[:2] in (b"\0\x53", b"\0\x80")


def amqp_headers(extension: bytes) -> dict[str, str]:
    """The application properties, and the properties that are set; RemoteProtocolError if that is no AMQP."""
    reader = _Reader(extension)
    found: dict[str, str] = {}
    own: dict[str, str] = {}
    while reader.has_more():
        section, value = reader.section()
        if section == _APPLICATION_PROPERTIES and isinstance(value, dict):
            own |= {str(name): header_text(each) for name, each in value.items()}
        elif section == _PROPERTIES and isinstance(value, list):
            found |= {name: header_text(each) for name, each in zip(_FIELDS, value, strict=False) if each is not None}
    if len(found) + len(own) > MOST_HEADERS:
        raise RemoteProtocolError(f"an extension must have at most {MOST_HEADERS} headers")
    return found | own


def header_text(value: Any) -> str:
    """A value as the text of a header: nothing is "", bytes are base64, lists and maps are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return json.dumps(value, ensure_ascii=False, default=header_text)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0

    def has_more(self) -> bool:
        """Zeros at the end fill the extension up."""
        return bool(self._data[self._at :].strip(b"\0"))

    def section(self) -> tuple[int, Any]:
        if self._byte() != 0:
            raise self._fault("must be sections")
        number = self.value(0)
        if not isinstance(number, int) or not 0x70 <= number <= 0x78:
            raise self._fault("must be sections of a message")
        return number, self.value(0)

    def value(self, depth: int) -> Any:
        code = self._byte()
        if code == 0:  # a described value stands for itself
            check_depth(depth + 1)
            self.value(depth + 1)
            return self.value(depth + 1)
        return self._of(code, depth)

    def _of(self, code: int, depth: int) -> Any:
        self._values += 1
        check_values(self._values)
        if code in _FIXED:
            size, convert = _FIXED[code]
            return convert(self._take(size))
        if code in (0xA0, 0xB0):
            return self._take(self._number(code < 0xB0))
        if code in (0xA1, 0xA3, 0xB1, 0xB3):
            return self._text(self._number(code < 0xB0))
        if code in (0xC0, 0xC1, 0xD0, 0xD1):
            return self._compound(code, depth + 1)
        if code in (0xE0, 0xF0):
            return self._array(code == 0xE0, depth + 1)
        raise self._fault(f"must have types of AMQP, not {code:#04x}")

    def _compound(self, code: int, depth: int) -> Any:
        """A list or a map: its size, its count, its values."""
        check_depth(depth)
        short = code < 0xD0
        self._number(short)
        count = self._number(short)
        check_values(count)
        values = [self.value(depth) for _ in range(count)]
        if not code & 1:
            return values
        if count % 2:
            raise self._fault("must have maps of keys with values")
        return {header_text(key): value for key, value in zip(values[::2], values[1::2], strict=True)}

    def _array(self, short: bool, depth: int) -> Any:
        check_depth(depth)
        self._number(short)
        count = self._number(short)
        check_values(count)
        code = self._byte()
        return [self._of(code, depth) for _ in range(count)]

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise self._fault("must have text in UTF-8") from None

    def _number(self, short: bool) -> int:
        return self._byte() if short else int.from_bytes(self._take(4), "big")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise self._fault(f"must have {size} bytes more, has {len(self._data) - self._at}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _fault(self, sentence: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"AMQP: at byte {self._at}: the extension {sentence}")


def _unpacked(form: str) -> Callable[[bytes], Any]:
    return lambda raw: struct.unpack(form, raw)[0]


def _time(raw: bytes) -> str:
    """Milliseconds since 1970; a number that is no time stays one."""
    milliseconds = int.from_bytes(raw, "big", signed=True)
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return str(milliseconds)


def _character(raw: bytes) -> str:
    code = int.from_bytes(raw, "big")
    return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else str(code)


# [AMQP] 1.6: the types of a fixed size, with the number of their bytes. Decimal numbers are given as their bytes.
_FIXED: Mapping[int, tuple[int, Callable[[bytes], Any]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x43: (0, lambda _: 0),
    0x44: (0, lambda _: 0),
    0x45: (0, lambda _: []),
    0x50: (1, _unpacked(">B")),
    0x51: (1, _unpacked(">b")),
    0x52: (1, _unpacked(">B")),
    0x53: (1, _unpacked(">B")),
    0x54: (1, _unpacked(">b")),
    0x55: (1, _unpacked(">b")),
    0x56: (1, lambda raw: raw != b"\0"),
    0x60: (2, _unpacked(">H")),
    0x61: (2, _unpacked(">h")),
    0x70: (4, _unpacked(">I")),
    0x71: (4, _unpacked(">i")),
    0x72: (4, lambda raw: single(struct.unpack(">f", raw)[0])),
    0x73: (4, _character),
    0x74: (4, bytes),
    0x80: (8, _unpacked(">Q")),
    0x81: (8, _unpacked(">q")),
    0x82: (8, _unpacked(">d")),
    0x83: (8, _time),
    0x84: (8, bytes),
    0x94: (16, bytes),
    0x98: (16, lambda raw: str(UUID(bytes=raw))),
}
