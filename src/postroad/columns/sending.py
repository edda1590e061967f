"""Makes messages to send from the rows of an Arrow stream. Errors name the column and the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from postroad.columns.ipc import read_batches
from postroad.errors import IllegalName, InvalidMessage, PostroadError, RemoteProtocolError
from postroad.message import ACK_WORDS, MAX_PRIORITY, Message, ack_flags
from postroad.names import MessageId, PublicName, parse_guid, parse_name
from postroad.wire.constants import CUSTOM_CLASS_MASK, INFINITE, MAX_LABEL_UNITS

UINT32_MAX = 0xFFFFFFFF
TRANSACTIONAL = "transactional"
_DELIVERIES = ("express", "recoverable", TRANSACTIONAL)
_IDENTIFIER_SIZE = 20


@dataclass(frozen=True, slots=True)
class Sending:
    """The messages, and whether their rows ask for a transaction. None if no row says so."""

    messages: list[Message]
    transactional: bool | None


def read_messages(stream: bytes, most: int) -> Sending:
    """A message for each row. Raises InvalidMessage for more than `most` rows or for a wrong value."""
    try:
        schema, *batches = read_batches([stream], most_rows=most)
    except RemoteProtocolError as fault:
        raise InvalidMessage(f"body: {fault}") from None
    table = pa.Table.from_batches(batches, schema)
    fields: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        known = COLUMNS.get(name)
        if known is None:
            raise InvalidMessage(f"column {name[:60]}: must be one of {', '.join(COLUMNS)}")
        if known.field in fields:
            raise InvalidMessage(f"column {name}: must be given once, got it twice, perhaps in two forms")
        fields[known.field] = known.values(name, column)
    transactional = _transactional(fields.pop("delivery", None), fields)
    names = list(fields)
    rows = zip(*fields.values(), strict=True) if names else ()
    if any(None in values for values in fields.values()):
        messages = [
            Message(**{name: value for name, value in zip(names, values, strict=True) if value is not None})
            for values in rows
        ]
    else:
        messages = [Message(**dict(zip(names, values, strict=True))) for values in rows]
    return Sending(messages or [Message() for _ in range(table.num_rows)], transactional)


def _transactional(deliveries: list[str | None] | None, fields: dict[str, list[Any]]) -> bool | None:
    """Whether the deliveries ask for a transaction, which must be so for all rows or none."""
    if deliveries is None:
        return None
    if "recoverable" in fields:
        raise InvalidMessage("column delivery: must not be given together with the column recoverable")
    is_transactional = [each == TRANSACTIONAL for each in deliveries]
    if not any(is_transactional):
        fields["recoverable"] = [None if each is None else each == "recoverable" for each in deliveries]
        return False if any(deliveries) else None
    if not all(is_transactional):
        row = is_transactional.index(not is_transactional[0])
        raise InvalidMessage(f"column delivery, row {row}: must be transactional in all rows or in none")
    return True


@dataclass(frozen=True, slots=True)
class _Column:
    """How to read a column. `types` checks its type, and `what` describes it.

    `read` converts one value for a Message. It raises ValueError, or one of our errors, for a wrong value.
    """

    field: str
    what: str
    types: Callable[[Any], bool]
    read: Callable[[Any], Any] | None = None
    lowest: int | None = None
    highest: int | None = None

    def values(self, name: str, column: Any) -> list[Any]:
        if not self.types(column.type):
            raise InvalidMessage(f"column {name}: must be {self.what}, got {column.type}")
        if self.highest is not None:
            self._check_bounds(name, column)
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            self._check_lengths(name, column)
        values: list[Any] = column.to_pylist()
        if self.read is not None:
            for row, value in enumerate(values):
                if value is not None:
                    values[row] = self._value(name, row, value)
        return values

    def _check_bounds(self, name: str, column: Any) -> None:
        outside = pc.or_(pc.less(column, self.lowest), pc.greater(column, self.highest))
        row = pc.index(outside, pa.scalar(True)).as_py()
        if row >= 0:
            fault = f"must be a whole number from {self.lowest} to {self.highest}, got {column[row].as_py()}"
            raise InvalidMessage(f"column {name}, row {row}: {fault}")

    def _check_lengths(self, name: str, column: Any) -> None:
        """Checks lengths before a value becomes a Python object, because one row could hold millions of items."""
        most = len(ACK_WORDS)
        row = pc.index(pc.greater(pc.list_value_length(column), most), pa.scalar(True)).as_py()
        if row >= 0:
            raise InvalidMessage(f"column {name}, row {row}: must have at most {most} words")

    def _value(self, name: str, row: int, value: Any) -> Any:
        assert self.read is not None
        try:
            return self.read(value)
        except PostroadError as fault:
            raise InvalidMessage(f"column {name}, row {row}: {fault}") from None
        except ValueError:
            raise InvalidMessage(f"column {name}, row {row}: must be {self.what}, got {str(value)[:60]!r}") from None


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_null(kind)
    )


def _is_whole(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_truth(kind: Any) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_null(kind))


def _is_ack(kind: Any) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _is_text(kind) or _is_whole(kind) or (listed and _is_text(kind.value_type))


def _label(value: str) -> str:
    if len(value.encode("utf-16-le", "surrogatepass")) > 2 * (MAX_LABEL_UNITS - 1) or "\0" in value:
        raise ValueError
    return value


def _delivery(value: str) -> str:
    if value not in _DELIVERIES:
        raise ValueError
    return value


def _correlation(value: bytes | str) -> bytes | str:
    if isinstance(value, str):
        MessageId.parse(value)
    elif len(value) != _IDENTIFIER_SIZE:
        raise ValueError
    return value


@lru_cache(1024)
def _queue(value: str) -> str:
    name = value if "\\" in value or "=" in value else value.replace("/", "\\")
    parse_name(name)
    return name


def _ack(value: Any) -> int:
    if isinstance(value, int):
        if not 0 <= value <= 0xFF:
            raise ValueError
        return value
    return ack_flags(value)


def _trace(value: str) -> str:
    try:
        name = parse_name(value)
    except IllegalName:
        raise ValueError from None
    if not isinstance(name, PublicName):
        raise ValueError
    return value


def _guid(value: str) -> UUID:
    try:
        return parse_guid(value.removeprefix("{").removesuffix("}"))
    except IllegalName:
        raise ValueError from None


def _number(field: str, highest: int) -> _Column:
    return _Column(field, "a whole number", _is_whole, lowest=0, highest=highest)


_TRUTH = "true or false"
COLUMNS: Mapping[str, _Column] = {
    "body": _Column("body", "bytes or text", lambda kind: _is_bytes(kind) or _is_text(kind)),
    "body_type": _number("body_type", UINT32_MAX),
    "label": _Column("label", f"text of at most {MAX_LABEL_UNITS - 1} characters, without NUL", _is_text, _label),
    "priority": _number("priority", MAX_PRIORITY),
    "delivery": _Column("delivery", f"one of {', '.join(_DELIVERIES)}", _is_text, _delivery),
    "recoverable": _Column("recoverable", _TRUTH, _is_truth),
    "app_tag": _number("app_tag", UINT32_MAX),
    "correlation_id": _Column(
        "correlation_id",
        r"{guid}\ordinal, or its 20 bytes",
        lambda kind: _is_text(kind) or _is_bytes(kind),
        _correlation,
    ),
    "response_queue": _Column("response_queue", "the name of a queue", _is_text, _queue),
    "admin_queue": _Column("admin_queue", "the name of a queue", _is_text, _queue),
    "ack": _Column("ack", "words, a list of words, or their bits", _is_ack, _ack),
    "time_to_reach_queue": _number("time_to_reach_queue", INFINITE),
    "time_to_be_received": _number("time_to_be_received", INFINITE),
    "journal": _Column("journal", _TRUTH, _is_truth),
    "dead_letter": _Column("dead_letter", _TRUTH, _is_truth),
    "dead_letter_queue": _Column("dead_letter_queue", "the name of a queue", _is_text, _queue),
    "trace": _Column("trace", "PUBLIC=<guid>", _is_text, _trace),
    "extension": _Column("extension", "bytes", _is_bytes),
    "connector_type": _Column("connector_type", "a GUID", _is_text, _guid),
    "class": _number("message_class", CUSTOM_CLASS_MASK),
}
