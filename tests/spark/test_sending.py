"""Rows as messages: which columns fit, and that a row is sent once, however often it comes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from postroad.columns.sending import COLUMNS as READ
from postroad.errors import IllegalName, InvalidArgument, InvalidMessage, PostroadError, TransactionSequence
from postroad.spark import writing
from postroad.spark.data_source import MessageSource
from postroad.spark.manager_api import ManagerApi
from postroad.spark.options import WriteOptions, write_options
from postroad.spark.writing import Sent, Task, check_schema, requests
from tests.served import ORDERS, Served
from tests.spark.driver import options


def rows(**columns: object) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(columns)])


def send(made: WriteOptions, epoch: int, partition: int, batches: Iterator[pa.RecordBatch], run: str = "first") -> Sent:
    return Task(made, "w", run, epoch, partition).send(batches)


def finish(manager: Served, epoch: int, run: str = "first") -> None:
    """What the driver does after all tasks."""
    writer = MessageSource(options(manager)).streamWriter(StructType().add("body", "string"), False)
    writer.commit([None, Sent("w", epoch, 0, 0, run)], epoch)


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
    assert set(writing.COLUMNS) == {*READ, "headers", "queue"}


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
    assert send(write_options(options(alpha)), 0, 0, batch) == Sent("w", 0, 2, 0)
    first, second = alpha.call("GET", f"{ORDERS}/messages").json["messages"][:2]
    assert (first["body_base64"], first["label"], first["priority"]) == ("//79", "first", 7)
    assert first["delivery"] == "recoverable"
    assert first["app_tag"] == 9
    assert first["admin_queue"]
    assert (second["body"], second["label"], second["priority"], second["delivery"]) == ("", "", 3, "express")


def test_a_repeated_row_is_dropped(alpha: Served) -> None:
    made = write_options(options(alpha))
    assert send(made, 4, 0, rows(body=["a", "b"])) == Sent("w", 4, 2, 0)
    assert send(made, 4, 0, rows(body=["a", "b", "c"])) == Sent("w", 4, 1, 2)
    assert send(made, 4, 1, rows(body=["d"])) == Sent("w", 4, 1, 0)
    finish(alpha, 4)
    finish(alpha, 4)
    assert send(made, 4, 1, rows(body=["d"]), "second") == Sent("w", 4, 0, 1)
    assert send(made, 5, 0, rows(body=["e"])) == Sent("w", 5, 1, 0)
    assert alpha.bodies() == ["a", "b", "c", "d", "e"]


# Another run under the same name


def test_a_run_continues_where_the_last_one_stopped(alpha: Served) -> None:
    made = write_options(options(alpha))
    send(made, 0, 0, rows(body=["a", "b"]))
    both = iter([*rows(body=["a"]), *rows(body=["b", "c"])])
    assert send(made, 0, 0, both, "second") == Sent("w", 0, 1, 2)
    assert send(made, 0, 1, rows(body=["d"]), "second") == Sent("w", 0, 1, 0)
    finish(alpha, 0, "second")
    assert alpha.bodies() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("other", [["a", "x", "c"], ["b", "a"], ["a"], []])
def test_other_rows_under_the_same_name_are_refused(alpha: Served, other: list[str]) -> None:
    made = write_options(options(alpha))
    send(made, 0, 0, rows(body=["a", "b"]))
    batch = rows(body=pa.array(other, pa.string()))
    with pytest.raises(
        TransactionSequence, match=r"^name: partition 0 of w, epoch 0, was sent before with 2 rows that"
    ):
        send(made, 0, 0, batch, "second")
    assert send(made, 0, 0, rows(body=["a", "b", "c"]), "third") == Sent("w", 0, 1, 2), "as it was, it completes"
    finish(alpha, 0, "third")
    assert alpha.bodies() == ["a", "b", "c"]


def test_a_partition_that_was_not_begun_waits_for_the_others(alpha: Served) -> None:
    send(write_options(options(alpha)), 0, 1, rows(body=["b"]))
    hasty = write_options(options(alpha, timeout="0.1"))
    with pytest.raises(TransactionSequence, match=r"^name: partition 1 of w was sent before .* another name"):
        send(hasty, 0, 0, rows(body=["x"]), "second")
    assert alpha.bodies() == ["b"], "of a run that has not proved itself, nothing new is sent"
    send(hasty, 0, 1, rows(body=["b"]), "third")
    assert send(hasty, 0, 0, rows(body=["a"]), "third") == Sent("w", 0, 1, 0)


def test_a_job_without_a_partition_of_the_one_before_is_not_completed(alpha: Served) -> None:
    made = write_options(options(alpha))
    send(made, 0, 0, rows(body=["a"]))
    send(made, 0, 5, rows(body=["f"]))
    send(made, 0, 0, rows(body=["a"]), "second")
    with pytest.raises(
        TransactionSequence, match=r"^name: partition 5 of w, epoch 0, was sent before with 1 rows, and"
    ):
        finish(alpha, 0, "second")


def test_other_rows_under_a_finished_name_are_refused(alpha: Served) -> None:
    made = write_options(options(alpha))
    send(made, 0, 0, rows(body=["a"]))
    finish(alpha, 0)
    for partition, batch in ((0, rows(body=["x"])), (0, rows(body=["a", "b"])), (1, rows(body=["b"]))):
        with pytest.raises(TransactionSequence, match=r"^name: .*give it another name"):
            send(made, 0, partition, batch, "second")
    assert send(made, 0, 0, rows(body=["a"]), "second") == Sent("w", 0, 0, 1)
    assert alpha.bodies() == ["a"]


def test_a_finished_name_without_rows_takes_none_later(alpha: Served) -> None:
    finish(alpha, 0)
    with pytest.raises(TransactionSequence, match="is complete with 0 rows"):
        send(write_options(options(alpha)), 0, 0, rows(body=["a"]), "second")


def test_an_old_run_that_still_sends_is_refused(alpha: Served) -> None:
    made = write_options(options(alpha))
    send(made, 0, 0, rows(body=["a"]))
    send(made, 0, 0, rows(body=["a"]), "second")
    with ManagerApi(made.place) as api, pytest.raises(TransactionSequence, match="by another run"):
        api.submit("w", 0, 0, 1, next(requests(*rows(body=["b"]))).body, run="first", digest="0")


def test_requests_are_bounded_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_ROWS", 3)
    monkeypatch.setattr(writing, "MOST_BYTES", 3000)
    sizes = [each.batch.num_rows for each in requests(*rows(body=["x"] * 7))]
    assert sizes == [3, 3, 1]
    assert [each.batch.num_rows for each in requests(*rows(body=["x" * 1500, "x" * 1500, "x", "y" * 9000, "z"]))] == [
        1,
        2,
        1,
        1,
    ]
    assert list(requests(*rows(body=pa.array([], pa.string())))) == []


def test_each_row_goes_to_its_queue_once(alpha: Served) -> None:
    alpha.create(r"private$\others")
    made = write_options({name: text for name, text in options(alpha).items() if name != "queue"}, has_queues=True)
    queues = [r"private$\orders", r"private$\others", r"private$\orders"]
    assert send(made, 0, 0, rows(body=["a", "b", "c"], queue=queues)) == Sent("w", 0, 3, 0)
    both = iter([*rows(body=["a"], queue=queues[:1]), *rows(body=["b", "c", "d"], queue=[*queues[1:], queues[1]])])
    again = send(made, 0, 0, both, "second")
    assert (again, again.queues) == (Sent("w", 0, 1, 3), frozenset(queues))
    assert alpha.bodies() == ["a", "c"]
    assert alpha.bodies("/api/v1/queues/private$/others") == ["b", "d"]
    with pytest.raises(TransactionSequence, match=r"^name: partition 0 of w, epoch 0, was sent before with 2 rows"):
        send(made, 0, 0, rows(body=["a", "x"], queue=[queues[0], queues[0]]), "third")
    with pytest.raises(InvalidArgument, match="queue: the column must name a queue in every row, got null"):
        send(made, 1, 0, rows(body=["a"], queue=pa.array([None], pa.string())))
    with pytest.raises(PostroadError, match="nowhere"):
        send(made, 2, 0, rows(body=["a"], queue=[r"private$\nowhere"]))
    with pytest.raises(IllegalName):
        send(made, 3, 0, rows(body=["a"], queue=["or ders"]))


def test_headers_are_what_readers_of_bodies_see(alpha: Served) -> None:
    kind = pa.map_(pa.string(), pa.string())
    headers = pa.array([[("NServiceBus.MessageIntent", "Send"), ("é<", "&")], None], kind)
    send(write_options(options(alpha)), 0, 0, rows(body=["a", "b"], headers=headers))
    first, second = alpha.call("GET", f"{ORDERS}/messages?decode=true").json["messages"]
    assert first["headers"] == {"NServiceBus.MessageIntent": "Send", "é<": "&"}
    assert not second["headers"]
    for bad in ([("a", None)], [("a", "\0")], [("", "a")]):
        with pytest.raises(InvalidArgument, match=r"^headers: "):
            send(write_options(options(alpha)), 1, 0, rows(body=["a"], headers=pa.array([bad], kind)))


def test_a_transactional_queue_takes_rows_too(alpha: Served) -> None:
    alpha.create(r"private$\exact", transactional=True)
    made = write_options(options(alpha, queue=r"private$\exact"))
    assert send(made, 0, 0, rows(body=["a", "b"])) == Sent("w", 0, 2, 0)
    found = alpha.call("GET", "/api/v1/queues/private$/exact/messages").json["messages"]
    assert [each["delivery"] for each in found] == ["transactional"] * 2


def test_an_invalid_value_is_reported_with_its_column(alpha: Served) -> None:
    with pytest.raises(InvalidMessage, match=r"column priority, row 1: must be a whole number from 0 to 7, got 9"):
        send(write_options(options(alpha)), 0, 0, rows(body=["a", "b"], priority=[1, 9]))
    assert alpha.bodies() == []
