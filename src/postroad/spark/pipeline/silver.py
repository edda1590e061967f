"""Silver: decoded bronze packets. Messages, acknowledgments and trace reports have tables of their own, and so do
packets that cannot be decoded, with the reason. Pure functions on DataFrames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from postroad.columns import ARROW_TYPES, ERROR, PROPERTIES
from postroad.columns import decode as decode_columns
from postroad.errors import RemoteProtocolError
from postroad.spark.decoded import DECODED, OUTLINE, outline_columns
from postroad.wire.constants import AckFlags, MessageClass
from postroad.wire.records import TraceReport
from postroad.wire.view import MessageView

# The roles of queues: what a copy in a queue says about its message.
SENT, RECEIVED, DEAD, OUTGOING, QUEUED = "sent", "received", "dead", "outgoing", "queued"

# Where a packet was found, from bronze. Every silver table has these columns.
PLACE = ("manager", "manager_id", "queue", "role", "lookup_id", "arrival", "arrived_at", "batch", "day")

# Properties that gold needs and the columns' decoder does not give. They are read from the packet itself.
_EXTRAS = {
    "packet_class": "int",
    "size": "int",
    "asked_reach": "boolean",
    "asked_receive": "boolean",
    "traced": "boolean",
    "sequence_id": "bigint",
    "sequence_number": "bigint",
    "previous_sequence_number": "bigint",
    "report_of": "string",
    "report_target": "string",
    "report_next_hop": "string",
    "report_hops": "int",
}
_SPARK = {"int": IntegerType(), "bigint": LongType(), "boolean": BooleanType(), "string": StringType()}
_POSITIVE = (MessageClass.ACK_REACH_QUEUE.value, MessageClass.ACK_RECEIVE.value)
_FIRST_NACK = MessageClass.NACK_BAD_DST_Q.value
_REPORT = MessageClass.REPORT.value
_HEAD_BYTES = 64  # of a packet that cannot be decoded; enough to recognise it


def decode(bronze: DataFrame) -> DataFrame:
    """All bronze rows with the properties of their messages. A row that cannot be decoded has `decode_error` instead.

    `class` is the packet's own. The reason of a dead letter is in `reason`.
    """
    schema = _decoded_schema(bronze.schema)

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from _decode_batch(batch, schema)

    return bronze.mapInArrow(work, schema)


def decode_rows(bronze: pyarrow.Table) -> pyarrow.Table:
    """The same for rows that the driver has."""
    schema = _decoded_schema(from_arrow_schema(bronze.schema))
    batches = [each for batch in bronze.to_batches() for each in _decode_batch(batch, schema)]
    empty = to_arrow_schema(schema, timezone="UTC")
    return pyarrow.Table.from_batches(batches) if batches else empty.empty_table()


def messages(decoded: DataFrame) -> DataFrame:
    """One row for each copy of a message: where it was found, and its content."""
    wanted = decoded.where(f.col("decode_error").isNull() & ~_is_acknowledgment() & (f.col("packet_class") != _REPORT))
    reason = f.when(f.col("role") == DEAD, f.col("reason"))
    return wanted.withColumn("reason", reason).select(
        *PLACE, "reason", *_MESSAGE_COLUMNS, "size", "asked_reach", "asked_receive", "traced", *_SEQUENCE
    )


def acknowledgments(decoded: DataFrame) -> DataFrame:
    """One row for each administration acknowledgment: `about` is the message, and `by` the manager that sent it.

    `acknowledged_at` is from that manager's clock, in whole seconds.
    """
    return decoded.where(f.col("decode_error").isNull() & _is_acknowledgment()).select(
        *PLACE,
        "id",
        f.col("correlation_id").alias("about"),
        f.col("packet_class").alias("class"),
        "class_name",
        f.col("source_manager").alias("by"),
        f.col("sent_at").alias("acknowledged_at"),
        "label",
        f.col("response_queue").alias("destination_queue"),
    )


def reports(decoded: DataFrame) -> DataFrame:
    """One row for each trace report, [MS-MQQB] 3.1.5.8.9.

    `about` is the start of the source's GUID and the number of the message, because a report does not have more.
    """
    found = decoded.where(f.col("decode_error").isNull() & (f.col("packet_class") == _REPORT))
    return found.where(f.col("report_of").isNotNull()).select(
        *PLACE,
        "id",
        f.col("report_of").alias("about"),
        f.col("source_manager").alias("by"),
        f.col("sent_at").alias("reported_at"),
        f.col("report_hops").alias("hops"),
        f.col("report_target").alias("target_queue"),
        f.col("report_next_hop").alias("next_hop"),
    )


def undecodable(decoded: DataFrame) -> DataFrame:
    """One row for each packet that is not a message, with the reason and its first bytes."""
    head = f.lower(f.hex(f.substring("packet", 1, _HEAD_BYTES)))
    return decoded.where(f.col("decode_error").isNotNull()).select(
        *PLACE, f.col("decode_error").alias("error"), f.length("packet").alias("size"), head.alias("head")
    )


_MESSAGE_COLUMNS = (
    *("id", "class", "label", "priority", "delivery", "correlation_id", "sent_at", "source_manager"),
    *("destination_queue", "admin_queue", "response_queue", "app_tag", "hops", "sender_id", "authenticated"),
    *("encrypted", "transaction_id", "first_in_transaction", "last_in_transaction", "body_type", "body", "body_text"),
    *OUTLINE,
)
_SEQUENCE = ("sequence_id", "sequence_number", "previous_sequence_number")


def _is_acknowledgment() -> Column:
    return f.col("packet_class").isin(*_POSITIVE) | (f.col("packet_class") >= _FIRST_NACK)


# Decoding, in Spark's workers


def _decoded_schema(bronze: StructType) -> StructType:
    known = [(name, ARROW_TYPES[name]) for name in (*PROPERTIES, ERROR)] + [(name, DECODED[name]) for name in OUTLINE]
    properties = from_arrow_schema(pyarrow.schema(known))
    extras = [StructField(name, _SPARK[kind]) for name, kind in _EXTRAS.items()]
    return StructType([*bronze, *properties, *extras])


def _decode_batch(batch: Any, schema: StructType) -> Iterator[Any]:
    packets = batch.column("packet")
    found = decode_columns(packets)
    found |= outline_columns(found) | _extras(packets.to_pylist())
    arrays = [found[name] if name in found else batch.column(name) for name in schema.names]
    yield pyarrow.RecordBatch.from_arrays(arrays, names=schema.names)


def _extras(packets: list[bytes | None]) -> dict[str, Any]:
    kinds = {"int": pyarrow.int32(), "bigint": pyarrow.int64(), "boolean": pyarrow.bool_(), "string": pyarrow.string()}
    rows = [_extra(packet) for packet in packets]
    return {
        name: pyarrow.array([row[place] for row in rows], kinds[kind])
        for place, (name, kind) in enumerate(_EXTRAS.items())
    }


_NOTHING: tuple[Any, ...] = (None,) * len(_EXTRAS)


def _extra(packet: bytes | None) -> tuple[Any, ...]:
    """The values of _EXTRAS, in their order. All are null if the packet is not a message."""
    if packet is None:
        return _NOTHING
    try:
        view = MessageView(packet)
    except RemoteProtocolError:
        return _NOTHING
    flags = view.ack_flags
    asked = (bool(flags & AckFlags.POSITIVE_ARRIVAL.value), bool(flags & AckFlags.POSITIVE_RECEIVE.value))
    fields = view.transaction_fields
    sequence = (_signed(fields[2] << 32 | fields[1]), fields[3], fields[4]) if fields else (None,) * 3
    report = TraceReport.of(view)
    trace: tuple[Any, ...] = (None,) * 4
    if report is not None:
        about = f"{report.manager_digits}:{report.message_id}"
        trace = (about, report.target_queue, report.next_hop, report.hops)
    return (view.message_class, len(packet), *asked, view.tracing, *sequence, *trace)


def _signed(value: int) -> int:
    """The same 64 bits as a signed number, because Spark has no unsigned ones."""
    return value - (1 << 64) if value >> 63 else value
