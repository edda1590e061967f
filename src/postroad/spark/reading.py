"""Reads queues in a batch: a snapshot of one or several queues, divided into parts of about equal size.

Planning runs in the driver's processes. `read` runs in workers, which know only their partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from postroad.columns import ERROR, PROPERTIES, decode
from postroad.columns.schema import PACKET
from postroad.errors import InvalidArgument
from postroad.names.format import is_internal
from postroad.spark.checkpoint import grouped, parts_of, shares
from postroad.spark.decoded import DECODED, NEEDED, decoded_columns
from postroad.spark.manager_api import ManagerApi
from postroad.spark.options import ARRIVAL_MASK, ReadOptions, expression
from postroad.spark.schema import ARRIVAL, BODIES, QUEUE, arrow_schema, named
from postroad.spark.tracebacks import iterator_without_traceback, without_traceback

# The queues to read: names, or patterns such as `private$\orders*`.


_KINDS = ("private", "public", "journal")


def matching(found: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """The queues to read, sorted: those that are named, and those of the list that match a pattern."""
    patterns = [expression(each) for each in wanted if "*" in each]
    named = [each for each in wanted if "*" not in each]
    known = {each.lower() for each in named}
    matched = [each for each in found if each.lower() not in known and any(one.fullmatch(each) for one in patterns)]
    return sorted([*named, *matched])


def find_queues(api: ManagerApi, wanted: Sequence[str]) -> list[str]:
    """The queues of a manager to read now: those that are named, and those that match a pattern."""
    if not any("*" in each for each in wanted):
        return sorted(wanted)
    kinds = {each["path"]: each["type"] for each in api.queues()}
    paths = [path for path, kind in kinds.items() if kind in _KINDS and not is_internal(path.partition(";")[0])]
    return matching(paths, wanted)


def require_queues(found: list[str], wanted: Sequence[str]) -> list[str]:
    """The same list. Raises InvalidArgument if it is empty."""
    if not found:
        raise InvalidArgument(f"queue: no queue matches {', '.join(wanted)}; create one first, or correct the pattern")
    return found


# Messages for Spark: the columns to request from a manager, and its answers as record batches in Spark's schema.


BATCH_BYTES = 6 << 20  # of packets in a batch; Spark's process holds a whole batch, with bodies in up to two columns
_OURS = frozenset({"lookup_id", ARRIVAL, ERROR, QUEUE})  # added here, or always requested
_DECODED = frozenset({*PROPERTIES, ERROR})
_SAID = frozenset({"body_text", *DECODED})
_NEED_PACKET = BODIES | {PACKET, *DECODED}


def requested_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to request from a manager.

    If bodies are wanted, these are whole packets, which are decoded here. Otherwise bodies are left out, because they
    can have any size.
    """
    if _NEED_PACKET.isdisjoint(columns):
        return ("lookup_id", *(name for name in columns if name not in _OURS))
    return ("lookup_id", *(name for name in ("arrived_at", "aborts") if name in columns), "reason", PACKET)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches. Decoding a thousand packets costs nearly as much as decoding several thousand."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if waiting and size + batch.nbytes > BATCH_BYTES:
            yield _one(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def rows(
    answer: pa.RecordBatch, columns: Sequence[str], queue: str, *, decoding: bool = False
) -> Iterator[pa.RecordBatch]:
    """Converts an answer with the requested columns into record batches for Spark: one, or with `decoding` several.

    With `decoding`, `body_text` and the columns of DECODED say what bodies and extensions say.
    """
    schema = arrow_schema(columns)
    found = {name: answer.column(name) for name in answer.schema.names}
    parts: Iterable[dict[str, Any]] = ({},)
    if PACKET in found:
        wanted = {name for name in columns if name in _DECODED} | (set(NEEDED) if decoding else set())
        decoded = decode(found[PACKET], reason=found["reason"], columns=sorted(wanted))
        found = decoded | found
        if decoding and not _SAID.isdisjoint(columns):
            parts = decoded_columns(decoded, columns)
    found[ARRIVAL] = pc.bit_wise_and(found["lookup_id"], pa.scalar(ARRIVAL_MASK, pa.int64()))
    if QUEUE in columns:
        found[QUEUE] = pa.repeat(pa.scalar(queue, pa.string()), answer.num_rows)
    found.setdefault(ERROR, pa.nulls(answer.num_rows, pa.string()))
    start = 0
    for part in parts:
        count = len(next(iter(part.values()))) if part else answer.num_rows
        arrays = [part[name] if name in part else found[name].slice(start, count) for name in schema.names]
        start += count
        yield pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
        )


PARTITIONS = 4  # by default
LEAST_MESSAGES = 1000  # in a task of its own
FIRST_S = 5.0  # to reach a manager for the first time; a wrong address should fail soon


class Range(InputPartition):
    """Messages of one queue. `messages` is how many there were when the task was planned. None if not counted."""

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


class Ranges(InputPartition):
    """The messages of one task, which small queues share."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(each.value for each in ranges))
        self.ranges = tuple(ranges)

    @staticmethod
    def of(partition: InputPartition) -> tuple[Range, ...]:
        return partition.ranges if isinstance(partition, Ranges) else (Range.of(partition),)


def other_partition(partition: InputPartition) -> InvalidArgument:
    return InvalidArgument(
        f"partition: must be one that this reader made, got {type(partition).__name__}; use the same version of "
        "Postroad on the driver and on every worker"
    )


class BatchReader(DataSourceReader):
    """Reads all messages in the queues, except those that other readers are receiving.

    It does not implement Spark's `pushFilters`. Spark 4.3 keeps the filters of one query, and applies them to the next
    query of the same DataFrame and to other parts of the same query.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = named(schema)

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        bounds: dict[str, tuple[int, int]] = {}
        messages: dict[str, int] = {}
        sizes: dict[Range, int] = {}
        with ManagerApi(options.place, timeout_s=FIRST_S) as manager:
            queues = require_queues(find_queues(manager, options.queues), options.queues)
            for queue in queues:
                api = manager.at(queue)
                mark = api.mark()
                start, stop = options.start_of(queue), options.end_of(queue)
                begin = max(options.selection.begin, mark.arrived if mark.oldest is None else mark.oldest)
                begin = max(begin, start) if isinstance(start, int) else begin
                end = min(options.selection.end, mark.arrived, mark.arrived if stop is None else stop)
                if options.start_ms is not None:
                    begin = api.plan(begin, mark.arrived, limit=1, since_ms=options.start_ms).start
                if options.end_ms is not None:
                    end = min(end, api.plan(begin, mark.arrived, limit=1, since_ms=options.end_ms).start)
                bounds[queue] = begin, end
                messages[queue] = mark.messages
            most = options.partitions or PARTITIONS
            parts = parts_of(messages, most, LEAST_MESSAGES)
            for queue, (begin, end) in bounds.items():
                if begin < end and parts[queue]:
                    plan = manager.at(queue).plan(begin, end, parts=parts[queue])
                    sizes |= {Range(queue, part.start, part.end): part.messages for part in plan.parts}
        tasks = grouped(sizes, shares(sum(sizes.values()), most, LEAST_MESSAGES))
        return [Ranges(each) for each in tasks] or [Range(queues[0], 0, 0)]  # Spark would make a partition itself

    @iterator_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        equal, decoding = self._options.selection.equal, self._options.decode
        with ManagerApi(self._options.place) as manager:
            for part in Ranges.of(partition):
                found = manager.at(part.queue).messages(
                    part.begin, part.end, requested_columns(self._columns), equal=equal
                )
                for batch in joined(found):
                    yield from rows(batch, self._columns, part.queue, decoding=decoding)
