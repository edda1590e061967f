"""Bodies as Spark columns: real frames, inferred schemas, and unreadable bodies beside readable ones."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.types import LongType

from postroad.spark.bodies import infer, read
from postroad.wire.constants import BodyType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "label string, body binary, body_type bigint"
XML = "<?xml version='1.0'?><Order><Id>{}</Id><At>2024-05-17T12:00:00+02:00</At></Order>"


def test_records_of_xml_with_their_inferred_schema(spark: SparkSession) -> None:
    rows: list[tuple[str, bytes | None, int]] = [
        (f"order {number}", XML.format(number).encode(), 0) for number in range(3)
    ]
    rows += [("broken", b"<Order><Id>", 0), ("none", None, 0)]
    frame = spark.createDataFrame(rows, COLUMNS)
    assert isinstance(infer(frame)["Id"].dataType, LongType)
    found = {row["label"]: row for row in read(frame).collect()}
    assert [found[f"order {number}"]["record"]["Id"] for number in range(3)] == [0, 1, 2]
    at = found["order 0"]["record"]["At"].astimezone(UTC)
    assert at == datetime(2024, 5, 17, 10, tzinfo=UTC)
    assert (found["broken"]["body_kind"], found["broken"]["record"]) == ("text", None)
    assert found["broken"]["body_error"].startswith("the body must be XML")
    assert (found["none"]["body_kind"], found["none"]["body_error"]) == (None, None)
    assert found["order 0"]["body_error"] is None


def test_a_schema_of_the_user_and_bodies_of_several_kinds(spark: SparkSession) -> None:
    rows = [
        ("json", b'{"id": 5, "tags": ["a", "b"]}', 0),
        ("activex", struct.pack("<i", 9), BodyType.VT_I4.value),
        ("text", "hello".encode("utf-16-le"), BodyType.VT_BSTR.value),
    ]
    frame = spark.createDataFrame(rows, COLUMNS)
    assert infer(frame).simpleString() == "struct<id:bigint,tags:array<string>,value:string>"
    schema = infer(frame.where("label = 'json'"))
    found = {row["label"]: row for row in read(frame, schema, column="content").collect()}
    assert found["json"]["content"].asDict() == {"id": 5, "tags": ["a", "b"]}
    assert found["activex"]["content"].asDict() == {"id": None, "tags": None}
    assert [found[label]["body_kind"] for label in ("json", "activex", "text")] == ["json", "activex", "text"]
