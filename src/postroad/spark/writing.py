"""Writers: rows become messages, each sent exactly once even if its task runs several times.

The writer's name, its epoch, its partition and a number identify each row, and the manager drops those it has already
sent. So a second run of a task must bring the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from postroad.spark.manager import ManagerApi
from postroad.spark.options import WriteOptions
from postroad.spark.sending import check_schema, requests
from postroad.spark.tracebacks import without_traceback

_QUERY = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """The report of one task to the driver."""

    name: str
    epoch: int
    sent: int
    dropped: int


def _send(options: WriteOptions, name: str, epoch: int, partition: int, batches: Iterator[pa.RecordBatch]) -> Sent:
    api = ManagerApi(options.place)
    row = sent = dropped = 0
    for request in requests(batches):
        new, old = api.submit(name, epoch, partition, row, request.body, transactional=options.transactional)
        row += request.rows
        sent += new
        dropped += old
    api.close()
    return Sent(name, epoch, sent, dropped)


class BatchWriter(DataSourceArrowWriter):
    """One epoch. A job without a name gets a new one, so a new start of it sends everything again."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._name = options.name or f"spark-job-{uuid4()}"

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return _send(self._options, self._name, 0, _task().partitionId(), iterator)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        api = ManagerApi(self._options.place)
        api.finish(self._name, 0)  # also without a name: an attempt that Spark has abandoned may still run
        api.close()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Sent messages stay sent. A job with the same name does not send them again."""


class StreamWriter(DataSourceStreamArrowWriter):
    """One epoch for each micro-batch, under the id of the query, which its checkpoint keeps."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        task = _task()
        query, epoch = task.getLocalProperty(_QUERY), task.getLocalProperty(_EPOCH)
        assert query is not None
        assert epoch is not None
        name = self._options.name or f"spark-{query}"
        return _send(self._options, name, int(epoch), task.partitionId(), iterator)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        sent = next((each for each in messages if isinstance(each, Sent)), None)
        if sent is not None:
            api = ManagerApi(self._options.place)
            api.finish(sent.name, batchId)
            api.close()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Spark runs the epoch again, and the manager then drops what was sent of it."""


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task
