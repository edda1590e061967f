"""Rows as messages to send: which columns there can be, of which types, and requests of a bounded size."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from postroad.columns.schema import PACKET
from postroad.errors import InvalidArgument
from postroad.spark.manager import JSON
from postroad.spark.schema import MESSAGE, suggestion

MOST_ROWS = 5000  # in a request
MOST_BYTES = 16 << 20  # about: the manager takes 64 MiB, and base64 adds a third
_OVERHEAD = 200  # of a row beside its body
_TEXT = (StringType,)
_BYTES = (BinaryType,)
_TRUTH = (BooleanType,)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NAMES = {
    _TEXT: "a string",
    _BYTES: "binary",
    _TRUTH: "a boolean",
    _WHOLE: "a whole number",
    (*_BYTES, *_TEXT): "binary or a string",
    (*_TEXT, ArrayType): "a string or an array of strings",
}
# What a sender can say of a message, as in the HTTP API. A null says nothing.
COLUMNS: Mapping[str, tuple[type[DataType], ...]] = {
    "body": (*_BYTES, *_TEXT),
    "body_type": _WHOLE,
    "label": _TEXT,
    "priority": _WHOLE,
    "recoverable": _TRUTH,
    "app_tag": _WHOLE,
    "correlation_id": _TEXT,
    "response_queue": _TEXT,
    "admin_queue": _TEXT,
    "ack": (*_TEXT, ArrayType),
    "time_to_reach_queue": _WHOLE,
    "time_to_be_received": _WHOLE,
    "journal": _TRUTH,
    "dead_letter": _TRUTH,
    "trace": _TEXT,
    "extension": _BYTES,
    "connector_type": _TEXT,
    "class": _WHOLE,
}


def check_schema(schema: StructType) -> None:
    """InvalidArgument, by the column's name, for rows that cannot be messages."""
    for field in schema.fields:
        types = COLUMNS.get(field.name)
        if types is None:
            raise InvalidArgument(f"{field.name}: {_stranger(field.name)}")
        if not isinstance(field.dataType, types):
            raise InvalidArgument(f"{field.name}: the column is {field.dataType.simpleString()}, not {_NAMES[types]}")
        if isinstance(field.dataType, ArrayType) and not isinstance(field.dataType.elementType, StringType):
            raise InvalidArgument(f"{field.name}: the column is {field.dataType.simpleString()}, not {_NAMES[types]}")
    if "body" not in schema.fieldNames():
        raise InvalidArgument("body: the column is missing; every message has a body, if an empty one")


def _stranger(name: str) -> str:
    if name in MESSAGE or name == PACKET:
        return f"it is not for a sender to say; leave the column out, and choose from {', '.join(COLUMNS)}"
    return f"a message has no such column{suggestion(name, COLUMNS)}"


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    media_type: str
    rows: int


def requests(batches: Iterator[pa.RecordBatch]) -> Iterator[Request]:
    """The rows in order, in requests that a manager takes at once."""
    for batch in batches:
        first = 0
        for end in _cuts(batch):
            yield _request(batch.slice(first, end - first))
            first = end


def _cuts(batch: pa.RecordBatch) -> Iterator[int]:
    """Where requests end: row numbers, the last that of the end."""
    body = batch.column("body")
    lengths = pa.compute.binary_length(body).fill_null(0).to_pylist()
    size = first = 0
    for row, length in enumerate(lengths):
        if row > first and (row - first == MOST_ROWS or size + length + _OVERHEAD > MOST_BYTES):
            yield row
            first, size = row, 0
        size += length + _OVERHEAD
    if lengths:
        yield len(lengths)


def _request(rows: pa.RecordBatch) -> Request:
    keys = [_as_json(field.name, field.type) for field in rows.schema]
    messages: list[dict[str, Any]] = [{} for _ in range(rows.num_rows)]
    for index, (key, change) in enumerate(keys):
        for message, value in zip(messages, rows.column(index).to_pylist(), strict=True):
            if value is not None:
                message[key] = value if change is None else change(value)
    return Request(json.dumps({"messages": messages}, separators=(",", ":")).encode(), JSON, rows.num_rows)


def _as_json(name: str, kind: pa.DataType) -> tuple[str, Callable[[Any], Any] | None]:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"{name}_base64", lambda value: b64encode(value).decode()
    return name, None
