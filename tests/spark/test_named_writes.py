"""Named writes by Spark itself: repeating a job sends the rest, and another job under the same name sends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from postroad.spark import dropped_rows
from tests.served import ORDERS, Served
from tests.spark.driver import options

ROWS = 6000


def job(spark: SparkSession, partitions: int, *, text: str = "id", broken: Path | None = None) -> DataFrame:
    """Numbered rows. While the file exists, the third partition fails in the middle."""
    frame = spark.range(0, ROWS, 1, partitions).selectExpr(f"CAST({text} AS STRING) AS body", "true AS recoverable")
    if broken is None:
        return frame

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 700)
            if broken.exists() and batch.column(0)[0].as_py() == str(ROWS // partitions * 2):
                raise OSError("this task is broken")
            yield batch.slice(700)

    return frame.mapInArrow(fail, frame.schema)


def write(frame: DataFrame, manager: Served, name: str | None = "daily") -> None:
    given = options(manager, timeout="1") | ({} if name is None else {"name": name})
    frame.write.format("postroad").options(**given).mode("append").save()


def numbers(manager: Served) -> list[int]:
    found = manager.call("GET", f"{ORDERS}/messages?from=0&limit=100000").json["messages"]
    return sorted(int(each["body"]) for each in found)


def test_a_failed_job_is_completed_by_itself_and_by_no_other(
    spark: SparkSession, alpha: Served, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    with pytest.raises(PySparkException, match="this task is broken"):
        write(job(spark, 4, broken=broken), alpha)
    sent = len(numbers(alpha))
    assert 0 < sent < ROWS
    broken.unlink()
    for other in (job(spark, 8), job(spark, 4, text="id + 1")):
        with pytest.raises(PySparkException, match=r"name: partition .*give it another name"):
            write(other, alpha)
    dropped = dropped_rows(spark)
    assert dropped is not None
    before = dropped.value
    write(job(spark, 4, broken=broken), alpha)
    assert numbers(alpha) == list(range(ROWS))
    assert dropped.value - before >= sent, "what was sent before is dropped, and counted"


def test_a_finished_name_takes_the_same_job_and_no_other(spark: SparkSession, alpha: Served) -> None:
    write(job(spark, 2), alpha)
    write(job(spark, 2), alpha)
    for other in (job(spark, 4), job(spark, 1), job(spark, 2, text="id + 1"), job(spark, 2).limit(5)):
        with pytest.raises(PySparkException, match=r"name: partition .*give it another name"):
            write(other, alpha)
    assert numbers(alpha) == list(range(ROWS))
    write(job(spark, 4).limit(5), alpha, name=None)
    assert len(numbers(alpha)) == ROWS + 5
