"""Bronze: every packet as it arrived, and where it was found. Nothing is decoded, so nothing can fail.

Reading with `format("postroad")` would plan each queue in separate processes. A network has hundreds of queues with few
messages each, so here one job reads the ranges of all queues, with the same calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postroad.spark.manager_api import ManagerApi
from postroad.spark.options import ARRIVAL_MASK
from postroad.spark.pipeline.frames import arrow_rows, local
from postroad.spark.pipeline.passes import with_columns
from postroad.spark.pipeline.sources import Range

BRONZE = (
    "batch bigint, manager string, manager_id string, queue string, role string, lookup_id bigint, arrival bigint, "
    "arrived_at timestamp, aborts int, reason int, packet binary, day date"
)
_ASKED = ("lookup_id", "arrived_at", "aborts", "reason", "packet")
_READ = "range int, lookup_id bigint, arrival bigint, arrived_at timestamp, aborts int, reason int, packet binary"


def read(spark: SparkSession, ranges: Sequence[Range], batch: int) -> DataFrame:
    """Reads all messages of the ranges in one job. No message leaves its queue."""
    shared = spark.sparkContext.broadcast(tuple(ranges))

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        for some in batches:
            for number in some.column(0).to_pylist():
                yield from _read_range(number, shared.value[number])

    tasks = max(1, min(len(ranges), 4 * spark.sparkContext.defaultParallelism))
    rows = spark.range(0, len(ranges), 1, tasks).mapInArrow(work, _READ)
    found_at = [
        (number, each.source.manager.name, each.source.manager.id, each.source.queue, each.source.role)
        for number, each in enumerate(ranges)
    ]
    origins = local(spark, found_at, "range int, manager string, manager_id string, queue string, role string")
    rows = rows.join(f.broadcast(origins), "range")
    rows = rows.withColumns({"batch": f.lit(batch).cast("bigint"), "day": f.to_date("arrived_at")})
    return rows.select(*(column.split()[0] for column in BRONZE.split(", ")))


def few(ranges: Sequence[Range], batch: int) -> pyarrow.Table:
    """The same for a few messages, without Spark."""
    found = [arrow_rows((), BRONZE)]
    kinds = found[0].schema
    for number, each in enumerate(ranges):
        for some in _read_range(number, each):
            rows = pyarrow.Table.from_batches([some])
            manager = each.source.manager
            place = {"manager": manager.name, "manager_id": manager.id, "queue": each.source.queue}
            day = pyarrow.compute.cast(rows["arrived_at"], pyarrow.date32())
            rows = with_columns(rows, **place, role=each.source.role, batch=batch, day=day)
            found.append(rows.select(kinds.names).cast(kinds))
    return pyarrow.concat_tables(found)


def _read_range(number: int, wanted: Range) -> Iterator[Any]:
    api = ManagerApi(wanted.source.place)
    try:
        for answer in api.messages(wanted.start, wanted.end, _ASKED, hold=wanted.hold):
            rows = answer.num_rows
            found = {name: answer.column(name) for name in _ASKED}
            arrival = pyarrow.compute.bit_wise_and(found["lookup_id"], pyarrow.scalar(ARRIVAL_MASK, pyarrow.int64()))
            reason = found["reason"].cast(pyarrow.int32())  # 0 for a message that is not a dead letter
            none = pyarrow.compute.equal(reason, 0)
            columns = {
                "range": pyarrow.array([number] * rows, pyarrow.int32()),
                "lookup_id": found["lookup_id"],
                "arrival": arrival,
                "arrived_at": found["arrived_at"],
                "aborts": found["aborts"],
                "reason": pyarrow.compute.if_else(none, pyarrow.scalar(None, pyarrow.int32()), reason),
                "packet": found["packet"],
            }
            yield pyarrow.RecordBatch.from_pydict(columns)
    finally:
        api.close()
