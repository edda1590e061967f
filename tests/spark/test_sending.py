"""Rows as messages: which columns fit, and that a row is sent once however often it comes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from postroad.columns.sending import COLUMNS as READ
from postroad.errors import InvalidArgument, InvalidMessage
from postroad.spark import sending
from postroad.spark.options import write_options
from postroad.spark.sending import check_schema, requests
from postroad.spark.source import MessageSource
from postroad.spark.writing import Sent, _send
from tests.served import ORDERS, Served
from tests.spark.driver import options


def rows(**columns: object) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(columns)])


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType().add("label", "string"), "body: the column is missing"),
        (StructType().add("body", "integer"), "body: the column must be binary or a string, got int"),
        (
            StructType().add("body", "string").add("priority", "string"),
            "priority: the column must be a whole number, got string",
        ),
        (
            StructType().add("body", "string").add("lable", "string"),
            "lable: a message has no such column; did you mean",
        ),
        (StructType().add("body", "string").add("lookup_id", "long"), "lookup_id: a sender cannot set it"),
        (StructType().add("body", "string").add("packet", "binary"), "packet: a sender cannot set it"),
        (
            StructType().add("body", "string").add("ack", ArrayType(IntegerType())),
            "ack: the column must be a string, an array of strings or a whole number, got array<int>",
        ),
        (
            StructType().add("body", "string").add("journal", "integer"),
            "journal: the column must be a boolean, got int",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_anything_is_sent(schema: StructType, sentence: str) -> None:
    source = MessageSource(options("http://127.0.0.1:1"))
    for make in (source.writer, source.streamWriter):
        with pytest.raises(InvalidArgument) as caught:
            make(schema, False)
        assert str(caught.value).startswith(sentence)


def test_the_columns_are_those_that_a_manager_reads() -> None:
    assert set(sending.COLUMNS) == set(READ)


def test_a_schema_that_fits() -> None:
    schema = StructType().add("body", "binary").add("priority", "byte").add("ack", ArrayType(StringType()))
    check_schema(schema.add("journal", "boolean").add("class", "integer").add("extension", "binary"))


def test_a_queue_is_not_overwritten() -> None:
    with pytest.raises(InvalidArgument, match="append"):
        MessageSource(options("http://127.0.0.1:1")).writer(StructType().add("body", "string"), True)


def test_every_property_is_sent(alpha: Served) -> None:
    alpha.create(r"private$\acks")
    batch = rows(
        body=[b"\xff\xfe\xfd", None],
        label=["first", None],
        priority=[7, None],
        recoverable=[True, None],
        app_tag=[9, None],
        extension=[b"e", None],
        ack=[["reach-queue"], None],
        admin_queue=[r"private$\acks", None],
    )
    assert _send(write_options(options(alpha)), "w", 0, 0, batch) == Sent("w", 0, 2, 0)
    first, second = alpha.call("GET", f"{ORDERS}/messages").json["messages"][:2]
    assert (first["body_base64"], first["label"], first["priority"]) == ("//79", "first", 7)
    assert first["delivery"] == "recoverable"
    assert first["app_tag"] == 9
    assert first["admin_queue"]
    assert (second["body"], second["label"], second["priority"], second["delivery"]) == ("", "", 3, "express")


def test_a_row_that_comes_again_is_dropped(alpha: Served) -> None:
    made = write_options(options(alpha))
    assert _send(made, "w", 4, 0, rows(body=["a", "b"])) == Sent("w", 4, 2, 0)
    assert _send(made, "w", 4, 0, rows(body=["a", "b", "c"])) == Sent("w", 4, 1, 2)
    assert _send(made, "w", 4, 1, rows(body=["d"])) == Sent("w", 4, 1, 0)
    writer = MessageSource(options(alpha)).streamWriter(StructType().add("body", "string"), False)
    writer.commit([None, Sent("w", 4, 1, 2)], 4)
    writer.commit([None, Sent("w", 4, 1, 2)], 4)
    assert _send(made, "w", 4, 9, rows(body=["z"])) == Sent("w", 4, 0, 1)
    assert _send(made, "w", 5, 0, rows(body=["e"])) == Sent("w", 5, 1, 0)
    assert alpha.bodies() == ["a", "b", "c", "d", "e"]


def test_requests_are_bounded_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MOST_ROWS", 3)
    monkeypatch.setattr(sending, "MOST_BYTES", 3000)
    sizes = [each.rows for each in requests(rows(body=["x"] * 7))]
    assert sizes == [3, 3, 1]
    assert [each.rows for each in requests(rows(body=["x" * 1500, "x" * 1500, "x", "y" * 9000, "z"]))] == [1, 2, 1, 1]
    assert list(requests(rows(body=pa.array([], pa.string())))) == []


def test_a_transactional_queue_takes_rows_too(alpha: Served) -> None:
    alpha.create(r"private$\exact", transactional=True)
    made = write_options(options(alpha, queue=r"private$\exact"))
    assert _send(made, "w", 0, 0, rows(body=["a", "b"])) == Sent("w", 0, 2, 0)
    found = alpha.call("GET", "/api/v1/queues/private$/exact/messages").json["messages"]
    assert [each["delivery"] for each in found] == ["transactional"] * 2


def test_a_value_that_no_message_has_is_told_by_its_column(alpha: Served) -> None:
    with pytest.raises(InvalidMessage, match=r"column priority, row 1: must be a whole number from 0 to 7, got 9"):
        _send(write_options(options(alpha)), "w", 0, 0, rows(body=["a", "b"], priority=[1, 9]))
    assert alpha.bodies() == []
