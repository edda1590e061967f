"""[MS-NRBF]: what .NET's BinaryFormatter writes, as plain values. No class is loaded and nothing is executed.

An object is a dictionary with the name of its class under `$type`; an object inside itself is `{"$ref": id}`. What is
read is bounded. So is what references repeat: beyond the bound they are `{"$ref": id}` too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from math import prod
from typing import Any

from postroad.bodies.bounds import DEEPEST, MOST_VALUES
from postroad.bodies.values import decimal, duration, guid, moment, scaled, single, tagged_moment
from postroad.bodies.xml_text import TYPE
from postroad.errors import RemoteProtocolError

HEADER = bytes.fromhex("00 01000000 ffffffff 01000000 00000000".replace(" ", ""))  # with the root object 1
_TEXT_OF_A_VALUE = 64  # characters that count as much as a value
_SIMPLE = frozenset({int, float, bool, type(None)})  # values that stand for themselves
_MOST_INSIDE = 3  # bodies in each other
_BYTE, _DECIMAL, _NULL, _STRING = 2, 5, 17, 18
_ARGUMENTS_INLINE, _CONTEXT_INLINE, _RETURN_INLINE = 0x02, 0x20, 0x800  # [MS-NRBF] 2.2.1.1


class Record(IntEnum):
    """[MS-NRBF] 2.1.2.1"""

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
    """What a member is: [MS-NRBF] 2.1.2.2"""

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
    primitives: tuple[int, ...]  # the type of each primitive member, 0 for others
    size: int  # characters of the names, which every object repeats


@dataclass(frozen=True, slots=True)
class _Reference:
    id: int


@dataclass(frozen=True, slots=True)
class _Nulls:
    count: int


@dataclass(frozen=True, slots=True)
class _Read:
    """A value that is plain already."""

    value: Any


@dataclass(frozen=True, slots=True)
class _Grid:
    """An array of several dimensions."""

    values: list[Any]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Object:
    shape: _Class
    values: list[Any]


def is_nrbf(body: bytes) -> bool:
    """Whether the body starts as BinaryFormatter starts: a header record of version 1.0."""
    return len(body) > len(HEADER) and body[:1] == HEADER[:1] and body[9 : len(HEADER)] == HEADER[9:]


def read(body: bytes) -> Any:
    """The root object; RemoteProtocolError if the bytes are not whole, too large, or of a kind that is not read."""
    return _Reader(body).root()


def root_class(body: bytes) -> str | None:
    """The name of the first class that the body describes: mostly that of its root. It costs little."""
    reader = _Reader(body)
    try:
        return reader.first_class() if is_nrbf(body) else None
    except RemoteProtocolError:
        return None


class _Reader:
    def __init__(self, body: bytes, outer: int = 0, values: int = 0) -> None:
        self._body = body
        self._outer = outer  # the number of bodies that this one is in
        self._at = 0
        self._objects: dict[int, Any] = {}
        self._classes: dict[int, _Class] = {}
        self._call: dict[str, Any] | None = None
        self._values = values

    @property
    def values(self) -> int:
        return self._values

    def root(self) -> Any:
        if not is_nrbf(self._body):
            raise self._fault("must start with a header of version 1.0")
        root = struct.unpack_from("<i", self._body, 1)[0]
        self._at = len(HEADER)
        while self._body[self._at : self._at + 1] != bytes([Record.END]):
            self._record(0)
        if self._body[self._at + 1 :].strip(b"\0"):
            raise self._fault(f"must end here, has {len(self._body) - self._at - 1} bytes more")
        if not self._outer:
            self._values = 0
        if self._call is not None:
            more = {"array": self._plain(_Reference(root), ())} if root in self._objects else {}
            return self._call | more
        if root not in self._objects:
            raise self._fault(f"has no object {root}, the root")
        return self._plain(_Reference(root), ())

    def first_class(self) -> str | None:
        self._at = len(HEADER)
        while (number := self._byte()) == Record.LIBRARY:
            self._int()
            self._text()
        if Record.SYSTEM_CLASS_WITH_MEMBERS <= number <= Record.CLASS_WITH_MEMBERS_AND_TYPES:
            self._int()
            return self._text()
        return None

    # Records

    def _record(self, depth: int) -> Any:
        """The value of the next record: plain, _Reference, _Nulls or _Object. A library is skipped."""
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
            raise self._fault(f"has a record that is not read: {kind.name.lower().replace('_', ' ')}")
        return reader(self, depth + 1)

    def _kept(self, identifier: int, value: Any) -> _Reference:
        if identifier in self._objects:
            raise self._fault(f"has object {identifier} twice")
        self._objects[identifier] = value
        return _Reference(identifier)

    def _described(self, depth: int, *, library: bool, types: bool = True) -> Any:
        identifier, name, count = self._int(), self._text(), self._count(least_bytes=2 if types else 1)
        members = tuple(self._text() for _ in range(count))
        kinds, primitives = self._member_types(count) if types else ((Kind.OBJECT,) * count, (0,) * count)
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
        kept = self._kept(identifier, _Object(shape, values))
        for kind, primitive in zip(shape.kinds, shape.primitives, strict=True):
            values.append(self._primitive(primitive) if kind == Kind.PRIMITIVE else self._single(depth))
        return kept

    def _single(self, depth: int) -> Any:
        found = self._record(depth)
        if not isinstance(found, _Nulls):
            return found
        if found.count != 1:
            raise self._fault(f"must have one null here, got {found.count}")
        return None

    def _member_types(self, count: int) -> tuple[tuple[Kind, ...], tuple[int, ...]]:
        kinds = tuple(self._kind() for _ in range(count))
        return kinds, tuple(self._more_about(kind) for kind in kinds)

    def _kind(self) -> Kind:
        number = self._byte()
        try:
            return Kind(number)
        except ValueError:
            raise self._fault(f"must have a known type of member, got {number}") from None

    def _more_about(self, kind: Kind) -> int:
        """Reads what follows a type; the primitive type, or 0."""
        if kind in (Kind.PRIMITIVE, Kind.PRIMITIVE_ARRAY):
            primitive = self._byte()
            return primitive if kind == Kind.PRIMITIVE else 0
        if kind in (Kind.SYSTEM_CLASS, Kind.CLASS):
            self._text()
            if kind == Kind.CLASS:
                self._int()
        return 0

    def _string(self, depth: int) -> Any:
        return self._kept(self._int(), self._text())

    def _array(self, depth: int) -> Any:
        identifier, form, rank = self._int(), self._byte(), self._int()
        if form > 5 or not 1 <= rank <= 32:
            raise self._fault(f"must have an array of a known form, got {form} with {rank} dimensions")
        lengths = [self._int() for _ in range(rank)]
        for _ in range(rank if form >= 3 else 0):
            self._int()  # lower bounds
        kind = self._kind()
        primitive = self._more_about(kind)
        if min(lengths) < 0:
            raise self._fault("must have arrays without a negative length")
        values: list[Any] = []
        kept = self._kept(identifier, values if rank == 1 else _Grid(values, tuple(lengths)))
        self._fill(values, prod(lengths), primitive if kind == Kind.PRIMITIVE else 0, depth)
        return kept

    def _plain_array(self, depth: int) -> Any:
        identifier, length, primitive = self._int(), self._int(), self._byte()
        if primitive == _BYTE:
            if length < 0:
                raise self._fault("must have arrays without a negative length")
            self._counted(1 + length // _TEXT_OF_A_VALUE)
            return self._kept(identifier, self._inside(self._take(length)))
        values: list[Any] = []
        kept = self._kept(identifier, values)
        self._fill(values, length, primitive, depth)
        return kept

    def _inside(self, raw: bytes) -> Any:
        """A body in a body, as a DataSet has for each of its tables; else the bytes."""
        if self._outer >= _MOST_INSIDE or not is_nrbf(raw):
            return raw
        reader = _Reader(raw, self._outer + 1, self._values)
        try:
            value = reader.root()
        except RemoteProtocolError:
            return raw
        self._values = reader.values
        return _Read(value)

    def _object_array(self, depth: int) -> Any:
        identifier, length = self._int(), self._int()
        values: list[Any] = []
        kept = self._kept(identifier, values)
        self._fill(values, length, 0, depth)
        return kept

    def _fill(self, values: list[Any], length: int, primitive: int, depth: int) -> None:
        if not 0 <= length <= MOST_VALUES:
            raise self._fault(f"must have arrays of at most {MOST_VALUES:,} values, got {length:,}")
        if primitive in _FIXED:
            self._counted(length)
            form, convert = _FIXED[primitive]
            numbers = struct.unpack(f"<{length}{form}", self._take(length * struct.calcsize(f"<{form}")))
            values.extend(numbers if convert is None else map(convert, numbers))
            return
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
            self._counted(found.count)
            values.extend([None] * found.count)

    # Values

    def _counted(self, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise self._fault(f"must have at most {MOST_VALUES:,} values")

    def _primitive(self, kind: int) -> Any:
        self._counted(1)
        if kind in _FIXED:
            form, convert = _FIXED[kind]
            value = struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))[0]
            return value if convert is None else convert(value)
        if kind == 3:
            first = self._byte()
            size = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return self._utf8(bytes([first]) + self._take(size - 1))
        if kind in (_DECIMAL, _STRING):  # decimal numbers are text
            return self._text()
        if kind == _NULL:
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
        """A number of things that follow, each of them of some bytes."""
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

    # Calls of remote methods

    def _method_call(self) -> None:
        """[MS-NRBF] 2.2.3.1. What its array of objects has follows as an object."""
        flags = self._int()
        call: dict[str, Any] = {TYPE: "method call", "method": self._coded(), "class": self._coded()}
        self._context_and_arguments(flags, call)

    def _method_return(self) -> None:
        """[MS-NRBF] 2.2.3.3"""
        flags = self._int()
        call: dict[str, Any] = {TYPE: "method return"}
        if flags & _RETURN_INLINE:
            call["value"] = self._coded()
        self._context_and_arguments(flags, call)

    def _context_and_arguments(self, flags: int, call: dict[str, Any]) -> None:
        if flags & _CONTEXT_INLINE:
            call["context"] = self._coded()
        if flags & _ARGUMENTS_INLINE:
            call["arguments"] = [self._coded() for _ in range(self._count(least_bytes=1))]
        self._call = call

    def _coded(self) -> Any:
        return self._primitive(self._byte())

    # References

    def _plain(self, value: Any, inside: tuple[int, ...]) -> Any:
        """The value with all references followed."""
        self._values += 1 + (len(value) // _TEXT_OF_A_VALUE if isinstance(value, str | bytes) else 0)
        if isinstance(value, _Reference):
            if value.id not in self._objects:
                raise self._fault(f"has no object {value.id}")
            if value.id in inside or len(inside) >= DEEPEST or self._values > MOST_VALUES:
                return {"$ref": value.id}
            return self._plain(self._objects[value.id], (*inside, value.id))
        if isinstance(value, list):
            self._values += len(value)
            return [each if type(each) in _SIMPLE else self._plain(each, inside) for each in value]
        if isinstance(value, _Read):
            return value.value
        if isinstance(value, _Grid):
            return _nested([self._plain(each, inside) for each in value.values], value.lengths)
        if isinstance(value, _Object):
            self._values += value.shape.size // _TEXT_OF_A_VALUE
            fields = [self._plain(each, inside) for each in value.values]
            return _shown(value.shape.name, dict(zip(value.shape.members, fields, strict=True)))
        return value

    def _fault(self, sentence: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"[MS-NRBF]: at byte {self._at}: the body {sentence}")


_RECORDS: Mapping[Record, Callable[[_Reader, int], Any]] = {
    Record.CLASS_WITH_ID: _Reader._known_class,
    Record.SYSTEM_CLASS_WITH_MEMBERS: lambda reader, depth: reader._described(depth, library=False, types=False),
    Record.CLASS_WITH_MEMBERS: lambda reader, depth: reader._described(depth, library=True, types=False),
    Record.SYSTEM_CLASS_WITH_MEMBERS_AND_TYPES: lambda reader, depth: reader._described(depth, library=False),
    Record.CLASS_WITH_MEMBERS_AND_TYPES: lambda reader, depth: reader._described(depth, library=True),
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
    Record.METHOD_CALL: lambda reader, _: reader._method_call(),
    Record.METHOD_RETURN: lambda reader, _: reader._method_return(),
}


# [MS-NRBF] 2.1.2.3, those of a fixed size.
_FIXED: dict[int, tuple[str, Callable[[Any], Any] | None]] = {
    1: ("B", bool),
    _BYTE: ("B", None),
    6: ("d", None),
    7: ("h", None),
    8: ("i", None),
    9: ("q", None),
    10: ("b", None),
    11: ("f", single),
    12: ("q", duration),
    13: ("Q", tagged_moment),
    14: ("H", None),
    15: ("I", None),
    16: ("Q", None),
}


def _nested(values: list[Any], lengths: tuple[int, ...]) -> list[Any]:
    """The values of a grid as lists of lists."""
    for length in reversed(lengths[1:]):
        if not length:
            return []
        values = [values[start : start + length] for start in range(0, len(values), length)]
    return values


# Classes of .NET as what they are


def _shown(name: str, fields: Mapping[str, Any]) -> Any:
    if tuple(fields) == ("m_value",):  # a boxed number
        return fields["m_value"]
    show = _KNOWN_CLASSES.get(name.partition("[[")[0])
    found = None if show is None else show(fields)
    if found is not None:
        return found
    return {TYPE: name} | {_property(field): value for field, value in fields.items()}


def _property(field: str) -> str:
    """The property of a field that the C# compiler has made for it."""
    return field[1:].partition(">")[0] if field.startswith("<") and field.endswith(">k__BackingField") else field


def _wholes(fields: Mapping[str, Any], *names: str) -> list[int] | None:
    """The fields, if they are whole numbers."""
    values = [fields.get(name) for name in names]
    return [each for each in values if isinstance(each, int)] if all(isinstance(each, int) for each in values) else None


def _list(fields: Mapping[str, Any]) -> Any:
    items, size = fields.get("_items"), fields.get("_size")
    items = list(items) if isinstance(items, bytes) else items
    return items[:size] if isinstance(items, list) and isinstance(size, int) and 0 <= size <= len(items) else None


def _queue(fields: Mapping[str, Any]) -> Any:
    items, places = fields.get("_array"), _wholes(fields, "_head", "_size")
    if not isinstance(items, list) or places is None or not 0 <= places[0] <= len(items) or places[1] > len(items):
        return None
    return [*items[places[0] :], *items[: places[0]]][: max(places[1], 0)]


def _stack(fields: Mapping[str, Any]) -> Any:
    return _list({"_items": fields.get("_array"), "_size": fields.get("_size")})


def _pairs(keys: Sequence[Any], values: Sequence[Any]) -> Any:
    """A dictionary, if its keys can be names; else a list of pairs."""
    names = [each if isinstance(each, str) else str(each) for each in keys if isinstance(each, str | int | float)]
    if len(names) == len(keys) == len(values) == len(set(names)):
        return dict(zip(names, values, strict=True))
    return [{"key": key, "value": value} for key, value in zip(keys, values, strict=False)]


def _dictionary(fields: Mapping[str, Any]) -> Any:
    pairs = fields.get("KeyValuePairs", [] if fields.get("HashSize") == 0 else None)
    if not isinstance(pairs, list) or not all(isinstance(each, dict) and "key" in each for each in pairs):
        return None
    return _pairs([each["key"] for each in pairs], [each.get("value") for each in pairs])


def _two_arrays(keys: str, values: str) -> Callable[[Mapping[str, Any]], Any]:
    def show(fields: Mapping[str, Any]) -> Any:
        names, found = fields.get(keys), fields.get(values)
        if not isinstance(names, list) or not isinstance(found, list):
            return None
        size = fields.get("_size")
        size = size if isinstance(size, int) else len(names)
        return _pairs(names[:size], found[:size])

    return show


def _set(fields: Mapping[str, Any]) -> Any:
    elements = fields.get("Elements", [] if fields.get("Capacity") == 0 else None)
    return elements if isinstance(elements, list) else None


def _guid(fields: Mapping[str, Any]) -> Any:
    parts = _wholes(fields, *(f"_{letter}" for letter in "abcdefghijk"))
    if parts is None:
        return None
    head = struct.pack("<IHH", parts[0] & 0xFFFFFFFF, parts[1] & 0xFFFF, parts[2] & 0xFFFF)
    return guid(head + bytes(each & 0xFF for each in parts[3:]))


def _decimal(fields: Mapping[str, Any]) -> Any:
    parts = _wholes(fields, "flags", "hi", "lo", "mid")
    if parts is None:
        return None
    flags, high, low, middle = (each & 0xFFFFFFFF for each in parts)
    return decimal(struct.pack("<HBBIII", 0, flags >> 16 & 0xFF, flags >> 24, high, low, middle))


def _moment(fields: Mapping[str, Any]) -> Any:
    data, ticks = fields.get("dateData"), fields.get("ticks")
    if isinstance(data, int):
        return tagged_moment(data & 0xFFFF_FFFF_FFFF_FFFF)
    return moment(ticks) if isinstance(ticks, int) else None


def _moment_with_offset(fields: Mapping[str, Any]) -> Any:
    text, minutes = fields.get("DateTime"), fields.get("OffsetMinutes")
    if not isinstance(text, str) or not isinstance(minutes, int) or abs(minutes) > 14 * 60:
        return None
    head, point, fraction = text.removesuffix("Z").partition(".")
    try:
        local = (datetime.fromisoformat(head) + timedelta(minutes=minutes)).isoformat()
    except (ValueError, OverflowError):
        return None
    hours, rest = divmod(abs(minutes), 60)
    return f"{local}{point}{fraction}{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"


def _duration(fields: Mapping[str, Any]) -> Any:
    ticks = fields.get("_ticks")
    return duration(ticks) if isinstance(ticks, int) else None


def _version(fields: Mapping[str, Any]) -> Any:
    parts = _wholes(fields, "_Major", "_Minor", "_Build", "_Revision")
    return None if parts is None else ".".join(str(each) for each in parts if each >= 0)


def _big_number(fields: Mapping[str, Any]) -> Any:
    sign, bits = fields.get("_sign"), fields.get("_bits")
    if not isinstance(sign, int) or not (bits is None or isinstance(bits, list)):
        return None
    if bits is None:
        return sign
    if not 0 < len(bits) <= 40 or not all(isinstance(each, int) for each in bits):
        return None
    number = sum((each & 0xFFFFFFFF) << 32 * place for place, each in enumerate(bits))
    return scaled(number, 0, negative=sign < 0)


def _text_field(name: str) -> Callable[[Mapping[str, Any]], Any]:
    def show(fields: Mapping[str, Any]) -> Any:
        text = fields.get(name)
        return text if isinstance(text, str) else None

    return show


_KNOWN_CLASSES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "System.Collections.ArrayList": _list,
    "System.Collections.Generic.Dictionary`2": _dictionary,
    "System.Collections.Generic.HashSet`1": _set,
    "System.Collections.Generic.KeyValuePair`2": lambda fields: dict(fields) if "key" in fields else None,
    "System.Collections.Generic.List`1": _list,
    "System.Collections.Generic.Queue`1": _queue,
    "System.Collections.Generic.SortedList`2": _two_arrays("keys", "values"),
    "System.Collections.Generic.Stack`1": _stack,
    "System.Collections.Hashtable": _two_arrays("Keys", "Values"),
    "System.Collections.Queue": _queue,
    "System.Collections.SortedList": _two_arrays("keys", "values"),
    "System.Collections.Stack": _stack,
    "System.DateTime": _moment,
    "System.DateTimeOffset": _moment_with_offset,
    "System.Decimal": _decimal,
    "System.Guid": _guid,
    "System.Numerics.BigInteger": _big_number,
    "System.TimeSpan": _duration,
    "System.UnitySerializationHolder": _text_field("Data"),
    "System.Uri": _text_field("AbsoluteUri"),
    "System.Version": _version,
}
