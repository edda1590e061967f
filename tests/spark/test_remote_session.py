"""Queues of any MSMQ server in a real Spark session: a batch that looks, a stream that consumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.remote.station import Station, station
from tests.spark.test_remote_readers import options
from tests.spark.test_session import sentence

NUMBERS = [str(number) for number in range(2500)]


@pytest.fixture
def server() -> Iterator[Station]:
    with station(host="127.0.80.4") as running:
        yield running


def stream(spark: SparkSession, server: Station, **given: object) -> DataFrame:
    return spark.readStream.format("postroad").options(**options(server, **given)).load()


def drain(frame: DataFrame, directory: Path) -> None:
    writer = frame.select("label", "id").writeStream.format("parquet").option("path", str(directory / "rows"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def kept(spark: SparkSession, directory: Path) -> list[str]:
    return sorted((row.label for row in spark.read.parquet(str(directory / "rows")).collect()), key=int)


def test_a_batch_looks_at_every_message_once(spark: SparkSession, server: Station) -> None:
    server.send(*NUMBERS[:1200])
    server.send(*NUMBERS[1200:], priority=6)
    frame = spark.read.format("postroad").options(**options(server, partitions=3)).load()
    assert frame.rdd.getNumPartitions() > 1
    assert sorted((row.label for row in frame.select("label").collect()), key=int) == NUMBERS
    urgent = frame.where((f.col("priority") == 6) & f.col("label").endswith("7"))
    assert urgent.agg(f.countDistinct("id")).first() == (130,)
    assert server.count() == len(NUMBERS)


def test_a_stream_consumes_every_message_once(spark: SparkSession, server: Station, tmp_path: Path) -> None:
    server.send(*NUMBERS[:1500])
    drain(stream(spark, server, mode="consume", maxMessagesPerBatch=1000), tmp_path)
    assert kept(spark, tmp_path) == NUMBERS[:1500]
    assert server.count() == 0
    server.send(*NUMBERS[1500:], priority=7)
    drain(stream(spark, server, mode="consume"), tmp_path)
    assert kept(spark, tmp_path) == NUMBERS
    assert server.count() == 0


def test_a_failed_batch_runs_again_before_anything_is_removed(
    spark: SparkSession, server: Station, tmp_path: Path
) -> None:
    server.send(*NUMBERS[:10])
    broken = stream(spark, server, mode="consume").where(f.raise_error(f.lit("the sink is full")).isNull())
    with pytest.raises(PySparkException, match="the sink is full"):
        drain(broken, tmp_path)
    assert server.count() == 10
    drain(stream(spark, server, mode="consume"), tmp_path)
    assert kept(spark, tmp_path) == NUMBERS[:10]
    assert server.count() == 0


def test_faults_are_one_sentence(spark: SparkSession, server: Station, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        drain(stream(spark, server), tmp_path)
    assert "mode: must be consume for a stream from `rpc`" in sentence(caught)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("postroad").options(**options(server, queue=r"private$\nowhere")).load().count()
    assert "there is no such queue on the server" in sentence(caught)
