"""DataFrames that several steps of a run read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> Iterator[DataFrame]:
    """Spark computes the frame once, at its first use, and releases it at the end of the block."""
    kept = frame.persist(level)
    try:
        yield kept
    finally:
        kept.unpersist()
