"""Messages read into Spark, compared with Spark's own readers on the same rows in the same run. `make bench-spark`.

A manager in a separate process has the messages in its store. Spark reads them from a queue, from Parquet, and from a
Python source that yields tuples, into a sink that drops them and into Parquet. Then it measures the sizes of
partitions, small batches from many queues, what decoding bodies costs, messages by remote read, and next hops.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import postroad
from benchmarks import spark_remote
from benchmarks.harness import print_table
from benchmarks.spark_lake import usage
from postroad.columns.schema import BYTES, INT, LONG, TEXT, TIME, TRUTH
from postroad.config import default_configuration
from postroad.manager import build_manager
from postroad.message import Message
from postroad.spark import session
from postroad.spark.schema import MESSAGE, spark_schema
from postroad.store import open_store
from tests.unit.bodies.test_samples import samples

MESSAGES = 1_000_000
BODY_BYTES = 1024
SEND_BATCH = 2000
MANY_QUEUES = 30
MANY_MESSAGES = 150  # of all of them together, in a batch
PARTITIONS = 4
QUEUE = r"private$\bench"
NEWER = r"private$\newer"  # its arrival numbers are above those of the other queue
NEWER_SHARE = 20  # the other queue has so many messages for one here
BODIES = r"private$\bodies"  # what .NET wrote, see tests/data/bodies
BODIES_SHARE = 10
CONFIGURATION = '[manager]\nname = "bench"\ndata = "data"\n[listen]\nhost = "127.0.0.1"\napi = 0\n' + "".join(
    f"{name} = false\n" for name in ("binary", "ping", "http", "rpc")
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--decode", action="store_true", help="only what decoding bodies costs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.local.dir": str(directory / "local"),
            "spark.log.level": "ERROR",
        }
        filled_s = asyncio.run(fill(directory / "data", arguments.messages))
        spark = session("benchmark", arguments.master, settings=settings)
        with manager(directory) as api:
            measure_decoding(spark, api, arguments.messages // BODIES_SHARE, arguments.rounds)
            if not arguments.decode:
                measure_balance(spark, api)
                measure_many(spark, api, directory, arguments.rounds)
                measure(spark, api, directory, arguments.messages, arguments.rounds, filled_s)
        if not arguments.decode:
            spark_remote.measure(spark)
        spark.stop()


# The messages


async def fill(data: Path, messages: int) -> float:
    """Puts the messages into a store. Returns how long it took."""
    running = build_manager(default_configuration("bench"), open_store(data))
    await running.start()
    for queue in (QUEUE, NEWER, BODIES):
        await running.create_queue(queue)
    began = time.perf_counter()
    chance = Random(1)  # equal bodies would take nearly no space in Parquet
    for first in range(0, messages, SEND_BATCH):
        numbers = range(first, min(first + SEND_BATCH, messages))
        await running.send(
            QUEUE,
            [
                Message(chance.randbytes(BODY_BYTES // 2).hex().encode(), label=f"order {number}", recoverable=True)
                for number in numbers
            ],
        )
    took = time.perf_counter() - began
    for first in range(0, messages // NEWER_SHARE, SEND_BATCH):
        few = min(SEND_BATCH, messages // NEWER_SHARE - first)
        await running.send(NEWER, [Message(b"x", label=f"note {first + n}", recoverable=True) for n in range(few)])
    said = [
        Message(
            b64decode(each["body_base64"]),
            label=each["name"],
            body_type=each["body_type"],
            extension=b64decode(each["extension_base64"] or ""),
            app_tag=each["app_tag"],
            recoverable=True,
        )
        for each in samples()
    ]
    for first in range(0, messages // BODIES_SHARE, SEND_BATCH):
        few = min(SEND_BATCH, messages // BODIES_SHARE - first)
        await running.send(BODIES, [said[(first + number) % len(said)] for number in range(few)])
    await running.stop()
    return took


@contextmanager
def manager(directory: Path) -> Iterator[str]:
    """Starts a manager. Returns the address of its HTTP API."""
    file = directory / "bench.toml"
    file.write_text(CONFIGURATION)
    command = [sys.executable, "-m", "postroad", "serve", "-c", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield "http://" + json.loads(process.stdout.readline())["listen"]["api"]
        finally:
            process.terminate()


# What the queue is compared with


class TupleSource(DataSource):
    """The same rows from a plain generator."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> StructType:
        return spark_schema(tuple(MESSAGE))

    def reader(self, schema: StructType) -> TupleReader:
        return TupleReader(int(self.options["rows"]))


class TupleReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._rows // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        text = "order 123456"
        plain: dict[Any, Any] = {TEXT: text, BYTES: b"", TRUTH: False, INT: 3, LONG: 7, TIME: datetime.now(UTC)}
        bodies = {"body": b"x" * BODY_BYTES, "body_text": "x" * BODY_BYTES}
        row = tuple(bodies.get(name, plain[kind]) for name, kind in MESSAGE.items())
        for _ in range(partition.value):
            yield row


# Measuring


def measure(spark: SparkSession, api: str, directory: Path, messages: int, rounds: int, filled_s: float) -> None:
    spark.dataSource.register(TupleSource)
    queue = spark.read.format("postroad").options(api=api, queue=QUEUE, partitions=str(PARTITIONS)).load()
    parquet = str(directory / "rows.parquet")
    timed: dict[str, float] = {}

    def take(what: str, work: Callable[[], None]) -> None:
        timed[what] = min(seconds(work) for _ in range(rounds))

    few = spark.read.format("postroad").options(api=api, queue=QUEUE, arrivalTo="5000").load()
    discard(few)  # the first job starts all workers
    take("a queue, to nowhere", lambda: discard(queue))
    take("a queue, to Parquet", lambda: keep(queue, parquet))
    kept = spark.read.parquet(parquet)
    assert kept.count() == messages
    assert kept.select("id").distinct().count() == messages
    take("Parquet, to nowhere", lambda: discard(kept))
    take("Parquet, to Parquet", lambda: keep(kept, str(directory / "copy.parquet")))
    narrow = spark.read.format("postroad").options(api=api, queue=QUEUE, columns="id,lookup_id,label,arrived_at").load()
    take("a queue, four columns, to nowhere", lambda: discard(narrow))
    label = spark.read.format("postroad").options(api=api, queue=QUEUE, columns="label").load()
    place = spark.read.format("postroad").options(api=api, queue=QUEUE, columns="arrival").load()
    take("a queue, `label` named, to nowhere", lambda: discard(label))
    take("a queue, `label` selected, to nowhere", lambda: discard(queue.select("label")))
    take("Parquet, `label` selected, to nowhere", lambda: discard(kept.select("label")))
    take("a queue, `arrival` named, by count", lambda: count(place, messages))
    take("a queue, nothing named, by count", lambda: count(queue, messages))
    take("Parquet, by count", lambda: count(kept, messages))
    tuples = spark.read.format("tuples").options(rows=str(messages)).load()
    take("tuples of a generator, to nowhere", lambda: discard(tuples))
    stream_s = seconds(lambda: consume(spark, api, directory))
    timed["a queue, consumed by a stream, to Parquet"] = stream_s
    own = {"nowhere": timed["Parquet, to nowhere"], "Parquet": timed["Parquet, to Parquet"]}
    own["count"] = timed["Parquet, by count"]
    rows = [
        (what, f"{messages / taken:,.0f}", f"{taken / own[what.rpartition(' ')[2]]:.2f}")
        for what, taken in timed.items()
    ]
    print_table(
        f"{messages:,} messages of {BODY_BYTES} bytes into Spark",
        ("from", "rows/s", "times Parquet's"),
        rows,
        f"best of {rounds} rounds on {os.cpu_count()} cores, the manager's process among them; "
        f"they were sent at {messages / filled_s:,.0f} a second",
    )


def measure_decoding(spark: SparkSession, api: str, messages: int, rounds: int) -> None:
    """Measures the option `decode` on bodies that .NET wrote."""
    few = "id,label,message_type,headers"
    given: dict[str, dict[str, str]] = {
        "all columns": {},
        "all columns, `decode`": {"decode": "true"},
        f"`{few}`, `decode`": {"decode": "true", "columns": few},
    }
    rows = []
    for what, options in given.items():
        source = spark.read.format("postroad").options(api=api, queue=BODIES, partitions=str(PARTITIONS))
        frame = source.options(**options).load()
        discard(frame)  # the first job starts all workers
        timed = []
        for _ in range(rounds):
            used_s = usage(os.getpid())[1]
            timed.append((seconds(partial(discard, frame)), usage(os.getpid())[1] - used_s))
        taken_s, cpu_s = min(timed)
        rows.append((what, f"{messages / taken_s:,.0f}", f"{cpu_s / messages * 1e6:,.0f}"))
    print_table(
        f"{messages:,} bodies of .NET, to nowhere",
        ("columns", "rows/s", "us of processor time each"),
        rows,
        f"best of {rounds} rounds; the manager's process counts",
    )


def measure_balance(spark: SparkSession, api: str) -> None:
    """Measures how many rows each partition has."""
    rows = []
    for queue in (QUEUE, NEWER, f"{QUEUE},{NEWER}"):
        given = {"api": api, "queue": queue, "partitions": str(PARTITIONS), "columns": "arrival"}
        frame = spark.read.format("postroad").options(**given).load()
        counts = [row[1] for row in frame.groupBy(f.spark_partition_id()).count().collect()]
        mean = sum(counts) / max(frame.rdd.getNumPartitions(), len(counts))
        sizes = " ".join(f"{count:,}" for count in sorted(counts, reverse=True))
        rows.append((queue, sizes, f"{max(counts) / mean:.2f}"))
    title = f"Rows of each partition, {PARTITIONS} asked for"
    print_table(title, ("queue", "rows", "largest to mean"), rows, "aim: at most 1.20")


def measure_many(spark: SparkSession, api: str, directory: Path, rounds: int) -> None:
    """Measures small batches of a stream from many queues, beside those of a stream from one queue."""
    rows = []
    means: list[float] = []
    with postroad.connect(api) as there:
        for queues in (1, MANY_QUEUES):
            names = [rf"private$\{queues}-{number}" for number in range(queues)]
            for name in names:
                there.create_queue(name)
            source = spark.readStream.format("postroad").options(api=api, queue=f"private$\\{queues}-*", mode="consume")
            writer = source.load().writeStream.format("noop")
            writer = writer.option("checkpointLocation", str(directory / f"many-{queues}"))
            timed = []
            for _ in range(1 + 2 * rounds):  # the first starts the workers
                for name in names:
                    there.queue(name).send([b"x"] * (MANY_MESSAGES // queues))
                query = writer.trigger(availableNow=True).start()
                query.awaitTermination()
                batches = [each for each in query.recentProgress if each["numInputRows"]]
                timed.append(sum(each["durationMs"]["triggerExecution"] for each in batches))
            means.append(min(timed[1:]))
            rows.append((f"{queues}", f"{means[-1]:,.0f}", f"{means[-1] / means[0]:.2f}"))
    print_table(
        f"A batch of {MANY_MESSAGES} messages", ("queues", "ms", "times one queue's"), rows, "aim: at most 1.50"
    )


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def count(frame: DataFrame, messages: int) -> None:
    assert frame.count() == messages


def keep(frame: DataFrame, path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    frame.write.parquet(path)


def consume(spark: SparkSession, api: str, directory: Path) -> None:
    source = spark.readStream.format("postroad").options(api=api, queue=QUEUE, mode="consume")
    source = source.options(maxMessagesPerBatch="200000", partitions=str(PARTITIONS))
    writer = source.load().writeStream.format("parquet").option("path", str(directory / "streamed.parquet"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
