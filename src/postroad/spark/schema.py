"""The columns of messages and of packets in Spark: which there are, and their types as Spark and as Arrow call them.

What Spark takes from a reader must equal its own Arrow schema to the letter, so both are made from one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from postroad.columns.schema import BYTES, ERROR, INT, LONG, PACKET, PROPERTIES, TEXT, TIME, TRUTH
from postroad.columns.schema import MESSAGE as SHOWN
from postroad.columns.schema import arrow_type as type_of
from postroad.errors import InvalidArgument
from postroad.fields.kinds import suggestion

Kinds = Mapping[str, pa.DataType]
_SPARK: dict[pa.DataType, DataType] = {
    TEXT: StringType(),
    BYTES: BinaryType(),
    TRUTH: BooleanType(),
    INT: IntegerType(),
    LONG: LongType(),
    TIME: TimestampType(),
}
ARRIVAL = "arrival"
BODIES = frozenset({"body", "body_text"})


def _columns() -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {}
    for name in SHOWN:
        columns[name] = type_of(name)
        if name == "lookup_id":
            columns[ARRIVAL] = LONG
    return {**columns, ERROR: TEXT}


# Of a message in a queue.
MESSAGE: Kinds = _columns()
# Of a packet in a file: where it was found, what it is, and the message in it, if it is one.
FOUND: Kinds = {
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


def choose(wanted: str | None, *, body: bool, packet: bool) -> tuple[str, ...]:
    """The columns that the options ask for; `wanted` is a list with commas. InvalidArgument for one that is none."""
    if wanted is None:
        names = tuple(name for name in MESSAGE if body or name not in BODIES)
    else:
        names = tuple(dict.fromkeys(each.strip() for each in wanted.split(",") if each.strip()))
        known = [*MESSAGE, PACKET]
        for name in names:
            if name not in known:
                raise InvalidArgument(f"columns: {name!r} is no column of a message{suggestion(name, known)}")
        if not names:
            raise InvalidArgument(f"columns: it names none of {', '.join(known)}")
    return (*names, PACKET) if packet and PACKET not in names else names


def named(schema: StructType, kinds: Kinds = MESSAGE) -> tuple[str, ...]:
    """The columns of a schema that somebody gives instead of ours: some of ours, as they are."""
    known = [*kinds, PACKET]
    for field in schema.fields:
        if field.name not in known:
            raise InvalidArgument(f"schema: {field.name!r} is no column of a message{suggestion(field.name, known)}")
        kind = spark_schema([field.name], kinds)[field.name].dataType
        if field.dataType != kind:
            raise InvalidArgument(f"schema: {field.name} is {kind.simpleString()}, not {field.dataType.simpleString()}")
    return tuple(schema.fieldNames())


def spark_schema(columns: Sequence[str], kinds: Kinds = MESSAGE) -> StructType:
    return StructType([StructField(field.name, _SPARK[field.type]) for field in arrow_schema(columns, kinds)])


def arrow_schema(columns: Sequence[str], kinds: Kinds = MESSAGE) -> pa.Schema:
    return pa.schema([(name, BYTES if name == PACKET else kinds[name]) for name in columns])
