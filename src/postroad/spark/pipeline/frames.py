"""DataFrames that several steps of a run read, and small ones that the driver makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType


@contextmanager
def persisted(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> Iterator[DataFrame]:
    """Keeps a frame within the block: Spark computes it at its first use, and releases it at the end."""
    kept = frame.persist(level)
    try:
        yield kept
    finally:
        kept.unpersist()


def local(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """A few rows of the driver, as a part of the plan. They need no job, and Spark removes a join with an empty one."""
    kinds = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(kinds, StructType)
    wanted = to_arrow_schema(kinds, timezone="UTC")
    columns = list(zip(*rows, strict=True)) or [()] * len(wanted)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, wanted, strict=True)]
    return spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=wanted))
