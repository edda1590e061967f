"""A queue as it is now, read in parts; and the columns of its messages."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from postroad.columns.schema import MESSAGE
from postroad.errors import AccessDenied, InvalidArgument, ManagerUnavailable, QueueNotFound
from postroad.spark.data_source import MessageSource
from postroad.spark.reading import BatchReader
from tests.served import ORDERS, PATIENCE_S, Served, served
from tests.spark.driver import options


def reader(manager: Served, schema: StructType | None = None, **given: object) -> BatchReader:
    source = MessageSource(options(manager, **given))
    made = source.reader(schema or source.schema())
    assert isinstance(made, BatchReader)
    return made


def table(made: BatchReader) -> pa.Table:
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def test_every_property_of_a_message_is_a_column(alpha: Served) -> None:
    alpha.send(
        "text",
        label="first",
        priority=5,
        recoverable=True,
        app_tag=7,
        correlation_id="{01020304-0506-0708-090a-0b0c0d0e0f10}\\9",
        response_queue=r"private$\orders",
        extension_base64="AAE=",
        body_type=8,
    )
    found = table(reader(alpha, packet=True))
    (row,) = found.to_pylist()
    (told,) = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    for name in ("id", "lookup_id", "class", "class_name", "label", "body_type", "priority", "delivery", "app_tag"):
        assert row[name] == told[name]
    for name in ("correlation_id", "source_manager", "destination_queue", "admin_queue", "response_queue", "hops"):
        assert row[name] == told[name]
    for name in ("authenticated", "encrypted", "sender_id", "first_in_transaction", "transaction_id", "aborts"):
        assert row[name] == told[name]
    assert row["arrival"] == told["lookup_id"] & (1 << 56) - 1
    assert row["body_text"] == told["body"] == "text"
    assert row["body"] == "text".encode("utf-16-le")
    assert row["extension"] == b"\0\1"
    assert row["decode_error"] is None
    assert b"LIOR" in row["packet"][:8]
    assert abs((row["arrived_at"] - datetime.now(UTC)).total_seconds()) < 600
    assert set(MESSAGE) <= set(found.column_names)


def test_only_the_columns_that_are_wanted(alpha: Served) -> None:
    alpha.send("x" * 1000)
    assert table(reader(alpha, columns="label,arrival")).column_names == ["label", "arrival"]
    assert "body" not in table(reader(alpha, body=False)).column_names
    some = StructType().add("priority", "integer").add("id", "string")
    assert table(reader(alpha, some)).column_names == ["priority", "id"]


def test_a_schema_of_other_columns_is_refused(alpha: Served) -> None:
    with pytest.raises(InvalidArgument, match="schema: there is no column 'colour'"):
        reader(alpha, StructType().add("colour", "string"))
    with pytest.raises(InvalidArgument, match="schema: priority must be int, got string"):
        reader(alpha, StructType().add("priority", "string"))


def test_the_parts_are_the_whole(alpha: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.reading.LEAST_MESSAGES", 5)
    alpha.send(*(str(number) for number in range(50)))
    made = reader(alpha, partitions=7)
    assert len(made.partitions()) == 7
    assert table(made)["body_text"].to_pylist() == [str(number) for number in range(50)]


def test_parts_have_equal_numbers_of_messages(alpha: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.spark.reading.LEAST_MESSAGES", 5)
    alpha.create(r"private$\others")
    alpha.send(*(str(number) for number in range(40)))
    others = {"messages": [{"body": "other"}] * 3000}
    alpha.call("POST", "/api/v1/queues/private$/others/messages", others)  # arrival numbers are the manager's
    alpha.send(*(str(number) for number in range(40)))
    made = reader(alpha, partitions=4)
    counts = [sum(batch.num_rows for batch in made.read(part)) for part in made.partitions()]
    assert counts == [20, 20, 20, 20]


def test_several_queues_are_one_table(alpha: Served) -> None:
    alpha.create(r"private$\others")
    alpha.send("a")
    alpha.call("POST", "/api/v1/queues/private$/others/messages", {"body": "b"})
    for queue in (r"private$\o*", r"private$\others,private$\orders"):
        found = table(reader(alpha, queue=queue))
        assert found["body_text"].to_pylist() == ["a", "b"]
        assert found["queue"].to_pylist() == [r"private$\orders", r"private$\others"]
        assert len(reader(alpha, queue=queue).partitions()) == 1, "small queues share a task"
    assert "queue" not in table(reader(alpha)).column_names
    with pytest.raises(InvalidArgument, match=r"^queue: no queue matches"):
        reader(alpha, queue=r"private$\x*").partitions()


def test_a_batch_from_a_time_to_a_number(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    found = alpha.call("GET", f"{ORDERS}/messages").json["messages"]
    last = found[2]["lookup_id"] & (1 << 56) - 1
    since = found[0]["arrived_at"]
    assert table(reader(alpha, startingTimestamp=since, endingOffsets=last))["body_text"].to_pylist() == ["a", "b"]
    assert table(reader(alpha, startingTimestamp="9999-01-01T00:00:00Z")).num_rows == 0
    assert table(reader(alpha, startingOffsets=last))["body_text"].to_pylist() == ["c"]


def test_the_manager_selects(alpha: Served) -> None:
    alpha.send("a", label="x")
    alpha.send("b", label="y", priority=6)
    alpha.send("c", label="y")
    assert table(reader(alpha, label="y", priority=6))["body_text"].to_pylist() == ["b"]
    assert table(reader(alpha, None, **{"class": 0}, label="x"))["body_text"].to_pylist() == ["a"]
    arrivals = table(reader(alpha))["arrival"].to_pylist()
    assert table(reader(alpha, arrivalFrom=arrivals[1]))["body_text"].to_pylist() == ["b", "c"]
    assert table(reader(alpha, arrivalFrom=arrivals[1], arrivalTo=arrivals[2]))["body_text"].to_pylist() == ["b"]
    assert table(reader(alpha, arrivalTo=0)).num_rows == 0


def test_a_locked_message_hides_no_other(alpha: Served) -> None:
    alpha.send("a", "b", "c")
    alpha.call("POST", f"{ORDERS}/lock?timeout=0")
    assert table(reader(alpha))["body_text"].to_pylist() == ["b", "c"]


def test_batches_are_bounded_by_bytes(alpha: Served) -> None:
    for number in range(6):
        sent = alpha.call("POST", f"{ORDERS}/messages?label={number}", body=bytes(3 << 20))
        assert sent.status == 201
    made = reader(alpha)
    sizes = [(batch.num_rows, batch.nbytes) for part in made.partitions() for batch in made.read(part)]
    assert sum(rows for rows, _ in sizes) == 6
    assert max(size for _, size in sizes) < 24 << 20


def test_dead_letters_by_the_reason_they_died(alpha: Served) -> None:
    alpha.send("late", dead_letter=True, time_to_be_received=0)
    end = time.monotonic() + PATIENCE_S
    while not (found := table(reader(alpha, queue=";deadletter"))).num_rows:
        assert time.monotonic() < end, "it does not expire"
        time.sleep(0.05)
    reason = found["class"][0].as_py()
    dead = table(reader(alpha, None, queue=";deadletter", **{"class": reason}))
    assert dead["class_name"].to_pylist() == ["nack-receive-timeout"]
    assert table(reader(alpha, None, queue=";deadletter", **{"class": 0})).num_rows == 0


def test_an_empty_queue_has_no_rows(alpha: Served) -> None:
    assert table(reader(alpha)).num_rows == 0


def test_a_journal(alpha: Served) -> None:
    alpha.create(r"private$\kept", journal=True)
    alpha.call("POST", "/api/v1/queues/private$/kept/messages", {"body": "kept"})
    alpha.call("POST", "/api/v1/queues/private$/kept/receive?timeout=0")
    assert table(reader(alpha, queue=r"private$\kept;journal"))["body_text"].to_pylist() == ["kept"]


def test_a_batch_cannot_consume(alpha: Served) -> None:
    with pytest.raises(InvalidArgument, match=r"mode: .*availableNow"):
        reader(alpha, mode="consume")


def test_no_queue(alpha: Served) -> None:
    with pytest.raises(QueueNotFound, match="nowhere"):
        reader(alpha, queue=r"private$\nowhere").partitions()


def test_a_token() -> None:
    with served(token="secret") as running:
        path = "/api/v1/queues"
        running.call("POST", path, {"path": r"private$\orders"}, headers={"Authorization": "Bearer secret"})
        assert table(reader(running, token="secret")).num_rows == 0
        with pytest.raises(AccessDenied, match="token"):
            reader(running).partitions()


def test_no_manager() -> None:
    source = MessageSource({"api": "http://127.0.0.1:1", "queue": r"private$\orders", "timeout": "0"})
    with pytest.raises(ManagerUnavailable, match=r"no queue manager answers at http://127\.0\.0\.1:1"):
        source.reader(source.schema()).partitions()
