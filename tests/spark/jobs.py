"""A driver program that copies a queue to another by a stream in which a task fails. It runs as a separate process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from postroad.spark import session

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
}


class Teller(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        print("started", flush=True)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        print("batch", event.progress.batchId, event.progress.numInputRows, flush=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...  # noqa: N802


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("api")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--rpc")
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    # The workers of a cluster reach the driver at the address that it has among them.
    settings = {**SETTINGS, "spark.driver.host": "127.0.30.1", "spark.driver.bindAddress": "127.0.30.1"}
    spark = session("copies", arguments.master, settings=settings)
    spark.streams.addListener(Teller())

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        for batch in batches:
            yield batch
            mark = directory / "failed"
            if task is not None and task.partitionId() == 1 and not mark.exists():
                mark.touch()
                raise OSError("this attempt fails after it has given rows")

    way = ("rpc", arguments.rpc) if arguments.rpc else ("api", arguments.api)
    source = spark.readStream.format("postroad").option(*way).option("queue", r"private$\orders")
    source = source.option("mode", "consume").option("maxMessagesPerBatch", 1500).option("partitions", 2)
    frame = source.load().select("body", "label")
    writer = frame.mapInArrow(fail_once, frame.schema).writeStream.format("postroad").option("api", arguments.api)
    writer = writer.option("queue", r"private$\copies").option("checkpointLocation", str(directory / "checkpoint"))
    query = (writer.trigger(availableNow=True) if arguments.drain else writer).start()
    query.awaitTermination()
    sys.exit(0)


if __name__ == "__main__":
    main()
