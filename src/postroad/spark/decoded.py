"""What bodies and extensions say, as columns of messages: for the option `decode`, and for the pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import VariantVal

from postroad.bodies import BodyKind, Decoded, decode, outline
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
PART_BYTES = 16 << 20  # of decoded columns in a batch, about
_MOST_VARIANT = 8 << 20  # characters of JSON: Spark's values have at most 16 MiB


def decoded_columns(found: Mapping[str, Any], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The wanted columns of DECODED, and `body_text` as bodies say it, from the columns of NEEDED.

    They come in parts, a part for the next rows each, because a small body can say a megabyte.
    """
    names = [name for name in _TYPES if name in wanted]
    limit = LIMIT if "body_text" in wanted else 0
    part: list[tuple[object, ...]] = []
    size = 0
    for body, body_type, extension, app_tag in _given(found):
        if body is None:
            part.append((None,) * len(names))
            continue
        row = decode(body, body_type, extension or b"", app_tag=app_tag, limit=limit)
        values = tuple(_VALUES[name](row) for name in names)
        size += sum(map(_size, values))
        part.append(values)
        if size > PART_BYTES:
            yield _columns(names, part)
            part, size = [], 0
    if part:
        yield _columns(names, part)


def outline_columns(found: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of OUTLINE, from the columns of NEEDED."""
    rows: list[tuple[object, ...]] = []
    for body, body_type, extension, app_tag in _given(found):
        row = None if body is None else outline(body, body_type, extension or b"", app_tag=app_tag)
        rows.append((None, None) if row is None else (row.message_type, list(row.headers.items())))
    return _columns(OUTLINE, rows)


def _given(found: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    return zip(*(found[name].to_pylist() for name in NEEDED), strict=True)


def _columns(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> dict[str, Any]:
    return {name: pa.array([row[place] for row in rows], _TYPES[name]) for place, name in enumerate(names)}


def _size(value: object) -> int:
    """About the bytes of a value in a column."""
    if isinstance(value, dict):
        return sum(map(len, value.values()))
    if isinstance(value, list):
        return sum(len(name) + len(text) for name, text in value)
    return len(value) if isinstance(value, str) else 0


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


_TYPES: Mapping[str, Any] = {"body_text": TEXT, **DECODED}
_VALUES: Mapping[str, Callable[[Decoded], object]] = {
    "body_kind": lambda row: row.kind,
    "body_text": lambda row: row.text,
    "headers": lambda row: list(row.headers.items()),
    "system": lambda row: row.system,
    "message_type": lambda row: row.message_type,
    VARIANT_COLUMN: _variant,
}
