"""DataFrames that several steps of a run read, and small ones that the driver makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


@contextmanager
def persisted(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> Iterator[DataFrame]:
    """Keeps a frame within the block: Spark computes it at its first use, and releases it at the end."""
    kept = frame.persist(level)
    try:
        yield kept
    finally:
        kept.unpersist()


_KINDS = {
    "string": pyarrow.string(),
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "binary": pyarrow.binary(),
    "date": pyarrow.date32(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "array<string>": pyarrow.list_(pyarrow.string()),
    "array<bigint>": pyarrow.list_(pyarrow.int64()),
}


def arrow_schema(columns: str | StructType) -> pyarrow.Schema:
    """A schema from names and Spark's types, as in `id string, size int`. Spark's own reader of these needs Java."""
    if isinstance(columns, StructType):
        return to_arrow_schema(columns, timezone="UTC")
    return pyarrow.schema([(name, _KINDS[kind]) for name, kind in (each.split() for each in columns.split(", "))])


def arrow_rows(rows: Iterable[tuple[Any, ...]], schema: str | StructType) -> pyarrow.Table:
    wanted = arrow_schema(schema)
    columns = list(zip(*rows, strict=True)) or [()] * len(wanted)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, wanted, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=wanted)


def local(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """A few rows of the driver, as a part of the plan. They need no job, and Spark removes a join with an empty one."""
    return one_part(spark, arrow_rows(rows, schema))


def one_part(spark: SparkSession, rows: pyarrow.Table) -> DataFrame:
    return frame_of(spark, rows).coalesce(1)


def frame_of(spark: SparkSession, rows: pyarrow.Table) -> DataFrame:
    """Of a table whose first chunk is empty, Spark would read no row."""
    return spark.createDataFrame(rows.combine_chunks())


_ONE_TASK = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def one_task(spark: SparkSession) -> Iterator[None]:
    """Within the block, a plan over frames with one part is one task: nothing is sent from one task to another, not
    even a small side of a join, for which Spark would run a job."""
    before = {key: spark.conf.get(key, None) for key in _ONE_TASK}
    for key, value in _ONE_TASK.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, known in before.items():
            spark.conf.unset(key) if known is None else spark.conf.set(key, known)
