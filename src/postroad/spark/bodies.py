"""Bodies with a schema: what .NET's formatters, ActiveX and JSON senders write, as columns of Spark.

A body that is not what it claims gives an error, never a guess.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

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

from postroad.bodies import BodyKind, Decoded, decode
from postroad.bodies.xml_text import VALUE, Untyped
from postroad.errors import RemoteProtocolError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE = 1000
MOST_FIELDS = 2000  # in a schema that is made from bodies
_MOST_LONG = 1 << 63
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


# Single bodies


def body_kind(body: bytes, body_type: int) -> BodyKind:
    """How the body is written: its type decides first, then its bytes."""
    return decode(body, body_type, limit=0).kind


def read_body(body: bytes, body_type: int) -> Any:
    """The value of a body: a dictionary, a list, text, a number, True, False, None, or bytes if the format is unknown.

    Raises RemoteProtocolError for a damaged body.
    """
    return _value(decode(body, body_type, limit=0))


def _value(decoded: Decoded) -> Any:
    if decoded.fault is not None:
        raise RemoteProtocolError(decoded.fault)
    return None if decoded.value == "" else decoded.value


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
    decoded = decode(body, body_type or 0, limit=0)
    try:
        return decoded.kind, None, json.dumps(shaped(record_of(_value(decoded)), schema))
    except RemoteProtocolError as fault:
        return decoded.kind, str(fault), None
