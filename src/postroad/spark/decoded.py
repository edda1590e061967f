"""What bodies and extensions say, as columns of messages: for the option `decode`, and for the pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import VariantVal

from postroad.bodies import BodyKind, Decoded, Outline, decode, outline
from postroad.bodies.amqp import header_text
from postroad.bodies.bounds import LIMIT
from postroad.columns.schema import TEXT

HEADERS = pa.map_(pa.string(), pa.string())
# The form of Spark's own VARIANT in Arrow: the mark on `metadata` says that it is one.
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
VARIANT_COLUMN = "body_variant"
DECODED: Mapping[str, Any] = {
    "body_kind": TEXT,
    "headers": HEADERS,
    "system": TEXT,
    "message_type": TEXT,
    VARIANT_COLUMN: VARIANT,
}
OUTLINE = ("message_type", "headers")
NEEDED = ("body", "body_type", "extension", "app_tag")  # columns that they are made of
_WITH_VALUES = frozenset({BodyKind.JSON, BodyKind.XML, BodyKind.NRBF})
_MOST_VARIANT = 8 << 20  # characters of JSON: Spark's values have at most 16 MiB


def decoded_columns(found: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """The wanted columns of DECODED, and `body_text` as bodies say it, from the columns of NEEDED."""
    limit = LIMIT if "body_text" in wanted else 0

    def read(body: bytes, body_type: int, extension: bytes | None, app_tag: int) -> Decoded:
        return decode(body, body_type, extension or b"", app_tag=app_tag, limit=limit)

    return _columns(found, read, wanted)


def outline_columns(found: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of OUTLINE, from the columns of NEEDED."""

    def read(body: bytes, body_type: int, extension: bytes | None, app_tag: int) -> Outline:
        return outline(body, body_type, extension or b"", app_tag=app_tag)

    return _columns(found, read, OUTLINE)


def _columns(found: Mapping[str, Any], read: Callable[..., Any], wanted: Iterable[str]) -> dict[str, Any]:
    given = (found[name].to_pylist() for name in NEEDED)
    rows = [None if row[0] is None else read(*row) for row in zip(*given, strict=True)]
    makers: dict[str, Callable[[Any], object]] = {
        "body_kind": lambda row: row.kind,
        "body_text": lambda row: row.text,
        "headers": lambda row: list(row.headers.items()),
        "system": lambda row: row.system,
        "message_type": lambda row: row.message_type,
        VARIANT_COLUMN: _variant,
    }
    types = {"body_text": TEXT, **DECODED}
    return {
        name: pa.array([None if row is None else make(row) for row in rows], types[name])
        for name, make in makers.items()
        if name in wanted
    }


def _variant(row: Decoded) -> dict[str, bytes] | None:
    """The value of JSON, XML or an object; null for other bodies, and for what a VARIANT cannot hold."""
    if row.kind not in _WITH_VALUES:
        return None
    try:
        text = json.dumps(row.value, default=header_text, allow_nan=False)
        if len(text) > _MOST_VARIANT:
            return None
        made = VariantVal.parseJson(text)
    except Exception:  # what Spark's builder raises for a value that is too large is not documented
        return None
    return {"value": made.value, "metadata": made.metadata}
