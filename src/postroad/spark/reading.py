"""Readers of messages in a batch: a snapshot of one or several queues, in parts with equal numbers of messages.

Planning runs in processes of the driver, `read` in workers that share only the partition with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from postroad.errors import InvalidArgument
from postroad.spark.manager import ManagerApi
from postroad.spark.offsets import parts_of
from postroad.spark.options import ReadOptions
from postroad.spark.queues import present, required
from postroad.spark.rows import asked, joined, rows
from postroad.spark.schema import named
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback

PARTITIONS = 4  # the default
LEAST_MESSAGES = 1000  # the least for a separate task
FIRST_S = 5.0  # to reach a manager for the first time: the address may be wrong


class Range(InputPartition):
    """The messages of one task. `messages` is how many there were when the task was made, None if not counted."""

    def __init__(self, queue: str, begin: int, end: int, messages: int | None = None, hold: str | None = None) -> None:
        super().__init__((queue, begin, end))
        self.queue = queue
        self.begin = begin
        self.end = end
        self.messages = messages
        self.hold = hold

    @staticmethod
    def of(partition: InputPartition) -> Range:
        if not isinstance(partition, Range):
            raise other_partition(partition)
        return partition


def other_partition(partition: InputPartition) -> InvalidArgument:
    return InvalidArgument(
        f"partition: must be one that this reader made, got {type(partition).__name__}; use the same version of "
        "Postroad on the driver and on every worker"
    )


class BatchReader(DataSourceReader):
    """All messages in the queues, except those that others are receiving.

    It takes none of Spark's filters (`pushFilters`): Spark 4.3 keeps the filters of one query, and applies them to the
    next query of the same DataFrame, and to other parts of the same query.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = named(schema)

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        bounds: dict[str, tuple[int, int]] = {}
        messages: dict[str, int] = {}
        made: list[InputPartition] = []
        with ManagerApi(options.place, timeout_s=FIRST_S) as manager:
            queues = required(present(manager, options.queues), options.queues)
            for queue in queues:
                api = manager.at(queue)
                mark = api.mark()
                begin = max(options.selection.begin, mark.arrived if mark.oldest is None else mark.oldest)
                if options.start_ms is not None:
                    begin = api.plan(begin, mark.arrived, limit=1, since_ms=options.start_ms).start
                bounds[queue] = begin, min(options.selection.end, mark.arrived)
                messages[queue] = mark.messages
            parts = parts_of(messages, options.partitions or PARTITIONS, LEAST_MESSAGES)
            for queue, (begin, end) in bounds.items():
                if begin < end and parts[queue]:
                    plan = manager.at(queue).plan(begin, end, parts=parts[queue])
                    made += [Range(queue, part.start, part.end) for part in plan.parts]
        return made or [Range(queues[0], 0, 0)]  # without one, Spark would make one itself

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = Range.of(partition)
        with ManagerApi(self._options.at(part.queue)) as api:
            found = api.messages(part.begin, part.end, asked(self._columns), equal=self._options.selection.equal)
            for batch in joined(found):
                yield rows(batch, self._columns, part.queue)
