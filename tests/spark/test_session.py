"""The sources in a real Spark session: batches, streams, sinks, retries, and what people see of an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.served import ORDERS, Served
from tests.spark.driver import options
from tests.spark.test_packet_files import packet

COPIES = "/api/v1/queues/private$/copies"
NUMBERS = [str(number) for number in range(2500)]


def messages(spark: SparkSession, manager: Served, **given: object) -> DataFrame:
    return spark.read.format("postroad").options(**options(manager, **given)).load()


def stream(spark: SparkSession, manager: Served, **given: object) -> DataFrame:
    return spark.readStream.format("postroad").options(**options(manager, **given)).load()


def drain(frame: DataFrame, manager: Served, checkpoint: str) -> None:
    """Copies everything that is there to the queue of copies."""
    writer = frame.writeStream.format("postroad").options(**options(manager, queue=r"private$\copies"))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def copies(manager: Served) -> list[str]:
    found = manager.call("GET", f"{COPIES}/messages?limit=10000").json["messages"]
    return sorted((each["body"] for each in found), key=int)


def sentence(fault: pytest.ExceptionInfo[PySparkException]) -> str:
    """Our class and sentence in Spark's error, which must fit a screen and have no traceback of ours."""
    text = str(fault.value)
    found = re.search(r"postroad\.errors\.\w+: (.+)", text)
    assert found is not None
    assert len(text.splitlines()) < 30, text
    assert "tracebacks.py" not in text
    return found[0]


def test_a_queue_as_a_frame(spark: SparkSession, alpha: Served, tmp_path: Path) -> None:
    alpha.send(*NUMBERS[:1200], label="even")
    alpha.send(*NUMBERS[1200:], label="odd", priority=6)
    frame = messages(spark, alpha, partitions=2)
    frame.write.parquet(str(tmp_path / "messages"))
    kept = spark.read.parquet(str(tmp_path / "messages"))
    assert sorted((row.body_text for row in kept.select("body_text").collect()), key=int) == NUMBERS
    assert kept.schema == frame.schema
    odd = frame.where((f.col("label") == "odd") & (f.col("priority") == 6) & f.col("body_text").endswith("7"))
    assert odd.count() == 130
    assert odd.agg(f.countDistinct("id")).first() == (130,)


def test_the_conditions_of_one_query_are_not_those_of_another(spark: SparkSession, alpha: Served) -> None:
    alpha.send("a", "b", "c", label="x")
    alpha.send("d", label="y")
    frame = messages(spark, alpha)
    of_y = frame.where("label = 'y'")
    assert [of_y.count(), frame.count(), of_y.union(frame).count()] == [1, 4, 5]
    assert messages(spark, alpha, label="y").select("body_text").collect() == [("d",)]


def test_packet_files_as_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.bin").write_bytes(packet(name) * 3 + b"\0" * 9)
    frame = spark.read.format("postroad_packets").load(str(tmp_path))
    found = {(row.kind, row.body_text): row["count"] for row in frame.groupBy("kind", "body_text").count().collect()}
    assert (found["UserMessage", "a"], found["UserMessage", "b"]) == (3, 3)
    assert frame.where("error is not null").count() == frame.where("kind is null").count() > 0


def test_a_job_with_a_name_sends_its_rows_once(spark: SparkSession, alpha: Served) -> None:
    alpha.create(r"private$\copies")
    frame = spark.range(0, 40, 1, 2).selectExpr("cast(id as string) body", "'x' label", "cast(id % 8 as int) priority")
    for _ in range(2):
        given = options(alpha, queue=r"private$\copies", name="nightly")
        frame.write.format("postroad").options(**given).mode("append").save()
    assert copies(alpha) == [str(number) for number in range(40)]


def test_a_stream_from_queue_to_queue_with_a_task_that_fails(
    spark: SparkSession, alpha: Served, checkpoint: str, tmp_path: Path
) -> None:
    alpha.create(r"private$\copies")
    alpha.send(*NUMBERS, recoverable=True)
    failed = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        for batch in batches:
            yield batch
            if task is not None and task.attemptNumber() == 0 and task.partitionId() == 1:
                failed.touch()
                raise OSError("this attempt fails after it has given rows")

    frame = stream(spark, alpha, mode="consume", maxMessagesPerBatch=2100, partitions=3).select("body")
    drain(frame.mapInArrow(fail_once, frame.schema), alpha, checkpoint)
    assert failed.exists()
    assert copies(alpha) == NUMBERS
    assert alpha.call("GET", ORDERS).json["messages"] == 0, "the tail is received too"
    assert alpha.call("GET", f"{ORDERS}/holds").json["holds"] == []
    alpha.send("2500", recoverable=True)
    drain(stream(spark, alpha, mode="consume").select("body"), alpha, checkpoint)
    assert copies(alpha) == [*NUMBERS, "2500"]


def test_a_stream_that_peeks_keeps_the_messages(spark: SparkSession, alpha: Served, checkpoint: str) -> None:
    alpha.create(r"private$\copies")
    alpha.send("1", "2")
    for number in ("3", "4"):
        drain(stream(spark, alpha).selectExpr("body", "label"), alpha, checkpoint)
        alpha.send(number)
    assert copies(alpha) == ["1", "2", "3"]
    assert alpha.bodies() == ["1", "2", "3", "4"]


def test_faults_are_one_sentence(spark: SparkSession, alpha: Served, checkpoint: str) -> None:
    with pytest.raises(PySparkException) as caught:
        messages(spark, alpha, mode="eat")
    assert sentence(caught) == "postroad.errors.InvalidArgument: mode: must be peek or consume, got 'eat'"
    with pytest.raises(PySparkException) as caught:
        messages(spark, alpha, queue=r"private$\nowhere").count()
    assert sentence(caught).startswith("postroad.errors.QueueNotFound: ")
    assert "nowhere" in sentence(caught)
    down = spark.readStream.format("postroad").options(**options("http://127.0.0.1:1", timeout="0.2")).load()
    query = down.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination()
    assert sentence(caught).startswith("postroad.errors.ManagerUnavailable: no queue manager answers at")
    with pytest.raises(PySparkException) as caught:
        spark.range(3).write.format("postroad").options(**options(alpha)).mode("append").save()
    assert sentence(caught).startswith("postroad.errors.InvalidArgument: id: a sender cannot set it")
    assert alpha.bodies() == []
