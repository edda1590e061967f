"""Reads Arrow streams from untrusted writers, and checks them before pyarrow touches any value.

pyarrow trusts a stream. Offsets outside its buffers read the process's memory. Compressed buffers, dictionaries and
buffers that are used twice make few bytes into many. So this module first reads the headers, which are FlatBuffers, and
refuses all of these. What remains needs as much memory as the bytes that came, and is validated before use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct, error
from typing import Any, Final, NamedTuple

import pyarrow as pa

from postroad.errors import RemoteProtocolError

MAX_HEADER: Final = 1 << 20  # a hundred times what some dozen column names, and what pandas adds to them, need
MAX_BATCH: Final = 256 << 20  # four times the largest batch of a queue manager
MAX_ROWS: Final = 1 << 20  # in one batch; a queue manager's batch has at most 65,536
_CONTINUATION: Final = 0xFFFFFFFF
_V5: Final = 4  # of Arrow 1.0 and later; older batches could hide a compression elsewhere
_SCHEMA, _BATCH = 1, 3  # values of MessageHeader
_LITTLE_ENDIAN: Final = 0
_PREFIX, _I16, _U16, _I32, _U32, _I64 = (Struct(f"<{form}") for form in ("II", "h", "H", "i", "I", "q"))
_PAIR = Struct("<qq")  # the layout of a FieldNode or a Buffer


def read_batches(pieces: Iterable[Any], *, most_rows: int | None = None) -> Iterator[Any]:
    """Yields the `pyarrow.RecordBatch`es of a stream that arrives in pieces, each as soon as its last byte has arrived.

    The first item is the schema, a `pyarrow.Schema`. Raises RemoteProtocolError if the bytes are not an Arrow stream,
    if it has more than plain columns, or if it has more than `most_rows` rows in all.
    """
    source = _Source(pieces)
    schema = None
    batches = rows = 0
    while (found := source.message()) is not None:
        header, message = found
        if (header.kind == _SCHEMA) != (schema is None):
            raise RemoteProtocolError("must be an Arrow stream: one schema, then record batches without dictionaries")
        rows, batches = rows + header.rows, batches + 1
        got = max(rows, batches - 2)  # empty batches cost something too
        if most_rows is not None and got > most_rows:
            raise RemoteProtocolError(f"must have at most {most_rows} rows in one request, got {got}")
        try:
            if schema is None:
                schema = pa.ipc.read_schema(message)
                _check_types(schema)
                yield schema
                continue
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as fault:
            reason = " ".join(str(fault)[:200].split()) or type(fault).__name__
            raise RemoteProtocolError(f"must be an Arrow stream: {reason}") from None
        yield batch
    if schema is None:
        raise RemoteProtocolError("must be an Arrow stream, got nothing")


def _check_types(schema: Any) -> None:
    """Accepts plain columns only: none of their values stands for more bytes than it has."""
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            plain = pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)
        else:
            plain = pa.types.is_primitive(kind) or any(is_type(kind) for is_type in _PLAIN)
        if not plain or isinstance(kind, pa.BaseExtensionType):
            raise RemoteProtocolError(f"must have plain columns, got {name[:60]!r} with {str(kind)[:60]}")


_PLAIN = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_fixed_size_binary, pa.types.is_null),
)


class _Header(NamedTuple):
    kind: int
    body_size: int
    rows: int


class _Source:
    """Cuts pieces of bytes into messages: a prefix, a header, and a body of the size that the header gives."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")

    def message(self) -> tuple[_Header, Any] | None:
        """The next whole message. None at the end."""
        prefix = self._take(_PREFIX.size)
        if not prefix:
            return None
        if len(prefix) < _PREFIX.size:
            raise RemoteProtocolError("must be an Arrow stream: it ends within a message")
        mark, size = _PREFIX.unpack(prefix)
        if mark == _CONTINUATION and size == 0:
            return None
        if mark != _CONTINUATION or size % 8 or size > MAX_HEADER:
            raise RemoteProtocolError(
                f"must be an Arrow stream: messages with a header of at most {MAX_HEADER:,} bytes"
            )
        raw = self._whole(size)
        try:
            header = _read_header(raw)
        except (error, IndexError):
            raise RemoteProtocolError("must be an Arrow stream: a header of a message leads outside of it") from None
        body = self._whole(header.body_size)
        return header, _joined(prefix, raw, body)

    def _whole(self, size: int) -> memoryview:
        found = self._take(size)
        if len(found) < size:
            raise RemoteProtocolError("must be an Arrow stream: it ends within a message")
        return found

    def _take(self, size: int) -> memoryview:
        """The next bytes, or fewer at the end. Memory grows with what has arrived, not with what was promised."""
        if not self._piece:
            self._piece = memoryview(next(self._pieces, b""))
        if len(self._piece) < size:
            gathered = bytearray(self._piece)
            while len(gathered) < size and (piece := next(self._pieces, None)) is not None:
                gathered += piece
            self._piece = memoryview(gathered)
        found, self._piece = self._piece[:size], self._piece[size:]
        return found


def _joined(prefix: memoryview, raw: memoryview, body: memoryview) -> Any:
    """One buffer. It needs no copy if the parts are adjacent and start where 8-byte numbers may."""
    piece = prefix.obj
    if raw.obj is piece and body.obj is piece:
        whole = pa.py_buffer(piece)
        start = pa.py_buffer(prefix).address - whole.address
        if (whole.address + start) % 8 == 0:
            return whole.slice(start, len(prefix) + len(raw) + len(body))
    return pa.py_buffer(b"".join((prefix, raw, body)))


class _Table:
    """A table of a FlatBuffer. Reading outside of it raises struct.error or IndexError."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data = data
        self.at = at
        self._vtable = at - _at(_I32, data, at)
        self._size = _at(_U16, data, self._vtable)

    def place(self, slot: int) -> int | None:
        """The position of a field. None if it is absent."""
        entry = 4 + 2 * slot
        if entry + 2 > self._size:
            return None
        offset = _at(_U16, self.data, self._vtable + entry)
        return self.at + offset if offset else None

    def number(self, slot: int, form: Struct) -> int:
        place = self.place(slot)
        return 0 if place is None else _at(form, self.data, place)

    def table(self, slot: int) -> _Table | None:
        place = self.place(slot)
        return None if place is None else _Table(self.data, place + _at(_U32, self.data, place))

    def pairs(self, slot: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two numbers."""
        place = self.place(slot)
        if place is None:
            return iter(())
        place += _at(_U32, self.data, place)
        count = _at(_U32, self.data, place)
        end = place + 4 + count * _PAIR.size
        if end > len(self.data):
            raise IndexError
        return _PAIR.iter_unpack(self.data[place + 4 : end])


def _at(form: Struct, data: memoryview, at: int) -> int:
    if at < 0:
        raise IndexError
    return int(form.unpack_from(data, at)[0])


def _read_header(data: memoryview) -> _Header:
    """Reads a header by Message.fbs: version, header_type, header, bodyLength."""
    message = _Table(data, _at(_U32, data, 0))
    kind = message.number(1, Struct("<B"))
    body_size, header = message.number(3, _I64), message.table(2)
    if message.number(0, _I16) != _V5:
        raise RemoteProtocolError("must be written by Arrow 1.0 or later")
    if header is None or kind not in (_SCHEMA, _BATCH):
        raise RemoteProtocolError("must be an Arrow stream: one schema, then record batches without dictionaries")
    if not 0 <= body_size <= MAX_BATCH:
        raise RemoteProtocolError(f"must have record batches of at most {MAX_BATCH:,} bytes, got {body_size:,}")
    if kind == _SCHEMA:  # the field `endianness`
        if body_size or header.number(0, _I16) != _LITTLE_ENDIAN:
            raise RemoteProtocolError("must have numbers with the low byte first")
        return _Header(kind, 0, 0)
    return _Header(kind, body_size, _check_batch(header, body_size))


def _check_batch(batch: _Table, body_size: int) -> int:
    """Checks a RecordBatch (length, nodes, buffers, compression) and returns its number of rows."""
    rows = batch.number(0, _I64)
    if not 0 <= rows <= MAX_ROWS:
        raise RemoteProtocolError(f"must have at most {MAX_ROWS:,} rows in a record batch, got {rows:,}")
    if batch.place(3) is not None:
        raise RemoteProtocolError("must not be compressed; write it without a compression")
    # A list has a second node for its items, each of which has bytes in the body.
    most = max(rows, body_size)
    if any(not 0 <= nulls <= length <= most for length, nulls in batch.pairs(1)):
        raise RemoteProtocolError("must have columns as long as the record batch")
    end = 0
    for offset, size in batch.pairs(2):  # they must be in order, so that no byte is used twice
        if size and not (end <= offset and offset % 8 == 0 and 0 <= size <= body_size - offset):
            raise RemoteProtocolError("must have buffers within the record batch, one behind the other")
        end = offset + size if size else end
    return rows
