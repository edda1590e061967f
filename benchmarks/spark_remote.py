"""Messages read into Spark by MS-MQRR, and by MS-MQQP, compared with one plain reader of the same server. Part of `make
bench-spark`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import postroad
from benchmarks.harness import print_table
from benchmarks.remote_read import HOST, QUEUE, serving
from postroad.spark import session

MESSAGES = 20_000
PARTITIONS = 4


def measure(spark: SparkSession, messages: int = MESSAGES) -> None:
    with serving("recoverable", messages) as (_, port):
        given = {"rpc": f"{HOST}:{port}", "queue": QUEUE, "partitions": str(PARTITIONS)}
        one = spark.read.format("postroad").options(**{**given, "partitions": "1"}).load()
        four = spark.read.format("postroad").options(**given).load()
        assert four.select("id").distinct().count() == messages  # the first job starts all workers
        times = {
            "postroad.remote, looking at each": timed(lambda: look(port, messages)),
            "Spark, one partition, to nowhere": timed(lambda: one.write.format("noop").mode("overwrite").save()),
            f"Spark, {PARTITIONS} partitions, to nowhere": timed(
                lambda: four.write.format("noop").mode("overwrite").save()
            ),
            "Spark, consumed by a stream, to Parquet": timed(lambda: consume(spark, given, messages)),
        }
    with serving("recoverable", messages) as (_, port):
        old = {"rpc": f"{HOST}:{port}", "queue": QUEUE, "partitions": str(PARTITIONS), "protocol": "mqqp"}
        times["the same, by MS-MQQP"] = timed(lambda: consume(spark, old, messages))
    print_table(
        f"{messages:,} messages of 1 KiB into Spark by remote read",
        ("how", "rows/s"),
        [(how, f"{messages / taken:,.0f}") for how, taken in times.items()],
        "a call for each message, and four for one that is consumed: found, read, received, acknowledged",
    )


def look(port: int, messages: int) -> None:
    with postroad.remote(HOST, port=port) as server:
        assert sum(1 for _ in server.queue(QUEUE).messages()) == messages


def consume(spark: SparkSession, given: dict[str, str], messages: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "rows")
        source = spark.readStream.format("postroad").options(**given, mode="consume").load()
        writer = source.writeStream.format("parquet").option("path", path)
        writer = writer.option("checkpointLocation", str(Path(scratch) / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert spark.read.parquet(path).select("id").distinct().count() == messages


def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as local:
        settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.local.dir": local}
        spark = session("benchmark", settings=settings)
        measure(spark)
        spark.stop()
