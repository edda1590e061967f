"""The columns of messages and of packets, with their types in Spark and in Arrow.

One table gives both types, because a reader's batches must match Spark's own Arrow schema exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import types as spark_types

from postroad.columns.schema import (
    ARROW_TYPES,
    BYTES,
    ERROR,
    INT,
    LONG,
    PACKET,
    PROPERTIES,
    SECURITY,
    TEXT,
    TIME,
    TRUTH,
)
from postroad.columns.schema import MESSAGE as SHOWN
from postroad.errors import InvalidArgument
from postroad.spark.decoded import DECODED, HEADERS, VARIANT
from postroad.validation.kinds import suggestion

Kinds = Mapping[str, pa.DataType]
_SPARK: dict[pa.DataType, spark_types.DataType] = {
    TEXT: spark_types.StringType(),
    BYTES: spark_types.BinaryType(),
    TRUTH: spark_types.BooleanType(),
    INT: spark_types.IntegerType(),
    LONG: spark_types.LongType(),
    TIME: spark_types.TimestampType(),
    HEADERS: spark_types.MapType(spark_types.StringType(), spark_types.StringType()),
    VARIANT: spark_types.VariantType(),
}
ARRIVAL = "arrival"
QUEUE = "queue"  # the queue that a message was read from
BODIES = frozenset({"body", "body_text"})


def _columns() -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {}
    for name in SHOWN:
        columns[name] = ARROW_TYPES[name]
        if name == "lookup_id":
            columns[ARRIVAL] = LONG
    return _security_last({**columns, ERROR: TEXT})


def _security_last(columns: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {name: kind for name, kind in columns.items() if name not in SECURITY} | {
        name: columns[name] for name in SECURITY
    }


# A message in a queue.
MESSAGE: Kinds = _columns()
# A packet in a file: where it was found, what it is, and the message in it, if it has one.
FOUND: Kinds = _security_last(
    {
        "file": TEXT,
        "number": LONG,
        "offset": LONG,
        "line": LONG,
        "frame": LONG,
        "captured_at": TIME,
        "source": TEXT,
        "destination": TEXT,
        "kind": TEXT,
        "size": LONG,
        "error": TEXT,
        **PROPERTIES,
        "details": TEXT,
        PACKET: BYTES,
    }
)


def choose(
    wanted: str | None, *, body: bool, packet: bool, queue: bool = False, decode: bool = False
) -> tuple[str, ...]:
    """The columns that the options select. `wanted` is a list separated by commas. Raises InvalidArgument for an
    unknown one.

    With `queue`, the rows come from several queues, and a column says which one. With `decode`, there are the columns
    of DECODED, too.
    """
    said = tuple(DECODED) if decode else ()
    if wanted is None:
        names = (*(name for name in MESSAGE if body or name not in BODIES), *((QUEUE,) if queue else ()), *said)
    else:
        names = tuple(dict.fromkeys(each.strip() for each in wanted.split(",") if each.strip()))
        known = [*MESSAGE, QUEUE, PACKET, *said]
        for name in names:
            if name not in known:
                raise InvalidArgument(f"columns: there is no column {name!r}{suggestion(name, known)}")
        if not names:
            raise InvalidArgument(f"columns: must name at least one of {', '.join(known)}")
    return (*names, PACKET) if packet and PACKET not in names else names


def named(schema: spark_types.StructType, kinds: Kinds = MESSAGE) -> tuple[str, ...]:
    """The columns of a schema that the user gives. They must be columns of ours with their own types."""
    known = [*kinds, *((QUEUE, *DECODED) if kinds is MESSAGE else ()), PACKET]
    for field in schema.fields:
        if field.name not in known:
            raise InvalidArgument(f"schema: there is no column {field.name!r}{suggestion(field.name, known)}")
        kind = spark_schema([field.name], kinds)[field.name].dataType
        if field.dataType != kind:
            raise InvalidArgument(
                f"schema: {field.name} must be {kind.simpleString()}, got {field.dataType.simpleString()}"
            )
    return tuple(schema.fieldNames())


def spark_schema(columns: Sequence[str], kinds: Kinds = MESSAGE) -> spark_types.StructType:
    return spark_types.StructType(
        [spark_types.StructField(field.name, _SPARK[field.type]) for field in arrow_schema(columns, kinds)]
    )


def arrow_schema(columns: Sequence[str], kinds: Kinds = MESSAGE) -> pa.Schema:
    ours = {PACKET: BYTES, QUEUE: TEXT} | dict(DECODED) | dict(kinds)
    return pa.schema([(name, ours[name]) for name in columns])
