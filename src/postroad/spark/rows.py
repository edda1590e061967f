"""Messages for Spark: the columns to ask a manager for, and record batches in Spark's schema from the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from postroad.columns import ERROR, PROPERTIES, decode
from postroad.columns.schema import PACKET
from postroad.spark.options import ARRIVAL_MASK
from postroad.spark.schema import ARRIVAL, BODIES, QUEUE, arrow_schema

BATCH_BYTES = 6 << 20  # of packets: bodies are in two columns, and Spark's process holds a whole batch
_OURS = frozenset({"lookup_id", ARRIVAL, ERROR, QUEUE})  # added to the manager's columns, or always requested
_DECODED = frozenset({*PROPERTIES, ERROR})
_NEED_PACKET = BODIES | {PACKET}


def asked(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to ask for: whole packets, decoded here, if bodies are wanted; otherwise no bodies, because they can
    have any size."""
    if _NEED_PACKET.isdisjoint(columns):
        return ("lookup_id", *(name for name in columns if name not in _OURS))
    return ("lookup_id", *(name for name in ("arrived_at", "aborts") if name in columns), "reason", PACKET)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: decoding a thousand packets costs nearly as much as decoding some thousands."""
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


def rows(answer: pa.RecordBatch, columns: Sequence[str], queue: str) -> pa.RecordBatch:
    """The record batch for Spark, from a queue's answer with the requested columns."""
    schema = arrow_schema(columns)
    found = {name: answer.column(name) for name in answer.schema.names}
    if PACKET in found:
        decoded = decode(found[PACKET], reason=found["reason"], columns=[name for name in columns if name in _DECODED])
        found = decoded | found
    found[ARRIVAL] = pc.bit_wise_and(found["lookup_id"], pa.scalar(ARRIVAL_MASK, pa.int64()))
    if QUEUE in columns:
        found[QUEUE] = pa.repeat(pa.scalar(queue, pa.string()), answer.num_rows)
    found.setdefault(ERROR, pa.nulls(answer.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays([found[field.name].cast(field.type) for field in schema], schema=schema)
