"""Reads what .NET's BinaryFormatter writes, [MS-NRBF], as plain values. Nothing is loaded, instantiated or executed.

An object becomes a dictionary of its fields, with the name of its class under `$type`. The size of the result is
limited even where references repeat an object, so a hostile body costs no more than an honest one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from math import prod
from typing import Any
from uuid import UUID

from postroad.errors import RemoteProtocolError

HEADER = bytes.fromhex("00 01000000 ffffffff 01000000 00000000".replace(" ", ""))  # with object 1 as the root
TYPE = "$type"
MOST_VALUES = 100_000  # in one body, repeated objects included; 64 characters count as one value
DEEPEST = 64
_YEAR_ONE = datetime(1, 1, 1)
_TICKS_S = 10_000_000
_TEXT_OF_A_VALUE = 64
_MOST_TICKS = 3_155_378_975_999_999_999


class Record(IntEnum):
    """The record types of [MS-NRBF] 2.1.2.1."""

    HEADER = 0
    CLASS_WITH_ID = 1
    SYSTEM_CLASS_WITH_MEMBERS = 2
    CLASS_WITH_MEMBERS = 3
    SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES = 4
    CLASS_WITH_MEMBERS_AND_TYPES = 5
    STRING = 6
    ARRAY = 7
    PRIMITIVE = 8
    REFERENCE = 9
    NULL = 10
    END = 11
    LIBRARY = 12
    NULLS_256 = 13
    NULLS = 14
    PRIMITIVE_ARRAY = 15
    OBJECT_ARRAY = 16
    STRING_ARRAY = 17
    METHOD_CALL = 21
    METHOD_RETURN = 22


class Kind(IntEnum):
    """The types of a member, [MS-NRBF] 2.1.2.2."""

    PRIMITIVE = 0
    STRING = 1
    OBJECT = 2
    SYSTEM_CLASS = 3
    CLASS = 4
    OBJECT_ARRAY = 5
    STRING_ARRAY = 6
    PRIMITIVE_ARRAY = 7


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    members: tuple[str, ...]
    kinds: tuple[Kind, ...]
    primitives: tuple[int, ...]  # the type of each primitive member; 0 for others
    size: int  # characters in all names, which every object repeats


@dataclass(frozen=True, slots=True)
class _Reference:
    id: int


@dataclass(frozen=True, slots=True)
class _Nulls:
    count: int


@dataclass(frozen=True, slots=True)
class _Object:
    shape: _Class
    values: list[Any]


def is_nrbf(body: bytes) -> bool:
    """Whether the body starts with a BinaryFormatter header of version 1.0."""
    return len(body) > len(HEADER) and body[:1] == HEADER[:1] and body[9 : len(HEADER)] == HEADER[9:]


def read(body: bytes) -> Any:
    """The root object. Raises RemoteProtocolError for bytes that are incomplete, too large, or of an unsupported
    kind."""
    return _Reader(body).root()


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._objects: dict[int, Any] = {}
        self._classes: dict[int, _Class] = {}
        self._values = 0

    def root(self) -> Any:
        if not is_nrbf(self._body):
            raise self._fault("must start with a header of version 1.0")
        root = struct.unpack_from("<i", self._body, 1)[0]
        self._at = len(HEADER)
        while self._body[self._at : self._at + 1] != bytes([Record.END]):
            self._record(0)
        if self._at + 1 != len(self._body):
            raise self._fault(f"must end here, has {len(self._body) - self._at - 1} bytes more")
        if root not in self._objects:
            raise self._fault(f"has no object {root}, the root")
        self._values = 0
        return self._plain(_Reference(root), ())

    # Records

    def _record(self, depth: int) -> Any:
        """The value of the next record: a plain value, _Reference, _Nulls or _Object. Skips libraries."""
        if depth > DEEPEST:
            raise self._fault(f"must not be nested more than {DEEPEST} times")
        while (number := self._byte()) == Record.LIBRARY:
            self._int()
            self._text()
        try:
            kind = Record(number)
        except ValueError:
            raise self._fault(f"must have a known record, got {number}") from None
        reader = _RECORDS.get(kind)
        if reader is None:
            raise self._fault(f"must not have a record of the kind {kind.name.lower().replace('_', ' ')}")
        return reader(self, depth + 1)

    def _register(self, identifier: int, value: Any) -> _Reference:
        if identifier in self._objects:
            raise self._fault(f"has object {identifier} twice")
        self._objects[identifier] = value
        return _Reference(identifier)

    def _new_class(self, depth: int, *, library: bool) -> Any:
        identifier, name, count = self._int(), self._text(), self._count(least_bytes=2)
        members = tuple(self._text() for _ in range(count))
        kinds, primitives = self._member_types(count)
        if library:
            self._int()
        shape = self._classes[identifier] = _Class(name, members, kinds, primitives, len(name) + sum(map(len, members)))
        return self._object(identifier, shape, depth)

    def _known_class(self, depth: int) -> Any:
        identifier, known = self._int(), self._int()
        if known not in self._classes:
            raise self._fault(f"has no class {known}")
        shape = self._classes[identifier] = self._classes[known]
        return self._object(identifier, shape, depth)

    def _object(self, identifier: int, shape: _Class, depth: int) -> Any:
        values: list[Any] = []
        reference = self._register(identifier, _Object(shape, values))
        for kind, primitive in zip(shape.kinds, shape.primitives, strict=True):
            values.append(self._primitive(primitive) if kind == Kind.PRIMITIVE else self._single(depth))
        return reference

    def _single(self, depth: int) -> Any:
        found = self._record(depth)
        if not isinstance(found, _Nulls):
            return found
        if found.count != 1:
            raise self._fault(f"must have one null here, got {found.count}")
        return None

    def _member_types(self, count: int) -> tuple[tuple[Kind, ...], tuple[int, ...]]:
        kinds = tuple(self._kind() for _ in range(count))
        return kinds, tuple(self._type_details(kind) for kind in kinds)

    def _kind(self) -> Kind:
        number = self._byte()
        try:
            return Kind(number)
        except ValueError:
            raise self._fault(f"must have a known type of member, got {number}") from None

    def _type_details(self, kind: Kind) -> int:
        """Reads what follows a member's type. Returns the type of a primitive member, 0 for others."""
        if kind in (Kind.PRIMITIVE, Kind.PRIMITIVE_ARRAY):
            primitive = self._byte()
            return primitive if kind == Kind.PRIMITIVE else 0
        if kind in (Kind.SYSTEM_CLASS, Kind.CLASS):
            self._text()
            if kind == Kind.CLASS:
                self._int()
        return 0

    def _string(self, depth: int) -> Any:
        return self._register(self._int(), self._text())

    def _array(self, depth: int) -> Any:
        identifier, form, rank = self._int(), self._byte(), self._int()
        if form > 5 or not 1 <= rank <= 32:
            raise self._fault(f"must have an array of a known form, got {form} with {rank} dimensions")
        lengths = [self._int() for _ in range(rank)]
        for _ in range(rank if form >= 3 else 0):
            self._int()  # the lower bound, which is not needed
        kind = self._kind()
        primitive = self._type_details(kind)
        if min(lengths) < 0:
            raise self._fault("must have arrays without a negative length")
        values: list[Any] = []
        reference = self._register(identifier, values)
        self._fill(values, prod(lengths), primitive if kind == Kind.PRIMITIVE else 0, depth)
        return reference

    def _plain_array(self, depth: int) -> Any:
        identifier, length, primitive = self._int(), self._int(), self._byte()
        values: list[Any] = []
        reference = self._register(identifier, values)
        self._fill(values, length, primitive, depth)
        return reference

    def _object_array(self, depth: int) -> Any:
        identifier, length = self._int(), self._int()
        values: list[Any] = []
        reference = self._register(identifier, values)
        self._fill(values, length, 0, depth)
        return reference

    def _fill(self, values: list[Any], length: int, primitive: int, depth: int) -> None:
        if not 0 <= length <= MOST_VALUES:
            raise self._fault(f"must have arrays of at most {MOST_VALUES:,} values, got {length:,}")
        while len(values) < length:
            if primitive:
                values.append(self._primitive(primitive))
                continue
            found = self._record(depth)
            if not isinstance(found, _Nulls):
                values.append(found)
                continue
            if not 1 <= found.count <= length - len(values):
                raise self._fault(f"must have at most {length - len(values):,} nulls here, got {found.count:,}")
            self._count_values(found.count)
            values.extend([None] * found.count)

    # Values

    def _count_values(self, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise self._fault(f"must have at most {MOST_VALUES:,} values")

    def _primitive(self, kind: int) -> Any:
        self._count_values(1)
        if kind in _FIXED:
            form, convert = _FIXED[kind]
            value = struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))[0]
            return value if convert is None else convert(value)
        if kind == 3:
            first = self._byte()
            size = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return self._utf8(bytes([first]) + self._take(size - 1))
        if kind in (5, 18):  # decimal numbers are written as text
            return self._text()
        if kind == 17:
            return None
        raise self._fault(f"must have a known primitive type, got {kind}")

    def _take(self, size: int) -> bytes:
        if size > len(self._body) - self._at:
            raise self._fault(f"must have {size} bytes more, has {len(self._body) - self._at}")
        self._at += size
        return self._body[self._at - size : self._at]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _int(self) -> int:
        return int(struct.unpack("<i", self._take(4))[0])

    def _count(self, *, least_bytes: int) -> int:
        """Reads the number of items that follow. The rest of the body must have room for them."""
        count = self._int()
        if not 0 <= count * least_bytes <= len(self._body) - self._at:
            raise self._fault(f"must have room for {count} members")
        return count

    def _text(self) -> str:
        size = shift = 0
        while True:
            byte = self._byte()
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 28:
                raise self._fault("must have lengths of at most five bytes")
        return self._utf8(self._take(size))

    def _utf8(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._fault("must have text in UTF-8") from None

    # References

    def _plain(self, value: Any, inside: tuple[int, ...]) -> Any:
        """Follows all references. A reference from an object to itself or to one around it is `{"$ref": id}`."""
        self._count_values(1 + (len(value) // _TEXT_OF_A_VALUE if isinstance(value, str) else 0))
        if len(inside) > DEEPEST:
            raise self._fault(f"must not be nested more than {DEEPEST} times")
        if isinstance(value, _Reference):
            if value.id in inside:
                return {"$ref": value.id}
            if value.id not in self._objects:
                raise self._fault(f"has no object {value.id}")
            return self._plain(self._objects[value.id], (*inside, value.id))
        if isinstance(value, list):
            return [self._plain(each, inside) for each in value]
        if isinstance(value, _Object):
            self._count_values(value.shape.size // _TEXT_OF_A_VALUE)
            fields = [self._plain(each, inside) for each in value.values]
            return _simplified(value.shape.name, dict(zip(value.shape.members, fields, strict=True)))
        return value

    def _fault(self, sentence: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"[MS-NRBF]: at byte {self._at}: the body {sentence}")


_RECORDS: Mapping[Record, Callable[[_Reader, int], Any]] = {
    Record.CLASS_WITH_ID: _Reader._known_class,
    Record.SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES: lambda reader, depth: reader._new_class(depth, library=False),
    Record.CLASS_WITH_MEMBERS_AND_TYPES: lambda reader, depth: reader._new_class(depth, library=True),
    Record.STRING: _Reader._string,
    Record.ARRAY: _Reader._array,
    Record.PRIMITIVE: lambda reader, depth: reader._primitive(reader._byte()),
    Record.REFERENCE: lambda reader, depth: _Reference(reader._int()),
    Record.NULL: lambda reader, depth: _Nulls(1),
    Record.NULLS_256: lambda reader, depth: _Nulls(reader._byte()),
    Record.NULLS: lambda reader, depth: _Nulls(reader._int()),
    Record.PRIMITIVE_ARRAY: _Reader._plain_array,
    Record.OBJECT_ARRAY: _Reader._object_array,
    Record.STRING_ARRAY: _Reader._object_array,
}


def _date_time(value: int) -> str | None:
    """Converts a DateTime, [MS-NRBF] 2.1.1.5: ticks since the year 1, and two bits for the time zone."""
    ticks, kind = value & (1 << 62) - 1, value >> 62 & 3
    if ticks > _MOST_TICKS:
        return None
    return (_YEAR_ONE + timedelta(microseconds=ticks // 10)).isoformat() + ("Z" if kind == 1 else "")


# The primitive types of a fixed size, [MS-NRBF] 2.1.2.3.
_FIXED: dict[int, tuple[str, Callable[[Any], Any] | None]] = {
    1: ("B", bool),
    2: ("B", None),
    6: ("d", None),
    7: ("h", None),
    8: ("i", None),
    9: ("q", None),
    10: ("b", None),
    11: ("f", None),
    12: ("q", lambda ticks: ticks / _TICKS_S),
    13: ("q", _date_time),
    14: ("H", None),
    15: ("I", None),
    16: ("Q", None),
}
_GUID = tuple(f"_{letter}" for letter in "abcdefghijk")


def _simplified(name: str, fields: Mapping[str, Any]) -> Any:
    """Simplifies well-known .NET classes: boxed values, lists and GUIDs."""
    if tuple(fields) == ("m_value",):
        return fields["m_value"]
    if tuple(fields) == _GUID and all(isinstance(each, int) for each in fields.values()):
        return _guid(list(fields.values()))
    items, size = fields.get("_items"), fields.get("_size")
    if name.startswith("System.Collections.Generic.List`1[[") and isinstance(items, list) and isinstance(size, int):
        return items[:size]
    return {TYPE: name} | {_property(field): value for field, value in fields.items()}


def _property(field: str) -> str:
    """The property behind a field that the C# compiler generated."""
    return field[1:].partition(">")[0] if field.startswith("<") and field.endswith(">k__BackingField") else field


def _guid(parts: Sequence[int]) -> str:
    raw = struct.pack("<IHH", parts[0] & 0xFFFFFFFF, parts[1] & 0xFFFF, parts[2] & 0xFFFF) + bytes(
        each & 0xFF for each in parts[3:]
    )
    return str(UUID(bytes_le=raw))
