"""Sends rows as messages, each exactly once even if its task runs several times.

The writer's name, an epoch, a partition and a number identify each row, and the manager drops rows that it has already
sent. A digest shows whether a second run of a task has the same rows in the same order. If not, they are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from postroad.bodies import NOT_XML, write_headers
from postroad.columns.schema import PACKET
from postroad.errors import InvalidArgument, SparkUnavailable, TransactionSequence
from postroad.names import parse_name
from postroad.spark.decoded import DECODED
from postroad.spark.manager_api import ManagerApi, Patience, RowDigest
from postroad.spark.options import WriteOptions
from postroad.spark.schema import MESSAGE, QUEUE
from postroad.spark.tracebacks import without_traceback
from postroad.validation.kinds import suggestion

# Rows as messages: the possible columns, their types, and requests of a limited size.


MOST_ROWS = 5000  # in a request
MOST_BYTES = 16 << 20  # about; the manager accepts 64 MiB
_OVERHEAD = 200  # of a row without its body
_TEXT = (spark_types.StringType,)
_BYTES = (spark_types.BinaryType,)
_TRUTH = (spark_types.BooleanType,)
_WHOLE = (spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.LongType)
_MAP = (spark_types.MapType,)
_NAMES = {
    _MAP: "a map of strings to strings",
    _TEXT: "a string",
    _BYTES: "binary",
    _TRUTH: "a boolean",
    _WHOLE: "a whole number",
    (*_BYTES, *_TEXT): "binary or a string",
    (*_TEXT, *_WHOLE, spark_types.ArrayType): "a string, an array of strings or a whole number",
}
HEADERS = "headers"
# The properties that a sender sets, as in the HTTP API. Null means the default.
COLUMNS: Mapping[str, tuple[type[spark_types.DataType], ...]] = {
    "body": (*_BYTES, *_TEXT),
    "body_type": _WHOLE,
    "label": _TEXT,
    "priority": _WHOLE,
    "delivery": _TEXT,
    "recoverable": _TRUTH,
    "app_tag": _WHOLE,
    "correlation_id": (*_BYTES, *_TEXT),
    "response_queue": _TEXT,
    "admin_queue": _TEXT,
    "ack": (*_TEXT, *_WHOLE, spark_types.ArrayType),
    "time_to_reach_queue": _WHOLE,
    "time_to_be_received": _WHOLE,
    "journal": _TRUTH,
    "dead_letter": _TRUTH,
    "dead_letter_queue": _TEXT,
    "trace": _TEXT,
    "extension": _BYTES,
    "connector_type": _TEXT,
    "class": _WHOLE,
    # of this sink only
    HEADERS: _MAP,
    QUEUE: _TEXT,
}


def check_schema(schema: spark_types.StructType) -> None:
    """Raises InvalidArgument, with the column's name, for rows that cannot be messages."""
    for column in schema.fields:
        types = COLUMNS.get(column.name)
        if types is None:
            raise InvalidArgument(f"{column.name}: {_unknown_column(column.name)}")
        kind = column.dataType
        items = [kind.elementType] if isinstance(kind, spark_types.ArrayType) else []
        items += [kind.keyType, kind.valueType] if isinstance(kind, spark_types.MapType) else []
        wrong_items = not all(isinstance(each, spark_types.StringType) for each in items)
        if wrong_items or not isinstance(kind, types):
            raise InvalidArgument(f"{column.name}: the column must be {_NAMES[types]}, got {kind.simpleString()}")
    if "body" not in schema.fieldNames():
        raise InvalidArgument("body: the column is missing; every message needs a body, even an empty one")
    if {HEADERS, "extension"} <= set(schema.fieldNames()):
        raise InvalidArgument("headers: they are written into the extension, so drop one of the two columns")


def _unknown_column(name: str) -> str:
    if name in MESSAGE or name in DECODED or name == PACKET:
        return f"a sender cannot set it; drop the column, and use only {', '.join(COLUMNS)}"
    return f"a message has no such column{suggestion(name, COLUMNS)}"


def with_extension(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their headers in the extension, as NServiceBus writes them."""
    if HEADERS not in batch.schema.names:
        return batch
    found = []
    for headers in batch.column(HEADERS).to_pylist():
        for name, value in headers or ():
            if value is None or NOT_XML.search(name + value):
                raise InvalidArgument(f"headers: {name[:60]!r}: a header must be text that XML can say")
        try:
            found.append(None if headers is None else write_headers(dict(headers)))
        except InvalidArgument as fault:
            raise InvalidArgument(f"headers: {fault}") from None
    return batch.drop_columns([HEADERS]).append_column("extension", pa.array(found, pa.binary()))


def by_queue(batch: pa.RecordBatch, only: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows for each queue, in their order. Without a column `queue`, all rows are for the only queue."""
    if QUEUE not in batch.schema.names:
        yield only, batch
        return
    rest = batch.drop_columns([QUEUE])
    keys = pc.dictionary_encode(batch.column(QUEUE))
    if keys.null_count:
        raise InvalidArgument("queue: the column must name a queue in every row, got null")
    for index, queue in enumerate(keys.dictionary.to_pylist()):
        parse_name(queue)
        yield queue, rest.filter(pc.equal(keys.indices, index))


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes  # an Arrow stream
    batch: pa.RecordBatch  # the same rows


def requests(batch: pa.RecordBatch) -> Iterator[Request]:
    """Divides the rows, in their order, into requests of a size that a manager accepts."""
    first = 0
    for end in _cuts(batch):
        part = batch.slice(first, end - first)
        yield Request(_stream(part), part)
        first = end


def _cuts(batch: pa.RecordBatch) -> Iterator[int]:
    """The row numbers at which requests end. The last is the number of rows."""
    body = batch.column("body")
    lengths = pc.binary_length(body).fill_null(0).to_pylist()
    size = first = 0
    for row, length in enumerate(lengths):
        if row > first and (row - first == MOST_ROWS or size + length + _OVERHEAD > MOST_BYTES):
            yield row
            first, size = row, 0
        size += length + _OVERHEAD
    if lengths:
        yield len(lengths)


def _stream(rows: pa.RecordBatch) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(stream.getvalue().to_pybytes())


_QUERY = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"
OTHERS_S = 5.0  # that a partition which an earlier run began waits for the other partitions of its job
_LOG = logging.getLogger(__name__)


@dataclass
class Sent(WriterCommitMessage):
    """What one task reports to the driver."""

    name: str
    epoch: int
    sent: int
    dropped: int
    run: str = field(default="", compare=False)
    queues: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True)
class Task:
    """One partition of an epoch, in one run of its job."""

    options: WriteOptions
    name: str
    run: str
    epoch: int
    partition: int

    def send(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        only = self.options.place.queue
        with ManagerApi(self.options.place) as manager:
            rows = {only: _Rows(self, manager)} if only else {}
            for batch in batches:
                for queue, part in by_queue(with_extension(batch), only):
                    if queue not in rows:
                        rows[queue] = _Rows(self, manager.at(queue))
                    rows[queue].send(part)
            for each in rows.values():
                each.end()
        sent, dropped = (sum(getattr(each, name) for each in rows.values()) for name in ("sent", "dropped"))
        return Sent(self.name, self.epoch, sent, dropped, self.run, frozenset(rows))


class _Rows:
    """The rows of a task for one queue. They are numbered in their order."""

    def __init__(self, task: Task, api: ManagerApi) -> None:
        self._task = task
        self._api = api
        state = api.submission(task.name, task.epoch)
        before = state.parts.get(task.partition)
        self._begun = before is not None
        self._waiting = 0 if before is None else before.rows  # that were sent before and did not come again yet
        self._digest = RowDigest()
        self._proven = state.complete  # after completion, the manager itself refuses further rows
        self.sent = 0
        self.dropped = self._waiting

    def send(self, batch: pa.RecordBatch) -> None:
        """Sends the rows behind those that were sent before. Raises TransactionSequence if these have changed."""
        known = min(self._waiting, batch.num_rows)
        if known:
            self._digest.add(batch.slice(0, known))
            self._waiting -= known
            if not self._waiting:
                self._take_over()
        for request in requests(batch.slice(known)):
            if not self._proven:
                self._wait_for_others()
                self._proven = True
            self._submit(request)

    def end(self) -> None:
        if self._waiting:  # there are fewer rows now, which the manager refuses
            self._take_over()

    def _take_over(self) -> None:
        task, digest = self._task, self._digest
        self._api.take_over(task.name, task.epoch, task.partition, digest.rows, task.run, digest.text())

    def _submit(self, request: Request) -> None:
        task, digest = self._task, self._digest
        row = digest.rows
        digest.add(request.batch)
        new, old = self._api.submit(
            task.name,
            task.epoch,
            task.partition,
            row,
            request.body,
            run=task.run,
            digest=digest.text(),
            transactional=task.options.transactional,
        )
        self.sent += new
        self.dropped += old

    def _wait_for_others(self) -> None:
        """Waits until this run has compared all partitions that an earlier run began.

        Otherwise a run with other rows could send some of them before another task finds the difference. A partition
        that an earlier run began waits only shortly, because the others may need its slot to run.
        """
        task, begun = self._task, self._begun
        timeout_s = task.options.place.timeout_s
        patience = Patience(min(OTHERS_S, timeout_s) if begun else timeout_s)
        while True:
            parts = self._api.submission(task.name, task.epoch).parts
            others = sorted(each for each, part in parts.items() if part.run not in ("", task.run))
            if not others:
                return
            fault = TransactionSequence(
                f"name: partition {others[0]} of {task.name} was sent before with {parts[others[0]].rows} rows, and "
                "this run does not have it; run the job as it was, with the same number of partitions, or "
                "give it another name"
            )
            try:
                patience.wait(fault)
            except TransactionSequence:
                if begun:
                    return
                raise


def _finish(
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    name: str,
    epoch: int,
    run: str,
    *,
    keep: bool,
) -> None:
    """Completes the epoch in every queue that got rows of it."""
    queues = {queue for each in messages if isinstance(each, Sent) for queue in each.queues}
    with ManagerApi(options.place) as manager:
        for queue in sorted(queues | ({options.place.queue} - {""})):
            manager.at(queue).finish(name, epoch, run, keep=keep)


def _report(messages: Sequence[WriterCommitMessage | None], name: str) -> None:
    dropped = sum(each.dropped for each in messages if isinstance(each, Sent))
    if dropped:
        _LOG.warning("%s: dropped %d rows, because they were sent before under this name", name, dropped)


class BatchWriter(DataSourceArrowWriter):
    """Writes one epoch. A job without a name gets a new one, so starting it again sends everything again."""

    def __init__(self, options: WriteOptions, schema: StructType, dropped: Accumulator[int] | None = None) -> None:
        check_schema(schema)
        self._options = options
        self._run = uuid4().hex
        self._name = options.name or f"spark-job-{self._run}"
        self._dropped = dropped

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        task = Task(self._options, self._name, self._run, 0, _task().partitionId())
        return _counted(task.send(iterator), self._dropped)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        # This is needed without a name too: an attempt that Spark has abandoned may still run.
        _finish(self._options, messages, self._name, 0, self._run, keep=self._options.name is not None)
        _report(messages, self._name)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: sent messages stay sent. A job with the same name does not send them again."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one epoch for each micro-batch, under the id of the query, which the checkpoint keeps."""

    def __init__(self, options: WriteOptions, schema: StructType, dropped: Accumulator[int] | None = None) -> None:
        check_schema(schema)
        self._options = options
        self._run = uuid4().hex
        self._dropped = dropped

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        task = _task()
        name = self._options.name or f"spark-{_property(task, _QUERY)}"
        epoch = _property(task, _EPOCH)
        if not epoch.isdigit():
            raise _unsupported(f"the property {_EPOCH} must be a number, got {epoch!r}")
        found = Task(self._options, name, self._run, int(epoch), task.partitionId())
        return _counted(found.send(iterator), self._dropped)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        sent = next((each for each in messages if isinstance(each, Sent)), None)
        if sent is not None:
            # this is not the object that the tasks had, so use the tasks' run
            _finish(self._options, messages, sent.name, batchId, sent.run, keep=True)
            _report(messages, f"{sent.name}, epoch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: Spark runs the epoch again, and the manager drops the rows that were sent."""


def _counted(sent: Sent, dropped: Accumulator[int] | None) -> Sent:
    if dropped is not None:
        dropped.add(sent.dropped)
    return sent


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise _unsupported("a writer must run in a task of Spark")
    return task


def _property(task: TaskContext, name: str) -> str:
    value = task.getLocalProperty(name)
    if value is None:
        raise _unsupported(f"Spark must set the property {name}")
    return value


def _unsupported(what: str) -> SparkUnavailable:
    return SparkUnavailable(f"this version of Spark is not supported: {what}; use pyspark 4.2 or 4.3")
