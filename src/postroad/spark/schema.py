"""The columns of messages in Spark, as data: names, types, and how both Spark and Arrow call them.

What Spark takes from a reader must equal its own Arrow schema to the letter, so both are made from one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

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

from postroad.errors import InvalidArgument

_TEXT, _BYTES, _TRUTH, _INT, _LONG, _TIME = "text", "bytes", "truth", "int", "long", "time"
_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    _TEXT: (StringType(), pa.string()),
    _BYTES: (BinaryType(), pa.binary()),
    _TRUTH: (BooleanType(), pa.bool_()),
    _INT: (IntegerType(), pa.int32()),
    _LONG: (LongType(), pa.int64()),
    _TIME: (TimestampType(), pa.timestamp("us", tz="UTC")),
}

# What the packet itself says of a message.
PROPERTIES = {
    "id": _TEXT,
    "class": _INT,
    "class_name": _TEXT,
    "label": _TEXT,
    "body": _BYTES,
    "body_text": _TEXT,
    "body_type": _LONG,
    "priority": _INT,
    "delivery": _TEXT,
    "correlation_id": _TEXT,
    "sent_at": _TIME,
    "source_manager": _TEXT,
    "destination_queue": _TEXT,
    "admin_queue": _TEXT,
    "response_queue": _TEXT,
    "extension": _BYTES,
    "app_tag": _LONG,
    "hops": _INT,
    "authenticated": _TRUTH,
    "encrypted": _TRUTH,
    "sender_id": _TEXT,
    "first_in_transaction": _TRUTH,
    "last_in_transaction": _TRUTH,
    "transaction_id": _LONG,
}
# What its place in a queue adds, and where: behind the column named.
_PLACED = {
    "id": {"lookup_id": _LONG, "arrival": _LONG},
    "sent_at": {"arrived_at": _TIME},
    "transaction_id": {"aborts": _INT, "decode_error": _TEXT},
}
PACKET = "packet"
BODIES = frozenset({"body", "body_text"})


def _columns() -> dict[str, str]:
    columns: dict[str, str] = {}
    for name, kind in PROPERTIES.items():
        columns[name] = kind
        columns |= _PLACED.get(name, {})
    return columns


MESSAGE = _columns()
# Of a packet in a file: where it was found, what it is, and the message in it, if it is one.
FOUND = {
    "file": _TEXT,
    "number": _LONG,
    "offset": _LONG,
    "line": _LONG,
    "frame": _LONG,
    "captured_at": _TIME,
    "source": _TEXT,
    "destination": _TEXT,
    "kind": _TEXT,
    "size": _LONG,
    "error": _TEXT,
    **PROPERTIES,
    "details": _TEXT,
    PACKET: _BYTES,
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


def named(schema: StructType, kinds: dict[str, str] | None = None) -> tuple[str, ...]:
    """The columns of a schema that somebody gives instead of ours: some of ours, as they are."""
    known = [*(kinds or MESSAGE), PACKET]
    for field in schema.fields:
        if field.name not in known:
            raise InvalidArgument(f"schema: {field.name!r} is no column of a message{suggestion(field.name, known)}")
        kind = _TYPES[_kind(field.name, kinds)][0]
        if field.dataType != kind:
            raise InvalidArgument(f"schema: {field.name} is {kind.simpleString()}, not {field.dataType.simpleString()}")
    return tuple(schema.fieldNames())


def suggestion(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def spark_schema(columns: Sequence[str], kinds: dict[str, str] | None = None) -> StructType:
    return StructType([StructField(name, _TYPES[_kind(name, kinds)][0]) for name in columns])


def arrow_schema(columns: Sequence[str], kinds: dict[str, str] | None = None) -> pa.Schema:
    return pa.schema([(name, _TYPES[_kind(name, kinds)][1]) for name in columns])


def _kind(name: str, kinds: dict[str, str] | None) -> str:
    return (kinds or MESSAGE).get(name, _BYTES)  # the packet alone stands in no table of its own
