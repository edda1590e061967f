"""Rows as messages to send: the possible columns, their types, and requests of a limited size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark_types

from postroad.columns.schema import PACKET
from postroad.errors import InvalidArgument
from postroad.fields.kinds import suggestion
from postroad.spark.schema import MESSAGE

MOST_ROWS = 5000  # in a request
MOST_BYTES = 16 << 20  # about: the manager accepts 64 MiB
_OVERHEAD = 200  # of a row beside its body
_TEXT = (spark_types.StringType,)
_BYTES = (spark_types.BinaryType,)
_TRUTH = (spark_types.BooleanType,)
_WHOLE = (spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.LongType)
_NAMES = {
    _TEXT: "a string",
    _BYTES: "binary",
    _TRUTH: "a boolean",
    _WHOLE: "a whole number",
    (*_BYTES, *_TEXT): "binary or a string",
    (*_TEXT, *_WHOLE, spark_types.ArrayType): "a string, an array of strings or a whole number",
}
# The properties of a message that a sender sets, as in the HTTP API. A null leaves the default.
COLUMNS: Mapping[str, tuple[type[spark_types.DataType], ...]] = {
    "body": (*_BYTES, *_TEXT),
    "body_type": _WHOLE,
    "label": _TEXT,
    "priority": _WHOLE,
    "delivery": _TEXT,
    "recoverable": _TRUTH,
    "app_tag": _WHOLE,
    "correlation_id": (*_BYTES, *_TEXT),
    "response_queue": _TEXT,
    "admin_queue": _TEXT,
    "ack": (*_TEXT, *_WHOLE, spark_types.ArrayType),
    "time_to_reach_queue": _WHOLE,
    "time_to_be_received": _WHOLE,
    "journal": _TRUTH,
    "dead_letter": _TRUTH,
    "dead_letter_queue": _TEXT,
    "trace": _TEXT,
    "extension": _BYTES,
    "connector_type": _TEXT,
    "class": _WHOLE,
}


def check_schema(schema: spark_types.StructType) -> None:
    """InvalidArgument, by the column's name, for rows that cannot be messages."""
    for field in schema.fields:
        types = COLUMNS.get(field.name)
        if types is None:
            raise InvalidArgument(f"{field.name}: {_stranger(field.name)}")
        kind = field.dataType
        wrong_items = isinstance(kind, spark_types.ArrayType) and not isinstance(
            kind.elementType, spark_types.StringType
        )
        if wrong_items or not isinstance(kind, types):
            raise InvalidArgument(f"{field.name}: the column must be {_NAMES[types]}, got {kind.simpleString()}")
    if "body" not in schema.fieldNames():
        raise InvalidArgument("body: the column is missing; every message needs a body, even an empty one")


def _stranger(name: str) -> str:
    if name in MESSAGE or name == PACKET:
        return f"a sender cannot set it; drop the column, and use only {', '.join(COLUMNS)}"
    return f"a message has no such column{suggestion(name, COLUMNS)}"


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes  # an Arrow stream
    batch: pa.RecordBatch  # the same rows


def requests(batches: Iterator[pa.RecordBatch]) -> Iterator[Request]:
    """The rows in order, in requests of the size that a manager accepts."""
    for batch in batches:
        first = 0
        for end in _cuts(batch):
            part = batch.slice(first, end - first)
            yield Request(_stream(part), part)
            first = end


def _cuts(batch: pa.RecordBatch) -> Iterator[int]:
    """The row numbers where requests end; the last is that of the end."""
    body = batch.column("body")
    lengths = pc.binary_length(body).fill_null(0).to_pylist()
    size = first = 0
    for row, length in enumerate(lengths):
        if row > first and (row - first == MOST_ROWS or size + length + _OVERHEAD > MOST_BYTES):
            yield row
            first, size = row, 0
        size += length + _OVERHEAD
    if lengths:
        yield len(lengths)


def _stream(rows: pa.RecordBatch) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(stream.getvalue().to_pybytes())
