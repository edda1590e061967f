"""Single bodies become values, first by their type, and many bodies get one schema."""

from __future__ import annotations

import json
import random
import struct
from base64 import b64decode
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StringType, StructType, TimestampType

from postroad.bodies.bounds import DEEPEST, MOST_VALUES
from postroad.bodies.decoding import BINARY_OBJECT
from postroad.bodies.xml_text import Untyped
from postroad.errors import RemoteProtocolError
from postroad.spark.bodies import (
    MOST_FIELDS,
    _columns,
    body_kind,
    read_body,
    record_of,
    schema_of,
    shaped,
)
from postroad.spark.decoded import DECODED, PART_BYTES, decoded_columns, outline_columns
from postroad.spark.reading import rows
from postroad.wire.constants import BodyType
from tests.spark.packets import sent
from tests.torture.bodies import Input, by_chance, samples

ORDER = """<?xml version="1.0" encoding="utf-16"?>
<Order xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema" urgent="true">
  <Id>7</Id>
  <Code>007</Code>
  <Price>12.5</Price>
  <At>2024-05-17T12:00:00.1234567Z</At>
  <Note xsi:nil="true" />
  <Lines><Line><What>box</What></Line><Line><What>&lt;b&gt;</What></Line></Lines>
</Order>"""
SERIALIZED = b64decode("AAEAAAD/////AQAAAAAAAAAGAQAAAAVoZWxsbws=")


@pytest.mark.parametrize(
    ("body", "body_type", "kind"),
    [
        (b"", 0, "text"),
        (b"hello", 0, "text"),
        (b' {"a": 1}', 0, "json"),
        (b"[1]", BodyType.VT_LPSTR, "activex"),
        (ORDER.encode(), 0, "xml"),
        ("<a/>".encode("utf-16-le"), BodyType.VT_BSTR, "activex"),
        (SERIALIZED, 0, "nrbf"),
        (SERIALIZED, BINARY_OBJECT, "nrbf"),
        (b"<a/>", BodyType.VT_I4, "activex"),  # its type says a number, whatever the bytes look like
        (b"<a/>", BodyType.VT_UI1 | 0x2000, "activex"),
        (b"hello", BINARY_OBJECT, "bytes"),
        (SERIALIZED, BodyType.VT_BLOB, "bytes"),
        (b"\x00\x01\x02", 0, "bytes"),
    ],
)
def test_the_type_decides_first(body: bytes, body_type: int, kind: str) -> None:
    assert body_kind(body, body_type) == kind


@pytest.mark.parametrize(
    ("body_type", "body", "value"),
    [
        (BodyType.VT_I1, b"\xff", -1),
        (BodyType.VT_UI1, b"\xff", 255),
        (BodyType.VT_I2, struct.pack("<h", -5), -5),
        (BodyType.VT_UI2, struct.pack("<H", 50_000), 50_000),
        (BodyType.VT_I4, struct.pack("<i", -5), -5),
        (BodyType.VT_UI4, struct.pack("<I", 4_000_000_000), 4_000_000_000),
        (BodyType.VT_I8, struct.pack("<q", -5), -5),
        (BodyType.VT_UI8, struct.pack("<Q", 1 << 63), 1 << 63),
        (BodyType.VT_R4, struct.pack("<f", 0.5), 0.5),
        (BodyType.VT_R8, struct.pack("<d", 0.1), 0.1),
        (BodyType.VT_BOOL, b"\xff\xff", True),
        (BodyType.VT_CY, struct.pack("<q", 123_450), "12.3450"),
        (BodyType.VT_DATE, struct.pack("<d", 2.25), "1900-01-01T06:00:00"),
        (BodyType.VT_DATE, struct.pack("<d", -1.25), "1899-12-29T06:00:00"),
        (BodyType.VT_UI1 | 0x2000, b"\x01\x02", b"\x01\x02"),
        (BodyType.VT_BSTR, "grüße".encode("utf-16-le"), "grüße"),
        (BodyType.VT_LPSTR, b"hello", "hello"),
        (0, b"hello", "hello"),
        (0, b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (0, b"\xef\xbb\xbf[1]", [1]),
        (0, b'<?xml version="1.0"?><int>5</int>', "5"),
        (0, b"<string>007</string>", "007"),
        (BINARY_OBJECT, SERIALIZED, "hello"),
        (0, b"\x00\x01\x02", b"\x00\x01\x02"),
        (0, b"", None),
    ],
)
def test_values(body_type: int, body: bytes, value: Any) -> None:
    assert read_body(body, body_type) == value


def test_an_object_of_the_xml_serializer() -> None:
    assert read_body(ORDER.encode("utf-16-le"), BodyType.VT_BSTR) == {
        "$type": "Order",
        "@urgent": "true",
        "Id": "7",
        "Code": "007",
        "Price": "12.5",
        "At": "2024-05-17T12:00:00.1234567Z",
        "Note": None,
        "Lines": {"Line": [{"What": "box"}, {"What": "<b>"}]},
    }


@pytest.mark.parametrize(
    ("body", "body_type", "sentence"),
    [
        (b"<a>", 0, "must be XML"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', 0, "XML without a document type"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', 0, "XML without a document type"),
        (b"<a>" * (DEEPEST + 1), 0, f"nested more than {DEEPEST} times"),
        (b"[" * (DEEPEST + 2) + b"]" * (DEEPEST + 2), 0, f"nested more than {DEEPEST} times"),
        (b"[" * 50_000, 0, f"nested more than {DEEPEST} times"),
        (b"[" * 5, 0, "must be JSON"),
        (b'{"a": NaN}', 0, "NaN is no value"),
        (b"{1}", 0, "must be JSON"),
        (b"123", BodyType.VT_I4, "a body of type VT_I4 must have 4 bytes, got 3"),
        (struct.pack("<d", 1e300), BodyType.VT_DATE, "must have a value"),
        (b"hello", BINARY_OBJECT, "must start with a header"),
    ],
)
def test_damaged_bodies_are_refused_in_a_sentence(body: bytes, body_type: int, sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        read_body(body, body_type)


@given(st.binary(max_size=100), st.sampled_from([0, 2, 3, 7, 8, 11, 30, 31, 65, BINARY_OBJECT, 0x2011, 0xFFFF]))
def test_any_body_gives_a_value_or_a_sentence(body: bytes, body_type: int) -> None:
    try:
        value = read_body(body, body_type)
    except RemoteProtocolError:
        return
    schema_of([value])


TEXTS = st.sampled_from(
    ["--5", "-", "-0", "٣", "9" * 19, "9" * 5000, "1e999", "nan", "0001-01-01T00:00:00", "9999-99-99T99:99:99", "1_0"]
)


@given(TEXTS | st.text(max_size=30))
def test_any_text_of_an_element_has_a_shape_and_a_value(text: str) -> None:
    """Such a text must not fail a job, because a repetition of the job would fail as well."""
    value = {"count": Untyped(text)}
    for schema in (schema_of([value]), *(StructType().add("count", each()) for each in (LongType, TimestampType))):
        json.dumps(shaped(value, schema)).encode()


@given(st.sampled_from([ORDER.encode(), SERIALIZED, b'{"a": [1, "\\ud83d\\ude00"], "b": {"c": null}}']), st.data())
def test_changed_bodies_become_columns_or_a_sentence(sample: bytes, data: st.DataObject) -> None:
    made = bytearray(sample)
    for _ in range(data.draw(st.integers(0, 4))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    schema = StructType().add("a", ArrayType(LongType())).add("Id", LongType()).add("value", StringType())
    for kind in (0, BINARY_OBJECT, BodyType.VT_LPSTR):
        pyarrow.array(_columns(bytes(made), kind, schema), pyarrow.string())


@pytest.mark.parametrize(
    "body",
    [b"<r>" + b"<a/>" * (MOST_VALUES + 1) + b"</r>", b"[" + b"0," * MOST_VALUES + b"0]"],
    ids=["xml", "json"],
)
def test_a_body_of_very_many_values_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=f"at most {MOST_VALUES:,} values"):
        read_body(body, 0)


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="must be JSON"):
        read_body(b'{"\\ud800": 1}', 0)
    assert read_body(b'["\\ud83d\\ude00"]', 0) == ["\U0001f600"]


def test_bodies_with_too_many_fields_are_left_out_of_a_schema() -> None:
    wide = {f"f{number}": 1 for number in range(MOST_FIELDS + 1)}
    assert schema_of([wide, {"a": 1}]).names == ["a"]
    half = {f"f{number}": 1 for number in range(MOST_FIELDS - 1)}
    assert schema_of([half, {"g": 1, "h": 1}, {"i": 1}]).names == [*half, "i"]
    many = [{f"f{number}": 1} for number in range(50_000)]  # each merged with all before it
    assert schema_of([{"list": many}, {"a": 1}]).names == ["a"]


def kinds(schema: StructType) -> dict[str, type]:
    return {field.name: type(field.dataType) for field in schema}


def test_the_schema_of_xml_is_that_of_its_texts() -> None:
    found = schema_of([read_body(ORDER.encode(), 0)])
    assert kinds(found) == {
        "$type": StringType,
        "@urgent": BooleanType,
        "Id": LongType,
        "Code": StringType,  # 007 is no number
        "Price": DoubleType,
        "At": TimestampType,
        "Note": StringType,
        "Lines": StructType,
    }
    assert "Lines:struct<Line:array<struct<What:string>>>" in found.simpleString()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"a": 1}, {"a": 2.5}], {"a": DoubleType}),
        ([{"a": 1}, {"a": "x"}], {"a": StringType}),
        ([{"a": 1}, {"b": True}], {"a": LongType, "b": BooleanType}),
        ([{"a": None}, {"a": 1}], {"a": LongType}),
        ([{"a": 1 << 63}], {"a": StringType}),
        ([{"a": [1]}, {"a": 2}], {"a": ArrayType}),
        ([5, 6], {"value": LongType}),
        ([b"bytes"], {"value": StringType}),
        ([], {"value": StringType}),
    ],
)
def test_a_schema_fits_all_values(values: list[Any], expected: dict[str, type]) -> None:
    assert kinds(schema_of(values)) == expected


def test_values_in_a_schema() -> None:
    values = [read_body(ORDER.encode(), 0), {"$type": "Order", "Id": "x", "Lines": {"Line": {"What": 5}}}]
    schema = schema_of(values[:1])
    first = shaped(record_of(values[0]), schema)
    assert (first["Id"], first["Price"], first["@urgent"], first["Note"]) == (7, 12.5, True, None)
    assert first["At"] == "2024-05-17T12:00:00.123456+00:00"
    second = shaped(record_of(values[1]), schema)
    assert (second["Id"], second["Lines"]) == (None, {"Line": [{"What": "5"}]})
    assert shaped(5, schema) is None
    assert shaped({"a": float("inf")}, schema_of([{"a": 0.5}])) == {"a": None}
    assert shaped({"a": True}, schema_of([{"a": 1}])) == {"a": None}


def columns_of(inputs: list[Input]) -> dict[str, Any]:
    columns = {
        "body": pyarrow.array([each.body for each in inputs], pyarrow.binary()),
        "body_type": pyarrow.array([each.body_type for each in inputs], pyarrow.int64()),
        "extension": pyarrow.array([each.extension for each in inputs], pyarrow.binary()),
    }
    return columns | {"app_tag": pyarrow.array([0] * len(inputs), pyarrow.int64())}


def test_no_body_keeps_others_from_becoming_columns() -> None:
    known, chance = samples(), random.Random(3)
    half_a_pair = Input("UTF-7", b"{}", 0, b"+AHsAIgBhACIAOgAi2AAAIgB9-")
    inputs = [half_a_pair, *(by_chance(known, chance) for _ in range(300))]
    found = columns_of(inputs)
    (part,) = decoded_columns(found, ("body_text", *DECODED))
    for columns in (part, outline_columns(found)):
        for column in columns.values():
            column.validate(full=True)
            assert len(column) == len(inputs)


def test_bodies_that_say_much_come_in_several_batches() -> None:
    large = Input("nested", b"[" * 63 + b"1," * 8000 + b"1" + b"]" * 63, 0)
    inputs = [large if number % 2 else Input("small", b"%d" % number, 0) for number in range(60)]
    parts = list(decoded_columns(columns_of(inputs), ("body_text",)))
    assert len(parts) > 1
    assert all(part["body_text"].nbytes < 2 * PART_BYTES for part in parts)
    texts = [text for part in parts for text in part["body_text"].to_pylist()]
    assert [text for text in texts if len(text) < 3] == [str(number) for number in range(0, 60, 2)]
    packets = [sent(number, body=each.body) for number, each in enumerate(inputs)]
    answer = pyarrow.RecordBatch.from_pydict(
        {
            "lookup_id": pyarrow.array(range(60), pyarrow.int64()),
            "reason": pyarrow.array([0] * 60, pyarrow.int32()),
            "packet": pyarrow.array(packets, pyarrow.binary()),
        }
    )
    batches = list(rows(answer, ("lookup_id", "label", "body_text"), "q", decoding=True))
    assert len(batches) == len(parts)
    joined = pyarrow.Table.from_batches(batches).to_pydict()
    assert joined["lookup_id"] == list(range(60))
    assert joined["label"] == [f"message {number}" for number in range(60)]
    assert joined["body_text"] == texts
