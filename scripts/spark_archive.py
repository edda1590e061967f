"""Writes the archive of classes with which Spark starts fast, if there is none yet.

Without this script, the first session writes it when it ends, and sessions that start before that have none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from postroad.spark import session

PATIENCE_S = 300


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.local.dir": scratch}
        spark = session("archive", "local[2]", settings=settings)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        if "SharedArchiveFile" not in (spark.conf.get("spark.driver.extraJavaOptions") or ""):
            _use(Path(scratch))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(PATIENCE_S)


def _use(scratch: Path) -> None:
    """Uses a little of everything that a session can do: only classes that were loaded get into the archive."""
    spark = session("archive")
    rows = spark.range(100).selectExpr("id", "id % 7 as rest", "cast(id as string) as text")
    rows.write.partitionBy("rest").parquet(str(scratch / "rows"))
    kept = spark.read.parquet(str(scratch / "rows"))
    kept.join(rows.select("id"), "id").groupBy("text").agg({"id": "max"}).collect()
    kept.createOrReplaceTempView("kept")
    spark.sql("select *, row_number() over (partition by rest order by id) as n from kept").collect()
    kept.mapInArrow(_same, kept.schema).count()
    stream = spark.readStream.schema(kept.schema).parquet(str(scratch / "rows"))
    writer = stream.writeStream.option("checkpointLocation", str(scratch / "checkpoint"))
    writer.trigger(availableNow=True).format("parquet").start(str(scratch / "streamed")).awaitTermination()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
