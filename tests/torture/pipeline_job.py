"""A driver program for tests/torture/pipeline.py: one job on Spark, which may be killed at any moment.

`python -m tests.torture.pipeline_job MASTER API DIRECTORY JOB TO [...]` copies queues, or writes numbered rows, to the
queue TO. A refusal is printed as one line, with the exit code 3.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from postroad.spark import session
from tests.spark.cluster import HOST
from tests.spark.jobs import SETTINGS

REFUSED = 3


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("master", "api", "directory", "job", "to"):
        parser.add_argument(name)
    parser.add_argument("--queue", default="")
    parser.add_argument("--rpc")
    parser.add_argument("--each", type=int, default=1000, help="messages of a micro-batch, at most")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=4)
    given = parser.parse_args()
    settings = {**SETTINGS, "spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
    spark = session(f"torture {given.job}", given.master, settings=settings)
    print("started", flush=True)
    try:
        {"batch": batch, "peek": stream, "consume": stream, "remote": stream, "write": write}[given.job](spark, given)
    except PySparkException as fault:
        if "postroad.errors." not in str(fault):
            raise  # something else went wrong
        print("refused:", str(fault).splitlines()[0], flush=True)
        return REFUSED
    return 0


def batch(spark: SparkSession, given: argparse.Namespace) -> None:
    source = spark.read.format("postroad").option("api", given.api).option("queue", given.queue)
    copies = source.option("partitions", given.partitions).load().select("label", "body")
    save(copies, given)


def write(spark: SparkSession, given: argparse.Namespace) -> None:
    """The rows that `pipeline.body_of` makes too."""
    numbers = spark.range(0, given.rows, 1, given.partitions)
    save(
        numbers.selectExpr("cast(id AS string) AS label", "concat('body ', id, ' ', repeat('x', id % 50)) AS body"),
        given,
    )


def save(frame: DataFrame, given: argparse.Namespace) -> None:
    writer = frame.write.format("postroad").option("api", given.api).option("queue", given.to)
    writer.option("name", f"torture {given.to}").mode("append").save()


def stream(spark: SparkSession, given: argparse.Namespace) -> None:
    source = spark.readStream.format("postroad").option("queue", given.queue)
    source = source.option("rpc", given.rpc) if given.rpc else source.option("api", given.api)
    source = source.option("mode", "peek" if given.job == "peek" else "consume")
    source = source.option("maxMessagesPerBatch", given.each).option("partitions", given.partitions)
    writer = source.load().select("label", "body").writeStream.format("postroad").option("api", given.api)
    writer = writer.option("queue", given.to).option("checkpointLocation", str(Path(given.directory) / given.job))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
