"""Streams of users into a Delta table: each batch once, whatever was written before a crash."""

from __future__ import annotations

import stat
from pathlib import Path

import deltalake
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import postroad.spark
from postroad.errors import InvalidArgument, PipelineError
from tests.served import ORDERS, Served
from tests.spark.driver import options


def drain(frame: DataFrame, table: Path, checkpoint: Path) -> None:
    writer = frame.writeStream.foreachBatch(postroad.spark.lake_sink(table))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def rows(table: Path, column: str) -> list[object]:
    return sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table().column(column).to_pylist())


def test_a_stream_that_consumes_and_a_crash_before_its_commit(
    spark: SparkSession, alpha: Served, tmp_path: Path
) -> None:
    numbers = [str(number) for number in range(30)]
    alpha.send(*numbers, recoverable=True)
    table, checkpoint = tmp_path / "orders", tmp_path / "checkpoint"
    given = options(alpha, mode="consume", maxMessagesPerBatch=10)
    frame = spark.readStream.format("postroad").options(**given).load()
    drain(frame, table, checkpoint)
    assert rows(table, "body_text") == sorted(numbers)
    assert alpha.call("GET", ORDERS).json["messages"] == 0
    assert stat.S_IMODE(table.stat().st_mode) == 0o700
    for file in (checkpoint / "commits").glob("*2*"):  # the driver was killed before Spark recorded the last batch
        file.unlink()
    alpha.send("30", recoverable=True)
    drain(frame, table, checkpoint)
    assert rows(table, "body_text") == sorted([*numbers, "30"]), "the batch ran again, and nothing is there twice"
    alpha.send("31", recoverable=True)
    drain(frame.drop("label").selectExpr("*", "'x' AS kind"), table, tmp_path / "other")
    assert rows(table, "body_text") == sorted([*numbers, "30", "31"]), "another stream begins with its own batch 0"
    by_name = spark.read.format("delta").load(str(table))
    assert by_name.where("kind = 'x' AND label IS NULL").count() == 1


def test_two_streams_and_a_repeat(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "by-day"
    one, other = (postroad.spark.lake_sink(table, name) for name in ("one", "other"))
    frame = spark.createDataFrame([("a", "2026-05-01"), ("b", None)], "text string, day string")
    for _ in range(2):
        one(frame, 0)
        other(frame, 0)
    one(frame, 1)
    one(frame, 0)
    assert rows(table, "text") == ["a"] * 3 + ["b"] * 3
    days = deltalake.DeltaTable(str(table)).to_pyarrow_table().column("day").to_pylist()
    assert sorted(map(str, days)) == ["2026-05-01"] * 3 + ["None"] * 3
    assert deltalake.DeltaTable(str(table)).metadata().partition_columns == ["day"]


def test_a_table_that_the_sink_cannot_keep_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "others"
    frame = spark.createDataFrame([("a", 7)], "text string, day int")
    postroad.spark.lake_sink(table, "s")(frame, 0)
    assert rows(table, "day") == [7], "a day that is no day divides nothing, and is kept"
    with pytest.raises(PipelineError, match="the column day must have the type int, got string"):
        postroad.spark.lake_sink(table, "s")(frame.selectExpr("text", "'x' AS day"), 1)
    deltalake.DeltaTable(str(table)).alter.add_constraint({"small": "day < 9"})
    with pytest.raises(PipelineError, match="must be a table without constraints and features"):
        postroad.spark.lake_sink(table, "s")(frame, 1)
    assert rows(table, "day") == [7]
    with pytest.raises(PipelineError, match=r"the column v must have a type .* got array<variant>; cast it"):
        postroad.spark.lake_sink(tmp_path / "new", "s")(spark.sql("SELECT array(parse_json('1')) AS v"), 0)
    with pytest.raises(InvalidArgument, match="path: must be on this machine"):
        postroad.spark.lake_sink("s3://bucket/table")


def test_delta_by_name_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    postroad.spark.lake_sink(tmp_path / "table", "s")(spark.range(1), 0)
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException, match=r"foreachBatch\(postroad.spark.lake_sink\(path\)\)"):
            spark.range(1).write.format("delta").mode(mode).save(str(tmp_path / "table"))
