"""Bronze: every packet as it came, and where from. Nothing is decoded, so nothing can fail to be."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING

from postroad.spark.pipeline.silver import DEAD
from postroad.spark.pipeline.sources import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRONZE = (
    "batch bigint, manager string, manager_id string, queue string, role string, lookup_id bigint, arrival bigint, "
    "arrived_at timestamp, aborts int, reason int, packet binary, day date"
)
_COLUMNS = "packet,lookup_id,arrival,arrived_at,aborts"
_AT_ONCE = 8  # ranges that are planned at the same time: planning one starts a process, and mostly waits for it


def read(spark: SparkSession, ranges: Sequence[Range], batch: int) -> DataFrame:
    """All messages of the ranges. They stay in their queues."""
    if not ranges:
        return spark.createDataFrame([], BRONZE)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        frames = list(pool.map(lambda each: _read_range(spark, each), ranges))
    from pyspark.sql import functions as f

    rows = reduce(lambda one, other: one.unionByName(other), frames)
    rows = rows.withColumns({"batch": f.lit(batch).cast("bigint"), "day": f.to_date("arrived_at")})
    return rows.select(*(column.split()[0] for column in BRONZE.split(", ")))


def _read_range(spark: SparkSession, wanted: Range) -> DataFrame:
    from pyspark.sql import functions as f

    source = wanted.source
    dead = source.role == DEAD  # the class of a dead letter is why it died
    options = {"api": source.api, "queue": source.queue, "columns": f"{_COLUMNS},class" if dead else _COLUMNS}
    if source.token is not None:
        options["token"] = source.token
    reason = f.col("class") if dead else f.lit(None).cast("int")
    frame = spark.read.format("postroad").options(**options).load()
    frame = frame.where((f.col("arrival") >= wanted.start) & (f.col("arrival") < wanted.end))
    return frame.select(
        f.lit(source.manager.name).alias("manager"),
        f.lit(source.manager.id).alias("manager_id"),
        f.lit(source.queue).alias("queue"),
        f.lit(source.role).alias("role"),
        "lookup_id",
        "arrival",
        "arrived_at",
        "aborts",
        reason.alias("reason"),
        "packet",
    )
