"""The types of [AMQP] part 1: any value from bytes, and bytes for the values that we send.

Reading is total: it ends with a value or with MalformedValue, in bounded depth and memory. The bytes come from
strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, error, unpack_from
from typing import Any, Final, NamedTuple
from uuid import UUID

from postroad.errors import RemoteProtocolError

DEEPEST: Final = 16  # levels of lists, maps, arrays and described values
MOST_EMPTY: Final = 1024  # elements of an array that take no bytes: their number alone would fill the memory
MOST_VALUES: Final = 100_000  # of one compound value, with those inside

_TWO = Struct(">II")
_UINT, _ULONG, _LONG = Struct(">I"), Struct(">Q"), Struct(">q")


class MalformedValue(RemoteProtocolError):
    """Bytes that are no value of AMQP."""


class Described(NamedTuple):
    """A described value, 1.3. The descriptor is the number or the symbol."""

    descriptor: Any
    value: Any


def read_value(data: bytes, at: int, end: int) -> tuple[Any, int]:
    """The value at `at`, and where it ends. Maps are dictionaries; symbols are text; bytes that hold decimal numbers
    stay bytes."""
    return _Values().read(data, at, end, 0)


def read_list(data: bytes, at: int, end: int) -> tuple[list[Any], int]:
    """A list, as performatives and sections are. This is a hot path: the values that these hold are read here."""
    try:
        code = data[at]
        if code == 0xC0:
            stop, count, at = at + 2 + data[at + 1], data[at + 2], at + 3
        elif code == 0xD0:
            size, count = _TWO.unpack_from(data, at + 1)
            stop, at = at + 5 + size, at + 9
        elif code == 0x45:
            return [], at + 1
        else:
            raise MalformedValue(f"a list must be here, not the type {code:#04x}", at)
        if stop > end:
            raise MalformedValue("a list is longer than what holds it", at)
        found: list[Any] = []
        add = found.append
        values: _Values | None = None
        while at < stop:
            code = data[at]
            if code == 0x40:
                add(None)
                at += 1
            elif code == 0x43 or code == 0x44:
                add(0)
                at += 1
            elif code == 0x52 or code == 0x53 or code == 0x50:
                add(data[at + 1])
                at += 2
            elif code == 0x41:
                add(True)
                at += 1
            elif code == 0x42:
                add(False)
                at += 1
            elif code == 0xA0:
                last = at + 2 + data[at + 1]
                add(data[at + 2 : last])
                at = last
            elif code == 0x70:
                add(_UINT.unpack_from(data, at + 1)[0])
                at += 5
            elif code == 0xA1 or code == 0xA3:
                last = at + 2 + data[at + 1]
                add(data[at + 2 : last].decode())
                at = last
            else:
                values = values or _Values()
                value, at = values.read(data, at, stop, 1)
                add(value)
    except (IndexError, error):
        raise MalformedValue("a value is cut off", at) from None
    except UnicodeDecodeError:
        raise MalformedValue("text must be UTF-8", at) from None
    if at != stop or len(found) != count:
        raise MalformedValue(f"a list must have its {count} values and nothing else", at)
    return found, stop


class _Values:
    """Reads one value. Counts what it holds."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def read(self, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        try:
            return self._read(data, at, end, depth)
        except (IndexError, error):
            raise MalformedValue("a value is cut off", at) from None
        except UnicodeDecodeError:
            raise MalformedValue("text must be UTF-8", at) from None

    def _read(self, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        if at >= end:
            raise MalformedValue("a value is cut off", at)
        code = data[at]
        if code:
            return self._of(code, data, at + 1, end, depth)
        if depth >= DEEPEST:
            raise MalformedValue(f"values must not be nested more than {DEEPEST} times", at)
        descriptor, at = self._read(data, at + 1, end, depth + 1)
        value, at = self._read(data, at, end, depth + 1)
        return Described(descriptor, value), at

    def _of(self, code: int, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        """The value of the constructor `code`, whose content begins at `at`."""
        self._left -= 1
        if self._left < 0:
            raise MalformedValue(f"a value must not hold more than {MOST_VALUES} others", at)
        kind = code >> 4
        if kind in _WIDTHS:
            return self._fixed(code, data, at, end)
        if kind in (0xA, 0xB):
            size, at = (data[at], at + 1) if kind == 0xA else (_UINT.unpack_from(data, at)[0], at + 4)
            stop = at + size
            if stop > end:
                raise MalformedValue("a value is longer than what holds it", at)
            if code & 15 == 0:
                return data[at:stop], stop
            if code & 15 in (1, 3):
                return data[at:stop].decode(), stop
        elif kind in (0xC, 0xD, 0xE, 0xF):
            return self._compound(code, data, at, end, depth + 1)
        raise MalformedValue(f"the type {code:#04x} is not defined", at - 1)

    def _fixed(self, code: int, data: bytes, at: int, end: int) -> tuple[Any, int]:
        stop = at + _WIDTHS[code >> 4]
        if stop > end:
            raise MalformedValue("a value is cut off", at)
        if code in _CONSTANTS:
            return _CONSTANTS[code], stop
        if code in _FORMS:
            return unpack_from(_FORMS[code], data, at)[0], stop
        raw = data[at:stop]
        if code == 0x56 and raw[0] < 2:
            return raw == b"\1", stop
        if code == 0x73 and int.from_bytes(raw, "big") in range(0x110000):
            return raw.decode("utf-32-be"), stop
        if code == 0x98:
            return UUID(bytes=raw), stop
        if code in (0x74, 0x84, 0x94):
            return raw, stop
        if code == 0x45:
            return [], stop
        raise MalformedValue(f"the type {code:#04x} is not defined", at - 1)

    def _compound(self, code: int, data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
        if depth > DEEPEST:
            raise MalformedValue(f"values must not be nested more than {DEEPEST} times", at)
        if code & 0x10:
            size, count = _TWO.unpack_from(data, at)
            stop, at = at + 4 + size, at + 8
        else:
            stop, count, at = at + 1 + data[at], data[at + 1], at + 2
        if stop > end or at > stop:
            raise MalformedValue("a value is longer than what holds it", at)
        found: list[Any] = []
        if code in (0xE0, 0xF0):
            descriptors: list[Any] = []
            while data[at] == 0:
                if len(descriptors) + depth >= DEEPEST:
                    raise MalformedValue(f"values must not be nested more than {DEEPEST} times", at)
                descriptor, at = self._read(data, at + 1, stop, depth)
                descriptors.append(descriptor)
            element, at = data[at], at + 1
            if count > MOST_EMPTY and (element >> 4) == 4:
                raise MalformedValue(f"an array must not have more than {MOST_EMPTY} empty elements", at)
            for _ in range(min(count, stop - at + MOST_EMPTY)):
                value, at = self._of(element, data, at, stop, depth)
                found.append(value)
            if at != stop or len(found) != count:
                raise MalformedValue(f"an array must have its {count} elements and nothing else", at)
            return found, stop
        while at < stop:
            value, at = self._read(data, at, stop, depth)
            found.append(value)
        if at != stop or len(found) != count:
            raise MalformedValue(f"a value must have its {count} parts and nothing else", at)
        if code in (0xC0, 0xD0):
            return found, stop
        if code not in (0xC1, 0xD1) or count % 2:
            raise MalformedValue(f"the type {code:#04x} with {count} parts is not defined", at)
        try:
            return dict(zip(found[::2], found[1::2], strict=True)), stop
        except TypeError:
            raise MalformedValue("the key of a map must be a simple value", at) from None


# 1.6: content widths by the first half of the constructor, and the values.
_WIDTHS: Final[Mapping[int, int]] = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_CONSTANTS: Final[Mapping[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_FORMS: Final[Mapping[int, str]] = {
    0x50: ">B",
    0x51: ">b",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
}

# Values that we send, each as bytes.

NULL, TRUE, FALSE, LIST_0 = b"\x40", b"\x41", b"\x42", b"\x45"


def uint(number: int) -> bytes:
    if number < 256:
        return b"\x52%c" % number if number else b"\x43"
    return b"\x70" + _UINT.pack(number)


def ulong(number: int) -> bytes:
    if number < 256:
        return b"\x53%c" % number if number else b"\x44"
    return b"\x80" + _ULONG.pack(number)


def ubyte(number: int) -> bytes:
    return b"\x50%c" % number


def ushort(number: int) -> bytes:
    return b"\x60" + number.to_bytes(2, "big")


def timestamp(milliseconds: int) -> bytes:
    return b"\x83" + _LONG.pack(milliseconds)


def boolean(value: bool) -> bytes:
    return TRUE if value else FALSE


def binary(data: bytes) -> bytes:
    size = len(data)
    return (b"\xa0%c" % size if size < 256 else b"\xb0" + _UINT.pack(size)) + data


def text(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    size = len(data)
    return (b"\xa1%c" % size if size < 256 else b"\xb1" + _UINT.pack(size)) + data


def symbol(value: str) -> bytes:
    data = value.encode("ascii", "replace")
    size = len(data)
    return (b"\xa3%c" % size if size < 256 else b"\xb3" + _UINT.pack(size)) + data


def symbols(values: Iterable[str]) -> bytes:
    """An array of symbols."""
    encoded = [value.encode("ascii") for value in values]
    content = b"\xb3" + b"".join(_UINT.pack(len(each)) + each for each in encoded)
    return b"\xf0" + _TWO.pack(len(content) + 4, len(encoded)) + content


def listed(*parts: bytes) -> bytes:
    """A list of encoded values. Nulls at the end are left out, 1.4."""
    count = len(parts)
    while count and parts[count - 1] == NULL:
        count -= 1
    if not count:
        return LIST_0
    content = b"".join(parts[:count])
    size = len(content)
    if size < 255:
        return b"\xc0%c%c" % (size + 1, count) + content
    return b"\xd0" + _TWO.pack(size + 4, count) + content


def mapped(parts: Iterable[bytes]) -> bytes:
    """A map of encoded keys and values, in turn."""
    values = list(parts)
    content = b"".join(values)
    size = len(content)
    if size < 255 and len(values) < 256:
        return b"\xc1%c%c" % (size + 1, len(values)) + content
    return b"\xd1" + _TWO.pack(size + 4, len(values)) + content


def described(code: int, value: bytes) -> bytes:
    """A value of the type with this number, which is below 256."""
    return b"\0\x53%c" % code + value
