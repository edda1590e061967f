"""Bodies with a schema: what .NET's formatters, ActiveX and JSON senders write, as Python values and Spark columns.

The body type decides how a body is read. If it says nothing, the bytes decide. Nothing in a body is executed, loaded or
fetched. A body that is not what it claims to be gives an error, never a guess.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from postroad.errors import RemoteProtocolError
from postroad.spark import nrbf
from postroad.wire.bodies import body_text
from postroad.wire.constants import BodyType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE = 1000
VALUE = "value"  # the field of a body that is a single value, not a record
BINARY_OBJECT = 768  # the body type of .NET's BinaryMessageFormatter
DEEPEST = 64
MOST_VALUES = 200_000  # in one body
MOST_FIELDS = 2000  # in a schema that is inferred from bodies
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_ARRAY_OF_BYTES = 0x2000 | BodyType.VT_UI1.value
_DAY_ZERO = datetime(1899, 12, 30)
_MOST_LONG = 1 << 63
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


class BodyKind(StrEnum):
    """The format of a body."""

    EMPTY = "empty"
    TEXT = "text"
    JSON = "json"
    XML = "xml"
    ACTIVEX = "activex"
    BINARY_FORMATTER = "binary-formatter"
    BYTES = "bytes"


class Untyped(str):
    """Text of an XML element or attribute. The schema decides whether it is text, a number, a time or a boolean."""


# Single bodies


def body_kind(body: bytes, body_type: int) -> BodyKind:
    """The format of a body. The body type comes first; the bytes decide what it leaves open."""
    if not body:
        return BodyKind.EMPTY
    if body_type == BINARY_OBJECT:
        return BodyKind.BINARY_FORMATTER
    if body_type in _ACTIVEX or body_type == _ARRAY_OF_BYTES:
        return BodyKind.ACTIVEX
    text = body_text(body, body_type)
    if text is None:
        untyped = body_type == BodyType.VT_EMPTY
        return BodyKind.BINARY_FORMATTER if untyped and nrbf.is_nrbf(body) else BodyKind.BYTES
    start = text.lstrip("\ufeff \t\r\n")[:1]
    return BodyKind.XML if start == "<" else BodyKind.JSON if start in ("{", "[") else BodyKind.TEXT


def read_body(body: bytes, body_type: int) -> Any:
    """The value of a body: a dictionary, a list, text, a number, True, False, None, or bytes if the format is unknown.

    Raises RemoteProtocolError for a damaged body.
    """
    kind = body_kind(body, body_type)
    if kind == BodyKind.EMPTY:
        return None
    if kind == BodyKind.BINARY_FORMATTER:
        return nrbf.read(body)
    if kind == BodyKind.ACTIVEX:
        return activex_value(body, body_type)
    if kind == BodyKind.BYTES:
        return body
    text = body_text(body, body_type)
    assert text is not None
    return {BodyKind.XML: xml_value, BodyKind.JSON: json_value}.get(kind, str)(text)


def json_value(text: str) -> Any:
    try:
        value = json.loads(text.lstrip("\ufeff"), parse_constant=_refuse_constant)
        if "\\ud" in text.lower():  # an unpaired surrogate, which no Spark column can hold
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as fault:
        raise RemoteProtocolError(f"the body must be JSON: {fault}") from None
    level, depth, count = [value], 0, 0
    while level := [each for one in level for each in _inside(one)]:
        depth, count = depth + 1, count + len(level)
        if depth > DEEPEST:
            raise RemoteProtocolError(f"the body must not be nested more than {DEEPEST} times")
        if count > MOST_VALUES:
            raise RemoteProtocolError(f"the body must have at most {MOST_VALUES:,} values")
    return value


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def activex_value(body: bytes, body_type: int) -> Any:
    """Reads a number, a boolean or a time, as ActiveX components and .NET's ActiveXMessageFormatter write them.

    Text has body types of its own and is read elsewhere.
    """
    if body_type == _ARRAY_OF_BYTES:
        return body
    form, convert = _ACTIVEX[body_type]
    if len(body) != struct.calcsize(form):
        name = BodyType(body_type).name
        raise RemoteProtocolError(f"a body of type {name} must have {struct.calcsize(form)} bytes, got {len(body)}")
    (value,) = struct.unpack(form, body)
    return convert(value)


def _day(days: float) -> str:
    """Reads a VT_DATE: days since 1899-12-30. The fraction of a day counts forwards, even in a negative number."""
    try:
        whole = int(days)
        return (_DAY_ZERO + timedelta(days=whole) + timedelta(days=abs(days - whole))).isoformat()
    except (OverflowError, ValueError):
        raise RemoteProtocolError(f"a body of type VT_DATE must be a day, got {days}") from None


_ACTIVEX: dict[int, tuple[str, Any]] = {
    BodyType.VT_I1: ("<b", int),
    BodyType.VT_UI1: ("<B", int),
    BodyType.VT_I2: ("<h", int),
    BodyType.VT_UI2: ("<H", int),
    BodyType.VT_I4: ("<i", int),
    BodyType.VT_UI4: ("<I", int),
    BodyType.VT_I8: ("<q", int),
    BodyType.VT_UI8: ("<Q", int),
    BodyType.VT_R4: ("<f", float),
    BodyType.VT_R8: ("<d", float),
    BodyType.VT_BOOL: ("<h", bool),
    BodyType.VT_CY: ("<q", lambda units: str(Decimal(units).scaleb(-4))),
    BodyType.VT_DATE: ("<d", _day),
}


class _XmlTree:
    """Builds dictionaries, lists and texts from XML elements. Document types are refused, so there are no entities."""

    def __init__(self) -> None:
        self.root: tuple[str, Any] | None = None
        self._open: list[tuple[str, dict[str, Any], list[str]]] = []
        self._values = 0

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if len(self._open) >= DEEPEST:
            raise RemoteProtocolError(f"the body must not have elements nested more than {DEEPEST} times")
        self._values += 1 + len(attributes)
        if self._values > MOST_VALUES:
            raise RemoteProtocolError(f"the body must have at most {MOST_VALUES:,} values")
        fields: dict[str, Any] = {f"@{_local(key)}": Untyped(value) for key, value in attributes.items()}
        if attributes.get(f"{_XSI} nil") in ("true", "1"):
            fields["@nil"] = True
        self._open.append((_local(name), fields, []))

    def text(self, data: str) -> None:
        self._open[-1][2].append(data)

    def end(self, _: str) -> None:
        name, fields, texts = self._open.pop()
        value = self._value(fields, "".join(texts))
        if not self._open:
            self.root = (name, value)
            return
        parent = self._open[-1][1]
        if name not in parent:
            parent[name] = value
        elif isinstance(parent[name], _Repeated):
            parent[name].append(value)
        else:
            parent[name] = _Repeated([parent[name], value])

    def _value(self, fields: dict[str, Any], text: str) -> Any:
        if fields.pop("@nil", None) is True:
            return None
        if not fields:
            return Untyped(text)
        return fields | ({"#text": Untyped(text)} if text.strip() else {})


class _Repeated(list[Any]):
    """Elements with the same name, as opposed to a list inside one element."""


# The element names that XmlSerializer uses for a single value: those of text, and of all values.
_XML_TEXTS = frozenset({"string", "char", "guid", "base64Binary"})
_XML_VALUES = _XML_TEXTS | {"int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"}
_XML_VALUES |= {"unsignedByte", "double", "float", "decimal", "boolean", "dateTime", "TimeSpan", "duration", "date"}


def xml_value(text: str) -> Any:
    """Reads what .NET's XmlMessageFormatter (XmlSerializer) writes.

    An object is a dictionary with the name of its element under `$type`; a single value is its text. Attributes start
    with @, elements with the same name are a list, and `xsi:nil` is None. Prefixes and namespaces are dropped.
    """
    tree = _XmlTree()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = tree.start, tree.end
    parser.CharacterDataHandler = tree.text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(_without_declaration(text).encode(), True)
    except expat.ExpatError as fault:
        raise RemoteProtocolError(f"the body must be XML: {fault}") from None
    assert tree.root is not None
    name, value = tree.root
    if isinstance(value, dict):
        return {nrbf.TYPE: name} | value
    if value is None or name in _XML_VALUES:
        return str(value) if name in _XML_TEXTS and value is not None else value
    return {nrbf.TYPE: name} | ({VALUE: value} if value.strip() else {})


def _refuse_doctype(*_: object) -> None:
    raise RemoteProtocolError("the body must be XML without a document type")


def _without_declaration(text: str) -> str:
    """Removes the XML declaration: the text is already decoded, so the encoding that it names is no longer true."""
    text = text.lstrip("\ufeff \t\r\n")
    return text[text.find("?>") + 2 :] if text.startswith("<?xml") and "?>" in text else text


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


# Schemas


def schema_of(values: Iterable[Any]) -> StructType:
    """One schema for all values.

    A field that is a number in some values and text in others is text. Every field can be null. A value that is not a
    record becomes a record with the field `value`. A value is ignored if its fields would bring the schema above
    MOST_FIELDS.
    """
    merged: Any = {}
    for value in values:
        candidate = _merged(_copied(merged), _shape(record_of(value)))
        if _width(candidate) <= MOST_FIELDS:
            merged = candidate
    found = _data_type(merged or {VALUE: None})
    assert isinstance(found, StructType)
    return found


def record_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {VALUE: value}


# A shape is None (nothing known yet), a DataType, a list with one shape for its items, or a dictionary of fields.
_NUMBERS = (LongType(), DoubleType())


def _width(shape: Any) -> int:
    inside = shape.values() if isinstance(shape, dict) else shape if isinstance(shape, list) else ()
    return len(inside) + sum(map(_width, inside))


def _copied(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {name: _copied(each) for name, each in shape.items()}
    return [_copied(each) for each in shape] if isinstance(shape, list) else shape


def _shape(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list):
        inside = None
        for each in value:
            inside = _merged(inside, _shape(each))
        return [inside]
    if isinstance(value, Untyped):
        return _text_shape(value)
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if -_MOST_LONG <= value < _MOST_LONG else StringType()
    return DoubleType() if isinstance(value, float) else StringType()


def _text_shape(text: str) -> DataType | None:
    """The type of an XML text, if XmlSerializer writes values of that type in this form. So 007 is text."""
    if text == "":
        return None
    if text in ("true", "false"):
        return BooleanType()
    if _is_long(text):
        return LongType()
    if _number(text) is not None and text.strip() == text and not text.lstrip("+-").startswith("0" * 2):
        return DoubleType()
    return TimestampType() if _time(text) is not None else StringType()


def _is_long(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None and -_MOST_LONG <= int(text) < _MOST_LONG


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and "_" not in text else None


def _time(text: str) -> datetime | None:
    if len(text) < 19 or text[10] != "T":
        return None
    head, _, fraction = text.partition(".")
    digits = len(fraction) - len(fraction.lstrip("0123456789"))
    try:  # .NET writes seven fractional digits, Python reads six
        return datetime.fromisoformat(f"{head}.{fraction[:digits][:6]}{fraction[digits:]}" if digits else text)
    except ValueError:
        return None


def _merged(one: Any, other: Any) -> Any:
    """One shape that fits both. The result may share parts with its arguments."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        for (
            name,
            each,
        ) in other.items():  # in place, because copying a long list of records for each record would be slow
            one[name] = _merged(one.get(name), each)
        return one
    if isinstance(one, list) or isinstance(other, list):  # XML has a single element where others have a list
        inside = [each[0] if isinstance(each, list) else each for each in (one, other)]
        return [_merged(*inside)]
    if one in _NUMBERS and other in _NUMBERS:
        return DoubleType()
    return StringType()


def _data_type(shape: Any) -> DataType:
    if isinstance(shape, dict):
        return StructType([StructField(name, _data_type(each)) for name, each in shape.items()])
    if isinstance(shape, list):
        return ArrayType(_data_type(shape[0]))
    return StringType() if shape is None else shape


def shaped(value: Any, kind: DataType) -> Any:
    """Converts a value to the types of a schema, ready for JSON. None if it does not fit."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        if not isinstance(value, dict):
            return None
        return {field.name: shaped(value.get(field.name), field.dataType) for field in kind}
    if isinstance(kind, ArrayType):
        values = value if isinstance(value, list) else [value]
        return [shaped(each, kind.elementType) for each in values]
    if isinstance(kind, StringType):
        return _as_text(value)
    if isinstance(value, Untyped):
        return _typed(value, kind)
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(kind, BooleanType) or isinstance(value, bool):
        return value if isinstance(kind, BooleanType) and isinstance(value, bool) else None
    if isinstance(kind, LongType):
        return value if isinstance(value, int) else None
    if isinstance(kind, DoubleType):
        return value if isinstance(value, int | float) else None
    return value if isinstance(value, str) else None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return json.dumps(value, default=_as_text)


def _typed(text: str, kind: DataType) -> Any:
    if isinstance(kind, BooleanType):
        return {"true": True, "false": False}.get(text)
    if isinstance(kind, LongType):
        return int(text) if _is_long(text) else None
    if isinstance(kind, DoubleType):
        return _number(text)
    found = _time(text) if isinstance(kind, TimestampType) else None
    return None if found is None else found.isoformat()


# Columns


def infer(frame: DataFrame, sample: int = SAMPLE) -> StructType:
    """Infers the schema from the bodies of some messages. Unreadable bodies are ignored.

    The frame needs the columns `body` and `body_type`. Separate bodies of different kinds first, by label or by queue:
    otherwise the schema is one record with the fields of all.
    """
    found = []
    for row in frame.select("body", "body_type").where("body is not null").limit(sample).collect():
        try:
            found.append(read_body(bytes(row["body"]), row["body_type"]))
        except RemoteProtocolError:
            continue
    return schema_of(found)


def read(
    frame: DataFrame, schema: StructType | None = None, *, column: str = "record", sample: int = SAMPLE
) -> DataFrame:
    """Adds three columns to the frame: `body_kind`, `column` and `body_error`.

    `column` is the body in the given schema, or in an inferred one if `schema` is None. `body_error` says why a body
    could not be read. A field that does not fit the schema is null.
    """
    import pyarrow

    shape = infer(frame, sample) if schema is None else schema
    wanted = StructType([*frame.schema, *(StructField(name, StringType()) for name in (*_ADDED, column))])

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = zip(batch.column("body").to_pylist(), batch.column("body_type").to_pylist(), strict=True)
            made = [_columns(body, kind, shape) for body, kind in rows]
            more = [pyarrow.array([row[place] for row in made], pyarrow.string()) for place in range(3)]
            yield pyarrow.RecordBatch.from_arrays([*batch.columns, *more], names=wanted.names)

    read_rows = frame.mapInArrow(work, wanted)
    return read_rows.withColumn(column, f.from_json(column, shape, {"timestampFormat": _TIMESTAMP}))


_ADDED = ("body_kind", "body_error")
_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]"


def _columns(body: bytes | None, body_type: int | None, schema: StructType) -> tuple[str | None, ...]:
    if body is None:
        return None, None, None
    kind = body_kind(body, body_type or 0)
    try:
        value = record_of(read_body(body, body_type or 0))
        return kind, None, json.dumps(shaped(value, schema))
    except RemoteProtocolError as fault:
        return kind, str(fault), None
