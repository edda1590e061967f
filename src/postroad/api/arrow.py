"""Messages as Arrow: one column a property, batches in the IPC stream format. The one module that needs pyarrow.

Types are those that Spark reads too: signed integers, microseconds in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from postroad.api.problems import HttpFault
from postroad.describe.message import message_json
from postroad.describe.values import whole_text
from postroad.errors import InvalidArgument
from postroad.received import ReceivedMessage

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"  # the Arrow format's own mark: a message of no length
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """`source` is the key of the message's JSON, or what reads the value from the message."""

    name: str
    type: str
    source: str | Callable[[ReceivedMessage], object]


COLUMNS = (
    Column("id", "string", "id"),
    Column("lookup_id", "int64", lambda message: message.lookup_id),
    Column("class", "int32", lambda message: message.message_class),
    Column("class_name", "string", lambda message: message.class_name),
    Column("label", "string", "label"),
    Column("body", "binary", lambda message: message.body),
    Column("body_text", "string", lambda message: _whole(message.text)),
    Column("body_type", "int64", "body_type"),
    Column("priority", "int32", "priority"),
    Column("delivery", "string", "delivery"),
    Column("correlation_id", "string", "correlation_id"),
    Column("sent_at", "timestamp", lambda message: message.view.sent_time * _MICROSECONDS),
    Column("arrived_at", "timestamp", lambda message: message.arrived_ms * 1000),
    Column("source_manager", "string", "source_manager"),
    Column("destination_queue", "string", "destination_queue"),
    Column("admin_queue", "string", "admin_queue"),
    Column("response_queue", "string", "response_queue"),
    Column("extension", "binary", lambda message: message.extension),
    Column("app_tag", "int64", "app_tag"),
    Column("hops", "int32", "hops"),
    Column("authenticated", "bool", "authenticated"),
    Column("encrypted", "bool", "encrypted"),
    Column("sender_id", "string", "sender_id"),
    Column("first_in_transaction", "bool", "first_in_transaction"),
    Column("last_in_transaction", "bool", "last_in_transaction"),
    Column("transaction_id", "int64", "transaction_id"),
    Column("aborts", "int32", lambda message: message.aborts),
)
REASON = Column("reason", "int32", lambda message: message.reason)
PACKET = Column("packet", "binary", lambda message: message.packet)
_BY_NAME = {column.name: column for column in (*COLUMNS, REASON, PACKET)}


def _whole(text: str | None) -> str | None:
    return None if text is None else whole_text(text)


def _column(name: str) -> Column:
    try:
        return _BY_NAME[name]
    except KeyError:
        raise InvalidArgument(f"columns: there is no column {name!r}; known are {', '.join(_BY_NAME)}") from None


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise HttpFault(
            HTTPStatus.NOT_ACCEPTABLE,
            InvalidArgument("Accept: this server cannot write Arrow: pip install postroad[arrow], and start it again"),
        ) from None
    return pyarrow


class ArrowWriter:
    """Makes one stream: `start`, any number of `batch`, `end`. Raises HttpFault, 406, where pyarrow is missing."""

    def __init__(self, *, packet: bool = False, columns: Sequence[str] | None = None) -> None:
        self._pyarrow = _pyarrow()
        self._columns: tuple[Column, ...] = (*COLUMNS, PACKET) if packet else COLUMNS
        if columns is not None:
            self._columns = tuple(_column(name) for name in columns)
        self._schema = _schema(self._columns)

    def start(self) -> bytes:
        return bytes(self._schema.serialize())

    def batch(self, messages: Sequence[ReceivedMessage]) -> bytes:
        """One record batch; nothing for no messages."""
        if not messages:
            return b""
        described = [message_json(message.view) for message in messages]
        arrays = [
            self._pyarrow.array(_values(column, messages, described), type=field.type)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        return bytes(self._pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema).serialize())

    def end(self) -> bytes:
        return END_OF_STREAM


def _values(
    column: Column, messages: Sequence[ReceivedMessage], described: Sequence[dict[str, object]]
) -> list[object]:
    source = column.source
    if isinstance(source, str):
        return [each[source] for each in described]
    return [source(message) for message in messages]


@cache
def _schema(columns: tuple[Column, ...]) -> Any:
    pyarrow = _pyarrow()
    types = {
        "string": pyarrow.string(),
        "binary": pyarrow.binary(),
        "bool": pyarrow.bool_(),
        "int32": pyarrow.int32(),
        "int64": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
    }
    return pyarrow.schema([(column.name, types[column.type]) for column in columns])
